/* Parameters of the blocking client, in binary form. */
#include <stdlib.h>
#include <string.h>

#include "db/client.h"

static void add(struct db_params *params, Oid type, const char *value, int size) {
    if (params->count == DB_PARAMS_MAX)
        abort();
    params->types[params->count] = type;
    params->values[params->count] = value;
    params->sizes[params->count] = size;
    params->count++;
}

/* Adds the lowest `size` bytes of `value` in network byte order. */
static void add_number(struct db_params *params, Oid type, uint64_t value, int size) {
    if (params->count == DB_PARAMS_MAX)
        abort();
    char *at = params->inline_values[params->count];
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        at[i] = (char)(value & 0xff);
    add(params, type, at, size);
}

void db_param_text(struct db_params *params, const char *text) {
    add(params, DB_TEXT, text, text ? (int)strlen(text) : 0);
}

void db_param_bytes(struct db_params *params, const void *data, size_t size) {
    add(params, DB_BYTEA, data, (int)size);
}

void db_param_int4(struct db_params *params, int32_t value) {
    add_number(params, DB_INT4, (uint64_t)value, 4);
}

void db_param_int8(struct db_params *params, int64_t value) {
    add_number(params, DB_INT8, (uint64_t)value, 8);
}

void db_param_bool(struct db_params *params, bool value) {
    add_number(params, DB_BOOL, value, 1);
}

/* An interval is microseconds, days and months; ours are all microseconds. */
void db_param_interval(struct db_params *params, int64_t microseconds) {
    add_number(params, DB_INTERVAL, (uint64_t)microseconds, 8);
    memset(params->inline_values[params->count - 1] + 8, 0, 8);
    params->sizes[params->count - 1] = 16;
}

void db_param_null(struct db_params *params, Oid type) {
    add(params, type, NULL, 0);
}

bool db_param_array(struct db_params *params, Oid type, struct db_array *array, struct error *err) {
    const char *bytes;
    int size;
    if (!db_array_finish(array, &bytes, &size))
        return error_set(err, EXIT_UNEXPECTED, "out of memory for the parameters of a statement");
    add(params, type, bytes, size);
    return true;
}
