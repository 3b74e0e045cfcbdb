/* Checks of the history that need no database: records, their receipts, the chain, checkpoints, and exported files. */
#ifndef QUORATE_CLI_AUDIT_CHECK_H
#define QUORATE_CLI_AUDIT_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"
#include "base/options.h"
#include "wire/checkpoint.h"

#define AUDIT_FORMAT "quorate-audit-v1"

/* What was seen on the way. */
struct audit_tally {
    size_t entries, receipts, symmetric, checkpoints;
    size_t unsigned_entries; /* of a database: after its last checkpoint */
};

/* Keys by which checkpoints may be signed; none given: any, and `seen` says by which. */
struct audit_keys {
    struct public_key keys[8], seen;
    size_t count;
};

/* EXIT_USAGE unless all of them are public keys, and few enough. */
bool audit_keys_parse(struct audit_keys *keys, const struct option_list *list, struct error *err) MUST_CHECK;

/* Reads {seq, at_us, kind, key, digest, parts}; EXIT_UNEXPECTED. */
bool audit_entry(const json_t *json, struct history_entry *entry, struct error *err) MUST_CHECK;

/* The record's text has this digest; it says what its entry does; every receipt in it verifies, or is symmetric; and a
 * complete round has its quorum. */
bool audit_record(const char *deployment, const struct history_entry *entry, const char *record,
                  struct audit_tally *tally, struct error *err) MUST_CHECK;

/* The checkpoint on this line is signed by one of the keys, for this deployment. */
bool audit_checkpoint(const char *deployment, const char *line, struct audit_keys *keys, struct checkpoint *checkpoint,
                      struct error *err) MUST_CHECK;

/* A file that `quorate audit export` wrote. */
bool audit_file(const char *path, struct audit_keys *keys, struct audit_tally *tally, struct error *err) MUST_CHECK;
bool audit_text(const char *text, size_t size, struct audit_keys *keys, struct audit_tally *tally,
                struct error *err) MUST_CHECK; /* what stands in one */
/* As such files are written: one way only, so that no byte of one can change without a difference. */
char *audit_dump(const json_t *json) MUST_CHECK;
enum { AUDIT_FILE_MAX = 256 * 1024 * 1024 };

#endif
