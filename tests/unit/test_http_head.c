/* Response heads line by line: what is kept, what is spoiled, and where a head ends. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "transport/http_head.h"

/* Feeds a text line by line; the state after the last one. */
static enum http_head_state feed(struct http_head *head, const char *text, size_t size) {
    enum http_head_state state = head->state;
    while (size > 0) {
        const char *newline = memchr(text, '\n', size);
        size_t line = newline != NULL ? (size_t)(newline - text) + 1 : size;
        state = http_head_line(head, text, line);
        text += line;
        size -= line;
    }
    return state;
}
#define FEED(head, text) feed(head, text, sizeof(text) - 1)

static const char *receipt(const struct http_head *head) {
    return http_head_field(head, FIELD_RECEIPT);
}

static void a_plain_head(void **state) {
    (void)state;
    struct http_head head = {0};
    assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\nQuorate-RECEIPT: \t v1a,abc \t\r\nserver: x\r\nRetry-After:7\r\n"),
                     HEAD_MORE);
    assert_int_equal(FEED(&head, "\r\n"), HEAD_COMPLETE);
    assert_int_equal(head.status, 200);
    assert_string_equal(receipt(&head), "v1a,abc");
    assert_string_equal(http_head_field(&head, FIELD_RETRY_AFTER), "7");
    assert_string_equal(http_head_field(&head, FIELD_DATE), "");
    /* What comes behind the body as trailers changes nothing. */
    assert_int_equal(FEED(&head, "quorate-receipt: other\r\n\r\nHTTP/1.1 500 No\r\n\r\n"), HEAD_COMPLETE);
    assert_int_equal(head.status, 200);
    assert_string_equal(receipt(&head), "v1a,abc");
}

static void interim_heads_are_forgotten(void **state) {
    (void)state;
    struct http_head head = {0};
    assert_int_equal(FEED(&head,
                          "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nquorate-receipt: early\r\n"
                          "retry-after: 9\r\n\r\nHTTP/1.1 202 Fine\r\nquorate-receipt: late\r\n"),
                     HEAD_MORE);
    assert_int_equal(FEED(&head, "\n"), HEAD_COMPLETE);
    assert_int_equal(head.status, 202);
    assert_string_equal(receipt(&head), "late");
    assert_string_equal(http_head_field(&head, FIELD_RETRY_AFTER), "");
}

static void status_lines(void **state) {
    (void)state;
    static const struct {
        const char *line;
        int status;
    } lines[] = {
        {"HTTP/1.1 200 OK\r\n", 200},
        {"HTTP/1.0 599 Odd\r\n", 599},
        {"HTTP/1.1 100 \r\n", 100},
        {"HTTP/1.1 404\r\n", 404},
        {"HTTP/1.1 404\n", 404},
        {"HTTP/1.1 404", 404},
        {"HTTP/1.1 2000 OK\r\n", 0},
        {"HTTP/1.1 20 OK\r\n", 0},
        {"HTTP/1.1 600 No\r\n", 0},
        {"HTTP/1.1 099 No\r\n", 0},
        {"HTTP/1.1  200 OK\r\n", 0},
        {"HTTP/1.1 -20 OK\r\n", 0},
        {"HTTP/2 200\r\n", 0},
        {"HTTP/2.0 200 OK\r\n", 0},
        {"http/1.1 200 OK\r\n", 0},
        {"HTTP/1.1200 OK\r\n", 0},
        {"HTTP/1.x 200 OK\r\n", 0},
        {"ICY 200 OK\r\n", 0},
        {" HTTP/1.1 200 OK\r\n", 0},
        {"\r\n", 0},
        {"HTTP/1.1 200OK\r\n", 0},
        {"HTTP/1.1 20", 0},
        {"HTTP/1.1 ", 0},
        {"HTTP/1.", 0},
    };
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct http_head head = {0};
        enum http_head_state expected = lines[i].status != 0 ? HEAD_MORE : HEAD_WRONG;
        if (http_head_line(&head, lines[i].line, strlen(lines[i].line)) != expected || head.status != lines[i].status)
            fail_msg("\"%s\" was read as %d", lines[i].line, head.status);
    }
    struct http_head head = {0};
    assert_int_equal(FEED(&head, "HTTP/1.1 100 Go on\r\n\r\nrubbish\r\n"), HEAD_WRONG);
    assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\n\r\n"), HEAD_WRONG); /* for good */

    struct http_head with_zero = {0};
    assert_int_equal(FEED(&with_zero, "HTTP/1.1 200\0 OK\r\n"), HEAD_WRONG);
}

static void spoiled_fields(void **state) {
    (void)state;
    static const char *const heads[] = {
        "quorate-receipt: a\r\nquorate-receipt: a\r\n",       /* repeated, even when the same */
        "quorate-receipt: a\r\nx: y\r\nQUORATE-RECEIPT:\r\n", /* repeated and empty */
        "quorate-receipt: a\r\n b\r\n",                       /* folded */
        "quorate-receipt: a\r\n\t\r\n",                       /* folded with nothing */
        "quorate-receipt:\r\n",
        "quorate-receipt\r\n",
        "quorate-receipt : a\r\n",
        "x-quorate-receipt: a\r\n",
        "quorate-receipt2: a\r\n",
        "quorate-receip: a\r\n",
        ": a\r\n",
        "x: y\r\n quorate-receipt: a\r\n",
    };
    for (size_t i = 0; i < COUNT(heads); i++) {
        struct http_head head = {0};
        assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\n"), HEAD_MORE);
        assert_int_equal(feed(&head, heads[i], strlen(heads[i])), HEAD_MORE);
        assert_int_equal(FEED(&head, "\r\n"), HEAD_COMPLETE);
        if (receipt(&head)[0] != '\0')
            fail_msg("\"%s\" gave \"%s\"", heads[i], receipt(&head));
    }
    struct http_head head = {0};
    assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\nquorate-receipt: a\0b\r\n\r\n"), HEAD_COMPLETE);
    assert_string_equal(receipt(&head), "");
    head = (struct http_head){0};
    assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\nquorate-receipt: a\r\nx: y\r\n folded\r\n\r\n"), HEAD_COMPLETE);
    assert_string_equal(receipt(&head), "a"); /* another field's folding does no harm */
}

static void the_longest_field(void **state) {
    (void)state;
    for (int size = 254; size <= 257; size++) {
        struct http_head head = {0};
        char line[512], value[512];
        memset(value, 'r', (size_t)size);
        value[size] = '\0';
        int length = snprintf(line, sizeof line, "quorate-receipt:   %s   \r\n", value);
        assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\n"), HEAD_MORE);
        assert_int_equal(http_head_line(&head, line, (size_t)length), HEAD_MORE);
        assert_string_equal(receipt(&head), size <= 255 ? value : "");
    }
}

static void a_head_is_bounded(void **state) {
    (void)state;
    static const char filler[] = "x-filler: 0123456789012345678901234567890123456789\r\n";
    const size_t step = sizeof filler - 1;
    struct http_head head = {0};
    assert_int_equal(FEED(&head, "HTTP/1.1 200 OK\r\n"), HEAD_MORE);
    while (head.bytes + step <= 65536)
        assert_int_equal(http_head_line(&head, filler, step), HEAD_MORE);
    assert_int_equal(http_head_line(&head, filler, step), HEAD_WRONG);

    static const char tiny[] = "a:\r\n"; /* libcurl keeps each, and needs more room for it than it has bytes */
    struct http_head many = {0};
    assert_int_equal(FEED(&many, "HTTP/1.1 103 Early\r\na: b\r\n c\r\n\r\nHTTP/1.1 200 OK\r\n"), HEAD_MORE);
    for (int field = 2; field < 2000; field++)
        assert_int_equal(http_head_line(&many, tiny, sizeof tiny - 1), HEAD_MORE);
    assert_int_equal(http_head_line(&many, tiny, sizeof tiny - 1), HEAD_WRONG);

    struct http_head interim = {0}; /* no single head is long, but they do not end */
    enum http_head_state now = HEAD_MORE;
    size_t fed = 0;
    while (now == HEAD_MORE && fed < 200000) {
        now = FEED(&interim, "HTTP/1.1 102 Wait\r\n\r\n");
        fed += 21;
    }
    assert_int_equal(now, HEAD_WRONG);
    assert_true(fed > 65536 && fed < 65536 + 42);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_head),      cmocka_unit_test(interim_heads_are_forgotten),
        cmocka_unit_test(status_lines),      cmocka_unit_test(spoiled_fields),
        cmocka_unit_test(the_longest_field), cmocka_unit_test(a_head_is_bounded),
    };
    return cmocka_run_group_tests_name("http_head", tests, NULL, NULL);
}
