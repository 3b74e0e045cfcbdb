/* Applies the answers of a lane's batch to the rounds in memory. */
#include <string.h>

#include "base/crash.h"
#include "base/log.h"
#include "round/coordinator.h"
#include "round/lane.h"

static const double LOCKED_PAUSE_S = LOCKED_PAUSE_MS / 1e3;

static void bad_shape(struct lane *lane, const char *call) {
    if (told_news(&lane->told, call, TOLD_PAUSE_US)) {
        log_event(LOG_ERROR, "unexpected_rows",
                  "call=%s hint=\"the database's functions are of another version: run quorate migrate\"", call);
    }
}

static bool is_locked(const PGresult *result, int64_t round_no) {
    struct round_row row;
    for (int i = 0; i < PQntuples(result); i++) {
        if (worker_recorded(result, i, &row) && row.round_no == round_no) {
            return row.state == ROUND_LOCKED;
        }
    }
    return false;
}

static bool any_locked(const PGresult *result) {
    struct round_row row;
    for (int i = 0; i < PQntuples(result); i++) {
        if (worker_recorded(result, i, &row) && row.state == ROUND_LOCKED) {
            return true;
        }
    }
    return false;
}

static void count_end(struct coordinator *c, const struct round_row *row) {
    if (row->ended_after_us >= 0 && row->state == ROUND_COMPLETE) {
        metrics_closed(&c->metrics, row->state, (double)row->ended_after_us / 1e6);
    }
}

static void answer_record(struct lane *lane, const PGresult *result) {
    struct coordinator *c = lane->coordinator;
    bool some_locked = any_locked(result);
    for (size_t i = 0; i < lane->batch.records.count; i++) {
        const struct attempt_record *record = &lane->batch.records.items[i];
        struct round *round = round_find(c, record->key.round_no);
        if (some_locked && is_locked(result, record->key.round_no)) {
            records_add(&lane->parked, record);
        } else if (round != NULL && round->serial == record->counted_by) {
            round->unrecorded--;
        }
    }
    for (int i = 0; i < PQntuples(result); i++) {
        struct round_row row;
        if (!worker_recorded(result, i, &row)) {
            bad_shape(lane, "record");
            return;
        }
        count_end(c, &row);
        struct round *round = round_find(c, row.round_no);
        bool may_change = row.state == ROUND_OPEN || row.state == ROUND_FENCED;
        /* Outcomes of a round that was lost go through any lane, and it may have come again by another one meanwhile.
         */
        if (round != NULL && (round->lane == lane || !may_change)) {
            round_learn(round, row.state, row.settled);
        }
    }
}

static void answer_reserve(struct lane *lane, const PGresult *result) {
    struct coordinator *c = lane->coordinator;
    for (int i = 0; i < PQntuples(result); i++) {
        struct reserve_row row;
        if (!worker_reserved(result, i, &row)) {
            bad_shape(lane, "reserve");
            return;
        }
        coordinator_heard_clock(c, row.now_us);
        struct track *track = round_track(c, &row.key);
        if (track == NULL || track->state != TRACK_RESERVING || track->attempt != row.key.attempt) {
            continue;
        }
        struct round *round = track->delivery->round;
        if (row.granted) {
            track_event(track, TRACK_GRANTED);
        } else if (row.state == ROUND_LOCKED) {
            track->wait_us = LOCKED_PAUSE_MS * 1000;
            track_event(track, TRACK_LOCKED);
        } else if (row.state == ROUND_FENCED || row.state == ROUND_GONE) {
            round_learn(round, row.state, false);
        } else {
            track_event(track, TRACK_DENIED);
            round_learn(round, row.state, false);
        }
    }
}

static void answer_escalate(struct lane *lane, const PGresult *result) {
    struct coordinator *c = lane->coordinator;
    for (int i = 0; i < PQntuples(result); i++) {
        struct round_row row;
        if (!worker_escalated(result, i, &row)) {
            bad_shape(lane, "escalate");
            return;
        }
        struct round *round = round_find(c, row.round_no);
        if (round == NULL || !lane_asked(lane, round, true)) {
            continue;
        }
        round->ask_escalate = false;
        if (row.escalated) {
            c->metrics.escalations += row.first;
            round_learn_escalated(round);
        }
        round->looked = round->looked || (row.due && row.state != ROUND_LOCKED);
        /* Locked, or the database's clock is a little behind: the next look asks again. */
        double left_s = round->deadline_at - coordinator_time(c);
        round_look_in(round, round->looked || left_s < LOCKED_PAUSE_S ? left_s : LOCKED_PAUSE_S);
        round_learn(round, row.state, false);
    }
}

static void answer_settle(struct lane *lane, const PGresult *result) {
    struct coordinator *c = lane->coordinator;
    for (int i = 0; i < PQntuples(result); i++) {
        struct round_row row;
        if (!worker_settled(result, i, &row)) {
            bad_shape(lane, "settle");
            return;
        }
        count_end(c, &row);
        struct round *round = round_find(c, row.round_no);
        if (round == NULL || !lane_asked(lane, round, false)) {
            continue;
        }
        round->ask_settle = false;
        if (row.state == ROUND_LOCKED || row.state == ROUND_OPEN) {
            round_look_in(round, LOCKED_PAUSE_S);
            continue;
        }
        if (!row.settled && row.state == round->state && round->fruitless < 100) {
            round->fruitless++; /* an attempt is unfinished that we do not hold, or a wait is not over: look again, ever
                                   later */
        }
        if (round->fruitless % 3 == 2 && !row.settled) {
            lane_read_owned(lane, round->round_no - 1);
        }
        round_learn(round, row.state, row.settled);
    }
}

static void answer_release(struct lane *lane, const PGresult *result) {
    struct coordinator *c = lane->coordinator;
    for (int i = 0; i < PQntuples(result); i++) {
        struct round_row row;
        if (!worker_released(result, i, &row)) {
            bad_shape(lane, "release");
            return;
        }
        struct round *round = round_find(c, row.round_no);
        if (round != NULL && row.state == ROUND_LOCKED) {
            round->ask_release = false;
            round->release_at = coordinator_time(c) + LOCKED_PAUSE_S;
        } else if (round != NULL) {
            round_drop(round);
        }
    }
}

/* Decodes what was claimed or is owned; a row of the wrong shape is left out. */
static void read_work(struct lane *lane, enum lane_step step) {
    struct work *work = &lane->work;
    PGresult *result = lane->batch.results[step];
    size_t most = (size_t)PQntuples(result);
    lane->batch.results[step] = NULL;
    lane_drop_work(lane);
    work->result = result;
    work->claimed = step == LANE_CLAIM;
    if (most > work->capacity) {
        work->rows = lane_memory(work->rows, most * sizeof *work->rows);
        work->capacity = most;
    }
    for (size_t i = 0; i < most; i++) {
        if (worker_work(result, (int)i, &work->rows[work->count])) {
            work->count++;
        } else {
            bad_shape(lane, work->claimed ? "claim" : "owned");
        }
    }
}

/* True when all node versions of the rows are known. */
static bool nodes_known(const struct lane *lane) {
    for (size_t i = 0; i < lane->work.count; i++) {
        const struct work_row *row = &lane->work.rows[i];
        if (row->node_id != 0 && node_find(&lane->coordinator->nodes, row->node_version) == NULL) {
            return false;
        }
    }
    return true;
}

/* What was claimed with its first attempts has not been sent, unless its answer was so late that the other lane has
 * read meanwhile what is owned: then it may have been sent, settled and forgotten, and the database is asked again. */
static void merge(struct lane *lane) {
    bool late = lane->work.claimed && lane->owned_seen != lane->coordinator->owned_merged;
    for (size_t i = 0; i < lane->work.count; i++) {
        struct work_row *row = &lane->work.rows[i];
        for (int r = 0; r < ROUTE_COUNT; r++) {
            row->route[r].mine = row->route[r].mine && !late;
        }
        if (!round_merge(lane->coordinator, lane, row) && told_news(&lane->told, "round_not_taken", TOLD_PAUSE_US)) {
            log_event(LOG_ERROR, "round_not_taken", "round_no=%lld node=%d version=%d", (long long)row->round_no,
                      row->node_id, row->node_version);
        }
    }
    lane->coordinator->owned_merged += !lane->work.claimed;
    lane_drop_work(lane);
    lane_claim_over(lane);
}

/* The rows of a round stand together. */
static size_t rounds_in(const struct work *work) {
    size_t count = 0;
    for (size_t i = 0; i < work->count; i++) {
        count += i == 0 || work->rows[i].round_no != work->rows[i - 1].round_no;
    }
    return count;
}

static void answer_work(struct lane *lane, enum lane_step step) {
    struct coordinator *c = lane->coordinator;
    const struct work *work = &lane->work;
    read_work(lane, step);
    lane->work_asked_at = lane->batch.began;
    size_t count = rounds_in(work);
    if (count > 0) {
        coordinator_heard_clock(c, work->rows[0].now_us);
    }
    if (step == LANE_CLAIM && count == 0) {
        hints_fruitless(&c->beat.hints, coordinator_time(c));
    }
    if (step == LANE_CLAIM) {
        c->metrics.claimed += count;
        c->work = c->work || count >= (size_t)lane->batch.claim_slots ||
                  (lane->batch.claim_max > 0 && count >= (size_t)lane->batch.claim_max);
    } else if (count > 0) {
        lane_read_owned(lane, work->rows[work->count - 1].round_no);
    }
    if (nodes_known(lane)) {
        merge(lane);
    }
}

void lane_answer(struct lane *lane) {
    PGresult **results = lane->batch.results;
    if (results[LANE_RECORD] != NULL) {
        crash_point("record_committed");
        answer_record(lane, results[LANE_RECORD]);
    }
    if (results[LANE_RESERVE] != NULL) {
        crash_point("reserve_committed");
        answer_reserve(lane, results[LANE_RESERVE]);
    }
    if (results[LANE_ESCALATE] != NULL) {
        crash_point("escalate_committed");
        answer_escalate(lane, results[LANE_ESCALATE]);
    }
    if (results[LANE_SETTLE] != NULL) {
        crash_point("settle_committed");
        answer_settle(lane, results[LANE_SETTLE]);
    }
    if (results[LANE_RELEASE] != NULL) {
        crash_point("release_committed");
        answer_release(lane, results[LANE_RELEASE]);
    }
    if (results[LANE_CLAIM] != NULL) {
        crash_point("claim_committed");
        answer_work(lane, LANE_CLAIM);
    }
    if (results[LANE_OWNED] != NULL) {
        answer_work(lane, LANE_OWNED);
    }
}

void lane_answer_loads(struct lane *lane) {
    struct coordinator *c = lane->coordinator;
    const PGresult *result = lane->batch.results[LANE_LOAD];
    crash_point("envelopes_read");
    for (int i = 0; result != NULL && i < PQntuples(result); i++) {
        struct envelope_row row;
        if (!worker_envelope(result, i, &row)) {
            bad_shape(lane, "envelopes");
            return;
        }
        struct round *round = round_find(c, row.round_no);
        struct delivery *delivery = round != NULL ? round_delivery(round, row.node_id) : NULL;
        for (int r = 0; delivery != NULL && r < ROUTE_COUNT; r++) {
            if (delivery->track[r].state == TRACK_LOADING && row.payload_size == (size_t)delivery->payload_bytes) {
                track_loaded(&delivery->track[r], row.payload, row.payload_size);
            }
        }
    }
    /* What was asked for and did not come was erased, unless the read itself failed: then it is asked again. */
    for (size_t i = 0; i < lane->batch.load_count; i++) {
        struct track *track = round_track(c, &lane->batch.loads[i]);
        if (track != NULL && track->state == TRACK_LOADING && track->attempt == lane->batch.loads[i].attempt &&
            track->list == NULL) {
            track_event(track, result != NULL ? TRACK_MISSING : TRACK_AGAIN);
        }
    }
}

void lane_answer_nodes(struct lane *lane) {
    const PGresult *result = lane->batch.results[LANE_NODES];
    crash_point("nodes_read");
    for (int i = 0; i < PQntuples(result); i++) {
        struct node_version_row row;
        if (!worker_node_version(result, i, &row) || !node_add(&lane->coordinator->nodes, &row)) {
            bad_shape(lane, "node_versions");
        }
    }
    merge(lane);
}
