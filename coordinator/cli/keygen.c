/* quorate keygen: draws a key pair. */
#include <jansson.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "wire/key.h"

struct keygen {
    struct common_options common;
    const char *path;
};

static const struct option_argument arguments[] = {
    {.name = "FILE", .help = "where the secret key goes; must not exist yet", .offset = offsetof(struct keygen, path)},
    {0},
};
static const struct option_spec options[] = {COMMON_OPTIONS(struct keygen), {0}};
static const struct command_syntax syntax = {
    .name = "quorate keygen",
    .summary = "Draws an Ed25519 key pair: the secret key goes to FILE (mode 0600), the public key to stdout.",
    .arguments = arguments,
    .options = options,
    .notes =
        "Needs no database. A coordinator and a node each have a pair of their own; the public key of a node is "
        "what `quorate node add --key` takes.",
};

int cli_keygen(int argc, char **argv) {
    struct keygen keygen = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &keygen, &code))
        return code;
    struct public_key key;
    if (!wire_start(&err) || !key_generate(keygen.path, &key, &err))
        return cli_fail(&syntax, &err);

    char text[PUBLIC_KEY_TEXT + 1];
    public_key_format(&key, text);
    if (keygen.common.json) {
        json_t *result = json_pack("{ss}", "public_key", text);
        output_json(result);
        json_decref(result);
    } else {
        puts(text);
    }
    return EXIT_DONE;
}
