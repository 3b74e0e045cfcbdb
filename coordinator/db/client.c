/* The blocking libpq client of the command line. */
#include "db/client.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/redact.h"
#include "db/sqlstate.h"

#define CONNECT_TIMEOUT_S "10"

struct db_client {
    PGconn *conn;
    const char *role; /* whose members may do what is asked of the database; NULL: only the schema's owner */
};

/* Warnings of the server go to stderr, one line each. Notices ("already exists, skipping") are of no use here, and the
 * last words of a server that shuts down are followed by an error that says the same. */
static void on_notice(void *context, const PGresult *result) {
    (void)context;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool ending = state && sqlstate_exit_code(state) == EXIT_UNREACHABLE;
    if (severity && message && strcmp(severity, "WARNING") == 0 && !ending)
        fprintf(stderr, "quorate: the database warns: %s\n", message);
}

/* Hides what stands in double quotes: libpq quotes the piece of a connection string it cannot read, and that piece may
 * be the password. */
static void hide_quoted(char *text) {
    bool inside = false;
    for (; *text; text++) {
        if (*text == '"')
            inside = !inside;
        else if (inside)
            *text = '*';
    }
}

static void hide_word(char *text, const char *word) {
    size_t length = word ? strlen(word) : 0;
    if (length == 0)
        return;
    for (char *at = strstr(text, word); at; at = strstr(at, word)) {
        memset(at, '*', length);
        at += length;
    }
}

/* Turns libpq's lines into one: each newline and the blanks around it become a blank. */
static void join_lines(char *text) {
    char *out = text;
    for (const char *in = text; *in; in++) {
        bool blank = *in == '\n' || *in == '\t' || *in == ' ';
        if (!blank)
            *out++ = *in;
        else if (out > text && out[-1] != ' ')
            *out++ = ' ';
    }
    if (out > text && out[-1] == ' ')
        out--;
    *out = 0;
}

bool db_conninfo_check(const char *conninfo, struct error *err) {
    if (!conninfo)
        return true;
    bool has_options = strchr(conninfo, '=') || strncmp(conninfo, "postgres://", 11) == 0 ||
                       strncmp(conninfo, "postgresql://", 13) == 0;
    if (!has_options) /* the name of a database */
        return true;
    char *reason = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &reason);
    if (!options) {
        if (reason) {
            hide_quoted(reason);
            join_lines(reason);
        }
        error_set(err, EXIT_USAGE, "the connection string cannot be read: %s", reason ? reason : "out of memory");
        PQfreemem(reason);
        return false;
    }
    bool split_password = false;
    for (PQconninfoOption *option = options; option->keyword; option++)
        if (strcmp(option->keyword, "host") == 0 && option->val && strchr(option->val, '@') > option->val)
            split_password = true;
    PQconninfoFree(options);
    if (split_password)
        return error_set(err, EXIT_USAGE,
                         "the connection URI has more than one '@': write one in the user name or password as %%40");
    return true;
}

const char *db_conninfo(const char *given) {
    const char *conninfo = given ? given : getenv("QUORATE_DB");
    return conninfo && *conninfo ? conninfo : NULL; /* an empty variable is an unset one */
}

void db_hide_password(const PGconn *conn, char *text) {
    hide_word(text, PQpass(conn));
    (void)redact(text);
    join_lines(text);
}

int db_liveness(const char **keywords, const char **values) {
    static const char *const settings[DB_LIVENESS_COUNT][2] = {{"keepalives_idle", "3"},
                                                               {"keepalives_interval", "1"},
                                                               {"keepalives_count", "3"},
                                                               {"tcp_user_timeout", "6000"}};
    for (int i = 0; i < DB_LIVENESS_COUNT; i++) {
        keywords[i] = settings[i][0];
        values[i] = settings[i][1];
    }
    return DB_LIVENESS_COUNT;
}

struct db_client *db_client_open(const char *conninfo, struct error *err) {
    conninfo = db_conninfo(conninfo);
    if (!db_conninfo_check(conninfo, err))
        return NULL;

    /* What stands before dbname are defaults: the connection string overrides them. */
    const char *keywords[DB_LIVENESS_COUNT + 5] = {0}, *values[DB_LIVENESS_COUNT + 5] = {0};
    int count = db_liveness(keywords, values);
    if (!getenv("PGCONNECT_TIMEOUT")) {
        keywords[count] = "connect_timeout";
        values[count++] = CONNECT_TIMEOUT_S;
    }
    keywords[count] = "fallback_application_name";
    values[count++] = "quorate";
    keywords[count] = "dbname";
    values[count++] = conninfo;
    keywords[count] = "client_encoding";
    values[count++] = "UTF8";

    struct db_client *client = calloc(1, sizeof *client);
    if (client)
        client->conn = PQconnectdbParams(keywords, values, 1);
    if (!client || !client->conn) {
        error_set(err, EXIT_UNEXPECTED, "out of memory for a database connection");
        db_client_close(client);
        return NULL;
    }
    if (PQstatus(client->conn) != CONNECTION_OK) {
        char reason[900];
        snprintf(reason, sizeof reason, "%s", PQerrorMessage(client->conn));
        db_hide_password(client->conn, reason);
        error_set(err, EXIT_UNREACHABLE, "cannot reach the database: %s", reason);
        db_client_close(client);
        return NULL;
    }
    PQsetNoticeReceiver(client->conn, on_notice, NULL);
    return client;
}

void db_client_close(struct db_client *client) {
    if (!client)
        return;
    PQfinish(client->conn);
    free(client);
}

void db_client_needs(struct db_client *client, const char *role) {
    if (client)
        client->role = role;
}

bool db_client_connected(const struct db_client *client) {
    return PQstatus(client->conn) == CONNECTION_OK;
}

int db_client_server_version(const struct db_client *client) {
    return PQserverVersion(client->conn);
}

const char *db_client_encoding(const struct db_client *client) {
    const char *encoding = PQparameterStatus(client->conn, "server_encoding");
    return encoding ? encoding : "";
}

bool db_client_in_transaction(const struct db_client *client) {
    return PQtransactionStatus(client->conn) == PQTRANS_INTRANS;
}

/* The line (from 1) that holds the character number `position` (from 1) of an UTF-8 text. */
static int line_of(const char *text, long position) {
    int line = 1;
    for (; *text; text++) {
        bool continues = ((unsigned char)*text & 0xc0) == 0x80;
        if (!continues && --position <= 0)
            break;
        if (*text == '\n')
            line++;
    }
    return line;
}

/* Says in one line what the server or libpq said in several. `script`: the text a position refers to, or NULL. */
static void set_error(struct db_client *client, const PGresult *result, const char *script, char *sqlstate,
                      struct error *err) {
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (!state)
        state = "";
    if (sqlstate)
        snprintf(sqlstate, 6, "%s", state);

    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
    const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    char text[1000], line[32] = "";
    if (position && script)
        snprintf(line, sizeof line, "line %d: ", line_of(script, strtol(position, NULL, 10)));
    snprintf(text, sizeof text, "%s%s%s%s%s%s", line, message ? message : PQerrorMessage(client->conn),
             detail || hint ? ". " : "", detail ? detail : "", detail && hint ? " " : "", hint ? hint : "");
    join_lines(text);

    if (state[0] == 0 && db_client_connected(client))
        error_set(err, EXIT_UNEXPECTED, "%s", text);
    else if (state[0] == 0)
        error_set(err, EXIT_UNREACHABLE, "the connection to the database was lost: %s", text);
    else if (!script && sqlstate_is_missing_schema(state))
        error_set(err, EXIT_UNEXPECTED,
                  "this database lacks the schema of quorate, or has an older one: run `quorate migrate` first (%s)",
                  text);
    else if (client->role && strcmp(state, "42501") == 0)
        error_set(err, EXIT_UNEXPECTED,
                  "%s: this needs the role %s; whoever administers roles gives it with `GRANT %s TO \"%s\"`", text,
                  client->role, client->role, PQuser(client->conn));
    else
        error_set(err, sqlstate_exit_code(state), "%s", text);
}

static PGresult *execute(struct db_client *client, const char *sql, const struct db_params *params, char *sqlstate,
                         struct error *err) {
    static const struct db_params none;
    static const int binary[DB_PARAMS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct db_params *p = params ? params : &none;
    if (sqlstate)
        sqlstate[0] = 0;
    PGresult *result = PQexecParams(client->conn, sql, p->count, p->types, p->values, p->sizes, binary, 0);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return result;
    set_error(client, result, NULL, sqlstate, err);
    PQclear(result);
    return NULL;
}

bool db_client_run(struct db_client *client, const char *sql, const struct db_params *params, char sqlstate[6],
                   struct error *err) {
    PGresult *result = execute(client, sql, params, sqlstate, err);
    PQclear(result);
    return result != NULL;
}

json_t *db_client_json(struct db_client *client, const char *sql, const struct db_params *params, char sqlstate[6],
                       struct error *err) {
    PGresult *result = execute(client, sql, params, sqlstate, err);
    if (!result)
        return NULL;
    json_t *json = NULL;
    json_error_t reason;
    if (PQntuples(result) != 1 || PQnfields(result) != 1) {
        error_set(err, EXIT_UNEXPECTED, "the database gave %d rows of %d columns instead of one value",
                  PQntuples(result), PQnfields(result));
    } else if (PQgetisnull(result, 0, 0)) {
        json = json_null();
    } else {
        json = json_loads(PQgetvalue(result, 0, 0), JSON_DECODE_ANY, &reason);
        if (!json)
            error_set(err, EXIT_UNEXPECTED, "the database's answer is not the JSON it should be: %s", reason.text);
    }
    PQclear(result);
    return json;
}

bool db_client_is_direct(struct db_client *client, bool *direct, struct error *err) {
    struct db_params params = {0};
    db_param_int4(&params, PQbackendPID(client->conn));
    json_t *same = db_client_json(client, "SELECT to_json(pg_backend_pid() = $1)", &params, NULL, err);
    *direct = json_is_true(same);
    json_decref(same);
    return same != NULL;
}

bool db_client_script(struct db_client *client, const char *sql, char sqlstate[6], struct error *err) {
    if (sqlstate)
        sqlstate[0] = 0;
    PGresult *result = PQexec(client->conn, sql);
    ExecStatusType status = PQresultStatus(result);
    bool done = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY;
    if (!done)
        set_error(client, result, sql, sqlstate, err);
    PQclear(result);
    return done;
}

static bool take_notifications(struct db_client *client, const char *word) {
    bool found = false;
    size_t length = strlen(word);
    PGnotify *notify;
    while ((notify = PQnotifies(client->conn))) {
        const char *payload = notify->extra;
        if (strncmp(payload, word, length) == 0 && (payload[length] == ' ' || payload[length] == 0))
            found = true;
        PQfreemem(notify);
    }
    return found;
}

bool db_client_wait(struct db_client *client, const char *word, int64_t timeout_us) {
    int64_t end = clock_monotonic_us() + timeout_us;
    for (;;) {
        if (take_notifications(client, word))
            return true;
        int64_t left_us = end - clock_monotonic_us();
        if (left_us <= 0)
            return false;
        struct pollfd ready = {.fd = PQsocket(client->conn), .events = POLLIN};
        if (ready.fd < 0)
            return false;
        struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
        if (ppoll(&ready, 1, &left, NULL) > 0 && !PQconsumeInput(client->conn))
            return false;
    }
}
