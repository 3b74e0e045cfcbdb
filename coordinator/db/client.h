/* A blocking database connection for the command line: calls that answer with one JSON value, and scripts. */
#ifndef QUORATE_DB_CLIENT_H
#define QUORATE_DB_CLIENT_H

#include <jansson.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "db/array.h"

struct db_client;

/* Connects. `conninfo`: any libpq connection string, URI or database name; NULL: the environment's QUORATE_DB, and
 * without it libpq's PG* variables. NULL on failure: EXIT_UNREACHABLE with libpq's reason, EXIT_USAGE when libpq cannot
 * read the connection string. No error contains the password. */
struct db_client *db_client_open(const char *conninfo, struct error *err) MUST_CHECK;
void db_client_close(struct db_client *client); /* NULL is allowed */

/* Which role of the database (see sql/95_roles.sql) may do what this connection is for: said when it is refused. Both
 * may be NULL. */
void db_client_needs(struct db_client *client, const char *role);

/* The connection string that db_client_open would use: `given`, else the environment's QUORATE_DB; NULL: libpq's PG*
 * variables. */
const char *db_conninfo(const char *given);

/* Writes the parameters by which a TCP connection that is dead without anyone saying so is noticed, and returns how
 * many they are; to stand before the connection string, which may say otherwise. Keepalives find it when nothing is
 * under way; else it is lost when what was sent stays unacknowledged. The latter counts from when it was sent, which
 * may be just before the keepalives would have given up: both together are to stay well below 15 s. */
enum { DB_LIVENESS_COUNT = 4 };
int db_liveness(const char **keywords, const char **values);
/* EXIT_USAGE for a connection string that libpq cannot read; what may be a password in it is hidden. */
bool db_conninfo_check(const char *conninfo, struct error *err) MUST_CHECK;
/* Replaces the connection's password in `text`, wherever it stands, and makes one line of it. */
void db_hide_password(const PGconn *conn, char *text);

/* False after the connection was lost: nothing but db_client_close is of use then. */
bool db_client_connected(const struct db_client *client);

/* Whether the connection is the server's own. Behind a pooler, which has process numbers of its own, the next
 * transaction may run in another session of the server. */
bool db_client_is_direct(struct db_client *client, bool *direct, struct error *err) MUST_CHECK;

/* 150020 for 15.20 */
int db_client_server_version(const struct db_client *client);
/* The database's own, such as "UTF8" */
const char *db_client_encoding(const struct db_client *client);

enum { DB_PARAMS_MAX = 16 };

/* Parameters of one statement, $1 first. Start from a struct of zeros; whatever a pointer is given for must stay valid
 * until the call. More than DB_PARAMS_MAX is a mistake of the program and aborts it. */
struct db_params {
    int count;
    Oid types[DB_PARAMS_MAX];
    const char *values[DB_PARAMS_MAX];
    int sizes[DB_PARAMS_MAX];
    char inline_values[DB_PARAMS_MAX][16];
};

void db_param_text(struct db_params *params, const char *text); /* NULL: SQL's null */
void db_param_bytes(struct db_params *params, const void *data, size_t size);
void db_param_int4(struct db_params *params, int32_t value);
void db_param_int8(struct db_params *params, int64_t value);
void db_param_bool(struct db_params *params, bool value);
void db_param_interval(struct db_params *params, int64_t microseconds);
void db_param_null(struct db_params *params, Oid type);
/* `type`: the array's own, such as DB_INT4_ARRAY. False (with `err`) when the array could not be completed. */
bool db_param_array(struct db_params *params, Oid type, struct db_array *array, struct error *err) MUST_CHECK;

/* Runs a statement that returns one row of one json column, and returns that value (JSON null for SQL's null); the
 * caller owns it. NULL on failure, with the exit code of the SQLSTATE and a line made of message, detail and hint.
 * `params` may be NULL. If `sqlstate` is not NULL it receives the five characters, "" when there are none. */
json_t *db_client_json(struct db_client *client, const char *sql, const struct db_params *params, char sqlstate[6],
                       struct error *err) MUST_CHECK;

/* Runs one statement and drops its rows. */
bool db_client_run(struct db_client *client, const char *sql, const struct db_params *params, char sqlstate[6],
                   struct error *err) MUST_CHECK;

/* Runs a script of any number of statements, as psql -f would but with no transaction of its own; a position in the
 * script, where the server gives one, becomes a line number in `err`. */
bool db_client_script(struct db_client *client, const char *sql, char sqlstate[6], struct error *err) MUST_CHECK;

/* True while a transaction block is open and has not failed. */
bool db_client_in_transaction(const struct db_client *client);

/* Waits at most `timeout_us` (>= 0) for a notification whose payload is `word`, or begins with it and a blank. True
 * when one came; false when the time is over or the connection was lost. Other notifications are dropped. */
bool db_client_wait(struct db_client *client, const char *word, int64_t timeout_us) MUST_CHECK;

#endif
