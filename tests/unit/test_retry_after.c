/* Retry-After: seconds, the three forms of a date, and everything that is to be ignored. */
#include "unit.h"

#include "transport/retry_after.h"

static const int64_t now_s = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */
static const char now_date[] = "Sun, 06 Nov 1994 08:49:37 GMT";

static int64_t parse(const char *value) {
    return retry_after_parse(value, NULL, now_s);
}

static void seconds(void **state) {
    (void)state;
    assert_int_equal(parse("0"), 0);
    assert_int_equal(parse("1"), 1000);
    assert_int_equal(parse("007"), 7000);
    assert_int_equal(parse("120"), 120000);
    assert_int_equal(parse("86399"), 86399000);
    assert_int_equal(parse("86400"), 86400000);
    assert_int_equal(parse("86401"), 86400000);
    assert_int_equal(parse("99999999999999999999999999999999"), 86400000);
    assert_int_equal(parse("00000000000000000000000000000003"), 3000);
}

static void the_three_forms_of_a_date(void **state) {
    (void)state;
    assert_int_equal(parse("Sun, 06 Nov 1994 08:49:40 GMT"), 3000);
    assert_int_equal(parse("Sunday, 06-Nov-94 08:49:40 GMT"), 3000);
    assert_int_equal(parse("Sun Nov  6 08:49:40 1994"), 3000);
    assert_int_equal(parse("Sun, 06 Nov 1994 08:49:37 GMT"), 0); /* now */
    assert_int_equal(parse("Sun, 06 Nov 1994 08:49:36 GMT"), 0); /* past */
    assert_int_equal(parse("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
    assert_int_equal(parse("Mon, 07 Nov 1994 08:49:36 GMT"), 86399000);
    assert_int_equal(parse("Mon, 07 Nov 1994 08:49:38 GMT"), 86400000); /* capped */
    assert_int_equal(parse("Fri, 31 Dec 9999 23:59:59 GMT"), 86400000);
    assert_int_equal(retry_after_parse("Thu, 29 Feb 2024 12:00:01 GMT", NULL, 1709208000), 1000);
}

static void a_date_is_read_against_the_answers_own(void **state) {
    (void)state;
    /* The hosts' clocks are years apart, which changes nothing. */
    assert_int_equal(retry_after_parse("Sun, 06 Nov 1994 08:49:40 GMT", now_date, 1900000000), 3000);
    assert_int_equal(retry_after_parse("Sun, 06 Nov 1994 08:49:40 GMT", now_date, 0), 3000);
    assert_int_equal(retry_after_parse("Sun, 06 Nov 1994 08:49:40 GMT", "Sun Nov  6 08:49:38 1994", 0), 2000);
    assert_int_equal(retry_after_parse("Sun, 06 Nov 1994 08:49:40 GMT", "Sun, 06 Nov 1994 09:49:40 GMT", 0), 0);
    /* A Date that is none is as good as absent. */
    assert_int_equal(retry_after_parse("Sun, 06 Nov 1994 08:49:40 GMT", "yesterday", now_s), 3000);
    assert_int_equal(retry_after_parse("5", "yesterday", 0), 5000);
}

static void anything_else_is_ignored(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        "1s",
        "0x10",
        "1e3",
        " 1",
        "1 ",
        "1, 2",
        "soon",
        "Sun, 06 Nov 2094 08:49:37",           /* no zone */
        "Sun, 06 Nov 2094 08:49:37 UTC",       /* another one */
        "Sun, 06 Nov 2094 08:49:37 gmt",       /* lower case */
        "sun, 06 Nov 2094 08:49:37 GMT",       /* lower case */
        "Sat, 6 Nov 2094 08:49:37 GMT",        /* one digit */
        "Sat,  06 Nov 2094 08:49:37 GMT",      /* two blanks */
        "Saturday, 06 Nov 2094 08:49:37 GMT",  /* the name in full */
        "Sun, 06 Nov 2094 08:49:37 GMT",       /* it is a Saturday */
        "Thu, 30 Feb 2034 00:00:00 GMT",       /* no such day */
        "Sat, 06 Nov 2094 24:00:00 GMT",       /* no such hour */
        "Sat, 06 Nov 2094 08:49:60 GMT",       /* no such second */
        "Sat, 06 Nov 2094 08:49:37 GMT later", /* more behind it */
        "Sat, 06 Nov 2094 08:49:37 GMT ",
        "2094-11-06T08:49:37Z",
        "4000000000.0",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t wait = parse(bad[i]);
        if (wait != 0)
            fail_msg("\"%s\" was read as %lld ms", bad[i], (long long)wait);
    }
    assert_int_equal(parse("Sat, 06 Nov 2094 08:49:37 GMT"), 86400000); /* what they should have been */
}

/* Undefined arithmetic otherwise, which the sanitizers see. */
static void the_farthest_times_are_capped(void **state) {
    (void)state;
    assert_int_equal(retry_after_parse("Sun Nov  6 08:49:37 1994", NULL, INT64_MIN), 86400000);
    assert_int_equal(retry_after_parse("Sun Nov  6 08:49:37 1994", NULL, INT64_MAX), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds),
        cmocka_unit_test(the_three_forms_of_a_date),
        cmocka_unit_test(a_date_is_read_against_the_answers_own),
        cmocka_unit_test(anything_else_is_ignored),
        cmocka_unit_test(the_farthest_times_are_capped),
    };
    return cmocka_run_group_tests_name("retry_after", tests, NULL, NULL);
}
