/* Seals shares to their nodes. */
#include "cli/sealing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/crash.h"
#include "cli/kept.h"

static const json_t *node_of(const json_t *keys, int32_t node_id) {
    const json_t *node;
    size_t i;
    json_array_foreach(keys, i, node) {
        if (json_integer_value(json_object_get(node, "node_id")) == node_id)
            return node;
    }
    return NULL;
}

static bool add_sealed(const struct sealing *sealing, const struct share *share, const json_t *node,
                       struct db_array *payloads, struct error *err) {
    struct kept_for wanted = {.key = {.node_id = (int)share->node_id, .nonce = sealing->nonce}};
    const char *deployment = json_string_value(json_object_get(node, "deployment_id"));
    struct error cause = {0};
    snprintf(wanted.key.deployment, sizeof wanted.key.deployment, "%s", deployment ? deployment : "");
    snprintf(wanted.key.round_id, sizeof wanted.key.round_id, "%s", sealing->round_id);
    if (!seal_key_parse(json_string_value(json_object_get(node, "seal_key")), &wanted.node, &cause))
        return error_set(err, EXIT_USAGE, "the sealing key that node %d had when the round was opened is none: %s",
                         (int)share->node_id, cause.text);
    unsigned char *envelope = NULL;
    size_t size = 0;
    if (!kept_envelope(&wanted, share, &envelope, &size, err))
        return false;
    db_array_add_bytes(payloads, envelope, size);
    free(envelope);
    return true;
}

/* Where the verdict is certain before anything is sent, the share stays here: no byte at all for a node that the
 * round does not have, so that nothing could be accepted if it were opened at this very moment, and one byte where only
 * sealed envelopes are taken and the dealer has not sealed it himself. */
static bool add_share(const struct sealing *sealing, struct share *share, struct db_array *payloads,
                      struct error *err) {
    const json_t *node = node_of(sealing->keys, share->node_id);
    share->sealed = node && !sealing->unsealed && json_is_string(json_object_get(node, "seal_key"));
    if (share->sealed)
        return add_sealed(sealing, share, node, payloads, err);
    if (!node)
        db_array_add_bytes(payloads, "", 0);
    else if (json_is_true(json_object_get(node, "require_sealed")) && !seal_marked(share->bytes, share->size))
        db_array_add_bytes(payloads, "", 1);
    else
        db_array_add_bytes(payloads, share->bytes, share->size);
    return true;
}

bool envelopes_make(const struct sealing *sealing, struct share_list *shares, struct db_array *node_ids,
                    struct db_array *payloads, struct error *err) {
    db_array_start(node_ids, DB_INT4);
    db_array_start(payloads, DB_BYTEA);
    for (size_t i = 0; i < shares->count; i++) {
        db_array_add_int4(node_ids, shares->items[i].node_id);
        if (!add_share(sealing, &shares->items[i], payloads, err))
            return false;
        share_wipe(&shares->items[i]); /* all of them twice may be too much */
    }
    crash_point("sealed_kept");
    return true;
}
