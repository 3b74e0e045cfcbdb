/* Judges one request by its headers and its body: who signed it, when, and whether it is for this node. */
#include "judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "wire/seal.h"

static const struct verdict_answer answers[VERDICT_COUNT] = {
    [VERDICT_UNDECIDED] = {500, "undecided", "no verdict\n"},
    [VERDICT_STORED] = {200, "stored", ""},
    [VERDICT_HELD] = {200, "held", ""},
    [VERDICT_CONFLICT] = {409, "conflict", "another nonce or other bytes are held for this round\n"},
    [VERDICT_BAD_METHOD] = {405, "bad_method", "only POST is served\n"},
    [VERDICT_TOO_LARGE] = {413, "too_large", "the envelope is larger than this node takes\n"},
    [VERDICT_BAD_SIGNATURE] =
        {401, "bad_signature",
         "webhook-signature must be a signature over webhook-id, webhook-timestamp and the body: v1a by a known "
         "coordinator, or v1 where a secret is shared\n"},
    [VERDICT_BAD_TIME] = {425, "bad_time", "webhook-timestamp is more than 5 minutes from this node's clock\n"},
    [VERDICT_BAD_ID] = {400, "bad_id", "webhook-id must be <deployment>:<round_id>:<node_id>:<nonce>\n"},
    [VERDICT_OTHER_NODE] = {404, "other_node", "another node is meant\n"},
    [VERDICT_EMPTY] = {400, "empty", "an envelope has at least one byte\n"},
    [VERDICT_UNSEALED] = {422, "unsealed", "this node takes only sealed envelopes\n"},
    [VERDICT_LOCKED] = {422, "locked", "the envelope is sealed, and does not open with this node's keys\n"},
    [VERDICT_ELSEWHERE] = {422, "elsewhere", "the envelope was sealed for another deployment, round, node or nonce\n"},
    [VERDICT_OVERLOADED] = {503, "overloaded", "too much under way, try again\n"},
    [VERDICT_STORE_FAILED] = {503, "store_failed", "the store failed, try again\n"},
};

const struct verdict_answer *verdict_answer(enum verdict verdict) {
    return &answers[verdict];
}

/* A number in its one form: the text that is signed is made from it, and is to be the header's own. */
static bool parse_timestamp(const char *text, int64_t *timestamp) {
    char again[24];
    if (!int_parse(text, 0, INT64_MAX, timestamp))
        return false;
    (void)snprintf(again, sizeof again, "%" PRId64, *timestamp);
    return strcmp(again, text) == 0;
}

/* With secrets by one of them and never by a key, and the other way round. */
static bool is_signed(const struct judge_rules *rules, const struct judge_request *request, int64_t timestamp,
                      const struct secret **secret) {
    *secret = NULL;
    if (rules->secrets == NULL)
        return webhook_verify(rules->coordinators, rules->coordinator_count, request->signature, request->webhook_id,
                              timestamp, request->body, request->body_size);
    *secret = webhook_verify_v1(rules->secrets, request->signature, request->webhook_id, timestamp, request->body,
                                request->body_size);
    return *secret != NULL;
}

/* What is sealed must open, and be for the round that the request says: else somebody moved it. */
static enum verdict judge_seal(const struct judge_rules *rules, const struct judge_request *request,
                               const struct envelope_key *key) {
    struct opened opened;
    if (rules->seal_secret_count == 0)
        return VERDICT_UNDECIDED;
    switch (seal_open(rules->seal_secrets, rules->seal_secret_count, key, request->body, request->body_size, &opened)) {
    case SEAL_OPENED:
        opened_free(&opened);
        return VERDICT_UNDECIDED;
    case SEAL_UNSEALED:
        return rules->require_sealed ? VERDICT_UNSEALED : VERDICT_UNDECIDED;
    case SEAL_ELSEWHERE:
        return VERDICT_ELSEWHERE;
    case SEAL_NO_MEMORY:
        return VERDICT_OVERLOADED;
    case SEAL_LOCKED:
        break;
    }
    return VERDICT_LOCKED;
}

enum verdict judge(const struct judge_rules *rules, const struct judge_request *request, int64_t now_s,
                   struct envelope_key *key, const struct secret **secret) {
    int64_t timestamp;

    if (!request->webhook_id || !request->timestamp || !request->signature ||
        !parse_timestamp(request->timestamp, &timestamp) || !is_signed(rules, request, timestamp, secret))
        return VERDICT_BAD_SIGNATURE;
    if (timestamp < now_s - TIMESTAMP_SKEW_MAX_S || timestamp > now_s + TIMESTAMP_SKEW_MAX_S)
        return VERDICT_BAD_TIME;
    if (!webhook_id_parse(request->webhook_id, key))
        return VERDICT_BAD_ID;
    if (key->node_id != rules->node_id)
        return VERDICT_OTHER_NODE;
    return request->body_size == 0 ? VERDICT_EMPTY : judge_seal(rules, request, key);
}
