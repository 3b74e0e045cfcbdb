/* Takes tracks through the state table and carries out its actions. */
#include <sodium.h>

#include "base/log.h"
#include "round/coordinator.h"
#include "round/courier.h"

struct attempt_key track_key(const struct track *track) {
    return (struct attempt_key){.round_no = track->delivery->round->round_no,
                                .node_id = track->delivery->node_id,
                                .attempt = track->attempt,
                                .route = track->route};
}

static struct endpoint *track_endpoint(const struct track *track) {
    return track->delivery->node->route[track->route];
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    track_event(watcher->data, TRACK_DUE);
}

static void timer_start(struct track *track, double after_s) {
    struct ev_loop *loop = track->delivery->round->coordinator->loop;
    ev_timer_stop(loop, &track->timer);
    ev_timer_init(&track->timer, on_timer, after_s, 0.);
    track->timer.data = track;
    ev_timer_start(loop, &track->timer);
}

static void begin_wait(struct track *track) {
    if (track->wait_us > 0) {
        timer_start(track, (double)track->wait_us / 1e6);
    } else {
        track_event(track, TRACK_DUE);
    }
}

/* Says of the current attempt, whose row may exist and which is not sent any more, what is known of it. */
static void record_not_sent(struct track *track) {
    struct attempt_record record = {
        .key = track_key(track), .outcome = track->resend ? OUTCOME_IN_DOUBT : OUTCOME_UNSENT, .retry_us = -1};
    track->resend = false;
    lane_record(track->delivery->round->lane, &record);
}

void track_event(struct track *track, enum track_event event) {
    struct round *round = track->delivery->round;
    struct coordinator *coordinator = round->coordinator;
    enum track_state before = track->state;
    const struct track_edge *edge = track_edge(before, event);
    track->state = edge->next;
    switch (edge->action) {
    case TRACK_NOTHING:
    case TRACK_SEND: /* track_loaded() has the envelope */
        break;
    case TRACK_WAIT:
        begin_wait(track);
        return;
    case TRACK_QUEUE:
        endpoint_join(&coordinator->nodes, track_endpoint(track), track);
        return;
    case TRACK_RESERVE:
        lane_reserve(round->lane, track);
        return;
    case TRACK_LOAD:
        lane_load(round->lane, track);
        return;
    case TRACK_GIVE_BACK: /* denied: its row may be there all the same, from a predecessor or from a batch that was lost
                           */
        lane_forget_track(track);
        record_not_sent(track);
        endpoint_give_back(&coordinator->nodes, track_endpoint(track));
        break;
    case TRACK_UNSENT:
        lane_forget_track(track);
        metrics_not_sent(&coordinator->metrics, track->route, track->resend ? OUTCOME_IN_DOUBT : OUTCOME_UNSENT);
        record_not_sent(track);
        endpoint_give_back(&coordinator->nodes, track_endpoint(track));
        break;
    case TRACK_STEP_BACK:
        lane_forget_track(track);
        begin_wait(track); /* before the slot goes to the next one, which may be this one */
        endpoint_give_back(&coordinator->nodes, track_endpoint(track));
        break;
    case TRACK_CANCEL:
        ev_timer_stop(coordinator->loop, &track->timer);
        if (before == TRACK_QUEUED) {
            endpoint_leave(track_endpoint(track), track);
        }
        if (track->resend) {
            metrics_not_sent(&coordinator->metrics, track->route, OUTCOME_IN_DOUBT);
            record_not_sent(track);
        }
        break;
    case TRACK_IMPOSSIBLE:
        log_event(LOG_ERROR, "impossible", "round_no=%lld node=%d route=%s state=%s on=%s", (long long)round->round_no,
                  track->delivery->node_id, route_name(track->route), track_state_name(before),
                  track_event_name(event));
        break;
    }
}

void track_loaded(struct track *track, const unsigned char *payload, size_t size) {
    struct round *round = track->delivery->round;
    lane_forget_track(track);
    if (!round->over && coordinator_time(round->coordinator) >= round->deadline_at) {
        round_end_attempts(round); /* no attempt starts after the deadline, however long the database took */
    }
    if (round->over && track->state == TRACK_LOADING) {
        track_event(track, TRACK_STOPPED); /* the round ended while its reservation was under way */
    }
    bool send = track_edge(track->state, TRACK_LOADED)->action == TRACK_SEND;
    track_event(track, TRACK_LOADED);
    if (send) {
        track->resend = false;
        courier_send(track, payload, size);
    }
}
