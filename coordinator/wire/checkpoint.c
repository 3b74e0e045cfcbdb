/* Hashes and signatures of the history's chain. */
#include "wire/checkpoint.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "quorate-checkpoint-v1.";

void history_start(const char *deployment, unsigned char hash[SHA256_BYTES]) {
    char text[32 + ROUND_ID_MAX];
    int size = snprintf(text, sizeof text, "quorate-history-v1.%s", deployment);
    sha256(text, (size_t)size, hash);
}

void history_link(const struct history_entry *entry, unsigned char link[SHA256_BYTES]) {
    char digest[SHA256_HEX + 1], parts[HISTORY_PARTS_MAX * 2 + 1], text[512];
    sha256_hex(entry->digest, digest);
    sodium_bin2hex(parts, sizeof parts, entry->parts, entry->parts_size);
    int size = snprintf(text, sizeof text, "quorate-entry-v1.%" PRId64 ".%s.%" PRId64 ".%" PRId64 ".%s.%s", entry->seq,
                        entry->kind, entry->key, entry->at_us, digest, parts);
    sha256(text, (size_t)size, link);
}

void history_follow(unsigned char hash[SHA256_BYTES], const unsigned char link[SHA256_BYTES]) {
    unsigned char both[2 * SHA256_BYTES];
    memcpy(both, hash, SHA256_BYTES);
    memcpy(both + SHA256_BYTES, link, SHA256_BYTES);
    sha256(both, sizeof both, hash);
}

static size_t signed_text(const struct checkpoint *checkpoint, char out[CHECKPOINT_TEXT_MAX + 1]) {
    char hash[SHA256_HEX + 1];
    sha256_hex(checkpoint->hash, hash);
    return (size_t)snprintf(out, CHECKPOINT_TEXT_MAX + 1, "%s%s.%" PRId64 ".%s.%" PRId64, PREFIX,
                            checkpoint->deployment, checkpoint->seq, hash, checkpoint->at_us);
}

void checkpoint_sign(struct checkpoint *checkpoint, const struct secret_key *key) {
    char text[CHECKPOINT_TEXT_MAX + 1];
    size_t size = signed_text(checkpoint, text);
    checkpoint->key = secret_key_public(key);
    checkpoint->signature.size = SIGNATURE_BYTES;
    crypto_sign_detached(checkpoint->signature.bytes, NULL, (const unsigned char *)text, size, secret_key_bytes(key));
}

bool checkpoint_verify(const struct checkpoint *checkpoint) {
    char text[CHECKPOINT_TEXT_MAX + 1];
    size_t size = signed_text(checkpoint, text);
    return checkpoint->signature.size == SIGNATURE_BYTES &&
           crypto_sign_verify_detached(checkpoint->signature.bytes, (const unsigned char *)text, size,
                                       checkpoint->key.bytes) == 0;
}

void checkpoint_format(const struct checkpoint *checkpoint, char out[CHECKPOINT_LINE_MAX + 1]) {
    char text[CHECKPOINT_TEXT_MAX + 1], key[PUBLIC_KEY_TEXT + 1], signature[SIGNATURE_TEXT + 1];
    (void)signed_text(checkpoint, text);
    public_key_format(&checkpoint->key, key);
    signature_format(&checkpoint->signature, signature);
    snprintf(out, CHECKPOINT_LINE_MAX + 1, "%s %s %s", text, key, signature);
}

bool hex_parse(const char *text, unsigned char *out, size_t size) {
    size_t got;
    return strlen(text) == 2 * size && strspn(text, "0123456789abcdef") == 2 * size &&
           sodium_hex2bin(out, size, text, 2 * size, NULL, &got, NULL) == 0 && got == size;
}

/* A number above 0 without leading zeros; what is left of the text begins after it. */
static bool take_number(char **text, int64_t *number) {
    char *end, *from = *text;
    size_t digits = strspn(from, "0123456789");
    if (digits == 0 || digits > 18 || from[0] == '0') {
        return false;
    }
    *number = strtoll(from, &end, 10);
    *text = end;
    return true;
}

static bool take(char **text, char what) {
    if (**text != what) {
        return false;
    }
    *(*text)++ = '\0';
    return true;
}

static bool take_until(char **text, char what, char **word) {
    char *end = strchr(*text, what);
    if (end == NULL) {
        return false;
    }
    *end = '\0';
    *word = *text;
    *text = end + 1;
    return true;
}

bool checkpoint_parse(const char *line, struct checkpoint *checkpoint) {
    char copy[CHECKPOINT_LINE_MAX + 1], *left = copy, *deployment, *hash, *key;
    size_t size = strlen(line);
    if (size >= sizeof copy || strncmp(line, PREFIX, sizeof PREFIX - 1) != 0) {
        return false;
    }
    memcpy(copy, line, size + 1);
    left += sizeof PREFIX - 1;
    if (!take_until(&left, '.', &deployment) || !identifier_valid(deployment) ||
        !take_number(&left, &checkpoint->seq) || !take(&left, '.') || !take_until(&left, '.', &hash) ||
        !hex_parse(hash, checkpoint->hash, SHA256_BYTES) || !take_number(&left, &checkpoint->at_us) ||
        !take(&left, ' ') || !take_until(&left, ' ', &key) || !public_key_parse(key, &checkpoint->key, NULL)) {
        return false;
    }
    memcpy(checkpoint->deployment, deployment, strlen(deployment) + 1);
    return signature_parse(left, &checkpoint->signature) && checkpoint->signature.size == SIGNATURE_BYTES;
}
