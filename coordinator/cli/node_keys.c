/* Verifies the receipts of a collected round under keys that the collector brought: not under the database's. */
#include "cli/node_keys.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/options.h"
#include "base/public_file.h"
#include "wire/webhook.h"

enum { FILE_BYTES_MAX = 4 * 1024 * 1024 };

static const char what[] = "--node-keys";

struct node_key {
    int node_id;
    struct public_key key;
};

struct node_keys {
    size_t count, room;
    struct node_key *items;
};

static bool take_line(void *context, char *line, struct error *err) {
    struct node_keys *keys = context;
    struct node_key taken;
    const char *text = line_of_node(line, "whpk_...", &taken.node_id, err);
    if (text == NULL || !public_key_parse(text, &taken.key, err))
        return false;
    if (keys->count == keys->room) {
        size_t room = keys->room > 0 ? keys->room * 2 : 16;
        struct node_key *items = realloc(keys->items, room * sizeof *items);
        if (items == NULL)
            return error_set(err, EXIT_UNEXPECTED, "out of memory");
        keys->items = items;
        keys->room = room;
    }
    keys->items[keys->count++] = taken;
    return true;
}

struct node_keys *node_keys_load(const char *path, struct error *err) {
    size_t size;
    struct error cause = {0};
    char *text = public_file_read(what, path, FILE_BYTES_MAX, &size, err);
    if (text == NULL)
        return NULL;
    struct node_keys *keys = calloc(1, sizeof *keys);
    if (keys == NULL)
        (void)error_set(&cause, EXIT_UNEXPECTED, "out of memory");
    if (keys == NULL || !lines_read(text, size, take_line, keys, &cause)) {
        (void)error_set(err, cause.code, "%s \"%.300s\", %s", what, path, cause.text);
        node_keys_free(keys);
        keys = NULL;
    }
    free(text);
    return keys;
}

void node_keys_free(struct node_keys *keys) {
    if (keys == NULL)
        return;
    free(keys->items);
    free(keys);
}

static const char *text_of(const json_t *json, const char *name) {
    const char *text = json_string_value(json_object_get(json, name));
    return text != NULL ? text : "";
}

/* What receipts are verified against. */
struct round_receipts {
    const struct node_keys *keys;
    const char *round_id;
    struct envelope_key first; /* what the first receipt that verified was for; nonce 0: none was yet */
};

/* What the node must have signed, and its signature; false if there is no such thing. A number that is no node's id
 * must not become one by being cut to the size of an int. */
static bool read_receipt(const char *round_id, const json_t *share, struct envelope_key *envelope,
                         unsigned char digest[SHA256_BYTES], struct signature *receipt) {
    const char *deployment = text_of(share, "deployment_id"), *hex = text_of(share, "payload_sha256");
    json_int_t node_id = json_integer_value(json_object_get(share, "node_id"));
    size_t size = 0;
    if (node_id < 1 || node_id > NODE_ID_MAX || !identifier_valid(deployment) ||
        !int_parse(text_of(share, "nonce"), 1, INT64_MAX, &envelope->nonce))
        return false;
    if (sodium_hex2bin(digest, SHA256_BYTES, hex, strlen(hex), NULL, &size, NULL) != 0 || size != SHA256_BYTES)
        return false;
    envelope->node_id = (int)node_id;
    (void)snprintf(envelope->deployment, sizeof envelope->deployment, "%s", deployment);
    (void)snprintf(envelope->round_id, sizeof envelope->round_id, "%s", round_id);
    return signature_parse(text_of(share, "receipt"), receipt);
}

/* A quorum is of one round: receipts of two that have the same id, each short of its quorum, do not add up. */
static const char *of_one_round(struct round_receipts *receipts, const struct envelope_key *envelope) {
    if (receipts->first.nonce == 0)
        receipts->first = *envelope;
    return receipts->first.nonce == envelope->nonce && strcmp(receipts->first.deployment, envelope->deployment) == 0
               ? NULL
               : "has a receipt of another nonce or deployment than the others";
}

/* Why the receipt of a share does not count; NULL when it does. */
static const char *judge(struct round_receipts *receipts, const json_t *share) {
    const struct node_keys *keys = receipts->keys;
    struct envelope_key envelope;
    struct signature receipt;
    unsigned char digest[SHA256_BYTES];
    if (!read_receipt(receipts->round_id, share, &envelope, digest, &receipt))
        return "has no well-formed receipt";
    bool known = false;
    for (size_t i = 0; i < keys->count; i++) {
        if (keys->items[i].node_id != envelope.node_id)
            continue;
        known = true;
        if (receipt.size == SIGNATURE_BYTES && receipt_verify(&keys->items[i].key, &envelope, digest, &receipt))
            return of_one_round(receipts, &envelope);
    }
    if (!known)
        return "has no key in the file";
    return receipt.size == SIGNATURE_BYTES ? "has a receipt that does not verify"
                                           : "has a symmetric secret, whose receipts prove nothing to others";
}

static json_t *share_of(json_t *shares, json_int_t node_id) {
    for (size_t i = 0; i < json_array_size(shares); i++) {
        json_t *share = json_array_get(shares, i);
        if (json_integer_value(json_object_get(share, "node_id")) == node_id)
            return share;
    }
    return NULL;
}

/* Adds "; node 3 why" to the text. */
static void tell(char *text, size_t size, json_int_t node_id, const char *why) {
    size_t length = strlen(text);
    (void)snprintf(text + length, size - length, "%snode %" JSON_INTEGER_FORMAT " %s", length > 0 ? "; " : "", node_id,
                   why);
}

/* Marks each share; the highest quorum that any of them speaks of. */
static json_int_t mark_shares(struct round_receipts *receipts, json_t *shares) {
    json_int_t quorum = 0;
    for (size_t i = 0; i < json_array_size(shares); i++) {
        json_t *share = json_array_get(shares, i);
        json_int_t said = json_integer_value(json_object_get(share, "quorum"));
        quorum = said > quorum ? said : quorum;
        (void)json_object_set_new(share, "verified", json_boolean(judge(receipts, share) == NULL));
    }
    return quorum;
}

bool node_keys_verify(const struct node_keys *keys, const char *round_id, int64_t floor, json_t *answer, char *left_out,
                      size_t size, struct error *err) {
    json_t *shares = json_object_get(answer, "shares"), *nodes = json_object_get(answer, "quorum_nodes");
    json_t *verified = json_array();
    struct round_receipts receipts = {.keys = keys, .round_id = round_id};
    json_int_t quorum = mark_shares(&receipts, shares), before = 0;
    quorum = quorum < floor ? floor : quorum;
    *left_out = '\0';
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_int_t node_id = json_integer_value(json_array_get(nodes, i));
        const json_t *share = share_of(shares, node_id);
        const char *why = node_id <= before ? "is named twice or out of order"
                          : share == NULL   ? "has no receipt"
                                            : judge(&receipts, share);
        if (why != NULL)
            tell(left_out, size, node_id, why);
        else
            (void)json_array_append_new(verified, json_integer(node_id));
        before = node_id;
    }
    size_t count = json_array_size(verified);
    (void)json_object_set_new(answer, "quorum_nodes", verified);
    return (quorum > 0 && (json_int_t)count >= quorum) ||
           error_set(err, EXIT_UNEXPECTED,
                     "%s: of round \"%s\" %zu receipts verify and its quorum is %" JSON_INTEGER_FORMAT ": %s", what,
                     round_id, count, quorum, left_out);
}
