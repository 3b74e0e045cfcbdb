/* Host names whose look-up takes its time: a call that times out meanwhile keeps its place until the look-up has ended,
 * so that a dead resolver costs no more threads than there are slots. */
#include "http_server.h"

#include <dlfcn.h>
#include <netdb.h>
#include <signal.h>

static struct server *serve(void) {
    static const char answer[] = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    return server_start(answer_always, answer, strlen(answer));
}

/* libcurl's threads look names up here: those below .test wait until the test lets them go on. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool may_end;
static int looking_up;

static void let_look_ups_end(bool end) {
    pthread_mutex_lock(&lock);
    may_end = end;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int look_ups(void) {
    pthread_mutex_lock(&lock);
    int count = looking_up;
    pthread_mutex_unlock(&lock);
    return count;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    size_t length = node != NULL ? strlen(node) : 0;
    if (length < 5 || strcmp(node + length - 5, ".test") != 0)
        return real(node, service, hints, found);
    pthread_mutex_lock(&lock);
    looking_up++;
    while (!may_end)
        pthread_cond_wait(&changed, &lock);
    looking_up--;
    pthread_mutex_unlock(&lock);
    return strncmp(node, "unknown", 7) == 0 ? EAI_AGAIN : real("127.0.0.1", service, hints, found);
}

/* `url` with another host. */
static const char *named(const struct server *server, const char *host) {
    static char url[128];
    snprintf(url, sizeof url, "http://%s%s", host, strrchr(server->url, ':'));
    return url;
}

static int begin(void **state) {
    let_look_ups_end(false);
    return fixture_begin(state);
}

static int end(void **state) {
    let_look_ups_end(true);
    return fixture_end(state);
}

static void a_look_up_that_ends_in_time_is_used(void **state) {
    struct fixture *f = *state;
    struct server *server = serve();
    let_look_ups_end(true);
    struct outcome outcome = post_and_wait(f, named(server, "known.test"), 20000);
    server_stop(server);
    assert_int_equal(outcome.answer.status, 200);
    assert_int_equal(server->requests, 1);
    server_free(server);
}

static void end_late(struct fixture *f, const char *host) {
    struct server *server = serve();
    struct outcome outcome;
    post(f, &outcome, &(struct http_request){.url = named(server, host), .timeout_ms = 100});
    run_until(f, &outcome.answered, 1);
    assert_int_equal(outcome.answer.end, HTTP_TIMEOUT);
    assert_in_range(outcome.answered_us, 100000, 10000000);
    for (int i = 0; i < 20; i++) { /* nothing but the look-up ends it */
        ev_run(f->loop, EVRUN_NOWAIT);
        usleep(10000);
    }
    assert_int_equal(outcome.closed, 0);
    assert_int_equal(http_client_active(f->client), 1);
    assert_int_equal(look_ups(), 1);

    let_look_ups_end(true);
    run_until_closed(f, 1);
    assert_int_equal(outcome.answered, 1);
    assert_int_equal(http_client_active(f->client), 0);
    struct outcome next = post_and_wait(f, server->url, 20000); /* the same call is used again, and is as good as new */
    server_stop(server);
    assert_int_equal(next.answer.status, 200);
    assert_int_equal(server->connections, 1);
    server_free(server);
}

static void a_look_up_that_ends_too_late_connects_to_nobody(void **state) {
    end_late(*state, "known.test");
}

static void a_look_up_that_fails_too_late_is_told_once(void **state) {
    end_late(*state, "unknown.test");
}

static void a_program_that_ends_waits_for_no_look_up(void **state) {
    struct fixture *f = *state;
    struct outcome first, second;
    post(f, &first, &(struct http_request){.url = "http://known.test:1/", .timeout_ms = 50});
    run_until(f, &first.answered, 1);
    post(f, &second, &(struct http_request){.url = "http://known.test:1/", .timeout_ms = 300});
    http_client_hurry(f->client);
    assert_int_equal(first.closed, 1);
    assert_int_equal(second.answered, 0); /* it has its time */
    run_until_closed(f, 2);
    assert_int_equal(second.answer.end, HTTP_TIMEOUT);
    assert_in_range(second.closed_us, 300000, 10000000);
    assert_int_equal(look_ups(), 2);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_look_up_that_ends_in_time_is_used),
        TEST(a_look_up_that_ends_too_late_connects_to_nobody),
        TEST(a_look_up_that_fails_too_late_is_told_once),
        TEST(a_program_that_ends_waits_for_no_look_up),
    };
    return cmocka_run_group_tests_name("http_lookup", tests, NULL, NULL);
}
