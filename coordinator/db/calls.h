/* What the command line asks of the database: one function per SQL function or view, each answering with JSON in which
 * times are ISO 8601 texts and nonces are strings. */
#ifndef QUORATE_DB_CALLS_H
#define QUORATE_DB_CALLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "db/array.h"
#include "db/client.h"

/* All of these return NULL (or false) on failure, with the exit code of the SQLSTATE; the caller owns what they give.
 */

/* A round to open; 0 or NULL leaves a value to the database's default. Durations in microseconds. */
struct open_request {
    const char *round_id;
    int64_t quorum;
    struct db_array *node_ids; /* int4[] */
    int64_t nonce;
    int64_t per_share_timeout, retry_budget, base_backoff, max_backoff, round_deadline, freshness;
    const char *after_quorum;
    bool require_sealed;
};

/* {round_id, nonce, opened_at, escalate_at, deadline_at, fresh_until} */
json_t *db_open_round(struct db_client *client, const struct open_request *request, struct error *err) MUST_CHECK;

/* [{node_id, verdict}] in the order given. `node_ids`: int4[], `payloads`: bytea[] of the same length. */
json_t *db_distribute(struct db_client *client, const char *round_id, int64_t nonce, struct db_array *node_ids,
                      struct db_array *payloads, struct error *err) MUST_CHECK;

/* [{node_id, seal_key, require_sealed, deployment_id}] of the round's nodes, ascending; seal_key is null for a node
 * that had none when the round was opened. Empty without such a round. */
json_t *db_seal_keys(struct db_client *client, const char *round_id, struct error *err) MUST_CHECK;

/* Hears of ended rounds from now on, if the connection is the server's own. Behind a pooler LISTEN would stay with a
 * session that serves others: there, nothing is heard. */
bool db_listen_rounds(struct db_client *client, struct error *err) MUST_CHECK;

/* {round_id, quorum_nodes, shares: [{node_id, route, url, in_quorum, receipt, deployment_id, nonce, quorum,
 * payload_sha256 in hex}]}; quorum_nodes is null while the round is open. Commits a due transition first. `quorum`: the
 * collector's floor, 0 for none. */
json_t *db_collect(struct db_client *client, const char *round_id, int64_t quorum, char sqlstate[6],
                   struct error *err) MUST_CHECK;

/* Microseconds until the round's deadline by the database's clock, 0 when it has passed; EXIT_UNKNOWN without such a
 * round. */
bool db_deadline_left(struct db_client *client, const char *round_id, int64_t *microseconds,
                      struct error *err) MUST_CHECK;

/* {round_id, cancelled, state} */
json_t *db_cancel_round(struct db_client *client, const char *round_id, const char *reason,
                        struct error *err) MUST_CHECK;

bool db_add_node(struct db_client *client, int64_t node_id, const char *url, const char *receipt_key,
                 const char *backup_url, const char *seal_key, struct error *err) MUST_CHECK;
bool db_set_node_enabled(struct db_client *client, int64_t node_id, bool enabled, struct error *err) MUST_CHECK;
/* Lets the node have another key. `from`, `until`: times as PostgreSQL reads them; NULL: now, and for ever. */
bool db_add_node_key(struct db_client *client, int64_t node_id, const char *key, const char *from, const char *until,
                     struct error *err) MUST_CHECK;
bool db_revoke_node_key(struct db_client *client, int64_t node_id, const char *key, struct error *err) MUST_CHECK;
/* [{node_id, key, use, valid_from, valid_until, revoked_at, state}] of one node, or (0) of all; EXIT_UNKNOWN without
 * such a node. */
json_t *db_node_keys(struct db_client *client, int64_t node_id, struct error *err) MUST_CHECK;
/* [{node_id, url, backup_url, receipt_key, receipt_keys, seal_key, enabled}] */
json_t *db_nodes(struct db_client *client, struct error *err) MUST_CHECK;

/* {deployment_id, schema_version, coordinators: [...], rounds_by_state: {state: count}, newest_rounds: [...]}, at most
 * `newest` rounds. */
json_t *db_status(struct db_client *client, int64_t newest, struct error *err) MUST_CHECK;

/* {round, deliveries, attempts, acks, rejections}; EXIT_UNKNOWN without such a round. */
json_t *db_round_status(struct db_client *client, const char *round_id, struct error *err) MUST_CHECK;

/* The database's time `age` microseconds ago, as a text for db_prune_rounds; false, too, when that is before all time.
 */
json_t *db_time_ago(struct db_client *client, int64_t age, struct error *err) MUST_CHECK;
/* Deletes at most `max_rounds` settled rounds that ended before `cutoff`; how many, or -1. */
int64_t db_prune_rounds(struct db_client *client, const char *cutoff, int64_t max_rounds, struct error *err) MUST_CHECK;

#endif
