/* How many requests a second libcurl's multi interface moves on libev when nothing else is done: so many at once to
 * each URL, on connections that are kept; prints the rate. */
#include <curl/curl.h>
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_BYTES = 64, ID_MAX = 96, IN_FLIGHT = 64, URLS_MAX = 16 };

struct transfer {
    CURL *easy;
    struct curl_slist *headers;
    int node_id;
};

struct bench {
    CURLM *multi;
    struct ev_loop *loop;
    ev_timer timer;
    struct transfer *transfers;
    long started, finished, wanted;
    unsigned char body[BODY_BYTES];
};

struct watched {
    ev_io io;
    struct bench *bench;
};

static void fail(const char *what, const char *why) {
    (void)fprintf(stderr, "curl-rate: %s: %s\n", what, why);
    exit(1);
}

static size_t ignore(char *data, size_t size, size_t count, void *context) {
    (void)data;
    (void)context;
    return size * count;
}

/* The next request of a transfer that is idle; each has a round of its own, as a coordinator's has. */
static void start(struct bench *bench, struct transfer *transfer) {
    char id[ID_MAX];
    (void)snprintf(id, sizeof id, "webhook-id: bench:rate-%ld:%d:1", bench->started++, transfer->node_id);
    curl_slist_free_all(transfer->headers);
    transfer->headers = curl_slist_append(NULL, id);
    curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
    curl_multi_add_handle(bench->multi, transfer->easy);
}

static void take_finished(struct bench *bench) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(bench->multi, &left))) {
        CURL *easy = message->easy_handle;
        CURLcode result = message->data.result;
        struct transfer *transfer;
        long status = 0;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&transfer);
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        if (result != CURLE_OK || status != 200)
            fail("a request failed", result != CURLE_OK ? curl_easy_strerror(result) : "its status was not 200");
        curl_multi_remove_handle(bench->multi, easy);
        bench->finished++;
        if (bench->started < bench->wanted)
            start(bench, transfer);
        else if (bench->finished == bench->wanted)
            ev_break(bench->loop, EVBREAK_ALL);
    }
}

static void act(struct bench *bench, curl_socket_t fd, int events) {
    int running;
    curl_multi_socket_action(bench->multi, fd, events, &running);
    take_finished(bench);
}

static void on_io(struct ev_loop *loop, ev_io *io, int events) {
    (void)loop;
    act(((struct watched *)io->data)->bench, io->fd,
        (events & EV_READ ? CURL_CSELECT_IN : 0) | (events & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int events) {
    (void)loop;
    (void)events;
    act(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *socket_context) {
    struct bench *bench = context;
    struct watched *watched = socket_context;
    (void)easy;

    if (what == CURL_POLL_REMOVE) {
        if (watched)
            ev_io_stop(bench->loop, &watched->io);
        free(watched);
        return 0;
    }
    int events = (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0);
    if (watched) {
        ev_io_stop(bench->loop, &watched->io);
    } else {
        watched = calloc(1, sizeof *watched);
        if (!watched)
            return -1;
        watched->bench = bench;
        curl_multi_assign(bench->multi, fd, watched);
    }
    ev_io_init(&watched->io, on_io, fd, events);
    watched->io.data = watched;
    ev_io_start(bench->loop, &watched->io);
    return 0;
}

static int on_timeout(CURLM *multi, long milliseconds, void *context) {
    struct bench *bench = context;
    (void)multi;
    ev_timer_stop(bench->loop, &bench->timer);
    if (milliseconds >= 0) {
        ev_timer_set(&bench->timer, (double)milliseconds / 1000, 0);
        ev_timer_start(bench->loop, &bench->timer);
    }
    return 0;
}

static void prepare(struct bench *bench, struct transfer *transfer, const char *url, int node_id) {
    transfer->node_id = node_id;
    transfer->easy = curl_easy_init();
    if (!transfer->easy)
        fail("libcurl", "out of memory");
    curl_easy_setopt(transfer->easy, CURLOPT_URL, url);
    curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, (char *)bench->body);
    curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDSIZE, (long)BODY_BYTES);
    curl_easy_setopt(transfer->easy, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, (char *)transfer);
    curl_easy_setopt(transfer->easy, CURLOPT_NOSIGNAL, 1L);
}

int main(int argc, char **argv) {
    struct bench bench = {.multi = NULL};
    int urls = argc - 2;

    bench.wanted = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    if (urls < 1 || urls > URLS_MAX || bench.wanted < (long)urls * IN_FLIGHT)
        fail("usage", "curl-rate REQUESTS URL ...: the node ids are 1, 2, ... in that order, and each has 64 at once");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(bench.multi = curl_multi_init()))
        fail("libcurl", "could not start");
    bench.loop = ev_default_loop(0);
    ev_timer_init(&bench.timer, on_timer, 0, 0);
    bench.timer.data = &bench;
    curl_multi_setopt(bench.multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(bench.multi, CURLMOPT_SOCKETDATA, &bench);
    curl_multi_setopt(bench.multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    curl_multi_setopt(bench.multi, CURLMOPT_TIMERDATA, &bench);
    curl_multi_setopt(bench.multi, CURLMOPT_MAXCONNECTS, (long)(urls * IN_FLIGHT));

    int count = urls * IN_FLIGHT;
    bench.transfers = calloc((size_t)count, sizeof *bench.transfers);
    if (!bench.transfers)
        fail("curl-rate", "out of memory");
    double began = ev_time();
    for (int i = 0; i < count; i++) {
        prepare(&bench, &bench.transfers[i], argv[2 + i % urls], 1 + i % urls);
        start(&bench, &bench.transfers[i]);
    }
    ev_run(bench.loop, 0);
    (void)printf("%.0f\n", (double)bench.finished / (ev_time() - began));
    for (int i = 0; i < count; i++) {
        curl_easy_cleanup(bench.transfers[i].easy);
        curl_slist_free_all(bench.transfers[i].headers);
    }
    curl_multi_cleanup(bench.multi);
    free(bench.transfers);
    return 0;
}
