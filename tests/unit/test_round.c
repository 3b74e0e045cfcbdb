/* Rounds in memory: how a route begins from its history in the database, what an end, an ack or an escalation does to
 * it, and that no slot, attempt or list entry is left behind. With two arguments, CONNINFO and an instance number, it
 * reads the rounds of that instance from a real database and prints what it makes of them, for a test that compares it
 * with the views. */
#include "unit.h"

#include <libpq-fe.h>
#include <stdlib.h>

#include "fake_coordinator.h"

enum { SLOTS = 8 };

static size_t listed(const struct track *list) {
    size_t count = 0;
    for (const struct track *track = list; track != NULL; track = track->next) {
        count++;
    }
    return count;
}

/* The only record that piled up in the first lane. */
static const struct attempt_record *only_record(const struct coordinator *c) {
    assert_int_equal(c->lanes[0].records.count, 1);
    return &c->lanes[0].records.items[0];
}

static void assert_record(const struct coordinator *c, int64_t round_no, enum route route, int attempt,
                          enum outcome outcome) {
    const struct attempt_record *record = only_record(c);
    assert_int_equal(record->key.round_no, round_no);
    assert_int_equal(record->key.route, route);
    assert_int_equal(record->key.attempt, attempt);
    assert_string_equal(outcome_name(record->outcome), outcome_name(outcome));
    assert_int_equal(record->key_no, 0);
    assert_true(record->retry_us < 0);
}

/* Turns the loop until the round is asked to be settled or escalated; the timers are a few milliseconds. */
static void await(struct coordinator *c, struct round **list) {
    for (int turns = 0; *list == NULL && turns < 1000; turns++) {
        ev_run(c->loop, EVRUN_ONCE);
    }
    assert_non_null(*list);
}

/* How a route stands in the database, and what it must become when its round is open, escalated or not, and ended. */
static const struct {
    struct route_row history;
    enum track_state open; /* where it goes on; wait_us <= 0 and free slots lead straight to the reservation */
    int attempt;           /* its number there */
    enum outcome closed;   /* what is said of its open attempt once the round has ended; OUTCOME_COUNT: there is none */
} HISTORIES[] = {
    {{.used = 0}, TRACK_RESERVING, 1, OUTCOME_COUNT},
    {{.used = 1, .wait_us = -5}, TRACK_RESERVING, 2, OUTCOME_COUNT},
    {{.used = 2, .wait_us = 30000000}, TRACK_WAITING, 3, OUTCOME_COUNT},
    {{.used = 3, .wait_us = 0}, TRACK_RESERVING, 4, OUTCOME_COUNT},
    {{.used = 4, .wait_us = 0}, TRACK_ENDED, 0, OUTCOME_COUNT}, /* the budget is used up */
    {{.used = 1, .refused = true}, TRACK_ENDED, 0, OUTCOME_COUNT} /* refused: no more attempts on this route */,
    {{.used = 1, .open = 1, .mine = true}, TRACK_LOADING, 1, OUTCOME_UNSENT}, /* claimed, not sent yet */
    {{.used = 3, .open = 3, .mine = true}, TRACK_LOADING, 3, OUTCOME_UNSENT},
    {{.used = 4, .open = 4, .mine = true}, TRACK_LOADING, 4, OUTCOME_UNSENT}, /* the last of the budget is one */
    {{.used = 1, .open = 1}, TRACK_RESERVING, 1, OUTCOME_IN_DOUBT}, /* a predecessor's: again, under its number */
    {{.used = 4, .open = 4}, TRACK_RESERVING, 4, OUTCOME_IN_DOUBT},
    {{.used = 2, .open = 2, .wait_us = 30000000}, TRACK_RESERVING, 2, OUTCOME_IN_DOUBT}, /* nothing to wait for */
};

static void a_primary_goes_on_from_its_history(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(HISTORIES); i++) {
        struct coordinator c;
        fake_start(&c, SLOTS);
        struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
        struct work_row row = fake_row(1, 1);
        row.route[ROUTE_PRIMARY] = HISTORIES[i].history;
        const struct track *track = &fake_merge(&c, &row)->track[ROUTE_PRIMARY];
        assert_string_equal(track_state_name(track->state), track_state_name(HISTORIES[i].open));
        assert_true(HISTORIES[i].attempt == 0 || track->attempt == HISTORIES[i].attempt);
        assert_int_equal(track->resend, HISTORIES[i].history.open != 0 && !HISTORIES[i].history.mine);
        bool has_slot = track->state == TRACK_RESERVING || track->state == TRACK_LOADING;
        assert_int_equal(endpoint->in_flight, has_slot);
        assert_int_equal(listed(c.lanes[0].reserves), track->state == TRACK_RESERVING);
        assert_int_equal(listed(c.lanes[0].loads), track->state == TRACK_LOADING);
        assert_int_equal(c.lanes[0].records.count, 0);
        assert_int_equal(track->delivery->track[ROUTE_BACKUP].state, TRACK_ENDED); /* it has none */
        fake_stop(&c);
    }
}

static void a_backup_waits_for_the_escalation(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(HISTORIES); i++) {
        for (int escalated = 0; escalated <= 1; escalated++) {
            struct coordinator c;
            fake_start(&c, SLOTS);
            assert_non_null(fake_node(&c, 1, "http://n1/", "http://b1/"));
            struct work_row row = fake_row(1, 1);
            row.escalated = escalated;
            row.route[ROUTE_PRIMARY].refused = true;
            if (escalated) {
                row.route[ROUTE_BACKUP] = HISTORIES[i].history;
            }
            struct delivery *delivery = fake_merge(&c, &row);
            const struct track *backup = &delivery->track[ROUTE_BACKUP];
            assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_ENDED);
            assert_int_equal(backup->state, escalated ? HISTORIES[i].open : TRACK_CLOSED);
            assert_null(c.lanes[0].settles); /* a primary that refused does not bar the backup */
            fake_stop(&c);
        }
    }
}

/* The ways in which no attempt may start any more, as the database tells them. */
static void ended(struct work_row *row, int way) {
    switch (way) {
    case 0:
        row->deadline_us = -1;
        break;
    case 1:
        row->state = ROUND_STALLED;
        break;
    case 2:
        row->state = ROUND_CANCELLED;
        break;
    case 3:
        row->state = ROUND_DEAD_LETTERED;
        break;
    case 4:
        row->state = ROUND_COMPLETE;
        row->stop = true;
        break;
    case 5:
        row->state = ROUND_COMPLETE;
        row->deadline_us = 0;
        break;
    default: /* the round goes on, but not to this node */
        row->acked = true;
        break;
    }
}
enum { WAYS = 7 };

static void an_end_closes_what_is_open(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < COUNT(HISTORIES); i++) {
            for (int r = 0; r < ROUTE_COUNT; r++) {
                struct coordinator c;
                fake_start(&c, SLOTS);
                const struct node *node = fake_node(&c, 1, "http://n1/", "http://b1/");
                struct work_row row = fake_row(1, 1);
                ended(&row, way);
                row.escalated = true;
                row.route[r] = HISTORIES[i].history;
                const struct delivery *delivery = fake_merge(&c, &row);
                assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_ENDED);
                assert_int_equal(delivery->track[ROUTE_BACKUP].state, TRACK_ENDED);
                assert_int_equal(node->route[r]->in_flight, 0);
                if (HISTORIES[i].closed == OUTCOME_COUNT) {
                    assert_int_equal(c.lanes[0].records.count, 0);
                } else {
                    assert_record(&c, 1, (enum route)r, HISTORIES[i].history.open, HISTORIES[i].closed);
                }
                assert_int_equal(delivery->round->unrecorded, c.lanes[0].records.count);
                fake_stop(&c);
            }
        }
    }
}

/* Its envelope came with the claim, but the deadline went by on the way. */
static void a_claimed_attempt_whose_deadline_has_passed_is_not_sent(void **state) {
    (void)state;
    static const unsigned char payload[16];
    struct coordinator c;
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", "http://b1/")->route[ROUTE_PRIMARY];
    struct work_row row = fake_row(1, 1);
    row.route[ROUTE_PRIMARY] = (struct route_row){.used = 1, .open = 1, .mine = true};
    row.payload = payload;
    row.deadline_us = 1000;
    row.now_us = coordinator_now_us(&c) - 5000;
    assert_true(round_merge(&c, &c.lanes[0], &row));
    const struct delivery *delivery = round_delivery(round_find(&c, 1), 1);
    assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_ENDED);
    assert_int_equal(delivery->track[ROUTE_BACKUP].state, TRACK_ENDED);
    assert_record(&c, 1, ROUTE_PRIMARY, 1, OUTCOME_UNSENT);
    assert_int_equal(endpoint->in_flight, 0);
    await(&c, &c.lanes[0].settles);
    fake_stop(&c);
}

static void after_the_quorum_the_rest_goes_on(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    assert_non_null(fake_node(&c, 1, "http://n1/", "http://b1/"));
    struct work_row row = fake_row(1, 1);
    row.state = ROUND_COMPLETE;
    struct delivery *delivery = fake_merge(&c, &row);
    assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_RESERVING);
    assert_int_equal(delivery->track[ROUTE_BACKUP].state, TRACK_CLOSED); /* and it never opens */
    assert_null(c.lanes[0].settles);
    lane_forget_track(&delivery->track[ROUTE_PRIMARY]); /* as when the batch takes it */
    track_event(&delivery->track[ROUTE_PRIMARY], TRACK_DENIED);
    assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_ENDED);
    delivery->round->unrecorded = 0; /* whatever was said of it is committed */
    round_check_done(delivery->round);
    assert_ptr_equal(c.lanes[0].settles, delivery->round);
    fake_stop(&c);
}

static void an_escalation_opens_the_backups_of_who_has_not_acked(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    assert_non_null(fake_node(&c, 1, "http://n1/", "http://b1/"));
    assert_non_null(fake_node(&c, 2, "http://n2/", "http://b2/"));
    assert_non_null(fake_node(&c, 3, "http://n3/", NULL));
    struct work_row row = fake_row(1, 1);
    struct delivery *first = fake_merge(&c, &row);
    row = fake_row(1, 2);
    row.acked = true;
    struct delivery *acked = fake_merge(&c, &row);
    row = fake_row(1, 3);
    struct delivery *plain = fake_merge(&c, &row);
    for (int i = 0; i < 2; i++) { /* at most once, however often it is told */
        round_learn_escalated(first->round);
        assert_int_equal(first->track[ROUTE_BACKUP].state, TRACK_RESERVING);
        assert_int_equal(first->track[ROUTE_PRIMARY].state, TRACK_RESERVING); /* the primary goes on */
        assert_int_equal(acked->track[ROUTE_BACKUP].state, TRACK_ENDED);
        assert_int_equal(plain->track[ROUTE_BACKUP].state, TRACK_ENDED);
    }
    assert_int_equal(listed(c.lanes[0].reserves), 3);

    /* Envelopes that come later take both routes at once. */
    assert_non_null(fake_node(&c, 4, "http://n4/", "http://b4/"));
    row = fake_row(1, 4);
    struct delivery *late = fake_merge(&c, &row);
    assert_int_equal(late->track[ROUTE_PRIMARY].state, TRACK_RESERVING);
    assert_int_equal(late->track[ROUTE_BACKUP].state, TRACK_RESERVING);
    fake_stop(&c);
}

static void the_news_of_an_escalation_may_come_with_a_row(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    assert_non_null(fake_node(&c, 1, "http://n1/", "http://b1/"));
    struct work_row row = fake_row(1, 1);
    struct delivery *delivery = fake_merge(&c, &row);
    assert_int_equal(delivery->track[ROUTE_BACKUP].state, TRACK_CLOSED);
    row.escalated = true;
    assert_ptr_equal(fake_merge(&c, &row), delivery); /* known already: no second one */
    assert_null(delivery->next);
    assert_int_equal(delivery->track[ROUTE_BACKUP].state, TRACK_RESERVING);
    fake_stop(&c);
}

static void a_committed_attempt_that_an_end_overtakes_is_unsent(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", NULL)->route[ROUTE_PRIMARY];
    struct work_row row = fake_row(1, 1);
    struct track *track = &fake_merge(&c, &row)->track[ROUTE_PRIMARY];
    lane_forget_track(track); /* as when the batch takes it */
    track_event(track, TRACK_GRANTED);
    assert_int_equal(track->state, TRACK_LOADING);
    assert_int_equal(listed(c.lanes[0].loads), 1);
    round_learn(track->delivery->round, ROUND_CANCELLED, false);
    assert_int_equal(track->state, TRACK_ENDED);
    assert_record(&c, 1, ROUTE_PRIMARY, 1, OUTCOME_UNSENT);
    assert_int_equal(listed(c.lanes[0].loads), 0);
    assert_int_equal(endpoint->in_flight, 0);
    assert_null(c.lanes[0].settles); /* first the record, then the settling */
    fake_stop(&c);
}

/* A predecessor reserved it and may have sent it: nobody may say that it was not. */
static void an_inherited_attempt_is_never_called_unsent(void **state) {
    (void)state;
    for (int granted = 0; granted <= 1; granted++) {
        for (int on = 0; on <= 1; on++) {
            struct coordinator c;
            fake_start(&c, 1);
            struct endpoint *endpoint = fake_node(&c, 1, "http://n1/", "http://b1/")->route[ROUTE_PRIMARY];
            endpoint_take(endpoint); /* the primary is dark, its slots are taken */
            struct work_row row = fake_row(1, 1);
            row.escalated = true;
            row.route[ROUTE_PRIMARY] = (struct route_row){.used = 1, .open = 1};
            row.route[ROUTE_BACKUP] = (struct route_row){.used = 4};
            struct track *track = &fake_merge(&c, &row)->track[ROUTE_PRIMARY];
            assert_int_equal(track->state, TRACK_QUEUED);
            if (granted) {
                endpoint_give_back(&c.nodes, endpoint);
                lane_forget_track(track);
                track->resend = true;
                track_event(track, TRACK_GRANTED);
            }
            if (on == 0) {
                round_learn(track->delivery->round, ROUND_CANCELLED, false);
            } else if (granted) { /* an ack by the other route does not stop what is committed */
                fake_stop(&c);
                continue;
            } else {
                track_event(track, TRACK_NODE_ACKED);
            }
            assert_int_equal(track->state, TRACK_ENDED);
            assert_record(&c, 1, ROUTE_PRIMARY, 1, OUTCOME_IN_DOUBT);
            fake_stop(&c);
        }
    }
}

static void a_dropped_round_leaves_nothing_behind(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, 3);
    /* All nodes and both routes share one URL, so that slots go round among the round's own routes while it is dropped.
     */
    struct endpoint *endpoint = fake_node(&c, 1, "http://all/", "http://all/")->route[ROUTE_PRIMARY];
    for (int node = 2; node <= 5; node++) {
        assert_ptr_equal(fake_node(&c, node, "http://all/", "http://all/")->route[ROUTE_BACKUP], endpoint);
    }
    struct work_row row;
    for (int node = 1; node <= 5; node++) {
        row = fake_row(1, node);
        row.escalated = true;
        assert_non_null(fake_merge(&c, &row));
    }
    row = fake_row(2, 1); /* somebody else waits at the end of the queue */
    struct track *other = &fake_merge(&c, &row)->track[ROUTE_PRIMARY];
    assert_int_equal(endpoint->in_flight, 3);
    assert_int_equal(other->state, TRACK_QUEUED);
    struct round *round = round_find(&c, 1);
    lane_settle(&c.lanes[0], round);
    lane_escalate(&c.lanes[0], round);
    round_drop(round);
    assert_null(round_find(&c, 1));
    assert_null(c.lanes[0].settles);
    assert_null(c.lanes[0].escalates);
    assert_int_equal(other->state, TRACK_RESERVING);
    assert_ptr_equal(c.lanes[0].reserves, other);
    assert_int_equal(listed(c.lanes[0].reserves), 1);
    assert_null(endpoint->queue);
    assert_int_equal(endpoint->in_flight, 1);
    fake_stop(&c);
}

static void who_lost_a_round_forgets_it(void **state) {
    (void)state;
    static const struct {
        enum round_state state;
        bool settled, dropped;
    } cases[] = {
        {ROUND_FENCED, false, true}, {ROUND_GONE, false, true},    {ROUND_COMPLETE, true, true},
        {ROUND_STALLED, true, true}, {ROUND_LOCKED, false, false}, {ROUND_OPEN, false, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct coordinator c;
        fake_start(&c, SLOTS);
        assert_non_null(fake_node(&c, 1, "http://n1/", NULL));
        struct work_row row = fake_row(1, 1);
        struct round *round = fake_merge(&c, &row)->round;
        round_learn(round, cases[i].state, cases[i].settled);
        assert_int_equal(round_find(&c, 1) == NULL, cases[i].dropped);
        fake_stop(&c);
    }
}

static void the_deadline_ends_attempts_and_asks_for_the_end(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    assert_non_null(fake_node(&c, 1, "http://n1/", NULL));
    struct work_row row = fake_row(1, 1);
    row.route[ROUTE_PRIMARY] = (struct route_row){.used = 1, .wait_us = 60000000};
    row.escalate_us = 1000;
    row.deadline_us = 5000;
    struct delivery *delivery = fake_merge(&c, &row);
    assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_WAITING);
    await(&c, &c.lanes[0].settles);
    assert_non_null(c.lanes[0].escalates); /* the database knows whether anyone has a backup */
    assert_true(delivery->round->over);
    assert_int_equal(delivery->track[ROUTE_PRIMARY].state, TRACK_ENDED);
    fake_stop(&c);
}

static void half_time_asks_for_the_escalation(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, SLOTS);
    assert_non_null(fake_node(&c, 1, "http://n1/", "http://b1/"));
    struct work_row row = fake_row(1, 1);
    row.escalate_us = 2000;
    struct delivery *delivery = fake_merge(&c, &row);
    await(&c, &c.lanes[0].escalates);
    assert_false(delivery->round->escalated); /* the database decides */
    assert_int_equal(delivery->track[ROUTE_BACKUP].state, TRACK_CLOSED);
    assert_null(c.lanes[0].settles);
    fake_stop(&c);
}

/* The other half of a test that has the database: reads or claims rounds, merges them, and prints a line for each route
 * and one for each attempt that is closed. */
static int print_rounds(const char *conninfo, const char *instance, bool claim) {
    struct coordinator c;
    PGconn *conn = PQconnectdb(conninfo);
    const char *const values[] = {instance};
    PGresult *versions =
        PQexecParams(conn, "SELECT version, node_id, url, backup_url, receipt_key FROM quorate_store.node_version", 0,
                     NULL, NULL, NULL, NULL, 1);
    PGresult *rows = PQexecParams(conn,
                                  claim ? "SELECT * FROM quorate_worker.claim($1::int, 0, 1000000, '{}')"
                                        : "SELECT * FROM quorate_worker.owned($1::int, 0, 1000000)",
                                  1, NULL, values, NULL, NULL, 1);
    bool good = PQresultStatus(versions) == PGRES_TUPLES_OK && PQresultStatus(rows) == PGRES_TUPLES_OK;
    fake_start(&c, 1000000);
    for (int i = 0; good && i < PQntuples(versions); i++) {
        struct node_version_row row;
        good = worker_node_version(versions, i, &row) && node_add(&c.nodes, &row);
    }
    for (int i = 0; good && i < PQntuples(rows); i++) {
        struct work_row row;
        good = worker_work(rows, i, &row);
        coordinator_heard_clock(&c, row.now_us);
        row.payload = NULL; /* nothing is sent from here */
        c.lanes[0].work_asked_at = coordinator_time(&c);
        good = good && round_merge(&c, &c.lanes[0], &row);
    }
    puts("what,round_no,node_id,route,state,attempt,outcome");
    for (const struct round *round = c.rounds; round != NULL; round = round->hh.next) {
        for (const struct delivery *d = round->deliveries; d != NULL; d = d->next) {
            for (int r = 0; r < ROUTE_COUNT; r++) {
                printf("route,%lld,%d,%s,%s,%d,\n", (long long)round->round_no, d->node_id, route_name((enum route)r),
                       track_state_name(d->track[r].state), d->track[r].attempt);
            }
        }
    }
    for (size_t i = 0; i < c.lanes[0].records.count; i++) {
        const struct attempt_record *record = &c.lanes[0].records.items[i];
        printf("record,%lld,%d,%s,,%d,%s\n", (long long)record->key.round_no, record->key.node_id,
               route_name(record->key.route), record->key.attempt, outcome_name(record->outcome));
    }
    if (!good) {
        fprintf(stderr, "%s\n", PQerrorMessage(conn));
    }
    fake_stop(&c);
    PQclear(versions);
    PQclear(rows);
    PQfinish(conn);
    return good ? 0 : 1;
}

/* Which acks wait in memory for the one that makes the quorum: quorum, nodes under way, nodes acked before this one,
 * end of the round. */
static void an_ack_waits_only_for_one_that_can_make_the_quorum(void **state) {
    (void)state;
    static const struct {
        int quorum, under_way, acked;
        int64_t deadline_us;
        enum round_state state;
        bool awaits;
    } CASES[] = {
        {2, 2, 0, 100000000, ROUND_OPEN, true},      {2, 1, 0, 100000000, ROUND_OPEN, false},
        {2, 2, 1, 100000000, ROUND_OPEN, false},     {3, 2, 1, 100000000, ROUND_OPEN, true},
        {1, 3, 0, 100000000, ROUND_OPEN, false},     {2, 3, 0, 50000, ROUND_OPEN, false},
        {2, 3, 0, 100000000, ROUND_COMPLETE, false},
    };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        struct coordinator c;
        fake_start(&c, SLOTS);
        const struct delivery *last = NULL;
        for (int node_id = 1; node_id <= CASES[i].under_way + CASES[i].acked; node_id++) {
            assert_non_null(fake_node(&c, node_id, "http://n/", NULL));
            struct work_row row = fake_row(1, node_id);
            row.quorum = (int16_t)CASES[i].quorum;
            row.deadline_us = CASES[i].deadline_us;
            row.acked = node_id > CASES[i].under_way;
            struct delivery *delivery = fake_merge(&c, &row);
            if (!row.acked) {
                lane_forget_track(&delivery->track[ROUTE_PRIMARY]);
                delivery->track[ROUTE_PRIMARY].state = TRACK_SENDING;
            }
            last = delivery;
        }
        last->round->state = CASES[i].state;
        assert_int_equal(round_awaits_more_acks(last->round), CASES[i].awaits);
        fake_stop(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_primary_goes_on_from_its_history),
        cmocka_unit_test(a_backup_waits_for_the_escalation),
        cmocka_unit_test(an_end_closes_what_is_open),
        cmocka_unit_test(an_ack_waits_only_for_one_that_can_make_the_quorum),
        cmocka_unit_test(a_claimed_attempt_whose_deadline_has_passed_is_not_sent),
        cmocka_unit_test(after_the_quorum_the_rest_goes_on),
        cmocka_unit_test(an_escalation_opens_the_backups_of_who_has_not_acked),
        cmocka_unit_test(the_news_of_an_escalation_may_come_with_a_row),
        cmocka_unit_test(a_committed_attempt_that_an_end_overtakes_is_unsent),
        cmocka_unit_test(an_inherited_attempt_is_never_called_unsent),
        cmocka_unit_test(a_dropped_round_leaves_nothing_behind),
        cmocka_unit_test(who_lost_a_round_forgets_it),
        cmocka_unit_test(the_deadline_ends_attempts_and_asks_for_the_end),
        cmocka_unit_test(half_time_asks_for_the_escalation),
    };
    if (!wire_start(NULL)) {
        return 1;
    }
    if (argc == 4) {
        return print_rounds(argv[2], argv[3], strcmp(argv[1], "claim") == 0);
    }
    return cmocka_run_group_tests_name("round", tests, NULL, NULL);
}
