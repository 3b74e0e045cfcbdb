/* Carries one envelope to one node: signs the request, judges the answer, and reports the outcome. */
#include "round/courier.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "round/backoff.h"
#include "round/coordinator.h"
#include "round/judge.h"

static const int64_t PAST_DEADLINE_US = 1000000;

/* One request under way. It refers to its track by key only, so that the round may be dropped meanwhile. */
struct parcel {
    struct parcel *prev, *next; /* among the coordinator's */
    struct coordinator *coordinator;
    struct endpoint *endpoint;
    const struct node *node;
    struct attempt_key key;
    struct envelope_key envelope;
    unsigned char sha256[SHA256_BYTES];
    size_t size;
    int64_t began_us;
    bool answered; /* by the node itself, whatever it said */
    unsigned char payload[];
};

static void parcel_free(struct parcel *parcel) {
    DL_DELETE(parcel->coordinator->parcels, parcel);
    parcel->coordinator->parcel_count--;
    parcel->coordinator->parcel_bytes -= parcel->size;
    sodium_memzero(parcel->payload, parcel->size);
    free(parcel);
}

/* By which of its node's keys the answer brings a receipt; 0: by none. */
static int16_t receipt_key(const struct parcel *parcel, const struct http_answer *answer, struct signature *receipt) {
    bool there = answer->end == HTTP_ANSWERED && answer->status >= 200 && answer->status < 300 &&
                 signature_parse(answer->receipt, receipt);
    return there ? node_signer(parcel->node, &parcel->envelope, parcel->sha256, receipt) : 0;
}

/* Signs with what the node knows us by; NULL, or why the request must not leave. */
static const char *sign(const struct parcel *parcel, const char *id, int64_t now_s,
                        char signatures[SIGNATURES_TEXT + 1]) {
    const struct node *node = parcel->node;
    const char *obstacle = node_obstacle(node, parcel->endpoint);
    if (obstacle != NULL) {
        return obstacle;
    }
    if (node->symmetric) {
        webhook_sign_v1(node->secret, id, now_s, parcel->payload, parcel->size, signatures);
    } else {
        signing_keys_sign(parcel->coordinator->settings.keys, id, now_s, parcel->payload, parcel->size, signatures);
    }
    return signatures[0] != '\0' ? NULL : "request could not be made";
}

/* How long the route waits before its next attempt; `shown_us` is what the audit is told, never past the deadline. */
static int64_t next_wait_us(const struct round *round, int attempt, int64_t retry_after_ms, int64_t *shown_us) {
    uint64_t bits;
    randombytes_buf(&bits, sizeof bits);
    int64_t wait_us = backoff_draw(backoff_ceiling(round->base_us, round->max_us, attempt), bits);
    if (retry_after_ms * 1000 > wait_us) {
        wait_us = retry_after_ms * 1000;
    }
    double left_s = round->deadline_at - coordinator_time(round->coordinator);
    int64_t left_us = left_s > 0 ? (int64_t)(left_s * 1e6) : 0;
    *shown_us = wait_us < left_us ? wait_us : left_us;
    /* A wait up to the deadline leaves no attempt: the deadline is to find the route waiting. */
    return wait_us < left_us ? wait_us : left_us + PAST_DEADLINE_US;
}

/* What failed, in words for a log line. */
static const char *reason(enum outcome outcome, const struct http_answer *answer) {
    if (outcome != OUTCOME_BAD_RECEIPT) {
        return answer->detail;
    }
    return answer->receipt[0] == '\0' ? "no receipt" : "receipt by none of the keys that the round has of the node";
}

/* Every attempt at debug level; what is wrong with a node once while it lasts, and not often if it comes and goes. */
static void log_outcome(const struct parcel *parcel, enum outcome outcome, const struct http_answer *answer) {
    char round_id[ROUND_ID_MAX + 1], detail[sizeof answer->detail * 2 + 3], complaint[160];
    const char *why = reason(outcome, answer);
    snprintf(complaint, sizeof complaint, "%s %s", outcome_name(outcome), why);
    bool news = outcome == OUTCOME_ACK ? told_over(&parcel->endpoint->told)
                                       : told_news(&parcel->endpoint->told, complaint, TOLD_PAUSE_US);
    log_event(!news                    ? LOG_DEBUG
              : outcome == OUTCOME_ACK ? LOG_INFO
                                       : LOG_WARN,
              "attempt", "round=%s node=%d route=%s attempt=%d outcome=%s status=%d detail=%s",
              log_quote(parcel->envelope.round_id, round_id, sizeof round_id), parcel->key.node_id,
              route_name(parcel->key.route), parcel->key.attempt, outcome_name(outcome), answer->status,
              log_quote(why, detail, sizeof detail));
}

static void node_acked(struct track *track) {
    struct delivery *delivery = track->delivery;
    delivery->acked = true;
    track_event(&delivery->track[track->route == ROUTE_PRIMARY ? ROUTE_BACKUP : ROUTE_PRIMARY], TRACK_NODE_ACKED);
}

static void finish(struct parcel *parcel, const struct http_answer *answer) {
    struct coordinator *c = parcel->coordinator;
    struct attempt_record record = {.key = parcel->key, .http_status = (int16_t)answer->status, .retry_us = -1};
    record.key_no = receipt_key(parcel, answer, &record.receipt);
    record.outcome = judge_answer(answer, record.key_no > 0);
    parcel->answered = answer->end == HTTP_ANSWERED;
    crash_point("answered");
    metrics_attempt(&c->metrics, parcel->key.route, record.outcome,
                    (double)(clock_monotonic_us() - parcel->began_us) / 1e6);
    log_outcome(parcel, record.outcome, answer);
    struct track *track = round_track(c, &parcel->key);
    if (track == NULL || track->state != TRACK_SENDING || track->attempt != parcel->key.attempt) {
        /* The round was lost meanwhile: a receipt counts all the same, the database ignores the rest. */
        lane_record(&c->lanes[0], &record);
        return;
    }
    struct round *round = track->delivery->round;
    bool again = outcome_is_retried(record.outcome) && track->attempt < round->retry_budget && !round->over &&
                 !track->delivery->acked;
    if (again) {
        track->wait_us = next_wait_us(round, track->attempt, answer->retry_after_ms, &record.retry_us);
        track->attempt++;
    }
    if (record.outcome == OUTCOME_REFUSED) {
        track->end = TRACK_END_REFUSED;
    } else if (record.outcome != OUTCOME_ACK && track->attempt >= round->retry_budget && !again) {
        track->end = TRACK_END_EXHAUSTED;
    }
    lane_record(round->lane, &record);
    crash_point("outcome_queued");
    track_event(track, again ? TRACK_FAILED : TRACK_FINISHED);
    if (record.outcome == OUTCOME_ACK) {
        node_acked(track);
    }
}

static void on_answered(void *context, const struct http_answer *answer) {
    finish(context, answer);
}

static void on_closed(void *context) {
    struct parcel *parcel = context;
    struct coordinator *c = parcel->coordinator;
    endpoint_note(parcel->endpoint, (double)(clock_monotonic_us() - parcel->began_us) / 1e6, coordinator_time(c),
                  parcel->answered);
    endpoint_give_back(&c->nodes, parcel->endpoint);
    parcel_free(parcel);
}

static struct parcel *parcel_new(struct track *track, const unsigned char *payload, size_t size) {
    struct delivery *delivery = track->delivery;
    struct round *round = delivery->round;
    struct parcel *parcel = lane_memory(NULL, sizeof *parcel + size);
    *parcel = (struct parcel){.coordinator = round->coordinator,
                              .endpoint = delivery->node->route[track->route],
                              .node = delivery->node,
                              .key = track_key(track),
                              .size = size,
                              .began_us = clock_monotonic_us()};
    parcel->envelope.node_id = delivery->node_id;
    parcel->envelope.nonce = round->nonce;
    snprintf(parcel->envelope.deployment, sizeof parcel->envelope.deployment, "%s", round->coordinator->deployment_id);
    snprintf(parcel->envelope.round_id, sizeof parcel->envelope.round_id, "%s", round->round_id);
    memcpy(parcel->sha256, delivery->payload_sha256, SHA256_BYTES);
    memcpy(parcel->payload, payload, size);
    DL_APPEND(round->coordinator->parcels, parcel);
    round->coordinator->parcel_count++;
    round->coordinator->parcel_bytes += size;
    return parcel;
}

void courier_send(struct track *track, const unsigned char *payload, size_t size) {
    static const struct http_handler HANDLER = {.answered = on_answered, .closed = on_closed};
    struct parcel *parcel = parcel_new(track, payload, size);
    struct coordinator *c = parcel->coordinator;
    char id[WEBHOOK_ID_MAX + 1], timestamp[24], signatures[SIGNATURES_TEXT + 1];
    int64_t now_s = coordinator_now_us(c) / 1000000, timeout_ms = track->delivery->round->timeout_us / 1000;
    webhook_id_format(&parcel->envelope, id);
    snprintf(timestamp, sizeof timestamp, "%lld", (long long)now_s);
    const char *obstacle = sign(parcel, id, now_s, signatures);
    const struct http_header headers[] = {{"content-type", "application/octet-stream"},
                                          {"webhook-id", id},
                                          {"webhook-timestamp", timestamp},
                                          {"webhook-signature", signatures}};
    const struct http_request request = {.url = parcel->endpoint->url,
                                         .headers = headers,
                                         .header_count = sizeof headers / sizeof headers[0],
                                         .body = parcel->payload,
                                         .body_size = size,
                                         .pin = parcel->node->pin,
                                         .timeout_ms = timeout_ms > 0 ? timeout_ms : 1,
                                         .now_s = now_s};
    crash_point("before_request");
    if (obstacle == NULL && http_post(c->http, &request, &HANDLER, parcel) == NULL) {
        obstacle = "request could not be made";
    }
    if (obstacle != NULL) {
        struct http_answer unsent = {.end = HTTP_CONNECT_ERROR};
        snprintf(unsent.detail, sizeof unsent.detail, "%s", obstacle);
        finish(parcel, &unsent);
        on_closed(parcel);
    }
    crash_point("request_sent");
}

void courier_free_parcels(struct coordinator *coordinator) {
    while (coordinator->parcels != NULL) {
        parcel_free(coordinator->parcels);
    }
}
