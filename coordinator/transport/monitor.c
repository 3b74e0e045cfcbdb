/* The monitoring endpoint: /healthz, /readyz and /metrics over HTTP, served from the libev loop by libmicrohttpd. */
#include "transport/monitor.h"

#include <microhttpd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/connections.h"
#include "base/listener.h"

/* A stranger may hold neither all connections nor one for long. */
enum { CONNECTIONS_MAX = 32, CONNECTIONS_PER_PEER = 16, REQUEST_BYTES = 8 * 1024, REQUEST_US = 10000000 };
static const double EXPIRE_EVERY_S = 1.;

struct monitor {
    struct ev_loop *loop;
    struct MHD_Daemon *daemon;
    struct connections *connections;
    struct monitor_source source;
    void *context;
    ev_io io;        /* the daemon's own epoll descriptor */
    ev_timer timer;  /* the daemon's own */
    ev_timer expiry; /* looks for connections whose time is up */
    int port;
};

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type, char *text,
                             size_t size, enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, mode);
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED && result == MHD_YES) {
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    if (result == MHD_YES) {
        result = MHD_queue_response(connection, status, response);
    }
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_line(struct MHD_Connection *connection, unsigned status, const char *line) {
    return reply(connection, status, "text/plain; charset=utf-8", (char *)(uintptr_t)line, strlen(line),
                 MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result reply_metrics(struct monitor *monitor, struct MHD_Connection *connection) {
    size_t size;
    char *text = monitor->source.metrics(monitor->context, &size);
    if (text == NULL) {
        return reply_line(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    }
    return reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, size,
                 MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **seen) {
    static int mark;
    struct monitor *monitor = context;
    (void)version, (void)upload;
    if (*seen == NULL) {
        *seen = &mark; /* the head; the request is complete at the next call */
        return MHD_YES;
    }
    *upload_size = 0;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return reply_line(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "use GET\n");
    }
    if (strcmp(url, "/healthz") == 0) {
        return reply_line(connection, MHD_HTTP_OK, "ok\n"); /* the loop turns */
    }
    if (strcmp(url, "/readyz") == 0) {
        return monitor->source.ready(monitor->context)
                   ? reply_line(connection, MHD_HTTP_OK, "ready\n")
                   : reply_line(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not joined to a deployment\n");
    }
    if (strcmp(url, "/metrics") == 0) {
        return reply_metrics(monitor, connection);
    }
    return reply_line(connection, MHD_HTTP_NOT_FOUND, "try /healthz, /readyz or /metrics\n");
}

static struct connection *tracked(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

static void on_request_end(void *context, struct MHD_Connection *connection, void **seen,
                           enum MHD_RequestTerminationCode how) {
    struct monitor *monitor = context;
    struct connection *track = tracked(connection);
    (void)seen, (void)how;
    if (track != NULL) {
        connection_end_request(monitor->connections, track);
    }
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode what) {
    struct monitor *monitor = context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info != NULL ? connections_add(monitor->connections, info->connect_fd) : NULL;
    } else if (*socket_context != NULL) {
        connections_remove(monitor->connections, *socket_context);
        *socket_context = NULL;
    }
}

static void on_expiry(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    struct monitor *monitor = watcher->data;
    connections_expire(monitor->connections);
}

static void turn(struct monitor *monitor) {
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    MHD_run(monitor->daemon);
    ev_timer_stop(monitor->loop, &monitor->timer);
    if (MHD_get_timeout(monitor->daemon, &timeout_ms) == MHD_YES) {
        ev_timer_set(&monitor->timer, (double)timeout_ms / 1000., 0.);
        ev_timer_start(monitor->loop, &monitor->timer);
    }
}

static void on_io(struct ev_loop *loop, ev_io *watcher, int events) {
    (void)loop, (void)events;
    turn(watcher->data);
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events) {
    (void)loop, (void)events;
    turn(watcher->data);
}

/* The daemon closes the listener with itself. */
static struct MHD_Daemon *start_daemon(struct monitor *monitor, int listener) {
    return MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, monitor, MHD_OPTION_LISTEN_SOCKET, listener,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, monitor, MHD_OPTION_NOTIFY_COMPLETED,
                            on_request_end, monitor, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                            MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)CONNECTIONS_PER_PEER,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_END);
}

struct monitor *monitor_start(struct ev_loop *loop, const char *address, const struct monitor_source *source,
                              void *context, struct error *err) {
    char bound[LISTENER_ADDRESS];
    int listener, port;
    struct monitor *monitor = calloc(1, sizeof *monitor);
    if (monitor == NULL) {
        error_set(err, EXIT_UNEXPECTED, "out of memory");
        return NULL;
    }
    *monitor = (struct monitor){.loop = loop, .source = *source, .context = context};
    monitor->connections = connections_new(REQUEST_US, REQUEST_US, err);
    if (monitor->connections == NULL || !listener_open("--metrics", address, &listener, bound, &port, err)) {
        goto failed;
    }
    monitor->port = port;
    monitor->daemon = start_daemon(monitor, listener);
    const union MHD_DaemonInfo *info =
        monitor->daemon != NULL ? MHD_get_daemon_info(monitor->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info == NULL) {
        error_set(err, EXIT_UNEXPECTED, "--metrics: cannot serve HTTP on %s", bound);
        if (monitor->daemon != NULL) {
            MHD_stop_daemon(monitor->daemon);
        } else {
            close(listener);
        }
        goto failed;
    }
    ev_io_init(&monitor->io, on_io, info->epoll_fd, EV_READ);
    ev_init(&monitor->timer, on_timer);
    ev_timer_init(&monitor->expiry, on_expiry, EXPIRE_EVERY_S, EXPIRE_EVERY_S);
    monitor->io.data = monitor->timer.data = monitor->expiry.data = monitor;
    ev_io_start(loop, &monitor->io);
    ev_timer_start(loop, &monitor->expiry);
    return monitor;
failed:
    connections_free(monitor->connections);
    free(monitor);
    return NULL;
}

int monitor_port(const struct monitor *monitor) {
    return monitor->port;
}

void monitor_free(struct monitor *monitor) {
    if (monitor == NULL) {
        return;
    }
    ev_io_stop(monitor->loop, &monitor->io);
    ev_timer_stop(monitor->loop, &monitor->timer);
    ev_timer_stop(monitor->loop, &monitor->expiry);
    MHD_stop_daemon(monitor->daemon);
    connections_free(monitor->connections);
    free(monitor);
}
