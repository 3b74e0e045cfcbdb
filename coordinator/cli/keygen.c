/* quorate keygen: draws the key pairs of a coordinator or a node, or a symmetric secret. */
#include <assert.h>
#include <jansson.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "wire/key.h"
#include "wire/key_file.h"
#include "wire/seal_key.h"
#include "wire/secret.h"

struct keygen {
    struct common_options common;
    const char *path;
    bool symmetric, sealing, public_only;
};

static const struct option_argument arguments[] = {
    {.name = "FILE",
     .help = "where the secret signing key goes, and with .box behind its name the secret sealing key; must not exist "
             "yet",
     .offset = offsetof(struct keygen, path)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "symmetric",
     .kind = OPTION_FLAG,
     .help = "draw a secret for a coordinator and a node to share instead, and print its id (whid_...)",
     .offset = offsetof(struct keygen, symmetric)},
    {.name = "sealing",
     .kind = OPTION_FLAG,
     .help = "draw only a sealing pair: the secret key (qbsk_...) goes to FILE itself, the public key (qbox_...) to "
             "stdout",
     .offset = offsetof(struct keygen, sealing)},
    {.name = "public",
     .kind = OPTION_FLAG,
     .help =
         "draw nothing: print the public key that belongs to the secret signing or sealing key in FILE, or the id of "
         "the symmetric secret there",
     .offset = offsetof(struct keygen, public_only)},
    COMMON_OPTIONS(struct keygen),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate keygen",
    .summary =
        "Draws an Ed25519 pair to sign with and an X25519 pair to seal to: the secret keys go to FILE and FILE.box "
        "(mode 0600), the public signing key to stdout.",
    .arguments = arguments,
    .options = options,
    .notes =
        "Needs no database. A coordinator and a node each have keys of their own; the public signing key of a node is "
        "what `quorate node add --key` takes, or the id of the secret that it shares with the coordinators. The public "
        "sealing key, for `quorate node add --seal-key`, is what `quorate keygen --public FILE.box` prints, or "
        "seal_key with --json. A coordinator needs no FILE.box.",
};

/* What is printed: the texts, and what JSON calls them. */
struct drawn {
    const char *name;
    char text[PUBLIC_KEY_TEXT + 1];
    char seal_text[SEAL_KEY_TEXT + 1]; /* "": none */
};

static_assert((int)SECRET_ID_TEXT <= (int)PUBLIC_KEY_TEXT && (int)SEAL_KEY_TEXT <= (int)PUBLIC_KEY_TEXT,
              "one buffer is room for each");

/* The sealing key first: whoever finds FILE finds both. */
static bool draw_pairs(const char *path, struct drawn *drawn, struct error *err) {
    char box[PATH_MAX];
    struct public_key key;
    struct seal_key seal_key;
    if (snprintf(box, sizeof box, "%s.box", path) >= (int)sizeof box)
        return error_set(err, EXIT_USAGE, "the name of FILE is too long");
    bool exists = access(path, F_OK) == 0; /* then key_generate says so */
    if (!exists && !seal_generate(box, &seal_key, err))
        return false;
    if (!key_generate(path, &key, err)) {
        if (!exists)
            unlink(box);
        return false;
    }
    drawn->name = "public_key";
    public_key_format(&key, drawn->text);
    seal_key_format(&seal_key, drawn->seal_text);
    return true;
}

static bool draw_sealing(const char *path, struct drawn *drawn, struct error *err) {
    struct seal_key key;
    if (!seal_generate(path, &key, err))
        return false;
    drawn->name = "seal_key";
    seal_key_format(&key, drawn->text);
    return true;
}

static bool draw_secret(const char *path, struct drawn *drawn, struct error *err) {
    drawn->name = "secret_id";
    return secret_generate(path, drawn->text, err);
}

static bool read_signing(const char *path, struct drawn *drawn, struct error *err) {
    struct secret_key *secret = secret_key_load(path, err);
    if (secret == NULL)
        return false;
    struct public_key key = secret_key_public(secret);
    public_key_format(&key, drawn->text);
    drawn->name = "public_key";
    secret_key_free(secret);
    return true;
}

static bool read_sealing(const char *path, struct drawn *drawn, struct error *err) {
    struct seal_secret *secret = seal_secret_load(path, err);
    if (secret == NULL)
        return false;
    struct seal_key key = seal_secret_public(secret);
    seal_key_format(&key, drawn->text);
    drawn->name = "seal_key";
    seal_secret_free(secret);
    return true;
}

static bool read_symmetric(const char *path, struct drawn *drawn, struct error *err) {
    struct secret_set *set = secret_set_load(path, SECRET_LINES_PLAIN, err);
    if (set == NULL)
        return false;
    size_t count = secret_set_count(set);
    if (count == 1)
        memcpy(drawn->text, secret_id(secret_set_at(set, 0)), SECRET_ID_TEXT + 1);
    drawn->name = "secret_id";
    secret_set_free(set);
    return count == 1 ||
           error_set(err, EXIT_USAGE, "key file \"%.300s\" holds %zu secrets: give a file of one", path, count);
}

/* What kind of secret it is stands at its beginning. */
static bool read_public(const char *path, struct drawn *drawn, struct error *err) {
    char *line = key_file_line("key file", path, SECRET_KEY_TEXT, err);
    if (!line)
        return false;
    bool sealing = strncmp(line, "qbsk_", 5) == 0, symmetric = strncmp(line, "whsec_", 6) == 0;
    sodium_free(line);
    return sealing     ? read_sealing(path, drawn, err)
           : symmetric ? read_symmetric(path, drawn, err)
                       : read_signing(path, drawn, err);
}

static bool draw(const struct keygen *keygen, struct drawn *drawn, struct error *err) {
    if (keygen->symmetric + keygen->sealing + keygen->public_only > 1)
        return error_set(err, EXIT_USAGE, "--symmetric, --sealing and --public exclude each other: give one of them");
    if (!wire_start(err))
        return false;
    if (keygen->public_only)
        return read_public(keygen->path, drawn, err);
    if (keygen->sealing)
        return draw_sealing(keygen->path, drawn, err);
    return keygen->symmetric ? draw_secret(keygen->path, drawn, err) : draw_pairs(keygen->path, drawn, err);
}

int cli_keygen(int argc, char **argv) {
    struct keygen keygen = {0};
    struct drawn drawn = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &keygen, &code))
        return code;
    if (!draw(&keygen, &drawn, &err))
        return cli_fail(&syntax, &err);

    if (keygen.common.json) {
        json_t *result = json_pack("{ss}", drawn.name, drawn.text);
        if (drawn.seal_text[0])
            json_object_set_new(result, "seal_key", json_string(drawn.seal_text));
        output_json(result);
        json_decref(result);
    } else {
        puts(drawn.text);
    }
    return EXIT_DONE;
}
