/* What the log is told of faults that last, take turns, or come and go. */
#include "unit.h"

#include <stdint.h>
#include <stdio.h>

#include "base/told.h"

static void a_fault_that_lasts_is_news_once(void **state) {
    (void)state;
    struct told told = {0};
    assert_false(told_over(&told)); /* nothing was told */
    assert_true(told_news(&told, "refused", 0));
    for (int i = 0; i < 1000; i++) {
        assert_false(told_news(&told, "refused", 0));
    }
    assert_true(told_over(&told));
    assert_false(told_over(&told));
    assert_true(told_news(&told, "refused", 0));
}

static void faults_that_take_turns_are_news_once_each(void **state) {
    (void)state;
    struct told told = {0};
    int news = 0;
    for (int i = 0; i < 100; i++) {
        news += told_news(&told, "one", 0);
        news += told_news(&told, "another", 0);
        news += told_news(&told, "", 0);
    }
    assert_int_equal(news, 3);
}

static void numbers_make_no_other_fault(void **state) {
    (void)state;
    struct told told = {0};
    assert_true(told_news(&told, "process 17 is gone", 0));
    assert_false(told_news(&told, "process 4711 is gone", 0));
    assert_true(told_news(&told, "process 17 is back", 0));
}

static void a_fault_that_comes_and_goes_is_not_told_within_its_quiet_time(void **state) {
    (void)state;
    struct told told = {0};
    assert_true(told_news(&told, "deadlock", 3600000000));
    assert_true(told_over(&told));
    assert_false(told_news(&told, "deadlock", 3600000000));
    assert_false(told_over(&told)); /* it was not told, and so its end is not either */
    assert_true(told_news(&told, "deadlock", 0));
}

static void the_oldest_reason_gives_way(void **state) {
    (void)state;
    struct told told = {0};
    char reason[2] = "a";
    for (int i = 0; i <= TOLD_REASONS; i++, reason[0]++) {
        assert_true(told_news(&told, reason, 0));
    }
    assert_false(told_news(&told, "b", 0));
    assert_true(told_news(&told, "a", 0));
}

/* Whoever can make up reasons gets no more lines than there are places for them. */
static void made_up_reasons_do_not_flood_the_log(void **state) {
    (void)state;
    struct told told = {0};
    int news = 0;
    for (int a = 0; a < 26; a++) {
        for (int b = 0; b < 26; b++) {
            const char reason[] = {(char)('a' + a), (char)('a' + b), '\0'};
            news += told_news(&told, reason, TOLD_PAUSE_US);
            (void)told_over(&told);
        }
    }
    assert_int_equal(news, TOLD_REASONS);
    assert_false(told_news(&told, "another", INT64_MAX));
    for (int i = 0; i < TOLD_REASONS; i++) {
        told.reasons[i].at_us -= TOLD_PAUSE_US;
    }
    assert_true(told_news(&told, "another", INT64_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_that_lasts_is_news_once),
        cmocka_unit_test(faults_that_take_turns_are_news_once_each),
        cmocka_unit_test(numbers_make_no_other_fault),
        cmocka_unit_test(a_fault_that_comes_and_goes_is_not_told_within_its_quiet_time),
        cmocka_unit_test(the_oldest_reason_gives_way),
        cmocka_unit_test(made_up_reasons_do_not_flood_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
