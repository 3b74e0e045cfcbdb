/* quorate prune: deletes settled rounds that ended long ago, batch by batch. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "db/calls.h"

enum { BATCH = 2000 };

struct prune {
    struct common_options common;
    int64_t older_than;
};

static const struct option_spec options[] = {
    {.name = "older-than",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "how long ago a round must have ended, such as 30d",
     .offset = offsetof(struct prune, older_than),
     .required = true},
    COMMON_OPTIONS(struct prune),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate prune",
    .summary = "Deletes settled rounds that ended longer ago than a given time, and prints how many.",
    .options = options,
    .notes =
        "Their ids and nonces stay used for ever. Each batch is a transaction of its own, so it may be interrupted "
        "and run again.",
};

/* How many rounds were deleted; `*done` is false when an error ended it early. */
static int64_t prune_all(struct db_client *client, int64_t age, bool *done, struct error *err) {
    int64_t total = 0, pruned = -1;
    json_t *cutoff = db_time_ago(client, age, err);
    while (cutoff && (pruned = db_prune_rounds(client, json_string_value(cutoff), BATCH, err)) > 0) {
        total += pruned;
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "%s: %" PRId64 " rounds so far\n", syntax.name, total);
    }
    json_decref(cutoff);
    *done = pruned == 0;
    return total;
}

int cli_prune(int argc, char **argv) {
    struct prune prune = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &prune, &code))
        return code;
    bool done = false;
    struct db_client *client = db_client_open(prune.common.db, &err);
    db_client_needs(client, "quorate_admin");
    int64_t total = client ? prune_all(client, prune.older_than, &done, &err) : 0;
    db_client_close(client);
    if (!done && total > 0)
        fprintf(stderr, "%s: %" PRId64 " rounds were deleted before this error\n", syntax.name, total);
    if (!done)
        return cli_fail(&syntax, &err);

    if (prune.common.json)
        printf("{\"pruned\": %" PRId64 "}\n", total);
    else
        printf("%" PRId64 "\n", total);
    return EXIT_DONE;
}
