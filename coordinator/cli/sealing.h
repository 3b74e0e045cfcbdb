/* What is sent to each node of a round: its share sealed to the key that it had when the round was opened, or as it is.
 */
#ifndef QUORATE_CLI_SEALING_H
#define QUORATE_CLI_SEALING_H

#include <jansson.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "cli/share.h"
#include "db/array.h"

struct sealing {
    const char *round_id;
    int64_t nonce;
    bool unsealed;      /* send every share as it is */
    const json_t *keys; /* as of db_seal_keys */
};

/* Makes the envelopes of the shares, in their order, which are wiped, and marks those that are sealed: a node that has
 * a key gets it sealed. All sealed ones are on disk when this returns (cli/kept.h). `node_ids` (int4[]) and `payloads`
 * (bytea[]) are freed by the caller. No share is among the payloads that the database is certain to refuse. */
bool envelopes_make(const struct sealing *sealing, struct share_list *shares, struct db_array *node_ids,
                    struct db_array *payloads, struct error *err) MUST_CHECK;

#endif
