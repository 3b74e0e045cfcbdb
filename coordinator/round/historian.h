/* The historian: puts what has happened into the chain of the history, and signs the chain's head. */
#ifndef QUORATE_ROUND_HISTORIAN_H
#define QUORATE_ROUND_HISTORIAN_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "db/session.h"
#include "wire/checkpoint.h"

struct coordinator;

/* A session of its own: neither rounds nor the heartbeat wait for it. Any number of coordinators do this; the database
 * lets one at a time. */
struct historian {
    struct coordinator *coordinator;
    struct db_session *session;
    ev_timer timer;
    bool asking;
    struct checkpoint signing; /* seq 0: the call under way is not that of a signature */
    PGresult *answer;          /* until its commit is confirmed */
    char application_name[64]; /* not that of the other sessions: it does not tell that its coordinator lives */
    char last_error[256];
};

bool historian_start(struct historian *historian, struct coordinator *coordinator) MUST_CHECK;
void historian_free(struct historian *historian);
/* Goes on under the coordinator's new instance id. */
void historian_rejoin(struct historian *historian);

#endif
