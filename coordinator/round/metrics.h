/* What a coordinator counts, and the Prometheus text of it; never a round id as a label. */
#ifndef QUORATE_ROUND_METRICS_H
#define QUORATE_ROUND_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "db/worker.h"

enum { HISTOGRAM_BUCKETS = 16 };

struct histogram {
    const double *bounds; /* HISTOGRAM_BUCKETS upper bounds */
    uint64_t counts[HISTOGRAM_BUCKETS + 1];
    double sum;
};

/* How deliveries end, as the view quorate.deliveries names it. */
enum delivery_state { DELIVERY_ACKED, DELIVERY_EXHAUSTED, DELIVERY_REFUSED, DELIVERY_ABANDONED, DELIVERY_STATE_COUNT };

struct metrics {
    uint64_t attempts[ROUTE_COUNT][OUTCOME_COUNT];
    uint64_t deliveries[DELIVERY_STATE_COUNT]; /* of settled rounds */
    uint64_t rounds_closed[ROUND_STATE_COUNT]; /* by whose transaction ended it, or who owned it: a failed one twice if
                                                  it changes hands before it settles */
    uint64_t claimed, escalations, fenced, rejoins, batches_failed;
    struct histogram attempt_seconds, quorum_seconds, batch_size, batch_seconds, lag_seconds;
    double lag_max; /* since the last scrape */
};

/* What is not counted but looked up when someone asks. */
struct metrics_gauges {
    size_t rounds_held[ROUND_STATE_COUNT];
    size_t routes_waiting, requests_under_way;
    unsigned long database_losses;
    bool ready;
};

void metrics_start(struct metrics *metrics);
void metrics_attempt(struct metrics *metrics, enum route route, enum outcome outcome, double seconds);
/* An attempt that was reserved and is not sent any more. */
void metrics_not_sent(struct metrics *metrics, enum route route, enum outcome outcome);
/* A round has ended, `seconds` after it was opened (negative: not known). */
void metrics_closed(struct metrics *metrics, enum round_state state, double seconds);
void metrics_batch(struct metrics *metrics, size_t items, double seconds);
void metrics_batch_failed(struct metrics *metrics);
/* How long one turn of the loop kept everything else waiting. */
void metrics_lag(struct metrics *metrics, double seconds);

/* The text of /metrics (Prometheus exposition format 0.0.4), to be freed by the caller; NULL when memory is short. */
char *metrics_text(struct metrics *metrics, const struct metrics_gauges *gauges, size_t *size) MUST_CHECK;

#endif
