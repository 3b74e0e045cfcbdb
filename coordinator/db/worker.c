/* The calls into schema quorate_worker: parameters encoded in binary and queued on a session. */
#include "db/worker.h"

static const char *const ROUTES[] = {"primary", "backup"};
static const char *const OUTCOMES[] = {"ack",         "timeout", "connect_error", "http_error",
                                       "bad_receipt", "refused", "in_doubt",      "unsent"};
static const char *const STATES[] = {"open", "complete", "stalled", "cancelled", "dead_lettered"};

/* What is sent again and again. */
static const char TICK[] = "SELECT * FROM quorate_worker.tick($1, $2, $3, $4)";
static const char CLAIM[] = "SELECT * FROM quorate_worker.claim($1, $2, $3, $4)";
static const char ENVELOPES[] = "SELECT * FROM quorate_worker.envelopes($1, $2)";
static const char RESERVE[] = "SELECT * FROM quorate_worker.reserve($1, $2, $3, $4, $5)";
static const char RECORD[] = "SELECT * FROM quorate_worker.record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
static const char SETTLE[] = "SELECT * FROM quorate_worker.settle($1, $2, $3)";
const char *const worker_statements[] = {TICK, CLAIM, ENVELOPES, RESERVE, RECORD, SETTLE, NULL};

const char *route_name(enum route route) {
    return ROUTES[route];
}

const char *outcome_name(enum outcome outcome) {
    return OUTCOMES[outcome];
}

const char *round_state_name(enum round_state state) {
    return STATES[state];
}

void worker_scratch_free(struct worker_scratch *scratch) {
    for (size_t i = 0; i < sizeof scratch->array / sizeof scratch->array[0]; i++) {
        db_array_free(&scratch->array[i]);
    }
}

bool worker_send_listen(struct db_session *session) {
    return db_session_send(session, "LISTEN quorate_work", NULL);
}

bool worker_send_listen_test(struct db_session *session) {
    return db_session_send(session, "LISTEN quorate_test", NULL);
}

bool worker_send_notify_test(struct db_session *session, const char *payload) {
    struct db_params params = {0};
    db_param_text(&params, payload);
    return db_session_send(session, "SELECT pg_notify('quorate_test', $1)", &params);
}

bool worker_send_join(struct db_session *session, const char *instance_id, const char *name, int64_t lease_us) {
    struct db_params params = {0};
    db_param_text(&params, instance_id);
    db_param_text(&params, name);
    db_param_interval(&params, lease_us);
    return db_session_send(session, "SELECT * FROM quorate_worker.join_deployment($1::uuid, $2, $3)", &params);
}

bool worker_send_is_joined(struct db_session *session, int32_t instance, const char *instance_id) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_text(&params, instance_id);
    return db_session_send(session, "SELECT quorate_worker.is_joined($1, $2::uuid)", &params);
}

bool worker_send_durability(struct db_session *session) {
    return db_session_send(session, "SELECT * FROM quorate_worker.durability_warnings()", NULL);
}

bool worker_send_tick(struct db_session *session, int32_t instance, bool notify, int32_t max, bool count) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_bool(&params, notify);
    db_param_int4(&params, max);
    db_param_bool(&params, count);
    return db_session_send(session, TICK, &params);
}

bool worker_send_leave(struct db_session *session, int32_t instance, bool notify) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_bool(&params, notify);
    return db_session_send(session, "SELECT quorate_worker.leave($1, $2)", &params);
}

bool worker_send_hold(struct db_session *session, int32_t instance) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    return db_session_send(session, "SELECT quorate_worker.hold($1)", &params);
}

bool worker_send_watch(struct db_session *session, int32_t instance, int32_t seen) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_int4(&params, seen);
    return db_session_send(session, "SELECT * FROM quorate_worker.watch($1, $2)", &params);
}

bool worker_send_chain(struct db_session *session, int32_t max, const char *key) {
    struct db_params params = {0};
    db_param_int4(&params, max);
    db_param_text(&params, key);
    return db_session_send(session, "SELECT * FROM quorate_worker.chain($1, $2)", &params);
}

bool worker_send_links(struct db_session *session, int64_t after, int64_t upto) {
    struct db_params params = {0};
    db_param_int8(&params, after);
    db_param_int8(&params, upto);
    return db_session_send(session, "SELECT quorate_worker.links($1, $2)", &params);
}

bool worker_send_signed(struct db_session *session, const char *key) {
    struct db_params params = {0};
    db_param_text(&params, key);
    return db_session_send(session, "SELECT * FROM quorate_worker.signed($1)", &params);
}

bool worker_send_checkpoint(struct db_session *session, const struct checkpoint *checkpoint) {
    struct db_params params = {0};
    char key[PUBLIC_KEY_TEXT + 1];
    public_key_format(&checkpoint->key, key);
    db_param_int8(&params, checkpoint->seq);
    db_param_bytes(&params, checkpoint->hash, sizeof checkpoint->hash);
    db_param_int8(&params, checkpoint->at_us);
    db_param_text(&params, key);
    db_param_bytes(&params, checkpoint->signature.bytes, checkpoint->signature.size);
    return db_session_send(session, "SELECT quorate_worker.checkpoint($1, $2, $3, $4, $5)", &params);
}

static bool add_int4s(struct db_params *params, struct db_array *array, const int32_t *values, size_t count) {
    db_array_start(array, DB_INT4);
    for (size_t i = 0; i < count; i++) {
        db_array_add_int4(array, values[i]);
    }
    return db_param_array(params, DB_INT4_ARRAY, array, NULL);
}

static bool add_int8s(struct db_params *params, struct db_array *array, const int64_t *values, size_t count) {
    db_array_start(array, DB_INT8);
    for (size_t i = 0; i < count; i++) {
        db_array_add_int8(array, values[i]);
    }
    return db_param_array(params, DB_INT8_ARRAY, array, NULL);
}

bool worker_send_node_versions(struct db_session *session, struct worker_scratch *scratch, const int32_t *versions,
                               size_t count) {
    struct db_params params = {0};
    return add_int4s(&params, &scratch->array[0], versions, count) &&
           db_session_send(session, "SELECT * FROM quorate_worker.node_versions($1)", &params);
}

bool worker_send_claim(struct db_session *session, struct worker_scratch *scratch, int32_t instance, int32_t max,
                       int32_t slots, const int32_t *busy, size_t busy_count) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_int4(&params, max);
    db_param_int4(&params, slots);
    return add_int4s(&params, &scratch->array[0], busy, busy_count) && db_session_send(session, CLAIM, &params);
}

bool worker_send_owned(struct db_session *session, int32_t instance, int64_t after, int32_t max) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_int8(&params, after);
    db_param_int4(&params, max);
    return db_session_send(session, "SELECT * FROM quorate_worker.owned($1, $2, $3)", &params);
}

bool worker_send_envelopes(struct db_session *session, struct worker_scratch *scratch, const struct attempt_key *keys,
                           size_t count) {
    struct db_params params = {0};
    struct db_array *rounds = &scratch->array[0], *nodes = &scratch->array[1];
    db_array_start(rounds, DB_INT8);
    db_array_start(nodes, DB_INT2);
    for (size_t i = 0; i < count; i++) {
        db_array_add_int8(rounds, keys[i].round_no);
        db_array_add_int2(nodes, keys[i].node_id);
    }
    return db_param_array(&params, DB_INT8_ARRAY, rounds, NULL) &&
           db_param_array(&params, DB_INT2_ARRAY, nodes, NULL) && db_session_send(session, ENVELOPES, &params);
}

static void start_keys(struct worker_scratch *scratch) {
    db_array_start(&scratch->array[0], DB_INT8);
    db_array_start(&scratch->array[1], DB_INT2);
    db_array_start(&scratch->array[2], DB_TEXT);
    db_array_start(&scratch->array[3], DB_INT2);
}

static void add_key(struct worker_scratch *scratch, const struct attempt_key *key) {
    db_array_add_int8(&scratch->array[0], key->round_no);
    db_array_add_int2(&scratch->array[1], key->node_id);
    db_array_add_text(&scratch->array[2], route_name(key->route));
    db_array_add_int2(&scratch->array[3], key->attempt);
}

static bool finish_keys(struct db_params *params, struct worker_scratch *scratch) {
    return db_param_array(params, DB_INT8_ARRAY, &scratch->array[0], NULL) &&
           db_param_array(params, DB_INT2_ARRAY, &scratch->array[1], NULL) &&
           db_param_array(params, DB_TEXT_ARRAY, &scratch->array[2], NULL) &&
           db_param_array(params, DB_INT2_ARRAY, &scratch->array[3], NULL);
}

bool worker_send_reserve(struct db_session *session, struct worker_scratch *scratch, int32_t instance,
                         const struct attempt_key *keys, size_t count) {
    struct db_params params = {0};
    start_keys(scratch);
    for (size_t i = 0; i < count; i++) {
        add_key(scratch, &keys[i]);
    }
    db_param_int4(&params, instance);
    return finish_keys(&params, scratch) && db_session_send(session, RESERVE, &params);
}

bool worker_send_record(struct db_session *session, struct worker_scratch *scratch, int32_t instance, bool notify,
                        const struct attempt_record *records, size_t count) {
    struct db_params params = {0};
    struct db_array *outcomes = &scratch->array[4], *statuses = &scratch->array[5];
    struct db_array *retries = &scratch->array[6], *receipts = &scratch->array[7], *keys = &scratch->array[8];
    start_keys(scratch);
    db_array_start(outcomes, DB_TEXT);
    db_array_start(statuses, DB_INT2);
    db_array_start(retries, DB_INT8);
    db_array_start(receipts, DB_BYTEA);
    db_array_start(keys, DB_INT2);
    for (size_t i = 0; i < count; i++) {
        const struct attempt_record *record = &records[i];
        add_key(scratch, &record->key);
        db_array_add_text(outcomes, outcome_name(record->outcome));
        if (record->http_status != 0) {
            db_array_add_int2(statuses, record->http_status);
        } else {
            db_array_add_null(statuses);
        }
        if (record->retry_us >= 0) {
            db_array_add_int8(retries, record->retry_us);
        } else {
            db_array_add_null(retries);
        }
        if (record->key_no > 0) {
            db_array_add_bytes(receipts, record->receipt.bytes, record->receipt.size);
            db_array_add_int2(keys, record->key_no);
        } else {
            db_array_add_null(receipts);
            db_array_add_null(keys);
        }
    }
    db_param_int4(&params, instance);
    db_param_bool(&params, notify);
    return finish_keys(&params, scratch) && db_param_array(&params, DB_TEXT_ARRAY, outcomes, NULL) &&
           db_param_array(&params, DB_INT2_ARRAY, statuses, NULL) &&
           db_param_array(&params, DB_INT8_ARRAY, retries, NULL) &&
           db_param_array(&params, DB_BYTEA_ARRAY, receipts, NULL) &&
           db_param_array(&params, DB_INT2_ARRAY, keys, NULL) && db_session_send(session, RECORD, &params);
}

bool worker_send_escalate(struct db_session *session, struct worker_scratch *scratch, int32_t instance,
                          const int64_t *round_nos, size_t count) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    return add_int8s(&params, &scratch->array[0], round_nos, count) &&
           db_session_send(session, "SELECT * FROM quorate_worker.escalate($1, $2)", &params);
}

bool worker_send_release(struct db_session *session, struct worker_scratch *scratch, int32_t instance, bool notify,
                         const int64_t *round_nos, size_t count) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_bool(&params, notify);
    return add_int8s(&params, &scratch->array[0], round_nos, count) &&
           db_session_send(session, "SELECT * FROM quorate_worker.release($1, $2, $3)", &params);
}

bool worker_send_settle(struct db_session *session, struct worker_scratch *scratch, int32_t instance, bool notify,
                        const int64_t *round_nos, size_t count) {
    struct db_params params = {0};
    db_param_int4(&params, instance);
    db_param_bool(&params, notify);
    return add_int8s(&params, &scratch->array[0], round_nos, count) && db_session_send(session, SETTLE, &params);
}
