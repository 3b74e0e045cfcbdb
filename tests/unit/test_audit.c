/* Exported files and checkpoints: the vector verifies, and no byte of it can change without being found. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit_check.h"
#include "cli/audit_past.h"
#include "wire/checkpoint.h"

static const char PATH[] = "tests/data/audit.json";

static char *vector(size_t *size) {
    FILE *in = fopen(PATH, "rb");
    char *text = malloc(1024 * 1024);
    assert_non_null(in);
    assert_non_null(text);
    *size = fread(text, 1, 1024 * 1024 - 1, in);
    text[*size] = 0;
    fclose(in);
    return text;
}

static void the_vector_verifies(void **state) {
    (void)state;
    struct audit_keys keys = {0};
    struct audit_tally tally = {0};
    struct error err = {0};
    size_t size;
    char *text = vector(&size);
    assert_true(audit_text(text, size, &keys, &tally, &err));
    assert_true(tally.entries >= 1 && tally.receipts >= 1 && tally.checkpoints >= 1);
    free(text);
}

static void any_changed_byte_is_found(void **state) {
    (void)state;
    size_t size;
    char *text = vector(&size);
    for (size_t i = 0; i < size; i++) {
        static const char BITS[] = {1, 32};
        for (size_t j = 0; j < sizeof BITS; j++) {
            struct audit_keys keys = {0};
            struct audit_tally tally = {0};
            struct error err = {0};
            text[i] = (char)(text[i] ^ BITS[j]);
            if (audit_text(text, size, &keys, &tally, &err)) {
                fail_msg("byte %zu", i);
            }
            assert_int_equal(err.code, EXIT_UNEXPECTED);
            text[i] = (char)(text[i] ^ BITS[j]);
        }
    }
    for (size_t less = 1; less < 200; less++) {
        struct audit_keys keys = {0};
        struct audit_tally tally = {0};
        struct error err = {0};
        assert_false(audit_text(text, size - less, &keys, &tally, &err));
    }
    free(text);
}

/* A round with acks and a quorum of these nodes, the second may be "": node 1 has really signed. */
static bool fits(const struct secret_key *key, const char *first, const char *second, const char *quorum) {
    struct envelope_key envelope = {.deployment = "demo", .round_id = "r", .node_id = 1, .nonce = 7};
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1], receipt[SIGNATURE_TEXT + 1], public_text[PUBLIC_KEY_TEXT + 1], record[4000];
    struct public_key public_key = secret_key_public(key);
    struct signature signature;
    struct audit_tally tally = {0};
    struct history_entry entry = {.seq = 1, .key = 5, .kind = "ended"};
    sha256("share", 5, digest);
    sha256_hex(digest, hex);
    receipt_sign(key, &envelope, digest, &signature);
    signature_format(&signature, receipt);
    public_key_format(&public_key, public_text);
    static const char ack[] =
        "{\"node_id\":%s,\"late\":false,\"acked_at\":1,\"payload_sha256\":\"%s\",\"receipt\":\"%s\",\"receipt_key\":\"%"
        "s\"}";
    char acks[2][1000];
    snprintf(acks[0], sizeof acks[0], ack, first, hex, receipt, public_text);
    snprintf(acks[1], sizeof acks[1], ack, second, hex, receipt, public_text);
    const char *comma = second[0] != 0 ? "," : "";
    int size =
        snprintf(record, sizeof record,
                 "{\"kind\":\"ended\",\"ledger\":{\"round_id\":\"r\",\"nonce\":\"7\",\"round_no\":5},\"acks\":[%s%s%s],"
                 "\"round\":{\"state\":\"complete\",\"quorum\":%s,\"deadline_at\":2,\"node_ids\":[1,2],\"quorum_"
                 "nodes\":[%s%s%s]}}",
                 acks[0], comma, second[0] != 0 ? acks[1] : "", quorum, first, comma, second);
    assert_in_range(size, 1, sizeof record - 1);
    sha256(record, (size_t)size, entry.digest);
    return audit_record("demo", &entry, record, &tally, NULL);
}

static void one_ack_makes_no_quorum_of_two(void **state) {
    (void)state;
    struct secret_key *key = secret_key_parse(
        "whsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8prLrhQbzK8LIuGpTTTQvHNh5SbQv+EsiXlLyTIpZt1w==", NULL);
    assert_non_null(key);
    assert_true(fits(key, "1", "", "1"));
    assert_false(fits(key, "1", "", "2"));
    assert_false(fits(key, "1", "1", "2"));
    assert_false(fits(key, "1", "4294967297", "2")); /* the same when it is cut to an int */
    assert_false(fits(key, "-4294967295", "1", "2"));
    assert_false(fits(key, "1", "2", "2")); /* node 2 has not signed */
    assert_false(fits(key, "1", "1", "0"));
    secret_key_free(key);
}

/* Whether a round is believed to be complete whose record has been changed from `what` to `other`. */
static bool complete_with(const char *what, const char *other) {
    size_t size, length;
    char *text = vector(&size), changed[8192] = "";
    json_t *file = json_loads(text, 0, NULL);
    const json_t *step =
        json_array_get(json_object_get(json_array_get(json_object_get(file, "pieces"), 0), "steps"), 0);
    const char *record = json_string_value(json_object_get(step, "record")), *at = strstr(record, what);
    struct history_entry entry;
    struct audit_tally tally = {0};
    struct error err = {0};
    assert_non_null(at);
    length = (size_t)(at - record);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)length, record, other, at + strlen(what));
    assert_true(audit_entry(step, &entry, &err));
    sha256(changed, strlen(changed), entry.digest);
    bool good = audit_record("demo", &entry, changed, &tally, &err);
    assert_true(good || strstr(err.text, "has not the acks of its quorum") != NULL);
    json_decref(file);
    free(text);
    return good;
}

static void a_quorum_is_of_different_nodes(void **state) {
    (void)state;
    assert_true(complete_with("\"quorum\" : 1", "\"quorum\" : 1"));
    assert_false(complete_with("\"quorum\" : 1", "\"quorum\" : 2"));
    assert_false(complete_with("\"quorum\" : 1", "\"quorum\" : 0"));
    assert_false(complete_with("\"quorum_nodes\" : [1]", "\"quorum_nodes\" : [1, 1]"));
    assert_false(complete_with("\"quorum_nodes\" : [1]", "\"quorum_nodes\" : [2]"));
    assert_false(complete_with("\"node_ids\" : [1]", "\"node_ids\" : [2]"));
    assert_false(complete_with("\"late\" : false", "\"late\" : true"));
}

static void a_checkpoint_is_one_line_and_back(void **state) {
    (void)state;
    char line[CHECKPOINT_LINE_MAX + 1], again[CHECKPOINT_LINE_MAX + 1];
    struct checkpoint checkpoint = {.deployment = "demo", .seq = 1001, .at_us = 1700000000000000}, parsed;
    struct secret_key *key = secret_key_parse(
        "whsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8prLrhQbzK8LIuGpTTTQvHNh5SbQv+EsiXlLyTIpZt1w==", NULL);
    assert_non_null(key);
    history_start("demo", checkpoint.hash);
    checkpoint_sign(&checkpoint, key);
    checkpoint_format(&checkpoint, line);
    assert_true(checkpoint_parse(line, &parsed) && checkpoint_verify(&parsed));
    checkpoint_format(&parsed, again);
    assert_string_equal(line, again);
    size_t size = strlen(line);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 1; bit < 256; bit *= 2) {
            line[i] = (char)(line[i] ^ bit);
            assert_false(checkpoint_parse(line, &parsed) && checkpoint_verify(&parsed));
            line[i] = (char)(line[i] ^ bit);
        }
    }
    secret_key_free(key);
}

static void what_never_changes_is_what_it_was_before(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        int64_t key;
        const char *record;
        bool good;
    } steps[] = {
        {"node_key", 1, "{\"key\":\"a\",\"valid_until\":null,\"revoked_at\":null}", true},
        {"node_key", 2, "{\"key\":\"b\",\"valid_until\":null,\"revoked_at\":null}", true}, /* another row */
        {"coordinator", 1, "{\"name\":\"c\",\"ended_at\":null}", true},                    /* another table */
        {"node_key", 1, "{\"key\":\"a\",\"valid_until\":7,\"revoked_at\":null}", true},
        {"node_key", 1, "{\"key\":\"a\",\"valid_until\":9,\"revoked_at\":8}", true},
        {"node_key", 1, "{\"key\":\"a\",\"valid_until\":9,\"revoked_at\":null}", false},
        {"node_key", 2, "{\"key\":\"x\",\"valid_until\":null,\"revoked_at\":null}", false},
        {"node_key", 2, "{\"key\":\"x\",\"valid_until\":null}", true},
        {"coordinator", 1, "{\"name\":\"c\",\"ended_at\":5}", true},
        {"coordinator", 1, "{\"name\":\"c\",\"ended_at\":6}", false},
        {"acked", 1, "{\"acks\":[{\"node_id\":2}]}", true},
        {"acked", 1, "{\"acks\":[{\"node_id\":1},{\"node_id\":2}]}", true},
        {"acked", 1, "{\"lost\":true}", true},
        {"acked", 1, "{\"acks\":[{\"node_id\":2}]}", false},
        {"acked", 1, "{}", false},
        {"node", 1, "{\"enabled\":true}", true},
        {"node", 1, "{\"enabled\":false}", true}, /* nothing of it stays */
    };
    struct audit_past past = {0};
    for (size_t i = 0; i < COUNT(steps); i++) {
        struct error err = {0};
        struct history_entry entry = {.seq = (int64_t)i + 1, .key = steps[i].key};
        snprintf(entry.kind, sizeof entry.kind, "%s", steps[i].kind);
        if (audit_past_check(&past, &entry, steps[i].record, &err) != steps[i].good) {
            fail_msg("step %zu", i);
        }
        assert_int_equal(err.code, steps[i].good ? EXIT_DONE : EXIT_UNEXPECTED);
    }
    audit_past_free(&past);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vector_verifies),
        cmocka_unit_test(any_changed_byte_is_found),
        cmocka_unit_test(one_ack_makes_no_quorum_of_two),
        cmocka_unit_test(a_quorum_is_of_different_nodes),
        cmocka_unit_test(a_checkpoint_is_one_line_and_back),
        cmocka_unit_test(what_never_changes_is_what_it_was_before),
    };
    return wire_start(NULL) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
