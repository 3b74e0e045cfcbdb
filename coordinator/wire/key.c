/* Reads, writes and draws Ed25519 keys in the form of Standard Webhooks. */
#include "wire/key.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/secrecy.h"
#include "wire/key_file.h"

enum { PREFIX_SIZE = 5, BASE64 = sodium_base64_VARIANT_ORIGINAL };

struct secret_key {
    unsigned char bytes[crypto_sign_SECRETKEYBYTES];
};

static_assert(PUBLIC_KEY_BYTES == crypto_sign_PUBLICKEYBYTES, "an Ed25519 public key");
static_assert(PUBLIC_KEY_TEXT + 1 == PREFIX_SIZE + sodium_base64_ENCODED_LEN(PUBLIC_KEY_BYTES, BASE64), "its text");
static_assert(SECRET_KEY_TEXT + 1 == PREFIX_SIZE + sodium_base64_ENCODED_LEN(sizeof(struct secret_key), BASE64),
              "a secret key's text");

bool wire_start(struct error *err) {
    if (sodium_init() < 0)
        return error_set(err, EXIT_UNEXPECTED, "libsodium could not be started: no source of random numbers");
    return true;
}

bool base64_decode_exactly(const char *text, unsigned char *bytes, size_t size, char *encoded, size_t encoded_size) {
    size_t decoded = 0;
    if (sodium_base642bin(bytes, size, text, strlen(text), NULL, &decoded, NULL, BASE64) != 0 || decoded != size)
        return false;
    sodium_bin2base64(encoded, encoded_size, bytes, size, BASE64);
    return strcmp(encoded, text) == 0;
}

bool public_key_parse(const char *text, struct public_key *key, struct error *err) {
    static const char form[] = "a public key is written whpk_ and 44 characters of base64";
    /* A secret key pasted here by mistake must not be shown. */
    if (strncmp(text, "whsk_", PREFIX_SIZE) == 0)
        return error_set(err, EXIT_USAGE, "this is a secret key (whsk_), where a public key belongs: %s", form);
    if (strncmp(text, "whpk_", PREFIX_SIZE) != 0)
        return error_set(err, EXIT_USAGE, "the public key does not begin with whpk_: %s", form);
    if (strlen(text) != PUBLIC_KEY_TEXT)
        return error_set(err, EXIT_USAGE, "the public key has %zu characters instead of %d: %s", strlen(text),
                         PUBLIC_KEY_TEXT, form);
    struct public_key parsed;
    char encoded[PUBLIC_KEY_TEXT + 1];
    if (!base64_decode_exactly(text + PREFIX_SIZE, parsed.bytes, sizeof parsed.bytes, encoded, sizeof encoded))
        return error_set(err, EXIT_USAGE, "the public key \"%s\" is not canonical base64: %s", text, form);
    if (!crypto_core_ed25519_is_valid_point(parsed.bytes))
        return error_set(err, EXIT_USAGE, "the public key \"%s\" is no Ed25519 point of full order", text);
    *key = parsed;
    return true;
}

void public_key_format(const struct public_key *key, char out[PUBLIC_KEY_TEXT + 1]) {
    memcpy(out, "whpk_", PREFIX_SIZE);
    sodium_bin2base64(out + PREFIX_SIZE, PUBLIC_KEY_TEXT + 1 - PREFIX_SIZE, key->bytes, sizeof key->bytes, BASE64);
}

/* True if the public half is the one of the seed. */
static bool halves_match(const struct secret_key *key) {
    unsigned char public_half[crypto_sign_PUBLICKEYBYTES];
    struct secret_key *derived = sodium_malloc(sizeof *derived);
    bool match = derived != NULL && crypto_sign_seed_keypair(public_half, derived->bytes, key->bytes) == 0 &&
                 sodium_memcmp(derived->bytes, key->bytes, sizeof key->bytes) == 0;
    sodium_free(derived);
    return match;
}

struct secret_key *secret_key_parse(const char *text, struct error *err) {
    static const char form[] = "a secret key is written whsk_ and 88 characters of base64";
    if (strncmp(text, "whsk_", PREFIX_SIZE) != 0) {
        (void)error_set(err, EXIT_USAGE, "the secret key does not begin with whsk_: %s", form);
        return NULL;
    }
    if (strlen(text) != SECRET_KEY_TEXT) {
        (void)error_set(err, EXIT_USAGE, "the secret key has %zu characters instead of %d: %s", strlen(text),
                        SECRET_KEY_TEXT, form);
        return NULL;
    }
    struct secret_key *key = sodium_malloc(sizeof *key);
    char *encoded = sodium_malloc(SECRET_KEY_TEXT + 1);
    bool good = false;
    if (key == NULL || encoded == NULL)
        (void)error_set(err, EXIT_UNEXPECTED,
                        "no protected memory for the secret key: raise the limit of locked memory");
    else if (!base64_decode_exactly(text + PREFIX_SIZE, key->bytes, sizeof key->bytes, encoded, SECRET_KEY_TEXT + 1))
        (void)error_set(err, EXIT_USAGE, "the secret key is not canonical base64: %s", form);
    else if (!halves_match(key))
        (void)error_set(err, EXIT_USAGE, "the secret key's public half does not belong to its seed: is it damaged?");
    else
        good = sodium_mprotect_readonly(key) == 0 ||
               error_set(err, EXIT_UNEXPECTED, "the secret key's memory could not be protected: %s", strerror(errno));
    sodium_free(encoded);
    if (!good) {
        sodium_free(key);
        key = NULL;
    }
    return key;
}

struct secret_key *secret_key_load(const char *path, struct error *err) {
    char *text = key_file_line("key file", path, SECRET_KEY_TEXT, err);
    struct error cause = {0};
    struct secret_key *key = text != NULL ? secret_key_parse(text, &cause) : NULL;
    if (text != NULL && key == NULL)
        (void)error_set(err, cause.code, "key file \"%.300s\": %s", path, cause.text);
    sodium_free(text);
    return key;
}

const unsigned char *secret_key_bytes(const struct secret_key *key) {
    return key->bytes;
}

bool secret_key_locked(const struct secret_key *key) {
    return secrecy_locked(key, sizeof *key);
}

struct public_key secret_key_public(const struct secret_key *key) {
    struct public_key result;
    memcpy(result.bytes, key->bytes + crypto_sign_SEEDBYTES, sizeof result.bytes);
    return result;
}

void secret_key_free(struct secret_key *key) {
    sodium_free(key);
}
