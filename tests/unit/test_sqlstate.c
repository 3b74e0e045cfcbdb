/* Tests what SQLSTATEs mean to whoever runs a command: the exit codes of quorate(1). */
#include "unit.h"

#include "db/sqlstate.h"

static void test_exit_codes(void **state) {
    (void)state;
    static const struct {
        const char *sqlstate;
        enum exit_code code;
    } wanted[] = {
        {"QR001", EXIT_STALLED},     {"QR002", EXIT_DEAD_LETTERED}, {"QR003", EXIT_UNKNOWN},
        {"QR004", EXIT_CANCELLED},   {"QR005", EXIT_REFUSED},       {"QR006", EXIT_REFUSED},
        {"QR007", EXIT_USAGE},       {"QR008", EXIT_UNKNOWN},       {"QR009", EXIT_REFUSED},
        {"08006", EXIT_UNREACHABLE}, {"08001", EXIT_UNREACHABLE},   {"57P01", EXIT_UNREACHABLE},
        {"57P03", EXIT_UNREACHABLE}, {"53300", EXIT_UNREACHABLE},   {"", EXIT_UNREACHABLE},
        {"57014", EXIT_UNEXPECTED},  {"55P03", EXIT_UNEXPECTED},    {"42501", EXIT_UNEXPECTED},
        {"XX000", EXIT_UNEXPECTED},  {"QR010", EXIT_UNEXPECTED},
    };
    for (size_t i = 0; i < COUNT(wanted); i++)
        assert_int_equal(sqlstate_exit_code(wanted[i].sqlstate), wanted[i].code);
}

static void test_missing_schema(void **state) {
    (void)state;
    assert_true(sqlstate_is_missing_schema("3F000"));
    assert_true(sqlstate_is_missing_schema("42883"));
    assert_true(sqlstate_is_missing_schema("42P01"));
    assert_false(sqlstate_is_missing_schema("42501"));
    assert_false(sqlstate_is_missing_schema("QR003"));
    assert_false(sqlstate_is_missing_schema(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exit_codes), cmocka_unit_test(test_missing_schema)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
