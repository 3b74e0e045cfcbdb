/* Arrays as PostgreSQL's binary parameters and results: one-dimensional, of integers, text or bytes. */
#ifndef QUORATE_DB_ARRAY_H
#define QUORATE_DB_ARRAY_H

#include <postgres_ext.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* Built-in types have fixed numbers; these are the ones our functions take and return. */
enum db_type {
    DB_BOOL = 16,
    DB_BYTEA = 17,
    DB_INT8 = 20,
    DB_INT2 = 21,
    DB_INT4 = 23,
    DB_TEXT = 25,
    DB_BYTEA_ARRAY = 1001,
    DB_INT2_ARRAY = 1005,
    DB_INT4_ARRAY = 1007,
    DB_TEXT_ARRAY = 1009,
    DB_INT8_ARRAY = 1016,
    DB_INTERVAL = 1186,
};

/* An array being built. Start from a struct of zeros; its buffer is kept from one start to the next. */
struct db_array {
    unsigned char *bytes;
    size_t size, capacity;
    Oid element;
    uint32_t count;
    bool has_null;
    bool failed; /* memory ran out or the array passed 2^31-1 bytes, libpq's limit for one parameter */
};

/* Begins an empty array of elements of type `element` (DB_INT4, not DB_INT4_ARRAY). */
void db_array_start(struct db_array *array, Oid element);

/* The adder must be that of the element's type. No adder fails: db_array_finish tells. */
void db_array_add_bool(struct db_array *array, bool value);
void db_array_add_int2(struct db_array *array, int16_t value);
void db_array_add_int4(struct db_array *array, int32_t value);
void db_array_add_int8(struct db_array *array, int64_t value);
void db_array_add_text(struct db_array *array, const char *text); /* NULL adds a null */
void db_array_add_bytes(struct db_array *array, const void *data, size_t size);
void db_array_add_null(struct db_array *array);

/* Room for one more element of `size` bytes, to be filled by the caller before anything else is added (so that bytes
 * that must be wiped are never in a second place). NULL when it failed; finish then fails too. */
unsigned char *db_array_add_room(struct db_array *array, size_t size) MUST_CHECK;

/* Completes the array for use as a binary parameter; valid until the next call on this array. False when memory ran
 * out at any point, or the whole passed 2^31-1 bytes. More may be added after it, and finish called again. */
bool db_array_finish(struct db_array *array, const char **bytes, int *size) MUST_CHECK;

/* Wipes and frees the buffer; the struct is as good as new. */
void db_array_free(struct db_array *array);

/* A received binary array being read. */
struct db_array_reader {
    const unsigned char *next;
    size_t left; /* elements not read yet */
};

/* Begins reading `size` bytes of a binary bool[], int2[], int4[] or int8[] without nulls; `reader->left` is then the
 * number of elements. False for anything else or anything malformed. `value` must outlive the reader. */
bool db_array_read(struct db_array_reader *reader, const void *value, size_t size) MUST_CHECK;

/* The next element; only while `left` > 0. */
int64_t db_array_next(struct db_array_reader *reader);

#endif
