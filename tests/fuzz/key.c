/* Keys as texts (whpk, whsk, whid): what is read is written back alike and works; errors never repeat a secret key. */
#include <sodium.h>

#include "fuzz.h"
#include "wire/key.h"
#include "wire/secret.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    MUST(wire_start(NULL));
    return 0;
}

static void read_public(const char *text) {
    struct error err = {0};
    struct public_key key;
    char again[PUBLIC_KEY_TEXT + 1];
    if (public_key_parse(text, &key, &err)) {
        public_key_format(&key, again);
        MUST(strcmp(again, text) == 0);
        return;
    }
    MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text));
    if (strncmp(text, "whpk_", 5) != 0)
        MUST(!fuzz_repeats(err.text, (const uint8_t *)text, strlen(text)));
}

static void read_secret(const char *text) {
    static const unsigned char message[] = "message";
    struct error err = {0};
    struct secret_key *key = secret_key_parse(text, &err);
    if (key == NULL) {
        MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text));
        MUST(!fuzz_repeats(err.text, (const uint8_t *)text, strlen(text)));
        return;
    }
    char again[SECRET_KEY_TEXT - 5 + 1];
    unsigned char signature[crypto_sign_BYTES];
    struct public_key public = secret_key_public(key);
    sodium_bin2base64(again, sizeof again, secret_key_bytes(key), 64, sodium_base64_VARIANT_ORIGINAL);
    MUST(strcmp(again, text + 5) == 0);
    crypto_sign_detached(signature, NULL, message, sizeof message, secret_key_bytes(key));
    MUST(crypto_sign_verify_detached(signature, message, sizeof message, public.bytes) == 0);
    secret_key_free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char *text = fuzz_text(&in);
    read_public(text);
    read_secret(text);
    if (secret_id_valid(text))
        MUST(strlen(text) == SECRET_ID_TEXT && strncmp(text, "whid_", 5) == 0 &&
             text[5 + strspn(text + 5, "0123456789abcdef")] == '\0');
    free(text);
    return 0;
}
