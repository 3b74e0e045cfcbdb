/* Sealed envelopes and the keys that they are sealed to: only what was sealed for this key, round, node and nonce
 * opens, and only unchanged. */
#include "vector.h"
#include "wire/seal.h"

static struct seal_secret *secret;
static struct seal_key node;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char text[] = "qbsk_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
    (void)argc, (void)argv;
    MUST(wire_start(NULL));
    secret = seal_secret_parse(text, NULL);
    MUST(secret != NULL);
    node = seal_secret_public(secret);
    return 0;
}

static void read_keys(const char *text) {
    struct error err = {0};
    struct seal_key key;
    char again[SEAL_KEY_TEXT + 1];
    if (seal_key_parse(text, &key, &err)) {
        seal_key_format(&key, again);
        MUST(strcmp(again, text) == 0);
    } else {
        MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text));
    }
    struct seal_secret *read = seal_secret_parse(text, &err);
    if (read == NULL)
        MUST(!fuzz_repeats(err.text, (const uint8_t *)text, strncmp(text, "qbox_", 5) == 0 ? 0 : strlen(text)));
    seal_secret_free(read);
}

/* Bytes that nobody sealed. */
static void open_any(const struct envelope_key *key, const uint8_t *bytes, size_t size) {
    struct opened opened = {0};
    enum seal_result result = seal_open(&secret, 1, key, bytes, size, &opened);
    MUST(result == (seal_marked(bytes, size) ? SEAL_LOCKED : SEAL_UNSEALED));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct envelope_key key = vector_envelope(), other = key;
    char *text = fuzz_text(&in);
    read_keys(text);
    free(text);
    in = (struct fuzz){data, size};
    size_t count;
    uint8_t *bytes = fuzz_rest(&in, &count);
    open_any(&key, bytes, count);
    free(bytes);

    in = (struct fuzz){data, size};
    bool elsewhere = fuzz_mutate(&in, &other.nonce, sizeof other.nonce);
    uint64_t place = fuzz_number(&in, 2);
    uint8_t change = fuzz_byte(&in);
    uint8_t *share = fuzz_rest(&in, &count);
    if (count > 0) {
        size_t whole = seal_overhead(&key) + count;
        uint8_t *envelope = fuzz_memory(whole);
        struct opened opened = {0};
        MUST(seal(&node, &key, share, count, envelope) && seal_marked(envelope, whole));
        MUST(seal_open(&secret, 1, &key, envelope, whole, &opened) == SEAL_OPENED);
        MUST(opened.size == count && memcmp(opened.share, share, count) == 0);
        opened_free(&opened);
        struct opened nothing = {0};
        enum seal_result moved = seal_open(&secret, 1, &other, envelope, whole, &nothing);
        MUST(moved == (elsewhere ? SEAL_ELSEWHERE : SEAL_OPENED));
        if (moved == SEAL_OPENED)
            opened_free(&nothing);
        envelope[place % whole] ^= change;
        struct opened damaged = {0};
        enum seal_result result = seal_open(&secret, 1, &key, envelope, whole, &damaged);
        MUST((result == SEAL_OPENED) == (change == 0));
        if (result == SEAL_OPENED)
            opened_free(&damaged);
        free(envelope);
    }
    free(share);
    return 0;
}
