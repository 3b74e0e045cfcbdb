/* Sealed envelopes: the vector of docs/protocol.md, every byte of one changed, every place one can be moved to, and the
 * texts and files of their keys. */
#include "unit.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/key.h"
#include "wire/seal.h"

static const char secret_text[] = "qbsk_YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=";
static const char public_text[] = "qbox_Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS8=";
static const char vector_text[] =
    "cXNlYWxlZAFJPoL8dEZKWSaIF2I9IFPF644sxKmItP7heexrAQ1THYMfn5U2FsppR82e+AIrz5o+YrfeJoAy3xcowCmUkyBsDvaLoAXO"
    "ypsdauCYAbz12Nu7aYUunI4CJ28=";
static const unsigned char share[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                      0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
static const struct envelope_key vector_key = {"demo", "rnd-1", 1, 1001};
enum { VECTOR_SIZE = 98, HEADER_SIZE = 8 + 17 + 1 };

static struct seal_secret *node, *other;
static unsigned char vector[VECTOR_SIZE];

static int set_up(void **state) {
    (void)state;
    struct error err;
    size_t size;
    if (!wire_start(&err))
        return -1;
    node = seal_secret_parse(secret_text, &err);
    other = seal_secret_parse("qbsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=", &err);
    return node && other &&
                   sodium_base642bin(vector, sizeof vector, vector_text, strlen(vector_text), NULL, &size, NULL,
                                     sodium_base64_VARIANT_ORIGINAL) == 0 &&
                   size == VECTOR_SIZE
               ? 0
               : -1;
}

static int tear_down(void **state) {
    (void)state;
    seal_secret_free(node);
    seal_secret_free(other);
    return 0;
}

static enum seal_result open_with(struct seal_secret *secret, const struct envelope_key *key, const void *envelope,
                                  size_t size) {
    struct opened opened = {0};
    enum seal_result result = seal_open(&secret, 1, key, envelope, size, &opened);
    assert_true((result == SEAL_OPENED) == (opened.memory != NULL));
    opened_free(&opened);
    return result;
}

/* The envelope of an ephemeral key, made from the parts that libsodium's sealed box is made of. */
static void seal_with(const unsigned char *ephemeral, const void *plain, size_t size, unsigned char *out) {
    struct seal_key to = seal_secret_public(node);
    unsigned char nonce[crypto_box_NONCEBYTES], both[2 * SEAL_KEY_BYTES];
    memcpy(out, "qsealed\1", 8);
    assert_int_equal(crypto_scalarmult_base(out + 8, ephemeral), 0);
    memcpy(both, out + 8, SEAL_KEY_BYTES);
    memcpy(both + SEAL_KEY_BYTES, to.bytes, SEAL_KEY_BYTES);
    assert_int_equal(crypto_generichash(nonce, sizeof nonce, both, sizeof both, NULL, 0), 0);
    assert_int_equal(crypto_box_easy(out + 8 + SEAL_KEY_BYTES, plain, size, nonce, to.bytes, ephemeral), 0);
}

static void the_vector_opens(void **state) {
    (void)state;
    struct opened opened = {0};
    assert_int_equal(seal_open(&node, 1, &vector_key, vector, sizeof vector, &opened), SEAL_OPENED);
    assert_int_equal(opened.size, sizeof share);
    assert_memory_equal(opened.share, share, sizeof share);
    opened_free(&opened);
}

static void the_vector_is_made_of_what_the_document_says(void **state) {
    (void)state;
    static const char header[] = "qsealed\1demo:rnd-1:1:1001\n";
    unsigned char ephemeral[SEAL_KEY_BYTES], plain[HEADER_SIZE + sizeof share], made[VECTOR_SIZE];
    for (int i = 0; i < SEAL_KEY_BYTES; i++)
        ephemeral[i] = (unsigned char)(0x80 + i);
    memcpy(plain, header, HEADER_SIZE);
    memcpy(plain + HEADER_SIZE, share, sizeof share);
    seal_with(ephemeral, plain, sizeof plain, made);
    assert_memory_equal(made, vector, sizeof vector);
}

static void what_is_sealed_opens_and_differs_each_time(void **state) {
    (void)state;
    struct seal_key to = seal_secret_public(node);
    static const size_t sizes[] = {1, 2, 16, 1000, 100000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t size = sizes[i] + seal_overhead(&vector_key);
        unsigned char *plain = malloc(sizes[i]), *first = malloc(size), *second = malloc(size);
        assert_true(plain && first && second);
        randombytes_buf(plain, sizes[i]);
        assert_true(seal(&to, &vector_key, plain, sizes[i], first));
        assert_true(seal(&to, &vector_key, plain, sizes[i], second));
        assert_memory_not_equal(first, second, size);
        struct seal_secret *secrets[] = {other, node}; /* any of them */
        struct opened opened = {0};
        assert_int_equal(seal_open(secrets, 2, &vector_key, first, size, &opened), SEAL_OPENED);
        assert_int_equal(opened.size, sizes[i]);
        assert_memory_equal(opened.share, plain, sizes[i]);
        opened_free(&opened);
        free(plain);
        free(first);
        free(second);
    }
}

static void one_changed_bit_anywhere(void **state) {
    (void)state;
    for (size_t i = 0; i < VECTOR_SIZE; i++) {
        unsigned char changed[VECTOR_SIZE];
        memcpy(changed, vector, VECTOR_SIZE);
        changed[i] ^= 0x80;
        assert_int_equal(open_with(node, &vector_key, changed, VECTOR_SIZE), i < 7 ? SEAL_UNSEALED : SEAL_LOCKED);
    }
}

static void cut_short_or_longer(void **state) {
    (void)state;
    unsigned char longer[VECTOR_SIZE + 1] = {0};
    memcpy(longer, vector, VECTOR_SIZE);
    for (size_t size = 0; size <= VECTOR_SIZE + 1; size++)
        assert_int_equal(open_with(node, &vector_key, longer, size), size < 7              ? SEAL_UNSEALED
                                                                     : size == VECTOR_SIZE ? SEAL_OPENED
                                                                                           : SEAL_LOCKED);
}

static void moved_elsewhere(void **state) {
    (void)state;
    static const struct envelope_key places[] = {
        {"demo2", "rnd-1", 1, 1001}, {"dem", "rnd-1", 1, 1001},   {"demo", "rnd-2", 1, 1001},
        {"demo", "rnd-11", 1, 1001}, {"demo", "rnd-1", 2, 1001},  {"demo", "rnd-1", 11, 1001},
        {"demo", "rnd-1", 1, 1002},  {"demo", "rnd-1", 1, 10010}, {"demo", "rnd-1", 1, 100},
    };
    for (size_t i = 0; i < COUNT(places); i++)
        assert_int_equal(open_with(node, &places[i], vector, VECTOR_SIZE), SEAL_ELSEWHERE);
    assert_int_equal(open_with(other, &vector_key, vector, VECTOR_SIZE), SEAL_LOCKED);
    assert_int_equal(seal_open(NULL, 0, &vector_key, vector, VECTOR_SIZE, &(struct opened){0}), SEAL_LOCKED);
}

/* Sealed by somebody who knows the key and not the format. */
static void a_header_that_is_none(void **state) {
    (void)state;
    static const struct {
        const char *plain;
        size_t size;
    } cases[] = {
        {"", 0},
        {"qsealed\1demo:rnd-1:1:1001", 25},
        {"qsealed\1demo:rnd-1:1:1001\n", 26}, /* no share */
        {"qsealed\2demo:rnd-1:1:1001\nx", 27},
        {"demo:rnd-1:1:1001\nx", 19},
        {"qsealed\1demo:rnd-1:1:1001 x", 27},
        {"qsealed\1demo:rnd-1:01:1001\nx", 28},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char ephemeral[SEAL_KEY_BYTES] = {1}, made[VECTOR_SIZE];
        seal_with(ephemeral, cases[i].plain, cases[i].size, made);
        assert_int_equal(open_with(node, &vector_key, made, 8 + 48 + cases[i].size),
                         cases[i].size == 0 ? SEAL_LOCKED : SEAL_ELSEWHERE);
    }
}

static void the_longest_ids_have_room(void **state) {
    (void)state;
    struct envelope_key key = {.node_id = 32767, .nonce = INT64_MAX};
    memset(key.deployment, 'd', ROUND_ID_MAX);
    memset(key.round_id, 'r', ROUND_ID_MAX);
    unsigned char envelope[1024];
    struct seal_key to = seal_secret_public(node);
    assert_int_equal(seal_overhead(&key), 8 + 48 + 8 + WEBHOOK_ID_MAX + 1);
    assert_true(seal(&to, &key, "x", 1, envelope));
    assert_int_equal(open_with(node, &key, envelope, seal_overhead(&key) + 1), SEAL_OPENED);
}

static void key_texts(void **state) {
    (void)state;
    struct error err = {0};
    struct seal_key parsed, derived = seal_secret_public(node);
    char text[SEAL_KEY_TEXT + 1];
    seal_key_format(&derived, text);
    assert_string_equal(text, public_text);
    assert_true(seal_key_parse(public_text, &parsed, &err));
    assert_memory_equal(parsed.bytes, derived.bytes, sizeof parsed.bytes);
    static const char *const wrong[] = {
        "",
        "qbox_",
        "whpk_Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS8=",
        "qbox_Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS9=", /* not canonical */
        "qbox_Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS8",
        "qbox_Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS8=\n",
        "qbox_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", /* of small order */
        "qbox_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_false(seal_key_parse(wrong[i], &parsed, &err));
        assert_int_equal(err.code, EXIT_USAGE);
    }
    assert_false(seal_key_parse(secret_text, &parsed, &err));
    assert_null(strstr(err.text, secret_text + 5));
    static const char *const wrong_secrets[] = {
        "", "qbsk_", public_text,
        "qbsk_YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn9=", "qbsk_YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=x"};
    for (size_t i = 0; i < COUNT(wrong_secrets); i++) {
        assert_null(seal_secret_parse(wrong_secrets[i], &err));
        assert_int_equal(err.code, EXIT_USAGE);
        assert_null(strstr(err.text, "YGFi"));
    }
}

static void key_files(void **state) {
    (void)state;
    char directory[] = "/tmp/quorate-seal-XXXXXX", path[64];
    struct error err = {0};
    struct seal_key drawn, again;
    struct stat status;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/box", directory);
    assert_true(seal_generate(path, &drawn, &err));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_size, SEAL_KEY_TEXT + 1);
    struct seal_secret *secret = seal_secret_load(path, &err);
    assert_non_null(secret);
    again = seal_secret_public(secret);
    assert_memory_equal(again.bytes, drawn.bytes, sizeof drawn.bytes);
    seal_secret_free(secret);
    assert_false(seal_generate(path, &drawn, &err));
    assert_int_equal(err.code, EXIT_REFUSED);
    assert_int_equal(chmod(path, 0640), 0);
    assert_null(seal_secret_load(path, &err));
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_int_equal(unlink(path), 0);
    assert_null(seal_secret_load(path, &err));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_int_equal(rmdir(directory), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vector_opens),
        cmocka_unit_test(the_vector_is_made_of_what_the_document_says),
        cmocka_unit_test(what_is_sealed_opens_and_differs_each_time),
        cmocka_unit_test(one_changed_bit_anywhere),
        cmocka_unit_test(cut_short_or_longer),
        cmocka_unit_test(moved_elsewhere),
        cmocka_unit_test(a_header_that_is_none),
        cmocka_unit_test(the_longest_ids_have_room),
        cmocka_unit_test(key_texts),
        cmocka_unit_test(key_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
