/* quorate unseal: opens a sealed envelope that a custodian holds, for whoever goes on with the share. */
#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/output.h"
#include "cli/share.h"
#include "wire/seal.h"

enum { KEYS_MAX = 8 };

struct unseal {
    struct common_options common;
    const char *path, *id;
    struct option_list keys;
};

static const struct option_argument arguments[] = {
    {.name = "ENVELOPE",
     .help = "a file with the envelope, as the custodian stored it",
     .offset = offsetof(struct unseal, path)},
    {0},
};
static const struct option_spec options[] = {
    {.name = "key",
     .kind = OPTION_LIST,
     .argument = "FILE",
     .help =
         "the node's secret sealing key (qbsk_...), as `quorate keygen` writes it to FILE.box; up to 8, any of which "
         "may open it",
     .offset = offsetof(struct unseal, keys),
     .required = true},
    {.name = "id",
     .kind = OPTION_TEXT,
     .argument = "ID",
     .help = "what the envelope must be for, as in webhook-id: <deployment>:<round_id>:<node_id>:<nonce>",
     .offset = offsetof(struct unseal, id),
     .required = true},
    COMMON_OPTIONS(struct unseal),
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate unseal",
    .summary = "Opens a sealed envelope and writes the share to stdout, byte for byte.",
    .arguments = arguments,
    .options = options,
    .notes =
        "Needs no database. Exits with 5, and writes nothing, when the envelope is not sealed, does not open, or was "
        "sealed for another deployment, round, node or nonce. With --json the share is base64.",
};

static bool load_keys(const struct unseal *unseal, struct seal_secret *keys[KEYS_MAX], struct error *err) {
    if (unseal->keys.count > KEYS_MAX)
        return error_set(err, EXIT_USAGE, "--key: given %zu times; at most %d are allowed", unseal->keys.count,
                         (int)KEYS_MAX);
    for (size_t i = 0; i < unseal->keys.count; i++) {
        keys[i] = seal_secret_load(unseal->keys.values[i], err);
        if (!keys[i])
            return false;
    }
    return true;
}

static bool open_envelope(const struct unseal *unseal, struct seal_secret *const *keys, struct opened *opened,
                          struct error *err) {
    struct envelope_key key;
    if (!webhook_id_parse(unseal->id, &key))
        return error_set(err, EXIT_USAGE, "--id: \"%.300s\" is not <deployment>:<round_id>:<node_id>:<nonce>",
                         unseal->id);
    unsigned char *envelope = malloc(ENVELOPE_MAX_BYTES + 1);
    if (!envelope)
        return error_set(err, EXIT_UNEXPECTED, "out of memory for the envelope");
    ssize_t size = share_file_read(unseal->path, envelope, ENVELOPE_MAX_BYTES + 1);
    bool good = false;
    if (size < 0)
        (void)error_set(err, EXIT_USAGE, "the envelope %.400s cannot be read: %s", unseal->path, strerror(errno));
    else if (size > ENVELOPE_MAX_BYTES)
        (void)error_set(err, EXIT_USAGE, "%.400s is larger than 16 MiB: no envelope is", unseal->path);
    else
        switch (seal_open(keys, unseal->keys.count, &key, envelope, (size_t)size, opened)) {
        case SEAL_OPENED:
            good = true;
            break;
        case SEAL_UNSEALED:
            (void)error_set(err, EXIT_REFUSED, "%.400s is not sealed", unseal->path);
            break;
        case SEAL_LOCKED:
            (void)error_set(err, EXIT_REFUSED, "%.400s does not open: it is sealed to another key, or damaged",
                            unseal->path);
            break;
        case SEAL_ELSEWHERE:
            (void)error_set(err, EXIT_REFUSED, "%.400s was not sealed for %.300s", unseal->path, unseal->id);
            break;
        case SEAL_NO_MEMORY:
            (void)error_set(err, EXIT_UNEXPECTED, "out of memory for the share");
        }
    free(envelope);
    return good;
}

/* Not by stdio, whose buffers nobody wipes. */
static bool write_share(const struct opened *opened, struct error *err) {
    size_t done = 0;
    while (done < opened->size) {
        ssize_t put = write(STDOUT_FILENO, opened->share + done, opened->size - done);
        if (put < 0 && errno != EINTR)
            return error_set(err, EXIT_UNEXPECTED, "the share cannot be written: %s", strerror(errno));
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

static bool print_json(const struct opened *opened, struct error *err) {
    size_t room = sodium_base64_encoded_len(opened->size, sodium_base64_VARIANT_ORIGINAL);
    char *text = sodium_malloc(room);
    if (!text)
        return error_set(err, EXIT_UNEXPECTED, "out of memory for the share");
    json_t *result = json_pack(
        "{ss}", "share", sodium_bin2base64(text, room, opened->share, opened->size, sodium_base64_VARIANT_ORIGINAL));
    output_json(result);
    json_decref(result);
    sodium_free(text);
    return true;
}

int cli_unseal(int argc, char **argv) {
    struct unseal unseal = {0};
    struct error err = {0};
    int code;
    if (!cli_parse(&syntax, argc, argv, &unseal, &code))
        return code;
    struct seal_secret *keys[KEYS_MAX] = {0};
    struct opened opened = {0};
    bool done = wire_start(&err) && load_keys(&unseal, keys, &err) && open_envelope(&unseal, keys, &opened, &err) &&
                (unseal.common.json ? print_json(&opened, &err) : write_share(&opened, &err));
    opened_free(&opened);
    for (size_t i = 0; i < KEYS_MAX; i++)
        seal_secret_free(keys[i]);
    option_list_free(&unseal.keys);
    return done ? EXIT_DONE : cli_fail(&syntax, &err);
}
