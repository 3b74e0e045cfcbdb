/* Envelopes given on the command line as ID=FILE. */
#ifndef QUORATE_CLI_SHARE_H
#define QUORATE_CLI_SHARE_H

#include "base/check.h"
#include "base/error.h"
#include "base/options.h"
#include "db/array.h"

enum { ENVELOPE_MAX_BYTES = 16 * 1024 * 1024, ENVELOPES_MAX_BYTES = 256 * 1024 * 1024 };

/* Reads every ID=FILE of `shares` into `node_ids` (int4[]) and `payloads` (bytea[]), both structs of zeros at first;
 * free them with db_array_free, which wipes them, whatever the result. EXIT_USAGE for a bad syntax, the same node
 * twice, and a file that cannot be read, is empty or too large; EXIT_UNEXPECTED without memory. No byte read is in any
 * error. */
bool shares_read(const struct option_list *shares, struct db_array *node_ids, struct db_array *payloads,
                 struct error *err) MUST_CHECK;

#endif
