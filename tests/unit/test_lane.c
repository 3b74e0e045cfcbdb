/* Lanes: what the database answers changes only what was asked about, by the lane that asked. */
#include "unit.h"

#include <string.h>

#include "fake_coordinator.h"

/* A row that says that the round 1 is in that state, and neither settled nor escalated: of so many columns, all but two
 * of them boolean or null. */
static PGresult *said(const char *round_state, int columns) {
    char column[] = "column", zero[] = "\0", round_no[] = "\0\0\0\0\0\0\0\1";
    PGresAttDesc names[5] = {0};
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    for (int i = 0; i < columns; i++) {
        names[i] = (PGresAttDesc){.name = column, .format = 1};
    }
    assert_int_equal(PQsetResultAttrs(result, columns, names), 1);
    assert_int_equal(PQsetvalue(result, 0, 0, round_no, 8), 1);
    assert_int_equal(PQsetvalue(result, 0, 1, (char *)(uintptr_t)round_state, (int)strlen(round_state)), 1);
    for (int i = 2; i < columns; i++) {
        bool null = columns == 4 && i == 3; /* of settle and record: how long the round took */
        assert_int_equal(PQsetvalue(result, 0, i, null ? NULL : zero, null ? -1 : 1), 1);
    }
    return result;
}

/* Found by a fuzzer: a round that stood in a list was answered for as if it had been asked for, and was then listed
 * twice. */
static void an_answer_that_nobody_asked_for_leaves_the_lists_alone(void **state) {
    (void)state;
    struct coordinator c;
    fake_start(&c, 3);
    fake_node(&c, 1, "http://one/", NULL);
    struct work_row row = fake_row(1, 1);
    struct round *round = fake_merge(&c, &row)->round;
    row = fake_row(2, 1);
    struct round *other = fake_merge(&c, &row)->round;
    struct lane *lane = &c.lanes[0];
    lane_settle(lane, round);
    lane_settle(lane, other);
    lane_escalate(lane, round);
    lane_escalate(lane, other);
    for (int again = 0; again < 2; again++) {
        lane->batch.results[LANE_SETTLE] = said("open", 4);
        lane->batch.results[LANE_ESCALATE] = said("open", 5);
        lane_answer(lane);
        lane_clear_batch(lane);
        lane_settle(lane, round);
        lane_escalate(lane, round);
        /* Nor does a batch that failed, and asked for it before it was lost and came again. */
        lane->batch.commits = true;
        lane->batch.settles = lane_memory(lane->batch.settles, sizeof *lane->batch.settles);
        lane->batch.escalates = lane_memory(lane->batch.escalates, sizeof *lane->batch.escalates);
        lane->batch.settles[0] = lane->batch.escalates[0] = 1;
        lane->batch.settle_count = lane->batch.escalate_count = 1;
        lane_requeue(lane);
        lane_settle(lane, round);
        lane_escalate(lane, round);
        assert_ptr_equal(lane->settles, round);
        assert_ptr_equal(round->next_settle, other);
        assert_null(other->next_settle);
        assert_ptr_equal(lane->escalates, round);
        assert_ptr_equal(round->next_escalate, other);
        assert_null(other->next_escalate);
    }
    round_drop(round);
    round_drop(other);
    assert_null(lane->settles);
    assert_null(lane->escalates);
    fake_stop(&c);
}

static void what_a_lane_heard_late_of_a_round_of_the_other_lane_changes_nothing(void **state) {
    (void)state;
    static const struct {
        const char *said;
        enum round_state before, after;
    } cases[] = {
        {"fenced", ROUND_OPEN, ROUND_OPEN},
        {"open", ROUND_COMPLETE, ROUND_COMPLETE},
        {"complete", ROUND_OPEN, ROUND_COMPLETE}, /* that is so for ever */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct coordinator c;
        fake_start(&c, 3);
        fake_node(&c, 1, "http://one/", NULL);
        struct work_row row = fake_row(1, 1);
        row.state = cases[i].before;
        assert_non_null(fake_merge(&c, &row));
        c.lanes[1].batch.results[LANE_RECORD] = said(cases[i].said, 4);
        lane_answer(&c.lanes[1]);
        lane_clear_batch(&c.lanes[1]);
        assert_non_null(round_find(&c, 1));
        assert_int_equal(round_find(&c, 1)->state, cases[i].after);
        fake_stop(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_that_nobody_asked_for_leaves_the_lists_alone),
        cmocka_unit_test(what_a_lane_heard_late_of_a_round_of_the_other_lane_changes_nothing),
    };
    return wire_start(NULL) ? cmocka_run_group_tests_name("lane", tests, NULL, NULL) : 1;
}
