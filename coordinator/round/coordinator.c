/* A running coordinator: it starts and stops the parts, and turns the loop's turns into batches. */
#include "round/coordinator.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "round/courier.h"

/* After the requests have ended, outcomes are awaited for so long before the database is given up. */
static const double DRAIN_DATABASE_S = 5.0;
/* libcurl's cache counts connections in use as well. */
static const long CONNECTIONS_KEPT = 4096;

/* Every join has an instance id of its own: a version 4 UUID. */
static void draw_instance_id(struct coordinator *c) {
    unsigned char b[16];
    randombytes_buf(b, sizeof b);
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(c->instance_id, sizeof c->instance_id,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
             b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    /* Whoever fences this instance finds its sessions by this name. */
    snprintf(c->application_name, sizeof c->application_name, "quorate %s", c->instance_id);
}

static bool drained(const struct coordinator *c) {
    bool idle = c->parcel_count == 0;
    for (int i = 0; i < LANE_COUNT; i++) {
        idle = idle && lane_idle(&c->lanes[i]);
    }
    return idle;
}

/* Says once per instance that it has joined and all its sessions are connected: what /readyz says, too. */
static void announce(struct coordinator *c) {
    char name[256 * 2], deployment[ROUND_ID_MAX + 3];
    if (c->announced || !coordinator_ready(c)) {
        return;
    }
    c->announced = true;
    log_event(LOG_INFO, "ready", "name=%s instance=%s number=%d deployment=%s",
              log_quote(c->settings.name, name, sizeof name), c->instance_id, c->instance,
              log_quote(c->deployment_id, deployment, sizeof deployment));
}

static void on_prepare(struct ev_loop *loop, ev_prepare *watcher, int events) {
    (void)loop, (void)events;
    struct coordinator *c = watcher->data;
    announce(c);
    for (int i = 0; i < LANE_COUNT; i++) {
        lane_turn(&c->lanes[i]);
    }
    if (c->draining && !c->left && drained(c)) {
        if (c->instance == 0) {
            c->left = true;
            ev_break(loop, EVBREAK_ALL);
        } else {
            beat_leave(&c->beat);
        }
    }
    if (c->turn_began > 0) {
        metrics_lag(&c->metrics, (double)clock_monotonic_us() / 1e6 - c->turn_began);
    }
}

static void on_check(struct ev_loop *loop, ev_check *watcher, int events) {
    (void)loop, (void)events;
    struct coordinator *c = watcher->data;
    c->turn_began = (double)clock_monotonic_us() / 1e6;
}

static void on_drain_over(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)events;
    struct coordinator *c = watcher->data;
    if (c->parcel_count > 0) {
        ev_timer_set(watcher, DRAIN_DATABASE_S, 0.);
        ev_timer_start(loop, watcher);
        return;
    }
    log_event(LOG_WARN, "drain_incomplete", "reason=\"the database does not answer; peers take the rounds over\"");
    ev_break(loop, EVBREAK_ALL);
}

bool coordinator_start(struct coordinator *c, struct ev_loop *loop, const struct coordinator_settings *settings,
                       struct error *err) {
    static const char *const LABELS[LANE_COUNT] = {"lane1", "lane2"};
    *c = (struct coordinator){.loop = loop, .settings = *settings};
    c->nodes.slots_per_endpoint = settings->slots_per_endpoint;
    c->nodes.secrets = settings->node_secrets;
    c->nodes.pins = settings->node_pins;
    c->nodes.peers = settings->http.peers;
    metrics_start(&c->metrics);
    draw_instance_id(c);
    ev_prepare_init(&c->prepare, on_prepare);
    ev_check_init(&c->check, on_check);
    ev_set_priority(&c->prepare, EV_MINPRI); /* after whatever else still adds to the batches in this turn */
    ev_set_priority(&c->check, EV_MAXPRI);
    ev_init(&c->drain_timer, on_drain_over);
    c->prepare.data = c->check.data = c->drain_timer.data = c;
    c->http = http_client_new(loop, CONNECTIONS_KEPT, &settings->http, err);
    if (c->http == NULL) {
        return false;
    }
    for (int i = 0; i < LANE_COUNT; i++) {
        if (!lane_start(&c->lanes[i], c, LABELS[i])) {
            return error_set(err, EXIT_UNEXPECTED, "out of memory");
        }
    }
    if (!beat_start(&c->beat, c) || !ring_start(&c->ring, c) || !historian_start(&c->historian, c)) {
        return error_set(err, EXIT_UNEXPECTED, "out of memory");
    }
    ev_prepare_start(loop, &c->prepare);
    ev_check_start(loop, &c->check);
    return true;
}

static void drop_rounds(struct coordinator *c) {
    struct round *round, *next;
    c->nodes.closed = true; /* no slot given back on the way is given away again */
    HASH_ITER(hh, c->rounds, round, next) {
        round_drop(round);
    }
    c->nodes.closed = c->draining;
}

void coordinator_free(struct coordinator *c) {
    if (c->loop == NULL) {
        return;
    }
    ev_prepare_stop(c->loop, &c->prepare);
    ev_check_stop(c->loop, &c->check);
    ev_timer_stop(c->loop, &c->drain_timer);
    http_client_free(c->http);
    courier_free_parcels(c); /* no handler was called for them */
    drop_rounds(c);
    beat_free(&c->beat);
    ring_free(&c->ring);
    historian_free(&c->historian);
    for (int i = 0; i < LANE_COUNT; i++) {
        lane_free(&c->lanes[i]);
    }
    node_book_free(&c->nodes);
}

void coordinator_drain(struct coordinator *c) {
    if (c->draining) {
        return;
    }
    log_event(LOG_INFO, "draining", "requests=%zu rounds=%u", c->parcel_count, HASH_COUNT(c->rounds));
    c->draining = c->nodes.closed = true;
    crash_point("draining");
    http_client_hurry(c->http);
    ev_timer_set(&c->drain_timer, DRAIN_DATABASE_S, 0.);
    ev_timer_start(c->loop, &c->drain_timer);
}

void coordinator_take_secrets(struct coordinator *c, const struct secret_set *secrets) {
    c->settings.node_secrets = secrets;
    node_book_take_secrets(&c->nodes, secrets);
}

bool coordinator_ready(const struct coordinator *c) {
    bool ready = c->instance != 0 && db_session_ready(c->beat.session);
    for (int i = 0; i < LANE_COUNT; i++) {
        ready = ready && db_session_ready(c->lanes[i].session) && c->lanes[i].greeted;
    }
    return ready;
}

void coordinator_gauges(const struct coordinator *c, struct metrics_gauges *gauges) {
    *gauges = (struct metrics_gauges){.requests_under_way = c->parcel_count, .ready = coordinator_ready(c)};
    for (const struct round *round = c->rounds; round != NULL; round = round->hh.next) {
        gauges->rounds_held[round->state]++;
        for (const struct delivery *d = round->deliveries; d != NULL; d = d->next) {
            for (int r = 0; r < ROUTE_COUNT; r++) {
                gauges->routes_waiting += d->track[r].state == TRACK_WAITING || d->track[r].state == TRACK_QUEUED;
            }
        }
    }
    gauges->database_losses = db_session_losses(c->beat.session) + db_session_losses(c->ring.session) +
                              db_session_losses(c->historian.session);
    for (int i = 0; i < LANE_COUNT; i++) {
        gauges->database_losses += db_session_losses(c->lanes[i].session);
    }
}

double coordinator_time(const struct coordinator *c) {
    (void)c;
    return (double)clock_monotonic_us() / 1e6;
}

int64_t coordinator_now_us(const struct coordinator *c) {
    return clock_monotonic_us() + c->clock_offset_us;
}

const char *coordinator_listen_conninfo(const struct coordinator *c) {
    return c->settings.listen_conninfo != NULL ? c->settings.listen_conninfo : c->settings.conninfo;
}

void coordinator_heard_clock(struct coordinator *c, int64_t now_us) {
    c->clock_offset_us = now_us - clock_monotonic_us();
}

void coordinator_joined(struct coordinator *c, const struct joined_row *row) {
    c->instance = row->instance;
    memcpy(c->deployment_id, row->deployment_id, sizeof c->deployment_id);
    c->work = true;
    c->announced = false;
}

void coordinator_fenced(struct coordinator *c) {
    log_event(LOG_WARN, "fenced", "instance=%s rounds=%u", c->instance_id, HASH_COUNT(c->rounds));
    c->metrics.rejoins++;
    c->instance = 0;
    drop_rounds(c);
    draw_instance_id(c);
    for (int i = 0; i < LANE_COUNT; i++) {
        db_session_restart(c->lanes[i].session, "fenced: joining again", c->application_name);
    }
    beat_rejoin(&c->beat);
    ring_rejoin(&c->ring);
    historian_rejoin(&c->historian);
}
