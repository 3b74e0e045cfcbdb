/* The monitoring endpoint: /healthz, /readyz and /metrics over HTTP, served from the libev loop by libmicrohttpd. */
#ifndef QUORATE_TRANSPORT_MONITOR_H
#define QUORATE_TRANSPORT_MONITOR_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"

struct monitor;

struct monitor_source {
    bool (*ready)(void *context);
    char *(*metrics)(void *context, size_t *size); /* malloc'ed text; NULL: 500 */
};

/* `address`: HOST:PORT, [IPv6]:PORT; port 0: any free one. EXIT_USAGE for a malformed address, EXIT_UNEXPECTED when it
 * cannot be listened on. */
struct monitor *monitor_start(struct ev_loop *loop, const char *address, const struct monitor_source *source,
                              void *context, struct error *err) MUST_CHECK;
int monitor_port(const struct monitor *monitor);
void monitor_free(struct monitor *monitor); /* NULL is allowed */

#endif
