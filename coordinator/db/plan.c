/* What is applied, pending, altered or unknown: the decisions of the migrator, apart from carrying them out. */
#include "db/plan.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The number before the first '_' of "0001_tables.sql", or -1. */
static int number_of(const char *name) {
    int number = 0, digits = 0;
    for (; *name >= '0' && *name <= '9' && digits < 9; name++, digits++)
        number = number * 10 + (*name - '0');
    return digits > 0 && *name == '_' ? number : -1;
}

static struct plan_entry *add_entry(struct plan *plan, struct error *err) {
    if (plan->count == plan->capacity) {
        size_t capacity = plan->capacity ? 2 * plan->capacity : 32;
        struct plan_entry *entries = realloc(plan->entries, capacity * sizeof *entries);
        if (!entries) {
            error_set(err, EXIT_UNEXPECTED, "out of memory for the list of migrations");
            return NULL;
        }
        plan->entries = entries;
        plan->capacity = capacity;
    }
    struct plan_entry *entry = &plan->entries[plan->count++];
    *entry = (struct plan_entry){0};
    return entry;
}

/* The files, each pending until the database says otherwise. */
static bool add_files(struct plan *plan, const struct sql_file *files, size_t file_count, struct error *err) {
    int next = 0;
    for (size_t i = 0; i < file_count; i++) {
        const struct sql_file *file = &files[i];
        bool numbered = strncmp(file->path, "migrations/", 11) == 0;
        int number = numbered ? number_of(base_name(file->path)) : 0;
        if (numbered && number != next++)
            return error_set(err, EXIT_UNEXPECTED, "this program was built from %s where number %d was to come",
                             file->path, next - 1);
        if (numbered && number == 0) {
            plan->bootstrap = file;
            continue;
        }
        struct plan_entry *entry = add_entry(plan, err);
        if (!entry)
            return false;
        unsigned char digest[SHA256_BYTES];
        sha256(file->bytes, file->size, digest);
        sha256_hex(digest, entry->sha256);
        snprintf(entry->name, sizeof entry->name, "%s", base_name(file->path));
        entry->number = number;
        entry->file = file;
        entry->state = PLAN_PENDING;
    }
    if (!plan->bootstrap)
        return error_set(err, EXIT_UNEXPECTED, "this program was built without a migration number 0");
    return true;
}

static struct plan_entry *find(struct plan *plan, int number, const char *name) {
    for (size_t i = 0; i < plan->count; i++) {
        struct plan_entry *entry = &plan->entries[i];
        if (entry->number == number && (number > 0 || strcmp(entry->name, name) == 0))
            return entry;
    }
    return NULL;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool add_applied(struct plan *plan, const json_t *row, struct error *err) {
    int number = (int)json_integer_value(json_object_get(row, "number"));
    const char *sha = text_of(row, "sha256");
    struct plan_entry *entry = find(plan, number, text_of(row, "name"));
    if (entry) {
        entry->state = strcmp(entry->sha256, sha) == 0 ? PLAN_APPLIED : PLAN_ALTERED;
    } else {
        entry = add_entry(plan, err);
        if (!entry)
            return false;
        entry->number = number;
        entry->state = PLAN_UNKNOWN;
        snprintf(entry->name, sizeof entry->name, "%s", text_of(row, "name"));
        snprintf(entry->sha256, sizeof entry->sha256, "%s", sha);
    }
    snprintf(entry->applied_at, sizeof entry->applied_at, "%s", text_of(row, "applied_at"));
    return true;
}

static bool read_database(struct plan *plan, struct db_client *client, char *sqlstate, struct error *err) {
    json_t *tables = db_client_json(client,
                                    "SELECT json_build_object("
                                    "'bootstrapped', to_regclass('quorate_store.migration') IS NOT NULL "
                                    "AND to_regclass('quorate_store.repeatable') IS NOT NULL, "
                                    "'deployment', to_regclass('quorate_store.deployment') IS NOT NULL)",
                                    NULL, sqlstate, err);
    if (!tables)
        return false;
    plan->bootstrapped = json_is_true(json_object_get(tables, "bootstrapped"));
    bool has_deployment = json_is_true(json_object_get(tables, "deployment"));
    json_decref(tables);
    if (!plan->bootstrapped)
        return true;

    json_t *applied = db_client_json(
        client,
        "SELECT coalesce(json_agg(a ORDER BY number = 0, number, name), '[]') FROM (SELECT number, name, "
        "encode(sha256, 'hex') AS sha256, date_trunc('second', applied_at) AS applied_at FROM quorate_store.migration "
        "UNION ALL SELECT 0, name, encode(sha256, 'hex'), date_trunc('second', applied_at) "
        "FROM quorate_store.repeatable) AS a",
        NULL, sqlstate, err);
    if (!applied)
        return false;
    bool done = true;
    for (size_t i = 0; done && i < json_array_size(applied); i++)
        done = add_applied(plan, json_array_get(applied, i), err);
    json_decref(applied);
    if (!done || !has_deployment)
        return done;

    json_t *id =
        db_client_json(client, "SELECT to_json((SELECT deployment_id FROM quorate_store.deployment))", NULL, NULL, err);
    if (json_is_string(id))
        snprintf(plan->deployment_id, sizeof plan->deployment_id, "%s", json_string_value(id));
    json_decref(id);
    return id != NULL;
}

static int compare(const void *a, const void *b) {
    const struct plan_entry *left = a, *right = b;
    if ((left->number == 0) != (right->number == 0))
        return left->number == 0 ? 1 : -1;
    if (left->number != right->number)
        return left->number < right->number ? -1 : 1;
    if ((left->state == PLAN_UNKNOWN) != (right->state == PLAN_UNKNOWN))
        return left->state == PLAN_UNKNOWN ? 1 : -1;
    return strcmp(left->name, right->name);
}

bool plan_read(struct plan *plan, struct db_client *client, const struct sql_file *files, size_t file_count,
               char sqlstate[6], struct error *err) {
    if (!add_files(plan, files, file_count, err) || !read_database(plan, client, sqlstate, err))
        return false;
    if (plan->count > 0)
        qsort(plan->entries, plan->count, sizeof *plan->entries, compare);
    return true;
}

void plan_free(struct plan *plan) {
    free(plan->entries);
    *plan = (struct plan){0};
}

bool plan_check(const struct plan *plan, struct error *err) {
    const struct plan_entry *missing = NULL;
    for (size_t i = 0; i < plan->count && plan->entries[i].number > 0; i++) {
        const struct plan_entry *entry = &plan->entries[i];
        if (entry->state == PLAN_UNKNOWN)
            return error_set(err, EXIT_UNEXPECTED,
                             "the database has migration %d (%s), which this program does not know: the schema is "
                             "newer; use the version of quorate that made it, or a later one",
                             entry->number, entry->name);
        if (entry->state == PLAN_ALTERED)
            return error_set(err, EXIT_UNEXPECTED,
                             "migration %s was applied on %s with another content than it has here (SHA-256 %.12s… "
                             "here): restore the file, and make the change in a new migration",
                             entry->name, entry->applied_at, entry->sha256);
        if (entry->state == PLAN_PENDING && !missing)
            missing = entry;
        if (entry->state == PLAN_APPLIED && missing)
            return error_set(err, EXIT_UNEXPECTED,
                             "migration %s is applied but %s before it is not: the table quorate_store.migration has "
                             "a gap that no run of quorate leaves",
                             entry->name, missing->name);
    }
    return true;
}

bool plan_repeatables_due(const struct plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->entries[i].number == 0 && plan->entries[i].state != PLAN_APPLIED)
            return true;
    return false;
}

const char *plan_state_name(enum plan_state state) {
    static const char *const names[] = {"applied", "pending", "altered", "unknown"};
    return names[state];
}
