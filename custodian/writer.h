/* The thread that owns the store: whatever was submitted while a commit ran is the next commit. */
#ifndef CUSTODIAN_WRITER_H
#define CUSTODIAN_WRITER_H

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"
#include "store.h"

struct writer;

/* Starts the thread. `done` is called in it, once for each envelope, when its result stands; it may free the put.
 * `store` must outlive the writer. NULL when no thread can be had (EXIT_UNEXPECTED). */
struct writer *writer_start(struct store *store, void (*done)(struct put *put), struct error *err) MUST_CHECK;

/* Hands an envelope over. False once the writer is stopping: then `done` is not called. */
bool writer_submit(struct writer *writer, struct put *put) MUST_CHECK;

/* Stores what was submitted before, calls `done` for it, takes nothing more and ends the thread. */
void writer_stop(struct writer *writer);

void writer_free(struct writer *writer); /* after writer_stop; NULL is allowed */

#endif
