/* Runs libmicrohttpd on one thread; a request waits suspended while the writer's thread commits its envelope. */
#include "server.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/connections.h"
#include "base/log.h"
#include "base/options.h"
#include "tls.h"
#include "writer.h"

enum {
    CONNECTION_MEMORY = 16 * 1024,             /* bytes for one connection's head and read buffer */
    BODY_MEMORY_MAX = 256 * 1024 * 1024,       /* bytes of bodies held at a time, over all connections */
    BODY_FIRST_CAPACITY = 4 * 1024,            /* bytes; grows with what really arrives */
    BODY_DISCARD_MAX = 2 * ENVELOPE_BYTES_MAX, /* bytes of a refused body that are read, so that its sender hears why */
};

struct server {
    struct server_config config;
    struct MHD_Daemon *daemon;
    struct connections *connections;
    struct writer *writer;
    struct MHD_Response *answers[VERDICT_COUNT]; /* shared by all requests; receipts have one of their own */
    size_t body_memory;                          /* of the HTTP thread alone */
    atomic_uint_least64_t counts[VERDICT_COUNT];
};

/* One request. The HTTP thread owns it, but for the time between suspension and resumption, when the writer does. */
struct request {
    struct put put; /* first: the writer hands back a pointer to it */
    struct server *server;
    struct MHD_Connection *connection;
    const struct secret *secret; /* that verified it and signs the receipt; NULL: the node's key does */
    enum verdict verdict;
    bool submitted, answered;
    unsigned char *body;
    size_t body_size, body_capacity, discarded;
    char receipt[SIGNATURE_TEXT + 1];
};

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static struct connection *tracked(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void drop_body(struct request *request) {
    request->server->body_memory -= request->body_capacity;
    if (request->body)
        sodium_memzero(request->body, request->body_capacity); /* it may be a share */
    free(request->body);
    request->body = NULL;
    request->body_size = request->body_capacity = 0;
}

/* From here on the body is only read past. */
static void refuse(struct request *request, enum verdict verdict) {
    request->verdict = verdict;
    drop_body(request);
}

static void log_request(const struct request *request, const char *url) {
    char id[2 * WEBHOOK_ID_MAX], time[64], path[128];
    const struct verdict_answer *answer = verdict_answer(request->verdict);
    log_event(LOG_DEBUG, "request", "webhook_id=%s timestamp=%s path=%s bytes=%zu status=%u verdict=%s",
              log_quote(header(request->connection, "webhook-id"), id, sizeof id),
              log_quote(header(request->connection, "webhook-timestamp"), time, sizeof time),
              log_quote(url, path, sizeof path), request->put.payload_size, answer->status, answer->name);
}

/* An answer of its own, since it carries the receipt. */
static enum MHD_Result queue_receipt(struct request *request) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    enum MHD_Result queued = MHD_add_response_header(response, "quorate-receipt", request->receipt);
    if (queued == MHD_YES)
        queued = MHD_queue_response(request->connection, verdict_answer(request->verdict)->status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result answer(struct request *request, const char *url) {
    struct server *server = request->server;
    enum verdict verdict = request->verdict;

    request->answered = true;
    atomic_fetch_add_explicit(&server->counts[verdict], 1, memory_order_relaxed);
    if (server->config.log_requests)
        log_request(request, url);
    if (verdict == VERDICT_STORED || verdict == VERDICT_HELD)
        return queue_receipt(request);
    return MHD_queue_response(request->connection, verdict_answer(verdict)->status, server->answers[verdict]);
}

/* In the writer's thread, after the commit. */
static void put_done(struct put *put) {
    static const enum verdict verdicts[] = {
        [PUT_STORED] = VERDICT_STORED,
        [PUT_HELD] = VERDICT_HELD,
        [PUT_CONFLICT] = VERDICT_CONFLICT,
        [PUT_FAILED] = VERDICT_STORE_FAILED,
    };
    struct request *request = (struct request *)put;

    request->verdict = verdicts[put->result];
    if (put->result == PUT_STORED || put->result == PUT_HELD) {
        struct signature receipt;
        if (request->secret)
            receipt_sign_v1(request->secret, &put->key, put->digest, &receipt);
        else
            receipt_sign(request->server->config.key, &put->key, put->digest, &receipt);
        signature_format(&receipt, request->receipt);
    }
    MHD_resume_connection(request->connection); /* nothing of the request may be touched after this */
}

static gnutls_session_t session_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info ? info->tls_session : NULL;
}

/* The first sight of a request: its head is complete. */
static enum MHD_Result begin(struct server *server, struct MHD_Connection *connection, const char *url,
                             const char *method, void **context) {
    if (server->config.tls && !tls_trusted(server->config.tls, session_of(connection)))
        return MHD_NO;
    struct request *request = calloc(1, sizeof *request);
    if (!request)
        return MHD_NO;
    *context = request;
    request->server = server;
    request->connection = connection;

    const char *length_text = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    int64_t length = 0;
    if (length_text && !int_parse(length_text, 0, INT64_MAX, &length))
        length = INT64_MAX; /* more than can be counted */
    if (strcmp(method, MHD_HTTP_METHOD_POST) != 0)
        request->verdict = VERDICT_BAD_METHOD;
    else if (length > (int64_t)server->config.max_body)
        request->verdict = VERDICT_TOO_LARGE;
    else if (!header(connection, "webhook-signature"))
        request->verdict = VERDICT_BAD_SIGNATURE;
    if (request->verdict != VERDICT_UNDECIDED && length > BODY_DISCARD_MAX)
        return answer(request, url); /* and the library closes the connection */
    return MHD_YES;
}

/* Makes room for `more` bytes, within what all bodies together may take. */
static bool reserve(struct request *request, size_t more) {
    struct server *server = request->server;
    size_t needed = request->body_size + more;
    size_t capacity = request->body_capacity ? request->body_capacity : BODY_FIRST_CAPACITY;

    if (needed <= request->body_capacity)
        return true;
    while (capacity < needed)
        capacity *= 2;
    size_t added = capacity - request->body_capacity;
    if (server->body_memory + added > BODY_MEMORY_MAX)
        return false;
    unsigned char *grown = malloc(capacity);
    if (!grown)
        return false;
    if (request->body) { /* no copy is left behind, as realloc might */
        memcpy(grown, request->body, request->body_size);
        sodium_memzero(request->body, request->body_capacity);
        free(request->body);
    }
    request->body = grown;
    request->body_capacity = capacity;
    server->body_memory += added;
    return true;
}

static enum MHD_Result receive(struct request *request, const char *data, size_t size) {
    if (request->verdict == VERDICT_UNDECIDED) {
        if (request->body_size + size > request->server->config.max_body) {
            refuse(request, VERDICT_TOO_LARGE);
        } else if (!reserve(request, size)) {
            refuse(request, VERDICT_OVERLOADED);
        } else {
            memcpy(request->body + request->body_size, data, size);
            request->body_size += size;
            return MHD_YES;
        }
    }
    request->discarded += size;
    return request->discarded <= BODY_DISCARD_MAX ? MHD_YES : MHD_NO; /* an endless body: closed without an answer */
}

/* The request is complete: judges it, and hands an envelope to the writer. */
static enum MHD_Result finish(struct request *request, const char *url) {
    struct server *server = request->server;
    const struct judge_request judged = {
        .webhook_id = header(request->connection, "webhook-id"),
        .timestamp = header(request->connection, "webhook-timestamp"),
        .signature = header(request->connection, "webhook-signature"),
        .body = request->body,
        .body_size = request->body_size,
    };

    request->put.payload_size = request->body_size;
    if (request->verdict == VERDICT_UNDECIDED)
        request->verdict =
            judge(&server->config.rules, &judged, clock_wall_us() / 1000000, &request->put.key, &request->secret);
    if (request->verdict != VERDICT_UNDECIDED)
        return answer(request, url);
    request->put.payload = request->body;
    sha256(request->body, request->body_size, request->put.digest);
    request->submitted = true;
    MHD_suspend_connection(request->connection); /* first, since the writer may be done at once */
    if (!writer_submit(server->writer, &request->put)) {
        request->verdict = VERDICT_OVERLOADED;
        MHD_resume_connection(request->connection);
    }
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **request_context) {
    struct request *request = *request_context;
    (void)version;

    if (!request)
        return begin(context, connection, url, method, request_context);
    if (*size > 0) {
        size_t taken = *size;
        *size = 0;
        return receive(request, data, taken);
    }
    return request->submitted ? answer(request, url) : finish(request, url);
}

/* The request line is complete; no request exists yet, hence NULL. */
static void *on_request_line(void *context, const char *uri, struct MHD_Connection *connection) {
    struct server *server = context;
    struct connection *track = tracked(connection);
    (void)uri;
    if (track)
        connection_begin_request(server->connections, track);
    return NULL;
}

static void on_request_end(void *context, struct MHD_Connection *connection, void **request_context,
                           enum MHD_RequestTerminationCode how) {
    struct server *server = context;
    struct connection *track = tracked(connection);
    struct request *request = *request_context;
    (void)how;

    if (request) {
        if (!request->answered && server->config.log_requests)
            log_event(LOG_DEBUG, "request_broken", "bytes=%zu", request->body_size + request->discarded);
        drop_body(request);
        free(request);
        *request_context = NULL;
    }
    if (track)
        connection_end_request(server->connections, track);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode what) {
    struct server *server = context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info ? connections_add(server->connections, info->connect_fd) : NULL;
        if (server->config.tls)
            tls_begin(server->config.tls, session_of(connection));
        return;
    }
    if (server->config.tls)
        tls_end(server->config.tls, session_of(connection));
    if (*socket_context) {
        connections_remove(server->connections, *socket_context);
        *socket_context = NULL;
    }
}

static bool make_answers(struct server *server) {
    for (enum verdict verdict = 0; verdict < VERDICT_COUNT; verdict++) {
        const struct verdict_answer *said = verdict_answer(verdict);
        struct MHD_Response *response =
            MHD_create_response_from_buffer(strlen(said->text), (void *)said->text, MHD_RESPMEM_PERSISTENT);
        server->answers[verdict] = response;
        if (!response || MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain") != MHD_YES)
            return false;
        if (said->status == MHD_HTTP_SERVICE_UNAVAILABLE &&
            MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1") != MHD_YES)
            return false;
        if (said->status == MHD_HTTP_METHOD_NOT_ALLOWED &&
            MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_POST) != MHD_YES)
            return false;
    }
    return true;
}

/* poll, not epoll: the library's epoll mode overlooks a client's hang-up that arrives with its last bytes, and for our
 * few hundred connections both cost the same. No MHD_USE_ERROR_LOG: its messages may quote what a client sent. */
static struct MHD_Daemon *start_daemon(struct server *server, int listener) {
    static const struct MHD_OptionItem with_tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(intptr_t)tls_no_certificate},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem *more = server->config.tls ? with_tls : with_tls + 2;
    unsigned flags =
        MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | (server->config.tls ? (unsigned)MHD_USE_TLS : 0);
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_ARRAY, more, MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, server,
        MHD_OPTION_NOTIFY_COMPLETED, on_request_end, server, MHD_OPTION_CONNECTION_LIMIT,
        server->config.max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT, server->config.max_connections_per_peer,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

struct server *server_start(const struct server_config *config, int listener, struct store *store, struct error *err) {
    struct server *server = calloc(1, sizeof *server);
    if (!server) {
        (void)error_set(err, EXIT_UNEXPECTED, "server: out of memory");
        goto failed;
    }
    server->config = *config;
    if (!make_answers(server)) {
        (void)error_set(err, EXIT_UNEXPECTED, "server: out of memory");
        goto failed;
    }
    server->connections = connections_new(config->request_us, config->idle_us, err);
    if (!server->connections)
        goto failed;
    server->writer = writer_start(store, put_done, err);
    if (!server->writer)
        goto failed;
    server->daemon = start_daemon(server, listener);
    if (!server->daemon) {
        (void)error_set(err, EXIT_UNEXPECTED, "server: the HTTP library could not start");
        writer_stop(server->writer);
        goto failed;
    }
    return server;
failed:
    close(listener);
    server_free(server);
    return NULL;
}

void server_tick(struct server *server) {
    connections_expire(server->connections);
}

void server_counts(const struct server *server, uint64_t counts[VERDICT_COUNT]) {
    for (size_t i = 0; i < VERDICT_COUNT; i++)
        counts[i] = atomic_load_explicit(&server->counts[i], memory_order_relaxed);
}

void server_stop(struct server *server, int64_t limit_us) {
    int listener = MHD_quiesce_daemon(server->daemon);
    if (listener >= 0)
        close(listener);
    connections_drain(server->connections, limit_us);
    writer_stop(server->writer); /* before the daemon: it must not end with a connection suspended */
    MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
}

void server_free(struct server *server) {
    if (!server)
        return;
    for (size_t i = 0; i < VERDICT_COUNT; i++)
        if (server->answers[i])
            MHD_destroy_response(server->answers[i]);
    writer_free(server->writer);
    connections_free(server->connections);
    free(server);
}
