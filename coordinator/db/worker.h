/* One typed C function per function of schema quorate_worker, and the rows that they return. */
#ifndef QUORATE_DB_WORKER_H
#define QUORATE_DB_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "db/array.h"
#include "db/session.h"
#include "wire/checkpoint.h"
#include "wire/webhook.h"

enum route { ROUTE_PRIMARY, ROUTE_BACKUP, ROUTE_COUNT };

/* Outcomes of attempts, in the order of the database's enum. */
enum outcome {
    OUTCOME_ACK,
    OUTCOME_TIMEOUT,
    OUTCOME_CONNECT_ERROR,
    OUTCOME_HTTP_ERROR,
    OUTCOME_BAD_RECEIPT,
    OUTCOME_REFUSED,
    OUTCOME_IN_DOUBT,
    OUTCOME_UNSENT,
    OUTCOME_COUNT
};

/* States of a round, in the order of the database's enum, and what a batch may say instead of one. */
enum round_state {
    ROUND_OPEN,
    ROUND_COMPLETE,
    ROUND_STALLED,
    ROUND_CANCELLED,
    ROUND_DEAD_LETTERED,
    ROUND_STATE_COUNT,
    ROUND_LOCKED = ROUND_STATE_COUNT, /* someone else holds its row: nothing was done, ask again */
    ROUND_FENCED,                     /* this instance lost it */
    ROUND_GONE                        /* pruned */
};

const char *route_name(enum route route);
const char *outcome_name(enum outcome outcome);
const char *round_state_name(enum round_state state); /* of the first ROUND_STATE_COUNT */

struct attempt_key {
    int64_t round_no;
    int16_t node_id;
    int16_t attempt; /* 1..retry budget */
    enum route route;
};

struct attempt_record {
    struct attempt_key key;
    enum outcome outcome;
    int16_t http_status; /* 0: none */
    int16_t key_no;      /* which of its node's keys signed the receipt, counted from 1; 0: there is no receipt */
    int64_t retry_us;    /* until the route's next attempt; negative: none */
    struct signature receipt;
    uint64_t counted_by; /* the caller's own mark */
};

/* Scratch arrays of one session's calls. Start from a struct of zeros. */
struct worker_scratch {
    struct db_array array[9];
};
void worker_scratch_free(struct worker_scratch *scratch);

/* For a session's handler: those of the statements below that are sent again and again. */
extern const char *const worker_statements[];

/* Each queues one statement on the session; false: not connected, or out of memory. Which results belong to which call
 * is told by their order. The items are read during the call only. */
bool worker_send_listen(struct db_session *session) MUST_CHECK;
/* Notifications that tell whether notifications come. */
bool worker_send_listen_test(struct db_session *session) MUST_CHECK;
bool worker_send_notify_test(struct db_session *session, const char *payload) MUST_CHECK;
bool worker_send_join(struct db_session *session, const char *instance_id, const char *name,
                      int64_t lease_us) MUST_CHECK;
bool worker_send_is_joined(struct db_session *session, int32_t instance, const char *instance_id) MUST_CHECK;
bool worker_send_tick(struct db_session *session, int32_t instance, bool notify, int32_t max, bool count) MUST_CHECK;
bool worker_send_durability(struct db_session *session) MUST_CHECK;
bool worker_send_leave(struct db_session *session, int32_t instance, bool notify) MUST_CHECK;
bool worker_send_hold(struct db_session *session, int32_t instance) MUST_CHECK;
bool worker_send_watch(struct db_session *session, int32_t instance, int32_t seen) MUST_CHECK;
bool worker_send_node_versions(struct db_session *session, struct worker_scratch *scratch, const int32_t *versions,
                               size_t count) MUST_CHECK;
bool worker_send_claim(struct db_session *session, struct worker_scratch *scratch, int32_t instance, int32_t max,
                       int32_t slots, const int32_t *busy, size_t busy_count) MUST_CHECK;
bool worker_send_owned(struct db_session *session, int32_t instance, int64_t after, int32_t max) MUST_CHECK;
bool worker_send_envelopes(struct db_session *session, struct worker_scratch *scratch, const struct attempt_key *keys,
                           size_t count) MUST_CHECK;
bool worker_send_reserve(struct db_session *session, struct worker_scratch *scratch, int32_t instance,
                         const struct attempt_key *keys, size_t count) MUST_CHECK;
bool worker_send_record(struct db_session *session, struct worker_scratch *scratch, int32_t instance, bool notify,
                        const struct attempt_record *records, size_t count) MUST_CHECK;
bool worker_send_escalate(struct db_session *session, struct worker_scratch *scratch, int32_t instance,
                          const int64_t *round_nos, size_t count) MUST_CHECK;
bool worker_send_release(struct db_session *session, struct worker_scratch *scratch, int32_t instance, bool notify,
                         const int64_t *round_nos, size_t count) MUST_CHECK;
bool worker_send_settle(struct db_session *session, struct worker_scratch *scratch, int32_t instance, bool notify,
                        const int64_t *round_nos, size_t count) MUST_CHECK;
bool worker_send_chain(struct db_session *session, int32_t max, const char *key) MUST_CHECK; /* key: NULL for none */
bool worker_send_links(struct db_session *session, int64_t after, int64_t upto) MUST_CHECK;
bool worker_send_signed(struct db_session *session, const char *key) MUST_CHECK;
bool worker_send_checkpoint(struct db_session *session, const struct checkpoint *checkpoint) MUST_CHECK;

struct joined_row {
    int32_t instance;
    char deployment_id[ROUND_ID_MAX + 1];
    int32_t schema_version;
};

/* A setting under which commits may be forgotten. */
struct durability_row {
    const char *setting, *value, *risk;
};

struct tick_row {
    bool alive, work;
    int32_t stalled, dead_lettered, fenced;
    int64_t next_due_us;           /* negative: nothing is due */
    struct db_array_reader failed; /* int8: round_no */
    int64_t now_us;
    int64_t owned; /* unsettled rounds of this instance; negative: not counted */
};

struct watch_row {
    int32_t peer; /* 0: there is no other coordinator */
    bool seen;    /* its life lock was seen held */
    bool free;    /* that one's life lock was free */
    bool fenced;
};

struct chain_row {
    int32_t chained; /* negative: nobody tells, since a peer was at it */
    bool more;
    int64_t seq; /* of the chain's head */
    unsigned char hash[SHA256_BYTES];
    int64_t now_us;
    int64_t unsigned_entries, unsigned_us; /* 0: all of it is signed; how long the first of them has been waiting */
};

struct links_row {
    const unsigned char *links; /* SHA256_BYTES each */
    int count;
};

struct node_version_row {
    int32_t version;
    int node_id;
    const char *url, *backup_url; /* backup_url may be NULL */
    const char *receipt_key;      /* of several keys, newest first, with one blank between them */
};

/* One route of a delivery as the database has it. */
struct route_row {
    int16_t used; /* attempts reserved so far */
    int16_t open; /* the number of the one without an outcome; 0: none */
    bool refused;
    bool mine;       /* the open one was reserved by this very transaction: it has not been sent yet */
    int64_t wait_us; /* until the next attempt may start; 0 or negative: now */
};

struct work_row {
    int64_t round_no, nonce;
    const char *round_id;
    enum round_state state;
    bool stop, escalated;
    int64_t escalate_us, deadline_us; /* left; negative: past */
    int64_t timeout_us, base_us, max_us, now_us;
    int16_t retry_budget, quorum;
    int16_t node_id; /* 0: the round has no delivery yet, and nothing below is set */
    int32_t node_version, payload_bytes;
    const unsigned char *payload_sha256;
    bool acked;
    struct route_row route[ROUTE_COUNT];
    const unsigned char *payload; /* of payload_bytes; NULL: to be read by worker_send_envelopes */
};

struct envelope_row {
    int64_t round_no;
    int16_t node_id;
    const unsigned char *payload;
    size_t payload_size;
};

struct reserve_row {
    struct attempt_key key;
    bool granted;
    enum round_state state;
    int64_t now_us; /* the database's clock, microseconds since 1970 */
};

/* A row of record, escalate or settle. */
struct round_row {
    int64_t round_no;
    enum round_state state;
    bool settled;               /* record, settle */
    bool escalated, first, due; /* escalate; first: by this call; due: this look counts */
    int64_t ended_after_us;     /* record: from opening to its end, if this call ended it; else negative */
};

/* Each decodes row `row`; pointers point into `result`. False: the result has another shape, so that the database runs
 * other code than this. */
bool worker_joined(const PGresult *result, struct joined_row *out) MUST_CHECK;
bool worker_tick(const PGresult *result, struct tick_row *out) MUST_CHECK;
bool worker_held(const PGresult *result) MUST_CHECK; /* of hold: whether the lock is this session's now */
bool worker_watched(const PGresult *result, struct watch_row *out) MUST_CHECK;
bool worker_chained(const PGresult *result, struct chain_row *out) MUST_CHECK;
bool worker_links(const PGresult *result, struct links_row *out) MUST_CHECK;
/* Without deployment and key, and not verified; seq 0: there is none. */
bool worker_signed(const PGresult *result, struct checkpoint *out) MUST_CHECK;
bool worker_released(const PGresult *result, int row, struct round_row *out) MUST_CHECK;
bool worker_is_joined(const PGresult *result) MUST_CHECK; /* false, too, for no result */
bool worker_durability(const PGresult *result, int row, struct durability_row *out) MUST_CHECK;
bool worker_left(const PGresult *result) MUST_CHECK; /* false, too, when leave has to be asked again */
bool worker_node_version(const PGresult *result, int row, struct node_version_row *out) MUST_CHECK;
bool worker_work(const PGresult *result, int row, struct work_row *out) MUST_CHECK;
bool worker_envelope(const PGresult *result, int row, struct envelope_row *out) MUST_CHECK;
bool worker_reserved(const PGresult *result, int row, struct reserve_row *out) MUST_CHECK;
bool worker_recorded(const PGresult *result, int row, struct round_row *out) MUST_CHECK;
bool worker_escalated(const PGresult *result, int row, struct round_row *out) MUST_CHECK;
bool worker_settled(const PGresult *result, int row, struct round_row *out) MUST_CHECK;

#endif
