/* Binary arrays of the database: what is read is written back alike; what is written holds what was added. */
#include "db/array.h"

#include "fuzz.h"

enum { HEADER = 20 };

static void add(struct db_array *array, Oid element, int64_t value) {
    switch (element) {
    case DB_BOOL:
        db_array_add_bool(array, value != 0);
        break;
    case DB_INT2:
        db_array_add_int2(array, (int16_t)value);
        break;
    case DB_INT4:
        db_array_add_int4(array, (int32_t)value);
        break;
    default:
        db_array_add_int8(array, value);
    }
}

static void read_one(const uint8_t *bytes, size_t size) {
    struct db_array_reader reader;
    struct db_array array = {0};
    const char *again;
    int again_size;
    if (!db_array_read(&reader, bytes, size))
        return;
    MUST(size >= 12);
    Oid element = (Oid)bytes[10] << 8 | bytes[11];
    size_t count = reader.left;
    bool plain = true; /* any byte but 0 is true */
    db_array_start(&array, element);
    while (reader.left > 0) {
        int64_t value = db_array_next(&reader);
        plain = plain && (element != DB_BOOL || (value >= 0 && value <= 1));
        add(&array, element, value);
    }
    MUST(db_array_finish(&array, &again, &again_size));
    if (count > 0)
        MUST((size_t)again_size == size && (!plain || memcmp(again + HEADER, bytes + HEADER, size - HEADER) == 0));
    db_array_free(&array);
}

/* Texts, bytes and nulls, found again by their lengths. */
static void write_one(struct fuzz *in) {
    struct db_array array = {0};
    struct fuzz again = *in;
    const char *bytes;
    int size, count = 0;
    db_array_start(&array, DB_BYTEA);
    for (; in->left > 0; count++) {
        size_t length = fuzz_byte(in);
        uint8_t *piece = fuzz_bytes(in, &length);
        if (length == 7)
            db_array_add_null(&array);
        else
            db_array_add_bytes(&array, piece, length);
        free(piece);
    }
    MUST(db_array_finish(&array, &bytes, &size));
    struct fuzz out = {(const uint8_t *)bytes + (count > 0 ? HEADER : size), count > 0 ? (size_t)size - HEADER : 0};
    for (int i = 0; i < count; i++) {
        size_t length = fuzz_byte(&again), written = (uint32_t)fuzz_number(&out, 4);
        uint8_t *piece = fuzz_bytes(&again, &length);
        MUST(written == (length == 7 ? UINT32_MAX : length));
        length = length == 7 ? 0 : length;
        MUST(out.left >= length && memcmp(piece, out.at, length) == 0);
        out.at += length;
        out.left -= length;
        free(piece);
    }
    MUST(out.left == 0);
    db_array_free(&array);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    size_t left;
    uint8_t *bytes = fuzz_rest(&in, &left);
    read_one(bytes, left);
    free(bytes);
    in = (struct fuzz){data, size};
    write_one(&in);
    return 0;
}
