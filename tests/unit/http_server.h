/* For the HTTP tests: a loopback server that plays a script on each connection, and a client with its loop. */
#ifndef QUORATE_TESTS_HTTP_SERVER_H
#define QUORATE_TESTS_HTTP_SERVER_H

#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/http.h"

/* The server */

struct server;

/* Plays one connection, the `number`th (from 1), in a thread of its own; it is closed on return. */
typedef void (*server_script)(struct server *server, int fd, int number);

enum { MAX_CONNECTIONS = 600, MAX_HEAD = 8192 };

struct server {
    int listener;
    char url[64]; /* http://127.0.0.1:<port>/ */
    server_script script;
    const char *answer; /* for the scripts: what to answer */
    size_t answer_size;
    atomic_int connections, requests; /* requests: those that arrived complete */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool may_go_on;      /* for the scripts: see server_wait */
    char head[MAX_HEAD]; /* of the last request */
    char *body;
    size_t body_size;
    pthread_t acceptor, players[MAX_CONNECTIONS];
    int fds[MAX_CONNECTIONS];
};

struct player {
    struct server *server;
    int fd, number;
};

static inline void *play(void *context) {
    struct player *player = context;
    player->server->script(player->server, player->fd, player->number);
    shutdown(player->fd, SHUT_RDWR); /* closed by server_stop, so that its number is not reused meanwhile */
    free(player);
    return NULL;
}

static inline void *accept_all(void *context) {
    struct server *server = context;
    for (;;) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || server->connections == MAX_CONNECTIONS)
            return NULL;
        int number = ++server->connections;
        struct player *player = malloc(sizeof *player);
        *player = (struct player){server, fd, number};
        server->fds[number - 1] = fd;
        pthread_create(&server->players[number - 1], NULL, play, player);
    }
}

/* A socket bound to a free loopback port, not yet listening; writes its URL. */
static inline int bind_loopback(char url[64]) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(url, 64, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    return fd;
}

static inline struct server *server_start(server_script script, const char *answer, size_t answer_size) {
    struct server *server = calloc(1, sizeof *server);
    assert_non_null(server);
    server->script = script;
    server->answer = answer;
    server->answer_size = answer_size;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    server->listener = bind_loopback(server->url);
    assert_int_equal(listen(server->listener, 512), 0);
    assert_int_equal(pthread_create(&server->acceptor, NULL, accept_all, server), 0);
    return server;
}

static inline void server_go_on(struct server *server) {
    pthread_mutex_lock(&server->lock);
    server->may_go_on = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

/* For the scripts: until server_go_on. */
static inline void server_wait(struct server *server) {
    pthread_mutex_lock(&server->lock);
    while (!server->may_go_on)
        pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

/* Ends all connections; the counts and the last request can be read afterwards, until server_free. */
static inline void server_stop(struct server *server) {
    server_go_on(server);
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->acceptor, NULL);
    for (int i = 0; i < server->connections; i++)
        shutdown(server->fds[i], SHUT_RDWR);
    for (int i = 0; i < server->connections; i++) {
        pthread_join(server->players[i], NULL);
        close(server->fds[i]);
    }
    close(server->listener);
}

static inline void server_free(struct server *server) {
    free(server->body);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    free(server);
}

/* Reads one request whole; false when the connection ends before. */
static inline bool server_read(struct server *server, int fd) {
    char head[MAX_HEAD];
    size_t used = 0;
    while (used < 4 || memcmp(head + used - 4, "\r\n\r\n", 4) != 0)
        if (used == sizeof head - 1 || recv(fd, head + used++, 1, 0) != 1)
            return false;
    head[used] = '\0';
    const char *length = strcasestr(head, "\r\ncontent-length:");
    size_t size = length != NULL ? strtoul(length + 17, NULL, 10) : 0;
    char *body = malloc(size + 1);
    if (body == NULL || (size > 0 && recv(fd, body, size, MSG_WAITALL) != (ssize_t)size)) {
        free(body);
        return false;
    }
    pthread_mutex_lock(&server->lock);
    memcpy(server->head, head, used + 1);
    free(server->body);
    server->body = body;
    server->body_size = size;
    pthread_mutex_unlock(&server->lock);
    server->requests++;
    return true;
}

static inline bool server_write(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t put = send(fd, data, size, MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        data += put;
        size -= (size_t)put;
    }
    return true;
}

/* The script of a good node: every request gets `answer`. */
static inline void answer_always(struct server *server, int fd, int number) {
    (void)number;
    while (server_read(server, fd) && server_write(fd, server->answer, server->answer_size)) {
    }
}

/* Answers the first request of each connection, then closes it. */
static inline void answer_once(struct server *server, int fd, int number) {
    (void)number;
    if (server_read(server, fd))
        server_write(fd, server->answer, server->answer_size);
}

/* The client */

struct fixture {
    struct ev_loop *loop;
    struct http_client *client;
    ev_timer guard;
    bool is_late;
    int closed; /* calls, in all */
};

struct outcome {
    struct fixture *fixture;
    int answered, closed;
    struct http_answer answer;
    int64_t answered_us, closed_us; /* since the call began */
    int64_t started_us;
};

static inline void on_guard(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop;
    (void)revents;
    ((struct fixture *)timer->data)->is_late = true;
}

static inline int fixture_begin(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct error err;
    fixture->loop = ev_loop_new(EVFLAG_AUTO);
    fixture->client = http_client_new(fixture->loop, 100, NULL, &err);
    ev_init(&fixture->guard, on_guard);
    fixture->guard.data = fixture;
    *state = fixture;
    return fixture->loop != NULL && fixture->client != NULL ? 0 : -1;
}

static inline int fixture_end(void **state) {
    struct fixture *fixture = *state;
    http_client_free(fixture->client);
    ev_loop_destroy(fixture->loop);
    free(fixture);
    return 0;
}

static inline void note_answered(void *context, const struct http_answer *answer) {
    struct outcome *outcome = context;
    assert_int_equal(outcome->answered, 0);
    assert_int_equal(outcome->closed, 0);
    outcome->answered++;
    outcome->answer = *answer;
    outcome->answered_us = clock_monotonic_us() - outcome->started_us;
}

static inline void note_closed(void *context) {
    struct outcome *outcome = context;
    assert_int_equal(outcome->answered, 1);
    assert_int_equal(outcome->closed, 0);
    outcome->closed++;
    outcome->closed_us = clock_monotonic_us() - outcome->started_us;
    outcome->fixture->closed++;
}

static const struct http_handler notes = {.answered = note_answered, .closed = note_closed};

static inline void post(struct fixture *fixture, struct outcome *outcome, const struct http_request *request) {
    *outcome = (struct outcome){.fixture = fixture, .started_us = clock_monotonic_us()};
    assert_non_null(http_post(fixture->client, request, &notes, outcome));
}

/* Runs the loop until `*counter` has come to `value`; fails after half a minute. */
static inline void run_until(struct fixture *fixture, const int *counter, int value) {
    ev_now_update(fixture->loop);
    ev_timer_set(&fixture->guard, 30., 0.);
    ev_timer_start(fixture->loop, &fixture->guard);
    while (*counter < value && !fixture->is_late)
        ev_run(fixture->loop, EVRUN_ONCE);
    ev_timer_stop(fixture->loop, &fixture->guard);
    assert_false(fixture->is_late);
}

/* Until so many calls have closed in all. */
static inline void run_until_closed(struct fixture *fixture, int closed) {
    run_until(fixture, &fixture->closed, closed);
}

/* One request with a small body, to its end. */
static inline struct outcome post_and_wait(struct fixture *fixture, const char *url, int64_t timeout_ms) {
    struct outcome outcome;
    const struct http_header header = {"content-type", "application/octet-stream"};
    const struct http_request request = {
        .url = url, .headers = &header, .header_count = 1, .body = "body", .body_size = 4, .timeout_ms = timeout_ms};
    post(fixture, &outcome, &request);
    run_until_closed(fixture, fixture->closed + 1);
    assert_int_equal(outcome.closed, 1);
    return outcome;
}

#endif
