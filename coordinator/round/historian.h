/* The historian: puts what has happened into the chain of the history, and signs the chain's head. */
#ifndef QUORATE_ROUND_HISTORIAN_H
#define QUORATE_ROUND_HISTORIAN_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "db/session.h"
#include "db/worker.h"
#include "wire/checkpoint.h"

struct coordinator;

/* What the session is waiting for. */
enum historian_call { CALL_NONE, CALL_SIGNED, CALL_CHAIN, CALL_LINKS, CALL_CHECKPOINT };

/* A place in the chain: when it had `seq` entries it ended with `hash`. */
struct chain_place {
    int64_t seq;
    unsigned char hash[SHA256_BYTES];
};

/* A session of its own: neither rounds nor the heartbeat wait for it. Any number of coordinators do this; the database
 * lets one at a time.
 *
 * It signs a head only if the chain leads to it from the one that it signed before: whoever rewrites the history under
 * a running coordinator gets no signature for it. */
struct historian {
    struct coordinator *coordinator;
    struct db_session *session;
    ev_timer timer;
    enum historian_call call;
    struct chain_row head; /* to be signed next */
    struct chain_place seen,
        walked;                /* what was signed last, seq 0: nothing; how far from there the links were followed */
    bool began;                /* `seen` is what the database knew to be signed when this process began */
    bool refused;              /* the head did not follow, and the log says so */
    PGresult *answer;          /* until its commit is confirmed */
    char application_name[64]; /* not that of the other sessions: it does not tell that its coordinator lives */
    char last_error[256];
};

bool historian_start(struct historian *historian, struct coordinator *coordinator) MUST_CHECK;
void historian_free(struct historian *historian);
/* Goes on under the coordinator's new instance id. */
void historian_rejoin(struct historian *historian);

#endif
