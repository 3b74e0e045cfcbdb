/* quorate distribute: stores envelopes and prints a verdict per node. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "cli/sealing.h"
#include "cli/share.h"
#include "db/calls.h"
#include "wire/key.h"

struct distribute {
    struct common_options common;
    const char *round_id;
    int64_t nonce;
    struct option_list shares;
    bool unsealed;
};

static const struct option_argument arguments[] = {
    {.name = "ROUND", .help = "id of the round", .offset = offsetof(struct distribute, round_id)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "nonce",
     .kind = OPTION_INT,
     .argument = "N",
     .help = "the nonce that `quorate open` printed",
     .offset = offsetof(struct distribute, nonce),
     .min = 1,
     .max = INT64_MAX,
     .required = true},
    {.name = "share",
     .kind = OPTION_LIST,
     .argument = "ID=FILE",
     .help = "the share for node ID, a file of 1 byte to 16 MiB (a little less if it is sealed); once for each node",
     .offset = offsetof(struct distribute, shares),
     .required = true},
    {.name = "unsealed",
     .kind = OPTION_FLAG,
     .help = "send every share as it is, also to nodes that have a sealing key",
     .offset = offsetof(struct distribute, unsealed)},
    COMMON_OPTIONS(struct distribute),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate distribute",
    .summary = "Stores the envelopes of a round for delivery and prints a verdict for each.",
    .arguments = arguments,
    .options = options,
    .notes =
        "A share is sealed to its node if the node had a sealing key when the round was opened, and the output says "
        "so. What was sealed is kept in SHARE.ROUND.NODE.NONCE.sealed beside the share, and sent again when the call "
        "is repeated; delete it with the share once the round has ended.\n"
        "Verdicts: accepted; duplicate (the same bytes as before, harmless); and the refusals unknown_round, "
        "stale_nonce, unknown_node, invalid_payload, unsealed (in a round that takes only sealed envelopes), conflict "
        "(other bytes "
        "than before) and round_closed. A refused "
        "envelope does not hold up the others. Exits with 0 when none was refused, 6 when a round or node is "
        "unknown, 5 for any other refusal.",
};

/* The exit code of the verdicts, and a line on stderr unless it is 0. */
static int judge(const json_t *verdicts) {
    size_t refused = 0, unknown = 0;
    for (size_t i = 0; i < json_array_size(verdicts); i++) {
        const char *verdict = json_string_value(json_object_get(json_array_get(verdicts, i), "verdict"));
        if (verdict && (strcmp(verdict, "accepted") == 0 || strcmp(verdict, "duplicate") == 0))
            continue;
        refused++;
        if (verdict && (strcmp(verdict, "unknown_round") == 0 || strcmp(verdict, "unknown_node") == 0))
            unknown++;
    }
    if (refused == 0)
        return EXIT_DONE;
    fprintf(stderr, "%s: %zu of %zu envelopes refused\n", syntax.name, refused, json_array_size(verdicts));
    return unknown > 0 ? EXIT_UNKNOWN : EXIT_REFUSED;
}

/* Connects, asks for the keys, seals and sends. */
static json_t *send_shares(const struct distribute *distribute, struct share_list *shares, struct error *err) {
    struct sealing sealing = {distribute->round_id, distribute->nonce, distribute->unsealed, NULL};
    struct db_array node_ids = {0}, payloads = {0};
    json_t *keys = NULL, *verdicts = NULL;
    struct db_client *client = db_client_open(distribute->common.db, err);
    db_client_needs(client, "quorate_dealer");
    if (client)
        sealing.keys = keys = db_seal_keys(client, distribute->round_id, err);
    if (keys && envelopes_make(&sealing, shares, &node_ids, &payloads, err))
        verdicts = db_distribute(client, distribute->round_id, distribute->nonce, &node_ids, &payloads, err);
    db_client_close(client);
    json_decref(keys);
    db_array_free(&node_ids);
    db_array_free(&payloads);
    return verdicts;
}

/* Adds to each verdict whether its envelope was sealed; true if any was. The rows are in the order of the shares. */
static bool tell_sealed(json_t *verdicts, const struct share_list *shares) {
    bool any = false;
    for (size_t i = 0; i < shares->count; i++) {
        json_object_set_new(json_array_get(verdicts, i), "sealed", json_boolean(shares->items[i].sealed));
        any = any || shares->items[i].sealed;
    }
    return any;
}

int cli_distribute(int argc, char **argv) {
    struct distribute distribute = {0};
    struct share_list shares = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &distribute, &code))
        return code;

    json_t *verdicts = NULL;
    if (cli_round_id(distribute.round_id, &err) && wire_start(&err) && shares_read(&distribute.shares, &shares, &err))
        verdicts = send_shares(&distribute, &shares, &err);
    bool any_sealed = verdicts && tell_sealed(verdicts, &shares);
    shares_free(&shares);
    option_list_free(&distribute.shares);
    if (!verdicts)
        return cli_fail(&syntax, &err);

    static const struct output_column plain[] = {{"NODE", "node_id"}, {"VERDICT", "verdict"}, {NULL, NULL}};
    static const struct output_column sealed[] = {
        {"NODE", "node_id"}, {"VERDICT", "verdict"}, {"SEALED", "sealed"}, {NULL, NULL}};
    if (distribute.common.json)
        output_json(verdicts);
    else
        output_table(verdicts, any_sealed ? sealed : plain);
    code = judge(verdicts);
    json_decref(verdicts);
    return code;
}
