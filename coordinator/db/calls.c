/* The statements of the command line; each is one SQL function or view, wrapped so that it answers with one JSON
 * value. */
#include "db/calls.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A call written piece by piece, so that what is not given keeps the database's default. */
struct named_call {
    char sql[1024];
    size_t length;
    struct db_params params;
};

static void append(struct named_call *call, const char *format, ...) PRINTF_LIKE(2, 3);
static void append(struct named_call *call, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(call->sql + call->length, sizeof call->sql - call->length, format, args);
    va_end(args);
    call->length += (size_t)size; /* the texts are ours and fit; see the longest call in db_open_round */
}

static void append_interval(struct named_call *call, const char *name, int64_t microseconds) {
    if (microseconds == 0)
        return;
    db_param_interval(&call->params, microseconds);
    append(call, ", %s => $%d", name, call->params.count);
}

json_t *db_open_round(struct db_client *client, const struct open_request *request, struct error *err) {
    struct named_call call = {0};
    append(&call,
           "SELECT json_build_object('round_id', $1, 'nonce', o.nonce::text, 'opened_at', o.opened_at, "
           "'escalate_at', o.escalate_at, 'deadline_at', o.deadline_at, 'fresh_until', o.fresh_until) "
           "FROM quorate.open_round(round_id => $1, quorum => $2");
    db_param_text(&call.params, request->round_id);
    db_param_int4(&call.params, (int32_t)request->quorum);
    if (request->node_ids) {
        if (!db_param_array(&call.params, DB_INT4_ARRAY, request->node_ids, err))
            return NULL;
        append(&call, ", node_ids => $%d", call.params.count);
    }
    if (request->nonce != 0) {
        db_param_int8(&call.params, request->nonce);
        append(&call, ", nonce => $%d", call.params.count);
    }
    if (request->retry_budget != 0) {
        db_param_int4(&call.params, (int32_t)request->retry_budget);
        append(&call, ", retry_budget => $%d", call.params.count);
    }
    append_interval(&call, "per_share_timeout", request->per_share_timeout);
    append_interval(&call, "base_backoff", request->base_backoff);
    append_interval(&call, "max_backoff", request->max_backoff);
    append_interval(&call, "round_deadline", request->round_deadline);
    append_interval(&call, "freshness", request->freshness);
    if (request->after_quorum) {
        db_param_text(&call.params, request->after_quorum);
        append(&call, ", after_quorum => $%d", call.params.count);
    }
    if (request->require_sealed)
        append(&call, ", require_sealed => true");
    append(&call, ") AS o");
    return db_client_json(client, call.sql, &call.params, NULL, err);
}

json_t *db_distribute(struct db_client *client, const char *round_id, int64_t nonce, struct db_array *node_ids,
                      struct db_array *payloads, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    db_param_int8(&params, nonce);
    if (!db_param_array(&params, DB_INT4_ARRAY, node_ids, err) ||
        !db_param_array(&params, DB_BYTEA_ARRAY, payloads, err))
        return NULL;
    return db_client_json(client,
                          "SELECT coalesce(json_agg(json_build_object('node_id', node_id, 'verdict', verdict) "
                          "ORDER BY place), '[]') FROM quorate.distribute($1, $2, $3, $4) "
                          "WITH ORDINALITY AS d (node_id, verdict, place)",
                          &params, NULL, err);
}

json_t *db_seal_keys(struct db_client *client, const char *round_id, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    char sqlstate[6] = "";
    json_t *keys = db_client_json(client, "SELECT json_agg(k ORDER BY node_id) FROM quorate.seal_keys($1) AS k",
                                  &params, sqlstate, err);
    return keys || strcmp(sqlstate, "QR003") != 0 ? keys : json_array();
}

bool db_listen_rounds(struct db_client *client, struct error *err) {
    bool direct;
    return db_client_is_direct(client, &direct, err) &&
           (!direct || db_client_run(client, "LISTEN quorate_round", NULL, NULL, err));
}

json_t *db_collect(struct db_client *client, const char *round_id, int64_t quorum, char sqlstate[6],
                   struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    if (!db_client_run(client, "SELECT quorate.settle_round($1)", &params, sqlstate, err))
        return NULL;
    if (quorum > 0)
        db_param_int4(&params, (int32_t)quorum);
    else
        db_param_null(&params, DB_INT4);
    return db_client_json(client,
                          "SELECT json_build_object('round_id', $1, 'quorum_nodes', quorate.collect($1, $2), "
                          "'shares', (SELECT coalesce(json_agg(s), '[]') FROM (SELECT node_id, route, url, in_quorum, "
                          "receipt, deployment_id, nonce::text, quorum, encode(payload_sha256, 'hex') AS "
                          "payload_sha256 FROM quorate.collected($1)) AS s))",
                          &params, sqlstate, err);
}

static bool unknown_round(const char *round_id, struct error *err) {
    return error_set(err, EXIT_UNKNOWN, "there is no round \"%s\" (never opened, or pruned)", round_id);
}

bool db_deadline_left(struct db_client *client, const char *round_id, int64_t *microseconds, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    json_t *left = db_client_json(client,
                                  "SELECT to_json((SELECT greatest(0, extract(epoch FROM deadline_at - "
                                  "clock_timestamp()) * 1000000)::bigint FROM quorate.rounds WHERE round_id = $1))",
                                  &params, NULL, err);
    bool known = left && !json_is_null(left);
    if (known)
        *microseconds = json_integer_value(left);
    else if (left)
        (void)unknown_round(round_id, err);
    json_decref(left);
    return known;
}

json_t *db_cancel_round(struct db_client *client, const char *round_id, const char *reason, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    db_param_text(&params, reason);
    return db_client_json(client,
                          "SELECT json_build_object('round_id', $1, 'cancelled', quorate.cancel_round($1, $2), "
                          "'state', quorate.settle_round($1))",
                          &params, NULL, err);
}

bool db_add_node(struct db_client *client, int64_t node_id, const char *url, const char *receipt_key,
                 const char *backup_url, const char *seal_key, struct error *err) {
    struct db_params params = {0};
    db_param_int4(&params, (int32_t)node_id);
    db_param_text(&params, url);
    db_param_text(&params, receipt_key);
    db_param_text(&params, backup_url);
    db_param_text(&params, seal_key);
    return db_client_run(client, "SELECT quorate.add_node($1, $2, $3, $4, $5)", &params, NULL, err);
}

bool db_set_node_enabled(struct db_client *client, int64_t node_id, bool enabled, struct error *err) {
    struct db_params params = {0};
    db_param_int4(&params, (int32_t)node_id);
    db_param_bool(&params, enabled);
    return db_client_run(client, "SELECT quorate.set_node_enabled($1, $2)", &params, NULL, err);
}

bool db_add_node_key(struct db_client *client, int64_t node_id, const char *key, const char *from, const char *until,
                     struct error *err) {
    struct db_params params = {0};
    char sqlstate[6] = "";
    db_param_int4(&params, (int32_t)node_id);
    db_param_text(&params, key);
    db_param_text(&params, from);
    db_param_text(&params, until);
    if (db_client_run(client, "SELECT quorate.add_node_key($1, $2, $3::timestamptz, $4::timestamptz)", &params,
                      sqlstate, err))
        return true;
    if (strncmp(sqlstate, "22", 2) == 0) { /* a data exception: it is no time */
        struct error cause = *err;
        return error_set(err, EXIT_USAGE, "%.300s; write a time such as 2030-12-31T23:00:00Z", cause.text);
    }
    return false;
}

bool db_revoke_node_key(struct db_client *client, int64_t node_id, const char *key, struct error *err) {
    struct db_params params = {0};
    db_param_int4(&params, (int32_t)node_id);
    db_param_text(&params, key);
    return db_client_run(client, "SELECT quorate.revoke_node_key($1, $2)", &params, NULL, err);
}

json_t *db_node_keys(struct db_client *client, int64_t node_id, struct error *err) {
    struct db_params params = {0};
    db_param_int4(&params, (int32_t)node_id);
    json_t *keys = db_client_json(client,
                                  "SELECT coalesce(json_agg(k ORDER BY node_id, valid_from, key), '[]') FROM (SELECT "
                                  "node_id, key, use, valid_from, valid_until, revoked_at, state FROM "
                                  "quorate.node_keys WHERE $1 IN (0, node_id)) AS k",
                                  &params, NULL, err);
    if (keys && node_id != 0 && json_array_size(keys) == 0) { /* a node has a key at least */
        json_decref(keys);
        (void)error_set(err, EXIT_UNKNOWN, "there is no node %" PRId64 "; `quorate node list` shows them", node_id);
        return NULL;
    }
    return keys;
}

json_t *db_nodes(struct db_client *client, struct error *err) {
    return db_client_json(client,
                          "SELECT coalesce(json_agg(n ORDER BY node_id), '[]') FROM (SELECT node_id, url, backup_url, "
                          "receipt_key, receipt_keys, seal_key, enabled, "
                          "(SELECT bool_or(k.state = 'valid') FROM quorate.node_keys k WHERE k.node_id = nodes.node_id "
                          "AND k.use = 'receipt') AS receipt_key_valid, "
                          "(SELECT bool_or(k.state = 'valid') FROM quorate.node_keys k WHERE k.node_id = nodes.node_id "
                          "AND k.use = 'seal') AS seal_key_valid "
                          "FROM quorate.nodes) AS n",
                          NULL, NULL, err);
}

json_t *db_status(struct db_client *client, int64_t newest, struct error *err) {
    struct db_params params = {0};
    db_param_int8(&params, newest);
    return db_client_json(
        client,
        "SELECT json_build_object("
        "'deployment_id', (SELECT deployment_id FROM quorate.deployment), "
        "'schema_version', (SELECT schema_version FROM quorate.deployment), "
        "'coordinators', (SELECT coalesce(json_agg(c ORDER BY c.coordinator, c.started_at), '[]') "
        "FROM (SELECT coordinator, instance_id, started_at, heartbeat_at, alive, open_rounds "
        "FROM quorate.coordinators) AS c), "
        "'rounds_by_state', (SELECT coalesce(json_object_agg(s.state, s.count ORDER BY s.state), '{}') "
        "FROM (SELECT state, count(*) FROM quorate.rounds GROUP BY state) AS s), "
        "'newest_rounds', (SELECT coalesce(json_agg(r), '[]') "
        "FROM (SELECT round_id, nonce::text, state, quorum, total_nodes, acked, opened_at, deadline_at, closed_at, "
        "coordinator FROM quorate.rounds ORDER BY opened_at DESC LIMIT $1) AS r))",
        &params, NULL, err);
}

json_t *db_round_status(struct db_client *client, const char *round_id, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    json_t *status = db_client_json(
        client,
        "SELECT json_build_object("
        "'round', (SELECT to_json(r) FROM (SELECT round_id, nonce::text, state, quorum, total_nodes, node_ids, "
        "per_share_timeout, retry_budget, base_backoff, max_backoff, after_quorum, acked, quorum_nodes, opened_at, "
        "escalate_at, escalated_at, deadline_at, fresh_until, closed_at, collected_at, dead_lettered_at, settled_at, "
        "close_reason, coordinator, require_sealed FROM quorate.rounds WHERE round_id = $1) AS r), "
        "'deliveries', (SELECT coalesce(json_agg(d ORDER BY node_id), '[]') FROM (SELECT node_id, state, attempts, "
        "last_outcome, next_attempt_at, encode(payload_sha256, 'hex') AS payload_sha256, payload_bytes, "
        "payload_erased_at FROM quorate.deliveries WHERE round_id = $1) AS d), "
        "'attempts', (SELECT coalesce(json_agg(a ORDER BY node_id, route, attempt), '[]') FROM (SELECT node_id, "
        "route, attempt, coordinator, reserved_at, finished_at, outcome, http_status, resends FROM quorate.attempts "
        "WHERE round_id = $1) AS a), "
        "'acks', (SELECT coalesce(json_agg(a ORDER BY acked_at, node_id), '[]') FROM (SELECT node_id, route, attempt, "
        "acked_at, in_quorum, late, receipt, receipt_key, third_party FROM quorate.acks WHERE round_id = $1) AS a), "
        "'rejections', (SELECT coalesce(json_agg(j ORDER BY rejected_at), '[]') FROM (SELECT rejected_at, node_id, "
        "nonce::text, verdict, rejected_for FROM quorate.rejections WHERE round_id = $1) AS j))",
        &params, NULL, err);
    if (status && json_is_null(json_object_get(status, "round"))) {
        (void)unknown_round(round_id, err);
        json_decref(status);
        return NULL;
    }
    return status;
}

json_t *db_time_ago(struct db_client *client, int64_t age, struct error *err) {
    struct db_params params = {0};
    db_param_interval(&params, age);
    return db_client_json(client, "SELECT to_json(clock_timestamp() - $1)", &params, NULL, err);
}

int64_t db_prune_rounds(struct db_client *client, const char *cutoff, int64_t max_rounds, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, cutoff);
    db_param_int4(&params, (int32_t)max_rounds);
    json_t *pruned =
        db_client_json(client, "SELECT to_json(quorate.prune_rounds($1::timestamptz, $2))", &params, NULL, err);
    int64_t count = pruned ? json_integer_value(pruned) : -1;
    json_decref(pruned);
    return count;
}
