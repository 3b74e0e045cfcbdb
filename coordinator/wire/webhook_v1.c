/* Signs and verifies with symmetric secrets: Standard Webhooks' v1, HMAC-SHA256 over the texts that v1a signs. */
#include "wire/webhook.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { STAMP_MAX = 24 }; /* above 2 dots and the 20 characters of an int64 */

static void request_mac(const struct secret *secret, const char *webhook_id, int64_t timestamp, const void *body,
                        size_t body_size, unsigned char mac[MAC_BYTES]) {
    char stamp[STAMP_MAX];
    size_t stamp_size = (size_t)snprintf(stamp, sizeof stamp, ".%" PRId64 ".", timestamp);
    const struct text_part parts[] = {{webhook_id, strlen(webhook_id)}, {stamp, stamp_size}, {body, body_size}};
    secret_hmac(secret, parts, sizeof parts / sizeof parts[0], mac);
}

static void receipt_mac(const struct secret *secret, const struct envelope_key *envelope,
                        const unsigned char digest[SHA256_BYTES], unsigned char mac[MAC_BYTES]) {
    char text[RECEIPT_TEXT_MAX];
    const struct text_part part = {text, receipt_text(envelope, digest, text)};
    secret_hmac(secret, &part, 1, mac);
}

void webhook_sign_v1(const struct secret *secret, const char *webhook_id, int64_t timestamp, const void *body,
                     size_t body_size, char out[SIGNATURE_TEXT + 1]) {
    struct signature signature = {.size = MAC_BYTES};
    request_mac(secret, webhook_id, timestamp, body, body_size, signature.bytes);
    signature_format(&signature, out);
}

const struct secret *webhook_verify_v1(const struct secret_set *secrets, const char *header, const char *webhook_id,
                                       int64_t timestamp, const void *body, size_t body_size) {
    struct signature signatures[SIGNATURES_TRIED];
    size_t count = signatures_parse(header, MAC_BYTES, signatures);
    for (size_t i = 0; count > 0 && i < secret_set_count(secrets); i++) {
        const struct secret *secret = secret_set_at(secrets, i);
        unsigned char mac[MAC_BYTES];
        request_mac(secret, webhook_id, timestamp, body, body_size, mac);
        for (size_t s = 0; s < count; s++)
            if (sodium_memcmp(mac, signatures[s].bytes, MAC_BYTES) == 0)
                return secret;
    }
    return NULL;
}

void receipt_sign_v1(const struct secret *secret, const struct envelope_key *envelope,
                     const unsigned char digest[SHA256_BYTES], struct signature *out) {
    out->size = MAC_BYTES;
    receipt_mac(secret, envelope, digest, out->bytes);
}

bool receipt_verify_v1(const struct secret *secret, const struct envelope_key *envelope,
                       const unsigned char digest[SHA256_BYTES], const struct signature *receipt) {
    unsigned char mac[MAC_BYTES];
    receipt_mac(secret, envelope, digest, mac);
    return receipt->size == MAC_BYTES && sodium_memcmp(mac, receipt->bytes, MAC_BYTES) == 0;
}
