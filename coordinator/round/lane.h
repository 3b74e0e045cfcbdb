/* A lane to the database: one batch under way at a time, and whatever piles up meanwhile goes as the next one. */
#ifndef QUORATE_ROUND_LANE_H
#define QUORATE_ROUND_LANE_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/told.h"
#include "db/worker.h"

struct coordinator;
struct round;
struct track;

/* The statements of a batch, in the order in which they are sent. All before LANE_LOAD commit together. */
enum lane_step {
    LANE_RECORD,
    LANE_RESERVE,
    LANE_ESCALATE,
    LANE_SETTLE,
    LANE_RELEASE,
    LANE_CLAIM,
    LANE_OWNED,
    LANE_LOAD,  /* a transaction of its own, sent right behind the first */
    LANE_NODES, /* a batch of its own: node versions that a claim named and we do not know */
    LANE_GREET, /* a batch of its own: whether the beat has joined in the same database */
    LANE_STEP_COUNT
};

struct records {
    struct attempt_record *items;
    size_t count, capacity;
};

/* Rows of claim or owned, decoded once; they point into the result. */
struct work {
    PGresult *result; /* NULL: none */
    bool claimed;     /* else owned */
    struct work_row *rows;
    size_t count, capacity;
};

struct lane {
    struct coordinator *coordinator;
    struct db_session *session;
    struct worker_scratch scratch;
    ev_timer pause;    /* after a failed batch, or with parked records */
    ev_timer patience; /* while no record is urgent */
    bool urgent;       /* a record is here that is more than an ack that makes no quorum yet */

    /* What has piled up. */
    struct records records;
    struct records parked; /* of rounds whose row was locked: asked again after a pause */
    struct track *reserves, *loads;
    struct round *escalates, *settles;
    bool greeted;      /* the database is the beat's */
    bool owned_wanted; /* this instance may own what we do not hold: read it again, from the round after this one on */
    int64_t owned_after;

    /* The batch under way, by key, so that a round may go meanwhile. */
    struct {
        bool under_way, commits; /* commits: it has a first transaction */
        bool failed;             /* the first transaction */
        bool load_failed;        /* the read behind it, or of node versions */
        char sqlstate[6];
        PGresult *results[LANE_STEP_COUNT];
        enum lane_step steps[LANE_STEP_COUNT];
        size_t step_count, next_step;
        bool sync_seen; /* of the first transaction */
        struct records records;
        struct attempt_key *reserves, *loads;
        size_t reserve_count, load_count;
        int64_t *escalates, *settles, *releases;
        size_t escalate_count, settle_count, release_count;
        bool claims;
        int32_t claim_max, claim_slots;
        bool reads_owned;
        int64_t owned_after;
        double began;
    } batch;
    bool claiming;        /* its claim is not over yet */
    uint64_t owned_seen;  /* coordinator.owned_merged when it was sent */
    struct work work;     /* what was claimed or is owned and not merged yet: it waits for node versions */
    double work_asked_at; /* when the batch was sent that brought the rows being merged */

    size_t limit;       /* items in a batch: shrinks when batches fail, so that one bad row stops only itself */
    unsigned failures;  /* in a row */
    bool restart;       /* the session is to be begun anew */
    double quiet_until; /* the notification queue is full: no notifications for a while */
    char last_error[256];
    struct told told;
};

bool lane_start(struct lane *lane, struct coordinator *coordinator, const char *label) MUST_CHECK;
void lane_free(struct lane *lane);

/* What the next batch shall do. None of these can fail: when memory is short the process ends, and loses only time. */
void lane_record(struct lane *lane, const struct attempt_record *record);
void lane_reserve(struct lane *lane, struct track *track);
void lane_load(struct lane *lane, struct track *track);
void lane_escalate(struct lane *lane, struct round *round);
void lane_settle(struct lane *lane, struct round *round);
/* Reads again what this instance owns, from the round after `after` on. */
void lane_read_owned(struct lane *lane, int64_t after);
/* Takes a track, or a round, off the lists. */
void lane_forget_track(struct track *track);
void lane_forget_round(struct lane *lane, struct round *round);
/* Starts the next batch if none is under way and there is something to do. */
void lane_turn(struct lane *lane);

/* Begins the session anew if its batch has had no answer for long. To be called when the heartbeat was answered: then
 * the database is there, and neither a hanging commit nor a lost network is the reason. */
void lane_check(struct lane *lane);

/* True when nothing is under way or waiting. */
bool lane_idle(const struct lane *lane);

/* Used by lane_batch.c and lane_answer.c. */
bool lane_build(struct lane *lane) MUST_CHECK; /* fills `batch` and sends it; false: half of it may be sent */
void lane_answer(struct lane *lane);           /* applies the answers of a committed first transaction */
void lane_answer_loads(struct lane *lane);     /* applies the envelopes that were read */
void lane_answer_nodes(struct lane *lane);
void lane_requeue(struct lane *lane); /* a batch whose fate is unknown or that failed: all of it is asked again */
void lane_give_up(struct lane *lane); /* takes the single item out of a batch that will never succeed */
void lane_clear_batch(struct lane *lane);
/* True for a round that the batch under way has asked to have escalated, or settled. Not for one that stands in the
 * list again, or belongs to the other lane: it was lost and came again since. */
bool lane_asked(const struct lane *lane, const struct round *round, bool escalate);
void lane_drop_work(struct lane *lane);
void lane_claim_over(struct lane *lane); /* once its rows are merged: until then its slots are its own */
void records_add(struct records *records, const struct attempt_record *record);
void *lane_memory(void *pointer, size_t size); /* realloc that ends the process when memory is short */

#endif
