/* A running coordinator: what its parts share. */
#ifndef QUORATE_ROUND_COORDINATOR_H
#define QUORATE_ROUND_COORDINATOR_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "round/beat.h"
#include "round/historian.h"
#include "round/lane.h"
#include "round/metrics.h"
#include "round/node.h"
#include "round/ring.h"
#include "round/round.h"
#include "transport/http.h"
#include "wire/signing_keys.h"

enum { LANE_COUNT = 2 };

/* A peer has just died: a short claim first, and its reservations by themselves, so that its first requests leave soon.
 */
enum haste { HASTE_NONE, HASTE_RESERVE, HASTE_CLAIM };

struct coordinator_settings {
    const char *conninfo;        /* NULL: environment */
    const char *listen_conninfo; /* of the sessions that must be the server's own; NULL: conninfo */
    const char *name;
    int64_t lease_us;
    unsigned slots_per_endpoint;
    size_t max_rounds;                     /* held in memory at once */
    const struct signing_keys *keys;       /* may be replaced by others between two turns of the loop */
    const struct secret_set *node_secrets; /* NULL: none */
    const struct pin_set *node_pins;       /* the same */
    struct http_policy http;
    const struct secret_key *audit_key; /* NULL: this one signs no checkpoints */
    int64_t checkpoint_us;              /* how long an entry of the history may wait for a signature */
};

struct coordinator {
    struct ev_loop *loop;
    struct coordinator_settings settings;
    struct metrics metrics;
    char instance_id[37];
    char application_name[64];
    char deployment_id[ROUND_ID_MAX + 1]; /* "" until joined */
    int32_t instance;                     /* the fencing token; 0: not joined */
    int64_t clock_offset_us;              /* the database's clock minus clock_monotonic_us() */
    struct beat beat;
    struct ring ring;
    struct historian historian;
    struct lane lanes[LANE_COUNT];
    struct node_book nodes;
    struct round *rounds;
    struct http_client *http;
    size_t parcel_bytes; /* of their envelopes */
    size_t parcel_count; /* requests under way, bodies being drained included */
    struct parcel *parcels;
    uint64_t serials; /* given to rounds so far */
    bool work;        /* rounds may wait to be claimed */
    enum haste haste;
    bool claiming;         /* one lane is asking */
    uint64_t owned_merged; /* how often rows of what is owned were merged */
    bool announced;        /* event=ready was logged for this instance */
    bool draining, left;
    ev_prepare prepare; /* starts the batches of what has piled up, once per turn of the loop */
    ev_check check;
    ev_tstamp turn_began;
    ev_timer drain_timer;
};

/* Starts everything; the loop does the rest. False on what no waiting mends (memory). */
bool coordinator_start(struct coordinator *coordinator, struct ev_loop *loop,
                       const struct coordinator_settings *settings, struct error *err) MUST_CHECK;
void coordinator_free(struct coordinator *coordinator);

/* Stops claiming; requests under way are awaited and recorded, then the rounds are left to others and the loop is
 * broken. */
void coordinator_drain(struct coordinator *coordinator);

/* From now on nodes have these secrets (NULL: none); those before may be freed. */
void coordinator_take_secrets(struct coordinator *coordinator, const struct secret_set *secrets);

/* True once it has joined and its sessions are connected. */
bool coordinator_ready(const struct coordinator *coordinator);

/* Counts what is held now. */
void coordinator_gauges(const struct coordinator *coordinator, struct metrics_gauges *gauges);

/* Seconds of the monotonic clock: a host whose wall clock jumps changes nothing. */
double coordinator_time(const struct coordinator *coordinator);
/* The database's clock, microseconds since 1970, as last heard. */
int64_t coordinator_now_us(const struct coordinator *coordinator);
void coordinator_heard_clock(struct coordinator *coordinator, int64_t now_us);

/* For sessions that listen or hold locks. NULL: environment */
const char *coordinator_listen_conninfo(const struct coordinator *coordinator);

/* Called by the beat. */
void coordinator_joined(struct coordinator *coordinator, const struct joined_row *row);
void coordinator_fenced(struct coordinator *coordinator);

#endif
