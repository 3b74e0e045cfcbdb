/* Lets libcurl's multi interface wait for its sockets and its timer on a libev loop. */
#include <stdlib.h>

#include "base/log.h"
#include "transport/http_internal.h"

/* Lets libcurl work, then tells the handlers: only here, where none of libcurl's functions is on the stack. */
static void act(struct http_client *client, curl_socket_t socket, int events) {
    int running;
    CURLMcode code = curl_multi_socket_action(client->multi, socket, events, &running);
    if (code != CURLM_OK) {
        char quoted[128];
        log_event(LOG_ERROR, "http_failed", "detail=%s", log_quote(curl_multi_strerror(code), quoted, sizeof quoted));
    }
    http_deliver(client);
}

static void on_socket_ready(struct ev_loop *loop, ev_io *io, int revents) {
    (void)loop;
    int events = 0;
    if ((revents & EV_READ) != 0)
        events |= CURL_CSELECT_IN;
    if ((revents & EV_WRITE) != 0)
        events |= CURL_CSELECT_OUT;
    if ((revents & EV_ERROR) != 0)
        events |= CURL_CSELECT_ERR;
    act(io->data, io->fd, events);
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop;
    (void)revents;
    act(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static struct http_socket *take_socket(struct http_client *client) {
    struct http_socket *found = SLIST_FIRST(&client->idle_sockets);
    if (found != NULL) {
        SLIST_REMOVE_HEAD(&client->idle_sockets, idle_place);
        return found;
    }
    found = calloc(1, sizeof *found);
    if (found == NULL)
        return NULL;
    ev_init(&found->io, on_socket_ready);
    found->io.data = client;
    SLIST_INSERT_HEAD(&client->sockets, found, place);
    return found;
}

/* libcurl: this socket is to be waited for differently. Besides curl_multi_assign, which is meant for this place, it
 * calls nothing of libcurl. */
static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *context, void *assigned) {
    (void)easy;
    struct http_client *client = context;
    struct http_socket *found = assigned;
    if (what == CURL_POLL_REMOVE) {
        if (found != NULL) {
            ev_io_stop(client->loop, &found->io);
            SLIST_INSERT_HEAD(&client->idle_sockets, found, idle_place);
        }
        return 0;
    }
    if (found == NULL) {
        found = take_socket(client);
        /* When memory is short the call ends by its time-out; -1 would end all calls for ever. */
        if (found == NULL)
            return 0;
        if (curl_multi_assign(client->multi, fd, found) != CURLM_OK) {
            SLIST_INSERT_HEAD(&client->idle_sockets, found, idle_place);
            return 0;
        }
    }
    int events = ((what & CURL_POLL_IN) != 0 ? EV_READ : 0) | ((what & CURL_POLL_OUT) != 0 ? EV_WRITE : 0);
    ev_io_stop(client->loop, &found->io);
    /* Tells libev that the number may stand for a new socket by now. */
    ev_io_set(&found->io, fd, events);
    ev_io_start(client->loop, &found->io);
    return 0;
}

/* libcurl: wake me after this time. It never asks for 0 while less than a millisecond is left, and when it is woken a
 * little early it asks again, so neither rounding nor the loop's cached time can make it spin or sleep for ever. */
static int on_timer_wanted(CURLM *multi, long timeout_ms, void *context) {
    (void)multi;
    struct http_client *client = context;
    ev_timer_stop(client->loop, &client->timer);
    if (timeout_ms >= 0) {
        ev_timer_set(&client->timer, (double)timeout_ms / 1000.0, 0.);
        ev_timer_start(client->loop, &client->timer);
    }
    return 0;
}

bool http_events_start(struct http_client *client) {
    ev_init(&client->timer, on_timer);
    client->timer.data = client;
    return curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wanted) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timer_wanted) == CURLM_OK &&
           curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client) == CURLM_OK;
}

void http_events_stop(struct http_client *client) {
    ev_timer_stop(client->loop, &client->timer);
    while (!SLIST_EMPTY(&client->sockets)) {
        struct http_socket *socket = SLIST_FIRST(&client->sockets);
        SLIST_REMOVE_HEAD(&client->sockets, place);
        ev_io_stop(client->loop, &socket->io);
        free(socket);
    }
}
