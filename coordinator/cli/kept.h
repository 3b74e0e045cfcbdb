/* Sealed envelopes kept in files beside their shares: sealing is random, and whoever repeats a call must send the same
 * bytes. */
#ifndef QUORATE_CLI_KEPT_H
#define QUORATE_CLI_KEPT_H

#include <stddef.h>

#include "base/check.h"
#include "base/error.h"
#include "cli/share.h"
#include "wire/seal.h"

/* Whose envelope it is. */
struct kept_for {
    struct envelope_key key;
    struct seal_key node;
};

/* The sealed envelope of a share: that of the file SHARE.ROUND.NODE.NONCE.sealed, or a new one, which is on disk in
 * that file before this returns. `*envelope` is malloc'ed. EXIT_REFUSED for a file that is damaged or belongs to
 * another share, round, node, nonce or key; EXIT_USAGE for a share that cannot be sealed or has no place beside it. */
bool kept_envelope(const struct kept_for *wanted, const struct share *share, unsigned char **envelope, size_t *size,
                   struct error *err) MUST_CHECK;

#endif
