/* The historian: one session that makes the history's chain longer, off the way of the rounds. */
#include "round/historian.h"

#include <inttypes.h>
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
enum { ENTRIES_MAX = 1000, SIGN_ENTRIES = 1000, LINKS_MAX = 10000 };

static void wake_in(struct historian *historian, double seconds) {
    struct ev_loop *loop = historian->coordinator->loop;
    ev_timer_stop(loop, &historian->timer);
    ev_timer_set(&historian->timer, seconds, 0.);
    ev_timer_start(loop, &historian->timer);
}

static void sent(struct historian *historian, enum historian_call call, bool good, const char *point) {
    if (good && db_session_sync(historian->session)) {
        if (point != NULL) {
            crash_point(point);
        }
        historian->call = call;
        wake_in(historian, SILENCE_MAX_S);
    }
}

static void ask(struct historian *historian) {
    const struct coordinator *c = historian->coordinator;
    char key[PUBLIC_KEY_TEXT + 1];
    if (historian->call != CALL_NONE || !db_session_ready(historian->session)) {
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
    if (c->settings.audit_key != NULL && !historian->began) {
        sent(historian, CALL_SIGNED, worker_send_signed(historian->session, key), NULL);
        return;
    }
    sent(historian, CALL_CHAIN,
         worker_send_chain(historian->session, ENTRIES_MAX, c->settings.audit_key != NULL ? key : NULL), "chain_sent");
}

/* What this key has signed already, in the database's words: believed if it did. */
static void begin(struct historian *historian, struct checkpoint *newest) {
    const struct coordinator *c = historian->coordinator;
    memcpy(newest->deployment, c->deployment_id, sizeof newest->deployment);
    newest->key = secret_key_public(c->settings.audit_key);
    if (newest->seq > 0 && checkpoint_verify(newest)) {
        historian->seen.seq = newest->seq;
        memcpy(historian->seen.hash, newest->hash, SHA256_BYTES);
    } else if (newest->seq > 0) {
        log_event(LOG_ERROR, "checkpoint_forged",
                  "seq=%" PRId64 " hint=\"this coordinator's audit key has not signed it: find out who stored it\"",
                  newest->seq);
    }
    historian->began = true;
    ask(historian);
}

static void sign(struct historian *historian) {
    const struct coordinator *c = historian->coordinator;
    const struct chain_row *head = &historian->head;
    struct checkpoint signing = {.seq = head->seq, .at_us = head->now_us};
    memcpy(signing.deployment, c->deployment_id, sizeof signing.deployment);
    memcpy(signing.hash, head->hash, sizeof signing.hash);
    checkpoint_sign(&signing, c->settings.audit_key);
    historian->seen.seq = head->seq;
    memcpy(historian->seen.hash, head->hash, SHA256_BYTES);
    historian->refused = false;
    sent(historian, CALL_CHECKPOINT, worker_send_checkpoint(historian->session, &signing), "checkpoint_sent");
}

static void refuse(struct historian *historian) {
    if (!historian->refused) {
        log_event(
            LOG_ERROR, "history_rewritten",
            "entries=%" PRId64 " signed=%" PRId64
            " hint=\"the history does not lead on from what was signed, so it is signed no more: run quorate audit "
            "verify; after a restoration of the database, restart this coordinator\"",
            historian->head.seq, historian->seen.seq);
    }
    historian->refused = true;
    wake_in(historian, PAUSE_S);
}

/* From what was signed to the head, in pieces. */
static void follow(struct historian *historian) {
    const struct chain_row *head = &historian->head;
    struct chain_place *walked = &historian->walked;
    bool leads = walked->seq == head->seq && memcmp(walked->hash, head->hash, SHA256_BYTES) == 0;
    if (historian->seen.seq == 0 || leads) {
        sign(historian);
    } else if (walked->seq < head->seq) {
        int64_t upto = head->seq - walked->seq > LINKS_MAX ? walked->seq + LINKS_MAX : head->seq;
        sent(historian, CALL_LINKS, worker_send_links(historian->session, walked->seq, upto), NULL);
    } else {
        refuse(historian);
    }
}

static void apply(struct historian *historian, const struct chain_row *row) {
    const struct coordinator *c = historian->coordinator;
    crash_point("chain_committed");
    if (c->settings.audit_key != NULL && row->unsigned_entries > 0 &&
        (row->unsigned_entries >= SIGN_ENTRIES || row->unsigned_us >= c->settings.checkpoint_us)) {
        historian->head = *row;
        historian->walked = historian->seen;
        follow(historian);
    } else {
        wake_in(historian, row->more ? BREATH_S : PAUSE_S);
    }
}

static void step(struct historian *historian, const struct links_row *row) {
    struct chain_place *walked = &historian->walked;
    if (row->count == 0 || row->count > historian->head.seq - walked->seq) {
        refuse(historian); /* entries are not there any more */
        return;
    }
    for (int i = 0; i < row->count; i++) {
        history_follow(walked->hash, row->links + (size_t)i * SHA256_BYTES);
    }
    walked->seq += row->count;
    follow(historian);
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct historian *historian = watcher->data;
    if (historian->call != CALL_NONE) {
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
    historian->call = CALL_NONE;
    ev_timer_stop(historian->coordinator->loop, &historian->timer);
}

/* False: the rows have another shape. */
static bool take(struct historian *historian, enum historian_call call, const PGresult *answer) {
    struct checkpoint newest;
    struct chain_row row;
    struct links_row links;
    switch (call) {
    case CALL_SIGNED:
        if (!worker_signed(answer, &newest)) {
            return false;
        }
        begin(historian, &newest);
        return true;
    case CALL_CHAIN:
        if (!worker_chained(answer, &row)) {
            return false;
        }
        apply(historian, &row);
        return true;
    case CALL_LINKS:
        if (!worker_links(answer, &links)) {
            return false;
        }
        step(historian, &links);
        return true;
    default:
        wake_in(historian, BREATH_S);
        return true;
    }
}

static void on_sync(struct historian *historian) {
    PGresult *answer = historian->answer;
    enum historian_call call = historian->call;
    historian->call = CALL_NONE;
    historian->answer = NULL;
    if (answer == NULL) {
        wake_in(historian, PAUSE_S);
    } else if (take(historian, call, answer)) {
        historian->last_error[0] = '\0';
    } else {
        if (log_changed(historian->last_error, sizeof historian->last_error, "unexpected rows")) {
            log_event(LOG_ERROR, "unexpected_rows", "call=%s hint=\"run quorate migrate\"",
                      call == CALL_CHAIN   ? "chain"
                      : call == CALL_LINKS ? "links"
                                           : "signed");
        }
        wake_in(historian, PAUSE_S);
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
