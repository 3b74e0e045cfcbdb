/* The keys and secrets of `quorate run`: read from their files at the start, and again when it is told to. */
#ifndef QUORATE_CLI_RUN_KEYS_H
#define QUORATE_CLI_RUN_KEYS_H

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"
#include "base/options.h"
#include "wire/secret.h"
#include "wire/signing_keys.h"

struct run_keys {
    struct option_list key_files;
    const char *node_secrets_file; /* NULL: none */
    const char *audit_key_file;    /* NULL: none */
    struct signing_keys keys;
    struct secret_set *node_secrets; /* NULL: none */
    struct secret_key *audit_key;    /* NULL: none; read once and for all */
};

/* Reads all files into `keys`, whose lists of files the caller has filled in; on error all stays as it was. `*before`
 * receives the secrets that were there: for the caller to free, once nobody uses them. What could not be locked in
 * memory is told in the log. */
bool run_keys_read(struct run_keys *keys, struct secret_set **before, struct error *err) MUST_CHECK;
void run_keys_free(struct run_keys *keys);

#endif
