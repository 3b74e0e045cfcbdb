/* quorate node key, and what it and quorate node add take for the keys of a node. */
#ifndef QUORATE_CLI_KEYRING_H
#define QUORATE_CLI_KEYRING_H

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"

int cli_node_key(int argc, char **argv);

/* A public signing key or the id of a secret; a sealing key. EXIT_USAGE; `what` stands in front of the error. Nothing
 * of the text is shown that may be secret. */
bool receipt_key_check(const char *what, const char *text, struct error *err) MUST_CHECK;
bool seal_key_check(const char *what, const char *text, struct error *err) MUST_CHECK;

#endif
