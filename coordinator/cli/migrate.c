/* quorate migrate: brings a database to this program's schema, or says how far it is from it. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "db/migrate.h"
#include "db/plan.h"

struct migrate_options {
    struct common_options common;
    const char *deployment;
    bool status, verify;
    int64_t lock_timeout;
};

static const struct option_spec options[] = {
    {.name = "deployment",
     .kind = OPTION_TEXT,
     .argument = "ID",
     .help = "id of this deployment, 1 to 128 of A-Z a-z 0-9 _ -; the first run fixes it for ever (default: random)",
     .offset = offsetof(struct migrate_options, deployment)},
    {.name = "status",
     .kind = OPTION_FLAG,
     .help = "list what is applied and what is pending; change nothing",
     .offset = offsetof(struct migrate_options, status)},
    {.name = "verify",
     .kind = OPTION_FLAG,
     .help = "exit with 1 if anything is pending or altered; change nothing",
     .offset = offsetof(struct migrate_options, verify)},
    {.name = "lock-timeout",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "how long a statement may wait for a lock before its transaction is rolled back (default: 5s)",
     .offset = offsetof(struct migrate_options, lock_timeout),
     .min = 1000,
     .max = INT64_C(86400) * 1000 * 1000},
    COMMON_OPTIONS(struct migrate_options),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate migrate",
    .summary = "Creates or updates the schema of quorate in a database.",
    .options = options,
    .notes =
        "Safe to run from many places at once and to run again after any failure. Needs a connection to the server "
        "itself, not one through a pooler, and a user that may create schemas, and roles: without CREATEROLE it says "
        "what "
        "somebody else is to do.",
};

static void print_progress(const char *text) {
    fprintf(stderr, "%s: %s\n", syntax.name, text);
}

static int apply(const struct migrate_options *given, struct db_client *client) {
    struct error err = {0};
    struct migrate_request request = {
        .files = sql_files,
        .file_count = sql_file_count,
        .deployment_id = given->deployment,
        .lock_timeout = given->lock_timeout,
        .progress = print_progress,
    };
    struct migrate_result result;
    if (!migrate(client, &request, &result, &err))
        return cli_fail(&syntax, &err);
    if (!given->common.json) {
        printf("deployment %s, schema version %d: %s\n", result.deployment_id, result.schema_version,
               result.migrations + result.repeatables > 0 ? "migrated" : "nothing to do");
        return EXIT_DONE;
    }
    json_t *json =
        json_pack("{ss, si, si, si}", "deployment_id", result.deployment_id, "schema_version", result.schema_version,
                  "migrations_applied", (int)result.migrations, "sql_files_applied", (int)result.repeatables);
    output_json(json);
    json_decref(json);
    return EXIT_DONE;
}

static json_t *plan_json(const struct plan *plan) {
    json_t *files = json_array();
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        json_array_append_new(
            files, json_pack("{ss, ss, ss, ss, s:o}", "kind", entry->number > 0 ? "migration" : "repeatable", "name",
                             entry->name, "state", plan_state_name(entry->state), "sha256", entry->sha256, "applied_at",
                             entry->applied_at[0] ? json_string(entry->applied_at) : json_null()));
    }
    return json_pack("{s:o, s:o}", "deployment_id",
                     plan->deployment_id[0] ? json_string(plan->deployment_id) : json_null(), "files", files);
}

/* The first 12 digits tell files apart; whoever needs all 64 has --json. */
static void shorten_hashes(json_t *files) {
    for (size_t i = 0; i < json_array_size(files); i++) {
        json_t *file = json_array_get(files, i);
        const char *sha256 = json_string_value(json_object_get(file, "sha256"));
        json_object_set_new(file, "sha256", json_stringn(sha256, 12));
    }
}

static void print_plan(const struct plan *plan, bool json) {
    static const struct output_column columns[] = {
        {"KIND", "kind"}, {"NAME", "name"}, {"STATE", "state"}, {"SHA-256", "sha256"}, {"APPLIED AT", "applied_at"},
        {NULL, NULL},
    };
    json_t *result = plan_json(plan);
    json_t *files = json_object_get(result, "files");
    if (json) {
        output_json(result);
    } else {
        printf("deployment %s\n\n", plan->deployment_id[0] ? plan->deployment_id : "(not fixed yet)");
        shorten_hashes(files);
        output_table(files, columns);
    }
    json_decref(result);
}

/* EXIT_DONE when the database is exactly what this program would make of it. */
static int verify(const struct plan *plan) {
    size_t different = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        if (entry->state == PLAN_APPLIED)
            continue;
        different++;
        fprintf(stderr, "%s: %s is %s\n", syntax.name, entry->name, plan_state_name(entry->state));
    }
    if (different == 0 && plan->deployment_id[0])
        return EXIT_DONE;
    struct error err = {0};
    error_set(&err, EXIT_UNEXPECTED,
              "the database is not at the schema of this program; see `quorate migrate --status`");
    return cli_fail(&syntax, &err);
}

static int inspect(const struct migrate_options *given, struct db_client *client) {
    struct error err = {0};
    struct plan plan = {0};
    int code;
    if (!migrate_check_server(client, &err) || !plan_read(&plan, client, sql_files, sql_file_count, NULL, &err)) {
        code = cli_fail(&syntax, &err);
    } else {
        if (given->status || given->common.json)
            print_plan(&plan, given->common.json);
        code = given->verify ? verify(&plan) : EXIT_DONE;
    }
    plan_free(&plan);
    return code;
}

int cli_migrate(int argc, char **argv) {
    struct migrate_options given = {.lock_timeout = INT64_C(5) * 1000 * 1000};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &given, &code))
        return code;
    if (given.status && given.verify) {
        error_set(&err, EXIT_USAGE, "--status and --verify exclude each other: give one of them");
        return cli_fail(&syntax, &err);
    }
    if (given.deployment && (given.status || given.verify)) {
        error_set(&err, EXIT_USAGE, "--deployment has no use with --status or --verify, which change nothing");
        return cli_fail(&syntax, &err);
    }
    struct db_client *client = db_client_open(given.common.db, &err);
    if (!client)
        return cli_fail(&syntax, &err);
    code = given.status || given.verify ? inspect(&given, client) : apply(&given, client);
    db_client_close(client);
    return code;
}
