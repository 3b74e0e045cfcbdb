/* Hard time limits for connections: the HTTP library's own time-out starts anew with every byte, which a slow client
 * can send for ever. */
#ifndef QUORATE_BASE_CONNECTIONS_H
#define QUORATE_BASE_CONNECTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"

struct connections; /* the set of all that are open */
struct connection;

/* A request must be complete, and its answer sent, within `request_us` of the connection's start or of its request
 * line; the next request line must come within `idle_us` of the last answer. Both in microseconds, > 0. */
struct connections *connections_new(int64_t request_us, int64_t idle_us, struct error *err) MUST_CHECK;
void connections_free(struct connections *set); /* empty by then; NULL is allowed */

/* A connection on socket `fd` has begun; NULL when memory is short. The caller still owns `fd`. */
struct connection *connections_add(struct connections *set, int fd) MUST_CHECK;
/* It is over; call while `fd` is still open, so that its number cannot mean another connection yet. */
void connections_remove(struct connections *set, struct connection *connection);

void connection_begin_request(struct connections *set, struct connection *connection);
void connection_end_request(struct connections *set, struct connection *connection);

/* Shuts down the sockets whose time is up. Call it about once a second. */
void connections_expire(struct connections *set);

/* From now on idle connections, and those that become idle, are shut down. Returns when none is left, at the latest
 * after `limit_us` microseconds, when the rest is shut down too. */
void connections_drain(struct connections *set, int64_t limit_us);

#endif
