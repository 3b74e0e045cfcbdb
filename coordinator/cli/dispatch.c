/* Dispatch by a command table: help, unknown names and the nearest right ones. */
#include "cli/dispatch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/redact.h"

enum { NAME_MAX_LENGTH = 32, NEAR = 2 };

static size_t least(size_t a, size_t b, size_t c) {
    size_t smaller = a < b ? a : b;
    return smaller < c ? smaller : c;
}

/* Insertions, deletions and replacements that make one word of the other; NAME_MAX_LENGTH when one is too long. */
static size_t distance(const char *a, const char *b) {
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > NAME_MAX_LENGTH || b_length > NAME_MAX_LENGTH)
        return NAME_MAX_LENGTH;
    size_t row[NAME_MAX_LENGTH + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, row[j] + 1, row[j - 1] + 1);
        }
    }
    return row[b_length];
}

static bool is_near(const char *given, const char *name) {
    return strncmp(name, given, strlen(given)) == 0 || distance(given, name) <= NEAR;
}

static void print_help(const char *program, const char *summary, const struct command *commands) {
    int width = 0;
    for (const struct command *command = commands; command->name; command++)
        width = (int)strlen(command->name) > width ? (int)strlen(command->name) : width;
    printf("Usage: %s COMMAND [ARGUMENT ...] [OPTION ...]\n\n%s\n\nCommands:\n", program, summary);
    for (const struct command *command = commands; command->name; command++)
        printf("  %-*s  %s\n", width, command->name, command->summary);
    printf("\n`%s COMMAND --help` says more about each.\n", program);
}

static int unknown_command(const char *program, const struct command *commands, const char *given) {
    char shown[65];
    snprintf(shown, sizeof shown, "%s", given);
    (void)redact(shown);
    fprintf(stderr, "%s: there is no command \"%s\"", program, shown);
    const char *before = ": did you mean ";
    for (const struct command *command = commands; command->name; command++)
        if (is_near(given, command->name)) {
            fprintf(stderr, "%s%s", before, command->name);
            before = " or ";
        }
    fprintf(stderr, "%s `%s --help` lists them\n", strcmp(before, " or ") == 0 ? "?" : ";", program);
    return EXIT_USAGE;
}

int dispatch(const char *program, const char *summary, const struct command *commands, int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "%s: a command is missing; `%s --help` lists them\n", program, program);
        return EXIT_USAGE;
    }
    if (argc == 3 && strcmp(argv[1], "help") == 0) { /* `help COMMAND` is `COMMAND --help` */
        char help[] = "--help";
        char *turned[] = {argv[0], argv[2], help, NULL};
        return dispatch(program, summary, commands, 3, turned);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(program, summary, commands);
        return EXIT_DONE;
    }
    for (const struct command *command = commands; command->name; command++)
        if (strcmp(command->name, argv[1]) == 0)
            return command->run(argc - 1, argv + 1);
    return unknown_command(program, commands, argv[1]);
}
