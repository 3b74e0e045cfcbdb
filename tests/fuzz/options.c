/* Command lines: a table with every kind of option, and the custodian's own; what is taken is within its limits. */
#include "base/options.h"

#include "../../custodian/settings.h"
#include "fuzz.h"

struct values {
    bool flag;
    const char *text, *choice, *first, *second;
    int64_t number, duration;
    struct option_list list;
};

#define FIELD(name) offsetof(struct values, name)
static const struct option_spec options[] = {
    {.name = "flag", .kind = OPTION_FLAG, .help = "a flag", .offset = FIELD(flag)},
    {.name = "text",
     .kind = OPTION_TEXT,
     .argument = "TEXT",
     .help = "a text",
     .offset = FIELD(text),
     .required = true},
    {.name = "number", .kind = OPTION_INT, .help = "a number", .offset = FIELD(number), .min = -5, .max = 70000},
    {.name = "duration",
     .kind = OPTION_DURATION,
     .help = "a duration",
     .offset = FIELD(duration),
     .min = 5,
     .max = 5000000},
    {.name = "choice", .kind = OPTION_CHOICE, .help = "a choice", .offset = FIELD(choice), .choices = "one|two|three"},
    {.name = "list", .kind = OPTION_LIST, .help = "a list", .offset = FIELD(list)},
    {0},
};
static const struct option_argument arguments[] = {
    {"FIRST", "the first", FIELD(first), false}, {"SECOND", "the second", FIELD(second), true}, {0}};
static const struct command_syntax syntax = {
    .name = "fuzz", .summary = "Takes anything.", .arguments = arguments, .options = options, .notes = "Nothing more."};

enum { ARGUMENTS_MAX = 24 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    stdout = fopen("/dev/null", "w"); /* --help */
    return stdout == NULL;
}

static bool given(char **argv, int argc, const char *value) {
    for (int i = 1; i < argc; i++)
        if (value >= argv[i] && value <= argv[i] + strlen(argv[i]))
            return true;
    return false;
}

static void check(const struct values *v, char **argv, int argc) {
    MUST(v->text != NULL && v->text[0] != '\0' && given(argv, argc, v->text));
    MUST(v->first != NULL && v->first[0] != '\0' && given(argv, argc, v->first));
    MUST(v->second == NULL || (v->second[0] != '\0' && given(argv, argc, v->second)));
    MUST(v->number >= -5 && v->number <= 70000);
    MUST(v->duration == 0 || (v->duration >= 5 && v->duration <= 5000000));
    MUST(v->choice == NULL || strcmp(v->choice, "one") == 0 || strcmp(v->choice, "two") == 0 ||
         strcmp(v->choice, "three") == 0);
    for (size_t i = 0; i < v->list.count; i++)
        MUST(v->list.values[i][0] != '\0' && given(argv, argc, v->list.values[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct error err = {0};
    struct values values = {0};
    struct settings settings;
    bool own = fuzz_byte(&in) & 1;
    char *argv[ARGUMENTS_MAX + 1] = {strdup("fuzz")};
    int argc = 1;
    while (in.left > 0 && argc < ARGUMENTS_MAX)
        argv[argc++] = fuzz_text(&in);
    enum options_result result =
        own ? settings_parse(argc, argv, &settings, &err) : options_parse(&syntax, argc, argv, &values, &err);
    if (result == OPTIONS_OK && !own)
        check(&values, argv, argc);
    if (result == OPTIONS_OK && own)
        MUST(settings.node_id >= 1 && settings.node_id <= 32767 && (settings.key == NULL) != (settings.secret == NULL));
    MUST((result == OPTIONS_WRONG) == (err.code == EXIT_USAGE));
    MUST(fuzz_is_line(err.text) && (result != OPTIONS_WRONG || err.text[0] != '\0'));
    if (own)
        settings_free(&settings);
    else if (result == OPTIONS_OK)
        option_list_free(&values.list);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return 0;
}
