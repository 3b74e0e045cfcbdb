/* What is hidden of a text, whichever way it is written, and what stays readable. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/redact.h"

#define KEY    "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA=="
#define SECRET "whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8="

static void what_is_secret_is_hidden(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"host=h password=hunter2 user=u", "host=h password=***"},
        {"host=h password = 'hunter2 \\' more' user=u", "host=h password =***"},
        {"host=h password\r\v\f=hunter2", "host=h password\r\v\f=***"},
        {"password=p", "password=*"},
        {"sslpassword=hunter2", "sslpassword=***"},
        {"no password, but password=hunter2", "no password, but password=***"},
        {"postgresql://u:hunter2@h:5432/d", "postgresql://u:***@h:5432/d"},
        {"postgresql://u:hunt@er2@h/d", "postgresql://u:***@h/d"},
        {"postgresql://u:p@h1:1,h2:2/d", "postgresql://u:*@h1:1,h2:2/d"},
        {"postgresql://h/d?user=u&password=hunter2&x=y", "postgresql://h/d?user=u&password=***"},
        {"postgres://:hunter2@h", "postgres://:***@h"},
        {"http://u:hunter2@h/", "http://u:***@h/"},
        {"key file \"" KEY "\" cannot be opened", "key file \"whsk_***\" cannot be opened"},
        {SECRET " and " SECRET "\n" KEY, "whsec_*** and whsec_***\nwhsk_***"},
        {"--key=" KEY, "--key=whsk_***"},
        {"\"qbsk_YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=\"", "\"qbsk_***\""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256] = "";
        size_t size = strlen(cases[i][0]);
        strcpy(text, cases[i][0]);
        assert_true(redact(text));
        assert_string_equal(text, cases[i][1]);
        for (size_t at = strlen(text); at <= size; at++)
            assert_int_equal(text[at], 0); /* nothing is left behind the end */
    }
}

static void what_is_not_secret_stays(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "password",
        "password=",
        "fe_sendauth: no password supplied",
        "host=h port=5432 user=u@x dbname=d",
        "postgresql://h1:5432,h2:5433/d",
        "postgresql://u@h:5432/d",
        "postgresql://u:@h/d",
        "http://127.0.0.1:8080/path?a=b",
        "a secret key is written whsk_ and 88 characters of base64",
        "this is a secret key (whsk_), where a public key belongs",
        "a line is written ID = whsec_..., ID from 1 to 32767",
        "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg= whid_ca2a4fe727faaecf",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        strcpy(text, cases[i]);
        assert_false(redact(text));
        assert_string_equal(text, cases[i]);
    }
}

/* Every error passes through it, so that none need think of it. */
static void no_error_shows_it(void **state) {
    (void)state;
    struct error err = {0};
    error_set(&err, EXIT_USAGE, "\"%s\" is no round id", "postgresql://u:hunter2@h/d");
    assert_string_equal(err.text, "\"postgresql://u:***@h/d\" is no round id");
    error_set(&err, EXIT_USAGE, "node \"%s\" is wrong", KEY);
    assert_string_equal(err.text, "node \"whsk_***\" is wrong");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_secret_is_hidden),
        cmocka_unit_test(what_is_not_secret_stays),
        cmocka_unit_test(no_error_shows_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
