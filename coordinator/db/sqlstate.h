/* What an SQLSTATE means to whoever runs a command. */
#ifndef QUORATE_DB_SQLSTATE_H
#define QUORATE_DB_SQLSTATE_H

#include <stdbool.h>

#include "base/error.h"

/* The exit code for five characters; EXIT_UNREACHABLE for "" (the connection broke), EXIT_UNEXPECTED for all that
 * quorate(1) does not name. */
enum exit_code sqlstate_exit_code(const char *sqlstate);

/* True when something of the schema is missing that `quorate migrate` makes. */
bool sqlstate_is_missing_schema(const char *sqlstate);

#endif
