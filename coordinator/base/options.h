/* Command-line options from one table: the table that parses is the table that prints --help. Built on getopt_long. */
#ifndef QUORATE_BASE_OPTIONS_H
#define QUORATE_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/check.h"
#include "base/error.h"

enum option_kind {
    OPTION_FLAG,     /* bool: no argument */
    OPTION_TEXT,     /* const char *: any non-empty text (points into argv) */
    OPTION_INT,      /* int64_t: decimal, between min and max */
    OPTION_DURATION, /* int64_t: microseconds, as base/duration.h reads them, between min and max when max > 0 */
    OPTION_CHOICE,   /* const char *: one of `choices`, separated by '|' */
    OPTION_LIST,     /* struct option_list: may be given more than once */
};

struct option_list {
    const char **values; /* pointers into argv, in the order given; free with option_list_free */
    size_t count;
};

struct option_spec {
    const char *name; /* "deadline" for --deadline */
    enum option_kind kind;
    const char *argument; /* what --help calls the argument: "DURATION"; NULL for a flag */
    const char *help;     /* one sentence without a full stop; the default stands in it */
    size_t offset;        /* offsetof() the field in the caller's struct */
    int64_t min, max;     /* OPTION_INT and OPTION_DURATION */
    const char *choices;  /* OPTION_CHOICE */
    bool required;
};

struct option_argument { /* a positional argument */
    const char *name;    /* "ROUND" */
    const char *help;
    size_t offset; /* of a const char * in the caller's struct */
    bool optional; /* only the last ones may be */
};

struct command_syntax {
    const char *name;                        /* "quorate open" */
    const char *summary;                     /* one sentence */
    const struct option_argument *arguments; /* ended by a NULL name; may be NULL */
    const struct option_spec *options;       /* ended by a NULL name */
    const char *notes;                       /* printed at the end of --help; may be NULL */
};

enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_WRONG };

/* Parses argv[1..] into `into`, a struct that already holds the defaults. --help is understood everywhere: the help is
 * then printed to stdout and OPTIONS_HELP comes back. On OPTIONS_WRONG `err` has EXIT_USAGE and says which option or
 * argument, the value given and what would be right. Unique abbreviations of long options are refused (scripts must not
 * break when an option is added). An option given twice is an error unless it is an OPTION_LIST. `--` ends the options.
 */
enum options_result options_parse(const struct command_syntax *syntax, int argc, char **argv, void *into,
                                  struct error *err) MUST_CHECK;

/* Prints the help of one command, at most 100 columns wide. */
void options_help(const struct command_syntax *syntax, FILE *out);

void option_list_free(struct option_list *list);

/* Strict decimal: optional '-', digits only, no white space, within [min, max]. */
bool int_parse(const char *text, int64_t min, int64_t max, int64_t *value) MUST_CHECK;

#endif
