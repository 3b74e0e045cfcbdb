/* A coordinator without database and network, for tests of what it holds in memory: its lanes only pile up what they
 * would ask. Everything else is the real thing. */
#ifndef QUORATE_TESTS_FAKE_COORDINATOR_H
#define QUORATE_TESTS_FAKE_COORDINATOR_H

#include <stdio.h>
#include <string.h>

#include "round/coordinator.h"

static const char FAKE_RECEIPT_KEY[] = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
static const unsigned char FAKE_SHA256[SHA256_BYTES];

static inline void fake_start(struct coordinator *c, unsigned slots_per_endpoint) {
    *c = (struct coordinator){.loop = ev_loop_new(EVFLAG_AUTO), .instance = 1};
    c->nodes.slots_per_endpoint = slots_per_endpoint;
    metrics_start(&c->metrics);
    for (int i = 0; i < LANE_COUNT; i++) {
        c->lanes[i].coordinator = c;
    }
}

static inline void fake_stop(struct coordinator *c) {
    struct round *round, *next;
    c->nodes.closed = true;
    HASH_ITER(hh, c->rounds, round, next) {
        round_drop(round);
    }
    for (int i = 0; i < LANE_COUNT; i++) {
        lane_free(&c->lanes[i]);
    }
    node_book_free(&c->nodes);
    ev_loop_destroy(c->loop);
}

/* Node `node_id`, whose version has the same number. `backup_url` may be NULL. */
static inline const struct node *fake_node(struct coordinator *c, int node_id, const char *url,
                                           const char *backup_url) {
    const struct node_version_row row = {
        .version = node_id, .node_id = node_id, .url = url, .backup_url = backup_url, .receipt_key = FAKE_RECEIPT_KEY};
    return node_add(&c->nodes, &row) ? node_find(&c->nodes, node_id) : NULL;
}

/* A delivery that nobody has tried, in an open round: half-time in 50 s, deadline in 100 s, a budget of 4. */
static inline struct work_row fake_row(int64_t round_no, int node_id) {
    return (struct work_row){.round_no = round_no,
                             .nonce = 1000 + round_no,
                             .round_id = "fake",
                             .escalate_us = 50000000,
                             .deadline_us = 100000000,
                             .timeout_us = 1000000,
                             .base_us = 1000,
                             .max_us = 8000,
                             .retry_budget = 4,
                             .quorum = 2,
                             .node_id = (int16_t)node_id,
                             .node_version = node_id,
                             .payload_bytes = 16,
                             .payload_sha256 = FAKE_SHA256};
}

/* Merges the row, as read just now, into the first lane's rounds; its delivery, or NULL. */
static inline struct delivery *fake_merge(struct coordinator *c, const struct work_row *given) {
    struct work_row row = *given;
    row.now_us = coordinator_now_us(c);
    c->lanes[0].work_asked_at = coordinator_time(c);
    if (!round_merge(c, &c->lanes[0], &row)) {
        return NULL;
    }
    struct round *round = round_find(c, row.round_no);
    return round != NULL ? round_delivery(round, row.node_id) : NULL;
}

#endif
