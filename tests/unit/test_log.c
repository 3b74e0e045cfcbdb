/* Log lines and error texts: their form, their bounds, and that nothing can break out of its line. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

/* Runs `log_event` with stderr turned into a pipe; what one read(2) returns is what one write(2) wrote. */
static char captured[8192];

#define CAPTURE(...)                                                                                                   \
    do {                                                                                                               \
        int ends[2];                                                                                                   \
        assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);                                                      \
        int old = dup(STDERR_FILENO);                                                                                  \
        assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);                                                 \
        log_event(__VA_ARGS__);                                                                                        \
        dup2(old, STDERR_FILENO);                                                                                      \
        close(old);                                                                                                    \
        close(ends[1]);                                                                                                \
        ssize_t got = read(ends[0], captured, sizeof captured - 1);                                                    \
        captured[got > 0 ? got : 0] = '\0';                                                                            \
        close(ends[0]);                                                                                                \
    } while (0)

static void a_line_has_its_form(void **state) {
    (void)state;
    log_open("quorate", LOG_INFO);
    CAPTURE(LOG_WARN, "round_stalled", "round=%s acked=%d", "r-1", 1);
    regex_t form;
    assert_int_equal(regcomp(&form,
                             "^time=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z level=warn "
                             "program=quorate event=round_stalled round=r-1 acked=1\n$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    assert_int_equal(regexec(&form, captured, 0, NULL, 0), 0);
    regfree(&form);

    CAPTURE(LOG_ERROR, "stopped", "");
    assert_non_null(strstr(captured, "level=error program=quorate event=stopped"));
    assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void lower_levels_are_dropped(void **state) {
    (void)state;
    log_open("q", LOG_WARN);
    CAPTURE(LOG_INFO, "quiet", "");
    assert_string_equal(captured, "");
    CAPTURE(LOG_WARN, "loud", "");
    assert_non_null(strstr(captured, "event=loud"));
    log_open("q", LOG_DEBUG);
    CAPTURE(LOG_DEBUG, "detail", "");
    assert_non_null(strstr(captured, "level=debug program=q event=detail"));
}

static void control_characters_and_length_are_bounded(void **state) {
    (void)state;
    log_open("quorate", LOG_INFO);
    CAPTURE(LOG_INFO, "odd", "text=%s", "a\nlevel=error\x1b[31m\x7f\r");
    assert_non_null(strstr(captured, "text=a?level=error?[31m??\n"));
    assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);

    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    CAPTURE(LOG_INFO, "long", "text=%s", longer);
    assert_int_equal(strlen(captured), 2000);
    assert_int_equal(captured[1999], '\n');
    CAPTURE(LOG_INFO, longer, "text=%s", longer); /* a prefix that leaves no room at all */
    assert_int_equal(strlen(captured), 2000);
    assert_int_equal(captured[1999], '\n');
}

static void errno_survives_a_log_line(void **state) {
    (void)state;
    log_open("quorate", LOG_INFO);
    int old = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = ENOENT;
    log_event(LOG_ERROR, "lost", "why=%s", "closed"); /* the write fails with EBADF */
    int after = errno;
    dup2(old, STDERR_FILENO);
    close(old);
    assert_int_equal(after, ENOENT);
}

static void quoting(void **state) {
    (void)state;
    char out[64];
    assert_string_equal(log_quote("http://node-1:8080/a_b@c+d", out, sizeof out), "http://node-1:8080/a_b@c+d");
    assert_string_equal(log_quote("", out, sizeof out), "\"\"");
    assert_string_equal(log_quote(NULL, out, sizeof out), "\"\"");
    assert_string_equal(log_quote("two words", out, sizeof out), "\"two words\"");
    assert_string_equal(log_quote("a=b", out, sizeof out), "\"a=b\"");
    assert_string_equal(log_quote("say \"no\" \\ \n\r\t\x01\x7f", out, sizeof out),
                        "\"say \\\"no\\\" \\\\ \\n\\r\\t\\x01\\x7f\"");
    assert_string_equal(log_quote("caf\xc3\xa9", out, sizeof out), "\"caf\xc3\xa9\"");

    char tight[8];
    assert_string_equal(log_quote("abcdefghij", tight, sizeof tight), "abcdefg");
    assert_string_equal(log_quote("a b c d e f", tight, sizeof tight), "\"a b c\"");
    assert_string_equal(log_quote("    \n\n\n", tight, sizeof tight), "\"    \"");
    assert_string_equal(log_quote("\x01\x01\x01", tight, sizeof tight), "\"\\x01\"");
    char least[1] = {'x'};
    assert_string_equal(log_quote("a b", least, sizeof least), "");
    assert_ptr_equal(log_quote("a b", least, 0), least);
}

static void levels(void **state) {
    (void)state;
    enum log_level level = LOG_ERROR;
    assert_true(log_level_parse("debug", &level));
    assert_int_equal(level, LOG_DEBUG);
    assert_true(log_level_parse("info", &level));
    assert_true(log_level_parse("warn", &level));
    assert_true(log_level_parse("error", &level));
    assert_int_equal(level, LOG_ERROR);
    assert_false(log_level_parse("", &level));
    assert_false(log_level_parse("WARN", &level));
    assert_false(log_level_parse("warning", &level));
}

static void a_lasting_condition_is_said_once(void **state) {
    (void)state;
    char last[8] = "";
    assert_true(log_changed(last, sizeof last, "refused"));
    assert_false(log_changed(last, sizeof last, "refused"));
    assert_true(log_changed(last, sizeof last, "timeout and more"));
    assert_false(log_changed(last, sizeof last, "timeout and more"));
    last[0] = '\0';
    assert_true(log_changed(last, sizeof last, "timeout and more"));
}

static void an_error_is_one_clean_line(void **state) {
    (void)state;
    struct error err = {0};
    assert_false(error_set(&err, EXIT_USAGE, "--name: \"%s\" is odd", "a\nb\x1b\x7f"));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_string_equal(err.text, "--name: \"a?b??\" is odd");

    assert_false(error_set(&err, EXIT_REFUSED, "node 3: %s", err.text)); /* its own text as an argument */
    assert_string_equal(err.text, "node 3: --name: \"a?b??\" is odd");
    assert_int_equal(err.code, EXIT_REFUSED);

    char longer[4000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_false(error_set(&err, EXIT_UNEXPECTED, "%s", longer));
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_false(error_set(NULL, EXIT_USAGE, "nobody looks"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_its_form),
        cmocka_unit_test(lower_levels_are_dropped),
        cmocka_unit_test(control_characters_and_length_are_bounded),
        cmocka_unit_test(errno_survives_a_log_line),
        cmocka_unit_test(quoting),
        cmocka_unit_test(levels),
        cmocka_unit_test(a_lasting_condition_is_said_once),
        cmocka_unit_test(an_error_is_one_clean_line),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
