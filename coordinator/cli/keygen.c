/* quorate keygen: draws a key pair, or a symmetric secret. */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "wire/key.h"
#include "wire/secret.h"

struct keygen {
    struct common_options common;
    const char *path;
    bool symmetric;
};

static const struct option_argument arguments[] = {
    {.name = "FILE", .help = "where the secret key goes; must not exist yet", .offset = offsetof(struct keygen, path)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "symmetric",
     .kind = OPTION_FLAG,
     .help = "draw a secret for a coordinator and a node to share instead, and print its id (whid_...)",
     .offset = offsetof(struct keygen, symmetric)},
    COMMON_OPTIONS(struct keygen),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate keygen",
    .summary = "Draws an Ed25519 key pair: the secret key goes to FILE (mode 0600), the public key to stdout.",
    .arguments = arguments,
    .options = options,
    .notes =
        "Needs no database. A coordinator and a node each have a pair of their own; the public key of a node is "
        "what `quorate node add --key` takes, or the id of the secret that it shares with the coordinators.",
};

static_assert((int)SECRET_ID_TEXT <= (int)PUBLIC_KEY_TEXT, "one buffer is room for either");

static bool draw_pair(const char *path, char text[PUBLIC_KEY_TEXT + 1], struct error *err) {
    struct public_key key;
    if (!key_generate(path, &key, err))
        return false;
    public_key_format(&key, text);
    return true;
}

int cli_keygen(int argc, char **argv) {
    struct keygen keygen = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &keygen, &code))
        return code;
    char text[PUBLIC_KEY_TEXT + 1];
    if (!wire_start(&err) ||
        !(keygen.symmetric ? secret_generate(keygen.path, text, &err) : draw_pair(keygen.path, text, &err)))
        return cli_fail(&syntax, &err);

    if (keygen.common.json) {
        json_t *result = json_pack("{ss}", keygen.symmetric ? "secret_id" : "public_key", text);
        output_json(result);
        json_decref(result);
    } else {
        puts(text);
    }
    return EXIT_DONE;
}
