/* What a coordinator counts, and the Prometheus text of it; never a round id as a label. */
#include "round/metrics.h"

#include <stdio.h>
#include <stdlib.h>

static const double SECONDS[HISTOGRAM_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,   0.5,   1,      2.5,   5,    10,    30,   60};
static const double SIZES[HISTOGRAM_BUCKETS] = {1,   2,   4,    8,    16,   32,   64,    128,
                                                256, 512, 1024, 2048, 4096, 8192, 16384, 32768};

void metrics_start(struct metrics *metrics) {
    *metrics = (struct metrics){0};
    metrics->attempt_seconds.bounds = SECONDS;
    metrics->quorum_seconds.bounds = SECONDS;
    metrics->batch_seconds.bounds = SECONDS;
    metrics->lag_seconds.bounds = SECONDS;
    metrics->batch_size.bounds = SIZES;
}

static void observe(struct histogram *histogram, double value) {
    int bucket = 0;
    while (bucket < HISTOGRAM_BUCKETS && value > histogram->bounds[bucket]) {
        bucket++;
    }
    histogram->counts[bucket]++;
    histogram->sum += value;
}

void metrics_attempt(struct metrics *metrics, enum route route, enum outcome outcome, double seconds) {
    metrics->attempts[route][outcome]++;
    observe(&metrics->attempt_seconds, seconds);
}

void metrics_not_sent(struct metrics *metrics, enum route route, enum outcome outcome) {
    metrics->attempts[route][outcome]++;
}

void metrics_closed(struct metrics *metrics, enum round_state state, double seconds) {
    if (state >= ROUND_STATE_COUNT) {
        return;
    }
    metrics->rounds_closed[state]++;
    if (state == ROUND_COMPLETE && seconds >= 0) {
        observe(&metrics->quorum_seconds, seconds);
    }
}

void metrics_batch(struct metrics *metrics, size_t items, double seconds) {
    observe(&metrics->batch_size, (double)items);
    observe(&metrics->batch_seconds, seconds);
}

void metrics_batch_failed(struct metrics *metrics) {
    metrics->batches_failed++;
}

void metrics_lag(struct metrics *metrics, double seconds) {
    observe(&metrics->lag_seconds, seconds);
    if (seconds > metrics->lag_max) {
        metrics->lag_max = seconds;
    }
}

static void head(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# HELP quorate_%s %s\n# TYPE quorate_%s %s\n", name, help, name, type);
}

static void number(FILE *out, const char *name, const char *type, const char *help, double value) {
    head(out, name, type, help);
    fprintf(out, "quorate_%s %.17g\n", name, value);
}

static void histogram(FILE *out, const char *name, const char *help, const struct histogram *histogram) {
    uint64_t total = 0;
    head(out, name, "histogram", help);
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        total += histogram->counts[i];
        fprintf(out, "quorate_%s_bucket{le=\"%g\"} %llu\n", name, histogram->bounds[i], (unsigned long long)total);
    }
    total += histogram->counts[HISTOGRAM_BUCKETS];
    fprintf(out, "quorate_%s_bucket{le=\"+Inf\"} %llu\nquorate_%s_sum %.9g\nquorate_%s_count %llu\n", name,
            (unsigned long long)total, name, histogram->sum, name, (unsigned long long)total);
}

static void rounds(FILE *out, const struct metrics *metrics, const struct metrics_gauges *gauges) {
    head(out, "rounds", "gauge", "Unsettled rounds that this coordinator holds, by state.");
    for (int s = 0; s < ROUND_STATE_COUNT; s++) {
        fprintf(out, "quorate_rounds{state=\"%s\"} %zu\n", round_state_name((enum round_state)s),
                gauges->rounds_held[s]);
    }
    head(out, "rounds_closed_total", "counter",
         "Rounds that ended, by the state they got; each is counted by one coordinator.");
    for (int s = ROUND_COMPLETE; s < ROUND_STATE_COUNT; s++) {
        fprintf(out, "quorate_rounds_closed_total{state=\"%s\"} %llu\n", round_state_name((enum round_state)s),
                (unsigned long long)metrics->rounds_closed[s]);
    }
}

static void attempts(FILE *out, const struct metrics *metrics) {
    uint64_t acks = 0;
    head(out, "attempts_total", "counter", "Attempts that ended, by route and outcome.");
    for (int r = 0; r < ROUTE_COUNT; r++) {
        acks += metrics->attempts[r][OUTCOME_ACK];
        for (int o = 0; o < OUTCOME_COUNT; o++) {
            fprintf(out, "quorate_attempts_total{route=\"%s\",outcome=\"%s\"} %llu\n", route_name((enum route)r),
                    outcome_name((enum outcome)o), (unsigned long long)metrics->attempts[r][o]);
        }
    }
    number(out, "acks_total", "counter", "Receipts that verified.", (double)acks);
}

static void deliveries(FILE *out, const struct metrics *metrics) {
    static const char *const STATES[DELIVERY_STATE_COUNT] = {"acked", "exhausted", "refused", "abandoned"};
    head(out, "deliveries_total", "counter", "Deliveries of settled rounds, by the state they ended in.");
    for (int s = 0; s < DELIVERY_STATE_COUNT; s++) {
        fprintf(out, "quorate_deliveries_total{state=\"%s\"} %llu\n", STATES[s],
                (unsigned long long)metrics->deliveries[s]);
    }
}

char *metrics_text(struct metrics *metrics, const struct metrics_gauges *gauges, size_t *size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (out == NULL) {
        return NULL;
    }
    number(out, "ready", "gauge", "1 while joined and connected.", gauges->ready);
    rounds(out, metrics, gauges);
    number(out, "rounds_claimed_total", "counter", "Rounds taken over from the queue or from a peer.",
           (double)metrics->claimed);
    number(out, "escalations_total", "counter", "Rounds whose envelopes went to the backups as well.",
           (double)metrics->escalations);
    attempts(out, metrics);
    deliveries(out, metrics);
    number(out, "routes_waiting", "gauge", "Routes of deliveries that wait for a time or a slot.",
           (double)gauges->routes_waiting);
    number(out, "requests_under_way", "gauge", "Requests under way.", (double)gauges->requests_under_way);
    histogram(out, "attempt_seconds", "From sending a request to its answer.", &metrics->attempt_seconds);
    histogram(out, "time_to_quorum_seconds", "From opening a round to its completion, by the database's clock.",
              &metrics->quorum_seconds);
    histogram(out, "batch_items", "Outcomes, reservations and settlements in one batch.", &metrics->batch_size);
    histogram(out, "batch_seconds", "From sending a batch to its commit.", &metrics->batch_seconds);
    number(out, "batches_failed_total", "counter", "Batches that failed and were repeated.",
           (double)metrics->batches_failed);
    histogram(out, "loop_lag_seconds", "How long one turn of the event loop kept everything else waiting.",
              &metrics->lag_seconds);
    number(out, "loop_lag_max_seconds", "gauge", "The longest turn since the last scrape.", metrics->lag_max);
    number(out, "database_reconnects_total", "counter", "Database connections lost or refused.",
           (double)gauges->database_losses);
    number(out, "peers_fenced_total", "counter", "Silent peers that this coordinator fenced.", (double)metrics->fenced);
    number(out, "rejoins_total", "counter", "Times that this coordinator found itself fenced and joined again.",
           (double)metrics->rejoins);
    metrics->lag_max = 0;
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
