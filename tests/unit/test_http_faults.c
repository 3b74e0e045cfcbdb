/* The HTTP client with nodes that misbehave: how each fault is told, that no request is ever sent twice, and that
 * neither time nor memory is wasted on it. */
#include "http_server.h"

#include <fcntl.h>
#include <signal.h>

#define GOOD "HTTP/1.1 200 OK\r\nquorate-receipt: v1a,receipt\r\ncontent-length: 2\r\n\r\nok"

static struct server *serve(server_script script, const char *answer) {
    return server_start(script, answer, strlen(answer));
}

static void assert_failed(const struct outcome *outcome, enum http_end end) {
    assert_int_equal(outcome->answer.end, end);
    assert_int_equal(outcome->answer.status, 0);
    assert_int_equal(outcome->answer.retry_after_ms, 0);
    assert_string_equal(outcome->answer.receipt, "");
    assert_true(outcome->answer.detail[0] != '\0');
}

static void refused_connections(void **state) {
    struct fixture *f = *state;
    char url[64];
    int fd = bind_loopback(url); /* bound, so that nobody else gets the port, but not listening */
    struct outcome outcome = post_and_wait(f, url, 10000);
    close(fd);
    assert_failed(&outcome, HTTP_CONNECT_ERROR);
    assert_true(outcome.answered_us < 5000000);
}

static void broken_answers(void **state) {
    struct fixture *f = *state;
    static const char *const answers[] = {
        "",                                                    /* closes at once */
        "HTT",                                                 /* in the middle of the version */
        "HTTP/1.1 200",                                        /* of the status */
        "HTTP/1.1 200 OK\r\n",                                 /* of the head */
        "HTTP/1.1 200 OK\r\nquorate-receipt: v1a,receipt",     /* of the receipt */
        "HTTP/1.1 200 OK\r\nquorate-receipt: v1a,receipt\r\n", /* before the empty line */
        "HTTP/1.1 100 Continue\r\n\r\n",                       /* nothing final */
        "HTTP/1.1 103 Early\r\nquorate-receipt: v1a,receipt\r\n\r\n",
        "hello, I am no web server\r\n\r\n",
        "\r\n\r\n",
        "\x16\x03\x01\x02\x05\x01",
        "HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 000 Odd\r\ncontent-length: 0\r\n\r\n",
        "HTTP/2 200\r\ncontent-length: 0\r\n\r\n",
        "HTTP/0.9 OK\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT(answers); i++) {
        struct server *server = serve(answer_once, answers[i]);
        struct outcome outcome = post_and_wait(f, server->url, 10000);
        server_stop(server);
        if (outcome.answer.end != HTTP_CONNECT_ERROR)
            fail_msg("\"%s\" ended as %d, status %d", answers[i], outcome.answer.end, outcome.answer.status);
        assert_failed(&outcome, HTTP_CONNECT_ERROR);
        assert_int_equal(server->requests, 1);
        server_free(server);
    }
}

/* Sends the script's answer again and again, until nobody takes it any more. */
static void answer_for_ever(struct server *server, int fd, int number) {
    (void)number;
    bool taken = server_read(server, fd) && server_write(fd, "HTTP/1.1 200 OK\r\n", 17);
    while (taken)
        taken = server_write(fd, server->answer, server->answer_size);
}

static void heads_without_an_end(void **state) {
    struct fixture *f = *state;
    static const char *const pieces[] = {
        "a line that never ends ",          "a:\r\n",      "x-filler: 0123456789012345678901234567890123456789\r\n",
        "quorate-receipt: v1a,receipt\r\n", " folded\r\n",
    };
    for (size_t i = 0; i < COUNT(pieces); i++) {
        struct server *server = serve(answer_for_ever, pieces[i]);
        struct outcome outcome = post_and_wait(f, server->url, 20000);
        server_stop(server);
        assert_failed(&outcome, HTTP_CONNECT_ERROR);
        assert_true(outcome.closed_us < 15000000); /* not by its time-out */
        server_free(server);
    }
}

/* A complete head counts, even if the promised body never comes. */
static void a_head_without_its_body_is_an_answer(void **state) {
    struct fixture *f = *state;
    struct server *server =
        serve(answer_once, "HTTP/1.1 200 OK\r\nquorate-receipt: x\r\ncontent-length: 9\r\n\r\nhalf");
    struct outcome outcome = post_and_wait(f, server->url, 10000);
    server_stop(server);
    assert_int_equal(outcome.answer.end, HTTP_ANSWERED);
    assert_string_equal(outcome.answer.receipt, "x");
    assert_int_equal(server->requests, 1);
    server_free(server);
}

static void read_and_wait(struct server *server, int fd, int number) {
    (void)number;
    if (server_read(server, fd) && server_write(fd, server->answer, server->answer_size))
        server_wait(server);
}

static void silence_is_a_timeout(void **state) {
    struct fixture *f = *state;
    static const char *const answers[] = {
        "",                                     /* nothing at all */
        "HTTP/1.1 200 OK\r\nquorate-receipt: ", /* half a head, and then nothing */
        "HTTP/1.1 100 Continue\r\n\r\n",        /* a promise, and then nothing */
    };
    for (size_t i = 0; i < COUNT(answers); i++) {
        struct server *server = serve(read_and_wait, answers[i]);
        struct outcome outcome = post_and_wait(f, server->url, 300);
        server_stop(server);
        assert_failed(&outcome, HTTP_TIMEOUT);
        assert_in_range(outcome.answered_us, 299000, 5000000);
        assert_int_equal(server->requests, 1);
        server_free(server);
    }
}

static void a_node_that_never_accepts_is_a_timeout(void **state) {
    struct fixture *f = *state;
    char url[64];
    int fd = bind_loopback(url);
    assert_int_equal(listen(fd, 8), 0); /* the kernel accepts, nobody reads */
    struct outcome outcome = post_and_wait(f, url, 200);
    close(fd);
    assert_failed(&outcome, HTTP_TIMEOUT);
    assert_in_range(outcome.answered_us, 199000, 5000000);
}

static void count_turn(struct ev_loop *loop, ev_prepare *prepare, int revents) {
    (void)loop;
    (void)revents;
    ++*(int *)prepare->data;
}

/* Rounding a wait down to nothing would turn the loop into a busy one. */
static void waiting_costs_no_turns(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(read_and_wait, "");
    int turns = 0;
    ev_prepare counter;
    ev_prepare_init(&counter, count_turn);
    counter.data = &turns;
    ev_prepare_start(f->loop, &counter);
    struct outcome outcome = post_and_wait(f, server->url, 500);
    ev_prepare_stop(f->loop, &counter);
    server_stop(server);
    server_free(server);
    assert_failed(&outcome, HTTP_TIMEOUT);
    assert_in_range(turns, 2, 60);
}

static void head_then_endless_body(struct server *server, int fd, int number) {
    (void)number;
    static const char head[] = "HTTP/1.1 200 OK\r\nquorate-receipt: x\r\n\r\n";
    static char filler[16384];
    if (server_read(server, fd) && server_write(fd, head, sizeof head - 1))
        while (server_write(fd, filler, sizeof filler)) {
        }
}

static void an_endless_body_is_cut_off(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(head_then_endless_body, "");
    struct outcome outcome = post_and_wait(f, server->url, 20000);
    assert_int_equal(outcome.answer.end, HTTP_ANSWERED);
    assert_string_equal(outcome.answer.receipt, "x");
    assert_true(outcome.closed_us < 15000000); /* by its size, not by the time-out */
    server_stop(server);
    assert_int_equal(server->requests, 1);
    server_free(server);
}

static void head_then_endless_trailers(struct server *server, int fd, int number) {
    (void)number;
    static const char head[] = "HTTP/1.1 200 OK\r\nquorate-receipt: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n";
    if (server_read(server, fd) && server_write(fd, head, sizeof head - 1))
        while (server_write(fd, "x-trailer: 0123456789012345678901234567890123456789\r\n", 53)) {
        }
}

static void endless_trailers_are_cut_off(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(head_then_endless_trailers, "");
    struct outcome outcome = post_and_wait(f, server->url, 20000);
    assert_int_equal(outcome.answer.end, HTTP_ANSWERED);
    assert_true(outcome.closed_us < 15000000);
    server_stop(server);
    server_free(server);
}

/* The answer is told at once; the body that does not come is given up at the same deadline as the head. */
static void a_stuck_body_ends_with_the_timeout(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(read_and_wait, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    struct outcome outcome = post_and_wait(f, server->url, 400);
    server_stop(server);
    server_free(server);
    assert_int_equal(outcome.answer.end, HTTP_ANSWERED);
    assert_in_range(outcome.closed_us, 399000, 5000000);
}

static void endless_interim_heads(struct server *server, int fd, int number) {
    (void)number;
    if (server_read(server, fd))
        while (server_write(fd, "HTTP/1.1 102 Processing\r\n\r\n", 27)) {
        }
}

static void endless_head(struct server *server, int fd, int number) {
    (void)number;
    if (server_read(server, fd) && server_write(fd, "HTTP/1.1 200 OK\r\n", 17))
        while (server_write(fd, "x-filler: 0123456789012345678901234567890123456789\r\n", 52)) {
        }
}

static void endless_line(struct server *server, int fd, int number) {
    (void)number;
    if (server_read(server, fd) && server_write(fd, "HTTP/1.1 200 OK\r\nx-filler: ", 27))
        while (server_write(fd, "0123456789012345678901234567890123456789", 40)) {
        }
}

static void endless_heads_are_cut_off(void **state) {
    struct fixture *f = *state;
    static const server_script scripts[] = {endless_interim_heads, endless_head, endless_line};
    for (size_t i = 0; i < COUNT(scripts); i++) {
        struct server *server = serve(scripts[i], "");
        struct outcome outcome = post_and_wait(f, server->url, 20000);
        assert_failed(&outcome, HTTP_CONNECT_ERROR);
        assert_true(outcome.closed_us < 15000000);
        server_stop(server);
        assert_int_equal(server->requests, 1);
        server_free(server);
    }
}

/* Keep-alive connections that die under the next request. libcurl takes that for an idle connection's end and repeats
 * the POST by itself on a new connection; the node may well have acted on the first. */

static void second_request_is_swallowed(struct server *server, int fd, int number) {
    (void)number;
    if (server_read(server, fd) && server_write(fd, server->answer, server->answer_size))
        (void)server_read(server, fd);
}

static void second_request_is_reset(struct server *server, int fd, int number) {
    second_request_is_swallowed(server, fd, number);
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    /* A socket of no family: disconnects, which sends a reset although the number stays open. */
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    (void)connect(fd, &nowhere, sizeof nowhere);
}

static void second_request_gets_half_a_line(struct server *server, int fd, int number) {
    second_request_is_swallowed(server, fd, number);
    server_write(fd, "HTTP/1", 6);
}

static void a_post_is_never_repeated(void **state) {
    struct fixture *f = *state;
    static const server_script scripts[] = {second_request_is_swallowed, second_request_is_reset,
                                            second_request_gets_half_a_line};
    for (size_t i = 0; i < COUNT(scripts); i++) {
        struct server *server = serve(scripts[i], GOOD);
        struct outcome first = post_and_wait(f, server->url, 10000);
        struct outcome second = post_and_wait(f, server->url, 10000);
        assert_int_equal(server->requests, 2);
        struct outcome third = post_and_wait(f, server->url, 10000); /* works again */
        server_stop(server);
        assert_int_equal(first.answer.end, HTTP_ANSWERED);
        assert_failed(&second, HTTP_CONNECT_ERROR);
        assert_int_equal(third.answer.end, HTTP_ANSWERED);
        assert_int_equal(server->requests, 3); /* one for each call */
        server_free(server);
    }
}

static void tls_to_a_node_that_speaks_none(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_always, GOOD);
    char url[80];
    snprintf(url, sizeof url, "https%s", server->url + strlen("http"));
    struct outcome outcome = post_and_wait(f, url, 500); /* it waits for a head, we for its hello */
    server_stop(server);
    assert_failed(&outcome, HTTP_TIMEOUT);
    assert_int_equal(server->requests, 0);
    server_free(server);
}

static void freed_with_calls_under_way(void **state) {
    struct fixture *f = *state;
    struct server *silent = serve(read_and_wait, "");
    struct server *stuck = serve(read_and_wait, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    struct server *good = serve(answer_always, GOOD);
    struct outcome outcomes[6];
    const char *const urls[] = {silent->url, stuck->url, silent->url, stuck->url, good->url, silent->url};
    struct http_request request = {.body = "b", .body_size = 1, .timeout_ms = 20000};
    for (int i = 0; i < 5; i++) {
        request.url = urls[i];
        post(f, &outcomes[i], &request);
    }
    run_until(f, &outcomes[1].answered, 1);
    run_until(f, &outcomes[3].answered, 1);
    run_until(f, &outcomes[4].closed, 1); /* leaves an idle connection */
    request.url = urls[5];
    post(f, &outcomes[5], &request); /* not even connected yet */
    assert_int_equal(http_client_active(f->client), 5);
    http_client_free(f->client);
    f->client = NULL;
    ev_run(f->loop, EVRUN_NOWAIT); /* nothing of it is left on the loop */
    assert_int_equal(outcomes[0].answered + outcomes[2].answered + outcomes[5].answered, 0);
    assert_int_equal(outcomes[1].closed + outcomes[3].closed, 0);
    server_stop(silent);
    server_stop(stuck);
    server_stop(good);
    server_free(silent);
    server_free(stuck);
    server_free(good);
}

/* Each open file of this process, to notice those that stay behind. */
static int open_files(void) {
    int count = 0;
    for (int fd = 0; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) != -1)
            count++;
    return count;
}

static void failures_leave_nothing_open(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_once, "HTTP/1.1 200 OK\r\nhalf");
    struct outcome outcome = post_and_wait(f, server->url, 10000);
    assert_failed(&outcome, HTTP_CONNECT_ERROR);
    int before = open_files();
    for (int i = 0; i < 50; i++)
        (void)post_and_wait(f, server->url, 10000);
    int after = open_files();
    server_stop(server);
    /* The server keeps its side of each connection until it is stopped; the client keeps none. */
    assert_int_equal(after - before, server->connections - 1);
    assert_int_equal(server->requests, 51);
    server_free(server);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_begin, fixture_end)
    const struct CMUnitTest tests[] = {
        TEST(refused_connections),
        TEST(broken_answers),
        TEST(heads_without_an_end),
        TEST(a_head_without_its_body_is_an_answer),
        TEST(silence_is_a_timeout),
        TEST(a_node_that_never_accepts_is_a_timeout),
        TEST(waiting_costs_no_turns),
        TEST(an_endless_body_is_cut_off),
        TEST(endless_trailers_are_cut_off),
        TEST(a_stuck_body_ends_with_the_timeout),
        TEST(endless_heads_are_cut_off),
        TEST(a_post_is_never_repeated),
        TEST(tls_to_a_node_that_speaks_none),
        TEST(freed_with_calls_under_way),
        TEST(failures_leave_nothing_open),
    };
    return cmocka_run_group_tests_name("http_faults", tests, NULL, NULL);
}
