/* The text of /metrics: it must be what Prometheus reads (exposition format 0.0.4), and tell what was counted. */
#include "unit.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "round/metrics.h"

enum { SAMPLES_MAX = 1000, NAMES_MAX = 100 };

struct sample {
    char name[80], labels[160]; /* labels: as written, without the braces; "" for none */
    double value;
};

struct family {
    char name[80], type[16];
    bool has_help;
};

/* What was read of one scrape. */
struct scrape {
    struct sample samples[SAMPLES_MAX];
    struct family families[NAMES_MAX];
    size_t sample_count, family_count;
};

static bool is_name(const char *text) {
    if (!isalpha((unsigned char)text[0]) && text[0] != '_') {
        return false;
    }
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0';
}

static struct family *find_family(struct scrape *scrape, const char *name) {
    for (size_t i = 0; i < scrape->family_count; i++) {
        if (strcmp(scrape->families[i].name, name) == 0) {
            return &scrape->families[i];
        }
    }
    return NULL;
}

/* A family's HELP comes first and once, then its TYPE, once. */
static void read_comment(struct scrape *scrape, const char *line) {
    char name[80], text[200], kind[8];
    assert_int_equal(sscanf(line, "# %7s %79s %199[^\n]", kind, name, text), 3);
    assert_true(is_name(name));
    if (strcmp(kind, "HELP") == 0) {
        assert_null(find_family(scrape, name));
        assert_in_range(scrape->family_count, 0, NAMES_MAX - 1);
        struct family *family = &scrape->families[scrape->family_count++];
        snprintf(family->name, sizeof family->name, "%s", name);
        family->has_help = true;
        return;
    }
    assert_string_equal(kind, "TYPE");
    struct family *family = find_family(scrape, name);
    assert_non_null(family);
    assert_ptr_equal(family, &scrape->families[scrape->family_count - 1]);
    assert_string_equal(family->type, "");
    assert_true(strcmp(text, "counter") == 0 || strcmp(text, "gauge") == 0 || strcmp(text, "histogram") == 0);
    snprintf(family->type, sizeof family->type, "%.15s", text);
}

/* name="value" pairs, separated by commas; values here need no escapes. */
static void check_labels(const char *labels) {
    char copy[160], *rest = copy;
    snprintf(copy, sizeof copy, "%s", labels);
    while (*rest != '\0') {
        char *equals = strstr(rest, "=\"");
        assert_non_null(equals);
        *equals = '\0';
        assert_true(is_name(rest));
        /* Ids have no bound: they would make a time series each. */
        assert_string_not_equal(rest, "round");
        assert_string_not_equal(rest, "round_id");
        char *value = equals + 2, *end = strchr(value, '"');
        assert_non_null(end);
        *end = '\0';
        assert_null(strpbrk(value, "\\\n"));
        assert_true(value[0] != '\0');
        rest = end + 1;
        if (*rest == ',') {
            rest++;
            assert_true(*rest != '\0');
        }
    }
}

/* Each sample belongs to the family that was introduced last. */
static void read_sample(struct scrape *scrape, const char *line) {
    assert_in_range(scrape->sample_count, 0, SAMPLES_MAX - 1);
    struct sample *sample = &scrape->samples[scrape->sample_count++];
    char number[64], *end;
    if (strchr(line, '{') != NULL) {
        assert_int_equal(sscanf(line, "%79[^{]{%159[^}]} %63s", sample->name, sample->labels, number), 3);
        check_labels(sample->labels);
    } else {
        assert_int_equal(sscanf(line, "%79s %63s", sample->name, number), 2);
    }
    assert_true(is_name(sample->name));
    assert_true(strncmp(sample->name, "quorate_", 8) == 0);
    sample->value = strtod(number, &end);
    assert_int_equal(*end, '\0');

    assert_true(scrape->family_count > 0);
    const struct family *family = &scrape->families[scrape->family_count - 1];
    size_t length = strlen(family->name);
    assert_true(strncmp(sample->name, family->name, length) == 0);
    const char *suffix = sample->name + length;
    if (strcmp(family->type, "histogram") == 0) {
        assert_true(strcmp(suffix, "_bucket") == 0 || strcmp(suffix, "_sum") == 0 || strcmp(suffix, "_count") == 0);
    } else {
        assert_string_equal(suffix, "");
    }
    if (strcmp(family->type, "counter") == 0) {
        assert_string_equal(sample->name + strlen(sample->name) - strlen("_total"), "_total");
        assert_true(sample->value >= 0);
    }
    for (size_t i = 0; i + 1 < scrape->sample_count; i++) { /* no series twice */
        assert_false(strcmp(scrape->samples[i].name, sample->name) == 0 &&
                     strcmp(scrape->samples[i].labels, sample->labels) == 0);
    }
}

static struct scrape *scrape(struct metrics *metrics, const struct metrics_gauges *gauges) {
    struct scrape *result = calloc(1, sizeof *result);
    size_t size = 0;
    char *text = metrics_text(metrics, gauges, &size);
    assert_non_null(result);
    assert_non_null(text);
    assert_int_equal(strlen(text), size);
    assert_int_equal(text[size - 1], '\n');
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) {
        assert_true(line[0] != '\0');
        if (line[0] == '#') {
            read_comment(result, line);
        } else {
            read_sample(result, line);
        }
    }
    free(text);
    return result;
}

static double value(const struct scrape *scrape, const char *name, const char *labels) {
    for (size_t i = 0; i < scrape->sample_count; i++) {
        if (strcmp(scrape->samples[i].name, name) == 0 && strcmp(scrape->samples[i].labels, labels) == 0) {
            return scrape->samples[i].value;
        }
    }
    fail_msg("no sample %s{%s}", name, labels);
    return 0;
}

static void before_anything_happens_all_is_there_and_zero(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {0};
    metrics_start(&metrics);
    struct scrape *got = scrape(&metrics, &gauges);
    for (size_t i = 0; i < got->sample_count; i++) {
        assert_true(got->samples[i].value == 0);
    }
    for (size_t i = 0; i < got->family_count; i++) {
        assert_true(got->families[i].has_help);
        assert_string_not_equal(got->families[i].type, "");
    }
    free(got);
}

/* For each histogram: as many buckets as bounds, bounds ascending, counts cumulative, +Inf last and equal to _count. */
static size_t check_histograms(const struct scrape *got) {
    size_t histograms = 0;
    for (size_t f = 0; f < got->family_count; f++) {
        if (strcmp(got->families[f].type, "histogram") != 0) {
            continue;
        }
        char bucket[96], count[96], sum[96];
        double last_bound = -INFINITY, last_count = 0;
        size_t buckets = 0;
        snprintf(bucket, sizeof bucket, "%s_bucket", got->families[f].name);
        snprintf(count, sizeof count, "%s_count", got->families[f].name);
        snprintf(sum, sizeof sum, "%s_sum", got->families[f].name);
        for (size_t i = 0; i < got->sample_count; i++) {
            if (strcmp(got->samples[i].name, bucket) != 0) {
                continue;
            }
            char bound_text[32];
            assert_int_equal(sscanf(got->samples[i].labels, "le=\"%31[^\"]\"", bound_text), 1);
            double bound = strtod(bound_text, NULL); /* "+Inf", too */
            assert_true(bound > last_bound);
            assert_true(got->samples[i].value >= last_count);
            last_bound = bound;
            last_count = got->samples[i].value;
            buckets++;
        }
        assert_int_equal(buckets, HISTOGRAM_BUCKETS + 1);
        assert_true(isinf(last_bound));
        assert_true(last_count == value(got, count, ""));
        assert_true(value(got, sum, "") >= 0);
        histograms++;
    }
    return histograms;
}

static void histograms_are_cumulative(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {0};
    metrics_start(&metrics);
    for (int i = 0; i < 100; i++) {
        double seconds = pow(2, i % 20) / 4096;
        metrics_attempt(&metrics, ROUTE_PRIMARY, OUTCOME_ACK, seconds);
        metrics_closed(&metrics, ROUND_COMPLETE, seconds);
        metrics_batch(&metrics, (size_t)1 << (i % 20), seconds);
        metrics_lag(&metrics, seconds);
    }
    struct scrape *got = scrape(&metrics, &gauges);
    assert_int_equal(check_histograms(got), 5);
    assert_true(value(got, "quorate_attempt_seconds_count", "") == 100);
    assert_true(value(got, "quorate_time_to_quorum_seconds_count", "") == 100);
    assert_true(value(got, "quorate_batch_items_count", "") == 100);
    assert_true(value(got, "quorate_batch_seconds_count", "") == 100);
    assert_true(value(got, "quorate_loop_lag_seconds_count", "") == 100);
    free(got);
}

static void a_value_at_a_bound_is_inside_it(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {0};
    metrics_start(&metrics);
    metrics_batch(&metrics, 64, 0.5);   /* at bounds */
    metrics_batch(&metrics, 65, 0.501); /* just above */
    metrics_batch(&metrics, 100000, 3600);
    struct scrape *got = scrape(&metrics, &gauges);
    assert_true(value(got, "quorate_batch_items_bucket", "le=\"32\"") == 0);
    assert_true(value(got, "quorate_batch_items_bucket", "le=\"64\"") == 1);
    assert_true(value(got, "quorate_batch_items_bucket", "le=\"128\"") == 2);
    assert_true(value(got, "quorate_batch_items_bucket", "le=\"32768\"") == 2);
    assert_true(value(got, "quorate_batch_items_bucket", "le=\"+Inf\"") == 3);
    assert_true(value(got, "quorate_batch_items_sum", "") == 64 + 65 + 100000);
    assert_true(value(got, "quorate_batch_seconds_bucket", "le=\"0.25\"") == 0);
    assert_true(value(got, "quorate_batch_seconds_bucket", "le=\"0.5\"") == 1);
    assert_true(value(got, "quorate_batch_seconds_bucket", "le=\"1\"") == 2);
    free(got);
}

static void every_attempt_is_counted_where_it_belongs(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {0};
    metrics_start(&metrics);
    for (int route = 0; route < ROUTE_COUNT; route++) {
        for (int outcome = 0; outcome < OUTCOME_IN_DOUBT; outcome++) {
            for (int i = 0; i < 1 + route * 10 + outcome; i++) {
                metrics_attempt(&metrics, (enum route)route, (enum outcome)outcome, 0.01);
            }
        }
    }
    struct scrape *got = scrape(&metrics, &gauges);
    double all = 0;
    for (int route = 0; route < ROUTE_COUNT; route++) {
        for (int outcome = 0; outcome < OUTCOME_IN_DOUBT; outcome++) {
            char labels[80];
            snprintf(labels, sizeof labels, "route=\"%s\",outcome=\"%s\"", route_name((enum route)route),
                     outcome_name((enum outcome)outcome));
            assert_true(value(got, "quorate_attempts_total", labels) == 1 + route * 10 + outcome);
            all += 1 + route * 10 + outcome;
        }
    }
    assert_true(value(got, "quorate_acks_total", "") == 1 + 11);
    assert_true(value(got, "quorate_attempt_seconds_count", "") == all);
    free(got);
}

static void ends_of_rounds(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {0};
    metrics_start(&metrics);
    metrics_closed(&metrics, ROUND_COMPLETE, 0.2);
    metrics_closed(&metrics, ROUND_COMPLETE, -1); /* when it was opened is not known: no time to quorum */
    metrics_closed(&metrics, ROUND_STALLED, 8);   /* it has no quorum, and no time to it */
    metrics_closed(&metrics, ROUND_CANCELLED, -1);
    metrics_closed(&metrics, ROUND_DEAD_LETTERED, -1);
    metrics_closed(&metrics, ROUND_LOCKED, 1); /* no end of a round */
    metrics_closed(&metrics, ROUND_FENCED, 1);
    metrics_closed(&metrics, ROUND_GONE, 1);
    struct scrape *got = scrape(&metrics, &gauges);
    assert_true(value(got, "quorate_rounds_closed_total", "state=\"complete\"") == 2);
    assert_true(value(got, "quorate_rounds_closed_total", "state=\"stalled\"") == 1);
    assert_true(value(got, "quorate_rounds_closed_total", "state=\"cancelled\"") == 1);
    assert_true(value(got, "quorate_rounds_closed_total", "state=\"dead_lettered\"") == 1);
    assert_true(value(got, "quorate_time_to_quorum_seconds_count", "") == 1);
    assert_true(fabs(value(got, "quorate_time_to_quorum_seconds_sum", "") - 0.2) < 1e-9);
    free(got);
}

static void what_is_looked_up(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {.rounds_held = {1, 2, 3, 4, 5},
                                          .routes_waiting = 6,
                                          .requests_under_way = 7,
                                          .database_losses = 8,
                                          .ready = true};
    metrics_start(&metrics);
    metrics_batch_failed(&metrics);
    metrics.claimed = UINT64_C(1) << 40;
    metrics.escalations = 2;
    metrics.fenced = 3;
    metrics.rejoins = 4;
    struct scrape *got = scrape(&metrics, &gauges);
    for (int s = 0; s < ROUND_STATE_COUNT; s++) {
        char labels[40];
        snprintf(labels, sizeof labels, "state=\"%s\"", round_state_name((enum round_state)s));
        assert_true(value(got, "quorate_rounds", labels) == s + 1);
    }
    assert_true(value(got, "quorate_routes_waiting", "") == 6);
    assert_true(value(got, "quorate_requests_under_way", "") == 7);
    assert_true(value(got, "quorate_database_reconnects_total", "") == 8);
    assert_true(value(got, "quorate_ready", "") == 1);
    assert_true(value(got, "quorate_batches_failed_total", "") == 1);
    assert_true(value(got, "quorate_rounds_claimed_total", "") == (double)(UINT64_C(1) << 40));
    assert_true(value(got, "quorate_escalations_total", "") == 2);
    assert_true(value(got, "quorate_peers_fenced_total", "") == 3);
    assert_true(value(got, "quorate_rejoins_total", "") == 4);
    free(got);
}

static void the_longest_turn_is_that_since_the_last_scrape(void **state) {
    (void)state;
    struct metrics metrics;
    const struct metrics_gauges gauges = {0};
    metrics_start(&metrics);
    metrics_lag(&metrics, 0.25);
    metrics_lag(&metrics, 0.125);
    struct scrape *got = scrape(&metrics, &gauges);
    assert_true(value(got, "quorate_loop_lag_max_seconds", "") == 0.25);
    free(got);
    metrics_lag(&metrics, 0.0625);
    got = scrape(&metrics, &gauges);
    assert_true(value(got, "quorate_loop_lag_max_seconds", "") == 0.0625);
    assert_true(value(got, "quorate_loop_lag_seconds_count", "") == 3);
    free(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_anything_happens_all_is_there_and_zero),
        cmocka_unit_test(histograms_are_cumulative),
        cmocka_unit_test(a_value_at_a_bound_is_inside_it),
        cmocka_unit_test(every_attempt_is_counted_where_it_belongs),
        cmocka_unit_test(ends_of_rounds),
        cmocka_unit_test(what_is_looked_up),
        cmocka_unit_test(the_longest_turn_is_that_since_the_last_scrape),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
