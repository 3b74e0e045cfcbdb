/* The ring: one session that waits, slice by slice, for the life lock of the next coordinator. */
#include "round/ring.h"

#include <stdio.h>

#include "base/crash.h"
#include "base/log.h"
#include "round/coordinator.h"

/* Alone, not joined yet, or after an error: look again after this long. */
static const double PAUSE_S = 0.5;
/* The lock is free, but sessions of its holder are still there: they go within moments, or it connects again. */
static const double HURRY_S = 0.005;
enum { HURRIED_MAX = 200 };
/* A slice takes less than a second: without an answer for so long the connection is half open. */
static const double SILENCE_MAX_S = 5.0;

static void wake_in(struct ring *ring, double seconds) {
    struct ev_loop *loop = ring->coordinator->loop;
    ev_timer_stop(loop, &ring->timer);
    ev_timer_set(&ring->timer, seconds, 0.);
    ev_timer_start(loop, &ring->timer);
}

static void ask(struct ring *ring) {
    const struct coordinator *c = ring->coordinator;
    if (ring->asking || !db_session_ready(ring->session)) {
        return;
    }
    /* Behind a pooler it would not notice that the server was restarted, which frees the locks of the living as well.
     */
    if (c->instance == 0 || c->draining || !db_session_direct(ring->session)) {
        wake_in(ring, PAUSE_S);
        return;
    }
    if (worker_send_watch(ring->session, c->instance, ring->seen) && db_session_sync(ring->session)) {
        ring->asking = true;
        wake_in(ring, SILENCE_MAX_S);
    }
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct ring *ring = watcher->data;
    if (ring->asking) {
        static const char WHY[] = "no answer from the ring within 5 s";
        if (log_changed(ring->last_error, sizeof ring->last_error, WHY)) {
            log_event(LOG_WARN, "ring_failed", "error=\"%s\"", WHY);
        }
        db_session_restart(ring->session, WHY, NULL);
        return;
    }
    ask(ring);
}

static void on_ready(void *context) {
    struct ring *ring = context;
    ring->seen = 0; /* the server may have been restarted, which frees the locks of the living as well */
    ring->hurried = 0;
    ask(ring);
}

static void on_lost(void *context) {
    struct ring *ring = context;
    PQclear(ring->answer);
    ring->answer = NULL;
    ring->asking = false;
    ev_timer_stop(ring->coordinator->loop, &ring->timer);
}

static void apply(struct ring *ring, const struct watch_row *row) {
    struct coordinator *c = ring->coordinator;
    ring->hurried = row->free ? ring->hurried + 1 : 0;
    ring->seen = row->seen ? row->peer : 0;
    if (row->fenced) {
        crash_point("peer_fenced");
        log_event(LOG_WARN, "peer_died", "number=%d", row->peer);
        c->metrics.fenced++;
        c->work = true;
        c->haste = HASTE_CLAIM;
        ask(ring);
    } else if (row->peer == 0) {
        wake_in(ring, PAUSE_S);
    } else if (!row->free) {
        ask(ring); /* the wait was in the database */
    } else {
        wake_in(ring, ring->hurried <= HURRIED_MAX ? HURRY_S : PAUSE_S);
    }
}

static void on_sync(struct ring *ring) {
    PGresult *answer = ring->answer;
    struct watch_row row;
    bool answered = answer != NULL;
    ring->asking = false;
    ring->answer = NULL;
    if (!answered) {
        wake_in(ring, PAUSE_S);
    } else if (!worker_watched(answer, &row)) {
        if (log_changed(ring->last_error, sizeof ring->last_error, "unexpected rows")) {
            log_event(LOG_ERROR, "unexpected_rows", "call=watch hint=\"run quorate migrate\"");
        }
        wake_in(ring, PAUSE_S);
    } else {
        ring->last_error[0] = '\0';
        apply(ring, &row);
    }
    PQclear(answer);
}

static void note_error(struct ring *ring, const PGresult *result) {
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char text[sizeof ring->last_error], quoted[sizeof ring->last_error + 64];
    PQclear(ring->answer);
    ring->answer = NULL;
    snprintf(text, sizeof text, "%s %s", sqlstate != NULL ? sqlstate : "-",
             message != NULL ? message : "connection lost");
    if (log_changed(ring->last_error, sizeof ring->last_error, text)) {
        log_event(LOG_WARN, "ring_failed", "error=%s", log_quote(text, quoted, sizeof quoted));
    }
}

static bool on_result(void *context, PGresult *result) {
    struct ring *ring = context;
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        on_sync(ring);
        return false;
    case PGRES_TUPLES_OK:
        PQclear(ring->answer);
        ring->answer = result;
        return true;
    case PGRES_PIPELINE_ABORTED:
        return false;
    default:
        note_error(ring, result);
        return false;
    }
}

static void name(struct ring *ring) {
    snprintf(ring->application_name, sizeof ring->application_name, "%.58s ring", ring->coordinator->application_name);
}

bool ring_start(struct ring *ring, struct coordinator *coordinator) {
    static const struct db_session_handler HANDLER = {.ready = on_ready, .lost = on_lost, .result = on_result};
    ring->coordinator = coordinator;
    ev_init(&ring->timer, on_timer);
    ring->timer.data = ring;
    name(ring);
    ring->session = db_session_new(coordinator->loop, coordinator_listen_conninfo(coordinator), ring->application_name,
                                   "ring", &HANDLER, ring);
    return ring->session != NULL;
}

void ring_free(struct ring *ring) {
    if (ring->coordinator == NULL) {
        return;
    }
    ev_timer_stop(ring->coordinator->loop, &ring->timer);
    db_session_free(ring->session);
    PQclear(ring->answer);
}

void ring_rejoin(struct ring *ring) {
    name(ring);
    db_session_restart(ring->session, "fenced: joining again", ring->application_name);
}
