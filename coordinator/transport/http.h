/* Sends single POST requests with libcurl's multi interface on a libev loop; knows nothing of rounds. */
#ifndef QUORATE_TRANSPORT_HTTP_H
#define QUORATE_TRANSPORT_HTTP_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "transport/peer.h"

struct http_client;
struct http_call;

enum http_end {
    HTTP_ANSWERED,      /* a complete final response head: status is set */
    HTTP_TIMEOUT,       /* no complete head within timeout_ms */
    HTTP_CONNECT_ERROR, /* no connection, or it broke before the head was complete (a half answer, TLS failure,
                         * garbage) */
};

struct http_header {
    const char *name, *value;
};

struct http_request {
    const char *url;
    const struct http_header *headers; /* sent as they are; nothing but host and content-length is added */
    size_t header_count;
    const void *body; /* the client copies nothing: must stay valid until `closed` */
    size_t body_size;
    const char *pin;    /* NULL, or the public keys that the node's certificate may have ("sha256//...;sha256//..."),
                         * beside    all else that is asked of it. Https only. Must outlive the client. */
    int64_t timeout_ms; /* from the start to the complete head, connecting included; > 0 */
    int64_t now_s;      /* unix seconds at the start, by whichever clock is trusted: an answer without a Date of its own
                         * has its Retry-After read by it, never by the host's clock */
};

struct http_answer {
    enum http_end end;
    int status;        /* 200..599 when answered, else 0 */
    char receipt[256]; /* value of quorate-receipt without surrounding blanks; "" when absent, repeated or too long */
    int64_t retry_after_ms; /* parsed Retry-After, 0 when absent or not understood */
    char detail[128];       /* what failed, always in the same words, for a log line; "" when answered */
};

/* All zeros: the rules of peer.h, the CAs that libcurl trusts, no certificate of our own. */
struct http_policy {
    struct peer_rules peers;
    const char *ca_file;              /* PEM; then no other CA is trusted */
    const char *cert_file, *cert_key; /* PEM, both or none: how nodes know us. All three are read again for new
                                       * connections, the first at most CA_CACHE_S seconds late. */
};

enum { CA_CACHE_S = 60 };

/* Both are called from the loop, never inside a libcurl callback, each exactly once per call and in this order:
 * `answered` as soon as the head is complete or the call has failed, `closed` when the connection is free again or gone
 * (the slot can be given away, `body` may be freed). When a call times out while its host name is being looked up,
 * `closed` comes once the look-up has ended, so that whoever bounds calls bounds the threads of a dead resolver. They
 * may start new calls. */
struct http_handler {
    void (*answered)(void *context, const struct http_answer *answer);
    void (*closed)(void *context);
};

/* `policy` is copied, what it points to must outlive the client; NULL: all zeros. TLS is 1.2 or later, and certificates
 * and their host names are verified. The address of every connection is judged when it is made, after the look-up.
 *
 * `max_idle` bounds the connections kept open without a request. libcurl counts those in use as well when one becomes
 * idle: give at least the number of requests meant to be under way, or connections are not used again. The program must
 * ignore SIGPIPE, which a broken TLS connection raises. */
struct http_client *http_client_new(struct ev_loop *loop, long max_idle, const struct http_policy *policy,
                                    struct error *err) MUST_CHECK;

/* Ends calls under way without calling their handlers. Not to be called from a handler. NULL is allowed. */
void http_client_free(struct http_client *client);

/* Starts one request: exactly one is sent per call, since libcurl's own repetition on a dead connection is refused and
 * reported as HTTP_CONNECT_ERROR. No redirects, no proxies from the environment, no Expect: 100-continue, HTTP/1.1,
 * http and https only; at most 64 KiB of body are read after the head, and for no longer than timeout_ms in all;
 * response heads are bounded at 64 KiB and 2,000 fields. NULL only when memory is short or the URL cannot be used:
 * another scheme, no host, a user name in it, a pin and no https (then no handler is called). */
struct http_call *http_post(struct http_client *client, const struct http_request *request,
                            const struct http_handler *handler, void *context) MUST_CHECK;

/* From now on no call that has timed out waits for its look-up: for a program that is about to end. Not to be called
 * from a handler, and calls handlers. */
void http_client_hurry(struct http_client *client);

/* Requests under way. */
size_t http_client_active(const struct http_client *client);

#endif
