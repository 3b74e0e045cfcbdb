/* The keys, the secret and the envelope of the protocol's test vectors, which the seeds are made of. */
#ifndef QUORATE_TESTS_FUZZ_VECTOR_H
#define QUORATE_TESTS_FUZZ_VECTOR_H

#include "fuzz.h"
#include "wire/key.h"
#include "wire/secret.h"
#include "wire/webhook.h"

static const char VECTOR_COORDINATOR[] =
    "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==";
static const char VECTOR_NODE[] =
    "whsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8prLrhQbzK8LIuGpTTTQvHNh5SbQv+EsiXlLyTIpZt1w==";
static const char VECTOR_SECRETS[] =
    "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nwhsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";

static inline struct secret_key *vector_key(const char *text) {
    MUST(wire_start(NULL));
    struct secret_key *key = secret_key_parse(text, NULL);
    MUST(key != NULL);
    return key;
}

/* Two secrets; the second one is the vectors'. */
static inline struct secret_set *vector_secrets(void) {
    char text[sizeof VECTOR_SECRETS];
    MUST(wire_start(NULL));
    memcpy(text, VECTOR_SECRETS, sizeof text);
    struct secret_set *set = secret_set_parse(text, sizeof text - 1, SECRET_LINES_PLAIN, NULL);
    MUST(set != NULL && secret_set_count(set) == 2);
    return set;
}

static inline struct envelope_key vector_envelope(void) {
    return (struct envelope_key){.deployment = "demo", .round_id = "rnd-1", .node_id = 1, .nonce = 1001};
}

/* True when `text` is one of the words of `list`, which blanks separate. */
static inline bool vector_listed(const char *list, const char *text) {
    size_t size = strlen(text);
    for (const char *at = list; (at = strstr(at, text)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[size] == ' ' || at[size] == '\0'))
            return true;
    return false;
}

#endif
