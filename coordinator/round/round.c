/* What a coordinator holds in memory of the rounds it owns: found, merged with the database's rows, looked at, and
 * dropped. */
#include "round/round.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "round/coordinator.h"

/* A round that should be settled and is not is looked at again after this long. */
static const double LOOK_AGAIN_S = 0.1;
/* This close to its deadline nothing of a round waits in memory. */
static const double NEAR_DEADLINE_S = 0.1;

struct round *round_find(struct coordinator *coordinator, int64_t round_no) {
    struct round *round;
    HASH_FIND(hh, coordinator->rounds, &round_no, sizeof round_no, round);
    return round;
}

struct delivery *round_delivery(struct round *round, int16_t node_id) {
    struct delivery *delivery = round->deliveries;
    while (delivery != NULL && delivery->node_id != node_id) {
        delivery = delivery->next;
    }
    return delivery;
}

struct track *round_track(struct coordinator *coordinator, const struct attempt_key *key) {
    struct round *round = round_find(coordinator, key->round_no);
    struct delivery *delivery = round != NULL ? round_delivery(round, key->node_id) : NULL;
    return delivery != NULL ? &delivery->track[key->route] : NULL;
}

static void arm(struct round *round) {
    double at = round->deadline_at + 0.0005;
    if (!round->looked && !round->ask_escalate && round->state == ROUND_OPEN && round->escalate_at < at) {
        at = round->escalate_at;
    }
    round_look_in(round, at - coordinator_time(round->coordinator));
}

void round_look_in(struct round *round, double seconds) {
    struct ev_loop *loop = round->coordinator->loop;
    ev_timer_stop(loop, &round->timer);
    ev_timer_set(&round->timer, seconds > 0 ? seconds : 0., 0.);
    ev_timer_start(loop, &round->timer);
}

void round_end_attempts(struct round *round) {
    round->over = true;
    for (struct delivery *d = round->deliveries; d != NULL; d = d->next) {
        track_event(&d->track[ROUTE_PRIMARY], TRACK_STOPPED);
        track_event(&d->track[ROUTE_BACKUP], TRACK_STOPPED);
    }
}

static bool track_done(const struct track *track, const struct round *round) {
    return track->state == TRACK_ENDED || (track->state == TRACK_CLOSED && (round->over || round->state != ROUND_OPEN));
}

/* True when nothing is left to make, await or record. */
static bool all_done(const struct round *round) {
    if (round->unrecorded > 0 || (round->state == ROUND_OPEN && !round->over)) {
        return false;
    }
    for (const struct delivery *d = round->deliveries; d != NULL; d = d->next) {
        if (!track_done(&d->track[ROUTE_PRIMARY], round) || !track_done(&d->track[ROUTE_BACKUP], round)) {
            return false;
        }
    }
    return true;
}

bool round_awaits_more_acks(const struct round *round) {
    int acks = 1, under_way = -1; /* the one whose ack is asked about is still counted as under way */
    for (const struct delivery *d = round->deliveries; d != NULL; d = d->next) {
        acks += d->acked;
        under_way += (d->track[ROUTE_PRIMARY].state == TRACK_SENDING) + (d->track[ROUTE_BACKUP].state == TRACK_SENDING);
    }
    return round->state == ROUND_OPEN && acks < round->quorum && under_way > 0 &&
           coordinator_time(round->coordinator) + NEAR_DEADLINE_S < round->deadline_at;
}

bool round_releasable(const struct round *round) {
    bool held = round->unrecorded > 0 || round->ask_escalate || round->ask_settle || round->ask_release ||
                coordinator_time(round->coordinator) < round->release_at;
    for (const struct delivery *d = round->deliveries; d != NULL && !held; d = d->next) {
        for (int r = 0; r < ROUTE_COUNT; r++) {
            enum track_state state = d->track[r].state;
            held = held || state == TRACK_RESERVING || state == TRACK_LOADING || state == TRACK_SENDING;
        }
    }
    return !held;
}

static void look(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct round *round = watcher->data;
    double now = coordinator_time(round->coordinator);
    if (!round->over && now >= round->deadline_at) {
        round_end_attempts(round);
    }
    if ((round->over && round->state == ROUND_OPEN) || all_done(round)) {
        lane_settle(round->lane, round); /* past the deadline: stalls it, whatever is still under way */
    } else if (!round->looked && now >= round->escalate_at) {
        lane_escalate(round->lane, round);
    }
    if (!round->over) {
        arm(round);
    }
}

/* Whoever ended a round below its quorum, a client maybe: the one owner that learns of it counts it. */
static void count_failure(struct round *round, enum round_state state) {
    if (state == ROUND_STALLED || state == ROUND_CANCELLED) {
        metrics_closed(&round->coordinator->metrics, state, -1.);
    }
}

static struct round *round_new(struct coordinator *coordinator, struct lane *lane, const struct work_row *row) {
    size_t id_size = strlen(row->round_id) + 1;
    struct round *round = calloc(1, sizeof *round + id_size);
    if (round == NULL) {
        return NULL;
    }
    double now = lane->work_asked_at; /* times left count from before they were read: rather a little early than late */
    round->serial = ++coordinator->serials;
    round->round_no = row->round_no;
    round->nonce = row->nonce;
    round->coordinator = coordinator;
    round->lane = lane;
    round->escalate_at = now + (double)row->escalate_us / 1e6;
    round->deadline_at = now + (double)row->deadline_us / 1e6;
    round->timeout_us = row->timeout_us;
    round->base_us = row->base_us;
    round->max_us = row->max_us;
    round->retry_budget = row->retry_budget;
    round->quorum = row->quorum;
    round->stop = row->stop;
    round->escalated = round->looked = row->escalated;
    round->state = row->state;
    round->over = coordinator_time(coordinator) >= round->deadline_at ||
                  !(row->state == ROUND_OPEN || (row->state == ROUND_COMPLETE && !row->stop));
    memcpy(round->round_id, row->round_id, id_size);
    ev_init(&round->timer, look);
    round->timer.data = round;
    HASH_ADD(hh, coordinator->rounds, round_no, sizeof round->round_no, round);
    count_failure(round, row->state);
    return round;
}

/* Says of an attempt without an outcome, that will not be sent any more, what is known of it. */
static void close_attempt(struct track *track, const struct route_row *history) {
    struct attempt_record record = {
        .key = track_key(track), .outcome = history->mine ? OUTCOME_UNSENT : OUTCOME_IN_DOUBT, .retry_us = -1};
    record.key.attempt = history->open;
    metrics_not_sent(&track->delivery->round->coordinator->metrics, track->route, record.outcome);
    lane_record(track->delivery->round->lane, &record);
}

/* Begins a route where its history in the database left it. */
static void begin_track(struct track *track, const struct work_row *row) {
    const struct route_row *history = &row->route[track->route];
    struct delivery *delivery = track->delivery;
    struct round *round = delivery->round;
    struct endpoint *endpoint = delivery->node->route[track->route];
    track->state = TRACK_CLOSED;
    track->attempt = history->open != 0 ? history->open : (int16_t)(history->used + 1);
    if (history->open != 0 && (delivery->acked || round->over)) {
        close_attempt(track, history);
        track->state = TRACK_ENDED;
    } else if (endpoint == NULL || delivery->acked || round->over || history->refused ||
               (history->open == 0 && history->used >= round->retry_budget)) {
        track->state = TRACK_ENDED;
        track->end = history->refused                       ? TRACK_END_REFUSED
                     : history->used >= round->retry_budget ? TRACK_END_EXHAUSTED
                                                            : TRACK_END_NONE;
    } else if (history->open != 0 && history->mine) {
        track->state = TRACK_LOADING; /* reserved by the claim */
        endpoint_take(endpoint);
        if (row->payload != NULL) {
            track_loaded(track, row->payload, (size_t)row->payload_bytes);
        } else {
            lane_load(round->lane, track);
        }
    } else if (track->route == ROUTE_PRIMARY || round->escalated) {
        track->resend = history->open != 0;
        track->wait_us = track->resend ? 0 : history->wait_us;
        track_event(track, TRACK_OPENED);
    }
}

static bool add_delivery(struct round *round, const struct work_row *row) {
    struct delivery *delivery = calloc(1, sizeof *delivery);
    if (delivery == NULL) {
        return false;
    }
    delivery->round = round;
    delivery->node = node_find(&round->coordinator->nodes, row->node_version);
    if (delivery->node == NULL) {
        free(delivery);
        return false;
    }
    delivery->node_id = row->node_id;
    delivery->payload_bytes = row->payload_bytes;
    delivery->acked = row->acked;
    memcpy(delivery->payload_sha256, row->payload_sha256, SHA256_BYTES);
    delivery->next = round->deliveries;
    round->deliveries = delivery;
    for (int r = 0; r < ROUTE_COUNT; r++) {
        delivery->track[r].delivery = delivery;
        delivery->track[r].route = (enum route)r;
    }
    for (int r = 0; r < ROUTE_COUNT; r++) {
        begin_track(&delivery->track[r], row);
    }
    return true;
}

/* An attempt that the database has as open and that no track stands for any more would keep its round from settling. */
static void reconcile(struct delivery *delivery, const struct work_row *row) {
    bool quiet = delivery->round->unrecorded == 0;
    for (int r = 0; r < ROUTE_COUNT; r++) {
        struct track *track = &delivery->track[r];
        if (quiet && row->route[r].open != 0 && (track->state == TRACK_ENDED || track->attempt != row->route[r].open)) {
            close_attempt(track, &row->route[r]);
        }
    }
}

bool round_merge(struct coordinator *coordinator, struct lane *lane, const struct work_row *row) {
    struct round *round = round_find(coordinator, row->round_no);
    if (round == NULL) {
        round = round_new(coordinator, lane, row);
        if (round == NULL) {
            return false;
        }
    }
    if (row->escalated) {
        round_learn_escalated(round);
    }
    if (row->state != round->state) {
        round_learn(round, row->state, false); /* someone else ended it */
    }
    struct delivery *known = row->node_id != 0 ? round_delivery(round, row->node_id) : NULL;
    if (known != NULL) {
        reconcile(known, row);
    } else if (row->node_id != 0 && !add_delivery(round, row)) {
        return false;
    }
    if (round->over || round->state != ROUND_OPEN) {
        round_look_in(round, 0.); /* after all of its rows have been merged */
    } else {
        arm(round);
    }
    return true;
}

void round_check_done(struct round *round) {
    if (!all_done(round)) {
        return;
    }
    if (round->fruitless > 0) {
        round_look_in(round, LOOK_AGAIN_S * round->fruitless);
    } else {
        lane_settle(round->lane, round);
    }
}

/* As the view quorate.deliveries derives it for an ended round. */
static enum delivery_state how_ended(const struct delivery *delivery) {
    bool refused = false;
    if (delivery->acked) {
        return DELIVERY_ACKED;
    }
    for (int r = 0; r < ROUTE_COUNT; r++) {
        bool allowed = delivery->node->route[r] != NULL && (r == ROUTE_PRIMARY || delivery->round->escalated);
        if (allowed && delivery->track[r].end == TRACK_END_NONE) {
            return DELIVERY_ABANDONED;
        }
        refused = refused || delivery->track[r].end == TRACK_END_REFUSED;
    }
    return refused ? DELIVERY_REFUSED : DELIVERY_EXHAUSTED;
}

void round_learn(struct round *round, enum round_state state, bool settled) {
    if (state == ROUND_LOCKED) {
        return;
    }
    if (round->state == ROUND_OPEN) {
        count_failure(round, state);
    }
    for (const struct delivery *d = round->deliveries; settled && d != NULL; d = d->next) {
        round->coordinator->metrics.deliveries[how_ended(d)]++;
    }
    if (settled || state == ROUND_FENCED || state == ROUND_GONE) {
        round_drop(round);
        return;
    }
    round->state = state;
    bool going_on = state == ROUND_OPEN || (state == ROUND_COMPLETE && !round->stop);
    if (!going_on && !round->over) {
        round_end_attempts(round);
    }
    round_check_done(round);
}

void round_learn_escalated(struct round *round) {
    if (round->escalated) {
        return;
    }
    round->escalated = round->looked = true;
    for (struct delivery *d = round->deliveries; d != NULL; d = d->next) {
        if (d->node->route[ROUTE_BACKUP] != NULL && !d->acked && !round->over) {
            track_event(&d->track[ROUTE_BACKUP], TRACK_OPENED);
        }
    }
}

void round_ended_elsewhere(struct round *round) {
    if (!round->over) {
        round_end_attempts(round);
    }
    if (round->state == ROUND_OPEN) {
        lane_settle(round->lane, round); /* its answer tells how it ended */
    }
}

/* Takes a track out of everything that points at it; its slot, if it has one, is given back by the caller. */
static bool detach(struct track *track, struct endpoint *endpoint) {
    struct round *round = track->delivery->round;
    ev_timer_stop(round->coordinator->loop, &track->timer);
    if (track->state == TRACK_QUEUED) {
        endpoint_leave(endpoint, track);
    }
    lane_forget_track(track);
    bool has_slot = track->state == TRACK_RESERVING || track->state == TRACK_LOADING;
    track->state = TRACK_ENDED;
    return has_slot;
}

void round_drop(struct round *round) {
    struct coordinator *coordinator = round->coordinator;
    unsigned slots = 0;
    ev_timer_stop(coordinator->loop, &round->timer);
    lane_forget_round(round->lane, round);
    if (HASH_COUNT(coordinator->rounds) >= coordinator->settings.max_rounds) {
        coordinator->work = true; /* room for another one */
    }
    HASH_DEL(coordinator->rounds, round);
    for (struct delivery *d = round->deliveries, *next; d != NULL; d = next) {
        next = d->next;
        for (int r = 0; r < ROUTE_COUNT; r++) {
            struct endpoint *endpoint = d->node->route[r];
            /* No queue holds a track of this delivery while its slot goes to the next one. */
            if (endpoint != NULL && detach(&d->track[r], endpoint)) {
                slots++;
                endpoint_give_back(&coordinator->nodes, endpoint);
            }
        }
        free(d);
    }
    if (slots > 0) {
        log_event(LOG_DEBUG, "round_dropped", "round_no=%lld slots=%u", (long long)round->round_no, slots);
    }
    free(round);
}
