/* The commands of `quorate`. Each takes argc and argv with its own name in argv[0], prints results to stdout and
 * everything else to stderr, and returns an exit code (enum exit_code). */
#ifndef QUORATE_CLI_COMMANDS_H
#define QUORATE_CLI_COMMANDS_H

int cli_audit(int argc, char **argv);
int cli_cancel(int argc, char **argv);
int cli_collect(int argc, char **argv);
int cli_distribute(int argc, char **argv);
int cli_keygen(int argc, char **argv);
int cli_migrate(int argc, char **argv);
int cli_node(int argc, char **argv);
int cli_open(int argc, char **argv);
int cli_prune(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_unseal(int argc, char **argv);

#endif
