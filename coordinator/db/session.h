/* One asynchronous database connection on a libev loop: always in pipeline mode, reconnecting by itself with full
 * jitter. */
#ifndef QUORATE_DB_SESSION_H
#define QUORATE_DB_SESSION_H

#include <ev.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "db/client.h"

struct db_session;

/* All are called from the loop and may use the session, but not free it. */
struct db_session_handler {
    /* Connected, nothing in the pipeline. */
    void (*ready)(void *context);
    /* The connection is gone, and with it the answers to all that was sent: nobody knows what was committed. A new
     * connection is tried in a while; until `ready` nothing can be sent. */
    void (*lost)(void *context);
    /* The next result of the pipeline, PGRES_PIPELINE_SYNC and errors included. True: the callee keeps `result`. */
    bool (*result)(void *context, PGresult *result);
    void (*notified)(void *context, const char *channel, const char *payload); /* may be NULL */
    /* Ends with NULL; may be NULL itself: what is sent so often that the server shall parse and plan it only once a
     * connection. db_session_send knows them by their addresses. Behind a pooler, and where one of them cannot be
     * prepared, all are sent as texts. */
    const char *const *statements;
};

/* `conninfo`: as for db_client_open (NULL: environment). `label` names the session in log lines. The first connection
 * is begun at once. NULL: out of memory. */
struct db_session *db_session_new(struct ev_loop *loop, const char *conninfo, const char *application_name,
                                  const char *label, const struct db_session_handler *handler,
                                  void *context) MUST_CHECK;
void db_session_free(struct db_session *session); /* NULL is allowed; no handler is called */

bool db_session_ready(const struct db_session *session);
/* Of a ready session: false behind a pooler, where another transaction may run in another session of the server, so
 * that neither LISTEN nor a lock of the session is to be relied on. (A pooler that pools whole sessions cannot be told
 * from one that pools transactions by this.) */
bool db_session_direct(const struct db_session *session);

/* Queues one statement with binary results. False: the connection is not usable; `lost` follows from the loop. */
bool db_session_send(struct db_session *session, const char *sql, const struct db_params *params) MUST_CHECK;
/* Ends a transaction: everything sent since the last sync commits or fails as one. Sends it all. */
bool db_session_sync(struct db_session *session) MUST_CHECK;

/* Drops the connection, as if it had been lost, and connects again under another application name (NULL: the same). It
 * is the caller who tells the log of whatever is wrong. */
void db_session_restart(struct db_session *session, const char *why, const char *application_name);

/* How often a connection was lost or could not be made. */
unsigned long db_session_losses(const struct db_session *session);

#endif
