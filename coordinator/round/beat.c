/* The heartbeat: the session that listens, joins, ticks (heartbeat, due rounds, fencing of silent peers) and leaves. */
#include "round/beat.h"

#include <string.h>

#include "base/crash.h"
#include "base/log.h"
#include "db/sql_files.h"
#include "round/coordinator.h"

/* A coordinator looks at the database at least this often, whatever notifications say. */
static const double TICK_S = 0.5, TICK_SOONEST_S = 0.02;
/* A call without an answer for so long: the connection is half open. */
static const double SILENCE_MAX_S = 5.0;
enum { TICK_ROUNDS_MAX = 1000, COUNT_EVERY = 20, RESTART_AFTER = 4 };

static void wake_in(struct beat *beat, double seconds) {
    struct ev_loop *loop = beat->coordinator->loop;
    ev_timer_stop(loop, &beat->timer);
    ev_timer_set(&beat->timer, seconds, 0.);
    ev_timer_start(loop, &beat->timer);
}

static void call(struct beat *beat, enum beat_call what) {
    struct coordinator *c = beat->coordinator;
    bool sent = hearing_send_listen(&beat->hearing, beat->session);
    /* Only a session of the server's own keeps a lock; without it, peers go by the lease alone. */
    beat->holding = what == BEAT_TICK && !beat->held && db_session_direct(beat->session);
    sent = sent && (!beat->holding || worker_send_hold(beat->session, c->instance));
    switch (what) {
    case BEAT_JOIN:
        sent = sent && worker_send_join(beat->session, c->instance_id, c->settings.name, c->settings.lease_us);
        break;
    case BEAT_DURABILITY:
        sent = sent && worker_send_durability(beat->session);
        break;
    case BEAT_TICK:
        sent = sent && worker_send_tick(beat->session, c->instance, !beat->quiet, TICK_ROUNDS_MAX,
                                        beat->ticks++ % COUNT_EVERY == 0);
        break;
    case BEAT_LEAVE:
        sent = sent && worker_send_leave(beat->session, c->instance, !beat->quiet);
        break;
    case BEAT_NOTHING:
        return;
    }
    if (sent && db_session_sync(beat->session)) {
        if (what == BEAT_LEAVE) {
            crash_point("leave_sent");
        }
        beat->call = what;
        beat->failed = false;
        wake_in(beat, SILENCE_MAX_S);
    }
}

static void next_call(struct beat *beat) {
    if (db_session_ready(beat->session) && beat->call == BEAT_NOTHING) {
        call(beat, !beat->looked ? BEAT_DURABILITY : beat->coordinator->instance == 0 ? BEAT_JOIN : BEAT_TICK);
    }
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct beat *beat = watcher->data;
    beat->stay = false;
    if (beat->call != BEAT_NOTHING) {
        static const char WHY[] =
            "no answer to the heartbeat within 5 s: commits wait for a standby, a lock is held, or "
            "the connection is half open";
        if (told_news(&beat->told, WHY, TOLD_PAUSE_US)) {
            log_event(LOG_WARN, "beat_failed", "error=\"%s\"", WHY);
        }
        db_session_restart(beat->session, WHY, NULL);
        return;
    }
    next_call(beat);
}

static void on_ready(void *context) {
    struct beat *beat = context;
    hearing_begin(&beat->hearing, db_session_direct(beat->session));
    beat->held = beat->looked = beat->stay = false;
    beat->call = BEAT_NOTHING;
    beat->coordinator->work = true; /* what was notified meanwhile was not heard */
    next_call(beat);
}

static void on_lost(void *context) {
    struct beat *beat = context;
    PQclear(beat->answer);
    beat->answer = NULL;
    beat->call = BEAT_NOTHING;
    hearing_stop(&beat->hearing);
    ev_timer_stop(beat->coordinator->loop, &beat->timer);
}

/* Said once: it lasts until someone migrates. */
static void unexpected_rows(struct beat *beat, const char *name) {
    if (told_news(&beat->told, name, INT64_MAX)) {
        log_event(LOG_ERROR, "unexpected_rows", "call=%s hint=\"run quorate migrate\"", name);
    }
}

static void ticked(struct beat *beat, const PGresult *result) {
    struct coordinator *c = beat->coordinator;
    struct tick_row row;
    if (!worker_tick(result, &row)) {
        unexpected_rows(beat, "tick");
        wake_in(beat, TICK_S);
        return;
    }
    coordinator_heard_clock(c, row.now_us);
    for (int i = 0; i < row.dead_lettered && i < TICK_ROUNDS_MAX; i++) {
        metrics_closed(&c->metrics, ROUND_DEAD_LETTERED, -1.);
    }
    c->metrics.fenced += (uint64_t)row.fenced;
    if (row.fenced > 0) {
        log_event(LOG_WARN, "peer_fenced", "count=%d", row.fenced);
    }
    if (!row.alive) {
        coordinator_fenced(c);
        return;
    }
    for (int i = 0; i < LANE_COUNT; i++) {
        lane_check(&c->lanes[i]);
    }
    c->work = c->work || row.work;
    while (row.failed.left > 0) {
        struct round *round = round_find(c, db_array_next(&row.failed));
        if (round != NULL) {
            round_ended_elsewhere(round);
        }
    }
    if (row.owned > (int64_t)HASH_COUNT(c->rounds) && !c->claiming) {
        lane_read_owned(&c->lanes[0], 0); /* a claim was committed after its connection had died */
    }
    double next_s = TICK_S;
    if (row.next_due_us >= 0 && (double)row.next_due_us / 1e6 < next_s) {
        next_s = (double)row.next_due_us / 1e6;
    }
    if (row.stalled == TICK_ROUNDS_MAX || row.dead_lettered == TICK_ROUNDS_MAX) {
        wake_in(beat, 0.); /* more are due */
    } else {
        wake_in(beat, next_s > TICK_SOONEST_S ? next_s : TICK_SOONEST_S);
    }
}

static void joined(struct beat *beat, const PGresult *result) {
    struct coordinator *c = beat->coordinator;
    struct joined_row row;
    if (!worker_joined(result, &row)) {
        unexpected_rows(beat, "join_deployment");
        wake_in(beat, TICK_S);
        return;
    }
    if (row.schema_version < sql_files_schema_version()) {
        if (told_news(&beat->told, "schema_too_old", INT64_MAX)) {
            log_event(LOG_ERROR, "schema_too_old", "schema=%d needed=%d hint=\"run quorate migrate\"",
                      row.schema_version, sql_files_schema_version());
        }
        wake_in(beat, TICK_S);
        return;
    }
    coordinator_joined(c, &row);
    crash_point("joined");
    next_call(beat);
}

/* Warns of settings under which commits may be forgotten, each once. */
static void looked(struct beat *beat, const PGresult *result) {
    struct durability_row row;
    for (int i = 0; i < PQntuples(result) && worker_durability(result, i, &row); i++) {
        char value[256], risk[256];
        if (told_news(&beat->warned, row.risk, INT64_MAX)) {
            log_event(LOG_WARN, "not_durable", "setting=%s value=%s risk=%s", row.setting,
                      log_quote(row.value, value, sizeof value), log_quote(row.risk, risk, sizeof risk));
        }
    }
    next_call(beat);
}

static void gone(struct beat *beat, const PGresult *result) {
    if (!worker_left(result)) {
        beat->stay = true; /* a batch of ours still runs in some backend: not again at once */
        wake_in(beat, TICK_SOONEST_S);
        return;
    }
    crash_point("left");
    beat->coordinator->left = true;
    ev_timer_stop(beat->coordinator->loop, &beat->timer);
    ev_break(beat->coordinator->loop, EVBREAK_ALL);
}

/* The transaction of the call under way has ended. */
static void on_sync(struct beat *beat) {
    enum beat_call done = beat->call;
    PGresult *answer = beat->answer;
    beat->call = BEAT_NOTHING;
    beat->answer = NULL;
    beat->looked = beat->looked || done == BEAT_DURABILITY; /* whatever came of it: it is advice */
    if (beat->failed) {
        beat->stay = true;
        beat->held = false; /* the lock may be ours, but nobody knows of it */
        PQclear(answer);
        wake_in(beat, TICK_S);
        if (++beat->failures % RESTART_AFTER == 0) {
            /* What the session was started with may have changed: its role's or database's settings. */
            db_session_restart(beat->session, beat->last_error, NULL);
        }
        return;
    }
    beat->failures = 0;
    hearing_listens(&beat->hearing);
    beat->quiet = false;
    (void)told_over(&beat->told);
    switch (done) {
    case BEAT_JOIN:
        joined(beat, answer);
        break;
    case BEAT_DURABILITY:
        looked(beat, answer);
        break;
    case BEAT_TICK:
        ticked(beat, answer);
        break;
    case BEAT_LEAVE:
        gone(beat, answer);
        break;
    case BEAT_NOTHING:
        break;
    }
    PQclear(answer);
}

static void note_error(struct beat *beat, const PGresult *result) {
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char quoted[sizeof beat->last_error + 64];
    const char *hint = "";
    if (sqlstate != NULL && (strcmp(sqlstate, "3F000") == 0 || strcmp(sqlstate, "42883") == 0)) {
        hint = " (run quorate migrate)";
    } else if (sqlstate != NULL && strcmp(sqlstate, "42501") == 0) {
        hint = " (GRANT quorate_coordinator to the user of this connection)";
    }
    beat->failed = true;
    beat->quiet = beat->quiet || (sqlstate != NULL && strcmp(sqlstate, "54000") == 0);
    snprintf(beat->last_error, sizeof beat->last_error, "%s %s%s", sqlstate != NULL ? sqlstate : "-",
             message != NULL ? message : "connection lost", hint);
    if (told_news(&beat->told, beat->last_error, TOLD_PAUSE_US)) {
        log_event(LOG_WARN, "beat_failed", "error=%s", log_quote(beat->last_error, quoted, sizeof quoted));
    }
}

static bool on_result(void *context, PGresult *result) {
    struct beat *beat = context;
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        on_sync(beat);
        return false;
    case PGRES_TUPLES_OK:
        if (beat->holding) {
            beat->holding = false;
            beat->held = worker_held(result);
            return false;
        }
        PQclear(beat->answer);
        beat->answer = result;
        return true;
    case PGRES_COMMAND_OK: /* LISTEN */
    case PGRES_PIPELINE_ABORTED:
        return false;
    default:
        note_error(beat, result);
        return false;
    }
}

static void on_hint_due(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct beat *beat = watcher->data;
    beat->coordinator->work = true;
}

static void on_notified(void *context, const char *channel, const char *payload) {
    struct beat *beat = context;
    double wait_s = hints_wait(&beat->hints, coordinator_time(beat->coordinator));
    if (wait_s <= 0) {
        beat->coordinator->work = true;
    } else if (!ev_is_active(&beat->hint_timer)) {
        ev_timer_set(&beat->hint_timer, wait_s, 0.);
        ev_timer_start(beat->coordinator->loop, &beat->hint_timer);
    }
    hearing_heard(&beat->hearing, channel, payload);
}

bool beat_start(struct beat *beat, struct coordinator *coordinator) {
    static const struct db_session_handler HANDLER = {.ready = on_ready,
                                                      .lost = on_lost,
                                                      .result = on_result,
                                                      .notified = on_notified,
                                                      .statements = worker_statements};
    beat->coordinator = coordinator;
    ev_init(&beat->timer, on_timer);
    ev_init(&beat->hint_timer, on_hint_due);
    beat->timer.data = beat->hint_timer.data = beat;
    const char *conninfo = coordinator_listen_conninfo(coordinator);
    hearing_init(&beat->hearing, coordinator->loop, conninfo, coordinator->instance_id);
    beat->session = db_session_new(coordinator->loop, conninfo, coordinator->application_name, "beat", &HANDLER, beat);
    return beat->session != NULL;
}

void beat_free(struct beat *beat) {
    if (beat->coordinator == NULL) {
        return;
    }
    ev_timer_stop(beat->coordinator->loop, &beat->timer);
    ev_timer_stop(beat->coordinator->loop, &beat->hint_timer);
    hearing_stop(&beat->hearing);
    db_session_free(beat->session);
    PQclear(beat->answer);
}

void beat_leave(struct beat *beat) {
    if (beat->call == BEAT_NOTHING && !beat->stay && db_session_ready(beat->session)) {
        call(beat, BEAT_LEAVE);
    }
}

void beat_rejoin(struct beat *beat) {
    db_session_restart(beat->session, "fenced: joining again", beat->coordinator->application_name);
}
