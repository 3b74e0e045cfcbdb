/* The HTTP client with nodes that behave: what is sent, when an answer is told, and how connections are used again. */
#include "http_server.h"

#include <signal.h>

#define GOOD "HTTP/1.1 200 OK\r\nquorate-receipt: v1a,receipt\r\ncontent-length: 2\r\n\r\nok"

static struct server *serve(server_script script, const char *answer) {
    return server_start(script, answer, strlen(answer));
}

static void assert_answered(const struct outcome *outcome, int status) {
    if (outcome->answer.end != HTTP_ANSWERED)
        fail_msg("not answered: %s", outcome->answer.detail);
    assert_int_equal(outcome->answer.status, status);
    assert_string_equal(outcome->answer.detail, "");
}

static void the_request_has_these_headers_and_no_other(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_always, GOOD);
    static const struct http_header headers[] = {
        {"content-type", "application/octet-stream"},
        {"webhook-id", "demo:rnd-1:1:1001"},
        {"webhook-timestamp", "1700000000"},
        {"webhook-signature", "v1a,4JmgDBOS2niUy74dO3DnHD4W7Yae7AbRZTDbgsz2zFV5Dbb6Ge0qB+0Jo1/FIfaanorX82ul=="},
    };
    char url[128], expected[128];
    snprintf(url, sizeof url, "%sa/path?q=1", server->url);
    struct outcome outcome;
    post(f, &outcome,
         &(struct http_request){.url = url,
                                .headers = headers,
                                .header_count = COUNT(headers),
                                .body = "\0\1\2",
                                .body_size = 3,
                                .timeout_ms = 10000});
    assert_int_equal(http_client_active(f->client), 1);
    run_until_closed(f, 1);
    assert_int_equal(http_client_active(f->client), 0);
    server_stop(server);

    assert_answered(&outcome, 200);
    assert_string_equal(outcome.answer.receipt, "v1a,receipt");
    assert_int_equal(outcome.answer.retry_after_ms, 0);
    assert_int_equal(server->requests, 1);
    assert_int_equal(server->body_size, 3);
    assert_memory_equal(server->body, "\0\1\2", 3);

    assert_ptr_equal(strstr(server->head, "POST /a/path?q=1 HTTP/1.1\r\n"), server->head);
    int lines = 0;
    for (const char *at = server->head; (at = strstr(at, "\r\n")) != NULL; at += 2)
        lines++;
    assert_int_equal(lines, 1 + 2 + COUNT(headers) + 1); /* the request, host and length, ours, the empty one */
    for (size_t i = 0; i < COUNT(headers); i++) {
        snprintf(expected, sizeof expected, "\r\n%s: %s\r\n", headers[i].name, headers[i].value);
        assert_non_null(strstr(server->head, expected));
    }
    snprintf(expected, sizeof expected, "\r\nhost: %.*s\r\n", (int)strlen(server->url) - 8, server->url + 7);
    assert_non_null(strcasestr(server->head, expected));
    assert_non_null(strcasestr(server->head, "\r\ncontent-length: 3\r\n"));
    server_free(server);
}

static void no_headers_and_no_body(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_always, GOOD);
    struct outcome outcome;
    post(f, &outcome, &(struct http_request){.url = server->url, .timeout_ms = 10000});
    run_until_closed(f, 1);
    server_stop(server);
    assert_answered(&outcome, 200);
    assert_int_equal(server->body_size, 0);
    assert_non_null(strcasestr(server->head, "\r\ncontent-length: 0\r\n"));
    assert_null(strcasestr(server->head, "content-type"));
    server_free(server);
}

static void a_large_body_goes_at_once(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_always, GOOD);
    const size_t size = 2 << 20;
    char *body = malloc(size);
    assert_non_null(body);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)(i * 31 >> 3);
    struct outcome outcome;
    post(f, &outcome, &(struct http_request){.url = server->url, .body = body, .body_size = size, .timeout_ms = 20000});
    run_until_closed(f, 1);
    server_stop(server);
    assert_answered(&outcome, 200);
    assert_null(strcasestr(server->head, "expect"));
    assert_int_equal(server->requests, 1);
    assert_int_equal(server->body_size, size);
    assert_memory_equal(server->body, body, size);
    free(body);
    server_free(server);
}

/* The caller says what time it is; the host's clock, which is decades further, is not asked. */
static void dates_are_read_by_the_callers_clock(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_once,
                                  "HTTP/1.1 503 Later\r\nretry-after: Sun, 06 Nov 1994 08:50:37 GMT\r\n"
                                  "content-length: 0\r\n\r\n");
    struct outcome outcome;
    post(f, &outcome,
         &(struct http_request){.url = server->url, .timeout_ms = 10000, .now_s = 784111777 /* 08:49:37 */});
    run_until_closed(f, 1);
    server_stop(server);
    assert_in_range(outcome.answer.retry_after_ms, 50000, 60000);
    server_free(server);
}

static void statuses_and_waits(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *answer;
        int status;
        int64_t retry_after_ms;
        const char *receipt;
    } cases[] = {
        {"HTTP/1.1 204 No Content\r\nQuorate-Receipt:  v1a,x \r\n\r\n", 204, 0, "v1a,x"},
        {"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n", 409, 0, ""},
        {"HTTP/1.1 429 Slowly\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n", 429, 3000, ""},
        {"HTTP/1.1 503 Later\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
         "retry-after: Sun, 06 Nov 1994 08:49:39 GMT\r\ncontent-length: 0\r\n\r\n",
         503, 2000, ""},
        {"HTTP/1.1 503 Later\r\nretry-after: 2\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n", 503, 0, ""},
        {"HTTP/1.1 500 Broken\r\nretry-after: a while\r\ncontent-length: 0\r\n\r\n", 500, 0, ""},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nquorate-receipt: early\r\n\r\n"
         "HTTP/1.1 201 Created\r\nquorate-receipt: late\r\ncontent-length: 0\r\n\r\n",
         201, 0, "late"},
        {"HTTP/1.1 200 OK\r\nquorate-receipt: a\r\nquorate-receipt: a\r\ncontent-length: 0\r\n\r\n", 200, 0, ""},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nquorate-receipt: trailer\r\n\r\n", 200,
         0, ""},
        {"HTTP/1.0 200 OK\r\nquorate-receipt: old\r\n\r\nuntil the end", 200, 0, "old"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct server *server = serve(answer_once, cases[i].answer);
        struct outcome outcome = post_and_wait(f, server->url, 10000);
        server_stop(server);
        assert_answered(&outcome, cases[i].status);
        assert_int_equal(outcome.answer.retry_after_ms, cases[i].retry_after_ms);
        assert_string_equal(outcome.answer.receipt, cases[i].receipt);
        assert_int_equal(server->requests, 1);
        server_free(server);
    }
}

static void a_receipt_of_256_bytes_is_too_long(void **state) {
    struct fixture *f = *state;
    for (int size = 255; size <= 256; size++) {
        char answer[512], receipt[257];
        memset(receipt, 'r', (size_t)size);
        receipt[size] = '\0';
        snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nquorate-receipt: %s\r\ncontent-length: 0\r\n\r\n", receipt);
        struct server *server = serve(answer_once, answer);
        struct outcome outcome = post_and_wait(f, server->url, 10000);
        server_stop(server);
        server_free(server);
        assert_answered(&outcome, 200);
        assert_string_equal(outcome.answer.receipt, size == 255 ? receipt : "");
    }
}

static void redirects_are_not_followed(void **state) {
    struct fixture *f = *state;
    struct server *target = serve(answer_always, GOOD);
    char answer[256];
    snprintf(answer, sizeof answer, "HTTP/1.1 307 There\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n", target->url);
    struct server *server = serve(answer_always, answer);
    struct outcome outcome = post_and_wait(f, server->url, 10000);
    server_stop(server);
    server_stop(target);
    assert_answered(&outcome, 307);
    assert_int_equal(server->requests, 1);
    assert_int_equal(target->connections, 0);
    server_free(server);
    server_free(target);
}

static void proxies_of_the_environment_are_ignored(void **state) {
    struct fixture *f = *state;
    struct server *proxy = serve(answer_always, "HTTP/1.1 502 Proxy\r\ncontent-length: 0\r\n\r\n");
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < COUNT(names); i++)
        setenv(names[i], proxy->url, 1);
    struct server *server = serve(answer_always, GOOD);
    struct outcome outcome = post_and_wait(f, server->url, 10000);
    for (size_t i = 0; i < COUNT(names); i++)
        unsetenv(names[i]);
    server_stop(server);
    server_stop(proxy);
    assert_answered(&outcome, 200);
    assert_int_equal(proxy->connections, 0);
    server_free(server);
    server_free(proxy);
}

/* Sends the head; the rest only once the client has told of it. */
static void head_then_wait(struct server *server, int fd, int number) {
    (void)number;
    static const char head[] = "HTTP/1.1 200 OK\r\nquorate-receipt: x\r\ncontent-length: 2\r\n\r\n";
    if (!server_read(server, fd) || !server_write(fd, head, sizeof head - 1))
        return;
    server_wait(server);
    if (server_write(fd, "ok", 2))
        (void)server_read(server, fd); /* keeps the connection open */
}

static void the_head_is_told_before_the_body_ends(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(head_then_wait, "");
    struct outcome outcome;
    post(f, &outcome, &(struct http_request){.url = server->url, .body = "b", .body_size = 1, .timeout_ms = 20000});
    run_until(f, &outcome.answered, 1);
    assert_answered(&outcome, 200);
    assert_int_equal(outcome.closed, 0);
    assert_int_equal(http_client_active(f->client), 1);
    server_go_on(server);
    run_until_closed(f, 1);
    assert_int_equal(http_client_active(f->client), 0);
    server_stop(server);
    assert_int_equal(server->connections, 1);
    server_free(server);
}

/* An answer with `size` bytes of body, by length or in chunks; free it. */
static char *answer_with_body(size_t size, bool chunked, size_t *answer_size) {
    char *answer = calloc(1, size + 256);
    assert_non_null(answer);
    int head = snprintf(answer, 256,
                        chunked ? "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%zx\r\n"
                                : "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\n\r\n",
                        size);
    memset(answer + head, 'x', size);
    strcpy(answer + head + size, chunked ? "\r\n0\r\n\r\n" : "");
    *answer_size = (size_t)head + size + strlen(answer + head + size);
    return answer;
}

static void bodies_up_to_64_kib_keep_the_connection(void **state) {
    struct fixture *f = *state;
    static const struct {
        size_t size;
        int connections; /* for three requests */
    } cases[] = {{0, 1}, {65535, 1}, {65536, 1}, {65537, 3}, {70000, 3}};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int chunked = cases[i].size > 0; chunked >= 0; chunked--) {
            size_t size;
            char *answer = answer_with_body(cases[i].size, chunked != 0, &size);
            struct server *server = server_start(answer_always, answer, size);
            for (int request = 0; request < 3; request++) {
                struct outcome outcome = post_and_wait(f, server->url, 10000);
                assert_answered(&outcome, 200);
            }
            server_stop(server);
            assert_int_equal(server->requests, 3);
            assert_int_equal(server->connections, cases[i].connections);
            server_free(server);
            free(answer);
        }
}

/* The node closed the connection while nobody used it: noticed before anything is sent on it. */
static void a_connection_closed_while_idle_is_replaced(void **state) {
    struct fixture *f = *state;
    struct server *server = serve(answer_once, GOOD);
    for (int i = 1; i <= 3; i++) {
        struct outcome outcome = post_and_wait(f, server->url, 10000);
        assert_answered(&outcome, 200);
        /* The server shuts the connection down right after its answer: wait until that has arrived. */
        char byte;
        while (server->fds[i - 1] == 0 || recv(server->fds[i - 1], &byte, 1, MSG_DONTWAIT) != 0)
            usleep(1000);
    }
    server_stop(server);
    assert_int_equal(server->requests, 3);
    assert_int_equal(server->connections, 3);
    server_free(server);
}

/* Many at once, each handler starting the next call: one from `answered`, one from `closed`. */
struct chain {
    struct fixture *fixture;
    const char *url;
    int left, answered, closed;
};

static void chain_next(struct chain *chain);

static void chain_answered(void *context, const struct http_answer *answer) {
    struct chain *chain = context;
    assert_int_equal(answer->status, 200);
    chain->answered++;
    if (chain->answered % 2 == 0)
        chain_next(chain);
}

static void chain_closed(void *context) {
    struct chain *chain = context;
    chain->closed++;
    chain->fixture->closed++;
    if (chain->closed % 2 == 0)
        chain_next(chain);
}

static void chain_next(struct chain *chain) {
    static const struct http_handler handler = {chain_answered, chain_closed};
    if (chain->left == 0)
        return;
    chain->left--;
    assert_non_null(http_post(
        chain->fixture->client,
        &(struct http_request){.url = chain->url, .body = "b", .body_size = 1, .timeout_ms = 25000}, &handler, chain));
}

static void many_calls_at_once(void **state) {
    struct fixture *f = *state;
    struct server *servers[2] = {serve(answer_always, GOOD), serve(answer_always, GOOD)};
    struct chain chains[2] = {{f, servers[0]->url, 1000, 0, 0}, {f, servers[1]->url, 1000, 0, 0}};
    for (int i = 0; i < 2; i++)
        for (int started = 0; started < 40; started++)
            chain_next(&chains[i]);
    run_until_closed(f, 2000);
    assert_int_equal(http_client_active(f->client), 0);
    for (int i = 0; i < 2; i++) {
        server_stop(servers[i]);
        assert_int_equal(chains[i].answered, 1000);
        assert_int_equal(chains[i].closed, 1000);
        assert_int_equal(servers[i]->requests, 1000);
        assert_in_range(servers[i]->connections, 1, 100); /* kept and used again */
        server_free(servers[i]);
    }
}

static void unusable_requests_call_nobody(void **state) {
    struct fixture *f = *state;
    static const char *const urls[] = {"",
                                       "http://",
                                       "http:///path",
                                       "127.0.0.1:80/",
                                       "ftp://127.0.0.1/",
                                       "file:///etc/hostname",
                                       "gopher://127.0.0.1:1/x",
                                       "http://user:word@127.0.0.1/",
                                       "http://user@127.0.0.1/",
                                       "http://127.0.0.1:99999/",
                                       "http://127.0.0.1/a b",
                                       "http://127.0.0.1/\r\nx: y",
                                       "http://[::1/",
                                       "//127.0.0.1/"};
    struct outcome untouched = {0};
    for (size_t i = 0; i < COUNT(urls); i++)
        if (http_post(f->client, &(struct http_request){.url = urls[i], .timeout_ms = 1000}, &notes, &untouched) !=
            NULL)
            fail_msg("\"%s\" was taken for a URL", urls[i]);
    assert_null(http_post(f->client, &(struct http_request){.url = "http://127.0.0.1:1/", .timeout_ms = 0}, &notes,
                          &untouched));
    assert_int_equal(http_client_active(f->client), 0);
    ev_run(f->loop, EVRUN_NOWAIT);
    assert_int_equal(untouched.answered, 0);

    /* The client works on as if nothing had been. */
    struct server *server = serve(answer_always, GOOD);
    struct outcome outcome = post_and_wait(f, server->url, 10000);
    server_stop(server);
    server_free(server);
    assert_answered(&outcome, 200);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_begin, fixture_end)
    const struct CMUnitTest tests[] = {
        TEST(the_request_has_these_headers_and_no_other),
        TEST(no_headers_and_no_body),
        TEST(a_large_body_goes_at_once),
        TEST(statuses_and_waits),
        TEST(dates_are_read_by_the_callers_clock),
        TEST(a_receipt_of_256_bytes_is_too_long),
        TEST(redirects_are_not_followed),
        TEST(proxies_of_the_environment_are_ignored),
        TEST(the_head_is_told_before_the_body_ends),
        TEST(bodies_up_to_64_kib_keep_the_connection),
        TEST(a_connection_closed_while_idle_is_replaced),
        TEST(many_calls_at_once),
        TEST(unusable_requests_call_nobody),
    };
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
