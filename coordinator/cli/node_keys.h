/* Keys of nodes that a collector has from the nodes themselves, and what receipts are worth under them. */
#ifndef QUORATE_CLI_NODE_KEYS_H
#define QUORATE_CLI_NODE_KEYS_H

#include <jansson.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"

struct node_keys;

/* Reads lines "ID = whpk_...", several of a node while its key changes. NULL on error: EXIT_USAGE, also for a file that
 * others can write. */
struct node_keys *node_keys_load(const char *path, struct error *err) MUST_CHECK;
void node_keys_free(struct node_keys *keys); /* NULL is allowed */

/* Verifies the receipts of what db_collect gave for `round_id`: `verified` of each share says how that ended, and
 * quorum_nodes keeps the nodes whose receipts verify; `left_out` (size bytes) names the others and why, "" when there
 * are none. False, EXIT_UNEXPECTED, when fewer verify than the round's quorum or `floor`. Nothing is believed but what
 * is signed: not even that the answer has each node once. */
bool node_keys_verify(const struct node_keys *keys, const char *round_id, int64_t floor, json_t *answer, char *left_out,
                      size_t size, struct error *err) MUST_CHECK;

#endif
