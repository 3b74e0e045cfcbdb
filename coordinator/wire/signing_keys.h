/* The keys that a coordinator signs its requests with: the current one, and while it changes the old or the next one as
 * well. */
#ifndef QUORATE_WIRE_SIGNING_KEYS_H
#define QUORATE_WIRE_SIGNING_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "wire/key.h"
#include "wire/webhook.h"

enum {
    SIGNING_KEYS_MAX = 4,                                          /* below SIGNATURES_TRIED */
    SIGNATURES_TEXT = SIGNING_KEYS_MAX * (SIGNATURE_TEXT + 1) - 1, /* separated by blanks, without the final 0 */
};

struct signing_keys {
    struct secret_key *keys[SIGNING_KEYS_MAX];
    size_t count;
};

/* Reads each file as secret_key_load does. On error nothing is kept: more files than SIGNING_KEYS_MAX, or one key in
 * two of them, are EXIT_USAGE too. */
bool signing_keys_load(const char *const *paths, size_t count, struct signing_keys *keys, struct error *err) MUST_CHECK;
void signing_keys_free(struct signing_keys *keys);

/* Whether this key is one of them. */
bool signing_keys_have(const struct signing_keys *keys, const struct secret_key *key);

/* Writes the header's value: what webhook_sign makes of each key, in their order. "" when memory is short. */
void signing_keys_sign(const struct signing_keys *keys, const char *webhook_id, int64_t timestamp, const void *body,
                       size_t body_size, char out[SIGNATURES_TEXT + 1]);

/* False if a key may be written to swap. */
bool signing_keys_locked(const struct signing_keys *keys);

#endif
