/* quorate node: adds, lists, enables and disables nodes; their further keys are in keyring.c. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/dispatch.h"
#include "cli/keyring.h"
#include "cli/output.h"
#include "db/calls.h"
#include "transport/url.h"
#include "wire/key.h"

struct node {
    struct common_options common;
    const char *id;
    const char *url, *backup_url, *key, *seal_key;
};

static const struct option_argument id_argument[] = {
    {.name = "ID", .help = "number of the node, 1 to 32767", .offset = offsetof(struct node, id)},
    {0},
};
static const struct option_argument no_argument_at_all[] = {{0}};
static const struct option_spec common_only[] = {COMMON_OPTIONS(struct node), {0}};
static const struct option_spec add_options[] = {
    {.name = "url",
     .kind = OPTION_TEXT,
     .argument = "URL",
     .help = "where the node takes envelopes, http or https",
     .offset = offsetof(struct node, url),
     .required = true},
    {.name = "key",
     .kind = OPTION_TEXT,
     .argument = "KEY",
     .help = "the public key its receipts are signed with (whpk_...), or the id of the secret that it shares with the "
             "coordinators (whid_...), as `quorate keygen` prints it",
     .offset = offsetof(struct node, key),
     .required = true},
    {.name = "backup-url",
     .kind = OPTION_TEXT,
     .argument = "URL",
     .help = "a second way to the same node, used from half a round's time on (default: none)",
     .offset = offsetof(struct node, backup_url)},
    {.name = "seal-key",
     .kind = OPTION_TEXT,
     .argument = "KEY",
     .help = "the public key that envelopes are sealed to (qbox_...), as `quorate keygen --public` prints it (default: "
             "none, they are sent as they are)",
     .offset = offsetof(struct node, seal_key)},
    COMMON_OPTIONS(struct node),
    {0},
};
static const struct command_syntax add_syntax = {
    .name = "quorate node add",
    .summary = "Adds a node, or replaces the URLs and the keys of one that exists.",
    .arguments = id_argument,
    .options = add_options,
    .notes =
        "Of a node that exists nothing is kept but whether it is enabled: give --backup-url and --seal-key again, or "
        "it has none from now on, and later shares for it are not sealed. All other keys of the node end now; `quorate "
        "node key add` lets it have several. Rounds that are open keep the URLs and keys they were opened with.",
};
static const struct command_syntax list_syntax = {
    .name = "quorate node list",
    .summary = "Lists the nodes.",
    .arguments = no_argument_at_all,
    .options = common_only,
    .notes =
        "A node of which no key is valid is refused for new rounds; `quorate node key list` shows since when, and all "
        "the other keys.",
};
static const struct command_syntax enable_syntax = {
    .name = "quorate node enable",
    .summary = "Lets new rounds use a node.",
    .arguments = id_argument,
    .options = common_only,
};
static const struct command_syntax disable_syntax = {
    .name = "quorate node disable",
    .summary = "Keeps a node out of new rounds; open rounds go on using it.",
    .arguments = id_argument,
    .options = common_only,
};

static void print_node_id(const struct node *node, int32_t node_id) {
    if (!node->common.json)
        return;
    json_t *result = json_pack("{si}", "node_id", (int)node_id);
    output_json(result);
    json_decref(result);
}

/* Where a node has several keys the table shows the newest, and how many more there are; and none that no new round
 * uses any more, though the node keeps it. */
static void shorten_keys(json_t *nodes) {
    static const char none_valid[] = "none is valid";
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *node = json_array_get(nodes, i);
        size_t count = json_array_size(json_object_get(node, "receipt_keys"));
        const char *newest = json_string_value(json_object_get(node, "receipt_key"));
        if (count > 1)
            (void)json_object_set_new(node, "receipt_key", json_sprintf("%s and %zu more", newest, count - 1));
        if (json_is_false(json_object_get(node, "receipt_key_valid")))
            (void)json_object_set_new(node, "receipt_key", json_string(none_valid));
        if (json_is_string(json_object_get(node, "seal_key")) && json_is_false(json_object_get(node, "seal_key_valid")))
            (void)json_object_set_new(node, "seal_key", json_string(none_valid));
    }
}

/* Where no coordinator would send anything, whatever its options are. */
static bool url_check(const char *option, const char *url, struct error *err) {
    static const struct peer_rules anywhere = {.plain_http = true};
    char why[PEER_WHY];
    return url == NULL || url_allowed(&anywhere, url, why) ||
           error_set(err, EXIT_USAGE, "%s \"%.300s\": %s", option, url, why);
}

static int node_add(int argc, char **argv) {
    struct node node = {0};
    struct error err = {0};
    int32_t node_id;
    int code;
    if (!cli_parse(&add_syntax, argc, argv, &node, &code))
        return code;
    if (!cli_node_id("ID", node.id, &node_id, &err) || !wire_start(&err) ||
        !receipt_key_check("--key", node.key, &err) ||
        (node.seal_key && !seal_key_check("--seal-key", node.seal_key, &err)) || !url_check("--url", node.url, &err) ||
        !url_check("--backup-url", node.backup_url, &err))
        return cli_fail(&add_syntax, &err);

    struct db_client *client = db_client_open(node.common.db, &err);
    db_client_needs(client, "quorate_admin");
    bool done = client && db_add_node(client, node_id, node.url, node.key, node.backup_url, node.seal_key, &err);
    db_client_close(client);
    if (!done)
        return cli_fail(&add_syntax, &err);
    print_node_id(&node, node_id);
    return EXIT_DONE;
}

static int node_list(int argc, char **argv) {
    struct node node = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&list_syntax, argc, argv, &node, &code))
        return code;
    struct db_client *client = db_client_open(node.common.db, &err);
    db_client_needs(client, "quorate_auditor");
    json_t *nodes = client ? db_nodes(client, &err) : NULL;
    db_client_close(client);
    if (!nodes)
        return cli_fail(&list_syntax, &err);

    static const struct output_column columns[] = {
        {"NODE", "node_id"},
        {"ENABLED", "enabled"},
        {"URL", "url"},
        {"BACKUP URL", "backup_url"},
        {"RECEIPT KEY", "receipt_key"},
        {"SEAL KEY", "seal_key"},
        {NULL, NULL},
    };
    if (node.common.json) {
        output_json(nodes);
    } else {
        shorten_keys(nodes);
        output_table(nodes, columns);
    }
    json_decref(nodes);
    return EXIT_DONE;
}

static int set_enabled(const struct command_syntax *syntax, bool enabled, int argc, char **argv) {
    struct node node = {0};
    struct error err = {0};
    int32_t node_id;
    int code;
    if (!cli_parse(syntax, argc, argv, &node, &code))
        return code;
    if (!cli_node_id("ID", node.id, &node_id, &err))
        return cli_fail(syntax, &err);
    struct db_client *client = db_client_open(node.common.db, &err);
    db_client_needs(client, "quorate_admin");
    bool done = client && db_set_node_enabled(client, node_id, enabled, &err);
    db_client_close(client);
    if (!done)
        return cli_fail(syntax, &err);
    print_node_id(&node, node_id);
    return EXIT_DONE;
}

static int node_enable(int argc, char **argv) {
    return set_enabled(&enable_syntax, true, argc, argv);
}

static int node_disable(int argc, char **argv) {
    return set_enabled(&disable_syntax, false, argc, argv);
}

int cli_node(int argc, char **argv) {
    static const struct command commands[] = {
        {"add", "add a node, or replace its URLs and keys", node_add},
        {"list", "list the nodes", node_list},
        {"enable", "let new rounds use a node", node_enable},
        {"disable", "keep a node out of new rounds", node_disable},
        {"key", "let a node have more keys, revoke one, or list them", cli_node_key},
        {NULL, NULL, NULL},
    };
    return dispatch("quorate node", "Keeps the list of nodes that rounds can use.", commands, argc, argv);
}
