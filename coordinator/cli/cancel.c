/* quorate cancel: cancels an open round. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "db/calls.h"

struct cancel {
    struct common_options common;
    const char *round_id, *reason;
};

static const struct option_argument arguments[] = {
    {.name = "ROUND", .help = "id of the round", .offset = offsetof(struct cancel, round_id)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "reason",
     .kind = OPTION_TEXT,
     .argument = "TEXT",
     .help = "why, for auditors; kept with the round",
     .offset = offsetof(struct cancel, reason),
     .required = true},
    COMMON_OPTIONS(struct cancel),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate cancel",
    .summary = "Cancels a round that is open and not past its deadline.",
    .arguments = arguments,
    .options = options,
    .notes = "Exits with 5 when the round has ended already.",
};

int cli_cancel(int argc, char **argv) {
    struct cancel cancel = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &cancel, &code))
        return code;
    if (!cli_round_id(cancel.round_id, &err))
        return cli_fail(&syntax, &err);
    struct db_client *client = db_client_open(cancel.common.db, &err);
    db_client_needs(client, "quorate_dealer");
    json_t *result = client ? db_cancel_round(client, cancel.round_id, cancel.reason, &err) : NULL;
    db_client_close(client);
    if (!result)
        return cli_fail(&syntax, &err);

    bool cancelled = json_is_true(json_object_get(result, "cancelled"));
    if (cancel.common.json)
        output_json(result);
    if (!cancelled) {
        const char *state = json_string_value(json_object_get(result, "state"));
        error_set(&err, EXIT_REFUSED, "round \"%s\" has ended already: it is %s", cancel.round_id, state ? state : "?");
        code = cli_fail(&syntax, &err);
    } else {
        code = EXIT_DONE;
    }
    json_decref(result);
    return code;
}
