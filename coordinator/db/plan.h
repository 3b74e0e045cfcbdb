/* Compares the SQL files of this program with what a database says has been applied to it. */
#ifndef QUORATE_DB_PLAN_H
#define QUORATE_DB_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"
#include "db/client.h"
#include "db/sql_files.h"
#include "wire/webhook.h"

enum plan_state {
    PLAN_APPLIED, /* in the database as it is here */
    PLAN_PENDING, /* not in the database yet */
    PLAN_ALTERED, /* in the database with another SHA-256 */
    PLAN_UNKNOWN, /* in the database, but not here */
};

struct plan_entry {
    int number;                  /* of a migration, from 1; 0 for a repeatable file of sql/ */
    char name[256];              /* the file's name without its folder; the database's for an unknown one */
    const struct sql_file *file; /* NULL for an unknown one */
    char sha256[SHA256_HEX + 1]; /* of the file here; of the database for an unknown one */
    char applied_at[64];         /* ISO 8601, "" when never */
    enum plan_state state;
};

/* Migrations by number, then repeatable files by name; within each, unknown ones come last. */
struct plan {
    struct plan_entry *entries;
    size_t count, capacity;
    const struct sql_file *bootstrap;     /* 0000_*.sql */
    bool bootstrapped;                    /* its tables exist */
    char deployment_id[ROUND_ID_MAX + 1]; /* "" before the first run */
};

/* Reads the database's side and compares; it changes nothing. Start from a struct of zeros; free with plan_free
 * whatever the result. EXIT_UNEXPECTED when the files themselves are not numbered 0, 1, 2, … without a gap. `sqlstate`
 * as of db_client_json. */
bool plan_read(struct plan *plan, struct db_client *client, const struct sql_file *files, size_t file_count,
               char sqlstate[6], struct error *err) MUST_CHECK;
void plan_free(struct plan *plan);

/* Refuses a database that this program must not touch: an applied migration that was altered, one that this program
 * does not know, or one missing below an applied one. */
bool plan_check(const struct plan *plan, struct error *err) MUST_CHECK;

/* True when a file of sql/ is new, altered or gone, so that all of them must be applied. */
bool plan_repeatables_due(const struct plan *plan);

/* "applied", "pending", "altered" or "unknown" */
const char *plan_state_name(enum plan_state state);

#endif
