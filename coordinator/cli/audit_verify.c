/* quorate audit verify: the chain, the records as the rows make them now, receipts, checkpoints, and rows without
 * records.
 *
 * In slices, each a statement of its own: one snapshot sees a row and its entry, or the row and that it is due. Between
 * two slices nothing is held, so that VACUUM waits for neither. */
#include "cli/audit_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/audit_past.h"
#include "db/audit.h"

enum { SLICE = 500, ROUNDS = 5000 };
/* Coordinators sign within a minute. */
static const int64_t UNSIGNED_MAX_US = INT64_C(600000000);

struct walk {
    struct db_client *client;
    struct audit_keys *keys;
    struct audit_tally *tally;
    struct error *err;
    char deployment[ROUND_ID_MAX + 1];
    int64_t seq, entries; /* walked so far, and to walk at first sight */
    unsigned char hash[SHA256_BYTES];
    struct checkpoint *all_kept, *kept; /* of the file; those not met yet, ascending by seq */
    size_t kept_count;
    struct audit_past past;
    int64_t signed_upto;       /* by checkpoints of the database */
    int64_t unsigned_since_us; /* when the first entry after them was made */
};

static void progress(const char *what, int64_t done, int64_t all) {
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: %" PRId64 " of %" PRId64 "\033[K", what, done, all > done ? all : done);
}

static const char *text_of(const json_t *json, const char *name) {
    const char *text = json_string_value(json_object_get(json, name));
    return text ? text : "";
}

/* The table whose part of the record is another one now. */
static const char *table_of(const struct history_entry *entry, const char *row_parts) {
    static const char *const PARTS[] = {"ledger", "round", "delivery", "ack", "attempt"};
    static const struct {
        const char *kind, *table;
    } SINGLE[] = {{"rejected", "rejection"}, {"pruned", "ledger"},        {"forgotten", "rejection"},
                  {"acked", "ack"},          {"began", "history_import"}, {"imported", "history_import"}};
    unsigned char now[HISTORY_PARTS_MAX] = {0};
    size_t size = strlen(row_parts) / 2;
    if (size > 0 && size == entry->parts_size && size <= 4 * sizeof PARTS / sizeof PARTS[0] &&
        hex_parse(row_parts, now, size)) {
        for (size_t i = 0; i < size / 4; i++)
            if (memcmp(now + 4 * i, entry->parts + 4 * i, 4) != 0)
                return PARTS[i];
    }
    for (size_t i = 0; i < sizeof SINGLE / sizeof SINGLE[0]; i++)
        if (strcmp(SINGLE[i].kind, entry->kind) == 0)
            return SINGLE[i].table;
    return entry->parts_size > 0 ? "round" : entry->kind;
}

static bool misfit(struct walk *walk, const struct history_entry *entry, const json_t *row, const char *what) {
    char expected[SHA256_HEX + 1], found[SHA256_HEX + 1] = "none";
    const char *record = json_string_value(json_object_get(row, "record"));
    unsigned char digest[SHA256_BYTES];
    sha256_hex(entry->digest, expected);
    if (record) {
        sha256(record, strlen(record), digest);
        sha256_hex(digest, found);
    }
    return error_set(walk->err, EXIT_UNEXPECTED,
                     "quorate_store.%s, key %" PRId64 ": %s; entry %" PRId64
                     " of the history (%s) expects a record with SHA-256 %s, and there is %s",
                     table_of(entry, text_of(row, "row_parts")), entry->key, what, entry->seq, entry->kind, expected,
                     found);
}

static bool check_row(struct walk *walk, const struct history_entry *entry, const json_t *row) {
    const char *verdict = text_of(row, "verdict"), *record = json_string_value(json_object_get(row, "record"));
    unsigned char digest[SHA256_BYTES];
    if (strcmp(verdict, "gone") == 0 && !record && strcmp(entry->kind, "acked") != 0)
        return true; /* (of an ack the record is kept) */
    if (strcmp(verdict, "missing") == 0 || !record)
        return misfit(walk, entry, row, "the row is not there, and no rule let it go");
    if (strcmp(verdict, "changed") == 0)
        return misfit(walk, entry, row, "the row is not as the newest record of it says");
    if (strcmp(verdict, "kept for nothing") == 0)
        return misfit(walk, entry, row, "a record is kept that rows are to make");
    sha256(record, strlen(record), digest);
    if (memcmp(digest, entry->digest, sizeof digest) != 0)
        return misfit(walk, entry, row, "the rows are not those that were recorded");
    if (strcmp(verdict, "row") == 0 && strcmp(text_of(row, "parts"), text_of(row, "row_parts")) != 0)
        return misfit(walk, entry, row, "the parts of the entry are not those of its record");
    return audit_record(walk->deployment, entry, record, walk->tally, walk->err) &&
           audit_past_check(&walk->past, entry, record, walk->err);
}

/* Checkpoints that were kept elsewhere and say what the hash was here. */
static bool meet_kept(struct walk *walk) {
    while (walk->kept_count > 0 && walk->kept->seq <= walk->seq) {
        const struct checkpoint *kept = walk->kept++;
        walk->kept_count--;
        if (kept->seq == walk->seq && memcmp(kept->hash, walk->hash, SHA256_BYTES) != 0)
            return error_set(walk->err, EXIT_UNEXPECTED,
                             "quorate_store.history, seq %" PRId64
                             ": the checkpoint that was kept says another hash: the history up to there was rewritten",
                             kept->seq);
    }
    return true;
}

static bool wrong_hash(struct walk *walk, const json_t *row) {
    json_t *record = json_loads(text_of(row, "record"), 0, NULL);
    const char *began = text_of(record, "deployment_id");
    if (walk->seq == 1 && strcmp(began, walk->deployment) != 0)
        error_set(walk->err, EXIT_UNEXPECTED,
                  "quorate_store.deployment: the deployment is \"%s\", and the history is that of \"%.128s\"",
                  walk->deployment, began);
    else
        error_set(walk->err, EXIT_UNEXPECTED,
                  "quorate_store.history, seq %" PRId64
                  ": its hash does not follow from the one before it and the entry",
                  walk->seq);
    json_decref(record);
    return false;
}

static bool check_entry(struct walk *walk, const json_t *row) {
    struct history_entry entry;
    unsigned char link[SHA256_BYTES], stored[SHA256_BYTES];
    if (!audit_entry(row, &entry, walk->err))
        return false;
    if (entry.seq != walk->seq + 1)
        return error_set(walk->err, EXIT_UNEXPECTED, "quorate_store.history, seq %" PRId64 ": the entry is not there",
                         walk->seq + 1);
    history_link(&entry, link);
    history_follow(walk->hash, link);
    walk->seq++;
    if (!hex_parse(text_of(row, "hash"), stored, sizeof stored) || memcmp(stored, walk->hash, sizeof stored) != 0)
        return wrong_hash(walk, row);
    walk->tally->entries++;
    return check_row(walk, &entry, row) && meet_kept(walk);
}

static bool check_checkpoints(struct walk *walk, const json_t *slice, const json_t *checkpoints) {
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(checkpoints); i++) {
        const json_t *row = json_array_get(checkpoints, i);
        const char *line = text_of(row, "line");
        struct checkpoint checkpoint;
        unsigned char hash[SHA256_BYTES];
        int64_t seq = json_integer_value(json_object_get(row, "seq"));
        if (!audit_checkpoint(walk->deployment, line, walk->keys, &checkpoint, walk->err))
            return false;
        while (at < json_array_size(slice) &&
               json_integer_value(json_object_get(json_array_get(slice, at), "seq")) < seq)
            at++;
        if (!hex_parse(text_of(json_array_get(slice, at), "hash"), hash, sizeof hash) ||
            memcmp(hash, checkpoint.hash, sizeof hash) != 0)
            return error_set(walk->err, EXIT_UNEXPECTED,
                             "quorate_store.checkpoint, key %" JSON_INTEGER_FORMAT
                             ": it says another hash of entry %" PRId64 " than the history does",
                             json_integer_value(json_object_get(row, "checkpoint_no")), seq);
        walk->tally->checkpoints++;
        walk->signed_upto = seq;
    }
    return true;
}

/* How many entries wait for a signature. A record of a checkpoint does not ask for one. */
static void note_unsigned(struct walk *walk, int64_t signed_before, const json_t *slice) {
    if (walk->signed_upto > signed_before)
        walk->tally->unsigned_entries = 0;
    for (size_t i = 0; i < json_array_size(slice); i++) {
        const json_t *row = json_array_get(slice, i);
        if (json_integer_value(json_object_get(row, "seq")) <= walk->signed_upto ||
            strcmp(text_of(row, "kind"), "checkpoint") == 0)
            continue;
        if (walk->tally->unsigned_entries++ == 0)
            walk->unsigned_since_us = json_integer_value(json_object_get(row, "at_us"));
    }
}

static bool walk_entries(struct walk *walk) {
    for (;;) {
        int64_t from = walk->seq, signed_before = walk->signed_upto;
        json_t *slice = db_audit_entries(walk->client, from, SLICE, walk->err);
        bool good = slice != NULL;
        size_t count = json_array_size(slice);
        for (size_t i = 0; good && i < count; i++)
            good = check_entry(walk, json_array_get(slice, i));
        json_t *checkpoints =
            good ? db_audit_checkpoints(walk->client, from > 0 ? from : INT64_MIN, walk->seq, walk->err) : NULL;
        good = checkpoints && check_checkpoints(walk, slice, checkpoints);
        note_unsigned(walk, signed_before, slice);
        json_decref(checkpoints);
        json_decref(slice);
        if (!good)
            return false;
        progress("history", walk->seq, walk->entries);
        if (count < SLICE)
            return true;
    }
}

static bool all_met(const struct walk *walk) {
    return walk->kept_count == 0 ||
           error_set(walk->err, EXIT_UNEXPECTED,
                     "quorate_store.history, seq %" PRId64 ": the checkpoint that was kept signs %" PRId64
                     " entries, and there are %" PRId64 ": the newest were cut off",
                     walk->seq + 1, walk->kept[walk->kept_count - 1].seq, walk->seq);
}

/* Whoever gives keys wants the history signed by them: without that anyone who may write it could have made it anew. */
static bool all_signed(const struct walk *walk, int64_t now_us) {
    int64_t waits_us = now_us - walk->unsigned_since_us;
    if (walk->keys->count == 0)
        return true;
    if (walk->tally->checkpoints == 0)
        return error_set(walk->err, EXIT_UNEXPECTED,
                         "quorate_store.checkpoint: there is none, so none of the keys given has signed this history");
    if (walk->tally->unsigned_entries > 0 && (waits_us > UNSIGNED_MAX_US || waits_us < -UNSIGNED_MAX_US))
        return error_set(walk->err, EXIT_UNEXPECTED,
                         "quorate_store.history, seq %" PRId64
                         ": the last %zu entries are signed by none of the keys "
                         "given, the first of them for more than 10 min: no coordinator with such a key runs, or it "
                         "refuses to sign what was rewritten",
                         walk->signed_upto + 1, walk->tally->unsigned_entries);
    return true;
}

static bool walk_gaps(struct walk *walk) {
    int64_t after = 0;
    for (bool more = true; more;) {
        json_t *answer = db_audit_gaps(walk->client, after, ROUNDS, walk->err);
        const json_t *gap = json_array_get(json_object_get(answer, "gaps"), 0);
        const json_t *upto = json_object_get(answer, "upto");
        bool good = answer != NULL;
        if (gap)
            good = error_set(walk->err, EXIT_UNEXPECTED, "%s, key %s: %s", text_of(gap, "source"), text_of(gap, "key"),
                             text_of(gap, "problem"));
        more = json_is_integer(upto);
        after = json_integer_value(upto);
        json_decref(answer);
        if (!good)
            return false;
        progress("rounds", after, after);
    }
    return true;
}

static int by_seq(const void *one, const void *other) {
    int64_t a = ((const struct checkpoint *)one)->seq, b = ((const struct checkpoint *)other)->seq;
    return a < b ? -1 : a > b;
}

/* Room for one more: as much again whenever their number is a power of two. */
static bool make_room(struct walk *walk) {
    size_t count = walk->kept_count;
    if ((count & (count - 1)) != 0)
        return true;
    struct checkpoint *more = reallocarray(walk->all_kept, count > 0 ? 2 * count : 1, sizeof *more);
    walk->all_kept = more ? more : walk->all_kept;
    return more || error_set(walk->err, EXIT_UNEXPECTED, "out of memory");
}

static bool read_kept(struct walk *walk, const char *path) {
    char line[CHECKPOINT_LINE_MAX + 3];
    FILE *in = fopen(path, "re");
    bool good =
        in || error_set(walk->err, EXIT_USAGE, "--checkpoint: \"%.300s\" cannot be opened: %s", path, strerror(errno));
    while (good && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\r\n")] = 0;
        good = make_room(walk) &&
               audit_checkpoint(walk->deployment, line, walk->keys, &walk->all_kept[walk->kept_count], walk->err);
        walk->kept_count += good;
    }
    good =
        good && (walk->kept_count > 0 || error_set(walk->err, EXIT_USAGE, "--checkpoint: \"%.300s\" holds none", path));
    if (in)
        fclose(in);
    if (walk->kept_count > 0)
        qsort(walk->all_kept, walk->kept_count, sizeof *walk->all_kept, by_seq);
    walk->kept = walk->all_kept;
    return good;
}

static bool begin(struct walk *walk, const char *kept_path) {
    json_t *status = db_audit_functions(walk->client, walk->err) ? db_audit_status(walk->client, walk->err) : NULL;
    const char *deployment = text_of(status, "deployment_id");
    bool good =
        status && (identifier_valid(deployment) ||
                   error_set(walk->err, EXIT_UNEXPECTED, "quorate_store.deployment: there is no deployment id"));
    if (good) {
        memcpy(walk->deployment, deployment, strlen(deployment) + 1);
        walk->entries = json_integer_value(json_object_get(status, "entries"));
        history_start(walk->deployment, walk->hash);
    }
    json_decref(status);
    return good && (!kept_path || read_kept(walk, kept_path));
}

bool audit_database(const char *conninfo, const char *kept_path, struct audit_keys *keys, struct audit_tally *tally,
                    int64_t *due, struct error *err) {
    struct walk walk = {.keys = keys, .tally = tally, .err = err};
    walk.client = db_client_open(conninfo, err);
    db_client_needs(walk.client, "quorate_auditor");
    bool good = walk.client && begin(&walk, kept_path) && walk_entries(&walk) && all_met(&walk) && walk_gaps(&walk);
    json_t *status = good ? db_audit_status(walk.client, err) : NULL;
    *due = json_integer_value(json_object_get(status, "due"));
    good = status && all_signed(&walk, json_integer_value(json_object_get(status, "now_us")));
    json_decref(status);
    db_client_close(walk.client);
    free(walk.all_kept);
    audit_past_free(&walk.past);
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (!good && err->code == EXIT_DONE)
        error_set(err, EXIT_UNEXPECTED, "out of memory");
    return good;
}
