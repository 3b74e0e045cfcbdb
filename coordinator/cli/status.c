/* quorate status: the deployment at a glance, or one round in full. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "cli/round_screen.h"
#include "db/calls.h"

enum { NEWEST_ROUNDS = 20 };

struct status {
    struct common_options common;
    const char *round_id;
};

static const struct option_argument arguments[] = {
    {.name = "ROUND",
     .help = "show this round with its deliveries, attempts and acks (default: the whole deployment)",
     .offset = offsetof(struct status, round_id),
     .optional = true},
    {0},
};
static const struct option_spec options[] = {COMMON_OPTIONS(struct status), {0}};
static const struct command_syntax syntax = {
    .name = "quorate status",
    .summary = "Shows the deployment, its coordinators and newest rounds, or one round in full.",
    .arguments = arguments,
    .options = options,
    .notes = "Views of the schema quorate have the same and more, for SQL.",
};

static void print_deployment(const json_t *status) {
    static const struct output_column coordinators[] = {
        {"COORDINATOR", "coordinator"},   {"ALIVE", "alive"}, {"OPEN ROUNDS", "open_rounds"},
        {"HEARTBEAT AT", "heartbeat_at"}, {NULL, NULL},
    };
    static const struct output_column rounds[] = {
        {"ROUND", "round_id"},          {"STATE", "state"},         {"ACKED", "acked"},
        {"QUORUM", "quorum"},           {"OF", "total_nodes"},      {"OPENED AT", "opened_at"},
        {"DEADLINE AT", "deadline_at"}, {"CLOSED AT", "closed_at"}, {NULL, NULL},
    };
    char *id = output_text(json_object_get(status, "deployment_id"));
    char *version = output_text(json_object_get(status, "schema_version"));
    printf("deployment %s, schema version %s\n\n", id, version);
    free(id);
    free(version);

    json_t *alive = json_object_get(status, "coordinators");
    if (json_array_size(alive) > 0)
        output_table(alive, coordinators);
    else
        puts("no coordinator has run yet");

    const char *state;
    json_t *count;
    printf("\nrounds:");
    if (json_object_size(json_object_get(status, "rounds_by_state")) == 0)
        printf(" none");
    json_object_foreach(json_object_get(status, "rounds_by_state"), state, count)
        printf("  %s %" JSON_INTEGER_FORMAT, state, json_integer_value(count));
    puts("");

    json_t *newest = json_object_get(status, "newest_rounds");
    if (json_array_size(newest) > 0) {
        puts("");
        output_table(newest, rounds);
    }
}

int cli_status(int argc, char **argv) {
    struct status status = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &status, &code))
        return code;
    if (status.round_id && !cli_round_id(status.round_id, &err))
        return cli_fail(&syntax, &err);

    struct db_client *client = db_client_open(status.common.db, &err);
    db_client_needs(client, "quorate_auditor");
    json_t *result = NULL;
    if (client && status.round_id)
        result = db_round_status(client, status.round_id, &err);
    else if (client)
        result = db_status(client, NEWEST_ROUNDS, &err);
    db_client_close(client);
    if (!result)
        return cli_fail(&syntax, &err);
    if (status.common.json)
        output_json(result);
    else if (status.round_id)
        round_screen(result);
    else
        print_deployment(result);
    json_decref(result);
    return EXIT_DONE;
}
