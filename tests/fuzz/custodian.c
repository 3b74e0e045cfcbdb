/* The custodian's judgement of any headers and body: nothing unsigned gets past it, and what is signed is judged in
 * the order that the protocol says. */
#include "../../custodian/judge.h"
#include "base/options.h"
#include "vector.h"

static struct secret_key *coordinator;
static struct judge_rules by_key = {.node_id = 1, .coordinator_count = 1}, by_secret;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    coordinator = vector_key(VECTOR_COORDINATOR);
    by_key.coordinators[0] = secret_key_public(coordinator);
    by_secret = by_key;
    by_secret.secrets = vector_secrets();
    return 0;
}

static void sign(const struct judge_rules *rules, const struct judge_request *request, int64_t timestamp,
                 char out[SIGNATURE_TEXT + 1]) {
    if (rules->secrets != NULL)
        webhook_sign_v1(secret_set_at(rules->secrets, 1), request->webhook_id, timestamp, request->body,
                        request->body_size, out);
    else
        webhook_sign(coordinator, request->webhook_id, timestamp, request->body, request->body_size, out);
}

/* What a signed request is worth. */
static enum verdict expected(const struct judge_request *request, int64_t timestamp, int64_t now_s) {
    struct envelope_key key;
    if (timestamp < now_s - TIMESTAMP_SKEW_MAX_S || timestamp > now_s + TIMESTAMP_SKEW_MAX_S)
        return VERDICT_BAD_TIME;
    if (!webhook_id_parse(request->webhook_id, &key))
        return VERDICT_BAD_ID;
    if (key.node_id != 1)
        return VERDICT_OTHER_NODE;
    return request->body_size == 0 ? VERDICT_EMPTY : VERDICT_UNDECIDED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    uint8_t flags = fuzz_byte(&in);
    const struct judge_rules *rules = flags & 1 ? &by_secret : &by_key;
    int64_t now_s = 1700000000 + (int16_t)fuzz_number(&in, 2), timestamp;
    char *id = fuzz_text(&in), *time = fuzz_text(&in), *signature = fuzz_text(&in), valid[SIGNATURE_TEXT + 1],
         plain[32];
    struct judge_request request = {.webhook_id = flags & 2 ? NULL : id,
                                    .timestamp = flags & 4 ? NULL : time,
                                    .signature = flags & 8 ? NULL : signature};
    struct envelope_key key;
    const struct secret *secret;
    uint8_t *body = fuzz_rest(&in, &request.body_size);
    request.body = body;
    enum verdict verdict = judge(rules, &request, now_s, &key, &secret);
    if ((flags & 14) != 0) {
        MUST(verdict == VERDICT_BAD_SIGNATURE);
    } else {
        bool is_number = int_parse(time, 0, INT64_MAX, &timestamp);
        snprintf(plain, sizeof plain, "%lld", is_number ? (long long)timestamp : -1LL);
        is_number = is_number && strcmp(plain, time) == 0; /* what is signed is the header's own text */
        if (is_number)
            sign(rules, &request, timestamp, valid);
        if (!is_number || !vector_listed(signature, valid))
            MUST(verdict == VERDICT_BAD_SIGNATURE);
        request.signature = valid;
        if (is_number)
            MUST(judge(rules, &request, now_s, &key, &secret) == expected(&request, timestamp, now_s));
    }
    free(id);
    free(time);
    free(signature);
    free(body);
    return 0;
}
