/* Files that `quorate audit export` writes: checked offline, to the byte. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit_check.h"

char *audit_dump(const json_t *json) {
    return json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
}

static bool bad(struct error *err, const char *what) {
    return error_set(err, EXIT_UNEXPECTED, "this is no file as `quorate audit export` writes it, or it was changed: %s",
                     what);
}

/* One round's entry among the steps of a piece. */
static bool check_entry(const json_t *file, const json_t *step, unsigned char link[SHA256_BYTES],
                        struct audit_tally *tally, struct error *err) {
    const char *deployment = json_string_value(json_object_get(file, "deployment"));
    const json_t *record = json_object_get(step, "record");
    struct history_entry entry;
    if (json_object_size(step) != 7 || !record || !audit_entry(step, &entry, err))
        return err->code != EXIT_DONE ? false : bad(err, "an entry lacks something, or has more than it should");
    if (!json_is_null(record)) {
        json_t *json = json_loads(json_is_string(record) ? json_string_value(record) : "", 0, NULL);
        const json_t *ledger = json_object_get(json, "ledger");
        json_t *round_id = json_incref(json_object_get(ledger ? ledger : json, "round_id"));
        json_decref(json);
        bool same = json_equal(round_id, json_object_get(file, "round_id"));
        json_decref(round_id);
        if (!same)
            return bad(err, "a record is of another round");
        if (!audit_record(deployment, &entry, json_string_value(record), tally, err))
            return false;
    }
    history_link(&entry, link);
    tally->entries++;
    return true;
}

/* Steps from the hash before the first one of them to the signed one. */
static bool check_piece(const json_t *file, const json_t *piece, struct audit_keys *keys, struct audit_tally *tally,
                        struct error *err) {
    const json_t *steps = json_object_get(piece, "steps"), *line = json_object_get(piece, "checkpoint");
    const char *before = json_string_value(json_object_get(piece, "before"));
    const char *deployment = json_string_value(json_object_get(file, "deployment"));
    unsigned char hash[SHA256_BYTES], link[SHA256_BYTES];
    struct checkpoint checkpoint;
    int64_t seq = json_integer_value(json_object_get(piece, "after"));
    if (json_object_size(piece) != 4 || !before || !hex_parse(before, hash, sizeof hash) || !json_is_array(steps))
        return bad(err, "a piece of the chain is malformed");
    for (size_t i = 0; i < json_array_size(steps); i++, seq++) {
        const json_t *step = json_array_get(steps, i);
        if (json_is_object(step) ? json_integer_value(json_object_get(step, "seq")) != seq + 1
                                 : !json_is_string(step) || !hex_parse(json_string_value(step), link, sizeof link))
            return bad(err, "a step of the chain is malformed");
        if (json_is_object(step) && !check_entry(file, step, link, tally, err))
            return false;
        history_follow(hash, link);
    }
    if (!json_is_string(line))
        return error_set(
            err, EXIT_UNEXPECTED,
            "entry %" PRId64
            " of the history was not signed by a checkpoint yet when this was exported: export it again later",
            seq);
    if (!audit_checkpoint(deployment, json_string_value(line), keys, &checkpoint, err))
        return false;
    tally->checkpoints++;
    return (checkpoint.seq == seq && memcmp(checkpoint.hash, hash, sizeof hash) == 0) ||
           error_set(err, EXIT_UNEXPECTED, "the chain does not lead to the checkpoint of entry %" PRId64,
                     checkpoint.seq);
}

/* The next entry of the file, or NULL; *piece and *step begin with 0. */
static const json_t *next_entry(const json_t *pieces, size_t *piece, size_t *step) {
    for (; *piece < json_array_size(pieces); ++*piece, *step = 0) {
        const json_t *steps = json_object_get(json_array_get(pieces, *piece), "steps");
        while (*step < json_array_size(steps)) {
            const json_t *entry = json_array_get(steps, (*step)++);
            if (json_is_object(entry))
                return entry;
        }
    }
    return NULL;
}

/* The record of the pruning, which says what the others were. */
static json_t *pruned_record(const json_t *pieces) {
    size_t piece = 0, step = 0;
    for (const json_t *entry; (entry = next_entry(pieces, &piece, &step));) {
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        const char *record = json_string_value(json_object_get(entry, "record"));
        json_t *json = record && kind && strcmp(kind, "pruned") == 0 ? json_loads(record, 0, NULL) : NULL;
        if (json && json_equal(json_object_get(json, "round_no"), json_object_get(entry, "key")))
            return json;
        json_decref(json);
    }
    return NULL;
}

/* All entries are of one round. One without a record says nothing by itself: the pruning's says that it was this
 * round's, and with what digest. */
static bool check_gone(const json_t *pieces, struct error *err) {
    size_t piece = 0, step = 0;
    json_t *pruned = pruned_record(pieces);
    const json_t *key = NULL;
    bool same = true, told = true;
    for (const json_t *entry; (entry = next_entry(pieces, &piece, &step));) {
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        key = key ? key : json_object_get(entry, "key");
        same = same && json_equal(key, json_object_get(entry, "key"));
        if (!json_is_null(json_object_get(entry, "record")))
            continue;
        told =
            told && pruned && json_equal(json_object_get(pruned, "round_no"), key) &&
            (strcmp(kind, "ended") == 0 || json_equal(json_object_get(pruned, kind), json_object_get(entry, "digest")));
    }
    json_decref(pruned);
    if (!same)
        return bad(err, "its entries are of more than one round");
    return told ||
           bad(err, "a record is not there, and no entry says that the round was pruned and what the record was");
}

static bool check(const json_t *file, const char *text, size_t size, struct audit_keys *keys, struct audit_tally *tally,
                  struct error *err) {
    const json_t *pieces = json_object_get(file, "pieces");
    const char *format = json_string_value(json_object_get(file, "format"));
    const char *deployment = json_string_value(json_object_get(file, "deployment"));
    const char *round_id = json_string_value(json_object_get(file, "round_id"));
    char *again = audit_dump(file);
    size_t length = again ? strlen(again) : 0;
    bool same = again && size == length + 1 && memcmp(text, again, length) == 0 && text[length] == '\n';
    free(again);
    if (!same || !format || strcmp(format, AUDIT_FORMAT) != 0 || json_object_size(file) != 4)
        return bad(err, "not one line of JSON with sorted keys, no blanks and a line end, as they are to the byte");
    if (!deployment || !identifier_valid(deployment) || !round_id || !identifier_valid(round_id))
        return bad(err, "it names no deployment or no round");
    for (size_t i = 0; i < json_array_size(pieces); i++)
        if (!check_piece(file, json_array_get(pieces, i), keys, tally, err))
            return false;
    return (tally->entries > 0 || bad(err, "it has no entry")) && check_gone(pieces, err);
}

static char *read_all(const char *path, size_t *size, struct error *err) {
    FILE *in = fopen(path, "rbe");
    char *text = in ? malloc(AUDIT_FILE_MAX + 1) : NULL;
    if (!in)
        error_set(err, EXIT_USAGE, "file \"%.300s\" cannot be opened: %s", path, strerror(errno));
    else if (!text)
        error_set(err, EXIT_UNEXPECTED, "out of memory");
    if (text) {
        *size = fread(text, 1, AUDIT_FILE_MAX + 1, in);
        if (ferror(in) || *size > AUDIT_FILE_MAX) {
            error_set(err, EXIT_USAGE, "file \"%.300s\" cannot be read, or is larger than any that is exported", path);
            free(text);
            text = NULL;
        } else {
            text[*size] = 0;
        }
    }
    if (in)
        fclose(in);
    return text;
}

bool audit_text(const char *text, size_t size, struct audit_keys *keys, struct audit_tally *tally, struct error *err) {
    json_t *file = memchr(text, 0, size) ? NULL : json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    bool good = file ? check(file, text, size, keys, tally, err) : bad(err, "it is no JSON");
    json_decref(file);
    return good;
}

bool audit_file(const char *path, struct audit_keys *keys, struct audit_tally *tally, struct error *err) {
    size_t size = 0;
    char *text = read_all(path, &size, err);
    bool good = text && audit_text(text, size, keys, tally, err);
    free(text);
    return good;
}
