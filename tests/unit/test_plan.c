/* Tests the migrator's list of files: one that was built wrongly is refused before any database is asked. */
#include "unit.h"

#include <string.h>

#include "db/plan.h"

#define FILE_AT(path)                                                                                                  \
    { path, (const unsigned char *)"SELECT 1;", 9 }

static void refused(const struct sql_file *files, size_t count, const char *named) {
    struct plan plan = {0};
    struct error err = {0};
    assert_false(plan_read(&plan, NULL, files, count, NULL, &err));
    assert_int_equal(err.code, EXIT_UNEXPECTED);
    assert_non_null(strstr(err.text, named));
    plan_free(&plan);
}

static void test_no_files(void **state) {
    (void)state;
    refused(NULL, 0, "number 0");
}

static void test_no_bootstrap(void **state) {
    (void)state;
    static const struct sql_file files[] = {FILE_AT("migrations/0001_a.sql")};
    refused(files, COUNT(files), "migrations/0001_a.sql where number 0");
    static const struct sql_file only_sql[] = {FILE_AT("sql/10_a.sql")};
    refused(only_sql, COUNT(only_sql), "number 0");
}

static void test_gap(void **state) {
    (void)state;
    static const struct sql_file files[] = {FILE_AT("migrations/0000_m.sql"), FILE_AT("migrations/0001_a.sql"),
                                            FILE_AT("migrations/0003_c.sql")};
    refused(files, COUNT(files), "migrations/0003_c.sql where number 2");
}

static void test_same_number_twice(void **state) {
    (void)state;
    static const struct sql_file files[] = {FILE_AT("migrations/0000_m.sql"), FILE_AT("migrations/0001_a.sql"),
                                            FILE_AT("migrations/0001_b.sql")};
    refused(files, COUNT(files), "migrations/0001_b.sql where number 2");
}

static void test_no_number(void **state) {
    (void)state;
    static const struct sql_file files[] = {FILE_AT("migrations/0000_m.sql"), FILE_AT("migrations/a.sql")};
    refused(files, COUNT(files), "migrations/a.sql where number 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_files),          cmocka_unit_test(test_no_bootstrap), cmocka_unit_test(test_gap),
        cmocka_unit_test(test_same_number_twice), cmocka_unit_test(test_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
