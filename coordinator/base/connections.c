/* Watches every connection's deadline from outside the HTTP library, and empties the set when the program stops. */
#include "base/connections.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

enum { DRAIN_SLICE_US = 500000 };

struct connection {
    struct connection *next, **link; /* link: what points here */
    int fd;
    _Atomic int64_t deadline_us; /* monotonic */
    atomic_bool idle;            /* no request under way */
};

struct connections {
    int64_t request_us, idle_us;
    atomic_bool draining;
    pthread_mutex_t lock; /* guards the list; whoever holds it may use the descriptors */
    pthread_cond_t emptied;
    struct connection *first;
};

struct connections *connections_new(int64_t request_us, int64_t idle_us, struct error *err) {
    struct connections *set = calloc(1, sizeof *set);
    if (!set) {
        (void)error_set(err, EXIT_UNEXPECTED, "connections: out of memory");
        return NULL;
    }
    set->request_us = request_us;
    set->idle_us = idle_us;
    pthread_mutex_init(&set->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&set->emptied, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return set;
}

void connections_free(struct connections *set) {
    if (!set)
        return;
    pthread_cond_destroy(&set->emptied);
    pthread_mutex_destroy(&set->lock);
    free(set);
}

/* The HTTP library sees the end of the stream and closes the descriptor itself. */
static void shut(const struct connection *connection) {
    (void)shutdown(connection->fd, SHUT_RDWR);
}

/* As above, but a request that has arrived unread is still answered. */
static void shut_gently(const struct connection *connection) {
    (void)shutdown(connection->fd, SHUT_RD);
}

struct connection *connections_add(struct connections *set, int fd) {
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->fd = fd;
    atomic_store(&connection->idle, true);
    atomic_store(&connection->deadline_us, clock_monotonic_us() + set->request_us);
    pthread_mutex_lock(&set->lock);
    connection->next = set->first;
    connection->link = &set->first;
    if (set->first)
        set->first->link = &connection->next;
    set->first = connection;
    pthread_mutex_unlock(&set->lock);
    if (atomic_load(&set->draining))
        shut_gently(connection);
    return connection;
}

void connections_remove(struct connections *set, struct connection *connection) {
    pthread_mutex_lock(&set->lock);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    if (!set->first)
        pthread_cond_signal(&set->emptied);
    pthread_mutex_unlock(&set->lock);
    free(connection);
}

void connection_begin_request(struct connections *set, struct connection *connection) {
    atomic_store(&connection->deadline_us, clock_monotonic_us() + set->request_us);
    atomic_store(&connection->idle, false);
}

void connection_end_request(struct connections *set, struct connection *connection) {
    atomic_store(&connection->deadline_us, clock_monotonic_us() + set->idle_us);
    atomic_store(&connection->idle, true);
    if (atomic_load(&set->draining))
        shut_gently(connection);
}

static void expire_locked(struct connections *set) {
    int64_t now_us = clock_monotonic_us();
    for (struct connection *each = set->first; each; each = each->next)
        if (atomic_load(&each->deadline_us) < now_us)
            shut(each);
}

void connections_expire(struct connections *set) {
    pthread_mutex_lock(&set->lock);
    expire_locked(set);
    pthread_mutex_unlock(&set->lock);
}

/* Waits, with the lock held, for the set to be empty or for DRAIN_SLICE_US, whichever comes first. */
static void wait_slice(struct connections *set) {
    int64_t until_us = clock_monotonic_us() + DRAIN_SLICE_US;
    const struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                                   .tv_nsec = (long)(until_us % 1000000) * 1000};
    (void)pthread_cond_timedwait(&set->emptied, &set->lock, &until);
}

void connections_drain(struct connections *set, int64_t limit_us) {
    int64_t until_us = clock_monotonic_us() + limit_us;

    atomic_store(&set->draining, true);
    pthread_mutex_lock(&set->lock);
    for (struct connection *each = set->first; each; each = each->next)
        if (atomic_load(&each->idle))
            shut_gently(each);
    while (set->first && clock_monotonic_us() < until_us) {
        wait_slice(set);
        expire_locked(set);
    }
    for (struct connection *each = set->first; each; each = each->next)
        shut(each);
    pthread_mutex_unlock(&set->lock);
}
