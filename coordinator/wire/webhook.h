/* Delivery protocol, version 1: the texts that are signed, request signatures and receipts (Standard Webhooks: v1a =
 * Ed25519, v1 = HMAC-SHA256 with a secret that both sides know). */
#ifndef QUORATE_WIRE_WEBHOOK_H
#define QUORATE_WIRE_WEBHOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "wire/key.h"
#include "wire/secret.h"

enum {
    ROUND_ID_MAX = 128, /* also the deployment id's */
    WEBHOOK_ID_MAX = ROUND_ID_MAX * 2 + 1 + 5 + 1 + 19 + 1,
    SIGNATURE_BYTES = 64,
    SIGNATURE_TEXT = 4 + 88, /* "v1a," + base64; that of v1 is shorter */
    SIGNATURES_TRIED = 8,    /* of a header: it must not buy thousands of verifications */
    RECEIPT_TEXT_MAX = 512,  /* above 19 + 2 * 129 + 6 + 20 + 64 */
    SHA256_BYTES = 32,
    SHA256_HEX = 64,
};

/* What an envelope belongs to. */
struct envelope_key {
    char deployment[ROUND_ID_MAX + 1];
    char round_id[ROUND_ID_MAX + 1];
    int node_id;   /* 1..32767 */
    int64_t nonce; /* > 0 */
};

struct signature {
    unsigned char bytes[SIGNATURE_BYTES];
    size_t size; /* SIGNATURE_BYTES: v1a; MAC_BYTES: v1 */
};

/* True for ^[A-Za-z0-9_-]{1,128}$: round ids and deployment ids. */
bool identifier_valid(const char *text);

/* "<deployment>:<round_id>:<node_id>:<nonce>" */
void webhook_id_format(const struct envelope_key *key, char out[WEBHOOK_ID_MAX + 1]);
/* Strict inverse: no leading zeros or signs, ids valid, numbers in range. */
bool webhook_id_parse(const char *text, struct envelope_key *key) MUST_CHECK;

/* Signs "<webhook-id>.<timestamp>.<body>"; writes the header's value "v1a,<base64>", or "" when memory is short: do not
 * send that, try again later. */
void webhook_sign(const struct secret_key *key, const char *webhook_id, int64_t timestamp, const void *body,
                  size_t body_size, char out[SIGNATURE_TEXT + 1]);

/* True if any of the first 8 v1a signatures of the header (separated by spaces; other versions are skipped) is valid by
 * any of the keys. False when memory is short. */
bool webhook_verify(const struct public_key *keys, size_t key_count, const char *header, const char *webhook_id,
                    int64_t timestamp, const void *body, size_t body_size) MUST_CHECK;

void sha256(const void *data, size_t size, unsigned char out[SHA256_BYTES]);
void sha256_hex(const unsigned char digest[SHA256_BYTES], char out[SHA256_HEX + 1]);

/* Signs "quorate-receipt-v1.<deployment>.<round_id>.<node_id>.<nonce>.<sha256 hex>". */
void receipt_sign(const struct secret_key *key, const struct envelope_key *envelope,
                  const unsigned char digest[SHA256_BYTES], struct signature *out);
bool receipt_verify(const struct public_key *key, const struct envelope_key *envelope,
                    const unsigned char digest[SHA256_BYTES], const struct signature *receipt) MUST_CHECK;

/* The same with a symmetric secret: v1. Nothing of the body is copied, and no memory is needed. */
void webhook_sign_v1(const struct secret *secret, const char *webhook_id, int64_t timestamp, const void *body,
                     size_t body_size, char out[SIGNATURE_TEXT + 1]);
/* The secret by which any of the first 8 v1 signatures of the header is valid, or NULL. One pass over the body for each
 * secret, whatever the header holds. */
const struct secret *webhook_verify_v1(const struct secret_set *secrets, const char *header, const char *webhook_id,
                                       int64_t timestamp, const void *body, size_t body_size) MUST_CHECK;
void receipt_sign_v1(const struct secret *secret, const struct envelope_key *envelope,
                     const unsigned char digest[SHA256_BYTES], struct signature *out);
bool receipt_verify_v1(const struct secret *secret, const struct envelope_key *envelope,
                       const unsigned char digest[SHA256_BYTES], const struct signature *receipt) MUST_CHECK;

/* Used by webhook.c and webhook_v1.c: what a receipt signs, and the first signatures of one size in a header. */
size_t receipt_text(const struct envelope_key *envelope, const unsigned char digest[SHA256_BYTES],
                    char out[RECEIPT_TEXT_MAX]);
size_t signatures_parse(const char *header, size_t signature_size, struct signature out[SIGNATURES_TRIED]);

/* "v1a,<base64>" or "v1,<base64>" and back; strict. Blanks around the value are not allowed: the HTTP layer strips
 * them. */
void signature_format(const struct signature *signature, char out[SIGNATURE_TEXT + 1]);
bool signature_parse(const char *text, struct signature *signature) MUST_CHECK;

#endif
