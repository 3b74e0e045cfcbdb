/* Finds out whether notifications reach a session that is not the server's own, and says so when they do not.
 *
 * Behind a pooler that pools whole sessions they do. Behind one that pools transactions LISTEN succeeds all the same,
 * in a session of the server that serves somebody else a moment later. So the session listens on a channel of its own
 * for tests first, while another connection notifies it; and only after it has heard that several times does it listen
 * for work. A session that is deaf never does: its sessions at the server would be woken by every round, for nobody. */
#include "round/hearing.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "db/worker.h"

/* A single one may come by chance, when it meets a transaction of the session that listens. */
enum { HEARD_ENOUGH = 3 };
static const double PATIENCE_S = 3.;

static void stop_test(struct hearing *hearing) {
    ev_timer_stop(hearing->loop, &hearing->timer);
    db_session_free(hearing->speaker);
    hearing->speaker = NULL;
}

static void deaf(struct hearing *hearing) {
    stop_test(hearing);
    hearing->state = HEARING_DEAF;
    if (!hearing->told_deaf) {
        hearing->told_deaf = true;
        log_event(LOG_WARN, "listen_does_not_work",
                  "reason=\"a transaction pooler is between this and the database\" "
                  "effect=\"work is found by looking for it twice a second, not at once\" "
                  "hint=\"give a connection to the server itself with --listen-db\"");
    }
}

static void be_patient(struct hearing *hearing) {
    ev_timer_stop(hearing->loop, &hearing->timer);
    ev_timer_set(&hearing->timer, PATIENCE_S, 0.);
    ev_timer_start(hearing->loop, &hearing->timer);
}

static void on_patience_over(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    deaf(watcher->data);
}

static void speak(struct hearing *hearing) {
    snprintf(hearing->awaited, sizeof hearing->awaited, "%.48s %d", hearing->name, hearing->heard);
    if (!worker_send_notify_test(hearing->speaker, hearing->awaited) || !db_session_sync(hearing->speaker)) {
        return; /* a broken connection is made again, and then it speaks again */
    }
}

static void on_ready(void *context) {
    speak(context);
}

static void on_lost(void *context) {
    (void)context;
}

static bool on_result(void *context, PGresult *result) {
    (void)context, (void)result;
    return false;
}

void hearing_init(struct hearing *hearing, struct ev_loop *loop, const char *conninfo, const char *instance_id) {
    *hearing = (struct hearing){.loop = loop, .conninfo = conninfo};
    snprintf(hearing->name, sizeof hearing->name, "%s", instance_id);
    ev_init(&hearing->timer, on_patience_over);
    hearing->timer.data = hearing;
}

void hearing_begin(struct hearing *hearing, bool direct) {
    stop_test(hearing);
    hearing->heard = 0;
    hearing->asked = hearing->listening = HEARING_NOTHING;
    hearing->state = direct ? HEARING_GOOD : HEARING_UNSURE;
}

bool hearing_send_listen(struct hearing *hearing, struct db_session *session) {
    hearing->asked = hearing->listening;
    if (hearing->state == HEARING_GOOD && hearing->listening != HEARING_WORK) {
        hearing->asked = HEARING_WORK;
        return worker_send_listen(session);
    }
    if (hearing->state == HEARING_UNSURE) {
        hearing->asked = HEARING_TESTS;
        return worker_send_listen_test(session);
    }
    return true;
}

void hearing_listens(struct hearing *hearing) {
    static const struct db_session_handler HANDLER = {.ready = on_ready, .lost = on_lost, .result = on_result};
    hearing->listening = hearing->asked;
    if (hearing->state != HEARING_UNSURE || hearing->listening != HEARING_TESTS) {
        return;
    }
    hearing->state = HEARING_TESTING;
    be_patient(hearing);
    hearing->speaker = db_session_new(hearing->loop, hearing->conninfo, "quorate", "speaker", &HANDLER, hearing);
    if (hearing->speaker == NULL) {
        deaf(hearing);
    }
}

void hearing_heard(struct hearing *hearing, const char *channel, const char *payload) {
    if (hearing->state != HEARING_TESTING || strcmp(channel, "quorate_test") != 0 ||
        strcmp(payload, hearing->awaited) != 0) {
        return;
    }
    if (++hearing->heard < HEARD_ENOUGH) {
        be_patient(hearing);
        speak(hearing);
        return;
    }
    stop_test(hearing);
    hearing->state = HEARING_GOOD;
    hearing->told_deaf = false;
    log_event(LOG_DEBUG, "listen_works", "reason=\"the pooler between this and the database pools sessions\"");
}

void hearing_stop(struct hearing *hearing) {
    stop_test(hearing);
}
