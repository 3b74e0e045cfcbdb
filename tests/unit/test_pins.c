/* The file of --node-pins: every pin of a node, and no line that is nearly right. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "transport/pins.h"

#define A "sha256//AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define B "sha256//ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="

static struct pin_set *parse(const char *text, struct error *err) {
    char *copy = strdup(text);
    assert_non_null(copy);
    struct pin_set *set = pin_set_parse(copy, strlen(copy), err);
    free(copy);
    return set;
}

static void pins_of_nodes(void **state) {
    (void)state;
    struct pin_set *set = parse("# the new one first\n\n 3 = " B "\r\n3=" A "\n32767 = " A, NULL);
    assert_non_null(set);
    assert_string_equal(pin_set_find(set, 3), B ";" A);
    assert_string_equal(pin_set_find(set, 32767), A);
    assert_null(pin_set_find(set, 1));
    assert_null(pin_set_find(NULL, 3));
    pin_set_free(set);
    set = parse("", NULL);
    assert_non_null(set);
    assert_null(pin_set_find(set, 1));
    pin_set_free(set);
    pin_set_free(NULL);
}

static void wrong_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {A, "line 1: no node is named"},
        {"1 = " A "\nnonsense", "line 2: no node is named"},
        {"0 = " A, "no node id from 1 to 32767"},
        {"32768 = " A, "no node id"},
        {"x = " A, "no node id"},
        {"7 =", "the pin of node 7 is none"},
        {"7 = AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "the pin of node 7 is none"},
        {"7 = sha1//AAECAwQFBgcICQoLDA0ODxAREhM=", "the pin of node 7 is none"},
        {"7 = sha256//AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "the pin of node 7 is none"},
        {"7 = sha256//AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=", "the pin of node 7 is none"},
        {"7 = sha256//AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8eHx==", "the pin of node 7 is none"},
        {"7 = " A ";" B, "the pin of node 7 is none"},
        {"7 = " A " " B, "the pin of node 7 is none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        assert_null(parse(cases[i].text, &err));
        assert_int_equal(err.code, EXIT_USAGE);
        if (strstr(err.text, cases[i].why) == NULL)
            fail_msg("\"%s\": %s", cases[i].text, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pins_of_nodes), cmocka_unit_test(wrong_lines)};
    return cmocka_run_group_tests_name("pins", tests, NULL, NULL);
}
