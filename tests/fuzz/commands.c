/* The commands of quorate with any arguments, where no database can be reached: each ends with a code of the manual. */
#include "cli/commands.h"
#include "base/error.h"
#include "fuzz.h"

enum { ARGUMENTS_MAX = 16 };

/* Those that read and write no files. */
static int (*const commands[])(int argc, char **argv) = {cli_open,  cli_collect, cli_cancel, cli_status,
                                                         cli_prune, cli_node,    cli_migrate};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    setenv("QUORATE_DB", "host=/nonexistent", 1);
    stdout = fopen("/dev/null", "w");
    stderr = fopen("/dev/null", "w"); /* libFuzzer writes to the real one */
    return stdout == NULL || stderr == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char *argv[ARGUMENTS_MAX + 1] = {0};
    unsigned which = fuzz_byte(&in) % (sizeof commands / sizeof commands[0]);
    int argc = 1;
    argv[0] = strdup("command");
    while (in.left > 0 && argc < ARGUMENTS_MAX) {
        argv[argc] = fuzz_text(&in);
        if (strncmp(argv[argc], "--db", 4) == 0)
            free(argv[argc]); /* no connection to anywhere else */
        else
            argc++;
    }
    argv[argc] = NULL;
    char **given = argv;
    int code = commands[which](argc, given);
    MUST(code == EXIT_DONE || code == EXIT_USAGE || code == EXIT_UNREACHABLE);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return 0;
}
