/* Keys that envelopes are sealed to: X25519, written qbsk_<base64 of the secret key> and qbox_<base64 of the public
 * key>. */
#ifndef QUORATE_WIRE_SEAL_KEY_H
#define QUORATE_WIRE_SEAL_KEY_H

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"

enum {
    SEAL_KEY_BYTES = 32,
    SEAL_KEY_TEXT = 5 + 44, /* "qbox_" or "qbsk_" + base64, without the final 0 */
};

struct seal_key {
    unsigned char bytes[SEAL_KEY_BYTES];
};

/* A secret key in sodium_malloc memory. Opaque on purpose. */
struct seal_secret;

/* Strict, as public_key_parse: nothing of what does not begin as a public key does is in the error. */
bool seal_key_parse(const char *text, struct seal_key *key, struct error *err) MUST_CHECK;
void seal_key_format(const struct seal_key *key, char out[SEAL_KEY_TEXT + 1]);

/* Draws a pair and writes the secret key to a new file, as key_generate does. */
bool seal_generate(const char *path, struct seal_key *key, struct error *err) MUST_CHECK;

/* Reads a secret key from a file that holds it on one line, under the rules of secret_key_load. NULL on error. */
struct seal_secret *seal_secret_load(const char *path, struct error *err) MUST_CHECK;
struct seal_secret *seal_secret_parse(const char *text, struct error *err) MUST_CHECK; /* for tests and vectors */
const unsigned char *seal_secret_bytes(const struct seal_secret *secret);              /* SEAL_KEY_BYTES */
struct seal_key seal_secret_public(const struct seal_secret *secret);
bool seal_secret_locked(const struct seal_secret *secret); /* false: it may be written to swap */
void seal_secret_free(struct seal_secret *secret);         /* NULL is allowed */

#endif
