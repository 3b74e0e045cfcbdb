/* Keys that sign together while one takes the place of the other: how many, which, and what the header then holds. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/signing_keys.h"

static const char webhook_id[] = "demo:rnd-1:1:1001";
static const int64_t timestamp = 1700000000;

static char directory[] = "/tmp/quorate-keys-XXXXXX";
static const char *const files[] = {"a", "b", "c", "d", "e"};
static struct public_key publics[COUNT(files)];

static int draw_keys(void **state) {
    (void)state;
    struct error err;
    if (!wire_start(&err) || mkdtemp(directory) == NULL || chdir(directory) != 0)
        return -1;
    for (size_t i = 0; i < COUNT(files); i++)
        if (!key_generate(files[i], &publics[i], &err))
            return -1;
    return 0;
}

static int remove_keys(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(files); i++)
        unlink(files[i]);
    return chdir("/") == 0 && rmdir(directory) == 0 ? 0 : -1;
}

static void each_key_signs_in_its_order(void **state) {
    (void)state;
    for (size_t count = 1; count <= SIGNING_KEYS_MAX; count++) {
        struct signing_keys keys;
        struct error err = {0};
        char header[SIGNATURES_TEXT + 1], alone[SIGNATURE_TEXT + 1];
        assert_true(signing_keys_load(files, count, &keys, &err));
        assert_true(signing_keys_locked(&keys));
        signing_keys_sign(&keys, webhook_id, timestamp, "body", 4, header);
        assert_int_equal(strlen(header), count * (SIGNATURE_TEXT + 1) - 1);
        for (size_t i = 0; i < count; i++) {
            webhook_sign(keys.keys[i], webhook_id, timestamp, "body", 4, alone);
            assert_memory_equal(header + i * (SIGNATURE_TEXT + 1), alone, SIGNATURE_TEXT);
        }
        /* Whoever trusts any one of them takes it; whoever trusts another one does not. */
        for (size_t i = 0; i < COUNT(files); i++)
            assert_int_equal(webhook_verify(&publics[i], 1, header, webhook_id, timestamp, "body", 4), i < count);
        signing_keys_free(&keys);
        assert_int_equal(keys.count, 0);
    }
}

static void wrong_sets_of_keys(void **state) {
    (void)state;
    static const char *const twice[] = {"a", "b", "a"}, *const missing[] = {"a", "b", "z"};
    struct signing_keys keys;
    struct error err = {0};
    assert_false(signing_keys_load(files, SIGNING_KEYS_MAX + 1, &keys, &err));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_string_equal(err.text, "--key: given 5 times; at most 4 are allowed");
    assert_false(signing_keys_load(twice, 3, &keys, &err));
    assert_string_equal(err.text, "--key: \"a\" and \"a\" hold the same key: give it once");
    assert_false(signing_keys_load(missing, 3, &keys, &err));
    assert_string_equal(err.text, "key file \"z\" cannot be opened: No such file or directory");
    assert_int_equal(keys.count, 0);
    signing_keys_free(&keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_signs_in_its_order),
        cmocka_unit_test(wrong_sets_of_keys),
    };
    return cmocka_run_group_tests(tests, draw_keys, remove_keys);
}
