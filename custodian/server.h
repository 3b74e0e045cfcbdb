/* The custodian's HTTP side: takes requests, judges them, and answers once the store has spoken. */
#ifndef CUSTODIAN_SERVER_H
#define CUSTODIAN_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "judge.h"
#include "store.h"

struct tls;

struct server_config {
    struct judge_rules rules;
    const struct secret_key *key;      /* signs receipts; must outlive the server, as the secrets of the rules, which
                                          do it in its place if there are any */
    struct tls *tls;                   /* must outlive the server; NULL: plain HTTP */
    size_t max_body;                   /* bytes, 1..ENVELOPE_BYTES_MAX */
    unsigned max_connections;          /* in all, >= 1; more wait in the listening socket's queue */
    unsigned max_connections_per_peer; /* from one address, >= 1; more are closed at once */
    int64_t request_us, idle_us;       /* time limits, see connections.h */
    bool log_requests;                 /* a debug line for each request */
};

struct server;

/* Serves on `listener`, a listening socket that the server owns from then on, with `store`, which must outlive it.
 * Copies `config`. NULL on failure (EXIT_UNEXPECTED). */
struct server *server_start(const struct server_config *config, int listener, struct store *store,
                            struct error *err) MUST_CHECK;

/* Ends connections whose time is up; call it about once a second. */
void server_tick(struct server *server);

/* How often each verdict was given since the start. */
void server_counts(const struct server *server, uint64_t counts[VERDICT_COUNT]);

/* Takes no new connection, finishes the requests under way in at most `limit_us` microseconds, cuts off the rest,
 * stores what was submitted, and ends. */
void server_stop(struct server *server, int64_t limit_us);
void server_free(struct server *server); /* after server_stop; NULL is allowed */

#endif
