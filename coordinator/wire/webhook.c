/* Signs and verifies what delivery protocol 1 puts on the wire. */
#include "wire/webhook.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BASE64 = sodium_base64_VARIANT_ORIGINAL,
    TIMESTAMP_MAX = 20,   /* characters of an int64 */
    SMALL_MESSAGE = 4096, /* messages up to this size are signed on the stack */
};

/* The two ways to write a signature. */
struct form {
    const char *prefix;
    size_t prefix_size, bytes, text_size;
};

static const struct form forms[] = {
    {"v1a,", 4, SIGNATURE_BYTES, SIGNATURE_TEXT},
    {"v1,", 3, MAC_BYTES, 3 + 44},
};

static_assert(SIGNATURE_BYTES == crypto_sign_BYTES, "an Ed25519 signature");
static_assert(SIGNATURE_TEXT + 1 == 4 + sodium_base64_ENCODED_LEN(SIGNATURE_BYTES, BASE64), "its text");
static_assert(44 + 1 == sodium_base64_ENCODED_LEN(MAC_BYTES, BASE64), "an HMAC-SHA256's text");
static_assert(SHA256_BYTES == crypto_hash_sha256_BYTES, "a SHA-256 digest");

void sha256(const void *data, size_t size, unsigned char out[SHA256_BYTES]) {
    crypto_hash_sha256(out, data, size);
}

void sha256_hex(const unsigned char digest[SHA256_BYTES], char out[SHA256_HEX + 1]) {
    sodium_bin2hex(out, SHA256_HEX + 1, digest, SHA256_BYTES);
}

void signature_format(const struct signature *signature, char out[SIGNATURE_TEXT + 1]) {
    const struct form *form = &forms[signature->size == MAC_BYTES];
    memcpy(out, form->prefix, form->prefix_size);
    sodium_bin2base64(out + form->prefix_size, SIGNATURE_TEXT + 1 - form->prefix_size, signature->bytes, form->bytes,
                      BASE64);
}

/* Reads the prefix and canonical base64 of exactly `size` characters. */
static bool parse_signature(const char *text, size_t size, struct signature *signature) {
    const struct form *form = &forms[size != SIGNATURE_TEXT];
    if (size != form->text_size || memcmp(text, form->prefix, form->prefix_size) != 0)
        return false;
    struct signature parsed;
    if (sodium_base642bin(parsed.bytes, sizeof parsed.bytes, text + form->prefix_size, size - form->prefix_size, NULL,
                          &parsed.size, NULL, BASE64) != 0 ||
        parsed.size != form->bytes)
        return false;
    char encoded[SIGNATURE_TEXT + 1];
    signature_format(&parsed, encoded);
    if (memcmp(encoded, text, size) != 0)
        return false;
    *signature = parsed;
    return true;
}

bool signature_parse(const char *text, struct signature *signature) {
    return parse_signature(text, strnlen(text, SIGNATURE_TEXT + 1), signature);
}

size_t signatures_parse(const char *header, size_t signature_size, struct signature out[SIGNATURES_TRIED]) {
    size_t count = 0;
    while (count < SIGNATURES_TRIED && *header != '\0') {
        size_t length = strcspn(header, " ");
        if (parse_signature(header, length, &out[count]) && out[count].size == signature_size)
            count++;
        header += length;
        header += strspn(header, " ");
    }
    return count;
}

/* "<webhook-id>.<timestamp>.<body>" in one piece, as Ed25519 wants it: in `small` if it fits, else from malloc (then
 * free it). NULL when memory is short. */
static unsigned char *signed_content(const char *webhook_id, int64_t timestamp, const void *body, size_t body_size,
                                     unsigned char small[SMALL_MESSAGE], size_t *size) {
    char stamp[TIMESTAMP_MAX + 3];
    size_t stamp_size = (size_t)snprintf(stamp, sizeof stamp, ".%" PRId64 ".", timestamp);
    size_t id_size = strlen(webhook_id);
    *size = id_size + stamp_size + body_size;
    unsigned char *content = *size <= SMALL_MESSAGE ? small : malloc(*size);
    if (content == NULL)
        return NULL;
    memcpy(content, webhook_id, id_size);
    memcpy(content + id_size, stamp, stamp_size);
    if (body_size > 0)
        memcpy(content + id_size + stamp_size, body, body_size);
    return content;
}

/* The content holds an envelope: it does not linger in freed memory. */
static void drop_content(unsigned char *content, const unsigned char *small, size_t size) {
    sodium_memzero(content, size);
    if (content != small)
        free(content);
}

void webhook_sign(const struct secret_key *key, const char *webhook_id, int64_t timestamp, const void *body,
                  size_t body_size, char out[SIGNATURE_TEXT + 1]) {
    unsigned char small[SMALL_MESSAGE];
    size_t size;
    out[0] = '\0';
    unsigned char *content = signed_content(webhook_id, timestamp, body, body_size, small, &size);
    if (content == NULL)
        return;
    struct signature signature = {.size = SIGNATURE_BYTES};
    crypto_sign_detached(signature.bytes, NULL, content, size, secret_key_bytes(key));
    signature_format(&signature, out);
    drop_content(content, small, size);
}

bool webhook_verify(const struct public_key *keys, size_t key_count, const char *header, const char *webhook_id,
                    int64_t timestamp, const void *body, size_t body_size) {
    struct signature signatures[SIGNATURES_TRIED];
    size_t count = signatures_parse(header, SIGNATURE_BYTES, signatures);
    unsigned char small[SMALL_MESSAGE];
    size_t size;
    unsigned char *content = signed_content(webhook_id, timestamp, body, body_size, small, &size);
    if (content == NULL)
        return false;
    bool valid = false;
    for (size_t s = 0; !valid && s < count; s++)
        for (size_t i = 0; !valid && i < key_count; i++)
            valid = crypto_sign_verify_detached(signatures[s].bytes, content, size, keys[i].bytes) == 0;
    drop_content(content, small, size);
    return valid;
}

size_t receipt_text(const struct envelope_key *envelope, const unsigned char digest[SHA256_BYTES],
                    char out[RECEIPT_TEXT_MAX]) {
    char hex[SHA256_HEX + 1];
    sha256_hex(digest, hex);
    return (size_t)snprintf(out, RECEIPT_TEXT_MAX, "quorate-receipt-v1.%s.%s.%d.%" PRId64 ".%s", envelope->deployment,
                            envelope->round_id, envelope->node_id, envelope->nonce, hex);
}

void receipt_sign(const struct secret_key *key, const struct envelope_key *envelope,
                  const unsigned char digest[SHA256_BYTES], struct signature *out) {
    char text[RECEIPT_TEXT_MAX];
    size_t size = receipt_text(envelope, digest, text);
    out->size = SIGNATURE_BYTES;
    crypto_sign_detached(out->bytes, NULL, (const unsigned char *)text, size, secret_key_bytes(key));
}

bool receipt_verify(const struct public_key *key, const struct envelope_key *envelope,
                    const unsigned char digest[SHA256_BYTES], const struct signature *receipt) {
    char text[RECEIPT_TEXT_MAX];
    size_t size = receipt_text(envelope, digest, text);
    return receipt->size == SIGNATURE_BYTES &&
           crypto_sign_verify_detached(receipt->bytes, (const unsigned char *)text, size, key->bytes) == 0;
}
