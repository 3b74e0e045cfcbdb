/* Durations: what is read, what is refused, and that writing and reading agree. */
#include "unit.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/duration.h"

static void reads_every_unit(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {
        {"1us", 1},
        {"250ms", 250000},
        {"1.5s", 1500000},
        {"8s", 8000000},
        {"2m", 120000000},
        {"1h", 3600000000},
        {"30d", 2592000000000},
        {"0.5ms", 500},
        {"0.001ms", 1},
        {"0.000001s", 1},
        {"1.50000000000000000000s", 1500000},
        {"0008s", 8000000},
        {"36500d", 3153600000000000},
        {"0.0000000003125d", 27},
        {"36499.99999999d", 3153600000000000 - 864},
        {"3153600000000000us", 3153600000000000},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        int64_t us = -1;
        if (!duration_parse(good[i].text, &us))
            fail_msg("\"%s\" was refused", good[i].text);
        assert_int_equal(us, good[i].us);
    }
}

static void refuses_the_rest(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "8",
        "s",
        "0s",
        "0.0ms",
        "-1s",
        "+1s",
        " 1s",
        "1s ",
        "1 s",
        "1e3s",
        "1.s",
        ".5s",
        "1.2.3s",
        "1,5s",
        "8S",
        "1min",
        "1sec",
        "1w",
        "0.5us",
        "0.0001ms",
        "1.0000001s",
        "0x1s",
        "36500.1d",
        "36501d",
        "1s1s",
        "36500d1s",
        "876000.001h",
        "1\xc2\xb5",
        "1\xc2\xb5s",
        "inf",
        "nan",
        "infs",
        "1ns",
        "1ms\n",
        "1.5",
        "1.-5s",
        "999999999999d",
        "99999999999999999999999999us",
        "0.00000000000000000000001d",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t us = 77;
        if (duration_parse(bad[i], &us))
            fail_msg("\"%s\" was read as %" PRId64, bad[i], us);
        assert_int_equal(us, 77); /* untouched */
    }
}

static void writes_the_shortest_form(void **state) {
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } good[] = {
        {0, "0s"},
        {1, "1us"},
        {999, "999us"},
        {1000, "1ms"},
        {1500, "1.5ms"},
        {250000, "250ms"},
        {1500000, "1.5s"},
        {1000001, "1000.001ms"},
        {8000000, "8s"},
        {30000000, "30s"},
        {90000000, "1.5m"},
        {61000000, "61s"},
        {3600000000, "1h"},
        {86400000000, "1d"},
        {129600000000, "1.5d"},
        {3153600000000000, "36500d"},
        {-1500000, "-1.5s"},
        {1234567, "1234.567ms"},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        char out[32];
        assert_string_equal(duration_format(good[i].us, out, sizeof out), good[i].text);
    }
    char out[32], small[4];
    duration_format(INT64_MIN, out, sizeof out); /* must not overflow */
    assert_string_equal(duration_format(1500000, small, sizeof small), "1.5");
}

static void what_is_written_is_read_back(void **state) {
    (void)state;
    int64_t us = 1;
    for (int i = 0; i < 2000; i++) {
        char out[32];
        int64_t back = -1;
        duration_format(us, out, sizeof out);
        if (!duration_parse(out, &back) || back != us)
            fail_msg("%" PRId64 " was written as %s and read as %" PRId64, us, out, back);
        us = us * 5 / 4 + i % 7 + 1;
        if (us > 3153600000000000)
            us = i + 2;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_unit),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(writes_the_shortest_form),
        cmocka_unit_test(what_is_written_is_read_back),
    };
    return cmocka_run_group_tests_name("duration", tests, NULL, NULL);
}
