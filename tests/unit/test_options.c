/* Option parsing: every kind, every way to be wrong and what is said about it, and the help from the same table. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"

struct settings {
    const char *round, *file;
    bool json;
    const char *name, *mode;
    int64_t quorum, deadline;
    struct option_list shares;
};

static const struct option_argument arguments[] = {
    {.name = "ROUND", .help = "the round's id", .offset = offsetof(struct settings, round)},
    {.name = "FILE", .help = "a file", .offset = offsetof(struct settings, file), .optional = true},
    {0},
};

static const struct option_spec options[] = {
    {.name = "quorum",
     .kind = OPTION_INT,
     .argument = "T",
     .help = "how many nodes must hold their envelope",
     .offset = offsetof(struct settings, quorum),
     .min = 1,
     .max = 255,
     .required = true},
    {.name = "deadline",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "how long the round may take (default: 8s)",
     .offset = offsetof(struct settings, deadline),
     .min = 1000,
     .max = 3600000000},
    {.name = "name",
     .kind = OPTION_TEXT,
     .argument = "NAME",
     .help = "a name",
     .offset = offsetof(struct settings, name)},
    {.name = "after-quorum",
     .kind = OPTION_CHOICE,
     .argument = "continue|stop|wait",
     .help =
         "what becomes of the remaining deliveries once the quorum is met; this sentence is long on purpose, so that "
         "it has to be broken into several lines",
     .offset = offsetof(struct settings, mode),
     .choices = "continue|stop|wait"},
    {.name = "share",
     .kind = OPTION_LIST,
     .argument = "ID=FILE",
     .help = "an envelope; may be given more than once",
     .offset = offsetof(struct settings, shares)},
    {.name = "json", .kind = OPTION_FLAG, .help = "print JSON", .offset = offsetof(struct settings, json)},
    {0},
};

static const struct command_syntax syntax = {
    .name = "quorate try",
    .summary = "Tries the options.",
    .arguments = arguments,
    .options = options,
    .notes = "Example:\n  quorate try r1 --quorum 2",
};

/* Parses the words (NULL ends them) behind "try". */
static enum options_result parse(struct settings *into, struct error *err, const char *const *words) {
    char *argv[32] = {(char *)(uintptr_t) "try"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    *into = (struct settings){.quorum = -1, .deadline = 8000000, .mode = "continue"};
    *err = (struct error){0};
    return options_parse(&syntax, argc, argv, into, err);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void everything_right(void **state) {
    (void)state;
    struct settings s;
    struct error err;
    assert_int_equal(parse(&s, &err,
                           WORDS("--share", "1=a", "r1", "--quorum=2", "--json", "--deadline", "1.5s", "--share=2=b",
                                 "--after-quorum", "stop", "--name", "--odd", "f1")),
                     OPTIONS_OK);
    assert_string_equal(s.round, "r1");
    assert_string_equal(s.file, "f1");
    assert_int_equal(s.quorum, 2);
    assert_int_equal(s.deadline, 1500000);
    assert_true(s.json);
    assert_string_equal(s.mode, "stop");
    assert_string_equal(s.name, "--odd");
    assert_int_equal(s.shares.count, 2);
    assert_string_equal(s.shares.values[0], "1=a");
    assert_string_equal(s.shares.values[1], "2=b");
    assert_int_equal(err.code, EXIT_DONE);
    option_list_free(&s.shares);
    assert_int_equal(s.shares.count, 0);
    assert_null(s.shares.values);
}

static void defaults_stay(void **state) {
    (void)state;
    struct settings s;
    struct error err;
    assert_int_equal(parse(&s, &err, WORDS("r1", "--quorum", "255")), OPTIONS_OK);
    assert_null(s.file);
    assert_null(s.name);
    assert_false(s.json);
    assert_int_equal(s.deadline, 8000000);
    assert_string_equal(s.mode, "continue");
    assert_int_equal(s.shares.count, 0);
}

static void two_dashes_end_the_options(void **state) {
    (void)state;
    struct settings s;
    struct error err;
    assert_int_equal(parse(&s, &err, WORDS("--quorum", "1", "--", "--json", "-x")), OPTIONS_OK);
    assert_string_equal(s.round, "--json");
    assert_string_equal(s.file, "-x");
    assert_false(s.json);
    assert_int_equal(parse(&s, &err, WORDS("--quorum", "1", "-")), OPTIONS_OK);
    assert_string_equal(s.round, "-");
}

static void order_does_not_depend_on_the_environment(void **state) {
    (void)state;
    struct settings s;
    struct error err;
    setenv("POSIXLY_CORRECT", "1", 1);
    enum options_result result = parse(&s, &err, WORDS("r1", "--quorum", "2", "f1", "--json"));
    unsetenv("POSIXLY_CORRECT");
    assert_int_equal(result, OPTIONS_OK);
    assert_true(s.json);
    assert_string_equal(s.file, "f1");
}

static void every_error_says_what_would_be_right(void **state) {
    (void)state;
    static const struct {
        const char *words[8];
        const char *text;
    } wrong[] = {
        {{"r1", "--quorum", "2", "--deadline", "8"},
         "--deadline: \"8\" is no duration: write a number with a unit (us, ms, s, m, h, d), such as 250ms or 8s"},
        {{"r1", "--quorum", "2", "--deadline", "2h"},
         "--deadline: \"2h\" is out of range: write a duration from 1ms to 1h"},
        {{"r1", "--quorum", "2", "--deadline", "1us"},
         "--deadline: \"1us\" is out of range: write a duration from 1ms to 1h"},
        {{"r1", "--quorum", "0"}, "--quorum: \"0\" is no number from 1 to 255"},
        {{"r1", "--quorum", "256"}, "--quorum: \"256\" is no number from 1 to 255"},
        {{"r1", "--quorum", "two"}, "--quorum: \"two\" is no number from 1 to 255"},
        {{"r1", "--quorum", "2 "}, "--quorum: \"2 \" is no number from 1 to 255"},
        {{"r1", "--quorum", ""}, "--quorum: \"\" is empty: write T"},
        {{"r1", "--quorum="}, "--quorum: \"\" is empty: write T"},
        {{"r1", "--quorum"}, "--quorum needs a value: write --quorum T"},
        {{"r1", "--quorum", "1", "--name", ""}, "--name: \"\" is empty: write NAME"},
        {{"r1", "--quorum", "1", "--share", ""}, "--share: \"\" is empty: write ID=FILE"},
        {{"r1", "--quorum", "1", "--quorum", "1"}, "--quorum is given twice: give it once"},
        {{"r1", "--quorum", "1", "--json", "--json"}, "--json is given twice: give it once"},
        {{"r1", "--quorum", "1", "--json=yes"}, "--json takes no value: write --json alone"},
        {{"r1", "--quorum", "1", "--help=yes"}, "--help takes no value: write --help alone"},
        {{"r1", "--quorum", "1", "--after-quorum", "sto"},
         "--after-quorum: \"sto\" is not known: write continue, stop or wait"},
        {{"r1", "--quorum", "1", "--after-quorum", "continue|stop"},
         "--after-quorum: \"continue|stop\" is not known: write continue, stop or wait"},
        {{"r1", "--quorum", "1", "--after-quorum", "|"},
         "--after-quorum: \"|\" is not known: write continue, stop or wait"},
        {{"r1", "--foo"}, "unknown option --foo; see 'quorate try --help'"},
        {{"r1", "--foo=bar"}, "unknown option --foo; see 'quorate try --help'"},
        {{"r1", "--quo", "1"}, "unknown option --quo; see 'quorate try --help'"},
        {{"r1", "--quo=1"}, "unknown option --quo; see 'quorate try --help'"},
        {{"r1", "--quo"}, "unknown option --quo; see 'quorate try --help'"},
        {{"r1", "--js=1"}, "unknown option --js; see 'quorate try --help'"},
        {{"r1", "--hel"}, "unknown option --hel; see 'quorate try --help'"},
        {{"r1", "-x"}, "unknown option -x; see 'quorate try --help'"},
        {{"r1", "-json"}, "unknown option -json; see 'quorate try --help'"},
        {{"--quorum", "1"}, "ROUND is missing; see 'quorate try --help'"},
        {{"r1"}, "--quorum T is missing; see 'quorate try --help'"},
        {{"r1", "f1", "g1", "--quorum", "1"}, "unexpected argument \"g1\"; see 'quorate try --help'"},
        {{"--quorum", "1", "--", "r1", "f1", "g1"}, "unexpected argument \"g1\"; see 'quorate try --help'"},
        {{"", "--quorum", "1"}, "ROUND: \"\" is empty; see 'quorate try --help'"},
        {{"r1", "--quorum", "1\n2"}, "--quorum: \"1?2\" is no number from 1 to 255"},
        {{"r1", "--share", "1=a", "--quorum", "x"}, "--quorum: \"x\" is no number from 1 to 255"},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct settings s;
        struct error err;
        assert_int_equal(parse(&s, &err, wrong[i].words), OPTIONS_WRONG);
        assert_string_equal(err.text, wrong[i].text);
        assert_int_equal(err.code, EXIT_USAGE);
        assert_null(s.shares.values); /* nothing left to free */
    }
}

static void numbers(void **state) {
    (void)state;
    int64_t value = 77;
    assert_true(int_parse("0", 0, 1, &value));
    assert_int_equal(value, 0);
    assert_true(int_parse("-5", -5, 5, &value));
    assert_int_equal(value, -5);
    assert_true(int_parse("9223372036854775807", INT64_MIN, INT64_MAX, &value));
    assert_true(value == INT64_MAX);
    assert_true(int_parse("-9223372036854775808", INT64_MIN, INT64_MAX, &value));
    assert_true(value == INT64_MIN);
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "1.0",
                                      "1e3",
                                      "--1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "one",
                                      "1\n",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        value = 77;
        assert_false(int_parse(bad[i], INT64_MIN, INT64_MAX, &value));
        assert_int_equal(value, 77);
    }
    assert_false(int_parse("6", -5, 5, &value));
    assert_false(int_parse("-6", -5, 5, &value));
}

/* What options_help prints, or what --help does when parsed; free it. */
static char *help_text(void) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    options_help(&syntax, out);
    fclose(out);
    return text;
}

static void help_comes_from_the_table(void **state) {
    (void)state;
    char *text = help_text();
    assert_non_null(strstr(text, "Usage: quorate try ROUND [FILE] --quorum T [OPTION ...]\n"));
    assert_non_null(strstr(text, "\nTries the options.\n"));
    assert_non_null(strstr(text, "\n  quorate try r1 --quorum 2\n"));
    for (size_t i = 0; options[i].name != NULL; i++) {
        char label[64];
        snprintf(label, sizeof label, "  --%s%s%s ", options[i].name, options[i].argument != NULL ? " " : "",
                 options[i].argument != NULL ? options[i].argument : "");
        if (strlen(label) > 33) /* too long for the column: its sentence begins on the next line */
            label[strlen(label) - 1] = '\n';
        if (strstr(text, label) == NULL)
            fail_msg("no \"%s\" in the help:\n%s", label, text);
    }
    assert_non_null(strstr(text, "  --help "));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 100);
        if (line[strcspn(line, "\n")] == '\0')
            break;
    }
    free(text);
}

static void help_is_understood_everywhere(void **state) {
    (void)state;
    struct settings s;
    struct error err;
    /* It goes to stdout, which carries the test's own report: turned away while it is printed. */
    char *text = NULL;
    size_t size = 0;
    FILE *old = stdout;
    stdout = open_memstream(&text, &size);
    assert_non_null(stdout);
    enum options_result alone = parse(&s, &err, WORDS("--help"));
    enum options_result last = parse(&s, &err, WORDS("r1", "--share", "1=a", "--help"));
    fclose(stdout);
    stdout = old;
    assert_int_equal(alone, OPTIONS_HELP);
    assert_int_equal(last, OPTIONS_HELP);
    assert_null(s.shares.values);
    char *expected = help_text();
    assert_int_equal(size, 2 * strlen(expected));
    assert_memory_equal(text, expected, strlen(expected));
    free(expected);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_right),
        cmocka_unit_test(defaults_stay),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(order_does_not_depend_on_the_environment),
        cmocka_unit_test(every_error_says_what_would_be_right),
        cmocka_unit_test(numbers),
        cmocka_unit_test(help_comes_from_the_table),
        cmocka_unit_test(help_is_understood_everywhere),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
