/* What people see of the database's texts: no character of them commands the terminal. */
#include "unit.h"

#include <stdlib.h>

#include "cli/output.h"

static void shows(json_t *value, const char *expected) {
    assert_non_null(value);
    char *text = output_text(value);
    assert_string_equal(text, expected);
    free(text);
    json_decref(value);
}

static void control_characters_are_shown_as_question_marks(void **state) {
    (void)state;
    shows(json_string("a\x1b[2Jb\n\x7f"), "a?[2Jb??");
    shows(json_pack("[s,i,b,n]", "\x7f", 7, 1, NULL), "?,7,yes,-");
    shows(json_pack("{s:s}", "key", "\x7f"), "{\"key\": \"?\"}");
}

static void times_end_with_milliseconds(void **state) {
    (void)state;
    shows(json_string("2026-01-02T03:04:05.678901+00:00"), "2026-01-02T03:04:05.678+00:00");
    shows(json_string("2026-01-02T03:04:05"), "2026-01-02T03:04:05");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_shown_as_question_marks),
        cmocka_unit_test(times_end_with_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
