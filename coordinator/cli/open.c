/* quorate open: opens a round and prints its nonce. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "db/calls.h"

struct open {
    struct common_options common;
    struct open_request request;
    const char *nodes;
    const char *backoff;
};

#define REQUEST(field) offsetof(struct open, request.field)

static const struct option_argument arguments[] = {
    {.name = "ROUND", .help = "id of the new round, never used before", .offset = REQUEST(round_id)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "quorum",
     .kind = OPTION_INT,
     .argument = "T",
     .help = "how many nodes must acknowledge, 1 to the number of nodes",
     .offset = REQUEST(quorum),
     .min = 1,
     .max = 255,
     .required = true},
    {.name = "nodes",
     .kind = OPTION_TEXT,
     .argument = "1,2,3",
     .help = "the nodes of the round (default: all that are enabled)",
     .offset = offsetof(struct open, nodes)},
    {.name = "nonce",
     .kind = OPTION_INT,
     .argument = "N",
     .help = "a nonce never used before (default: drawn at random)",
     .offset = REQUEST(nonce),
     .min = 1,
     .max = INT64_MAX},
    {.name = "deadline",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "time until a round without quorum stalls (default: 8s)",
     .offset = REQUEST(round_deadline)},
    {.name = "fresh-for",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "time until the round can no longer be collected (default: no limit)",
     .offset = REQUEST(freshness)},
    {.name = "timeout",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "time that one attempt may take (default: 2s)",
     .offset = REQUEST(per_share_timeout)},
    {.name = "retries",
     .kind = OPTION_INT,
     .argument = "N",
     .help = "attempts for each node on each route, 1 to 100 (default: 4)",
     .offset = REQUEST(retry_budget),
     .min = 1,
     .max = 100},
    {.name = "backoff",
     .kind = OPTION_TEXT,
     .argument = "BASE..MAX",
     .help = "longest wait after the first failed attempt, doubled for each further one up to MAX; the wait itself is "
             "drawn between zero and that (default: 50ms..1.5s)",
     .offset = offsetof(struct open, backoff)},
    {.name = "after-quorum",
     .kind = OPTION_CHOICE,
     .choices = "continue|stop",
     .help = "whether the other deliveries go on once the quorum is met (default: continue)",
     .offset = REQUEST(after_quorum)},
    {.name = "require-sealed",
     .kind = OPTION_FLAG,
     .help = "take only envelopes that are sealed to their nodes",
     .offset = REQUEST(require_sealed)},
    COMMON_OPTIONS(struct open),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate open",
    .summary = "Opens a round and prints its nonce, which the envelopes must be distributed with.",
    .arguments = arguments,
    .options = options,
    .notes =
        "All of this is fixed for ever when the round opens. The retries times the longest backoff must be below "
        "the deadline and the freshness.",
};

/* "1,2,3"; whether a node is named twice or unknown is judged by the database. */
static bool parse_nodes(const char *text, struct db_array *nodes, struct error *err) {
    db_array_start(nodes, DB_INT4);
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        char word[16];
        int32_t node_id;
        snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : (int)sizeof word - 1, at);
        if (!cli_node_id("--nodes", word, &node_id, err))
            return false;
        db_array_add_int4(nodes, node_id);
        at += length;
        if (!*at)
            return true;
    }
}

/* "50ms..1.5s" */
static bool parse_backoff(const char *text, int64_t *base, int64_t *max, struct error *err) {
    const char *dots = strstr(text, "..");
    char first[64];
    size_t length = dots ? (size_t)(dots - text) : 0;
    bool valid = dots && length < sizeof first;
    if (valid) {
        memcpy(first, text, length);
        first[length] = 0;
        valid = duration_parse(first, base) && duration_parse(dots + 2, max);
    }
    if (!valid)
        return error_set(err, EXIT_USAGE, "--backoff: \"%.200s\" is no range of durations such as 50ms..1.5s", text);
    if (*base > *max)
        return error_set(err, EXIT_USAGE, "--backoff: %.200s begins above its end", text);
    return true;
}

static json_t *open_round(struct open *open, struct db_array *nodes, struct error *err) {
    struct open_request *request = &open->request;
    if (!cli_round_id(request->round_id, err) || (open->nodes && !parse_nodes(open->nodes, nodes, err)) ||
        (open->backoff && !parse_backoff(open->backoff, &request->base_backoff, &request->max_backoff, err)))
        return NULL;
    if (open->nodes)
        request->node_ids = nodes;

    struct db_client *client = db_client_open(open->common.db, err);
    db_client_needs(client, "quorate_dealer");
    json_t *round = client ? db_open_round(client, request, err) : NULL;
    db_client_close(client);
    return round;
}

int cli_open(int argc, char **argv) {
    struct open open = {0};
    struct db_array nodes = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &open, &code))
        return code;
    json_t *round = open_round(&open, &nodes, &err);
    db_array_free(&nodes);
    if (!round)
        return cli_fail(&syntax, &err);
    if (open.common.json)
        output_json(round);
    else
        puts(json_string_value(json_object_get(round, "nonce")));
    json_decref(round);
    return EXIT_DONE;
}
