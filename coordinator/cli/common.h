/* What every command shares: --db and --json, parsing, and reporting errors. */
#ifndef QUORATE_CLI_COMMON_H
#define QUORATE_CLI_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "base/options.h"
#include "db/client.h"

struct common_options {
    const char *db;
    bool json;
};

/* Two entries of an option table, for a struct with a `struct common_options common`. */
#define COMMON_OPTIONS(type)                                                                                           \
    {.name = "db",                                                                                                     \
     .kind = OPTION_TEXT,                                                                                              \
     .argument = "CONNINFO",                                                                                           \
     .help = "libpq connection string or URI (default: QUORATE_DB, then libpq's PG* variables)",                       \
     .offset = offsetof(type, common.db)},                                                                             \
    {                                                                                                                  \
        .name = "json", .kind = OPTION_FLAG, .help = "print the result as one line of JSON",                           \
        .offset = offsetof(type, common.json)                                                                          \
    }

/* Parses the command line into `into`. False when the command must end at once with `*code` (help printed, or an error
 * reported). */
bool cli_parse(const struct command_syntax *syntax, int argc, char **argv, void *into, int *code) MUST_CHECK;

/* Prints "<command>: <text>" to stderr; returns the error's code. */
int cli_fail(const struct command_syntax *syntax, const struct error *err);

/* Checks a round id given by the user; EXIT_USAGE. */
bool cli_round_id(const char *text, struct error *err) MUST_CHECK;

/* Parses "7" into 1..32767; EXIT_USAGE with `what` ("--nodes") in front. */
bool cli_node_id(const char *what, const char *text, int32_t *node_id, struct error *err) MUST_CHECK;

#endif
