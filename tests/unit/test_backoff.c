/* Full jitter: the ceiling's doubling and cap, the ends of the draw, and that draws are uniform. */
#include "unit.h"

#include <math.h>
#include <sodium.h>

#include "round/backoff.h"

enum { DRAWS = 100000, BINS = 100, ATTEMPTS = 100 };

static const int64_t YEAR_US = INT64_C(365) * 24 * 3600 * 1000000;

static void the_ceiling_doubles_up_to_the_cap(void **state) {
    (void)state;
    static const int64_t expected[] = {50000, 100000, 200000, 400000, 800000, 1500000, 1500000};
    for (int attempt = 1; attempt <= (int)COUNT(expected); attempt++) {
        assert_int_equal(backoff_ceiling(50000, 1500000, attempt), expected[attempt - 1]);
    }
    assert_int_equal(backoff_ceiling(1, 1, 1), 1);
    assert_int_equal(backoff_ceiling(7, 7, 100), 7);
    assert_int_equal(backoff_ceiling(3, 4, 2), 4); /* twice 3 passes the cap */
    assert_int_equal(backoff_ceiling(2, 4, 2), 4); /* twice 2 meets it */
    assert_int_equal(backoff_ceiling(9, 4, 1), 4); /* the cap holds for the first wait, too */
}

static void no_policy_overflows(void **state) {
    (void)state;
    static const int64_t bases[] = {1, 2, 3, 50000, INT64_C(1) << 31, INT64_C(1) << 50};
    const int64_t caps[] = {1, 2, 1500000, 100 * YEAR_US - 1, 100 * YEAR_US, INT64_MAX / 2, INT64_MAX - 1};
    for (size_t b = 0; b < COUNT(bases); b++) {
        for (size_t c = 0; c < COUNT(caps); c++) {
            int64_t before = 0;
            for (int attempt = 1; attempt <= ATTEMPTS; attempt++) {
                int64_t ceiling = backoff_ceiling(bases[b], caps[c], attempt);
                unsigned __int128 exact = (unsigned __int128)bases[b] << (attempt < 70 ? attempt - 1 : 69);
                assert_true(ceiling == (int64_t)(exact < (unsigned __int128)caps[c] ? exact : (uint64_t)caps[c]));
                assert_true(ceiling >= before);
                before = ceiling;
            }
            assert_int_equal(before, caps[c]); /* any base reaches the cap within a hundred attempts */
        }
    }
}

static void the_ends_of_the_draw(void **state) {
    (void)state;
    const int64_t ceilings[] = {0, 1, 2, 50000, 1500000, 100 * YEAR_US, INT64_MAX - 1, INT64_MAX};
    for (size_t i = 0; i < COUNT(ceilings); i++) {
        assert_int_equal(backoff_draw(ceilings[i], 0), 0);
        assert_int_equal(backoff_draw(ceilings[i], UINT64_MAX), ceilings[i]);
    }
    /* A ceiling of 1 is a coin: the upper half of the bits is 1. */
    assert_int_equal(backoff_draw(1, UINT64_MAX / 2), 0);
    assert_int_equal(backoff_draw(1, UINT64_MAX / 2 + 1), 1);
}

static uint64_t random_bits(void) {
    uint64_t bits;
    randombytes_buf(&bits, sizeof bits);
    return bits;
}

static void a_draw_stays_inside_and_grows_with_its_bits(void **state) {
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        int64_t ceiling = (int64_t)(random_bits() >> (1 + random_bits() % 63));
        uint64_t one = random_bits(), other = random_bits();
        int64_t low = backoff_draw(ceiling, one < other ? one : other);
        int64_t high = backoff_draw(ceiling, one < other ? other : one);
        assert_true(0 <= low && low <= high && high <= ceiling);
    }
}

/* Counts draws from [0, BINS - 1] and bounds mean and chi-square such that a uniform source fails less than once in
 * 10^7: the mean at 5.5 standard errors, chi-square with 99 degrees of freedom by Wilson and Hilferty's normal
 * approximation at 5.5 deviations. */
static void draws_are_uniform(void **state) {
    (void)state;
    static unsigned seen[BINS];
    double sum = 0, chi_square = 0;
    for (int i = 0; i < DRAWS; i++) {
        int64_t wait = backoff_draw(BINS - 1, random_bits());
        assert_in_range(wait, 0, BINS - 1);
        seen[wait]++;
        sum += (double)wait;
    }
    double deviation = sqrt((BINS * BINS - 1) / 12.0 / DRAWS);
    assert_true(fabs(sum / DRAWS - (BINS - 1) / 2.0) < 5.5 * deviation);

    const double expected = (double)DRAWS / BINS, freedom = BINS - 1;
    for (int i = 0; i < BINS; i++) {
        chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    double unit = 2 / (9 * freedom);
    assert_true(chi_square < freedom * pow(1 - unit + 5.5 * sqrt(unit), 3));
    assert_true(chi_square > freedom * pow(1 - unit - 5.5 * sqrt(unit), 3)); /* too even is no chance either */
}

/* The greatest distance between the draws' distribution and the uniform one (Kolmogorov and Smirnov): beyond
 * sqrt(ln(2 / p) / 2n) with probability p = 10^-7. */
static void long_waits_are_uniform(void **state) {
    (void)state;
    enum { STEPS = 1000 };
    static unsigned below[STEPS + 1]; /* draws in each thousandth of the ceiling */
    const int64_t ceiling = 100 * YEAR_US;
    for (int i = 0; i < DRAWS; i++) {
        below[(int64_t)((double)backoff_draw(ceiling, random_bits()) / (double)ceiling * STEPS)]++;
    }
    double distance = 0, so_far = 0;
    for (int i = 0; i < STEPS; i++) {
        so_far += below[i];
        distance = fmax(distance, fabs(so_far / DRAWS - (i + 1.0) / STEPS));
    }
    assert_true(distance < sqrt(log(2 / 1e-7) / (2.0 * DRAWS)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ceiling_doubles_up_to_the_cap),
        cmocka_unit_test(no_policy_overflows),
        cmocka_unit_test(the_ends_of_the_draw),
        cmocka_unit_test(a_draw_stays_inside_and_grows_with_its_bits),
        cmocka_unit_test(draws_are_uniform),
        cmocka_unit_test(long_waits_are_uniform),
    };
    if (sodium_init() < 0) {
        return 1;
    }
    return cmocka_run_group_tests_name("backoff", tests, NULL, NULL);
}
