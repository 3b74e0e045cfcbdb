/* A lane to the database: what piles up for it, and the life of its batches from sending to answer or loss. */
#include "round/lane.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/log.h"
#include "round/coordinator.h"

static const double PARKED_PAUSE_S = 0.02, FAILED_PAUSE_S = 0.05, FAILED_PAUSE_MAX_S = 1.0;
static const double QUIET_S = 10.;
/* A first ack changes nothing that anyone waits for: it goes with the one that makes the quorum, or after this long. A
 * lone round is then written down at once, and not while its second ack waits for the commit of its first. */
static const double PATIENCE_S = 0.005;
static const size_t BATCH_LIMIT = 512;
static const unsigned RESTART_AFTER = 8; /* failed batches in a row */
/* A batch without an answer for so long, while the heartbeat is answered: its session hangs, behind a pooler or in the
 * server, and its rounds with it. */
static const double SILENCE_MAX_S = 20.;

void *lane_memory(void *pointer, size_t size) {
    void *memory = realloc(pointer, size);
    if (memory == NULL) {
        log_event(LOG_ERROR, "out_of_memory", "bytes=%zu", size);
        abort(); /* the database has everything: whoever takes over goes on */
    }
    return memory;
}

void records_add(struct records *records, const struct attempt_record *record) {
    if (records->count == records->capacity) {
        records->capacity = records->capacity == 0 ? 64 : records->capacity * 2;
        records->items = lane_memory(records->items, records->capacity * sizeof *records->items);
    }
    records->items[records->count++] = *record;
}

void lane_record(struct lane *lane, const struct attempt_record *record) {
    struct round *round = round_find(lane->coordinator, record->key.round_no);
    struct attempt_record counted = *record;
    if (round != NULL) {
        round->unrecorded++;
        counted.counted_by = round->serial;
    }
    records_add(&lane->records, &counted);
    if (round == NULL || record->key_no == 0 || !round_awaits_more_acks(round)) {
        lane->urgent = true;
    } else if (!lane->urgent && !ev_is_active(&lane->patience)) {
        ev_timer_set(&lane->patience, PATIENCE_S, 0.);
        ev_timer_start(lane->coordinator->loop, &lane->patience);
    }
}

static void on_patience_over(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct lane *lane = watcher->data;
    lane->urgent = true;
}

void lane_read_owned(struct lane *lane, int64_t after) {
    lane->owned_after = !lane->owned_wanted || after < lane->owned_after ? after : lane->owned_after;
    lane->owned_wanted = true;
}

void lane_reserve(struct lane *lane, struct track *track) {
    if (track->list == NULL) {
        track->list = &lane->reserves;
        DL_APPEND(lane->reserves, track);
    }
}

void lane_load(struct lane *lane, struct track *track) {
    if (track->list == NULL) {
        track->list = &lane->loads;
        DL_APPEND(lane->loads, track);
    }
}

void lane_escalate(struct lane *lane, struct round *round) {
    if (!round->ask_escalate) {
        round->ask_escalate = true;
        DL_APPEND2(lane->escalates, round, prev_escalate, next_escalate);
    }
}

void lane_settle(struct lane *lane, struct round *round) {
    if (!round->ask_settle) {
        round->ask_settle = true;
        DL_APPEND2(lane->settles, round, prev_settle, next_settle);
    }
}

void lane_forget_track(struct track *track) {
    if (track->list != NULL) {
        DL_DELETE(*track->list, track);
        track->list = NULL;
    }
}

void lane_forget_round(struct lane *lane, struct round *round) {
    /* prev is set only while the round stands in the list; in the batch under way it is a number. */
    if (round->prev_escalate != NULL) {
        DL_DELETE2(lane->escalates, round, prev_escalate, next_escalate);
    }
    if (round->prev_settle != NULL) {
        DL_DELETE2(lane->settles, round, prev_settle, next_settle);
    }
}

bool lane_asked(const struct lane *lane, const struct round *round, bool escalate) {
    return round->lane == lane && (escalate ? round->prev_escalate : round->prev_settle) == NULL;
}

static bool has_work(const struct lane *lane) {
    return (lane->records.count > 0 && lane->urgent) || lane->reserves != NULL || lane->loads != NULL ||
           lane->escalates != NULL || lane->settles != NULL || lane->owned_wanted || lane->work.result != NULL;
}

bool lane_idle(const struct lane *lane) {
    return !lane->batch.under_way && lane->records.count == 0 && lane->parked.count == 0 && lane->loads == NULL;
}

void lane_claim_over(struct lane *lane) {
    if (lane->claiming && lane->work.result == NULL) {
        lane->claiming = lane->coordinator->claiming = false;
        node_book_pledge(&lane->coordinator->nodes, 0);
    }
}

void lane_drop_work(struct lane *lane) {
    PQclear(lane->work.result);
    lane->work.result = NULL;
    lane->work.count = 0;
}

void lane_clear_batch(struct lane *lane) {
    for (int i = 0; i < LANE_STEP_COUNT; i++) {
        PQclear(lane->batch.results[i]);
        lane->batch.results[i] = NULL;
    }
    lane->batch.claims = lane->batch.reads_owned = false;
    lane_claim_over(lane);
    lane->batch.records.count = 0;
    lane->batch.reserve_count = lane->batch.load_count = 0;
    lane->batch.escalate_count = lane->batch.settle_count = lane->batch.release_count = 0;
    lane->batch.step_count = lane->batch.next_step = 0;
    lane->batch.commits = lane->batch.sync_seen = lane->batch.failed = lane->batch.load_failed = lane->batch.under_way =
        false;
}

/* With a connection string of its own, the beat may have joined somewhere else, and its number be another's here. */
static void greet(struct lane *lane) {
    const struct coordinator *c = lane->coordinator;
    lane->batch.under_way = true;
    lane->batch.began = coordinator_time(c);
    lane->batch.steps[lane->batch.step_count++] = LANE_GREET;
    if (!worker_send_is_joined(lane->session, c->instance, c->instance_id) || !db_session_sync(lane->session)) {
        db_session_restart(lane->session, "a batch could not be sent", NULL);
    }
}

static void greeted(struct lane *lane) {
    lane->greeted = worker_is_joined(lane->batch.results[LANE_GREET]);
    if (!lane->greeted) {
        lane->batch.load_failed = true;
        lane->failures = 5; /* a long pause, but no new connection */
        if (told_news(&lane->told, "another database", TOLD_PAUSE_US)) {
            log_event(LOG_ERROR, "another_database",
                      "reason=\"--db and --listen-db lead to different databases\" hint=\"give the same one twice\"");
        }
    }
}

void lane_turn(struct lane *lane) {
    struct coordinator *c = lane->coordinator;
    if (lane->batch.under_way || c->instance == 0 || !db_session_ready(lane->session) ||
        (lane->failures > 0 && ev_is_active(&lane->pause))) {
        return;
    }
    bool wanted = c->draining ? c->rounds != NULL : c->work && !c->claiming;
    if (!lane->greeted) {
        greet(lane);
    } else if ((has_work(lane) || wanted) && !lane_build(lane)) {
        /* Half a batch may be queued: only a new connection knows where it stands. All of it is asked again. */
        log_event(LOG_WARN, "batch_not_sent", "");
        db_session_restart(lane->session, "a batch could not be sent", NULL);
    }
}

void lane_check(struct lane *lane) {
    static const char WHY[] = "no answer to a batch within 20 s, though the heartbeat is answered";
    if (lane->batch.under_way && db_session_ready(lane->session) &&
        coordinator_time(lane->coordinator) - lane->batch.began > SILENCE_MAX_S) {
        if (told_news(&lane->told, WHY, TOLD_PAUSE_US)) {
            log_event(LOG_WARN, "batch_failed", "error=\"%s\"", WHY);
        }
        db_session_restart(lane->session, WHY, NULL);
    }
}

static void pause_start(struct lane *lane, double seconds) {
    if (!ev_is_active(&lane->pause)) {
        ev_timer_set(&lane->pause, seconds, 0.);
        ev_timer_start(lane->coordinator->loop, &lane->pause);
    }
}

static void on_pause_over(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct lane *lane = watcher->data;
    for (size_t i = 0; i < lane->parked.count; i++) {
        records_add(&lane->records, &lane->parked.items[i]);
    }
    lane->parked.count = 0;
    lane->urgent = true;
}

/* True when the fault lies with a row (data, integrity): it would fail for ever. Anything else, rights and missing
 * functions included, may be mended while we try. */
static bool is_a_rows_fault(const char *sqlstate) {
    return strncmp(sqlstate, "22", 2) == 0 || strncmp(sqlstate, "23", 2) == 0;
}

/* Full jitter, so that two coordinators that collide do not collide again. */
static void pause_failed(struct lane *lane) {
    double pause_s = FAILED_PAUSE_S * (double)(1u << (lane->failures < 5 ? lane->failures : 5));
    if (++lane->failures % RESTART_AFTER == 0) {
        /* What the session was started with may have changed: its role's or database's settings. */
        lane->restart = true;
    }
    pause_start(lane,
                (pause_s < FAILED_PAUSE_MAX_S ? pause_s : FAILED_PAUSE_MAX_S) * (randombytes_random() / 4294967296.0));
}

/* The first transaction failed: everything in it is asked again after a pause, and a row that fails even alone is given
 * up. */
static void batch_failed(struct lane *lane) {
    const char *sqlstate = lane->batch.sqlstate;
    metrics_batch_failed(&lane->coordinator->metrics);
    if (strcmp(sqlstate, "54000") == 0) {
        /* Too many notifications in the queue: they are hints, the commits are not. */
        lane->quiet_until = coordinator_time(lane->coordinator) + QUIET_S;
    }
    if (is_a_rows_fault(sqlstate) && lane->limit == 1) {
        lane_give_up(lane);
    }
    lane_requeue(lane);
    if (is_a_rows_fault(sqlstate)) {
        lane->limit = lane->limit > 1 ? lane->limit / 2 : 1;
    }
    pause_failed(lane);
}

static void batch_over(struct lane *lane) {
    struct coordinator *c = lane->coordinator;
    if (lane->batch.failed) {
        batch_failed(lane);
    } else {
        metrics_batch(&c->metrics, lane->batch.records.count + lane->batch.reserve_count + lane->batch.settle_count,
                      coordinator_time(c) - lane->batch.began);
        if (!lane->batch.load_failed) {
            lane->failures = 0;
            if (lane->batch.commits && lane->batch.steps[0] < LANE_OWNED) {
                (void)told_over(&lane->told); /* a read proves little: of a primary that was demoted, say */
            }
        }
        lane->limit = lane->limit * 2 < BATCH_LIMIT ? lane->limit * 2 : BATCH_LIMIT;
        if (lane->batch.load_failed) {
            pause_failed(lane);
        }
        lane_clear_batch(lane);
    }
    if (lane->parked.count > 0) {
        pause_start(lane, PARKED_PAUSE_S);
    }
    if (lane->restart) {
        lane->restart = false;
        db_session_restart(lane->session, lane->last_error, NULL);
    }
}

static void note_error(struct lane *lane, const PGresult *result) {
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char quoted[sizeof lane->last_error + 64];
    if (lane->batch.commits && !lane->batch.sync_seen && !lane->batch.failed) {
        lane->batch.failed = true;
        snprintf(lane->batch.sqlstate, sizeof lane->batch.sqlstate, "%s", sqlstate != NULL ? sqlstate : "");
    } else {
        lane->batch.load_failed = true;
    }
    snprintf(lane->last_error, sizeof lane->last_error, "%s %s", sqlstate != NULL ? sqlstate : "-",
             message != NULL ? message : "connection lost");
    if (told_news(&lane->told, lane->last_error, TOLD_PAUSE_US)) {
        log_event(LOG_WARN, "batch_failed", "error=%s", log_quote(lane->last_error, quoted, sizeof quoted));
    }
}

static void on_sync(struct lane *lane) {
    bool first = lane->batch.commits && !lane->batch.sync_seen;
    if (first) {
        lane->batch.sync_seen = true;
        if (!lane->batch.failed) {
            lane_answer(lane);
        }
        while (lane->batch.next_step < lane->batch.step_count && lane->batch.steps[lane->batch.next_step] < LANE_LOAD) {
            lane->batch.next_step++;
        }
        if (lane->batch.next_step < lane->batch.step_count) {
            return; /* the envelopes are still to come */
        }
    } else if (lane->batch.results[LANE_GREET] != NULL) {
        greeted(lane);
    } else if (lane->batch.results[LANE_NODES] != NULL) {
        lane_answer_nodes(lane);
    } else {
        lane_answer_loads(lane);
    }
    batch_over(lane);
}

/* Goes on to the next step, unless the failure is the commit's: then the next step belongs to the next transaction. */
static void step_failed(struct lane *lane) {
    bool committing = lane->batch.commits && !lane->batch.sync_seen;
    if (lane->batch.next_step < lane->batch.step_count &&
        !(committing && lane->batch.steps[lane->batch.next_step] >= LANE_LOAD)) {
        lane->batch.next_step++;
    }
}

static bool on_result(void *context, PGresult *result) {
    struct lane *lane = context;
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        on_sync(lane);
        return false;
    case PGRES_TUPLES_OK:
        if (lane->batch.next_step < lane->batch.step_count) {
            lane->batch.results[lane->batch.steps[lane->batch.next_step++]] = result;
            return true;
        }
        return false;
    case PGRES_PIPELINE_ABORTED:
        step_failed(lane);
        return false;
    default:
        note_error(lane, result);
        step_failed(lane);
        return false;
    }
}

static void on_ready(void *context) {
    struct lane *lane = context;
    lane->greeted = lane->coordinator->settings.listen_conninfo == NULL;
    lane_turn(lane);
}

static void on_lost(void *context) {
    struct lane *lane = context;
    lane_requeue(lane);
    lane_drop_work(lane);
    lane_claim_over(lane);
    lane_read_owned(lane, 0); /* a claim may have been committed that we did not hear of */
}

bool lane_start(struct lane *lane, struct coordinator *coordinator, const char *label) {
    static const struct db_session_handler HANDLER = {
        .ready = on_ready, .lost = on_lost, .result = on_result, .statements = worker_statements};
    lane->coordinator = coordinator;
    lane->limit = BATCH_LIMIT;
    ev_init(&lane->pause, on_pause_over);
    lane->pause.data = lane;
    ev_init(&lane->patience, on_patience_over);
    lane->patience.data = lane;
    lane->session = db_session_new(coordinator->loop, coordinator->settings.conninfo, coordinator->application_name,
                                   label, &HANDLER, lane);
    return lane->session != NULL;
}

void lane_free(struct lane *lane) {
    if (lane->coordinator == NULL) {
        return;
    }
    ev_timer_stop(lane->coordinator->loop, &lane->pause);
    ev_timer_stop(lane->coordinator->loop, &lane->patience);
    db_session_free(lane->session);
    lane_clear_batch(lane);
    lane_drop_work(lane);
    free(lane->work.rows);
    worker_scratch_free(&lane->scratch);
    free(lane->records.items);
    free(lane->parked.items);
    free(lane->batch.records.items);
    free(lane->batch.reserves);
    free(lane->batch.loads);
    free(lane->batch.escalates);
    free(lane->batch.settles);
    free(lane->batch.releases);
}
