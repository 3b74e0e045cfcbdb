/* Records that the chain keeps, since their rows change: what one says must be what a rule lets come after the one
 * before. */
#ifndef QUORATE_CLI_AUDIT_PAST_H
#define QUORATE_CLI_AUDIT_PAST_H

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"
#include "wire/checkpoint.h"

struct past_record;

/* The newest record of each row so far. Start from zeros. */
struct audit_past {
    struct past_record *records;
};

/* Takes records in the order of the chain. EXIT_UNEXPECTED if an earlier one of the row says what never changes, or was
 * written once, and this one says something else. */
bool audit_past_check(struct audit_past *past, const struct history_entry *entry, const char *record,
                      struct error *err) MUST_CHECK;
void audit_past_free(struct audit_past *past);

#endif
