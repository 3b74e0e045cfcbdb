/* What a coordinator holds in memory of the rounds it owns; all of it can be read again from the database. */
#ifndef QUORATE_ROUND_ROUND_H
#define QUORATE_ROUND_ROUND_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "base/check.h"
#include "db/worker.h"
#include "round/track.h"

/* A round whose row someone else holds is asked about again after this long. */
enum { LOCKED_PAUSE_MS = 20 };

struct coordinator;
struct lane;
struct node;

/* Why a route has no attempt left. */
enum track_end { TRACK_END_NONE, TRACK_END_REFUSED, TRACK_END_EXHAUSTED };

/* One route of one delivery. */
struct track {
    struct delivery *delivery;
    struct track *prev, *next; /* in its endpoint's queue, or in its lane's list of what to ask */
    ev_timer timer;
    enum track_state state;
    enum route route;
    enum track_end end;
    int16_t attempt;     /* the number of the current attempt, or of the next one */
    bool resend;         /* that attempt's row is older than this struct: it may have been sent */
    struct track **list; /* the lane's list that it stands in, or NULL */
    int64_t wait_us;     /* what TRACK_WAIT waits */
};

struct delivery {
    struct round *round;
    struct delivery *next;
    const struct node *node; /* as it was when the round was opened */
    int32_t payload_bytes;
    int16_t node_id;
    bool acked; /* a receipt has verified here or is stored already */
    unsigned char payload_sha256[SHA256_BYTES];
    struct track track[ROUTE_COUNT];
};

struct round {
    UT_hash_handle hh;
    uint64_t serial; /* of this struct: a round that is lost and claimed again has another */
    int64_t round_no;
    int64_t nonce;
    struct coordinator *coordinator;
    struct lane *lane; /* all its batches go through this one, in order */
    struct delivery *deliveries;
    struct round *prev_escalate, *next_escalate, *prev_settle, *next_settle; /* in its lane's lists */
    ev_timer timer;                  /* the next look at it: escalation, deadline, or asking again */
    double escalate_at, deadline_at; /* by coordinator_time() */
    int64_t timeout_us, base_us, max_us;
    unsigned unrecorded; /* outcomes given to the lane and not committed yet */
    int16_t retry_budget, quorum;
    uint8_t fruitless; /* settles that were asked for and settled nothing */
    enum round_state state;
    bool stop; /* policy: stop after the quorum */
    bool over; /* no attempt may start any more */
    bool escalated;
    bool looked;                   /* the database has looked whether to escalate: it does so once */
    bool ask_escalate, ask_settle; /* stands in that list, or is in the batch under way */
    bool ask_release;              /* is in the batch under way */
    double release_at;             /* not asked before: someone else held its row */
    char round_id[];
};

struct round *round_find(struct coordinator *coordinator, int64_t round_no);
struct delivery *round_delivery(struct round *round, int16_t node_id);
struct track *round_track(struct coordinator *coordinator, const struct attempt_key *key); /* NULL when not held */

/* Takes a row of claim or owned: a new round, a new delivery of a known one, or nothing new. False: out of memory. */
bool round_merge(struct coordinator *coordinator, struct lane *lane, const struct work_row *row) MUST_CHECK;

/* Learns the state that the database reported, and whether it is settled; may free the round. */
void round_learn(struct round *round, enum round_state state, bool settled);
void round_learn_escalated(struct round *round);
/* The round stalled or was cancelled by someone else: stops its attempts and asks for its settling. */
void round_ended_elsewhere(struct round *round);

/* Asks for the settling of a round that has nothing left to make, await or record. */
void round_check_done(struct round *round);

/* No attempt of it starts any more; those that are committed and not sent are recorded as unsent. */
void round_end_attempts(struct round *round);

/* True while one more ack does not make the quorum, and further answers are on their way that may. */
bool round_awaits_more_acks(const struct round *round);

/* True when it can be given back to others now: no request or batch of it is under way, and no outcome unrecorded. */
bool round_releasable(const struct round *round);

/* Looks again in a while. */
void round_look_in(struct round *round, double seconds);

/* Forgets a round: its slots are given back, its requests under way go on without it. */
void round_drop(struct round *round);

/* The key of a track's current attempt. */
struct attempt_key track_key(const struct track *track);

/* Takes a track through one event and does what the state table says. `payload` and `size` for TRACK_LOADED only. */
void track_event(struct track *track, enum track_event event);
void track_loaded(struct track *track, const unsigned char *payload, size_t size);

#endif
