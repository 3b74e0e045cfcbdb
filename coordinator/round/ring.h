/* The ring: waits for the death of the next coordinator, so that its rounds are taken over in a blink. */
#ifndef QUORATE_ROUND_RING_H
#define QUORATE_ROUND_RING_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "db/session.h"

struct coordinator;

/* Each coordinator's listening session holds a lock as long as it lives; this session waits for the next one's, in
 * slices below a second. It holds no such lock itself, lest two that watch each other deadlock. */
struct ring {
    struct coordinator *coordinator;
    struct db_session *session;
    ev_timer timer;
    bool asking;
    PGresult *answer;          /* until its commit is confirmed */
    char application_name[64]; /* not that of the other sessions: it does not tell that its coordinator lives */
    int32_t seen;              /* whose lock this session has seen held; 0: nobody's */
    unsigned hurried;          /* looks in a row that found the lock free and its holder's other sessions still there */
    char last_error[256];
};

bool ring_start(struct ring *ring, struct coordinator *coordinator) MUST_CHECK;
void ring_free(struct ring *ring);
/* Watches again under the coordinator's new instance id. */
void ring_rejoin(struct ring *ring);

#endif
