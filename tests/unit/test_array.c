/* Tests binary arrays: exact bytes, growth, nulls, and that malformed ones are refused. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "db/array.h"

static void expect(struct db_array *array, const unsigned char *bytes, size_t size) {
    const char *got;
    int got_size;
    assert_true(db_array_finish(array, &got, &got_size));
    assert_int_equal(got_size, size);
    assert_memory_equal(got, bytes, size);
}

static void test_empty(void **state) {
    (void)state;
    struct db_array array = {0};
    db_array_start(&array, DB_INT4);
    static const unsigned char wanted[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 23};
    expect(&array, wanted, sizeof wanted);
    db_array_free(&array);
}

static void test_int_bytes(void **state) {
    (void)state;
    struct db_array array = {0};
    db_array_start(&array, DB_INT2);
    db_array_add_int2(&array, 258);
    db_array_add_int2(&array, -2);
    static const unsigned char wanted[] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0,   2,
                                           0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 0, 0,  0, 2, 255, 254};
    expect(&array, wanted, sizeof wanted);
    db_array_free(&array);
}

static void test_null_text_bytes(void **state) {
    (void)state;
    struct db_array array = {0};
    db_array_start(&array, DB_TEXT);
    db_array_add_text(&array, "ab");
    db_array_add_text(&array, NULL);
    db_array_add_bytes(&array, NULL, 0);
    static const unsigned char wanted[] = {0, 0, 0, 1, 0, 0, 0, 1,   0,   0,   0,   25,  0,   0, 0, 3, 0,
                                           0, 0, 1, 0, 0, 0, 2, 'a', 'b', 255, 255, 255, 255, 0, 0, 0, 0};
    expect(&array, wanted, sizeof wanted);
    db_array_free(&array);
}

static void round_trip(Oid element, const int64_t *values, size_t count) {
    struct db_array array = {0};
    db_array_start(&array, element);
    for (size_t i = 0; i < count; i++) {
        if (element == DB_BOOL)
            db_array_add_bool(&array, values[i] != 0);
        else if (element == DB_INT2)
            db_array_add_int2(&array, (int16_t)values[i]);
        else if (element == DB_INT4)
            db_array_add_int4(&array, (int32_t)values[i]);
        else
            db_array_add_int8(&array, values[i]);
    }
    const char *bytes;
    int size;
    assert_true(db_array_finish(&array, &bytes, &size));
    struct db_array_reader reader;
    assert_true(db_array_read(&reader, bytes, (size_t)size));
    assert_int_equal(reader.left, count);
    for (size_t i = 0; i < count; i++)
        assert_true(db_array_next(&reader) == values[i]);
    assert_int_equal(reader.left, 0);
    db_array_free(&array);
}

static void test_round_trips(void **state) {
    (void)state;
    round_trip(DB_BOOL, (int64_t[]){1, 0, 1}, 3);
    round_trip(DB_INT2, (int64_t[]){0, 1, -1, INT16_MIN, INT16_MAX}, 5);
    round_trip(DB_INT4, (int64_t[]){0, 1, -1, INT32_MIN, INT32_MAX}, 5);
    round_trip(DB_INT8, (int64_t[]){0, 1, -1, INT64_MIN, INT64_MAX, INT64_C(1) << 53}, 6);
    round_trip(DB_INT4, NULL, 0);
}

static void test_growth_and_reuse(void **state) {
    (void)state;
    struct db_array array = {0};
    for (int64_t round = 0; round < 3; round++) {
        db_array_start(&array, DB_INT8);
        for (int64_t i = 0; i < 10000; i++)
            db_array_add_int8(&array, i * round);
        const char *bytes;
        int size;
        assert_true(db_array_finish(&array, &bytes, &size));
        struct db_array_reader reader;
        assert_true(db_array_read(&reader, bytes, (size_t)size));
        assert_int_equal(reader.left, 10000);
        for (int64_t i = 0; i < 10000; i++)
            assert_true(db_array_next(&reader) == i * round);
    }
    db_array_free(&array);
    assert_null(array.bytes);
}

static void test_more_after_finish(void **state) {
    (void)state;
    struct db_array array = {0};
    const char *bytes;
    int size;
    db_array_start(&array, DB_INT4);
    assert_true(db_array_finish(&array, &bytes, &size));
    db_array_add_int4(&array, 7);
    assert_true(db_array_finish(&array, &bytes, &size));
    struct db_array_reader reader;
    assert_true(db_array_read(&reader, bytes, (size_t)size));
    assert_int_equal(reader.left, 1);
    assert_true(db_array_next(&reader) == 7);
    db_array_free(&array);
}

/* An array that cannot be a parameter is told at finish, and the next start is clean again. */
static void test_too_large(void **state) {
    (void)state;
    struct db_array array = {0};
    const char *bytes;
    int size;
    db_array_start(&array, DB_BYTEA);
    assert_null(db_array_add_room(&array, SIZE_MAX));
    db_array_add_bytes(&array, "x", 1);
    assert_false(db_array_finish(&array, &bytes, &size));
    db_array_start(&array, DB_BYTEA);
    assert_null(db_array_add_room(&array, (size_t)INT32_MAX - 4));
    assert_false(db_array_finish(&array, &bytes, &size));
    db_array_start(&array, DB_BYTEA);
    assert_true(db_array_finish(&array, &bytes, &size));
    db_array_free(&array);
}

static void test_malformed(void **state) {
    (void)state;
    struct db_array array = {0};
    db_array_start(&array, DB_INT4);
    db_array_add_int4(&array, 5);
    db_array_add_int4(&array, 6);
    const char *bytes;
    int size;
    assert_true(db_array_finish(&array, &bytes, &size));
    struct db_array_reader reader;

    for (size_t cut = 0; cut < (size_t)size; cut++) { /* a heap copy, so that a sanitizer sees any step past the end */
        char *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, bytes, cut);
        assert_false(db_array_read(&reader, copy, cut));
        free(copy);
    }
    static const struct {
        size_t at;
        char value;
    } damages[] = {{3, 2}, {3, 0}, {11, 25}, {12, 127}, {15, 1}, {15, 3}, {23, 8}, {20, -1}};
    for (size_t i = 0; i < COUNT(damages); i++) {
        char copy[64];
        assert_true((size_t)size <= sizeof copy);
        memcpy(copy, bytes, (size_t)size);
        copy[damages[i].at] = damages[i].value;
        assert_false(db_array_read(&reader, copy, (size_t)size));
    }

    db_array_start(&array, DB_INT4);
    db_array_add_null(&array);
    assert_true(db_array_finish(&array, &bytes, &size));
    assert_false(db_array_read(&reader, bytes, (size_t)size));
    db_array_free(&array);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_int_bytes),
        cmocka_unit_test(test_null_text_bytes),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_growth_and_reuse),
        cmocka_unit_test(test_more_after_finish),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
