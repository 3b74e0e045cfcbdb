/* Brings a database to the schema of this program, safely when many do so at once. */
#ifndef QUORATE_DB_MIGRATE_H
#define QUORATE_DB_MIGRATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "db/client.h"
#include "db/sql_files.h"
#include "wire/webhook.h"

/* The advisory lock that one migrator at a time holds: "quorate" as a number. */
#define MIGRATE_LOCK_KEY INT64_C(0x71756f72617465)

struct migrate_request {
    const struct sql_file *files; /* migrations/0000_*.sql and on, then sql/…, each in order of name */
    size_t file_count;
    const char *deployment_id;          /* NULL: keep the database's, or draw one at random */
    int64_t lock_timeout;               /* microseconds that a statement may wait for a lock, at least 1000 */
    void (*progress)(const char *line); /* told what is being done, one line each; may be NULL */
};

struct migrate_result {
    char deployment_id[ROUND_ID_MAX + 1];
    int schema_version; /* number of the last migration */
    size_t migrations;  /* applied by this call */
    size_t repeatables; /* applied by this call */
};

/* Applies what is pending: each migration in a transaction of its own together with its row in quorate_store.migration,
 * then, if any differs, all files of sql/ in one transaction. Whatever breaks it leaves a whole number of these
 * applied, and it can be run again. EXIT_USAGE for another deployment id than the database has; EXIT_UNEXPECTED for a
 * database it must not touch (see plan_check), a server before 15, and a lock that was not granted in time. */
bool migrate(struct db_client *client, const struct migrate_request *request, struct migrate_result *result,
             struct error *err) MUST_CHECK;

/* EXIT_UNEXPECTED for a server before PostgreSQL 15. */
bool migrate_check_server(const struct db_client *client, struct error *err) MUST_CHECK;

#endif
