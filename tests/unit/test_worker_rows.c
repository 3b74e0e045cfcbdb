/* Rows of the database: honest ones are read, and whatever can be seen to be wrong in one is refused. */
#include "unit.h"

#include <string.h>

#include "db/worker.h"

enum { COLUMNS_MAX = 32 };

struct field {
    const char *bytes; /* NULL: null */
    int size;
};

#define TEXT(text)                                                                                                     \
    { text, (int)sizeof(text) - 1 }
#define INT8(low)                                                                                                      \
    { "\0\0\0\0\0\0\0" low, 8 }
#define INT4(low)                                                                                                      \
    { "\0\0\0" low, 4 }
#define INT2(low)                                                                                                      \
    { "\0" low, 2 }
#define YES                                                                                                            \
    { "\1", 1 }
#define NO                                                                                                             \
    { "\0", 1 }
#define NOTHING                                                                                                        \
    { NULL, -1 }
#define A_SHA256                                                                                                       \
    { "0123456789abcdef0123456789abcdef", 32 }
#define NEVER_USED  INT2("\0"), NO, INT2("\0"), NO, NOTHING
#define COLUMN(row) (int)(sizeof(row) / sizeof((row)[0]))

static PGresult *one_row(const struct field *fields, int count) {
    char name[] = "column";
    PGresAttDesc columns[COLUMNS_MAX] = {0};
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    for (int i = 0; i < count; i++) {
        columns[i] = (PGresAttDesc){.name = name, .format = 1};
    }
    assert_int_equal(PQsetResultAttrs(result, count, columns), 1);
    for (int i = 0; i < count; i++) {
        assert_int_equal(PQsetvalue(result, 0, i, (char *)(uintptr_t)fields[i].bytes, fields[i].size), 1);
    }
    return result;
}

/* An open round with one delivery. */
static const struct field work[] = {INT8("\7"), TEXT("rnd-1"), INT8("\11"), TEXT("open"), NO,         NO,
                                    INT8("\1"), INT8("\2"),    INT8("\3"),  INT8("\4"),   INT8("\5"), INT2("\4"),
                                    INT2("\1"), INT4("\1"),    INT4("\2"),  A_SHA256,     NO,         NEVER_USED,
                                    NEVER_USED, INT8("\6"),    TEXT("ab"),  INT2("\1")};
enum {
    WORK_COLUMNS = COLUMN(work),
    ROUND_ID = 1,
    STATE = 3,
    DEADLINE = 7,
    NODE_ID = 12,
    PAYLOAD_BYTES = 14,
    SHA256 = 15,
    NOW = 27,
    PAYLOAD = 28
};

static bool reads(const struct field *fields, int count) {
    struct work_row row;
    PGresult *result = one_row(fields, count);
    bool read = worker_work(result, 0, &row);
    assert_false(worker_work(result, 1, &row));
    PQclear(result);
    return read;
}

static bool reads_with(int column, struct field changed) {
    struct field fields[WORK_COLUMNS];
    memcpy(fields, work, sizeof work);
    fields[column] = changed;
    return reads(fields, WORK_COLUMNS);
}

static void an_honest_row_is_read(void **state) {
    (void)state;
    struct work_row row;
    PGresult *result = one_row(work, WORK_COLUMNS);
    assert_true(worker_work(result, 0, &row));
    assert_int_equal(row.round_no, 7);
    assert_string_equal(row.round_id, "rnd-1");
    assert_int_equal(row.state, ROUND_OPEN);
    assert_int_equal(row.max_us, 5);
    assert_int_equal(row.payload_bytes, 2);
    assert_memory_equal(row.payload, "ab", 2);
    PQclear(result);
    assert_true(reads_with(PAYLOAD, (struct field)NOTHING));
    assert_true(reads_with(DEADLINE, (struct field){"\xff\xff\xff\xff\xff\xff\xff\xf0", 8})); /* past */
}

static void a_round_without_deliveries_is_read(void **state) {
    (void)state;
    struct field fields[WORK_COLUMNS];
    struct work_row row;
    memcpy(fields, work, sizeof work);
    for (int i = NODE_ID; i <= SHA256; i++) {
        fields[i] = (struct field)NOTHING;
    }
    fields[PAYLOAD] = (struct field)NOTHING;
    PGresult *result = one_row(fields, WORK_COLUMNS);
    assert_true(worker_work(result, 0, &row));
    assert_int_equal(row.node_id, 0);
    PQclear(result);
}

/* A round id goes into a header of each request; a state that no round has would free it while it is merged. */
static void what_is_wrong_in_a_row_of_work_is_seen(void **state) {
    (void)state;
    static const struct {
        int column;
        struct field field;
    } cases[] = {
        {ROUND_ID, TEXT("a\r\nx-header: b")},
        {ROUND_ID, TEXT("a\0b")},
        {ROUND_ID, TEXT("")},
        {ROUND_ID, NOTHING},
        {STATE, TEXT("fenced")},
        {STATE, TEXT("gone")},
        {STATE, TEXT("locked")},
        {STATE, TEXT("opened")},
        {STATE, NOTHING},
        {0, TEXT("1234567")},
        {0, TEXT("123456789")},
        {DEADLINE, {"\x7f\0\0\0\0\0\0\0", 8}},
        {DEADLINE, {"\x80\0\0\0\0\0\0\0", 8}},
        {NOW, {"\xff\xff\xff\xff\xff\xff\xff\xff", 8}},
        {NOW, {"\x7f\xff\xff\xff\xff\xff\xff\xff", 8}},
        {PAYLOAD_BYTES, {"\xff\xff\xff\xff", 4}},
        {PAYLOAD_BYTES, INT4("\3")},
        {SHA256, TEXT("short")},
        {SHA256, NOTHING},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_false(reads_with(cases[i].column, cases[i].field));
    }
    assert_false(reads(work, WORK_COLUMNS - 1));
}

static void a_deployment_id_is_an_identifier(void **state) {
    (void)state;
    static const struct field good[] = {INT4("\1"), TEXT("demo"), INT4("\2")};
    static const struct field bad[] = {INT4("\1"), TEXT("demo\n"), INT4("\2")};
    struct joined_row row;
    PGresult *result = one_row(good, COLUMN(good));
    assert_true(worker_joined(result, &row));
    assert_string_equal(row.deployment_id, "demo");
    PQclear(result);
    result = one_row(bad, COLUMN(bad));
    assert_false(worker_joined(result, &row));
    PQclear(result);
}

static void counts_are_not_negative(void **state) {
    (void)state;
    struct field tick[] = {YES, INT4("\0"), INT4("\3"), INT4("\0"), NO, NOTHING, NOTHING, INT8("\1"), NOTHING};
    struct tick_row row;
    PGresult *result = one_row(tick, COLUMN(tick));
    assert_true(worker_tick(result, &row));
    assert_int_equal(row.dead_lettered, 3);
    PQclear(result);
    tick[2] = (struct field){"\xff\xff\xff\xff", 4};
    result = one_row(tick, COLUMN(tick));
    assert_false(worker_tick(result, &row));
    PQclear(result);
}

static bool signed_is_read(const struct field *fields, struct checkpoint *row) {
    PGresult *result = one_row(fields, 4);
    bool good = worker_signed(result, row);
    PQclear(result);
    return good;
}

static void what_was_signed_has_its_size(void **state) {
    (void)state;
    static const char BYTES[65] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    struct field good[] = {INT8("\7"), INT8("\1"), A_SHA256, {BYTES, 64}},
                 none[] = {NOTHING, NOTHING, NOTHING, NOTHING};
    struct checkpoint row;
    assert_true(signed_is_read(good, &row) && row.seq == 7 && row.signature.size == 64);
    assert_true(signed_is_read(none, &row) && row.seq == 0);
    good[0] = (struct field)INT8("\0");
    assert_false(signed_is_read(good, &row));
    good[0] = (struct field)INT8("\7");
    good[2].size = 31;
    assert_false(signed_is_read(good, &row));
    good[2].size = 32;
    good[3].size = 63;
    assert_false(signed_is_read(good, &row));
}

static void links_are_whole(void **state) {
    (void)state;
    static const char BYTES[65] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct { int size, count; } cases[] = {{64, 2}, {32, 1}, {0, 0}, {-1, 0}, {31, -1}, {33, -1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct field field = {cases[i].size < 0 ? NULL : BYTES, cases[i].size};
        struct links_row row = {.count = -1};
        PGresult *result = one_row(&field, 1);
        assert_int_equal(worker_links(result, &row), cases[i].count >= 0);
        assert_int_equal(row.count, cases[i].count);
        PQclear(result);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_row_is_read),
        cmocka_unit_test(a_round_without_deliveries_is_read),
        cmocka_unit_test(what_is_wrong_in_a_row_of_work_is_seen),
        cmocka_unit_test(a_deployment_id_is_an_identifier),
        cmocka_unit_test(counts_are_not_negative),
        cmocka_unit_test(what_was_signed_has_its_size),
        cmocka_unit_test(links_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
