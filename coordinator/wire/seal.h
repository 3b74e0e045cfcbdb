/* Sealed envelopes: a share encrypted for its node alone, and bound to the round, node and nonce that it is for. */
#ifndef QUORATE_WIRE_SEAL_H
#define QUORATE_WIRE_SEAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "wire/seal_key.h"
#include "wire/webhook.h"

enum {
    SEAL_MARK_BYTES = 8, /* "qsealed" and the version, in clear text */
    SEAL_BOX_BYTES = 48, /* what libsodium's sealed box adds: an ephemeral public key and a tag */
};

/* How many bytes larger than its share an envelope for `key` is. */
size_t seal_overhead(const struct envelope_key *key);

/* Seals a share of at least one byte. `out` has room for seal_overhead(key) + size bytes; differs each time. False
 * without memory, or with a key that nothing can be sealed to. */
bool seal(const struct seal_key *node, const struct envelope_key *key, const void *share, size_t size,
          unsigned char *out) MUST_CHECK;

/* True if the envelope says that it is sealed, by whatever version and for whomever. */
bool seal_marked(const void *envelope, size_t size);

enum seal_result {
    SEAL_OPENED,
    SEAL_UNSEALED,  /* it does not say that it is sealed */
    SEAL_LOCKED,    /* it opens with none of the secrets, or is of another version, cut short or damaged */
    SEAL_ELSEWHERE, /* it opens, and is for another deployment, round, node or nonce */
    SEAL_NO_MEMORY,
};

/* A share that was opened. Start from zeros. */
struct opened {
    unsigned char *memory; /* sodium_malloc: wiped by opened_free */
    const unsigned char *share;
    size_t size;
};

/* Opens an envelope with any of the secrets; only SEAL_OPENED fills `opened`, which the caller frees. */
enum seal_result seal_open(struct seal_secret *const *secrets, size_t count, const struct envelope_key *key,
                           const void *envelope, size_t size, struct opened *opened) MUST_CHECK;
void opened_free(struct opened *opened);

#endif
