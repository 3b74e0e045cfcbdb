/* The custodian's shares in one SQLite file; used by one thread at a time. */
#ifndef CUSTODIAN_STORE_H
#define CUSTODIAN_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"
#include "wire/webhook.h"

struct store;

enum put_result {
    PUT_STORED,   /* new, and on disk */
    PUT_HELD,     /* the same nonce and bytes were there already, on disk */
    PUT_CONFLICT, /* another nonce or other bytes are there for the same deployment, round and node */
    PUT_FAILED,   /* the store failed: nothing of the group is known to be on disk */
};

/* One envelope to be stored; whoever submits it keeps it, and its payload, alive until it has its result. */
struct put {
    struct put *next;
    struct envelope_key key;
    unsigned char digest[SHA256_BYTES]; /* SHA-256 of the payload */
    const void *payload;
    size_t payload_size; /* 1..16 MiB */
    enum put_result result;
};

/* Opens `path` (must outlive the store), or creates it with mode 0600, for the shares of `node_id` (1..32767). When it
 * returns, all that the store shows is on disk, also what a process that was killed had not synced yet. EXIT_USAGE for
 * a file that others can read or write, that is no custodian's store, that is of a newer format or that belongs to
 * another node; EXIT_UNEXPECTED when the file system or SQLite fails. */
struct store *store_open(const char *path, int node_id, struct error *err) MUST_CHECK;

/* Stores a list of envelopes in one transaction, in their order, and fills in their results once it is synced to disk.
 * On failure every result is PUT_FAILED and `err` says why. */
bool store_put_group(struct store *store, struct put *list, struct error *err) MUST_CHECK;

void store_close(struct store *store); /* NULL is allowed */

#endif
