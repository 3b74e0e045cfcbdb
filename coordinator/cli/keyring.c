/* quorate node key: adds and revokes keys of nodes, and lists them with their windows. */
#include "cli/keyring.h"

#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "cli/dispatch.h"
#include "cli/output.h"
#include "db/calls.h"
#include "wire/key.h"
#include "wire/seal_key.h"
#include "wire/secret.h"

struct keyring {
    struct common_options common;
    const char *id, *key;
    const char *from, *until;
};

static const struct option_argument add_arguments[] = {
    {.name = "ID", .help = "number of the node, 1 to 32767", .offset = offsetof(struct keyring, id)},
    {.name = "KEY",
     .help = "public key of the node: whpk_... for receipts, qbox_... for sealing",
     .offset = offsetof(struct keyring, key)},
    {0},
};
static const struct option_argument revoke_arguments[] = {
    {.name = "ID", .help = "number of the node, 1 to 32767", .offset = offsetof(struct keyring, id)},
    {.name = "KEY",
     .help = "the key, as `quorate node key list` shows it: whpk_..., qbox_... or the id of a secret, whid_...",
     .offset = offsetof(struct keyring, key)},
    {0},
};
static const struct option_argument list_arguments[] = {
    {.name = "ID",
     .help = "number of the node (default: all nodes)",
     .offset = offsetof(struct keyring, id),
     .optional = true},
    {0},
};
static const struct option_spec add_options[] = {
    {.name = "from",
     .kind = OPTION_TEXT,
     .argument = "TIME",
     .help = "when the key begins to be valid, such as 2030-12-31T23:00:00Z; without a zone it is the session's "
             "(default: now)",
     .offset = offsetof(struct keyring, from)},
    {.name = "until",
     .kind = OPTION_TEXT,
     .argument = "TIME",
     .help = "when it ends, `now` included (default: never)",
     .offset = offsetof(struct keyring, until)},
    COMMON_OPTIONS(struct keyring),
    {0},
};
static const struct option_spec common_only[] = {COMMON_OPTIONS(struct keyring), {0}};
static const struct command_syntax add_syntax = {
    .name = "quorate node key add",
    .summary = "Lets a node have one more key beside those that it has, or gives one of its keys another window.",
    .arguments = add_arguments,
    .options = add_options,
    .notes =
        "Rounds opened while a key is valid take receipts by it; of sealing keys dealers use the one that began "
        "last. Rounds that are open keep the keys they were opened with, so change the custodian's key only "
        "when all that were opened before have ended.",
};
static const struct command_syntax revoke_syntax = {
    .name = "quorate node key revoke",
    .summary = "Revokes a key of a node, at once and for ever: no new round takes receipts by it, or is sealed to it.",
    .arguments = revoke_arguments,
    .options = common_only,
    .notes =
        "Rounds that are open keep it: cancel them if its receipts must not count there. A node whose last key "
        "this was is refused for new rounds until it has another one or is disabled.",
};
static const struct command_syntax list_syntax = {
    .name = "quorate node key list",
    .summary = "Lists the keys of a node, or of all, with the windows in which they are valid.",
    .arguments = list_arguments,
    .options = common_only,
};

/* What is given may be a secret by mistake. */
bool receipt_key_check(const char *what, const char *text, struct error *err) {
    struct public_key key;
    if (strncmp(text, "whpk_", 5) == 0 || strncmp(text, "whsk_", 5) == 0)
        return public_key_parse(text, &key, err);
    if (strncmp(text, "whsec_", 6) == 0)
        return error_set(err, EXIT_USAGE,
                         "%s: this is a secret (whsec_), where its id belongs: whid_ and 16 lower-case hex digits",
                         what);
    return secret_id_valid(text) ||
           error_set(err, EXIT_USAGE,
                     "%s: it is neither a public key (whpk_ and 44 characters of base64) nor the id of a secret "
                     "(whid_ and 16 lower-case hex digits)",
                     what);
}

bool seal_key_check(const char *what, const char *text, struct error *err) {
    struct seal_key key;
    struct error cause = {0};
    return seal_key_parse(text, &key, &cause) || error_set(err, cause.code, "%s: %s", what, cause.text);
}

static bool any_key_check(const char *text, struct error *err) {
    if (strncmp(text, "qbox_", 5) == 0 || strncmp(text, "qbsk_", 5) == 0)
        return seal_key_check("KEY", text, err);
    if (strncmp(text, "wh", 2) == 0)
        return receipt_key_check("KEY", text, err);
    return error_set(err, EXIT_USAGE,
                     "KEY: it is no key of a node: write whpk_ (for receipts) or qbox_ (for sealing) and 44 characters "
                     "of base64, as `quorate keygen` prints them");
}

static void print_key(const struct keyring *keyring, int32_t node_id) {
    if (!keyring->common.json)
        return;
    json_t *result = json_pack("{si ss}", "node_id", (int)node_id, "key", keyring->key);
    output_json(result);
    json_decref(result);
}

static int change(const struct command_syntax *syntax, bool add, int argc, char **argv) {
    struct keyring keyring = {0};
    struct error err = {0};
    int32_t node_id;
    int code;
    if (!cli_parse(syntax, argc, argv, &keyring, &code))
        return code;
    if (!cli_node_id("ID", keyring.id, &node_id, &err) || !wire_start(&err) || !any_key_check(keyring.key, &err))
        return cli_fail(syntax, &err);
    struct db_client *client = db_client_open(keyring.common.db, &err);
    db_client_needs(client, "quorate_admin");
    bool done = client && (add ? db_add_node_key(client, node_id, keyring.key, keyring.from, keyring.until, &err)
                               : db_revoke_node_key(client, node_id, keyring.key, &err));
    db_client_close(client);
    if (!done)
        return cli_fail(syntax, &err);
    print_key(&keyring, node_id);
    return EXIT_DONE;
}

static int key_add(int argc, char **argv) {
    return change(&add_syntax, true, argc, argv);
}

static int key_revoke(int argc, char **argv) {
    return change(&revoke_syntax, false, argc, argv);
}

static int key_list(int argc, char **argv) {
    struct keyring keyring = {0};
    struct error err = {0};
    int32_t node_id = 0;
    int code;
    if (!cli_parse(&list_syntax, argc, argv, &keyring, &code))
        return code;
    if (keyring.id && !cli_node_id("ID", keyring.id, &node_id, &err))
        return cli_fail(&list_syntax, &err);
    struct db_client *client = db_client_open(keyring.common.db, &err);
    db_client_needs(client, "quorate_auditor");
    json_t *keys = client ? db_node_keys(client, node_id, &err) : NULL;
    db_client_close(client);
    if (!keys)
        return cli_fail(&list_syntax, &err);

    static const struct output_column columns[] = {
        {"NODE", "node_id"},
        {"STATE", "state"},
        {"USE", "use"},
        {"VALID FROM", "valid_from"},
        {"VALID UNTIL", "valid_until"},
        {"REVOKED AT", "revoked_at"},
        {"KEY", "key"},
        {NULL, NULL},
    };
    if (keyring.common.json)
        output_json(keys);
    else
        output_table(keys, columns);
    json_decref(keys);
    return EXIT_DONE;
}

int cli_node_key(int argc, char **argv) {
    static const struct command commands[] = {
        {"add", "let a node have one more key, or change its window", key_add},
        {"revoke", "revoke a key of a node for ever", key_revoke},
        {"list", "list the keys of nodes with their windows", key_list},
        {NULL, NULL, NULL},
    };
    return dispatch("quorate node key", "Keeps the keys of nodes: several may be valid at one time.", commands, argc,
                    argv);
}
