/* Arrays in PostgreSQL's binary form: dimensions, null flag, element type, then each element behind its length, all
 * in network byte order. */
#include "db/array.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 5 * 4, /* dimensions, null flag, type; for the one dimension: its length and its lower bound */
    EMPTY_BYTES = 3 * 4,  /* an empty array has no dimension at all */
    FIRST_CAPACITY = 256,
};

static void put_u32(unsigned char *at, uint32_t value) {
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static uint32_t get_u32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Makes room for `more` bytes. The old buffer may hold envelopes, so it is wiped rather than handed to realloc. */
static bool reserve(struct db_array *array, size_t more) {
    if (array->failed || more > (size_t)INT_MAX - array->size)
        return false;
    size_t needed = array->size + more;
    if (needed <= array->capacity)
        return true;

    size_t capacity = array->capacity ? array->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity *= 2;
    unsigned char *bytes = malloc(capacity);
    if (!bytes)
        return false;
    if (array->bytes) {
        memcpy(bytes, array->bytes, array->size);
        explicit_bzero(array->bytes, array->size);
        free(array->bytes);
    }
    array->bytes = bytes;
    array->capacity = capacity;
    return true;
}

void db_array_start(struct db_array *array, Oid element) {
    array->size = 0;
    array->element = element;
    array->count = 0;
    array->has_null = false;
    array->failed = false;
    if (reserve(array, HEADER_BYTES))
        array->size = HEADER_BYTES;
    else
        array->failed = true;
}

unsigned char *db_array_add_room(struct db_array *array, size_t size) {
    if (size > (size_t)INT_MAX - 4 || !reserve(array, 4 + size)) {
        array->failed = true;
        return NULL;
    }
    unsigned char *at = array->bytes + array->size;
    put_u32(at, (uint32_t)size);
    array->size += 4 + size;
    array->count++;
    return at + 4;
}

void db_array_add_bytes(struct db_array *array, const void *data, size_t size) {
    unsigned char *at = db_array_add_room(array, size);
    if (at && size > 0)
        memcpy(at, data, size);
}

void db_array_add_text(struct db_array *array, const char *text) {
    if (text)
        db_array_add_bytes(array, text, strlen(text));
    else
        db_array_add_null(array);
}

void db_array_add_bool(struct db_array *array, bool value) {
    unsigned char byte = value;
    db_array_add_bytes(array, &byte, sizeof byte);
}

void db_array_add_int2(struct db_array *array, int16_t value) {
    uint16_t bits = (uint16_t)value;
    unsigned char bytes[2] = {(unsigned char)(bits >> 8), (unsigned char)bits};
    db_array_add_bytes(array, bytes, sizeof bytes);
}

void db_array_add_int4(struct db_array *array, int32_t value) {
    unsigned char bytes[4];
    put_u32(bytes, (uint32_t)value);
    db_array_add_bytes(array, bytes, sizeof bytes);
}

void db_array_add_int8(struct db_array *array, int64_t value) {
    unsigned char bytes[8];
    put_u32(bytes, (uint32_t)((uint64_t)value >> 32));
    put_u32(bytes + 4, (uint32_t)(uint64_t)value);
    db_array_add_bytes(array, bytes, sizeof bytes);
}

void db_array_add_null(struct db_array *array) {
    unsigned char *at = db_array_add_room(array, 0);
    if (!at)
        return;
    put_u32(at - 4, UINT32_MAX); /* length -1 */
    array->has_null = true;
}

bool db_array_finish(struct db_array *array, const char **bytes, int *size) {
    if (array->failed)
        return false;
    put_u32(array->bytes, array->count > 0);
    put_u32(array->bytes + 4, array->has_null);
    put_u32(array->bytes + 8, array->element);
    put_u32(array->bytes + 12, array->count);
    put_u32(array->bytes + 16, 1);
    *bytes = (const char *)array->bytes;
    *size = array->count > 0 ? (int)array->size : EMPTY_BYTES;
    return true;
}

void db_array_free(struct db_array *array) {
    if (array->bytes)
        explicit_bzero(array->bytes, array->capacity);
    free(array->bytes);
    *array = (struct db_array){0};
}

static size_t width_of(uint32_t element) {
    switch (element) {
    case DB_BOOL:
        return 1;
    case DB_INT2:
        return 2;
    case DB_INT4:
        return 4;
    case DB_INT8:
        return 8;
    default:
        return 0;
    }
}

bool db_array_read(struct db_array_reader *reader, const void *value, size_t size) {
    const unsigned char *bytes = value;
    *reader = (struct db_array_reader){0};
    if (size < EMPTY_BYTES)
        return false;
    size_t width = width_of(get_u32(bytes + 8));
    uint32_t dimensions = get_u32(bytes);
    if (width == 0 || dimensions > 1)
        return false;
    if (dimensions == 0)
        return size == EMPTY_BYTES;

    if (size < HEADER_BYTES)
        return false;
    size_t count = get_u32(bytes + 12);
    if (size - HEADER_BYTES != count * (4 + width))
        return false;
    for (size_t i = 0; i < count; i++)
        if (get_u32(bytes + HEADER_BYTES + i * (4 + width)) != width)
            return false;
    reader->next = bytes + HEADER_BYTES;
    reader->left = count;
    return true;
}

int64_t db_array_next(struct db_array_reader *reader) {
    uint32_t width = get_u32(reader->next);
    const unsigned char *at = reader->next + 4;
    uint64_t bits = width > 1 && at[0] & 0x80 ? UINT64_MAX : 0; /* the sign, carried upwards */
    for (uint32_t i = 0; i < width; i++)
        bits = bits << 8 | at[i];
    reader->next = at + width;
    reader->left--;
    return (int64_t)bits;
}
