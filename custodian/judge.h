/* What the custodian makes of one request, before its store is asked: pure, so that every refusal can be tested alone.
 */
#ifndef CUSTODIAN_JUDGE_H
#define CUSTODIAN_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "wire/key.h"
#include "wire/seal_key.h"
#include "wire/secret.h"
#include "wire/webhook.h"

enum {
    COORDINATOR_KEYS_MAX = 8,
    SECRETS_MAX = 8,      /* each costs a pass over the body */
    SEAL_SECRETS_MAX = 8, /* and so does each of these, for what is sealed to none of them */
    TIMESTAMP_SKEW_MAX_S = 300,
    ENVELOPE_BYTES_MAX = 16 * 1024 * 1024,
};

/* How a request ends. The order is that of the table in judge.c. */
enum verdict {
    VERDICT_UNDECIDED, /* nothing against it so far: the store decides */
    VERDICT_STORED,
    VERDICT_HELD,
    VERDICT_CONFLICT,
    VERDICT_BAD_METHOD,
    VERDICT_TOO_LARGE,
    VERDICT_BAD_SIGNATURE,
    VERDICT_BAD_TIME,
    VERDICT_BAD_ID,
    VERDICT_OTHER_NODE,
    VERDICT_EMPTY,
    VERDICT_UNSEALED,
    VERDICT_LOCKED,
    VERDICT_ELSEWHERE,
    VERDICT_OVERLOADED,
    VERDICT_STORE_FAILED,
    VERDICT_COUNT,
};

/* The HTTP status, the word in the log and the line of text in the answer that belong to a verdict. */
struct verdict_answer {
    unsigned status;
    const char *name;
    const char *text;
};

const struct verdict_answer *verdict_answer(enum verdict verdict);

struct judge_rules {
    int node_id;                /* 1..32767: the only node whose envelopes are taken */
    struct secret_set *secrets; /* 1..SECRETS_MAX that it shares with the coordinators: only v1 is taken; or NULL */
    struct public_key coordinators[COORDINATOR_KEYS_MAX];
    size_t coordinator_count; /* 1..COORDINATOR_KEYS_MAX, unless there are secrets: only v1a is taken */
    struct seal_secret *seal_secrets[SEAL_SECRETS_MAX];
    size_t seal_secret_count; /* 0: sealed envelopes are taken unopened */
    bool require_sealed;      /* and with secrets only: nothing else is taken */
};

/* Header values as they came, NULL when absent. */
struct judge_request {
    const char *webhook_id, *timestamp, *signature;
    const void *body;
    size_t body_size;
};

/* Judges a complete request; `now_s` is the wall clock in unix seconds. The signature comes first: it covers the id,
 * the timestamp and the body, and nothing of them is believed before. VERDICT_UNDECIDED means that all is well and
 * fills `key`, and `secret` with the one that verified (NULL without secrets); any other verdict is final. */
enum verdict judge(const struct judge_rules *rules, const struct judge_request *request, int64_t now_s,
                   struct envelope_key *key, const struct secret **secret) MUST_CHECK;

#endif
