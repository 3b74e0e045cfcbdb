/* Ed25519 keys as Standard Webhooks writes them: whsk_<base64 of seed‖public key>, whpk_<base64 of the public key>. */
#ifndef QUORATE_WIRE_KEY_H
#define QUORATE_WIRE_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"

enum {
    PUBLIC_KEY_BYTES = 32,
    PUBLIC_KEY_TEXT = 5 + 44, /* "whpk_" + base64, without the final 0 */
    SECRET_KEY_TEXT = 5 + 88,
};

struct public_key {
    unsigned char bytes[PUBLIC_KEY_BYTES];
};

/* A secret key in sodium_malloc memory: locked, guarded, wiped when freed. Opaque on purpose. */
struct secret_key;

/* Must succeed once before any other function of wire/: starts libsodium. */
bool wire_start(struct error *err) MUST_CHECK;

/* Strict: prefix, canonical padded base64, exact length, and (for a public key) a point that is not of small order.
 * EXIT_USAGE otherwise; a secret key's text never stands in the error. The check of the point takes about as long as
 * verifying a signature: keep the result. */
bool public_key_parse(const char *text, struct public_key *key, struct error *err) MUST_CHECK;
void public_key_format(const struct public_key *key, char out[PUBLIC_KEY_TEXT + 1]);

/* Draws a new pair, writes the secret key on one line to a new file of mode 0600 (never over an existing one:
 * EXIT_REFUSED), synced to disk before it returns. */
bool key_generate(const char *path, struct public_key *key, struct error *err) MUST_CHECK;

/* Reads a secret key from a file that holds it on one line (one final newline allowed). Refuses a file that others can
 * read or write (mode & 077), one that is no regular file, and a public half that does not belong to the seed. NULL on
 * error (EXIT_USAGE). */
struct secret_key *secret_key_load(const char *path, struct error *err) MUST_CHECK;
struct secret_key *secret_key_parse(const char *text, struct error *err) MUST_CHECK; /* for tests and vectors */
const unsigned char *secret_key_bytes(const struct secret_key *key); /* 64 bytes, for crypto_sign_detached */
bool secret_key_locked(const struct secret_key *key);                /* false: it may be written to swap */
struct public_key secret_key_public(const struct secret_key *key);
void secret_key_free(struct secret_key *key); /* NULL is allowed */

/* Decodes canonical padded base64 of exactly `size` bytes; `encoded` is room for the check, of size * 4 / 3 + 4. */
bool base64_decode_exactly(const char *text, unsigned char *bytes, size_t size, char *encoded,
                           size_t encoded_size) MUST_CHECK;

#endif
