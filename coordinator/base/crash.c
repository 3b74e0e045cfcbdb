/* Ends a build for tests at a named point of the write path. */
#include "base/crash.h"

#ifdef QUORATE_CRASH_POINTS

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* All there are; tests/e2e/test_crash_points.py reads them here and visits each. */
static const char *const POINTS[] = {
    "joined",            /* the instance is known to the database, and nothing else */
    "claim_sent",        /* nobody knows whether the claim is committed */
    "claim_committed",   /* rounds are ours, their first attempts reserved, nothing sent */
    "nodes_read",        /* as before, and their nodes are known */
    "envelopes_read",    /* attempts committed, envelopes here, nothing sent */
    "before_request",    /* attempt committed, request signed, not sent */
    "request_sent",      /* under way: the node may have it */
    "answered",          /* a receipt that nobody has written down */
    "outcome_queued",    /* in memory only */
    "record_sent",       /* nobody knows whether the outcomes are committed */
    "record_committed",  /* acks and ends are committed, and unknown here */
    "reserve_sent",      /* a further attempt: committed or not, not sent */
    "reserve_committed", /* committed, not sent */
    "escalate_sent",
    "escalate_committed", /* escalated, no attempt on the backup yet */
    "settle_sent",
    "settle_committed",
    "draining",          /* told to stop */
    "release_sent",      /* rounds may be nobody's already */
    "release_committed", /* nobody's, and still in memory here */
    "leave_sent",
    "left",
    "peer_fenced", /* a dead peer's rounds can be claimed */
    "chain_sent",  /* nobody knows whether the chain is longer */
    "chain_committed",
    "checkpoint_sent", /* the chain is signed, or not */
};

/* Those of the commands, each visited by a test of its own. */
static const char *const COMMAND_POINTS[] = {"sealed_kept" /* the sealed envelopes are on disk, nothing is sent */};

static bool known(const char *const *points, size_t count, const char *point) {
    while (count > 0 && strcmp(points[count - 1], point) != 0)
        count--;
    return count > 0;
}

void crash_point(const char *point) {
    static unsigned visits;
    const char *wanted = getenv("QUORATE_CRASH_AT");
    size_t length = strlen(point);
    if (!known(POINTS, sizeof POINTS / sizeof POINTS[0], point) &&
        !known(COMMAND_POINTS, sizeof COMMAND_POINTS / sizeof COMMAND_POINTS[0], point)) {
        abort(); /* a point that no test would visit */
    }
    if (wanted == NULL || strncmp(wanted, point, length) != 0 || (wanted[length] != '\0' && wanted[length] != ':')) {
        return;
    }
    unsigned long nth = wanted[length] == ':' ? strtoul(wanted + length + 1, NULL, 10) : 1;
    if (++visits >= nth) {
        (void)raise(SIGKILL);
    }
}

#endif
