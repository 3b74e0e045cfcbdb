/* The state table of a route: every edge, written down a second time, and what must hold on every path through it. */
#include "unit.h"

#include <stdbool.h>
#include <string.h>

#include "round/track.h"

/* Every edge that can be taken; all others are mistakes of the program and leave the state as it is. */
static const struct {
    enum track_state from;
    enum track_event on;
    enum track_state next;
    enum track_action action;
} EXPECTED[] = {
    {TRACK_CLOSED, TRACK_OPENED, TRACK_WAITING, TRACK_WAIT},
    {TRACK_CLOSED, TRACK_LOADED, TRACK_CLOSED, TRACK_NOTHING},
    {TRACK_CLOSED, TRACK_STOPPED, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_CLOSED, TRACK_NODE_ACKED, TRACK_ENDED, TRACK_NOTHING},

    {TRACK_WAITING, TRACK_OPENED, TRACK_WAITING, TRACK_NOTHING},
    {TRACK_WAITING, TRACK_DUE, TRACK_QUEUED, TRACK_QUEUE},
    {TRACK_WAITING, TRACK_LOADED, TRACK_WAITING, TRACK_NOTHING},
    {TRACK_WAITING, TRACK_STOPPED, TRACK_ENDED, TRACK_CANCEL},
    {TRACK_WAITING, TRACK_NODE_ACKED, TRACK_ENDED, TRACK_CANCEL},

    {TRACK_QUEUED, TRACK_OPENED, TRACK_QUEUED, TRACK_NOTHING},
    {TRACK_QUEUED, TRACK_SLOT, TRACK_RESERVING, TRACK_RESERVE},
    {TRACK_QUEUED, TRACK_LOADED, TRACK_QUEUED, TRACK_NOTHING},
    {TRACK_QUEUED, TRACK_STOPPED, TRACK_ENDED, TRACK_CANCEL},
    {TRACK_QUEUED, TRACK_NODE_ACKED, TRACK_ENDED, TRACK_CANCEL},

    {TRACK_RESERVING, TRACK_OPENED, TRACK_RESERVING, TRACK_NOTHING},
    {TRACK_RESERVING, TRACK_GRANTED, TRACK_LOADING, TRACK_LOAD},
    {TRACK_RESERVING, TRACK_DENIED, TRACK_ENDED, TRACK_GIVE_BACK},
    {TRACK_RESERVING, TRACK_AGAIN, TRACK_RESERVING, TRACK_RESERVE},
    {TRACK_RESERVING, TRACK_LOCKED, TRACK_WAITING, TRACK_STEP_BACK},
    {TRACK_RESERVING, TRACK_STOPPED, TRACK_RESERVING, TRACK_NOTHING},
    {TRACK_RESERVING, TRACK_NODE_ACKED, TRACK_RESERVING, TRACK_NOTHING},

    {TRACK_LOADING, TRACK_OPENED, TRACK_LOADING, TRACK_NOTHING},
    {TRACK_LOADING, TRACK_AGAIN, TRACK_LOADING, TRACK_LOAD},
    {TRACK_LOADING, TRACK_LOADED, TRACK_SENDING, TRACK_SEND},
    {TRACK_LOADING, TRACK_MISSING, TRACK_ENDED, TRACK_UNSENT},
    {TRACK_LOADING, TRACK_STOPPED, TRACK_ENDED, TRACK_UNSENT},
    {TRACK_LOADING, TRACK_NODE_ACKED, TRACK_LOADING, TRACK_NOTHING},

    {TRACK_SENDING, TRACK_OPENED, TRACK_SENDING, TRACK_NOTHING},
    {TRACK_SENDING, TRACK_AGAIN, TRACK_SENDING, TRACK_NOTHING},
    {TRACK_SENDING, TRACK_LOADED, TRACK_SENDING, TRACK_NOTHING},
    {TRACK_SENDING, TRACK_MISSING, TRACK_SENDING, TRACK_NOTHING},
    {TRACK_SENDING, TRACK_FAILED, TRACK_WAITING, TRACK_WAIT},
    {TRACK_SENDING, TRACK_FINISHED, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_SENDING, TRACK_STOPPED, TRACK_SENDING, TRACK_NOTHING},
    {TRACK_SENDING, TRACK_NODE_ACKED, TRACK_SENDING, TRACK_NOTHING},

    {TRACK_ENDED, TRACK_OPENED, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_ENDED, TRACK_AGAIN, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_ENDED, TRACK_LOADED, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_ENDED, TRACK_MISSING, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_ENDED, TRACK_STOPPED, TRACK_ENDED, TRACK_NOTHING},
    {TRACK_ENDED, TRACK_NODE_ACKED, TRACK_ENDED, TRACK_NOTHING},
};

static void every_edge(void **state) {
    (void)state;
    for (int from = 0; from < TRACK_STATE_COUNT; from++) {
        for (int on = 0; on < TRACK_EVENT_COUNT; on++) {
            enum track_state next = (enum track_state)from;
            enum track_action action = TRACK_IMPOSSIBLE;
            for (size_t i = 0; i < COUNT(EXPECTED); i++) {
                if ((int)EXPECTED[i].from == from && (int)EXPECTED[i].on == on) {
                    next = EXPECTED[i].next;
                    action = EXPECTED[i].action;
                }
            }
            const struct track_edge *edge = track_edge((enum track_state)from, (enum track_event)on);
            if (edge->next != next || edge->action != action) {
                fail_msg("%s on %s: to %s with action %d, expected %s with action %d",
                         track_state_name((enum track_state)from), track_event_name((enum track_event)on),
                         track_state_name(edge->next), edge->action, track_state_name(next), action);
            }
        }
    }
}

static void every_edge_says_why(void **state) {
    (void)state;
    for (int from = 0; from < TRACK_STATE_COUNT; from++) {
        for (int on = 0; on < TRACK_EVENT_COUNT; on++) {
            const struct track_edge *edge = track_edge((enum track_state)from, (enum track_event)on);
            assert_non_null(edge->why);
            assert_true(strlen(edge->why) > 5);
            assert_in_range(edge->next, 0, TRACK_STATE_COUNT - 1);
        }
    }
}

static void every_name_is_its_own(void **state) {
    (void)state;
    for (int i = 0; i < TRACK_STATE_COUNT; i++) {
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(track_state_name((enum track_state)i), track_state_name((enum track_state)k));
        }
    }
    for (int i = 0; i < TRACK_EVENT_COUNT; i++) {
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(track_event_name((enum track_event)i), track_event_name((enum track_event)k));
        }
    }
}

static void an_ended_route_stays_ended(void **state) {
    (void)state;
    for (int on = 0; on < TRACK_EVENT_COUNT; on++) {
        const struct track_edge *edge = track_edge(TRACK_ENDED, (enum track_event)on);
        assert_int_equal(edge->next, TRACK_ENDED);
        assert_true(edge->action == TRACK_NOTHING || edge->action == TRACK_IMPOSSIBLE);
    }
}

static void nothing_but_a_loaded_attempt_is_sent(void **state) {
    (void)state;
    for (int from = 0; from < TRACK_STATE_COUNT; from++) {
        for (int on = 0; on < TRACK_EVENT_COUNT; on++) {
            const struct track_edge *edge = track_edge((enum track_state)from, (enum track_event)on);
            bool sends = from == TRACK_LOADING && on == TRACK_LOADED;
            assert_int_equal(edge->action == TRACK_SEND, sends);
            assert_int_equal(edge->next == TRACK_SENDING && from != TRACK_SENDING, sends);
        }
    }
}

/* A route, and what a careful observer knows of it besides its state. */
struct world {
    enum track_state state;
    int grants;  /* committed attempts that were neither sent nor recorded as unsent */
    int slots;   /* held by the route itself; the slot of a request goes with the request */
    bool timer;  /* runs */
    bool queued; /* stands in its endpoint's queue */
};

static void check_world(const struct world *w) {
    bool has_slot = w->state == TRACK_RESERVING || w->state == TRACK_LOADING;
    assert_int_equal(w->slots, has_slot);
    assert_int_equal(w->grants, w->state == TRACK_LOADING);
    assert_int_equal(w->timer, w->state == TRACK_WAITING);
    assert_int_equal(w->queued, w->state == TRACK_QUEUED);
}

/* Events that are impossible are tried as well: they must change nothing. */
static struct world step(struct world w, enum track_event event) {
    const struct track_edge *edge = track_edge(w.state, event);
    if (edge->action == TRACK_IMPOSSIBLE) {
        assert_int_equal(edge->next, w.state);
        return w;
    }
    w.timer = w.timer && event != TRACK_DUE;
    w.queued = w.queued && event != TRACK_SLOT;
    w.slots += event == TRACK_SLOT;
    w.grants += event == TRACK_GRANTED;
    switch (edge->action) {
    case TRACK_WAIT:
        w.timer = true;
        break;
    case TRACK_QUEUE:
        w.queued = true;
        break;
    case TRACK_CANCEL:
        w.timer = w.queued = false;
        break;
    case TRACK_SEND: /* the slot is the courier's from here on, who gives it back */
        assert_int_equal(w.grants, 1);
        w.grants--;
        w.slots--;
        break;
    case TRACK_UNSENT:
        assert_int_equal(w.grants, 1);
        w.grants--;
        w.slots--;
        break;
    case TRACK_GIVE_BACK:
        w.slots--;
        break;
    case TRACK_STEP_BACK: /* a locked round keeps no slot */
        w.slots--;
        w.timer = true;
        break;
    case TRACK_RESERVE:
    case TRACK_LOAD:
        assert_int_equal(w.slots, 1); /* the database is asked for nothing without a slot */
        break;
    case TRACK_NOTHING:
    case TRACK_IMPOSSIBLE:
        break;
    }
    w.state = edge->next;
    check_world(&w);
    return w;
}

/* All that can happen from `start`, whatever the order and length: each world is visited once. */
static void explore(struct world start, bool reached[TRACK_STATE_COUNT]) {
    struct world todo[TRACK_STATE_COUNT];
    size_t count = 0;
    memset(reached, 0, TRACK_STATE_COUNT * sizeof *reached);
    check_world(&start);
    todo[count++] = start;
    reached[start.state] = true;
    while (count > 0) {
        struct world w = todo[--count];
        for (int on = 0; on < TRACK_EVENT_COUNT; on++) {
            struct world next = step(w, (enum track_event)on);
            /* check_world: the state tells all the rest, so a state that was reached was explored. */
            if (!reached[next.state]) {
                reached[next.state] = true;
                todo[count++] = next;
            }
        }
    }
}

static void slots_grants_timers_and_queues_on_every_path(void **state) {
    (void)state;
    bool reached[TRACK_STATE_COUNT];
    explore((struct world){.state = TRACK_CLOSED}, reached);
    for (int s = 0; s < TRACK_STATE_COUNT; s++) {
        assert_true(reached[s]);
    }
    /* The claim reserves the first attempt; a lost batch may have reserved any. */
    explore((struct world){.state = TRACK_LOADING, .grants = 1, .slots = 1}, reached);
    for (int s = 0; s < TRACK_STATE_COUNT; s++) {
        assert_int_equal(reached[s], s != TRACK_CLOSED);
    }
}

/* The states that can be reached from `start` without one of the events. */
static void reach_without(enum track_state start, enum track_event barred, bool reached[TRACK_STATE_COUNT]) {
    memset(reached, 0, TRACK_STATE_COUNT * sizeof *reached);
    reached[start] = true;
    for (int round = 0; round < TRACK_STATE_COUNT; round++) {
        for (int from = 0; from < TRACK_STATE_COUNT; from++) {
            for (int on = 0; reached[from] && on < TRACK_EVENT_COUNT; on++) {
                if (on != (int)barred) {
                    reached[track_edge((enum track_state)from, (enum track_event)on)->next] = true;
                }
            }
        }
    }
}

static void what_comes_before_a_request(void **state) {
    (void)state;
    static const enum track_event needed[] = {TRACK_OPENED, TRACK_DUE, TRACK_SLOT, TRACK_GRANTED, TRACK_LOADED};
    bool reached[TRACK_STATE_COUNT];
    for (size_t i = 0; i < COUNT(needed); i++) {
        reach_without(TRACK_CLOSED, needed[i], reached);
        assert_false(reached[TRACK_SENDING]);
    }
    /* And again before the next one, after a request that failed. */
    for (size_t i = 1; i < COUNT(needed); i++) {
        reach_without(track_edge(TRACK_SENDING, TRACK_FAILED)->next, needed[i], reached);
        assert_false(reached[TRACK_SENDING]);
    }
}

static void a_stopped_route_ends_or_is_awaited(void **state) {
    (void)state;
    for (int from = 0; from < TRACK_STATE_COUNT; from++) {
        enum track_state next = track_edge((enum track_state)from, TRACK_STOPPED)->next;
        bool is_awaited = from == TRACK_RESERVING || from == TRACK_SENDING;
        assert_int_equal(next, is_awaited ? (enum track_state)from : TRACK_ENDED);
        assert_int_not_equal(track_edge((enum track_state)from, TRACK_STOPPED)->action, TRACK_IMPOSSIBLE);
        assert_int_not_equal(track_edge((enum track_state)from, TRACK_NODE_ACKED)->action, TRACK_IMPOSSIBLE);
    }
    /* What is awaited comes, and ends it. */
    assert_int_equal(track_edge(TRACK_RESERVING, TRACK_DENIED)->next, TRACK_ENDED);
    assert_int_equal(track_edge(TRACK_SENDING, TRACK_FINISHED)->next, TRACK_ENDED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edge),
        cmocka_unit_test(every_edge_says_why),
        cmocka_unit_test(every_name_is_its_own),
        cmocka_unit_test(an_ended_route_stays_ended),
        cmocka_unit_test(nothing_but_a_loaded_attempt_is_sent),
        cmocka_unit_test(slots_grants_timers_and_queues_on_every_path),
        cmocka_unit_test(what_comes_before_a_request),
        cmocka_unit_test(a_stopped_route_ends_or_is_awaited),
    };
    return cmocka_run_group_tests_name("track", tests, NULL, NULL);
}
