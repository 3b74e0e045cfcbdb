/* Records, receipts and checkpoints of the history, checked without a database. */
#include "cli/audit_check.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"

bool audit_keys_parse(struct audit_keys *keys, const struct option_list *list, struct error *err) {
    size_t room = sizeof keys->keys / sizeof keys->keys[0];
    if (list->count > room)
        return error_set(err, EXIT_USAGE, "--audit-key: %zu keys are too many: give at most %zu", list->count, room);
    for (size_t i = 0; i < list->count; i++)
        if (!public_key_parse(list->values[i], &keys->keys[keys->count++], err))
            return false;
    return true;
}

static const char *text_of(const json_t *json, const char *name) {
    const char *text = json_string_value(json_object_get(json, name));
    return text ? text : "";
}

bool audit_entry(const json_t *json, struct history_entry *entry, struct error *err) {
    const char *kind = text_of(json, "kind"), *parts = text_of(json, "parts");
    *entry = (struct history_entry){.seq = json_integer_value(json_object_get(json, "seq")),
                                    .key = json_integer_value(json_object_get(json, "key")),
                                    .at_us = json_integer_value(json_object_get(json, "at_us")),
                                    .parts_size = strlen(parts) / 2};
    if (entry->seq < 1 || kind[0] == 0 || strlen(kind) > HISTORY_KIND_MAX || entry->parts_size > HISTORY_PARTS_MAX ||
        !hex_parse(parts, entry->parts, entry->parts_size) ||
        !hex_parse(text_of(json, "digest"), entry->digest, SHA256_BYTES))
        return error_set(err, EXIT_UNEXPECTED, "entry %" PRId64 " of the history is malformed", entry->seq);
    memcpy(entry->kind, kind, strlen(kind) + 1);
    return true;
}

/* Parsing a key costs as much as verifying with it, and a deployment has few. */
static bool cached_key(const char *text, struct public_key *key) {
    static struct {
        char text[PUBLIC_KEY_TEXT + 1];
        struct public_key key;
    } cache[64];
    size_t place = 0;
    for (const char *at = text; *at; at++)
        place = (place * 31 + (unsigned char)*at) % (sizeof cache / sizeof cache[0]);
    if (strcmp(cache[place].text, text) != 0) {
        if (strlen(text) != PUBLIC_KEY_TEXT || !public_key_parse(text, &cache[place].key, NULL)) {
            cache[place].text[0] = 0;
            return false;
        }
        memcpy(cache[place].text, text, PUBLIC_KEY_TEXT + 1);
    }
    *key = cache[place].key;
    return true;
}

static bool check_ack(const struct envelope_key *of, const json_t *ack, struct audit_tally *tally, struct error *err) {
    struct envelope_key envelope = *of;
    const char *key_text = text_of(ack, "receipt_key");
    unsigned char digest[SHA256_BYTES];
    struct signature receipt;
    struct public_key key;
    json_int_t node_id = json_integer_value(json_object_get(ack, "node_id"));
    envelope.node_id = node_id >= 1 && node_id <= NODE_ID_MAX ? (int)node_id : 0; /* never another's by being cut */
    if (envelope.node_id == 0 || !hex_parse(text_of(ack, "payload_sha256"), digest, sizeof digest) ||
        !signature_parse(text_of(ack, "receipt"), &receipt))
        return error_set(err, EXIT_UNEXPECTED,
                         "quorate_store.ack of node %d, round \"%s\": its receipt is malformed, or it has no delivery",
                         envelope.node_id, envelope.round_id);
    if (strncmp(key_text, "whid_", 5) == 0) {
        tally->symmetric++;
        return receipt.size != SIGNATURE_BYTES ||
               error_set(err, EXIT_UNEXPECTED,
                         "quorate_store.ack of node %d, round \"%s\": a node with a secret signed as with a key",
                         envelope.node_id, envelope.round_id);
    }
    if (receipt.size != SIGNATURE_BYTES || !cached_key(key_text, &key) ||
        !receipt_verify(&key, &envelope, digest, &receipt))
        return error_set(err, EXIT_UNEXPECTED,
                         "quorate_store.ack of node %d, round \"%s\": its receipt does not verify under %.60s",
                         envelope.node_id, envelope.round_id, key_text);
    tally->receipts++;
    return true;
}

/* An ack of this node that came in time. */
static bool has_acked(const json_t *acks, json_int_t node_id, json_int_t deadline) {
    for (size_t i = 0; i < json_array_size(acks); i++) {
        const json_t *ack = json_array_get(acks, i);
        if (json_integer_value(json_object_get(ack, "node_id")) == node_id)
            return json_is_false(json_object_get(ack, "late")) &&
                   json_integer_value(json_object_get(ack, "acked_at")) <= deadline;
    }
    return false;
}

static bool holds(const json_t *numbers, json_int_t number) {
    for (size_t i = 0; i < json_array_size(numbers); i++)
        if (json_integer_value(json_array_get(numbers, i)) == number)
            return true;
    return false;
}

static bool check_quorum(const struct envelope_key *of, const json_t *json, struct error *err) {
    const json_t *round = json_object_get(json, "round"), *nodes = json_object_get(round, "quorum_nodes");
    json_int_t deadline = json_integer_value(json_object_get(round, "deadline_at"));
    json_int_t quorum = json_integer_value(json_object_get(round, "quorum")), last = 0;
    bool good = strcmp(text_of(round, "state"), "complete") != 0 ||
                (quorum > 0 && quorum <= (json_int_t)json_array_size(nodes));
    for (size_t i = 0; good && i < json_array_size(nodes); i++) {
        json_int_t node_id = json_integer_value(json_array_get(nodes, i));
        good = node_id > last /* ascending: none counts twice */ &&
               holds(json_object_get(round, "node_ids"), node_id) &&
               has_acked(json_object_get(json, "acks"), node_id, deadline);
        last = node_id;
    }
    return good ||
           error_set(err, EXIT_UNEXPECTED,
                     "quorate_store.round \"%s\": it is complete, and has not the acks of its quorum", of->round_id);
}

/* Of a round: the keys of the ledger, the acks, and the quorum. */
static bool check_round(const char *deployment, const struct history_entry *entry, const json_t *json,
                        struct audit_tally *tally, struct error *err) {
    const json_t *ledger = json_object_get(json, "ledger"), *acks = json_object_get(json, "acks");
    const char *round_id = text_of(ledger, "round_id");
    struct envelope_key of = {.nonce = strtoll(text_of(ledger, "nonce"), NULL, 10)};
    if (!ledger)
        return true;
    if (!identifier_valid(round_id) || json_integer_value(json_object_get(ledger, "round_no")) != entry->key)
        return error_set(err, EXIT_UNEXPECTED,
                         "quorate_store.ledger: entry %" PRId64 " is of round_no %" PRId64 ", its record is not",
                         entry->seq, entry->key);
    memcpy(of.round_id, round_id, strlen(round_id) + 1);
    memcpy(of.deployment, deployment, strlen(deployment) + 1);
    for (size_t i = 0; i < json_array_size(acks); i++)
        if (!check_ack(&of, json_array_get(acks, i), tally, err))
            return false;
    return check_quorum(&of, json, err);
}

bool audit_record(const char *deployment, const struct history_entry *entry, const char *record,
                  struct audit_tally *tally, struct error *err) {
    unsigned char digest[SHA256_BYTES];
    sha256(record, strlen(record), digest);
    if (memcmp(digest, entry->digest, sizeof digest) != 0)
        return error_set(err, EXIT_UNEXPECTED,
                         "entry %" PRId64 " of the history (%s): the record is not the one whose digest stands there",
                         entry->seq, entry->kind);
    json_t *json = json_loads(record, JSON_REJECT_DUPLICATES, NULL);
    bool good =
        json && strcmp(text_of(json, "kind"), entry->kind) == 0
            ? check_round(deployment, entry, json, tally, err)
            : error_set(err, EXIT_UNEXPECTED, "entry %" PRId64 " of the history (%s) has a record of something else",
                        entry->seq, entry->kind);
    json_decref(json);
    return good;
}

bool audit_checkpoint(const char *deployment, const char *line, struct audit_keys *keys, struct checkpoint *checkpoint,
                      struct error *err) {
    bool known = keys->count == 0;
    if (!checkpoint_parse(line, checkpoint) || !checkpoint_verify(checkpoint))
        return error_set(err, EXIT_UNEXPECTED, "the checkpoint \"%.400s\" is malformed, or not signed by its key",
                         line);
    if (strcmp(checkpoint->deployment, deployment) != 0)
        return error_set(err, EXIT_UNEXPECTED,
                         "the checkpoint of entry %" PRId64 " is of deployment \"%s\", not of \"%s\"", checkpoint->seq,
                         checkpoint->deployment, deployment);
    for (size_t i = 0; i < keys->count; i++)
        known = known || memcmp(keys->keys[i].bytes, checkpoint->key.bytes, PUBLIC_KEY_BYTES) == 0;
    keys->seen = checkpoint->key;
    return known ||
           error_set(err, EXIT_UNEXPECTED, "the checkpoint of entry %" PRId64 " is signed by none of the keys given",
                     checkpoint->seq);
}
