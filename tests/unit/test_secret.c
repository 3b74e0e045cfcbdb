/* Symmetric secrets: HMAC-SHA256 after RFC 4231, the vectors of docs/protocol.md, every wrong line, and what v1
 * refuses. */
#include "unit.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/webhook.h"

/* The secret's bytes are 40 to 5f. */
#define SECRET "whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8="
#define OTHER  "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" /* 24 bytes */
static const char secret_whid[] = "whid_ca2a4fe727faaecf";
static const char webhook_id[] = "demo:rnd-1:1:1001";
static const int64_t timestamp = 1700000000;
static const unsigned char body[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                     0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
static const struct envelope_key envelope = {"demo", "rnd-1", 1, 1001};
static const char request_signature[] = "v1,axoWsEHp2aeWxmxdkQfzmbFUnOhEm8WqOY/mwj8q/6I=";
static const char receipt_value[] = "v1,NNkz77vlKpCAlvdJG3nPXLIgIq62OcPbGtApJPLup8k=";
static const char ed25519_signature[] =
    "v1a,4JmgDBOS2niUy74dO3DnHD4W7Yae7AbRZTDbgsz2zFV5Dbb6Ge0qB+0Jo1/FIfaanorX82ul5ic8mGa+JFMhDA==";

static int set_up(void **state) {
    (void)state;
    struct error err;
    return wire_start(&err) ? 0 : -1;
}

static struct secret_set *parse(const char *text, enum secret_lines lines, struct error *err) {
    char copy[4096];
    size_t size = strlen(text);
    assert_true(size < sizeof copy);
    memcpy(copy, text, size);
    return secret_set_parse(copy, size, lines, err);
}

/* Reads a text that must be good. */
static struct secret_set *set_of(const char *text, enum secret_lines lines) {
    struct error err = {0};
    struct secret_set *set = parse(text, lines, &err);
    if (set == NULL)
        fail_msg("%s", err.text);
    return set;
}

static void hex_equal(const unsigned char *mac, const char *hex) {
    char text[2 * MAC_BYTES + 1];
    sodium_bin2hex(text, sizeof text, mac, MAC_BYTES);
    assert_string_equal(text, hex);
}

/* RFC 4231, cases 1 to 4, 6 and 7, in one piece and cut at every place. */
static void hmac_is_that_of_rfc_4231(void **state) {
    (void)state;
    static const char *const texts[] = {
        "Hi There",
        "what do ya want for nothing?",
        "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd"
        "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd",
        "\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd"
        "\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd",
        "Test Using Larger Than Block-Size Key - Hash Key First",
        "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
        "hashed before being used by the HMAC algorithm.",
    };
    static const char *const macs[] = {
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    };
    static const size_t key_sizes[] = {20, 4, 20, 25, 131, 131};
    unsigned char keys[6][131];
    memset(keys, 0xaa, sizeof keys);
    memset(keys[0], 0x0b, 20);
    memcpy(keys[1], "Jefe", 4);
    for (unsigned char i = 0; i < 25; i++)
        keys[3][i] = (unsigned char)(i + 1);
    for (size_t i = 0; i < COUNT(texts); i++) {
        size_t size = strlen(texts[i]);
        for (size_t cut = 0; cut <= size; cut++) {
            const struct text_part parts[] = {{texts[i], cut}, {NULL, 0}, {texts[i] + cut, size - cut}};
            unsigned char mac[MAC_BYTES];
            hmac_sha256(keys[i], key_sizes[i], parts, COUNT(parts), mac);
            hex_equal(mac, macs[i]);
        }
    }
}

static void vectors(void **state) {
    (void)state;
    struct secret_set *set = set_of(SECRET "\n", SECRET_LINES_PLAIN);
    assert_int_equal(secret_set_count(set), 1);
    const struct secret *secret = secret_set_at(set, 0);
    assert_string_equal(secret_id(secret), secret_whid);
    char out[SIGNATURE_TEXT + 1];
    unsigned char digest[SHA256_BYTES];
    struct signature receipt, parsed;
    webhook_sign_v1(secret, webhook_id, timestamp, body, sizeof body, out);
    assert_string_equal(out, request_signature);
    assert_ptr_equal(webhook_verify_v1(set, out, webhook_id, timestamp, body, sizeof body), secret);
    sha256(body, sizeof body, digest);
    receipt_sign_v1(secret, &envelope, digest, &receipt);
    signature_format(&receipt, out);
    assert_string_equal(out, receipt_value);
    assert_true(signature_parse(receipt_value, &parsed));
    assert_int_equal(parsed.size, MAC_BYTES);
    assert_true(receipt_verify_v1(secret, &envelope, digest, &parsed));
    secret_set_free(set);
}

/* One changed bit, one changed character, another envelope: nothing passes. */
static void nothing_can_be_altered(void **state) {
    (void)state;
    struct secret_set *set = set_of(SECRET, SECRET_LINES_PLAIN);
    const struct secret *secret = secret_set_at(set, 0);
    unsigned char digest[SHA256_BYTES], changed[sizeof body];
    struct signature receipt;
    for (size_t bit = 0; bit < sizeof body * 8; bit++) {
        memcpy(changed, body, sizeof body);
        changed[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_null(webhook_verify_v1(set, request_signature, webhook_id, timestamp, changed, sizeof changed));
    }
    assert_null(webhook_verify_v1(set, request_signature, webhook_id, timestamp + 1, body, sizeof body));
    assert_null(webhook_verify_v1(set, request_signature, "demo:rnd-1:1:1002", timestamp, body, sizeof body));
    assert_null(webhook_verify_v1(set, request_signature, webhook_id, timestamp, body, sizeof body - 1));
    for (size_t i = 0; i < sizeof request_signature - 1; i++) {
        char text[sizeof request_signature];
        memcpy(text, request_signature, sizeof text);
        text[i] = text[i] == 'B' ? 'A' : 'B';
        assert_null(webhook_verify_v1(set, text, webhook_id, timestamp, body, sizeof body));
        text[i] = '\0';
        assert_null(webhook_verify_v1(set, text, webhook_id, timestamp, body, sizeof body));
    }
    sha256(body, sizeof body, digest);
    receipt_sign_v1(secret, &envelope, digest, &receipt);
    for (size_t bit = 0; bit < MAC_BYTES * 8; bit++) {
        struct signature damaged = receipt;
        damaged.bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_false(receipt_verify_v1(secret, &envelope, digest, &damaged));
    }
    struct envelope_key other = envelope;
    other.nonce++;
    assert_false(receipt_verify_v1(secret, &other, digest, &receipt));
    secret_set_free(set);
}

static void one_kind_never_passes_for_the_other(void **state) {
    (void)state;
    struct secret_set *set = set_of(SECRET, SECRET_LINES_PLAIN);
    unsigned char digest[SHA256_BYTES];
    struct signature receipt;
    struct public_key coordinator;
    struct error err;
    assert_true(public_key_parse("whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=", &coordinator, &err));
    assert_true(webhook_verify(&coordinator, 1, ed25519_signature, webhook_id, timestamp, body, sizeof body));
    assert_false(webhook_verify(&coordinator, 1, request_signature, webhook_id, timestamp, body, sizeof body));
    assert_null(webhook_verify_v1(set, ed25519_signature, webhook_id, timestamp, body, sizeof body));
    /* A MAC with 32 bytes more is no MAC, and one that is called a signature is none. */
    sha256(body, sizeof body, digest);
    receipt_sign_v1(secret_set_at(set, 0), &envelope, digest, &receipt);
    receipt.size = SIGNATURE_BYTES;
    assert_false(receipt_verify_v1(secret_set_at(set, 0), &envelope, digest, &receipt));
    receipt.size = MAC_BYTES;
    assert_false(receipt_verify(&coordinator, &envelope, digest, &receipt));
    secret_set_free(set);
}

static void one_valid_signature_of_several_suffices(void **state) {
    (void)state;
    static const char foreign[] = "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=";
    struct secret_set *set = set_of("# in use\n" OTHER "\n\n \t\n  " SECRET " \r\n", SECRET_LINES_PLAIN);
    char header[4096];
    assert_int_equal(secret_set_count(set), 2);
    snprintf(header, sizeof header, "%s %s  %s", foreign, ed25519_signature, request_signature);
    const struct secret *signer = webhook_verify_v1(set, header, webhook_id, timestamp, body, sizeof body);
    assert_ptr_equal(signer, secret_set_at(set, 1));
    /* Seven before it are tried, eight are too many. */
    for (int count = 7; count <= 8; count++) {
        header[0] = '\0';
        for (int i = 0; i < count; i++) {
            strcat(header, foreign);
            strcat(header, " ");
        }
        strcat(header, request_signature);
        signer = webhook_verify_v1(set, header, webhook_id, timestamp, body, sizeof body);
        assert_true(count == 7 ? signer != NULL : signer == NULL);
    }
    secret_set_free(set);
}

static void secrets_are_found_by_node_and_id(void **state) {
    (void)state;
    struct secret_set *set =
        set_of("# id = secret\n1 = " OTHER "\n1=" SECRET "\n\t32767\t=\t" SECRET, SECRET_LINES_NODES);
    assert_int_equal(secret_set_count(set), 3);
    assert_ptr_equal(secret_set_find(set, 1, secret_whid), secret_set_at(set, 1));
    assert_ptr_equal(secret_set_find(set, 32767, secret_whid), secret_set_at(set, 2));
    assert_null(secret_set_find(set, 2, secret_whid));
    assert_null(secret_set_find(set, 32767, secret_id(secret_set_at(set, 0))));
    assert_null(secret_set_find(NULL, 1, secret_whid));
    secret_set_free(set);
    set = set_of("# nobody yet\n", SECRET_LINES_NODES);
    assert_int_equal(secret_set_count(set), 0);
    secret_set_free(set);
}

static void secrets_of_24_to_64_bytes(void **state) {
    (void)state;
    for (size_t size = 0; size <= 66; size++) {
        unsigned char bytes[66] = {1};
        char text[6 + 100] = "whsec_";
        struct error err = {0};
        sodium_bin2base64(text + 6, sizeof text - 6, bytes, size, sodium_base64_VARIANT_ORIGINAL);
        struct secret_set *set = parse(text, SECRET_LINES_PLAIN, &err);
        assert_true((set != NULL) == (size >= 24 && size <= 64));
        assert_true(set != NULL || strstr(err.text, "24 to 64 bytes") != NULL);
        secret_set_free(set);
    }
}

/* Every error says which line it is, and nothing of what stands in it. */
static void wrong_lines_are_named_and_not_shown(void **state) {
    (void)state;
    static const struct {
        enum secret_lines lines;
        const char *text, *said;
    } cases[] = {
        {SECRET_LINES_PLAIN, "\n#\nWHSEC_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=", "line 3: "},
        {SECRET_LINES_PLAIN, SECRET "\nwhsk_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=\n", "line 2: "},
        {SECRET_LINES_PLAIN, "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=", "does not begin with whsec_"},
        {SECRET_LINES_PLAIN, "whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8", "canonical"},
        {SECRET_LINES_PLAIN, "whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl9=", "canonical"}, /* stray bits */
        {SECRET_LINES_PLAIN, "whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdX-8=", "canonical"},
        {SECRET_LINES_PLAIN, SECRET " # mine", "canonical"},
        {SECRET_LINES_PLAIN, "1 = " SECRET, "does not begin with whsec_"},
        {SECRET_LINES_NODES, "1 = " SECRET "\n" SECRET "\n", "line 2: no node is named"},
        {SECRET_LINES_NODES, OTHER, "no node is named"},
        {SECRET_LINES_NODES, "0 = " SECRET, "no node id"},
        {SECRET_LINES_NODES, "32768 = " SECRET, "no node id"},
        {SECRET_LINES_NODES, "x = " SECRET, "no node id"},
        {SECRET_LINES_NODES, " = " SECRET, "no node id"},
        {SECRET_LINES_NODES, "1 2 = " SECRET, "no node id"},
        {SECRET_LINES_NODES, "1 = ", "does not begin with whsec_"},
        {SECRET_LINES_NODES, "1 : " SECRET, "no node id"},
        {SECRET_LINES_NODES, "1 = 2 = " SECRET, "does not begin with whsec_"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct error err = {0};
        assert_null(parse(cases[i].text, cases[i].lines, &err));
        assert_int_equal(err.code, EXIT_USAGE);
        if (strstr(err.text, cases[i].said) == NULL)
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text, cases[i].said);
        assert_null(strstr(err.text, "QEFC"));
    }
    char nul[] = SECRET "\n" SECRET;
    struct error err = {0};
    nul[sizeof SECRET + 20] = '\0';
    assert_null(secret_set_parse(nul, sizeof nul - 1, SECRET_LINES_PLAIN, &err));
    assert_string_equal(err.text, "line 2: it is no text");
}

static void ids_are_strict(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "whid_",
                                      "whid_ca2a4fe727faaec",
                                      "whid_ca2a4fe727faaecf0",
                                      "whid_CA2A4FE727FAAECF",
                                      "whid_ca2a4fe727faaecg",
                                      " whid_ca2a4fe727faaecf",
                                      "whpk_ca2a4fe727faaecf",
                                      "whid_ca2a4fe727faaec\n"};
    assert_true(secret_id_valid(secret_whid));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(secret_id_valid(bad[i]));
}

static void secret_files(void **state) {
    (void)state;
    char directory[] = "/tmp/quorate-secret-XXXXXX", id[SECRET_ID_TEXT + 1], other_id[SECRET_ID_TEXT + 1];
    struct error err = {0};
    struct stat status;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(chdir(directory), 0);
    assert_true(secret_generate("s", id, &err));
    assert_int_equal(stat("s", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_size, 6 + 44 + 1);
    struct secret_set *set = secret_set_load("s", SECRET_LINES_PLAIN, &err);
    assert_non_null(set);
    assert_string_equal(secret_id(secret_set_at(set, 0)), id);
    secret_set_free(set);
    assert_false(secret_generate("s", other_id, &err));
    assert_int_equal(err.code, EXIT_REFUSED);
    assert_null(secret_set_load("s", SECRET_LINES_NODES, &err));
    assert_non_null(strstr(err.text, "secret file \"s\", line 1: "));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_int_equal(chmod("s", 0640), 0);
    assert_null(secret_set_load("s", SECRET_LINES_PLAIN, &err));
    assert_non_null(strstr(err.text, "chmod 600"));
    unlink("s");
    assert_null(secret_set_load("s", SECRET_LINES_PLAIN, &err));
    assert_non_null(strstr(err.text, "No such file"));
    assert_true(secret_generate("s", other_id, &err));
    assert_string_not_equal(id, other_id);
    int fd = open("s", O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    close(fd);
    set = secret_set_load("s", SECRET_LINES_PLAIN, &err);
    assert_non_null(set);
    assert_int_equal(secret_set_count(set), 0);
    secret_set_free(set);
    unlink("s");
    assert_true(chdir("/") == 0 && rmdir(directory) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_is_that_of_rfc_4231),
        cmocka_unit_test(vectors),
        cmocka_unit_test(nothing_can_be_altered),
        cmocka_unit_test(one_kind_never_passes_for_the_other),
        cmocka_unit_test(one_valid_signature_of_several_suffices),
        cmocka_unit_test(secrets_are_found_by_node_and_id),
        cmocka_unit_test(secrets_of_24_to_64_bytes),
        cmocka_unit_test(wrong_lines_are_named_and_not_shown),
        cmocka_unit_test(ids_are_strict),
        cmocka_unit_test(secret_files),
    };
    return cmocka_run_group_tests_name("secrets", tests, set_up, NULL);
}
