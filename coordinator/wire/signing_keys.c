/* Loads and uses the keys that a coordinator signs its requests with. */
#include "wire/signing_keys.h"

#include <assert.h>
#include <string.h>

static_assert((int)SIGNING_KEYS_MAX <= (int)SIGNATURES_TRIED, "custodians try all of them");

static bool same_key(const struct secret_key *a, const struct secret_key *b) {
    struct public_key public_a = secret_key_public(a), public_b = secret_key_public(b);
    return memcmp(public_a.bytes, public_b.bytes, sizeof public_a.bytes) == 0;
}

bool signing_keys_have(const struct signing_keys *keys, const struct secret_key *key) {
    for (size_t i = 0; i < keys->count; i++)
        if (same_key(keys->keys[i], key))
            return true;
    return false;
}

static bool all_differ(const char *const *paths, const struct signing_keys *keys, struct error *err) {
    for (size_t i = 0; i < keys->count; i++)
        for (size_t k = 0; k < i; k++)
            if (same_key(keys->keys[i], keys->keys[k]))
                return error_set(err, EXIT_USAGE, "--key: \"%.300s\" and \"%.300s\" hold the same key: give it once",
                                 paths[k], paths[i]);
    return true;
}

bool signing_keys_load(const char *const *paths, size_t count, struct signing_keys *keys, struct error *err) {
    *keys = (struct signing_keys){0};
    if (count > SIGNING_KEYS_MAX)
        return error_set(err, EXIT_USAGE, "--key: given %zu times; at most %d are allowed", count,
                         (int)SIGNING_KEYS_MAX);
    bool good = true;
    while (good && keys->count < count) {
        keys->keys[keys->count] = secret_key_load(paths[keys->count], err);
        good = keys->keys[keys->count] != NULL;
        keys->count += good;
    }
    if (good && all_differ(paths, keys, err))
        return true;
    signing_keys_free(keys);
    return false;
}

void signing_keys_free(struct signing_keys *keys) {
    for (size_t i = 0; i < keys->count; i++)
        secret_key_free(keys->keys[i]);
    *keys = (struct signing_keys){0};
}

void signing_keys_sign(const struct signing_keys *keys, const char *webhook_id, int64_t timestamp, const void *body,
                       size_t body_size, char out[SIGNATURES_TEXT + 1]) {
    char *at = out;
    for (size_t i = 0; i < keys->count; i++) {
        if (i > 0)
            *at++ = ' ';
        webhook_sign(keys->keys[i], webhook_id, timestamp, body, body_size, at);
        if (*at == '\0') {
            out[0] = '\0';
            return;
        }
        at += SIGNATURE_TEXT;
    }
}

bool signing_keys_locked(const struct signing_keys *keys) {
    bool locked = true;
    for (size_t i = 0; i < keys->count; i++)
        locked = secret_key_locked(keys->keys[i]) && locked;
    return locked;
}
