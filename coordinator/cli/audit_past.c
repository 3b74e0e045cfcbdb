/* Records that the chain keeps, one after the other. A row that was changed against the rules may have got a record of
 * that by hand, like any other event: the records before it still say what it was. */
#include "cli/audit_past.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { NAME_MAX_BYTES = HISTORY_KIND_MAX + 1 + 20 };

struct past_record {
    UT_hash_handle hh;
    char name[NAME_MAX_BYTES + 1]; /* "<kind> <key>" */
    json_t *json;
};

/* Kinds whose rows keep something, and the member that may change again and again. Others of a record that are null may
 * be written once; a list only grows. */
static const struct {
    const char *kind, *table, *changes;
} RULES[] = {
    {"acked", "ack", ""},
    {"coordinator", "coordinator", ""},
    {"deployment", "deployment", "max_envelope_bytes"},
    {"node_key", "node_key", "valid_until"},
};

static bool holds(const json_t *list, const json_t *wanted) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), wanted))
            return true;
    return false;
}

static bool leads_to(const json_t *before, const json_t *after) {
    if (!json_is_array(before))
        return json_is_null(before) || json_equal(before, after);
    for (size_t i = 0; i < json_array_size(before); i++)
        if (!holds(after, json_array_get(before, i)))
            return false;
    return true;
}

static bool follows(json_t *before, const json_t *after, const char *changes) {
    const char *name;
    json_t *value;
    json_object_foreach(before, name, value) {
        if (strcmp(name, changes) != 0 && !leads_to(value, json_object_get(after, name)))
            return false;
    }
    return true;
}

/* NULL without memory. */
static struct past_record *place_of(struct audit_past *past, const struct history_entry *entry) {
    char name[NAME_MAX_BYTES + 1];
    struct past_record *found;
    snprintf(name, sizeof name, "%s %" PRId64, entry->kind, entry->key);
    HASH_FIND_STR(past->records, name, found);
    if (found || !(found = calloc(1, sizeof *found)))
        return found;
    memcpy(found->name, name, sizeof name);
    HASH_ADD_STR(past->records, name, found);
    return found;
}

bool audit_past_check(struct audit_past *past, const struct history_entry *entry, const char *record,
                      struct error *err) {
    size_t rule = 0;
    while (rule < sizeof RULES / sizeof RULES[0] && strcmp(RULES[rule].kind, entry->kind) != 0)
        rule++;
    if (rule == sizeof RULES / sizeof RULES[0])
        return true;
    json_t *json = json_loads(record, 0, NULL);
    struct past_record *place = json ? place_of(past, entry) : NULL;
    if (!place || json_object_get(json, "lost")) { /* of rows that had gone before they were recorded */
        json_decref(json);
        return place || error_set(err, EXIT_UNEXPECTED, "out of memory");
    }
    bool good = follows(place->json, json, RULES[rule].changes);
    json_decref(place->json);
    place->json = json;
    return good || error_set(err, EXIT_UNEXPECTED,
                             "quorate_store.%s, key %" PRId64 ": entry %" PRId64
                             " of the history (%s) says what no rule lets come after the record before it",
                             RULES[rule].table, entry->key, entry->seq, entry->kind);
}

void audit_past_free(struct audit_past *past) {
    struct past_record *record = past->records;
    HASH_CLEAR(hh, past->records); /* it frees the table and leaves its members chained */
    while (record) {
        struct past_record *next = record->hh.next;
        json_decref(record->json);
        free(record);
        record = next;
    }
}
