/* The chain of the history: how an entry makes it longer, and signatures over its head. docs/history.md has the texts.
 */
#ifndef QUORATE_WIRE_CHECKPOINT_H
#define QUORATE_WIRE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "wire/key.h"
#include "wire/webhook.h"

enum {
    HISTORY_KIND_MAX = 15,
    HISTORY_PARTS_MAX = 64,
    CHECKPOINT_TEXT_MAX = 22 + ROUND_ID_MAX + 1 + 19 + 1 + SHA256_HEX + 1 + 19,
    CHECKPOINT_LINE_MAX = CHECKPOINT_TEXT_MAX + 1 + PUBLIC_KEY_TEXT + 1 + SIGNATURE_TEXT,
};

struct history_entry {
    int64_t seq, key, at_us;
    char kind[HISTORY_KIND_MAX + 1];
    unsigned char digest[SHA256_BYTES]; /* of the record */
    unsigned char parts[HISTORY_PARTS_MAX];
    size_t parts_size;
};

/* Signed by an audit key: when the chain had `seq` entries it ended with `hash`. */
struct checkpoint {
    char deployment[ROUND_ID_MAX + 1];
    int64_t seq, at_us; /* > 0 */
    unsigned char hash[SHA256_BYTES];
    struct public_key key;
    struct signature signature;
};

/* The hash before the first entry: of "quorate-history-v1.<deployment>". */
void history_start(const char *deployment, unsigned char hash[SHA256_BYTES]);
/* What an entry adds: the hash of "quorate-entry-v1.<seq>.<kind>.<key>.<at_us>.<digest hex>.<parts hex>". */
void history_link(const struct history_entry *entry, unsigned char link[SHA256_BYTES]);
/* hash = SHA-256(hash, link) */
void history_follow(unsigned char hash[SHA256_BYTES], const unsigned char link[SHA256_BYTES]);

/* Fills key and signature from the rest. */
void checkpoint_sign(struct checkpoint *checkpoint, const struct secret_key *key);
bool checkpoint_verify(const struct checkpoint *checkpoint) MUST_CHECK;

/* One line, meant to be kept elsewhere: "quorate-checkpoint-v1.<deployment>.<seq>.<hash hex>.<at_us> <key>
 * <signature>". */
void checkpoint_format(const struct checkpoint *checkpoint, char out[CHECKPOINT_LINE_MAX + 1]);
/* Strict inverse of a line, without its line end. It does not verify. */
bool checkpoint_parse(const char *line, struct checkpoint *checkpoint) MUST_CHECK;

/* Lower-case hexadecimal of exactly `size` bytes. */
bool hex_parse(const char *text, unsigned char *out, size_t size) MUST_CHECK;

#endif
