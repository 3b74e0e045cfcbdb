/* The heartbeat: the session that listens, joins, ticks (heartbeat, due rounds, fencing of silent peers) and leaves. */
#ifndef QUORATE_ROUND_BEAT_H
#define QUORATE_ROUND_BEAT_H

#include <ev.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/told.h"
#include "db/session.h"
#include "round/hearing.h"
#include "round/hints.h"

struct coordinator;

enum beat_call { BEAT_NOTHING, BEAT_JOIN, BEAT_DURABILITY, BEAT_TICK, BEAT_LEAVE };

struct beat {
    struct coordinator *coordinator;
    struct db_session *session;
    struct hearing hearing; /* whether notifications come */
    struct hints hints;
    ev_timer hint_timer; /* while a hint waits */
    ev_timer timer;
    enum beat_call call; /* under way */
    PGresult *answer;    /* of that call, until its commit is confirmed */
    unsigned ticks, failures;
    bool looked;  /* at the settings of the server that this session is connected to */
    bool held;    /* this session holds the instance's life lock */
    bool holding; /* it was asked for in front of the call under way */
    bool quiet;   /* the notification queue is full: close rounds without notifications */
    bool stay;    /* leaving was refused or failed: not again before the timer */
    bool failed;  /* an error came instead of an answer */
    char last_error[256];
    struct told told;
    struct told warned; /* of settings; a failover may bring others, and back */
};

bool beat_start(struct beat *beat, struct coordinator *coordinator) MUST_CHECK;
void beat_free(struct beat *beat);
/* Says goodbye, so that others take over at once. */
void beat_leave(struct beat *beat);
/* Joins again under the coordinator's new instance id. */
void beat_rejoin(struct beat *beat);

#endif
