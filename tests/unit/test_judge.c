/* What every answer of a node means (docs/protocol.md), and which outcomes are worth another try. With
 * the argument `outcomes` it prints what the program believes, for a test that compares it with the database's view. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "round/judge.h"

static enum outcome judge(enum http_end end, int status, bool verified) {
    const struct http_answer answer = {.end = end, .status = status};
    return judge_answer(&answer, verified);
}

/* The words of docs/protocol.md, one range of statuses after the other; nothing of the program's own code. */
static const struct {
    int from, to;
    enum outcome with_receipt, without;
} PROTOCOL[] = {
    {100, 199, OUTCOME_HTTP_ERROR, OUTCOME_HTTP_ERROR}, /* no final answer at all */
    {200, 299, OUTCOME_ACK, OUTCOME_BAD_RECEIPT},
    {300, 399, OUTCOME_REFUSED, OUTCOME_REFUSED}, /* redirects are not followed */
    {400, 407, OUTCOME_REFUSED, OUTCOME_REFUSED},
    {408, 408, OUTCOME_HTTP_ERROR, OUTCOME_HTTP_ERROR}, /* request time-out */
    {409, 424, OUTCOME_REFUSED, OUTCOME_REFUSED},       /* 409: it holds another nonce or other bytes */
    {425, 425, OUTCOME_HTTP_ERROR, OUTCOME_HTTP_ERROR}, /* too early: the clocks differ */
    {426, 428, OUTCOME_REFUSED, OUTCOME_REFUSED},
    {429, 429, OUTCOME_HTTP_ERROR, OUTCOME_HTTP_ERROR}, /* too many requests */
    {430, 499, OUTCOME_REFUSED, OUTCOME_REFUSED},
    {500, 599, OUTCOME_HTTP_ERROR, OUTCOME_HTTP_ERROR},
};

static void every_status(void **state) {
    (void)state;
    int next = 100;
    for (size_t i = 0; i < COUNT(PROTOCOL); i++) {
        assert_int_equal(PROTOCOL[i].from, next); /* the table has no gap */
        next = PROTOCOL[i].to + 1;
        for (int status = PROTOCOL[i].from; status <= PROTOCOL[i].to; status++) {
            enum outcome with = judge(HTTP_ANSWERED, status, true), without = judge(HTTP_ANSWERED, status, false);
            if (with != PROTOCOL[i].with_receipt || without != PROTOCOL[i].without) {
                fail_msg("status %d: %s with a receipt that verifies, %s without", status, outcome_name(with),
                         outcome_name(without));
            }
        }
    }
    assert_int_equal(next, 600);
}

static void no_answer(void **state) {
    (void)state;
    for (int status = 0; status < 600; status++) {
        for (int verified = 0; verified <= 1; verified++) { /* whatever else stands in the answer */
            assert_int_equal(judge(HTTP_TIMEOUT, status, verified), OUTCOME_TIMEOUT);
            assert_int_equal(judge(HTTP_CONNECT_ERROR, status, verified), OUTCOME_CONNECT_ERROR);
        }
    }
}

static void what_is_retried(void **state) {
    (void)state;
    static const bool retried[OUTCOME_COUNT] = {
        [OUTCOME_TIMEOUT] = true,     [OUTCOME_CONNECT_ERROR] = true, [OUTCOME_HTTP_ERROR] = true,
        [OUTCOME_BAD_RECEIPT] = true, [OUTCOME_ACK] = false,          [OUTCOME_REFUSED] = false,
        [OUTCOME_IN_DOUBT] = false, /* said of an attempt when its round has ended */
        [OUTCOME_UNSENT] = false};
    for (int outcome = 0; outcome < OUTCOME_COUNT; outcome++) {
        assert_int_equal(outcome_is_retried((enum outcome)outcome), retried[outcome]);
    }
    assert_false(outcome_is_retried(OUTCOME_COUNT));
}

static void print_outcomes(void) {
    bool judged[OUTCOME_COUNT] = {false};
    for (int status = 100; status < 600; status++) {
        judged[judge(HTTP_ANSWERED, status, false)] = judged[judge(HTTP_ANSWERED, status, true)] = true;
    }
    judged[judge(HTTP_TIMEOUT, 0, false)] = judged[judge(HTTP_CONNECT_ERROR, 0, false)] = true;
    puts("outcome,judged,retried");
    for (int outcome = 0; outcome < OUTCOME_COUNT; outcome++) {
        printf("%s,%d,%d\n", outcome_name((enum outcome)outcome), judged[outcome],
               outcome_is_retried((enum outcome)outcome));
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status),
        cmocka_unit_test(no_answer),
        cmocka_unit_test(what_is_retried),
    };
    if (argc == 2 && strcmp(argv[1], "outcomes") == 0) {
        print_outcomes();
        return 0;
    }
    return cmocka_run_group_tests_name("judge", tests, NULL, NULL);
}
