/* Walks the whole history of a database beside its rows. */
#ifndef QUORATE_CLI_AUDIT_VERIFY_H
#define QUORATE_CLI_AUDIT_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "cli/audit_check.h"

/* `kept`: a file of checkpoints that were kept elsewhere, or NULL. `due`: events that are not in the chain yet. False
 * with EXIT_UNEXPECTED and the first row that does not fit. */
bool audit_database(const char *conninfo, const char *kept, struct audit_keys *keys, struct audit_tally *tally,
                    int64_t *due, struct error *err) MUST_CHECK;

#endif
