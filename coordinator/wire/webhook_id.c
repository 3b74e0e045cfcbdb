/* Writes and reads the id that names an envelope on the wire. */
#include "wire/webhook.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NODE_ID_MAX = 32767 };

/* How many characters of an identifier `text` begins with. */
static size_t identifier_span(const char *text) {
    size_t size = 0;
    while ((text[size] >= 'A' && text[size] <= 'Z') || (text[size] >= 'a' && text[size] <= 'z') ||
           (text[size] >= '0' && text[size] <= '9') || text[size] == '_' || text[size] == '-')
        size++;
    return size;
}

bool identifier_valid(const char *text) {
    size_t size = identifier_span(text);
    return size >= 1 && size <= ROUND_ID_MAX && text[size] == '\0';
}

void webhook_id_format(const struct envelope_key *key, char out[WEBHOOK_ID_MAX + 1]) {
    snprintf(out, WEBHOOK_ID_MAX + 1, "%s:%s:%d:%" PRId64, key->deployment, key->round_id, key->node_id, key->nonce);
}

/* Takes an identifier and the ':' behind it; NULL if there is none. */
static const char *take_identifier(const char *text, char out[ROUND_ID_MAX + 1]) {
    size_t size = identifier_span(text);
    if (size < 1 || size > ROUND_ID_MAX || text[size] != ':')
        return NULL;
    memcpy(out, text, size);
    out[size] = '\0';
    return text + size + 1;
}

/* Takes a number from 1 to max, written in its shortest form and followed by `end`; NULL if there is none. */
static const char *take_number(const char *text, int64_t max, char end, int64_t *out) {
    int64_t value = 0;
    if (*text == '0')
        return NULL;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        int digit = *at - '0';
        if (value > (max - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    if (at == text || *at != end)
        return NULL;
    *out = value;
    return at + 1;
}

bool webhook_id_parse(const char *text, struct envelope_key *key) {
    struct envelope_key parsed;
    int64_t node_id;
    const char *at = take_identifier(text, parsed.deployment);
    if (at != NULL)
        at = take_identifier(at, parsed.round_id);
    if (at != NULL)
        at = take_number(at, NODE_ID_MAX, ':', &node_id);
    if (at != NULL)
        at = take_number(at, INT64_MAX, '\0', &parsed.nonce);
    if (at == NULL)
        return false;
    parsed.node_id = (int)node_id;
    *key = parsed;
    return true;
}
