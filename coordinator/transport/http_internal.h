/* What the files of the HTTP client share: a client, its calls, and how they wait for libev. */
#ifndef QUORATE_TRANSPORT_HTTP_INTERNAL_H
#define QUORATE_TRANSPORT_HTTP_INTERNAL_H

#include <curl/curl.h>
#include <sys/queue.h>

#include "transport/http.h"
#include "transport/http_head.h"

/* One socket that libcurl waits for. Never freed while the client lives: kept for the next socket instead. */
struct http_socket {
    ev_io io;
    SLIST_ENTRY(http_socket) idle_place, place;
};

struct http_call {
    TAILQ_ENTRY(http_call) place;       /* in the client's active or idle list */
    STAILQ_ENTRY(http_call) ready_next; /* in its ready queue, when is_ready */
    struct http_client *client;
    CURL *easy;
    struct http_handler handler;
    void *context;

    char *url;       /* what the easy handle is set to; NULL before the first request */
    const char *pin; /* the same; NULL: none */
    bool tls;
    char refusal[PEER_WHY];           /* why the last address that was looked at was refused */
    char curl_error[CURL_ERROR_SIZE]; /* libcurl's own words */
    char *header_text;
    size_t header_text_room;
    struct curl_slist *header_list; /* an array, each entry pointing into header_text */
    size_t header_list_room;

    int64_t now_s, began_us; /* the request's, and when that was by our stopwatch */
    struct http_head head;
    size_t body_bytes;
    unsigned requests;  /* how often libcurl wanted to send it */
    const char *reason; /* why one of our callbacks ended the transfer, or NULL */
    CURLcode result;    /* once is_done or is_late */
    bool is_done, is_ready, was_answered;
    ev_timer timer;
    int64_t timeout_ms;
    bool is_resolving; /* libcurl has a thread that looks its host name up */
    bool is_late;      /* timed out, and only its look-up is waited for */
};

struct http_client {
    struct ev_loop *loop;
    struct http_policy policy;
    CURLM *multi;
    CURLU *url_check;
    TAILQ_HEAD(, http_call) active, idle;
    STAILQ_HEAD(, http_call) ready; /* calls with something to tell, in the order it happened */
    size_t active_count;
    bool hurries;
    ev_timer timer;
    SLIST_HEAD(, http_socket) sockets, idle_sockets;
};

/* http_events.c: lets libcurl wait for its sockets and its timer on the client's loop. */
bool http_events_start(struct http_client *client) MUST_CHECK;
/* After curl_multi_cleanup, which still calls back. */
void http_events_stop(struct http_client *client);

/* http.c: tells the handlers what happened; to be called after libcurl has worked, never from its callbacks. */
void http_deliver(struct http_client *client);

#endif
