/* Seals shares and opens them: libsodium's sealed box around a header and the share, behind a mark in clear text. */
#include "wire/seal.h"

#include <assert.h>
#include <sodium.h>
#include <stdint.h>
#include <string.h>

/* The last byte is the version. It stands inside the box once more, where nobody can change it. */
static const unsigned char MARK[SEAL_MARK_BYTES] = {'q', 's', 'e', 'a', 'l', 'e', 'd', 1};
enum { NAME_BYTES = SEAL_MARK_BYTES - 1, HEADER_MAX = SEAL_MARK_BYTES + WEBHOOK_ID_MAX + 2 };

static_assert(SEAL_BOX_BYTES == crypto_box_SEALBYTES, "libsodium's sealed box");

/* The mark, the webhook id and a line end: no id has one in it, so the share begins behind the first. */
static size_t header_of(const struct envelope_key *key, char out[HEADER_MAX]) {
    memcpy(out, MARK, SEAL_MARK_BYTES);
    webhook_id_format(key, out + SEAL_MARK_BYTES);
    size_t size = SEAL_MARK_BYTES + strlen(out + SEAL_MARK_BYTES);
    out[size] = '\n';
    return size + 1;
}

size_t seal_overhead(const struct envelope_key *key) {
    char header[HEADER_MAX];
    return SEAL_MARK_BYTES + SEAL_BOX_BYTES + header_of(key, header);
}

bool seal(const struct seal_key *node, const struct envelope_key *key, const void *share, size_t size,
          unsigned char *out) {
    char header[HEADER_MAX];
    size_t header_size = header_of(key, header);
    unsigned char *plain = sodium_malloc(header_size + size);
    if (plain == NULL)
        return false;
    memcpy(plain, header, header_size);
    memcpy(plain + header_size, share, size);
    memcpy(out, MARK, SEAL_MARK_BYTES);
    bool good = crypto_box_seal(out + SEAL_MARK_BYTES, plain, header_size + size, node->bytes) == 0;
    sodium_free(plain);
    return good;
}

bool seal_marked(const void *envelope, size_t size) {
    return size >= NAME_BYTES && memcmp(envelope, MARK, NAME_BYTES) == 0;
}

static bool open_box(struct seal_secret *const *secrets, size_t count, const unsigned char *box, size_t size,
                     unsigned char *plain) {
    for (size_t i = 0; i < count; i++) {
        struct seal_key own = seal_secret_public(secrets[i]);
        if (crypto_box_seal_open(plain, box, size, own.bytes, seal_secret_bytes(secrets[i])) == 0)
            return true;
    }
    return false;
}

enum seal_result seal_open(struct seal_secret *const *secrets, size_t count, const struct envelope_key *key,
                           const void *envelope, size_t size, struct opened *opened) {
    const unsigned char *bytes = envelope;
    if (!seal_marked(envelope, size))
        return SEAL_UNSEALED;
    if (size <= SEAL_MARK_BYTES + SEAL_BOX_BYTES || memcmp(bytes, MARK, SEAL_MARK_BYTES) != 0)
        return SEAL_LOCKED;
    size_t plain_size = size - SEAL_MARK_BYTES - SEAL_BOX_BYTES;
    unsigned char *plain = sodium_malloc(plain_size);
    if (plain == NULL)
        return SEAL_NO_MEMORY;

    char header[HEADER_MAX];
    size_t header_size = header_of(key, header);
    enum seal_result result = SEAL_OPENED;
    if (!open_box(secrets, count, bytes + SEAL_MARK_BYTES, size - SEAL_MARK_BYTES, plain))
        result = SEAL_LOCKED;
    else if (plain_size <= header_size || memcmp(plain, header, header_size) != 0)
        result = SEAL_ELSEWHERE;
    if (result != SEAL_OPENED) {
        sodium_free(plain);
        return result;
    }
    *opened = (struct opened){.memory = plain, .share = plain + header_size, .size = plain_size - header_size};
    return SEAL_OPENED;
}

void opened_free(struct opened *opened) {
    sodium_free(opened->memory);
    *opened = (struct opened){0};
}
