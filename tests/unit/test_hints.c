/* How often hints that lead to nothing are followed. */
#include "unit.h"

#include <stdbool.h>

#include "round/hints.h"

/* Follows hints that come every `step_s` for `seconds`; each leads to nothing. How many were followed. */
static int follow(struct hints *hints, double *now, double step_s, double seconds) {
    int followed = 0;
    double end = *now + seconds;
    while (*now < end) {
        if (hints_wait(hints, *now) <= 0) {
            followed++;
            hints_fruitless(hints, *now);
        }
        *now += step_s;
    }
    return followed;
}

static void hints_that_lead_to_work_never_wait(void **state) {
    (void)state;
    struct hints hints = {0};
    for (int i = 0; i < 100000; i++) {
        assert_true(hints_wait(&hints, 5. + i / 1e5) <= 0);
    }
}

static void a_storm_is_followed_so_often_a_second_and_no_more(void **state) {
    (void)state;
    struct hints hints = {0};
    double now = 1000;
    assert_in_range(follow(&hints, &now, 0.0001, 1), HINTS_AT_ONCE, HINTS_AT_ONCE + HINTS_A_SECOND + 1);
    assert_in_range(follow(&hints, &now, 0.0001, 10), 10 * HINTS_A_SECOND - 1, 10 * HINTS_A_SECOND + 1);
    double wait_s = hints_wait(&hints, now);
    assert_true(wait_s <= 1. / HINTS_A_SECOND); /* and none waits for longer */
    assert_true(hints_wait(&hints, now + wait_s + 1e-6) <= 0);
}

static void what_was_owed_is_forgotten_with_time(void **state) {
    (void)state;
    struct hints hints = {0};
    double now = 1000;
    (void)follow(&hints, &now, 0.0001, 10);
    now += 60;
    assert_in_range(follow(&hints, &now, 0.0001, 0.01), HINTS_AT_ONCE, HINTS_AT_ONCE + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hints_that_lead_to_work_never_wait),
        cmocka_unit_test(a_storm_is_followed_so_often_a_second_and_no_more),
        cmocka_unit_test(what_was_owed_is_forgotten_with_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
