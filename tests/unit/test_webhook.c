/* Delivery protocol 1 against the vectors of docs/protocol.md, to the byte and in both directions, and against every
 * way to corrupt them. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/webhook.h"

static const char webhook_id[] = "demo:rnd-1:1:1001";
static const int64_t timestamp = 1700000000;
static const unsigned char body[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                       0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
static const char request_signature[] =
    "v1a,4JmgDBOS2niUy74dO3DnHD4W7Yae7AbRZTDbgsz2zFV5Dbb6Ge0qB+0Jo1/FIfaanorX82ul5ic8mGa+JFMhDA==";
static const char receipt_value[] =
    "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag==";
static const struct envelope_key envelope = {.deployment = "demo", .round_id = "rnd-1", .node_id = 1, .nonce = 1001};

static struct secret_key *coordinator, *node;
static struct public_key coordinator_public, node_public;

static int load_keys(void **state) {
    (void)state;
    struct error err;
    if (!wire_start(&err))
        return -1;
    coordinator = secret_key_parse(
        "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==", &err);
    node = secret_key_parse(
        "whsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8prLrhQbzK8LIuGpTTTQvHNh5SbQv+EsiXlLyTIpZt1w==", &err);
    return public_key_parse("whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=", &coordinator_public, &err) &&
                   public_key_parse("whpk_Kay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=", &node_public, &err) &&
                   coordinator != NULL && node != NULL
               ? 0
               : -1;
}

static int free_keys(void **state) {
    (void)state;
    secret_key_free(coordinator);
    secret_key_free(node);
    return 0;
}

static bool verify(const char *header) {
    return webhook_verify(&coordinator_public, 1, header, webhook_id, timestamp, body, sizeof body);
}

static void the_request_vector(void **state) {
    (void)state;
    char id[WEBHOOK_ID_MAX + 1], out[SIGNATURE_TEXT + 1];
    webhook_id_format(&envelope, id);
    assert_string_equal(id, webhook_id);
    webhook_sign(coordinator, id, timestamp, body, sizeof body, out);
    assert_string_equal(out, request_signature);
    assert_true(verify(request_signature));
}

static void the_receipt_vector(void **state) {
    (void)state;
    unsigned char digest[SHA256_BYTES];
    struct signature receipt, parsed;
    char out[SIGNATURE_TEXT + 1];
    sha256(body, sizeof body, digest);
    receipt_sign(node, &envelope, digest, &receipt);
    signature_format(&receipt, out);
    assert_string_equal(out, receipt_value);
    assert_true(signature_parse(receipt_value, &parsed));
    assert_memory_equal(parsed.bytes, receipt.bytes, SIGNATURE_BYTES);
    assert_true(receipt_verify(&node_public, &envelope, digest, &parsed));
}

static void a_known_digest(void **state) {
    (void)state;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    sha256("abc", 3, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256(NULL, 0, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void nothing_signed_can_be_altered(void **state) {
    (void)state;
    for (size_t bit = 0; bit < sizeof body * 8; bit++) {
        unsigned char other[sizeof body];
        memcpy(other, body, sizeof other);
        other[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_false(
            webhook_verify(&coordinator_public, 1, request_signature, webhook_id, timestamp, other, sizeof other));
    }
    for (size_t size = 0; size < sizeof body; size++)
        assert_false(webhook_verify(&coordinator_public, 1, request_signature, webhook_id, timestamp, body, size));
    static const char *const ids[] = {"demo:rnd-1:1:1002",           "demo:rnd-1:2:1001", "demo:rnd-2:1:1001",
                                      "demp:rnd-1:1:1001",           "demo:rnd-1:1:100",  "",
                                      "demo:rnd-1:1:1001.1700000000"};
    for (size_t i = 0; i < COUNT(ids); i++)
        assert_false(webhook_verify(&coordinator_public, 1, request_signature, ids[i], timestamp, body, sizeof body));
    static const int64_t times[] = {1700000001, 1699999999, 0, -1700000000, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < COUNT(times); i++)
        assert_false(
            webhook_verify(&coordinator_public, 1, request_signature, webhook_id, times[i], body, sizeof body));
    assert_false(webhook_verify(&node_public, 1, request_signature, webhook_id, timestamp, body, sizeof body));
    assert_false(webhook_verify(NULL, 0, request_signature, webhook_id, timestamp, body, sizeof body));
    assert_false(verify(receipt_value));
}

/* Each character of a signature's text changed to each of a few others; also cut short at every place. */
static void no_character_of_a_signature_can_be_altered(void **state) {
    (void)state;
    unsigned char digest[SHA256_BYTES];
    sha256(body, sizeof body, digest);
    for (size_t i = 0; i < SIGNATURE_TEXT; i++) {
        static const char others[] = "Ab7/+=-_ \t,.";
        for (const char *other = others; *other != '\0'; other++) {
            char text[sizeof request_signature];
            struct signature parsed;
            memcpy(text, request_signature, sizeof text);
            if (text[i] != *other) {
                text[i] = *other;
                if (verify(text))
                    fail_msg("'%c' at %zu of the request's signature was not noticed", *other, i);
            }
            memcpy(text, receipt_value, sizeof text);
            if (text[i] != *other) {
                text[i] = *other;
                if (signature_parse(text, &parsed) && receipt_verify(&node_public, &envelope, digest, &parsed))
                    fail_msg("'%c' at %zu of the receipt was not noticed", *other, i);
            }
        }
        char cut[sizeof request_signature];
        struct signature parsed;
        memcpy(cut, request_signature, i);
        cut[i] = '\0';
        assert_false(verify(cut));
        assert_false(signature_parse(cut, &parsed));
    }
}

static void signature_texts_are_strict(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "v1a,",
        "v1,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag==",
        "V1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag==",
        "ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag==",
        " v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag==",
        "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag== ",
        "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag",
        "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag===",
        "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ah==",
        "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct signature parsed = {.bytes = {7}};
        if (signature_parse(bad[i], &parsed))
            fail_msg("\"%s\" was taken for a signature", bad[i]);
        assert_int_equal(parsed.bytes[0], 7);
    }
}

static void a_receipt_fits_one_envelope_only(void **state) {
    (void)state;
    unsigned char digest[SHA256_BYTES], other_digest[SHA256_BYTES];
    struct signature receipt;
    sha256(body, sizeof body, digest);
    sha256(body, sizeof body - 1, other_digest);
    receipt_sign(node, &envelope, digest, &receipt);
    struct envelope_key others[] = {envelope, envelope, envelope, envelope, envelope};
    others[0].nonce = 1002;
    others[1].node_id = 2;
    strcpy(others[2].round_id, "rnd-2");
    strcpy(others[3].deployment, "demo2");
    strcpy(others[4].round_id, "rnd-");
    for (size_t i = 0; i < COUNT(others); i++)
        assert_false(receipt_verify(&node_public, &others[i], digest, &receipt));
    assert_false(receipt_verify(&node_public, &envelope, other_digest, &receipt));
    assert_false(receipt_verify(&coordinator_public, &envelope, digest, &receipt));
    for (size_t bit = 0; bit < SIGNATURE_BYTES * 8; bit++) {
        struct signature damaged = receipt;
        damaged.bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_false(receipt_verify(&node_public, &envelope, digest, &damaged));
    }
}

static void one_valid_signature_of_several_suffices(void **state) {
    (void)state;
    struct public_key both[2] = {node_public, coordinator_public};
    char header[4096], foreign[SIGNATURE_TEXT + 1];
    webhook_sign(node, webhook_id, timestamp, "other", 5, foreign);

    assert_true(webhook_verify(both, 2, request_signature, webhook_id, timestamp, body, sizeof body));
    snprintf(header, sizeof header, "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= %s  %s", foreign,
             request_signature);
    assert_true(verify(header));
    snprintf(header, sizeof header, "%s %s v2,x", request_signature, foreign);
    assert_true(verify(header));
    snprintf(header, sizeof header, "%s,%s", foreign, request_signature);
    assert_false(verify(header));
    snprintf(header, sizeof header, "%s\t%s", foreign, request_signature);
    assert_false(verify(header));
    assert_false(verify(""));
    assert_false(verify("   "));

    /* Seven false ones before it are tried, eight are too many. */
    header[0] = '\0';
    for (int i = 0; i < 7; i++) {
        strcat(header, foreign);
        strcat(header, " ");
    }
    strcat(header, request_signature);
    assert_true(verify(header));
    memmove(header + SIGNATURE_TEXT + 1, header, strlen(header) + 1);
    memcpy(header, header + SIGNATURE_TEXT + 1, SIGNATURE_TEXT + 1);
    assert_false(verify(header));
}

/* Around the size above which the signed text leaves the stack, and at the largest that the protocol allows. */
static void bodies_of_every_size(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4000, 4067, 4068, 4069, 4096, 4097, 70000, 16U << 20};
    unsigned char *large = calloc(1, 16U << 20);
    assert_non_null(large);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char out[SIGNATURE_TEXT + 1];
        webhook_sign(coordinator, webhook_id, timestamp, large, sizes[i], out);
        assert_true(webhook_verify(&coordinator_public, 1, out, webhook_id, timestamp, large, sizes[i]));
        if (sizes[i] > 0) {
            large[sizes[i] - 1] ^= 1;
            assert_false(webhook_verify(&coordinator_public, 1, out, webhook_id, timestamp, large, sizes[i]));
            large[sizes[i] - 1] ^= 1;
        }
    }
    free(large);
}

static void ids_round_trip(void **state) {
    (void)state;
    struct envelope_key widest = {.node_id = 32767, .nonce = INT64_MAX}, parsed;
    memset(widest.deployment, 'd', ROUND_ID_MAX);
    memset(widest.round_id, 'r', ROUND_ID_MAX);
    char text[WEBHOOK_ID_MAX + 1];
    webhook_id_format(&widest, text);
    assert_int_equal(strlen(text), WEBHOOK_ID_MAX);
    assert_true(webhook_id_parse(text, &parsed));
    assert_string_equal(parsed.deployment, widest.deployment);
    assert_string_equal(parsed.round_id, widest.round_id);
    assert_int_equal(parsed.node_id, 32767);
    assert_true(parsed.nonce == INT64_MAX);

    assert_true(webhook_id_parse("a:-_Z9:1:1", &parsed));
    assert_string_equal(parsed.round_id, "-_Z9");
    assert_int_equal(parsed.nonce, 1);
}

static void malformed_ids(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        "a:b:1",
        "a:b:1:",
        "a:b:1:1:",
        "a:b:1:1:1",
        "a:b::1",
        ":b:1:1",
        "a::1:1",
        "a:b:0:1",
        "a:b:1:0",
        "a:b:01:1",
        "a:b:1:01",
        "a:b:+1:1",
        "a:b:1:+1",
        "a:b:-1:1",
        "a:b:1:-1",
        "a:b:1:1 ",
        " a:b:1:1",
        "a:b: 1:1",
        "a:b:1: 1",
        "a.b:c:1:1",
        "a:b c:1:1",
        "a:b\n:1:1",
        "a:b:1:1\n",
        "a:b:32768:1",
        "a:b:1:9223372036854775808",
        "a:b:99999999999999999999:1",
        "a:b:1:99999999999999999999",
        "a:b:0x1:1",
        "a:b:1:1e3",
        "a:b\xc3\xa9:1:1",
        "a:b:1:1.0",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct envelope_key parsed = {.node_id = 7};
        if (webhook_id_parse(bad[i], &parsed))
            fail_msg("\"%s\" was taken for a webhook id", bad[i]);
        assert_int_equal(parsed.node_id, 7);
    }
    char text[400];
    struct envelope_key parsed;
    memset(text, 'a', 129);
    strcpy(text + 129, ":b:1:1");
    assert_false(webhook_id_parse(text, &parsed));
    text[0] = 'b';
    text[1] = ':';
    memset(text + 2, 'a', 129);
    strcpy(text + 131, ":1:1");
    assert_false(webhook_id_parse(text, &parsed));
}

static void identifiers(void **state) {
    (void)state;
    char text[130];
    memset(text, 'x', 129);
    text[129] = '\0';
    assert_false(identifier_valid(text));
    text[128] = '\0';
    assert_true(identifier_valid(text));
    assert_true(identifier_valid("A"));
    assert_true(identifier_valid("azAZ09_-"));
    static const char *const bad[] = {"", " ", "a b", "a:b", "a.b", "a/b", "a\n", "\xc3\xa9", "a@", "a[", "a`", "a{"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(identifier_valid(bad[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_vector),
        cmocka_unit_test(the_receipt_vector),
        cmocka_unit_test(a_known_digest),
        cmocka_unit_test(nothing_signed_can_be_altered),
        cmocka_unit_test(no_character_of_a_signature_can_be_altered),
        cmocka_unit_test(signature_texts_are_strict),
        cmocka_unit_test(a_receipt_fits_one_envelope_only),
        cmocka_unit_test(one_valid_signature_of_several_suffices),
        cmocka_unit_test(bodies_of_every_size),
        cmocka_unit_test(ids_round_trip),
        cmocka_unit_test(malformed_ids),
        cmocka_unit_test(identifiers),
    };
    return cmocka_run_group_tests_name("webhook", tests, load_keys, free_keys);
}
