/* Reads, writes and draws the keys that envelopes are sealed to. */
#include "wire/seal_key.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/secrecy.h"
#include "wire/key.h"
#include "wire/key_file.h"

enum { PREFIX_SIZE = 5, BASE64 = sodium_base64_VARIANT_ORIGINAL };

struct seal_secret {
    unsigned char bytes[crypto_box_SECRETKEYBYTES];
    struct seal_key public_key;
};

static_assert(SEAL_KEY_BYTES == crypto_box_PUBLICKEYBYTES, "an X25519 public key");
static_assert(SEAL_KEY_BYTES == crypto_box_SECRETKEYBYTES, "and a secret one");
static_assert(SEAL_KEY_TEXT + 1 == PREFIX_SIZE + sodium_base64_ENCODED_LEN(SEAL_KEY_BYTES, BASE64), "the text of both");

/* A key of small order makes the same secret with everybody's: libsodium refuses it. */
static bool usable(const struct seal_key *key) {
    static const unsigned char any[crypto_scalarmult_SCALARBYTES] = {8};
    unsigned char shared[crypto_scalarmult_BYTES];
    return crypto_scalarmult(shared, any, key->bytes) == 0;
}

bool seal_key_parse(const char *text, struct seal_key *key, struct error *err) {
    static const char form[] = "a sealing key is written qbox_ and 44 characters of base64";
    if (strncmp(text, "qbsk_", PREFIX_SIZE) == 0)
        return error_set(err, EXIT_USAGE, "this is a secret key (qbsk_), where a public key belongs: %s", form);
    if (strncmp(text, "qbox_", PREFIX_SIZE) != 0)
        return error_set(err, EXIT_USAGE, "the sealing key does not begin with qbox_: %s", form);
    if (strlen(text) != SEAL_KEY_TEXT)
        return error_set(err, EXIT_USAGE, "the sealing key has %zu characters instead of %d: %s", strlen(text),
                         SEAL_KEY_TEXT, form);
    struct seal_key parsed;
    char encoded[SEAL_KEY_TEXT + 1];
    if (!base64_decode_exactly(text + PREFIX_SIZE, parsed.bytes, sizeof parsed.bytes, encoded, sizeof encoded))
        return error_set(err, EXIT_USAGE, "the sealing key \"%s\" is not canonical base64: %s", text, form);
    if (!usable(&parsed))
        return error_set(err, EXIT_USAGE,
                         "the sealing key \"%s\" is a point of small order: nothing can be sealed to it", text);
    *key = parsed;
    return true;
}

static void format(const char *prefix, const unsigned char *bytes, char out[SEAL_KEY_TEXT + 1]) {
    memcpy(out, prefix, PREFIX_SIZE);
    sodium_bin2base64(out + PREFIX_SIZE, SEAL_KEY_TEXT + 1 - PREFIX_SIZE, bytes, SEAL_KEY_BYTES, BASE64);
}

void seal_key_format(const struct seal_key *key, char out[SEAL_KEY_TEXT + 1]) {
    format("qbox_", key->bytes, out);
}

bool seal_generate(const char *path, struct seal_key *key, struct error *err) {
    unsigned char *secret = sodium_malloc(crypto_box_SECRETKEYBYTES);
    char *text = sodium_malloc(SEAL_KEY_TEXT + 1);
    struct seal_key drawn;
    bool good = false;
    if (secret == NULL || text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED,
                        "no protected memory for the secret key: raise the limit of locked memory");
    } else if (crypto_box_keypair(drawn.bytes, secret) != 0) {
        (void)error_set(err, EXIT_UNEXPECTED, "libsodium could not draw a key pair");
    } else {
        format("qbsk_", secret, text);
        text[SEAL_KEY_TEXT] = '\n'; /* in place of the final 0: the file holds one line */
        good = key_file_write("key file", path, text, SEAL_KEY_TEXT + 1, err);
    }
    if (good)
        *key = drawn;
    sodium_free(secret); /* wipes, as for the text */
    sodium_free(text);
    return good;
}

struct seal_secret *seal_secret_parse(const char *text, struct error *err) {
    static const char form[] = "a secret sealing key is written qbsk_ and 44 characters of base64";
    if (strncmp(text, "qbsk_", PREFIX_SIZE) != 0) {
        (void)error_set(err, EXIT_USAGE, "the secret key does not begin with qbsk_: %s", form);
        return NULL;
    }
    if (strlen(text) != SEAL_KEY_TEXT) {
        (void)error_set(err, EXIT_USAGE, "the secret key has %zu characters instead of %d: %s", strlen(text),
                        SEAL_KEY_TEXT, form);
        return NULL;
    }
    struct seal_secret *secret = sodium_malloc(sizeof *secret);
    char *encoded = sodium_malloc(SEAL_KEY_TEXT + 1);
    bool good = false;
    if (secret == NULL || encoded == NULL)
        (void)error_set(err, EXIT_UNEXPECTED,
                        "no protected memory for the secret key: raise the limit of locked memory");
    else if (!base64_decode_exactly(text + PREFIX_SIZE, secret->bytes, sizeof secret->bytes, encoded,
                                    SEAL_KEY_TEXT + 1))
        (void)error_set(err, EXIT_USAGE, "the secret key is not canonical base64: %s", form);
    else /* the base point is of full order: the first cannot fail */
        good = (crypto_scalarmult_base(secret->public_key.bytes, secret->bytes) == 0 &&
                sodium_mprotect_readonly(secret) == 0) ||
               error_set(err, EXIT_UNEXPECTED, "the secret key's memory could not be protected: %s", strerror(errno));
    sodium_free(encoded);
    if (!good) {
        sodium_free(secret);
        secret = NULL;
    }
    return secret;
}

struct seal_secret *seal_secret_load(const char *path, struct error *err) {
    char *text = key_file_line("key file", path, SEAL_KEY_TEXT, err);
    struct error cause = {0};
    struct seal_secret *secret = text != NULL ? seal_secret_parse(text, &cause) : NULL;
    if (text != NULL && secret == NULL)
        (void)error_set(err, cause.code, "key file \"%.300s\": %s", path, cause.text);
    sodium_free(text);
    return secret;
}

const unsigned char *seal_secret_bytes(const struct seal_secret *secret) {
    return secret->bytes;
}

struct seal_key seal_secret_public(const struct seal_secret *secret) {
    return secret->public_key;
}

bool seal_secret_locked(const struct seal_secret *secret) {
    return secrecy_locked(secret, sizeof *secret);
}

void seal_secret_free(struct seal_secret *secret) {
    sodium_free(secret);
}
