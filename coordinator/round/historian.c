/* The historian: one session that makes the history's chain longer, off the way of the rounds. */
#include "round/historian.h"

#include <stdio.h>
#include <string.h>

#include "base/crash.h"
#include "base/log.h"
#include "round/coordinator.h"

/* How long what has happened may wait for its record while this coordinator has time. */
static const double PAUSE_S = 1.0;
/* Between two pieces of a long queue, so that the rounds get the database in between. */
static const double BREATH_S = 0.02;
static const double SILENCE_MAX_S = 10.0;
enum { ENTRIES_MAX = 1000, SIGN_ENTRIES = 1000 };

static void wake_in(struct historian *historian, double seconds) {
    struct ev_loop *loop = historian->coordinator->loop;
    ev_timer_stop(loop, &historian->timer);
    ev_timer_set(&historian->timer, seconds, 0.);
    ev_timer_start(loop, &historian->timer);
}

static void sent(struct historian *historian, bool good, const char *point) {
    if (good && db_session_sync(historian->session)) {
        crash_point(point);
        historian->asking = true;
        wake_in(historian, SILENCE_MAX_S);
    }
}

static void ask(struct historian *historian) {
    const struct coordinator *c = historian->coordinator;
    char key[PUBLIC_KEY_TEXT + 1];
    if (historian->asking || !db_session_ready(historian->session)) {
        return;
    }
    if (c->instance == 0) { /* its schema may be too old */
        wake_in(historian, PAUSE_S);
        return;
    }
    if (c->settings.audit_key != NULL) {
        struct public_key public = secret_key_public(c->settings.audit_key);
        public_key_format(&public, key);
    }
    historian->signing.seq = 0;
    sent(historian, worker_send_chain(historian->session, ENTRIES_MAX, c->settings.audit_key != NULL ? key : NULL),
         "chain_sent");
}

static void sign(struct historian *historian, const struct chain_row *row) {
    const struct coordinator *c = historian->coordinator;
    struct checkpoint *signing = &historian->signing;
    *signing = (struct checkpoint){.seq = row->seq, .at_us = row->now_us};
    memcpy(signing->deployment, c->deployment_id, sizeof signing->deployment);
    memcpy(signing->hash, row->hash, sizeof signing->hash);
    checkpoint_sign(signing, c->settings.audit_key);
    sent(historian, worker_send_checkpoint(historian->session, signing), "checkpoint_sent");
}

static void apply(struct historian *historian, const struct chain_row *row) {
    const struct coordinator *c = historian->coordinator;
    crash_point("chain_committed");
    if (c->settings.audit_key != NULL && row->unsigned_entries > 0 &&
        (row->unsigned_entries >= SIGN_ENTRIES || row->unsigned_us >= c->settings.checkpoint_us)) {
        sign(historian, row);
    } else {
        wake_in(historian, row->more ? BREATH_S : PAUSE_S);
    }
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct historian *historian = watcher->data;
    if (historian->asking) {
        static const char WHY[] = "no answer from the history within 10 s";
        if (log_changed(historian->last_error, sizeof historian->last_error, WHY)) {
            log_event(LOG_WARN, "history_failed", "error=\"%s\"", WHY);
        }
        db_session_restart(historian->session, WHY, NULL);
        return;
    }
    ask(historian);
}

static void on_ready(void *context) {
    ask(context);
}

static void on_lost(void *context) {
    struct historian *historian = context;
    PQclear(historian->answer);
    historian->answer = NULL;
    historian->asking = false;
    ev_timer_stop(historian->coordinator->loop, &historian->timer);
}

static void on_sync(struct historian *historian) {
    PGresult *answer = historian->answer;
    struct chain_row row;
    historian->asking = false;
    historian->answer = NULL;
    if (answer == NULL) {
        wake_in(historian, PAUSE_S);
    } else if (historian->signing.seq > 0) {
        historian->last_error[0] = '\0';
        wake_in(historian, BREATH_S);
    } else if (!worker_chained(answer, &row)) {
        if (log_changed(historian->last_error, sizeof historian->last_error, "unexpected rows")) {
            log_event(LOG_ERROR, "unexpected_rows", "call=chain hint=\"run quorate migrate\"");
        }
        wake_in(historian, PAUSE_S);
    } else {
        historian->last_error[0] = '\0';
        apply(historian, &row);
    }
    PQclear(answer);
}

static void note_error(struct historian *historian, const PGresult *result) {
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char text[sizeof historian->last_error], quoted[sizeof historian->last_error + 64];
    PQclear(historian->answer);
    historian->answer = NULL;
    snprintf(text, sizeof text, "%s %s", sqlstate != NULL ? sqlstate : "-",
             message != NULL ? message : "connection lost");
    if (log_changed(historian->last_error, sizeof historian->last_error, text)) {
        log_event(LOG_WARN, "history_failed", "error=%s", log_quote(text, quoted, sizeof quoted));
    }
}

static bool on_result(void *context, PGresult *result) {
    struct historian *historian = context;
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        on_sync(historian);
        return false;
    case PGRES_TUPLES_OK:
        PQclear(historian->answer);
        historian->answer = result;
        return true;
    case PGRES_PIPELINE_ABORTED:
        return false;
    default:
        note_error(historian, result);
        return false;
    }
}

static void name(struct historian *historian) {
    snprintf(historian->application_name, sizeof historian->application_name, "%.55s history",
             historian->coordinator->application_name);
}

bool historian_start(struct historian *historian, struct coordinator *coordinator) {
    static const struct db_session_handler HANDLER = {.ready = on_ready, .lost = on_lost, .result = on_result};
    historian->coordinator = coordinator;
    ev_init(&historian->timer, on_timer);
    historian->timer.data = historian;
    name(historian);
    historian->session = db_session_new(coordinator->loop, coordinator->settings.conninfo, historian->application_name,
                                        "history", &HANDLER, historian);
    return historian->session != NULL;
}

void historian_free(struct historian *historian) {
    if (historian->coordinator == NULL) {
        return;
    }
    ev_timer_stop(historian->coordinator->loop, &historian->timer);
    db_session_free(historian->session);
    PQclear(historian->answer);
}

void historian_rejoin(struct historian *historian) {
    name(historian);
    db_session_restart(historian->session, "fenced: joining again", historian->application_name);
}
