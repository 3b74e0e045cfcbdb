/* What `quorate audit` asks of the database; answers in JSON, bytes in hexadecimal. */
#ifndef QUORATE_DB_AUDIT_H
#define QUORATE_DB_AUDIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "db/client.h"

/* All of these return NULL on failure, with the exit code of the SQLSTATE; the caller owns what they give. */

/* {deployment_id, entries, due, importing, now_us} */
json_t *db_audit_status(struct db_client *client, struct error *err) MUST_CHECK;
/* [{seq, at_us, kind, key, digest, hash, parts, record, row_parts, verdict}], ascending, at most `max`; as
 * quorate.history_entries. */
json_t *db_audit_entries(struct db_client *client, int64_t after, int64_t max, struct error *err) MUST_CHECK;
/* {upto, gaps: [{source, key, problem}]}; as quorate.history_gaps. */
json_t *db_audit_gaps(struct db_client *client, int64_t after, int64_t max, struct error *err) MUST_CHECK;
/* [{checkpoint_no, seq, line}] whose seq is in (after, upto] */
json_t *db_audit_checkpoints(struct db_client *client, int64_t after, int64_t upto, struct error *err) MUST_CHECK;
/* The newest one's line, or the oldest one's that covers entry `seq` when that is above 0; JSON null when there is
 * none.
 */
json_t *db_audit_checkpoint(struct db_client *client, int64_t seq, struct error *err) MUST_CHECK;
/* [{seq, at_us, kind, key, digest, parts, record, before}] of one round; EXIT_UNKNOWN without such a round. */
json_t *db_audit_round(struct db_client *client, const char *round_id, struct error *err) MUST_CHECK;
/* ["link"] of the entries in (after, upto] */
json_t *db_audit_links(struct db_client *client, int64_t after, int64_t upto, struct error *err) MUST_CHECK;

/* Whether the functions that make the records are those of this program: whoever may replace one could make it say
 * what was recorded instead of what is there. False with EXIT_UNEXPECTED, and the name of the first that is not. */
bool db_audit_functions(struct db_client *client, struct error *err) MUST_CHECK;

#endif
