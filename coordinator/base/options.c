/* Parses a command line by its table, on top of getopt_long. */
#include "base/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"

/* How getopt_long tells which option it found: OPTION_BASE + its place in the table; above every character. */
enum { OPTION_BASE = 256, POSITIONAL = 1 };

struct parser {
    const struct command_syntax *syntax;
    char *into;
    struct error *err;
    size_t option_count;
    struct option *long_options; /* the table as getopt wants it, --help last */
    bool *seen;
    size_t argument_count; /* positional arguments so far */
};

bool int_parse(const char *text, int64_t min, int64_t max, int64_t *value) {
    bool negative = text[0] == '-';
    const char *digits = text + (negative ? 1 : 0);
    if (digits[0] == '\0')
        return false;
    int64_t result = 0; /* counted downwards, where the range is one larger */
    for (const char *c = digits; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(result, 10, &result) ||
            __builtin_sub_overflow(result, *c - '0', &result))
            return false;
    }
    if (!negative && __builtin_sub_overflow(0, result, &result))
        return false;
    if (result < min || result > max)
        return false;
    *value = result;
    return true;
}

static bool wrong_int(const struct option_spec *option, const char *value, struct error *err) {
    return error_set(err, EXIT_USAGE, "--%s: \"%.200s\" is no number from %" PRId64 " to %" PRId64, option->name, value,
                     option->min, option->max);
}

static bool set_duration(const struct option_spec *option, const char *value, int64_t *field, struct error *err) {
    int64_t duration;
    if (!duration_parse(value, &duration))
        return error_set(
            err, EXIT_USAGE,
            "--%s: \"%.200s\" is no duration: write a number with a unit (us, ms, s, m, h, d), such as 250ms or 8s",
            option->name, value);
    if (option->max > 0 && (duration < option->min || duration > option->max)) {
        char least[32], most[32];
        return error_set(err, EXIT_USAGE, "--%s: \"%.200s\" is out of range: write a duration from %s to %s",
                         option->name, value, duration_format(option->min, least, sizeof least),
                         duration_format(option->max, most, sizeof most));
    }
    *field = duration;
    return true;
}

static bool choice_known(const char *choices, const char *value) {
    size_t length = strlen(value);
    for (const char *at = choices; length > 0; at++) {
        size_t size = strcspn(at, "|");
        if (size == length && memcmp(at, value, size) == 0)
            return true;
        at += size;
        if (*at == '\0')
            break;
    }
    return false;
}

static bool wrong_choice(const struct option_spec *option, const char *value, struct error *err) {
    char list[256] = "";
    size_t used = 0;
    for (const char *c = option->choices; *c != '\0' && used + 8 < sizeof list; c++) {
        const char *joint = strchr(c + 1, '|') != NULL ? ", " : " or ";
        if (*c == '|')
            used += (size_t)snprintf(list + used, sizeof list - used, "%s", joint);
        else
            list[used++] = *c;
    }
    list[used] = '\0';
    return error_set(err, EXIT_USAGE, "--%s: \"%.200s\" is not known: write %s", option->name, value, list);
}

static bool append(struct option_list *list, const char *value, struct error *err) {
    const char **grown = realloc(list->values, (list->count + 1) * sizeof *grown);
    if (grown == NULL)
        return error_set(err, EXIT_UNEXPECTED, "out of memory while reading the command line");
    list->values = grown;
    list->values[list->count++] = value;
    return true;
}

static bool set_option(struct parser *p, size_t index, const char *value) {
    const struct option_spec *option = &p->syntax->options[index];
    void *field = p->into + option->offset;
    if (p->seen[index] && option->kind != OPTION_LIST)
        return error_set(p->err, EXIT_USAGE, "--%s is given twice: give it once", option->name);
    p->seen[index] = true;
    if (option->kind != OPTION_FLAG && value[0] == '\0')
        return error_set(p->err, EXIT_USAGE, "--%s: \"\" is empty: write %s", option->name,
                         option->argument != NULL ? option->argument : "a value");

    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_TEXT:
        *(const char **)field = value;
        return true;
    case OPTION_INT:
        return int_parse(value, option->min, option->max, field) || wrong_int(option, value, p->err);
    case OPTION_DURATION:
        return set_duration(option, value, field, p->err);
    case OPTION_CHOICE:
        if (!choice_known(option->choices, value))
            return wrong_choice(option, value, p->err);
        *(const char **)field = value;
        return true;
    case OPTION_LIST:
        return append(field, value, p->err);
    }
    return error_set(p->err, EXIT_UNEXPECTED, "--%s has an unknown kind", option->name);
}

static bool set_argument(struct parser *p, const char *value) {
    const struct option_argument *argument = p->syntax->arguments;
    if (argument != NULL)
        argument += p->argument_count;
    if (argument == NULL || argument->name == NULL)
        return error_set(p->err, EXIT_USAGE, "unexpected argument \"%.200s\"; see '%s --help'", value, p->syntax->name);
    if (value[0] == '\0')
        return error_set(p->err, EXIT_USAGE, "%s: \"\" is empty; see '%s --help'", argument->name, p->syntax->name);
    *(const char **)(void *)(p->into + argument->offset) = value;
    p->argument_count++;
    return true;
}

static bool nothing_missing(struct parser *p) {
    const struct option_argument *argument = p->syntax->arguments;
    if (argument != NULL && argument[p->argument_count].name != NULL && !argument[p->argument_count].optional)
        return error_set(p->err, EXIT_USAGE, "%s is missing; see '%s --help'", argument[p->argument_count].name,
                         p->syntax->name);
    for (size_t i = 0; i < p->option_count; i++) {
        const struct option_spec *option = &p->syntax->options[i];
        if (option->required && !p->seen[i])
            return error_set(p->err, EXIT_USAGE, "--%s %s is missing; see '%s --help'", option->name,
                             option->argument != NULL ? option->argument : "", p->syntax->name);
    }
    return true;
}

/* Says why getopt refused argv element `given`, which it knew as option `index` of the table, or not at all. */
static bool wrong_option(struct parser *p, const char *given, int problem, int index) {
    if (index < 0)
        return error_set(p->err, EXIT_USAGE, "unknown option %.*s; see '%s --help'", (int)strcspn(given, "="), given,
                         p->syntax->name);
    const char *name = p->long_options[index].name;
    if (problem == ':')
        return error_set(p->err, EXIT_USAGE, "--%s needs a value: write --%s %s", name, name,
                         p->syntax->options[index].argument != NULL ? p->syntax->options[index].argument : "VALUE");
    return error_set(p->err, EXIT_USAGE, "--%s takes no value: write --%s alone", name, name);
}

/* True when `given` is the whole name "--name" or "--name=…": getopt_long would take "--nam" as well. */
static bool given_in_full(const char *given, const char *name) {
    size_t length = strlen(name);
    return strncmp(given, "--", 2) == 0 && strncmp(given + 2, name, length) == 0 &&
           (given[2 + length] == '\0' || given[2 + length] == '=');
}

static enum options_result parse_all(struct parser *p, int argc, char **argv) {
    optind = 0; /* glibc: start afresh, whatever was parsed before */
    opterr = 0;
    for (;;) {
        int at = optind == 0 ? 1 : optind;
        /* '-': arguments come in their order, whatever POSIXLY_CORRECT says; ':': a missing value is told apart. */
        int found = getopt_long(argc, argv, "-:", p->long_options, NULL);
        if (found == -1)
            break;
        if (found == POSITIONAL) {
            if (!set_argument(p, optarg))
                return OPTIONS_WRONG;
            continue;
        }
        bool refused = found == '?' || found == ':';
        int index = (refused ? optopt : found) - OPTION_BASE;
        if (index >= 0 && !given_in_full(argv[at], p->long_options[index].name))
            index = -1;
        if (refused || index < 0) {
            (void)wrong_option(p, argv[at], found, index);
            return OPTIONS_WRONG;
        }
        if ((size_t)index == p->option_count)
            return OPTIONS_HELP;
        if (!set_option(p, (size_t)index, optarg))
            return OPTIONS_WRONG;
    }
    for (int i = optind; i < argc; i++) /* what stands behind "--" */
        if (!set_argument(p, argv[i]))
            return OPTIONS_WRONG;
    return nothing_missing(p) ? OPTIONS_OK : OPTIONS_WRONG;
}

static bool parser_init(struct parser *p) {
    while (p->syntax->options[p->option_count].name != NULL)
        p->option_count++;
    p->long_options = calloc(p->option_count + 2, sizeof *p->long_options);
    p->seen = calloc(p->option_count + 1, sizeof *p->seen);
    if (p->long_options == NULL || p->seen == NULL)
        return error_set(p->err, EXIT_UNEXPECTED, "out of memory while reading the command line");
    for (size_t i = 0; i < p->option_count; i++) {
        const struct option_spec *option = &p->syntax->options[i];
        p->long_options[i].name = option->name;
        p->long_options[i].has_arg = option->kind == OPTION_FLAG ? no_argument : required_argument;
        p->long_options[i].val = OPTION_BASE + (int)i;
    }
    p->long_options[p->option_count] =
        (struct option){.name = "help", .has_arg = no_argument, .val = OPTION_BASE + (int)p->option_count};
    return true;
}

enum options_result options_parse(const struct command_syntax *syntax, int argc, char **argv, void *into,
                                  struct error *err) {
    struct parser p = {.syntax = syntax, .into = into, .err = err};
    enum options_result result = parser_init(&p) ? parse_all(&p, argc, argv) : OPTIONS_WRONG;
    for (size_t i = 0; result != OPTIONS_OK && i < p.option_count; i++)
        if (syntax->options[i].kind == OPTION_LIST)
            option_list_free((void *)(p.into + syntax->options[i].offset));
    if (result == OPTIONS_HELP)
        options_help(syntax, stdout);
    free(p.long_options);
    free(p.seen);
    return result;
}

void option_list_free(struct option_list *list) {
    free(list->values);
    *list = (struct option_list){0};
}
