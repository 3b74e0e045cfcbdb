/* Finds out whether notifications reach a session that is not the server's own, and says so when they do not. */
#ifndef QUORATE_ROUND_HEARING_H
#define QUORATE_ROUND_HEARING_H

#include <ev.h>
#include <stdbool.h>

#include "base/check.h"
#include "db/session.h"

enum hearing_channel { HEARING_NOTHING, HEARING_TESTS, HEARING_WORK };

/* UNSURE: behind a pooler, and not tested yet. TESTING: notifications of another connection are awaited. */
enum hearing_state { HEARING_UNSURE, HEARING_TESTING, HEARING_GOOD, HEARING_DEAF };

struct hearing {
    struct ev_loop *loop;
    const char *conninfo;
    char name[64];
    enum hearing_state state;
    enum hearing_channel asked, listening; /* asked: by the call under way */
    bool told_deaf;
    int heard;                  /* notifications in a row */
    char awaited[80];           /* payload of the one under way */
    struct db_session *speaker; /* the connection that notifies; NULL unless TESTING */
    ev_timer timer;             /* while TESTING: the end of patience */
};

/* `conninfo` (of the session that listens) must outlive it. */
void hearing_init(struct hearing *hearing, struct ev_loop *loop, const char *conninfo, const char *instance_id);
/* The session that listens has a new connection. */
void hearing_begin(struct hearing *hearing, bool direct);
/* Queues LISTEN to what the session can be expected to hear, unless it listens to that already. */
bool hearing_send_listen(struct hearing *hearing, struct db_session *session) MUST_CHECK;
/* What was queued is committed. */
void hearing_listens(struct hearing *hearing);
void hearing_heard(struct hearing *hearing, const char *channel, const char *payload);
void hearing_stop(struct hearing *hearing);

#endif
