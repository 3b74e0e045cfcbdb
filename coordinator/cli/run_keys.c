/* The keys and secrets of `quorate run`: read from their files at the start, and again when it is told to. */
#include "cli/run_keys.h"

#include <stddef.h>

#include "base/log.h"

static void tell_unlocked(const struct run_keys *keys) {
    if (!signing_keys_locked(&keys->keys) || !secret_set_locked(keys->node_secrets))
        log_event(LOG_WARN, "keys_not_locked",
                  "hint=\"they may be written to swap: raise the limit of locked memory (ulimit -l)\"");
}

bool run_keys_read(struct run_keys *keys, struct secret_set **before, struct error *err) {
    struct signing_keys read;
    struct secret_set *secrets = NULL;
    if (!signing_keys_load(keys->key_files.values, keys->key_files.count, &read, err))
        return false;
    if (keys->node_secrets_file != NULL &&
        (secrets = secret_set_load(keys->node_secrets_file, SECRET_LINES_NODES, err)) == NULL) {
        signing_keys_free(&read);
        return false;
    }
    signing_keys_free(&keys->keys); /* no request is half signed: all of it happens in one turn of the loop */
    keys->keys = read;
    *before = keys->node_secrets;
    keys->node_secrets = secrets;
    tell_unlocked(keys);
    return true;
}

void run_keys_free(struct run_keys *keys) {
    signing_keys_free(&keys->keys);
    secret_set_free(keys->node_secrets);
    option_list_free(&keys->key_files);
    keys->node_secrets = NULL;
}
