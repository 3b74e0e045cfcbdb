/* Prints one round: what was fixed at its opening, what became of it, and every delivery, attempt and ack. */
#include "cli/round_screen.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "cli/output.h"

/* An interval as PostgreSQL writes it, 00:00:02 or 00:00:00.05, becomes a duration as it was typed: 2s, 50ms. One with
 * days stays as it is. The caller frees it. */
static char *interval_text(const json_t *value) {
    char *text = output_text(value), *at = text;
    int64_t units[3] = {0}, fraction = 0; /* hours, minutes, seconds */
    for (int i = 0; i < 3; i++) {
        units[i] = strtol(at, &at, 10);
        if (i < 2 && *at++ != ':')
            return text;
    }
    if (*at == '.') {
        char digits[] = "000000";
        memcpy(digits, at + 1, strnlen(at + 1, sizeof digits - 1));
        fraction = strtol(digits, NULL, 10);
    } else if (*at) {
        return text;
    }
    char duration[32];
    (void)duration_format(((units[0] * 60 + units[1]) * 60 + units[2]) * 1000000 + fraction, duration, sizeof duration);
    free(text);
    return strdup(duration);
}

/* A line whose text is made of the round's values, each named by its key after the format: "% of %", and # for an
 * interval. */
static void line(const json_t *round, const char *title, const char *format, ...) {
    va_list keys;
    va_start(keys, format);
    char text[1024];
    size_t used = 0;
    for (const char *at = format; *at && used + 1 < sizeof text; at++) {
        if (at[0] != '%' && at[0] != '#') {
            text[used++] = *at;
            continue;
        }
        const json_t *json = json_object_get(round, va_arg(keys, const char *));
        char *value = at[0] == '#' ? interval_text(json) : output_text(json);
        int size = snprintf(text + used, sizeof text - used, "%s", value);
        used = used + (size_t)size < sizeof text ? used + (size_t)size : sizeof text - 1;
        free(value);
    }
    text[used] = 0;
    va_end(keys);
    output_line(title, text);
}

static bool has(const json_t *round, const char *key) {
    const json_t *value = json_object_get(round, key);
    return value && !json_is_null(value);
}

/* Why there was no escalation, and when it is or was due. */
static const char *escalation_missing(const json_t *round) {
    if (!has(round, "closed_at"))
        return "not yet, due %";
    return has(round, "quorum_nodes") ? "not needed, was due %" : "none, was due %";
}

static void print_round(const json_t *round) {
    line(round, "round", "%", "round_id");
    if (has(round, "close_reason"))
        line(round, "state", "% (%)", "state", "close_reason");
    else
        line(round, "state", "%", "state");
    line(round, "nonce", "%", "nonce");
    line(round, "quorum", "% of % nodes: %", "quorum", "total_nodes", "node_ids");
    line(round, "acked", "% on time; quorum nodes: %", "acked", "quorum_nodes");
    line(round, "policy", "timeout #, % attempts per route, backoff #..#, after quorum: %", "per_share_timeout",
         "retry_budget", "base_backoff", "max_backoff", "after_quorum");
    if (json_is_true(json_object_get(round, "require_sealed")))
        output_line("envelopes", "sealed only");
    line(round, "coordinator", "%", "coordinator");
    line(round, "opened", "%", "opened_at");
    if (has(round, "escalated_at"))
        line(round, "escalation", "%", "escalated_at");
    else
        line(round, "escalation", escalation_missing(round), "escalate_at");
    line(round, "deadline", "%", "deadline_at");
    line(round, "fresh until", "%", "fresh_until");
    line(round, "closed", "%", "closed_at");
    line(round, "collected", "%", "collected_at");
    if (has(round, "dead_lettered_at"))
        line(round, "dead-lettered", "%", "dead_lettered_at");
    line(round, "settled", "%", "settled_at");
}

static void print_table(const json_t *status, const char *key, const struct output_column *columns) {
    const json_t *rows = json_object_get(status, key);
    printf("\n%s: %zu\n", key, json_array_size(rows));
    if (json_array_size(rows) > 0)
        output_table(rows, columns);
}

void round_screen(const json_t *status) {
    static const struct output_column deliveries[] = {
        {"NODE", "node_id"},
        {"STATE", "state"},
        {"ATTEMPTS", "attempts"},
        {"LAST OUTCOME", "last_outcome"},
        {"BYTES", "payload_bytes"},
        {"NEXT ATTEMPT AT", "next_attempt_at"},
        {"ERASED AT", "payload_erased_at"},
        {NULL, NULL},
    };
    static const struct output_column attempts[] = {
        {"NODE", "node_id"},
        {"ROUTE", "route"},
        {"NO", "attempt"},
        {"OUTCOME", "outcome"},
        {"HTTP", "http_status"},
        {"RESENDS", "resends"},
        {"RESERVED AT", "reserved_at"},
        {"FINISHED AT", "finished_at"},
        {"COORDINATOR", "coordinator"},
        {NULL, NULL},
    };
    static const struct output_column acks[] = {
        {"NODE", "node_id"},        {"ROUTE", "route"}, {"ATTEMPT", "attempt"},
        {"IN QUORUM", "in_quorum"}, {"LATE", "late"},   {"THIRD PARTY", "third_party"},
        {"ACKED AT", "acked_at"},   {NULL, NULL},
    };
    static const struct output_column rejections[] = {
        {"NODE", "node_id"},
        {"NONCE", "nonce"},
        {"VERDICT", "verdict"},
        {"REJECTED AT", "rejected_at"},
        {"REJECTED FOR", "rejected_for"},
        {NULL, NULL},
    };
    print_round(json_object_get(status, "round"));
    print_table(status, "deliveries", deliveries);
    print_table(status, "attempts", attempts);
    print_table(status, "acks", acks);
    if (json_array_size(json_object_get(status, "rejections")) > 0)
        print_table(status, "rejections", rejections);
}
