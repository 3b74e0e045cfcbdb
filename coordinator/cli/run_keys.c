/* The keys and secrets of `quorate run`: read from their files at the start, and again when it is told to. */
#include "cli/run_keys.h"

#include <stddef.h>

#include "base/log.h"

static void tell_unlocked(const struct run_keys *keys) {
    if (!signing_keys_locked(&keys->keys) || !secret_set_locked(keys->node_secrets))
        log_event(LOG_WARN, "keys_not_locked",
                  "hint=\"they may be written to swap: raise the limit of locked memory (ulimit -l)\"");
}

/* Who signs requests must not be able to sign history, whatever the files hold by now. */
static bool check_audit_key(struct run_keys *keys, const struct signing_keys *read, struct error *err) {
    if (keys->audit_key == NULL && keys->audit_key_file != NULL &&
        (keys->audit_key = secret_key_load(keys->audit_key_file, err)) == NULL)
        return false;
    return keys->audit_key == NULL || !signing_keys_have(read, keys->audit_key) ||
           error_set(err, EXIT_USAGE,
                     "--audit-key: this is a key of --key, too: draw another one with `quorate keygen`, so that who "
                     "signs requests cannot sign history");
}

/* A file that had secrets and has none any more was rather cut short than meant: as if it could not be read. */
static bool read_secrets(const struct run_keys *keys, struct secret_set **secrets, struct error *err) {
    *secrets = NULL;
    if (keys->node_secrets_file == NULL)
        return true;
    *secrets = secret_set_load(keys->node_secrets_file, SECRET_LINES_NODES, err);
    if (*secrets == NULL)
        return false;
    if (keys->node_secrets == NULL || secret_set_count(keys->node_secrets) == 0 || secret_set_count(*secrets) > 0)
        return true;
    secret_set_free(*secrets);
    *secrets = NULL;
    return error_set(err, EXIT_USAGE,
                     "secret file \"%.300s\" holds none any more: write a new one beside it and rename it, or restart "
                     "without secrets",
                     keys->node_secrets_file);
}

bool run_keys_read(struct run_keys *keys, struct secret_set **before, struct error *err) {
    struct signing_keys read;
    struct secret_set *secrets;
    if (!signing_keys_load(keys->key_files.values, keys->key_files.count, &read, err))
        return false;
    if (!check_audit_key(keys, &read, err) || !read_secrets(keys, &secrets, err)) {
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
    secret_key_free(keys->audit_key);
    option_list_free(&keys->key_files);
    keys->node_secrets = NULL;
    keys->audit_key = NULL;
}
