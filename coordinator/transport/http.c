/* Sends POST requests, each exactly once, and tells their handlers how they ended. */
#include "transport/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "transport/http_internal.h"
#include "transport/retry_after.h"
#include "transport/url.h"

enum {
    BODY_MAX_BYTES = 64 * 1024, /* read and thrown away, so that the connection can be used again */
    READ_BUFFER = 4096,         /* a head and a short body: what a custodian answers */
};

static void make_ready(struct http_call *call) {
    if (call->is_ready)
        return;
    call->is_ready = true;
    STAILQ_INSERT_TAIL(&call->client->ready, call, ready_next);
}

/* libcurl's callbacks: they note what happened; http_deliver tells it later. */

/* Called before every request of a transfer, and there is a second one when a kept connection turns out to be dead:
 * libcurl then repeats a POST on a new connection by itself. Whether the node saw the first is unknown, and how often
 * an envelope is sent is for its caller to decide. */
static int on_request(void *context, char *peer_ip, char *local_ip, int peer_port, int local_port) {
    (void)peer_ip;
    (void)local_ip;
    (void)peer_port;
    (void)local_port;
    struct http_call *call = context;
    if (++call->requests == 1)
        return CURL_PREREQFUNC_OK;
    call->reason = "the node closed the connection without an answer";
    return CURL_PREREQFUNC_ABORT;
}

/* A thread of libcurl begins to look the host name up; numbers are "looked up" at once. */
static int on_look_up(void *resolver, void *reserved, void *context) {
    (void)resolver;
    (void)reserved;
    struct http_call *call = context;
    call->is_resolving = true;
    return 0;
}

/* The look-up has ended: connect, unless it came too late for that, or nodes may not be at this address. A host with
 * several addresses is asked for each, until one takes the connection. */
static curl_socket_t on_connect(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)purpose;
    struct http_call *call = context;
    call->is_resolving = false;
    if (call->is_late)
        return CURL_SOCKET_BAD;
    bool allowed = peer_allowed(&call->client->policy.peers, &address->addr, call->tls, call->refusal);
    call->reason = allowed ? NULL : call->refusal;
    return allowed ? socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol) : CURL_SOCKET_BAD;
}

/* Bytes behind the head are thrown away; too many end the transfer, and the connection with it. */
static size_t count_body(struct http_call *call, size_t size) {
    call->body_bytes += size;
    return call->body_bytes <= BODY_MAX_BYTES ? size : 0;
}

static size_t on_head_line(char *line, size_t one, size_t size, void *context) {
    (void)one;
    struct http_call *call = context;
    if (call->head.state == HEAD_COMPLETE) /* a trailer behind the body */
        return count_body(call, size);
    switch (http_head_line(&call->head, line, size)) {
    case HEAD_MORE:
        break;
    case HEAD_COMPLETE:
        make_ready(call);
        break;
    case HEAD_WRONG:
        call->reason = "the response head is no HTTP/1 or too long";
        return 0; /* ends the transfer */
    }
    return size;
}

static size_t on_body(char *data, size_t one, size_t size, void *context) {
    (void)data;
    (void)one;
    return count_body(context, size);
}

/* Calls: made once, used for many requests. */

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

static bool set_lasting_options(struct http_call *call) {
    CURL *easy = call->easy;
    return SET(CURLOPT_PRIVATE, (void *)call) && SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_PROTOCOLS_STR, "http,https") && SET(CURLOPT_FOLLOWLOCATION, 0L) &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && SET(CURLOPT_TCP_NODELAY, 1L) &&
           SET(CURLOPT_BUFFERSIZE, (long)READ_BUFFER) && SET(CURLOPT_POST, 1L) &&
           SET(CURLOPT_PREREQFUNCTION, on_request) && SET(CURLOPT_PREREQDATA, (void *)call) &&
           SET(CURLOPT_HEADERFUNCTION, on_head_line) && SET(CURLOPT_HEADERDATA, (void *)call) &&
           SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, (void *)call) &&
           SET(CURLOPT_RESOLVER_START_FUNCTION, on_look_up) && SET(CURLOPT_RESOLVER_START_DATA, (void *)call) &&
           SET(CURLOPT_OPENSOCKETFUNCTION, on_connect) && SET(CURLOPT_OPENSOCKETDATA, (void *)call) &&
           /* The time-out is ours: libcurl would leave a thread behind when it comes during a look-up. */
           SET(CURLOPT_CONNECTTIMEOUT_MS, (long)INT32_MAX) &&
           /* Without it, a call that ends while its host name is still being looked up would block the loop until the
            * resolver gives up. */
           SET(CURLOPT_QUICK_EXIT, 1L);
}

/* What is asked of nodes over https. A session is used again only where all of it is the same, and so is a connection.
 */
static bool set_tls_options(struct http_call *call) {
    CURL *easy = call->easy;
    const struct http_policy *policy = &call->client->policy;
    return SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) && SET(CURLOPT_SSL_VERIFYPEER, 1L) &&
           SET(CURLOPT_SSL_VERIFYHOST, 2L) && SET(CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_S) &&
           /* A CA file stands for itself: not beside the system's folder of CAs. */
           (policy->ca_file == NULL || (SET(CURLOPT_CAINFO, policy->ca_file) && SET(CURLOPT_CAPATH, (char *)NULL))) &&
           /* A password, so that none is asked for on the terminal should the key be changed for one that needs it. */
           (policy->cert_file == NULL || (SET(CURLOPT_SSLCERT, policy->cert_file) &&
                                          SET(CURLOPT_SSLKEY, policy->cert_key) && SET(CURLOPT_KEYPASSWD, ""))) &&
           SET(CURLOPT_ERRORBUFFER, call->curl_error);
}
#undef SET

static void call_free(struct http_call *call) {
    ev_timer_stop(call->client->loop, &call->timer);
    curl_easy_cleanup(call->easy);
    free(call->url);
    free(call->header_text);
    free(call->header_list);
    free(call);
}

static void timer_start(struct http_call *call, int64_t after_us) {
    ev_timer_set(&call->timer, (double)after_us / 1e6, 0.);
    ev_timer_start(call->client->loop, &call->timer);
}

/* Takes a call out of libcurl's hands; its connection is closed. */
static void give_up(struct http_call *call) {
    call->is_done = true;
    curl_multi_remove_handle(call->client->multi, call->easy);
    make_ready(call);
}

static void on_time_out(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop;
    (void)revents;
    struct http_call *call = timer->data;
    int64_t left_us = call->timeout_ms * 1000 - (clock_monotonic_us() - call->began_us);
    if (left_us > 0) { /* the loop's time lagged behind when the timer was set */
        timer_start(call, left_us);
        return;
    }
    call->result = CURLE_OPERATION_TIMEDOUT;
    if (call->is_resolving && !call->client->hurries) {
        call->is_late = true;
        make_ready(call);
    } else {
        give_up(call);
    }
    http_deliver(call->client);
}

/* A call from the idle list, or a new one; in no list. */
static struct http_call *take_call(struct http_client *client) {
    struct http_call *call = TAILQ_FIRST(&client->idle);
    if (call != NULL) {
        TAILQ_REMOVE(&client->idle, call, place);
        return call;
    }
    call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->client = client;
    ev_init(&call->timer, on_time_out);
    call->timer.data = call;
    call->easy = curl_easy_init();
    if (call->easy == NULL || !set_lasting_options(call) || !set_tls_options(call)) {
        call_free(call);
        return NULL;
    }
    return call;
}

static bool set_url(struct http_call *call, const char *url) {
    if (call->url != NULL && strcmp(call->url, url) == 0)
        return true;
    if (!url_usable(call->client->url_check, url))
        return false;
    char *copy = strdup(url);
    if (copy == NULL)
        return false;
    free(call->url);
    call->url = NULL;
    if (curl_easy_setopt(call->easy, CURLOPT_URL, copy) != CURLE_OK) {
        free(copy);
        return false;
    }
    call->url = copy;
    call->tls = url_is_tls(url);
    return true;
}

static const char unknown_pin[] = "";

/* Over plain http nothing could be held against a pin. */
static bool set_pin(struct http_call *call, const char *pin) {
    if (pin != NULL && !call->tls)
        return false;
    if (pin == call->pin)
        return true;
    if (curl_easy_setopt(call->easy, CURLOPT_PINNEDPUBLICKEY, pin) != CURLE_OK) {
        call->pin = unknown_pin; /* whatever libcurl has now, it is not to be taken for this one the next time */
        return false;
    }
    call->pin = pin;
    return true;
}

/* An empty value is how libcurl is told to leave out a header that it would add by itself. It only reads the list. */
static struct curl_slist left_out[] = {
    {.data = (char[]){"Expect:"}, .next = &left_out[1]},
    {.data = (char[]){"Accept:"}, .next = &left_out[2]},
    {.data = (char[]){"Content-Type:"}, .next = NULL},
};

/* Grows `*memory` to `count` entries of `size`; what was in it is lost. */
static bool make_room(void **memory, size_t *room, size_t count, size_t size) {
    if (*room >= count)
        return true;
    void *larger = calloc(count, size);
    if (larger == NULL)
        return false;
    free(*memory);
    *memory = larger;
    *room = count;
    return true;
}

/* Builds the list by hand in memory that the call keeps: curl_slist_append would allocate twice per header. */
static bool set_headers(struct http_call *call, const struct http_request *request) {
    size_t text_size = 0;
    for (size_t i = 0; i < request->header_count; i++)
        text_size += strlen(request->headers[i].name) + strlen(": ") + strlen(request->headers[i].value) + 1;
    void *text = call->header_text, *list = call->header_list;
    bool room = make_room(&text, &call->header_text_room, text_size, 1) &&
                make_room(&list, &call->header_list_room, request->header_count, sizeof *call->header_list);
    call->header_text = text;
    call->header_list = list;
    if (!room)
        return false;

    char *at = call->header_text, *end = at + call->header_text_room;
    for (size_t i = 0; i < request->header_count; i++) {
        call->header_list[i].data = at;
        call->header_list[i].next = i + 1 < request->header_count ? &call->header_list[i + 1] : left_out;
        at += snprintf(at, (size_t)(end - at), "%s: %s", request->headers[i].name, request->headers[i].value) + 1;
    }
    return curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, request->header_count > 0 ? call->header_list : left_out) ==
           CURLE_OK;
}

static bool set_request(struct http_call *call, const struct http_request *request) {
    const void *body = request->body_size > 0 ? request->body : ""; /* NULL would mean: ask a callback */
    return request->timeout_ms > 0 && set_url(call, request->url) && set_pin(call, request->pin) &&
           set_headers(call, request) &&
           curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_size) == CURLE_OK &&
           curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, body) == CURLE_OK;
}

struct http_call *http_post(struct http_client *client, const struct http_request *request,
                            const struct http_handler *handler, void *context) {
    struct http_call *call = take_call(client);
    if (call == NULL)
        return NULL;
    call->handler = *handler;
    call->context = context;
    memset(&call->head, 0, sizeof call->head);
    call->now_s = request->now_s;
    call->began_us = clock_monotonic_us();
    call->body_bytes = 0;
    call->requests = 0;
    call->reason = NULL;
    call->curl_error[0] = '\0'; /* libcurl leaves there what an earlier request's end was */
    call->timeout_ms = request->timeout_ms < INT32_MAX ? request->timeout_ms : INT32_MAX;
    call->is_done = call->is_ready = call->was_answered = call->is_resolving = call->is_late = false;
    if (!set_request(call, request) || curl_multi_add_handle(client->multi, call->easy) != CURLM_OK) {
        TAILQ_INSERT_HEAD(&client->idle, call, place);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&client->active, call, place);
    client->active_count++;
    timer_start(call, call->timeout_ms * 1000);
    return call;
}

/* Telling. */

/* libcurl says in its own words what a certificate lacks; elsewhere they have addresses and times in them. */
static bool says_why(const struct http_call *call) {
    switch (call->result) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: /* with TLS 1.3 a server says only after the handshake that it misses a certificate */
        return call->tls && call->curl_error[0] != '\0';
    default:
        return false;
    }
}

static void fill_answer(const struct http_call *call, struct http_answer *answer) {
    *answer = (struct http_answer){0};
    if (call->head.state == HEAD_COMPLETE) {
        answer->end = HTTP_ANSWERED;
        answer->status = call->head.status;
        const char *date = http_head_field(&call->head, FIELD_DATE);
        snprintf(answer->receipt, sizeof answer->receipt, "%s", http_head_field(&call->head, FIELD_RECEIPT));
        int64_t now_s = call->now_s + (clock_monotonic_us() - call->began_us) / 1000000;
        answer->retry_after_ms =
            retry_after_parse(http_head_field(&call->head, FIELD_RETRY_AFTER), date[0] != '\0' ? date : NULL, now_s);
        return;
    }
    answer->end = call->result == CURLE_OPERATION_TIMEDOUT ? HTTP_TIMEOUT : HTTP_CONNECT_ERROR;
    const char *detail = call->reason;
    if (detail == NULL && call->result == CURLE_OK)
        detail = "the connection closed in the middle of the response head";
    if (detail == NULL)
        detail = says_why(call) ? call->curl_error : curl_easy_strerror(call->result);
    snprintf(answer->detail, sizeof answer->detail, "%.*s", (int)sizeof answer->detail - 1, detail);
}

/* Takes the transfers that have ended out of libcurl's hands. */
static void collect_done(struct http_client *client) {
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &left)) != NULL;) {
        if (message->msg != CURLMSG_DONE)
            continue;
        char *context = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &context);
        struct http_call *call = (void *)context;
        if (!call->is_late)
            call->result = message->data.result;
        ev_timer_stop(client->loop, &call->timer);
        call->is_done = true;
        curl_multi_remove_handle(client->multi, call->easy); /* the message is gone with it */
        make_ready(call);
    }
}

void http_deliver(struct http_client *client) {
    collect_done(client);
    while (!STAILQ_EMPTY(&client->ready)) {
        struct http_call *call = STAILQ_FIRST(&client->ready);
        STAILQ_REMOVE_HEAD(&client->ready, ready_next);
        call->is_ready = false;
        struct http_handler handler = call->handler;
        void *context = call->context;
        bool is_done = call->is_done;
        if (!call->was_answered) {
            struct http_answer answer;
            call->was_answered = true;
            fill_answer(call, &answer);
            handler.answered(context, &answer);
        }
        if (is_done) {
            TAILQ_REMOVE(&client->active, call, place);
            TAILQ_INSERT_HEAD(&client->idle, call, place);
            client->active_count--;
            handler.closed(context);
        }
    }
}

/* Clients. */

struct http_client *http_client_new(struct ev_loop *loop, long max_idle, const struct http_policy *policy,
                                    struct error *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        (void)error_set(err, EXIT_UNEXPECTED, "libcurl could not be started");
        return NULL;
    }
    struct http_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        goto failed;
    client->loop = loop;
    if (policy != NULL)
        client->policy = *policy;
    TAILQ_INIT(&client->active);
    TAILQ_INIT(&client->idle);
    STAILQ_INIT(&client->ready);
    client->multi = curl_multi_init();
    client->url_check = curl_url();
    if (client->multi == NULL || client->url_check == NULL ||
        curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, max_idle) != CURLM_OK || !http_events_start(client))
        goto failed;
    return client;

failed:
    if (client != NULL) {
        curl_url_cleanup(client->url_check);
        curl_multi_cleanup(client->multi);
    }
    free(client);
    curl_global_cleanup();
    (void)error_set(err, EXIT_UNEXPECTED, "libcurl could not be started: out of memory");
    return NULL;
}

void http_client_hurry(struct http_client *client) {
    client->hurries = true;
    struct http_call *call;
    TAILQ_FOREACH(call, &client->active, place) {
        if (call->is_late && !call->is_done)
            give_up(call);
    }
    http_deliver(client);
}

void http_client_free(struct http_client *client) {
    if (client == NULL)
        return;
    for (struct http_call *call; (call = TAILQ_FIRST(&client->active)) != NULL;) {
        TAILQ_REMOVE(&client->active, call, place);
        curl_multi_remove_handle(client->multi, call->easy);
        call_free(call);
    }
    for (struct http_call *call; (call = TAILQ_FIRST(&client->idle)) != NULL;) {
        TAILQ_REMOVE(&client->idle, call, place);
        call_free(call);
    }
    curl_multi_cleanup(client->multi);
    http_events_stop(client);
    curl_url_cleanup(client->url_check);
    free(client);
    curl_global_cleanup();
}

size_t http_client_active(const struct http_client *client) {
    return client->active_count;
}
