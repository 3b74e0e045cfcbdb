/* The statements of `quorate audit`, each answering with one JSON value. */
#include "db/audit.h"

#include <stdio.h>
#include <string.h>

#include "db/sql_files.h"

/* In a transaction of its own, so that nobody can put functions and operators of theirs before the server's: whoever
 * owns a database or a role can set its search_path. (Not for the session: a pooler gives it to others.) */
static json_t *answer(struct db_client *client, const char *sql, const struct db_params *params, struct error *err) {
    json_t *json = NULL;
    if (db_client_script(client, "BEGIN READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp", NULL, err))
        json = db_client_json(client, sql, params, NULL, err);
    if (json && db_client_script(client, "COMMIT", NULL, err))
        return json;
    json_decref(json);
    return NULL;
}

json_t *db_audit_status(struct db_client *client, struct error *err) {
    return answer(client,
                  "SELECT json_build_object('deployment_id', deployment_id, 'entries', entries, 'due', due, "
                  "'importing', importing, 'now_us', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) "
                  "FROM quorate.history_status()",
                  NULL, err);
}

static json_t *between(struct db_client *client, const char *sql, int64_t one, int64_t other, struct error *err) {
    struct db_params params = {0};
    db_param_int8(&params, one);
    db_param_int8(&params, other);
    return answer(client, sql, &params, err);
}

json_t *db_audit_entries(struct db_client *client, int64_t after, int64_t max, struct error *err) {
    return between(client,
                   "SELECT coalesce(json_agg(json_build_object('seq', seq, 'at_us', at_us, 'kind', kind, 'key', key, "
                   "'digest', encode(digest, 'hex'), 'hash', encode(hash, 'hex'), 'parts', encode(parts, 'hex'), "
                   "'record', record, 'row_parts', encode(row_parts, 'hex'), 'verdict', verdict) ORDER BY seq), '[]') "
                   "FROM quorate.history_entries($1, $2::int)",
                   after, max, err);
}

json_t *db_audit_gaps(struct db_client *client, int64_t after, int64_t max, struct error *err) {
    return between(client,
                   "SELECT json_build_object('upto', max(upto) FILTER (WHERE source IS NULL), 'gaps', "
                   "coalesce(json_agg(json_build_object('source', source, 'key', key, 'problem', problem)) "
                   "FILTER (WHERE source IS NOT NULL), '[]')) FROM quorate.history_gaps($1, $2::int)",
                   after, max, err);
}

json_t *db_audit_checkpoints(struct db_client *client, int64_t after, int64_t upto, struct error *err) {
    return between(
        client,
        "SELECT coalesce(json_agg(json_build_object('checkpoint_no', checkpoint_no, 'seq', seq, 'line', line) "
        "ORDER BY seq, checkpoint_no), '[]') FROM quorate.checkpoints WHERE seq > $1 AND seq <= $2",
        after, upto, err);
}

json_t *db_audit_checkpoint(struct db_client *client, int64_t seq, struct error *err) {
    return between(client,
                   "SELECT to_json((SELECT line FROM quorate.checkpoints WHERE seq >= $1 "
                   "ORDER BY seq * CASE WHEN $2 = 0 THEN -1 ELSE 1 END, checkpoint_no LIMIT 1))",
                   seq, seq, err);
}

json_t *db_audit_links(struct db_client *client, int64_t after, int64_t upto, struct error *err) {
    return between(client,
                   "SELECT coalesce(json_agg(encode(link, 'hex') ORDER BY place), '[]') "
                   "FROM quorate.history_links($1, $2) WITH ORDINALITY AS l (link, place)",
                   after, upto, err);
}

json_t *db_audit_round(struct db_client *client, const char *round_id, struct error *err) {
    struct db_params params = {0};
    db_param_text(&params, round_id);
    return answer(client,
                  "SELECT coalesce(json_agg(json_build_object('seq', seq, 'at_us', at_us, 'kind', kind, 'key', "
                  "key, 'digest', encode(digest, 'hex'), 'parts', encode(parts, 'hex'), 'record', record, "
                  "'before', encode(before, 'hex')) ORDER BY seq), '[]') FROM quorate.history_of($1)",
                  &params, err);
}

/* One of the files has "CREATE [OR REPLACE] FUNCTION <name>(...) ... AS $$<source>$$". */
static bool is_ours(const char *name, const char *source) {
    char begins[256];
    size_t length = strlen(source);
    snprintf(begins, sizeof begins, "FUNCTION %s(", name);
    for (size_t i = 0; i < sql_file_count; i++) {
        const char *text = (const char *)sql_files[i].bytes;
        for (const char *at = text; (at = strstr(at, begins)) != NULL; at += strlen(begins)) {
            bool made = at - text >= 8 && (strncmp(at - 8, "REPLACE ", 8) == 0 || strncmp(at - 7, "CREATE ", 7) == 0);
            const char *body = made ? strstr(at, "$$") : NULL;
            if (body && strncmp(body + 2, source, length) == 0 && strncmp(body + 2 + length, "$$", 2) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* What a function calls is looked up in the server's own schema alone. Those of quorate_store may leave that to their
 * callers. */
static bool is_fixed(const char *name, const char *path) {
    return path ? strcmp(path, "search_path=pg_catalog, pg_temp") == 0 : strncmp(name, "quorate_store.", 14) == 0;
}

bool db_audit_functions(struct db_client *client, struct error *err) {
    json_t *functions = answer(
        client,
        "SELECT coalesce(json_agg(json_build_object('name', n.nspname || '.' || p.proname, 'source', p.prosrc, 'path', "
        "(SELECT c FROM unnest(p.proconfig) AS c WHERE c ~ '^search_path='))), '[]') "
        "FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname IN ('quorate', 'quorate_store', 'quorate_worker')",
        NULL, err);
    bool good = functions != NULL;
    for (size_t i = 0; good && i < json_array_size(functions); i++) {
        const json_t *function = json_array_get(functions, i);
        const char *name = json_string_value(json_object_get(function, "name"));
        good = (is_ours(name, json_string_value(json_object_get(function, "source"))) &&
                is_fixed(name, json_string_value(json_object_get(function, "path")))) ||
               error_set(err, EXIT_UNEXPECTED,
                         "the function %.200s is not this program's, so what it says proves nothing: verify with the "
                         "version that migrated the database, or find out who replaced it",
                         name);
    }
    json_decref(functions);
    return good;
}
