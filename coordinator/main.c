/* The program `quorate`: its command table and dispatch, nothing else. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/secrecy.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/dispatch.h"

static const struct command commands[] = {
    {"migrate", "create or update the schema of a database, or check it", cli_migrate},
    {"keygen", "draw the keys of a coordinator or a node", cli_keygen},
    {"node", "add, list, enable or disable nodes, and their keys", cli_node},
    {"open", "open a round", cli_open},
    {"distribute", "store the envelopes of a round", cli_distribute},
    {"collect", "wait for a round to end and print its quorum", cli_collect},
    {"cancel", "cancel an open round", cli_cancel},
    {"status", "show the deployment, or one round with all its attempts and acks", cli_status},
    {"prune", "delete settled rounds that ended long ago", cli_prune},
    {"unseal", "open a sealed envelope that a node holds", cli_unseal},
    {"audit", "verify the history, export a round's, print a checkpoint", cli_audit},
    {"run", "run a coordinator", cli_run},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv) {
    int code = EXIT_DONE;
    secrecy_begin(argc, argv);
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        printf("quorate %s\n", QUORATE_VERSION);
    else
        code = dispatch("quorate",
                        "Delivers the shares of MPC rounds to their nodes, durably, by way of PostgreSQL.\n\n"
                        "`quorate --version` says which version this is.",
                        commands, argc, argv);

    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE) {
        perror("quorate: the result could not be written");
        code = EXIT_UNEXPECTED;
    }
    return code;
}
