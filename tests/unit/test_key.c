/* Keys: the vectors of docs/protocol.md, every way to damage a text, and what may and may not become a key file. */
#include "unit.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/key.h"

static const char coordinator_secret[] =
    "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==";
static const char coordinator_public[] = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
static const char node_secret[] =
    "whsk_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8prLrhQbzK8LIuGpTTTQvHNh5SbQv+EsiXlLyTIpZt1w==";
static const char node_public[] = "whpk_Kay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=";

/* A directory of this run's own; the test works inside it. */
static char directory[] = "/tmp/quorate-key-XXXXXX";

static int enter_directory(void **state) {
    (void)state;
    struct error err;
    return wire_start(&err) && mkdtemp(directory) != NULL && chdir(directory) == 0 ? 0 : -1;
}

static int remove_directory(void **state) {
    (void)state;
    return chdir("/") == 0 && rmdir(directory) == 0 ? 0 : -1; /* every test removes its files */
}

static void write_file(const char *name, const char *text, size_t size, mode_t mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), size);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void vectors(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{coordinator_secret, coordinator_public}, {node_secret, node_public}};
    for (int i = 0; i < 2; i++) {
        struct error err = {0};
        struct secret_key *secret = secret_key_parse(pairs[i][0], &err);
        assert_non_null(secret);
        for (int b = 0; b < 32; b++)
            assert_int_equal(secret_key_bytes(secret)[b], i * 32 + b); /* the seed */
        struct public_key derived = secret_key_public(secret), parsed;
        char text[PUBLIC_KEY_TEXT + 1];
        public_key_format(&derived, text);
        assert_string_equal(text, pairs[i][1]);
        assert_true(public_key_parse(pairs[i][1], &parsed, &err));
        assert_memory_equal(parsed.bytes, derived.bytes, sizeof parsed.bytes);
        assert_int_equal(err.code, EXIT_DONE);
        secret_key_free(secret);
    }
    secret_key_free(NULL);
}

static void damaged_public_keys(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "whpk_",
        "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        "WHPK_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        "whpk-A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        " whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg= ",
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n",
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg",   /* no padding */
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg==", /* too much */
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbh=",  /* stray bits behind the last byte */
        "whpk_A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",  /* the URL alphabet */
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMb g=", /* a blank inside */
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJV\nMb=", /* a newline inside */
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMQ==",  /* 31 bytes */
        "whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",  /* small order: 0 */
        "whpk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",  /* small order: the neutral point */
        "whpk_7P///////////////////////////////////////38=",  /* small order: -1 */
        "whpk_7v///////////////////////////////////////38=",  /* not reduced */
        "whpk_AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",  /* not on the curve */
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct public_key key;
        memset(&key, 7, sizeof key);
        struct error err = {0};
        if (public_key_parse(bad[i], &key, &err))
            fail_msg("\"%s\" was taken for a public key", bad[i]);
        assert_int_equal(err.code, EXIT_USAGE);
        assert_true(err.text[0] != '\0');
        assert_int_equal(key.bytes[0], 7); /* untouched */
    }
}

/* Every single character of a key's text, changed to another one of the alphabet, is noticed: in the seed or the
 * public half by their not belonging together, elsewhere by the form. */
static void every_damaged_secret_key(void **state) {
    (void)state;
    char text[sizeof node_secret];
    for (size_t i = 0; i < sizeof node_secret - 1; i++) {
        memcpy(text, node_secret, sizeof text);
        text[i] = text[i] == 'B' ? 'C' : 'B';
        struct error err = {0};
        struct secret_key *key = secret_key_parse(text, &err);
        if (key != NULL)
            fail_msg("a change at %zu was not noticed", i);
        assert_int_equal(err.code, EXIT_USAGE);
    }
}

static void secret_texts_stay_secret(void **state) {
    (void)state;
    static const char damaged[] =
        "whsk_SECRETSEBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==";
    static const char *const bad[] = {
        damaged,
        damaged + 5,
        "whsk_SECRETS",
        "whsk_SECRETS\n",
        "whsk_SECRETSEBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA= ",
        "whsk_SECRETSEBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuB=="};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct error err = {0};
        struct public_key key;
        assert_null(secret_key_parse(bad[i], &err));
        assert_null(strstr(err.text, "SECRETS"));
        assert_int_equal(err.code, EXIT_USAGE);
        assert_false(public_key_parse(bad[i], &key, &err)); /* pasted into the wrong place */
        assert_null(strstr(err.text, "SECRETS"));
        write_file("k", bad[i], strlen(bad[i]), 0600);
        assert_null(secret_key_load("k", &err));
        assert_null(strstr(err.text, "SECRETS"));
    }
    unlink("k");
}

static void a_generated_key_loads(void **state) {
    (void)state;
    struct error err = {0};
    struct public_key drawn, other;
    mode_t old = umask(0777); /* must not matter */
    bool made = key_generate("new.key", &drawn, &err);
    umask(old);
    assert_true(made);
    struct stat status;
    assert_int_equal(stat("new.key", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_size, SECRET_KEY_TEXT + 1);

    struct secret_key *key = secret_key_load("new.key", &err);
    assert_non_null(key);
    struct public_key loaded = secret_key_public(key);
    assert_memory_equal(loaded.bytes, drawn.bytes, sizeof drawn.bytes);
    secret_key_free(key);

    char before[128] = "", after[128] = "";
    FILE *file = fopen("new.key", "r");
    assert_non_null(fgets(before, sizeof before, file));
    fclose(file);
    assert_false(key_generate("new.key", &other, &err)); /* never over an existing file */
    assert_int_equal(err.code, EXIT_REFUSED);
    assert_non_null(strstr(err.text, "new.key"));
    file = fopen("new.key", "r");
    assert_non_null(fgets(after, sizeof after, file));
    fclose(file);
    assert_string_equal(before, after);

    assert_true(key_generate("other.key", &other, &err));
    assert_memory_not_equal(other.bytes, drawn.bytes, sizeof drawn.bytes);
    assert_int_equal(symlink("nowhere", "link"), 0);
    assert_false(key_generate("link", &other, &err)); /* nor through a dangling link */
    assert_int_equal(err.code, EXIT_REFUSED);
    assert_false(key_generate("no/such/directory", &other, &err));
    assert_int_equal(err.code, EXIT_USAGE);
    unlink("link");
    unlink("other.key");
    unlink("new.key");
}

static void expect_refused(const char *path, const char *because) {
    struct error err = {0};
    assert_null(secret_key_load(path, &err));
    assert_int_equal(err.code, EXIT_USAGE);
    if (strstr(err.text, because) == NULL || strstr(err.text, path) == NULL)
        fail_msg("\"%s\" says nothing of \"%s\"", err.text, because);
}

static void key_files(void **state) {
    (void)state;
    const size_t size = sizeof node_secret - 1;
    char text[512];
    struct error err = {0};

    write_file("k", node_secret, size, 0600);
    struct secret_key *key = secret_key_load("k", &err);
    assert_non_null(key);
    secret_key_free(key);
    write_file("k", node_secret, size, 0400);
    assert_int_equal(symlink("k", "link"), 0); /* how container secrets are mounted */
    key = secret_key_load("link", &err);
    assert_non_null(key);
    secret_key_free(key);
    unlink("link");

    static const mode_t open_modes[] = {0640, 0604, 0620, 0602, 0610, 0601, 0644};
    for (size_t i = 0; i < COUNT(open_modes); i++) {
        write_file("k", node_secret, size, open_modes[i]);
        expect_refused("k", "chmod 600");
    }

    snprintf(text, sizeof text, "%s\n\n", node_secret);
    write_file("k", text, size + 2, 0600);
    expect_refused("k", "more than one line");
    snprintf(text, sizeof text, "%s\n%s\n", node_secret, node_secret);
    write_file("k", text, 2 * size + 2, 0600);
    expect_refused("k", "more than one line");
    snprintf(text, sizeof text, "%s\r\n", node_secret);
    write_file("k", text, size + 2, 0600);
    expect_refused("k", "characters");
    memcpy(text, node_secret, size);
    text[20] = '\0';
    write_file("k", text, size, 0600);
    expect_refused("k", "more than one line");
    write_file("k", "", 0, 0600);
    expect_refused("k", "does not begin with whsk_");
    write_file("k", node_public, sizeof node_public - 1, 0600);
    expect_refused("k", "does not begin with whsk_");
    unlink("k");

    expect_refused("k", "No such file");
    assert_int_equal(mkdir("dir", 0700), 0);
    expect_refused("dir", "no regular file");
    rmdir("dir");
    assert_int_equal(mkfifo("fifo", 0600), 0);
    expect_refused("fifo", "no regular file"); /* at once, without a writer */
    unlink("fifo");
    expect_refused("/dev/null", "no regular file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(damaged_public_keys),
        cmocka_unit_test(every_damaged_secret_key),
        cmocka_unit_test(secret_texts_stay_secret),
        cmocka_unit_test(a_generated_key_loads),
        cmocka_unit_test(key_files),
    };
    return cmocka_run_group_tests_name("key", tests, enter_directory, remove_directory);
}
