/* The migrator: one at a time by an advisory lock, and every step in a transaction that also writes down that it was
 * done. */
#include "db/migrate.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "db/plan.h"

enum {
    OLDEST_SERVER = 150000,
    RANDOM_ID_LENGTH = 16,
    LOCK_POLL_FIRST_MS = 25,
    LOCK_POLL_MAX_MS = 1000,
    LOCK_REMINDER_US = 10 * 1000 * 1000,
};

struct migration_run {
    struct db_client *client;
    const struct migrate_request *request;
    struct migrate_result *result;
    struct error *err;
};

static void tell(const struct migration_run *run, const char *format, ...) PRINTF_LIKE(2, 3);
static void tell(const struct migration_run *run, const char *format, ...) {
    if (!run->request->progress)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->request->progress(line);
}

bool migrate_check_server(const struct db_client *client, struct error *err) {
    int version = db_client_server_version(client);
    if (version < OLDEST_SERVER)
        return error_set(err, EXIT_UNEXPECTED, "this server is PostgreSQL %d.%d: quorate needs 15 or later",
                         version / 10000, version % 10000);
    return true;
}

/* Asks again and again rather than waiting in pg_advisory_lock: a session that waits there holds a snapshot, and with
 * it the horizon of VACUUM, for as long as it waits. The lock ends with the session. */
static bool take_lock(const struct migration_run *run) {
    long wait_ms = LOCK_POLL_FIRST_MS;
    int64_t told_at = 0;
    for (;;) {
        struct db_params params = {0};
        db_param_int8(&params, MIGRATE_LOCK_KEY);
        json_t *got = db_client_json(run->client, "SELECT to_json(pg_try_advisory_lock($1))", &params, NULL, run->err);
        if (!got)
            return false;
        bool taken = json_is_true(got);
        json_decref(got);
        if (taken)
            return true;

        int64_t now = clock_monotonic_us();
        if (told_at == 0 || now - told_at >= LOCK_REMINDER_US) {
            tell(run, "another quorate migrate is at work on this database: waiting for it to end");
            told_at = now;
        }
        struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
        nanosleep(&wait, NULL);
        wait_ms = 2 * wait_ms < LOCK_POLL_MAX_MS ? 2 * wait_ms : LOCK_POLL_MAX_MS;
    }
}

/* Behind a pooler the lock may stay behind in a session that the server gives to others, and the next run waits for it
 * in vain. */
static bool check_connection(const struct migration_run *run) {
    bool direct;
    if (!db_client_is_direct(run->client, &direct, run->err))
        return false;
    return direct || error_set(run->err, EXIT_UNEXPECTED,
                               "a connection pooler is between this and the database: migrations need a lock of their "
                               "session, so connect to the server itself");
}

static void release_lock(const struct migration_run *run) {
    struct db_params params = {0};
    db_param_int8(&params, MIGRATE_LOCK_KEY);
    struct error ignored;
    if (!db_client_run(run->client, "SELECT pg_advisory_unlock($1)", &params, NULL, &ignored))
        tell(run, "the lock of quorate migrate ends with the connection: %.200s", ignored.text);
}

/* The lock belongs to a session of the server. Behind a transaction pooler the next transaction may run in another one,
 * where it protects nothing. */
static bool lock_is_ours(const struct migration_run *run) {
    struct db_params params = {0};
    db_param_int8(&params, MIGRATE_LOCK_KEY);
    json_t *held = db_client_json(run->client,
                                  "SELECT to_json(EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' "
                                  "AND pid = pg_backend_pid() AND objsubid = 1 AND granted "
                                  "AND (classid::bigint << 32 | objid::bigint) = $1))",
                                  &params, NULL, run->err);
    bool ours = json_is_true(held);
    if (held && !ours)
        error_set(run->err, EXIT_UNEXPECTED,
                  "the lock of quorate migrate was lost between two transactions: connect to "
                  "the server itself, not through a transaction pooler");
    json_decref(held);
    return ours;
}

/* Begins a transaction in which no statement waits longer than lock_timeout for a lock: a waiting ALTER TABLE makes
 * everyone behind it wait as well. */
static bool begin(const struct migration_run *run) {
    char sql[128];
    snprintf(sql, sizeof sql, "BEGIN; SET LOCAL lock_timeout = %lld; SET LOCAL search_path = pg_catalog",
             (long long)(run->request->lock_timeout / 1000));
    return db_client_script(run->client, sql, NULL, run->err) && lock_is_ours(run);
}

static bool commit(const struct migration_run *run) {
    return db_client_script(run->client, "COMMIT", NULL, run->err);
}

/* Rolls back, and says what was being done when it failed. Always false. */
static bool fail(const struct migration_run *run, const char *what, const char *sqlstate) {
    struct error cause = *run->err;
    if (db_client_connected(run->client) && !db_client_script(run->client, "ROLLBACK", NULL, NULL))
        tell(run, "rolling back failed; the server does it when the connection ends");
    if (strcmp(sqlstate, "55P03") == 0)
        return error_set(run->err, EXIT_UNEXPECTED,
                         "%s: a lock was not granted within %lld ms, so nothing of it was changed; run this again, "
                         "or give a longer --lock-timeout (%.200s)",
                         what, (long long)(run->request->lock_timeout / 1000), cause.text);
    return error_set(run->err, cause.code, "%s: %.800s", what, cause.text);
}

static bool run_file(const struct migration_run *run, const struct sql_file *file, char sqlstate[6]) {
    if (!db_client_script(run->client, (const char *)file->bytes, sqlstate, run->err))
        return false;
    if (!db_client_in_transaction(run->client))
        return error_set(run->err, EXIT_UNEXPECTED, "the file ends the transaction it runs in; it must not");
    return true;
}

static bool write_down(const struct migration_run *run, const struct plan_entry *entry, char sqlstate[6]) {
    unsigned char digest[SHA256_BYTES];
    sha256(entry->file->bytes, entry->file->size, digest);
    struct db_params params = {0};
    db_param_text(&params, entry->name);
    db_param_bytes(&params, digest, sizeof digest);
    const char *sql = "INSERT INTO quorate_store.repeatable (name, sha256) VALUES ($1, $2)";
    if (entry->number > 0) {
        db_param_int4(&params, entry->number);
        sql = "INSERT INTO quorate_store.migration (name, sha256, number) VALUES ($1, $2, $3)";
    }
    return db_client_run(run->client, sql, &params, sqlstate, run->err);
}

static bool bootstrap(const struct migration_run *run, const struct plan *plan) {
    if (plan->bootstrapped)
        return true;
    char sqlstate[6] = "";
    if (!begin(run) || !run_file(run, plan->bootstrap, sqlstate) || !commit(run))
        return fail(run, plan->bootstrap->path, sqlstate);
    return true;
}

static bool apply_migrations(const struct migration_run *run, const struct plan *plan) {
    for (size_t i = 0; i < plan->count && plan->entries[i].number > 0; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        run->result->schema_version = entry->number;
        if (entry->state == PLAN_APPLIED)
            continue;
        tell(run, "applying %s", entry->file->path);
        char sqlstate[6] = "";
        if (!begin(run) || !run_file(run, entry->file, sqlstate) || !write_down(run, entry, sqlstate) || !commit(run))
            return fail(run, entry->file->path, sqlstate);
        run->result->migrations++;
    }
    return true;
}

/* True when a function cannot be replaced in place: the names of its arguments, its result or its defaults changed. */
static bool must_be_dropped(const char *sqlstate) {
    return strcmp(sqlstate, "42P13") == 0 || strcmp(sqlstate, "42723") == 0;
}

static bool apply_files(const struct migration_run *run, const struct plan *plan, bool drop, char sqlstate[6]) {
    sqlstate[0] = 0;
    run->result->repeatables = 0;
    if (!begin(run) ||
        (drop && !db_client_script(run->client, "SET LOCAL quorate.drop_functions = on", sqlstate, run->err)) ||
        !db_client_run(run->client, "DELETE FROM quorate_store.repeatable", NULL, sqlstate, run->err))
        return fail(run, "sql/", sqlstate);
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        if (entry->number > 0 || !entry->file)
            continue;
        if (!run_file(run, entry->file, sqlstate) || !write_down(run, entry, sqlstate))
            return fail(run, entry->file->path, sqlstate);
        run->result->repeatables++;
    }
    return commit(run) || fail(run, "sql/", sqlstate);
}

/* All of them or none: a function may have changed its signature, and its callers are in other files. */
static bool apply_repeatables(const struct migration_run *run, const struct plan *plan) {
    if (!plan_repeatables_due(plan))
        return true;
    tell(run, "applying the functions and views of sql/");
    char sqlstate[6];
    return apply_files(run, plan, false, sqlstate) ||
           (must_be_dropped(sqlstate) && apply_files(run, plan, true, sqlstate));
}

static void draw_id(char out[RANDOM_ID_LENGTH + 1]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (int i = 0; i < RANDOM_ID_LENGTH; i++)
        out[i] = letters[randombytes_uniform(sizeof letters - 1)];
    out[RANDOM_ID_LENGTH] = 0;
}

/* In a transaction, for its lock_timeout. */
static bool read_plan(const struct migration_run *run, struct plan *plan) {
    const struct migrate_request *request = run->request;
    char sqlstate[6] = "";
    if (!begin(run) || !plan_read(plan, run->client, request->files, request->file_count, sqlstate, run->err) ||
        !commit(run))
        return fail(run, "reading what is applied", sqlstate);
    return true;
}

/* The first run fixes the id for ever. */
static bool fix_deployment_id(const struct migration_run *run, const struct plan *plan) {
    char *id = run->result->deployment_id;
    if (plan->deployment_id[0]) {
        snprintf(id, ROUND_ID_MAX + 1, "%s", plan->deployment_id);
        return true;
    }
    if (run->request->deployment_id)
        snprintf(id, ROUND_ID_MAX + 1, "%s", run->request->deployment_id);
    else
        draw_id(id);
    struct db_params params = {0};
    db_param_text(&params, id);
    char sqlstate[6] = "";
    if (!begin(run) ||
        !db_client_run(run->client, "INSERT INTO quorate_store.deployment (deployment_id) VALUES ($1)", &params,
                       sqlstate, run->err) ||
        !commit(run))
        return fail(run, "fixing the deployment id", sqlstate);
    tell(run, "the id of this deployment is %s", id);
    return true;
}

static bool check_deployment_id(const struct migration_run *run, const struct plan *plan) {
    const char *wanted = run->request->deployment_id;
    if (wanted && plan->deployment_id[0] && strcmp(wanted, plan->deployment_id) != 0)
        return error_set(run->err, EXIT_USAGE,
                         "--deployment: this database is deployment \"%s\" for ever, not \"%s\": leave the option out, "
                         "or connect to another database",
                         plan->deployment_id, wanted);
    return true;
}

/* The history is made of texts in UTF8: one byte that is none, written by any dealer, would hold it up for ever. */
static bool check_encoding(const struct migration_run *run, const struct plan *plan) {
    const char *encoding = db_client_encoding(run->client);
    if (strcmp(encoding, "UTF8") == 0)
        return true;
    if (!plan->deployment_id[0])
        return error_set(run->err, EXIT_UNEXPECTED,
                         "this database has the encoding %.50s: quorate needs one of UTF8, which `createdb --encoding "
                         "UTF8 --template template0` makes",
                         encoding);
    tell(run,
         "this database has the encoding %.50s: texts that are no UTF8 can hold up the history; move to a database "
         "of UTF8",
         encoding);
    return true;
}

bool migrate(struct db_client *client, const struct migrate_request *request, struct migrate_result *result,
             struct error *err) {
    struct error own = {0};
    struct migration_run run = {client, request, result, err ? err : &own};
    *result = (struct migrate_result){0};
    if (request->deployment_id && !identifier_valid(request->deployment_id))
        return error_set(err, EXIT_USAGE, "\"%.200s\" is no deployment id: write 1 to 128 of A-Z a-z 0-9 _ -",
                         request->deployment_id);
    if (!migrate_check_server(client, run.err) || !wire_start(run.err) || !check_connection(&run) || !take_lock(&run))
        return false;

    struct plan plan = {0};
    bool done = read_plan(&run, &plan) && plan_check(&plan, run.err) && check_deployment_id(&run, &plan) &&
                check_encoding(&run, &plan) && bootstrap(&run, &plan) && apply_migrations(&run, &plan) &&
                fix_deployment_id(&run, &plan) && apply_repeatables(&run, &plan);
    plan_free(&plan);
    release_lock(&run);
    return done;
}
