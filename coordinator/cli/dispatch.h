/* Finds the command that was asked for in a table of them. */
#ifndef QUORATE_CLI_DISPATCH_H
#define QUORATE_CLI_DISPATCH_H

struct command {
    const char *name;
    const char *summary; /* half a line for the list of commands */
    int (*run)(int argc, char **argv);
};

/* Runs the command named in argv[1] with the rest of argv, or prints the list for --help. `program`: what stands before
 * the command, such as "quorate"; `summary`: one sentence; `commands` ends with a NULL name. Returns the exit code:
 * EXIT_USAGE with the nearest right names when there is no such command. */
int dispatch(const char *program, const char *summary, const struct command *commands, int argc, char **argv);

#endif
