/* The custodian's judgement of a request: the vector of docs/protocol.md at its own time, and every refusal in its
 * order. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

/* Unit tests link the coordinator's objects, of which this is none. NOLINTNEXTLINE(bugprone-suspicious-include) */
#include "../../custodian/judge.c"

enum { VECTOR_TIME = 1700000000 };

static const unsigned char body[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                     0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

static struct judge_rules rules = {.node_id = 1, .coordinator_count = 1};
static struct secret_key *coordinator;

static int set_up(void **state) {
    (void)state;
    struct error err;
    if (!wire_start(&err))
        return -1;
    coordinator = secret_key_parse(
        "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==", &err);
    if (coordinator == NULL)
        return -1;
    rules.coordinators[0] = secret_key_public(coordinator);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    secret_key_free(coordinator);
    return 0;
}

static struct judge_request vector(void) {
    return (struct judge_request){
        .webhook_id = "demo:rnd-1:1:1001",
        .timestamp = "1700000000",
        .signature = "v1a,4JmgDBOS2niUy74dO3DnHD4W7Yae7AbRZTDbgsz2zFV5Dbb6Ge0qB+0Jo1/FIfaanorX82ul5ic8mGa+JFMhDA==",
        .body = body,
        .body_size = sizeof body,
    };
}

/* Judges an id and a body that the coordinator did sign, at the vector's time. */
static enum verdict judge_signed(const char *webhook_id, size_t body_size) {
    char signature[SIGNATURE_TEXT + 1];
    struct envelope_key key;
    const struct secret *secret;
    webhook_sign(coordinator, webhook_id, VECTOR_TIME, body, body_size, signature);
    const struct judge_request request = {
        .webhook_id = webhook_id,
        .timestamp = "1700000000",
        .signature = signature,
        .body = body,
        .body_size = body_size,
    };
    return judge(&rules, &request, VECTOR_TIME, &key, &secret);
}

static void test_vector(void **state) {
    (void)state;
    struct judge_request request = vector();
    struct envelope_key key;
    const struct secret *secret;
    assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_UNDECIDED);
    assert_string_equal(key.deployment, "demo");
    assert_string_equal(key.round_id, "rnd-1");
    assert_int_equal(key.node_id, 1);
    assert_int_equal(key.nonce, 1001);
}

static void test_time_to_the_second(void **state) {
    (void)state;
    static const struct {
        int64_t now_s;
        enum verdict verdict;
    } cases[] = {
        {VECTOR_TIME - 301, VERDICT_BAD_TIME},
        {VECTOR_TIME - 300, VERDICT_UNDECIDED},
        {VECTOR_TIME + 300, VERDICT_UNDECIDED},
        {VECTOR_TIME + 301, VERDICT_BAD_TIME},
        {0, VERDICT_BAD_TIME},
    };
    struct judge_request request = vector();
    struct envelope_key key;
    const struct secret *secret;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(judge(&rules, &request, cases[i].now_s, &key, &secret), cases[i].verdict);
}

/* Whatever else is wrong, an unsigned request learns only that. */
static void test_signature_comes_first(void **state) {
    (void)state;
    struct envelope_key key;
    const struct secret *secret;
    struct judge_request request = vector();
    request.webhook_id = "nonsense";
    assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
    request = vector();
    request.timestamp = "1700000001";
    assert_int_equal(judge(&rules, &request, VECTOR_TIME + 9999, &key, &secret), VERDICT_BAD_SIGNATURE);
    request = vector();
    request.body_size--;
    assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
}

static void test_missing_headers(void **state) {
    (void)state;
    struct envelope_key key;
    const struct secret *secret;
    for (int missing = 0; missing < 3; missing++) {
        struct judge_request request = vector();
        *(missing == 0 ? &request.webhook_id : missing == 1 ? &request.timestamp : &request.signature) = NULL;
        assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
    }
}

static void test_timestamps_that_are_no_number(void **state) {
    (void)state;
    static const char *const texts[] = {"",      " 1700000000",          "1700000000 ", "+1700000000",
                                        "1.7e9", "99999999999999999999", "01700000000", "-0"};
    struct envelope_key key;
    const struct secret *secret;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct judge_request request = vector();
        request.timestamp = texts[i];
        assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
    }
}

static void test_what_was_signed_is_judged_in_order(void **state) {
    (void)state;
    assert_int_equal(judge_signed("demo:rnd-1:1:1001", sizeof body), VERDICT_UNDECIDED);
    assert_int_equal(judge_signed("demo:rnd-1:1", sizeof body), VERDICT_BAD_ID);
    assert_int_equal(judge_signed("demo:rnd-1:2:1001", sizeof body), VERDICT_OTHER_NODE);
    assert_int_equal(judge_signed("demo:rnd-1:2:1001", 0), VERDICT_OTHER_NODE);
    assert_int_equal(judge_signed("demo:rnd-1:1:1001", 0), VERDICT_EMPTY);
}

/* With secrets: v1 by any of them, and never v1a; the secret that verified is handed on, to sign the receipt. */
static void test_secrets_take_the_place_of_keys(void **state) {
    (void)state;
    struct error err;
    struct envelope_key key;
    const struct secret *secret = NULL;
    char text[] = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nwhsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
    struct judge_rules shared = rules; /* the coordinator's key still stands in it, and counts for nothing */
    shared.secrets = secret_set_parse(text, sizeof text - 1, SECRET_LINES_PLAIN, &err);
    assert_non_null(shared.secrets);
    struct judge_request request = vector();
    assert_int_equal(judge(&shared, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
    request.signature = "v1,axoWsEHp2aeWxmxdkQfzmbFUnOhEm8WqOY/mwj8q/6I=";
    assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
    assert_int_equal(judge(&shared, &request, VECTOR_TIME, &key, &secret), VERDICT_UNDECIDED);
    assert_ptr_equal(secret, secret_set_at(shared.secrets, 1));
    request.body_size--;
    assert_int_equal(judge(&shared, &request, VECTOR_TIME, &key, &secret), VERDICT_BAD_SIGNATURE);
    request = vector();
    assert_int_equal(judge(&rules, &request, VECTOR_TIME, &key, &secret), VERDICT_UNDECIDED);
    assert_null(secret);
    secret_set_free(shared.secrets);
}

/* After everything else: with keys to open them, sealed envelopes must open and be for this very place. */
static void test_sealed_envelopes_are_opened(void **state) {
    (void)state;
    struct error err;
    struct judge_rules opening = rules;
    opening.seal_secrets[0] = seal_secret_parse("qbsk_YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=", &err);
    opening.seal_secret_count = 1;
    assert_non_null(opening.seal_secrets[0]);
    struct seal_key node = seal_secret_public(opening.seal_secrets[0]), other = {{9}};
    const struct envelope_key key = {"demo", "rnd-1", 1, 1001}, elsewhere = {"demo", "rnd-2", 1, 1001};
    unsigned char good[100], moved[100], locked[100];
    assert_true(seal(&node, &key, "share", 5, good) && seal(&node, &elsewhere, "share", 5, moved) &&
                seal(&other, &key, "share", 5, locked));
    const struct {
        const unsigned char *body;
        size_t size;
        enum verdict opened, required;
    } cases[] = {
        {good, seal_overhead(&key) + 5, VERDICT_UNDECIDED, VERDICT_UNDECIDED},
        {moved, seal_overhead(&key) + 5, VERDICT_ELSEWHERE, VERDICT_ELSEWHERE},
        {locked, seal_overhead(&key) + 5, VERDICT_LOCKED, VERDICT_LOCKED},
        {good, seal_overhead(&key) + 4, VERDICT_LOCKED, VERDICT_LOCKED},
        {body, sizeof body, VERDICT_UNDECIDED, VERDICT_UNSEALED},
        {body, 0, VERDICT_EMPTY, VERDICT_EMPTY},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char signature[SIGNATURE_TEXT + 1];
        struct envelope_key parsed;
        const struct secret *secret;
        webhook_sign(coordinator, "demo:rnd-1:1:1001", VECTOR_TIME, cases[i].body, cases[i].size, signature);
        const struct judge_request request = {"demo:rnd-1:1:1001", "1700000000", signature, cases[i].body,
                                              cases[i].size};
        assert_int_equal(judge(&rules, &request, VECTOR_TIME, &parsed, &secret),
                         cases[i].size == 0 ? VERDICT_EMPTY : VERDICT_UNDECIDED);
        opening.require_sealed = false;
        assert_int_equal(judge(&opening, &request, VECTOR_TIME, &parsed, &secret), cases[i].opened);
        opening.require_sealed = true;
        assert_int_equal(judge(&opening, &request, VECTOR_TIME, &parsed, &secret), cases[i].required);
    }
    seal_secret_free(opening.seal_secrets[0]);
}

/* A verdict without a status would be answered with a bare 0. */
static void test_every_verdict_has_an_answer(void **state) {
    (void)state;
    for (enum verdict verdict = 0; verdict < VERDICT_COUNT; verdict++) {
        const struct verdict_answer *answer = verdict_answer(verdict);
        assert_in_range(answer->status, 200, 599);
        assert_non_null(answer->name);
        assert_non_null(answer->text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_time_to_the_second),
        cmocka_unit_test(test_signature_comes_first),
        cmocka_unit_test(test_missing_headers),
        cmocka_unit_test(test_timestamps_that_are_no_number),
        cmocka_unit_test(test_what_was_signed_is_judged_in_order),
        cmocka_unit_test(test_secrets_take_the_place_of_keys),
        cmocka_unit_test(test_sealed_envelopes_are_opened),
        cmocka_unit_test(test_every_verdict_has_an_answer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
