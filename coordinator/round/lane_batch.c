/* Builds the next batch of a lane from what has piled up, and takes one back whose fate is unknown. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/crash.h"
#include "base/log.h"
#include "round/coordinator.h"
#include "round/lane.h"

/* Envelopes in memory at once, unless a single one is larger: further ones are read when requests have ended. */
static const size_t PARCEL_BYTES_MAX = 256 * 1024 * 1024;
static const size_t LOAD_BYTES_MAX =
    8 * 1024 * 1024; /* of envelopes read in one batch, unless a single one is larger */
/* A round whose escalation or settling the database refuses for a lasting reason is looked at again after this long. */
static const double GIVEN_UP_PAUSE_S = 1.0;
enum { CLAIM_MAX = 80, CLAIM_HASTY_MAX = 16, OWNED_MAX = 500, SETTLE_MAX = 1000 };

/* Where a build for tests may end behind a batch that was sent. */
static void sent(const struct lane *lane) {
    static const char *const POINTS[LANE_STEP_COUNT] = {
        [LANE_RECORD] = "record_sent", [LANE_RESERVE] = "reserve_sent", [LANE_ESCALATE] = "escalate_sent",
        [LANE_SETTLE] = "settle_sent", [LANE_RELEASE] = "release_sent", [LANE_CLAIM] = "claim_sent"};
    for (size_t i = 0; i < lane->batch.step_count; i++) {
        if (POINTS[lane->batch.steps[i]] != NULL) {
            crash_point(POINTS[lane->batch.steps[i]]);
        }
    }
}

static void add_step(struct lane *lane, enum lane_step step) {
    lane->batch.steps[lane->batch.step_count++] = step;
}

static bool add_records(struct lane *lane, size_t *room) {
    size_t count = lane->records.count < *room ? lane->records.count : *room;
    if (count == 0) {
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        records_add(&lane->batch.records, &lane->records.items[i]);
    }
    lane->records.count -= count;
    memmove(lane->records.items, lane->records.items + count, lane->records.count * sizeof *lane->records.items);
    *room -= count;
    lane->urgent = lane->records.count > 0;
    ev_timer_stop(lane->coordinator->loop, &lane->patience);
    add_step(lane, LANE_RECORD);
    return worker_send_record(lane->session, &lane->scratch, lane->coordinator->instance,
                              coordinator_time(lane->coordinator) >= lane->quiet_until, lane->batch.records.items,
                              count);
}

static bool add_reserves(struct lane *lane, size_t *room) {
    if (lane->reserves == NULL || *room == 0) {
        return true;
    }
    lane->batch.reserves = lane_memory(lane->batch.reserves, *room * sizeof *lane->batch.reserves);
    while (lane->reserves != NULL && *room > 0) {
        struct track *track = lane->reserves;
        lane_forget_track(track);
        lane->batch.reserves[lane->batch.reserve_count++] = track_key(track);
        --*room;
    }
    add_step(lane, LANE_RESERVE);
    return worker_send_reserve(lane->session, &lane->scratch, lane->coordinator->instance, lane->batch.reserves,
                               lane->batch.reserve_count);
}

static bool add_escalates(struct lane *lane, size_t *room) {
    if (lane->escalates == NULL || *room == 0) {
        return true;
    }
    lane->batch.escalates = lane_memory(lane->batch.escalates, *room * sizeof *lane->batch.escalates);
    while (lane->escalates != NULL && *room > 0) {
        struct round *round = lane->escalates;
        DL_DELETE2(lane->escalates, round, prev_escalate, next_escalate);
        round->prev_escalate = NULL;
        lane->batch.escalates[lane->batch.escalate_count++] = round->round_no;
        --*room;
    }
    add_step(lane, LANE_ESCALATE);
    return worker_send_escalate(lane->session, &lane->scratch, lane->coordinator->instance, lane->batch.escalates,
                                lane->batch.escalate_count);
}

static bool add_settles(struct lane *lane, size_t *room) {
    if (lane->settles == NULL || *room == 0) {
        return true;
    }
    size_t most = *room > 1 ? SETTLE_MAX : 1;
    lane->batch.settles = lane_memory(lane->batch.settles, most * sizeof *lane->batch.settles);
    while (lane->settles != NULL && lane->batch.settle_count < most) {
        struct round *round = lane->settles;
        DL_DELETE2(lane->settles, round, prev_settle, next_settle);
        round->prev_settle = NULL;
        lane->batch.settles[lane->batch.settle_count++] = round->round_no;
    }
    *room -= 1;
    add_step(lane, LANE_SETTLE);
    return worker_send_settle(lane->session, &lane->scratch, lane->coordinator->instance,
                              coordinator_time(lane->coordinator) >= lane->quiet_until, lane->batch.settles,
                              lane->batch.settle_count);
}

/* Draining: rounds go to peers one by one, each as soon as nothing of it is under way here. */
static bool add_releases(struct lane *lane, size_t *room) {
    struct coordinator *c = lane->coordinator;
    size_t most = *room > 1 ? SETTLE_MAX : *room;
    if (!c->draining || most == 0) {
        return true;
    }
    lane->batch.releases = lane_memory(lane->batch.releases, most * sizeof *lane->batch.releases);
    for (struct round *round = c->rounds; round != NULL && lane->batch.release_count < most; round = round->hh.next) {
        if (round->lane == lane && round_releasable(round)) {
            round->ask_release = true;
            lane->batch.releases[lane->batch.release_count++] = round->round_no;
        }
    }
    if (lane->batch.release_count == 0) {
        return true;
    }
    *room -= 1;
    add_step(lane, LANE_RELEASE);
    return worker_send_release(lane->session, &lane->scratch, c->instance, coordinator_time(c) >= lane->quiet_until,
                               lane->batch.releases, lane->batch.release_count);
}

/* A claim under way keeps its slots for itself, however long its answer takes: some are left for retries. */
static int32_t claim_of_slots(unsigned slots) {
    unsigned most = slots - slots * 3 / 8;
    return most < CLAIM_MAX ? (int32_t)most : CLAIM_MAX;
}

static bool add_claim(struct lane *lane, size_t room) {
    struct coordinator *c = lane->coordinator;
    if (lane->owned_wanted && room > 0) {
        lane->batch.reads_owned = true;
        lane->batch.owned_after = lane->owned_after;
        lane->owned_wanted = false; /* whoever wants more from now on says so anew */
        add_step(lane, LANE_OWNED);
        return worker_send_owned(lane->session, c->instance, lane->owned_after, OWNED_MAX);
    }
    if (c->haste == HASTE_RESERVE && lane->batch.reserve_count > 0) {
        c->haste = HASTE_NONE;
        return true; /* the next claim goes behind them, or through the other lane */
    }
    if (!c->work || c->claiming || c->draining || room == 0) {
        return true;
    }
    bool hasty = c->haste == HASTE_CLAIM;
    size_t held = HASH_COUNT(c->rounds), left = held < c->settings.max_rounds ? c->settings.max_rounds - held : 0;
    size_t busy_count, versions = HASH_COUNT(c->nodes.nodes);
    int32_t *busy = lane_memory(NULL, (versions + 1) * sizeof *busy);
    int32_t claim_max = hasty ? CLAIM_HASTY_MAX : claim_of_slots(c->nodes.slots_per_endpoint);
    int32_t most = node_book_room(&c->nodes, coordinator_time(c), claim_max, busy, versions, &busy_count);
    if (most == 0 || (!hasty && most < node_book_worth(&c->nodes, claim_max / 2))) {
        free(busy);
        return true; /* not worth a claim: more slots are about to become free */
    }
    c->claiming = lane->claiming = lane->batch.claims = true;
    lane->owned_seen = c->owned_merged;
    c->work = false; /* whatever comes from now on is told anew */
    c->haste = hasty ? HASTE_RESERVE : c->haste;
    /* With no room left for other rounds, own ones still get their new envelopes. */
    lane->batch.claim_max = left < (size_t)most ? (int32_t)left : most;
    lane->batch.claim_slots = most;
    node_book_pledge(&c->nodes, (unsigned)most);
    add_step(lane, LANE_CLAIM);
    bool sent =
        worker_send_claim(lane->session, &lane->scratch, c->instance, lane->batch.claim_max, most, busy, busy_count);
    free(busy);
    return sent;
}

/* The envelopes of attempts that are committed, and of those that this batch commits. */
static bool add_loads(struct lane *lane) {
    const struct coordinator *c = lane->coordinator;
    size_t bytes = 0, most = lane->batch.reserve_count;
    size_t room = c->parcel_bytes < PARCEL_BYTES_MAX ? PARCEL_BYTES_MAX - c->parcel_bytes : 0;
    struct track *track, *next;
    room = room < LOAD_BYTES_MAX ? room : LOAD_BYTES_MAX;
    DL_FOREACH(lane->loads, track) {
        most++;
    }
    lane->batch.loads = lane_memory(lane->batch.loads, (most + 1) * sizeof *lane->batch.loads);
    DL_FOREACH_SAFE(lane->loads, track, next) {
        bytes += (size_t)track->delivery->payload_bytes;
        if (bytes > room && lane->batch.load_count + c->parcel_count > 0) {
            break;
        }
        lane_forget_track(track);
        lane->batch.loads[lane->batch.load_count++] = track_key(track);
    }
    for (size_t i = 0; i < lane->batch.reserve_count && bytes <= room; i++) {
        const struct track *reserved = round_track(lane->coordinator, &lane->batch.reserves[i]);
        bytes += reserved != NULL ? (size_t)reserved->delivery->payload_bytes : 0;
        if (reserved != NULL && bytes <= room) {
            lane->batch.loads[lane->batch.load_count++] = lane->batch.reserves[i];
        }
    }
    if (lane->batch.load_count == 0) {
        return true;
    }
    add_step(lane, LANE_LOAD);
    return worker_send_envelopes(lane->session, &lane->scratch, lane->batch.loads, lane->batch.load_count) &&
           db_session_sync(lane->session);
}

static bool add_nodes(struct lane *lane) {
    int32_t *versions = lane_memory(NULL, (lane->work.count + 1) * sizeof *versions);
    size_t count = 0;
    for (size_t i = 0; i < lane->work.count; i++) {
        const struct work_row *row = &lane->work.rows[i];
        if (row->node_id == 0 || node_find(&lane->coordinator->nodes, row->node_version) != NULL) {
            continue;
        }
        bool known = false;
        for (size_t k = 0; k < count && !known; k++) {
            known = versions[k] == row->node_version;
        }
        if (!known) {
            versions[count++] = row->node_version;
        }
    }
    add_step(lane, LANE_NODES);
    bool sent =
        worker_send_node_versions(lane->session, &lane->scratch, versions, count) && db_session_sync(lane->session);
    free(versions);
    return sent;
}

bool lane_build(struct lane *lane) {
    size_t room = lane->limit;
    lane->batch.under_way = true;
    lane->batch.began = coordinator_time(lane->coordinator);
    if (lane->work.result != NULL) {
        return add_nodes(lane);
    }
    lane->batch.commits = true; /* from the first statement on, all of it is taken back if something fails */
    if (!add_records(lane, &room) || !add_reserves(lane, &room) || !add_escalates(lane, &room) ||
        !add_settles(lane, &room) || !add_releases(lane, &room) || !add_claim(lane, room)) {
        return false;
    }
    lane->batch.commits = lane->batch.step_count > 0;
    if ((lane->batch.commits && !db_session_sync(lane->session)) || !add_loads(lane)) {
        return false;
    }
    sent(lane);
    if (lane->batch.step_count == 0) {
        lane_clear_batch(lane); /* nothing to do after all */
    }
    return true;
}

void lane_give_up(struct lane *lane) {
    struct coordinator *c = lane->coordinator;
    int64_t round_no = 0;
    struct round *round;
    if (lane->batch.records.count > 0) {
        round_no = lane->batch.records.items[0].key.round_no;
        round = round_find(c, round_no);
        if (round != NULL && round->serial == lane->batch.records.items[0].counted_by) {
            round->unrecorded--; /* its attempt stays without an outcome, and a node without an ack: it fails closed */
        }
        lane->batch.records.count = 0;
    } else if (lane->batch.reserve_count > 0) {
        struct track *track = round_track(c, &lane->batch.reserves[0]);
        round_no = lane->batch.reserves[0].round_no;
        if (track != NULL && track->state == TRACK_RESERVING) {
            track_event(track, TRACK_DENIED);
        }
        lane->batch.reserve_count = 0;
    } else if (lane->batch.escalate_count + lane->batch.settle_count > 0) {
        round_no = lane->batch.escalate_count > 0 ? lane->batch.escalates[0] : lane->batch.settles[0];
        bool escalates = lane->batch.escalate_count > 0;
        round = round_find(c, round_no);
        if (round != NULL && lane_asked(lane, round, escalates)) {
            *(escalates ? &round->ask_escalate : &round->ask_settle) = false;
            round_look_in(round, GIVEN_UP_PAUSE_S);
        }
        lane->batch.escalate_count = lane->batch.settle_count = 0;
    } else if (lane->batch.release_count > 0) {
        round_no = lane->batch.releases[0];
        if ((round = round_find(c, round_no)) != NULL) {
            round->ask_release = false;
            round->release_at = coordinator_time(c) + GIVEN_UP_PAUSE_S; /* leaving gives it back, too */
        }
        lane->batch.release_count = 0;
    }
    if (told_news(&lane->told, "given_up", TOLD_PAUSE_US)) {
        log_event(LOG_ERROR, "given_up", "round_no=%lld sqlstate=%s", (long long)round_no, lane->batch.sqlstate);
    }
}

static void requeue_tracks(struct lane *lane, const struct attempt_key *keys, size_t count, enum track_state expected) {
    for (size_t i = 0; i < count; i++) {
        struct track *track = round_track(lane->coordinator, &keys[i]);
        if (track != NULL && track->state == expected && track->attempt == keys[i].attempt) {
            track_event(track, TRACK_AGAIN);
        }
    }
}

void lane_requeue(struct lane *lane) {
    struct coordinator *c = lane->coordinator;
    bool unanswered = lane->batch.commits && (!lane->batch.sync_seen || lane->batch.failed);
    if (unanswered) {
        for (size_t i = 0; i < lane->batch.records.count; i++) {
            records_add(&lane->records, &lane->batch.records.items[i]);
        }
        lane->urgent = lane->records.count > 0;
        requeue_tracks(lane, lane->batch.reserves, lane->batch.reserve_count, TRACK_RESERVING);
        for (size_t i = 0; i < lane->batch.escalate_count; i++) {
            struct round *round = round_find(c, lane->batch.escalates[i]);
            if (round != NULL && lane_asked(lane, round, true)) {
                round->ask_escalate = false;
                lane_escalate(lane, round);
            }
        }
        for (size_t i = 0; i < lane->batch.settle_count; i++) {
            struct round *round = round_find(c, lane->batch.settles[i]);
            if (round != NULL && lane_asked(lane, round, false)) {
                round->ask_settle = false;
                lane_settle(lane, round);
            }
        }
        for (size_t i = 0; i < lane->batch.release_count; i++) {
            struct round *round = round_find(c, lane->batch.releases[i]);
            if (round != NULL) {
                round->ask_release = false;
            }
        }
        c->work = c->work || lane->batch.claims;
        if (lane->batch.reads_owned) {
            lane_read_owned(lane, lane->batch.owned_after);
        }
    }
    requeue_tracks(lane, lane->batch.loads, lane->batch.load_count, TRACK_LOADING);
    lane_clear_batch(lane);
}
