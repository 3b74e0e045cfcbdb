/* Keeps shares in SQLite: a row is written once, and its key never gets another nonce or other bytes. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    FORMAT = 1,                  /* PRAGMA user_version */
    APPLICATION_ID = 0x71756F63, /* "quoc": tells a custodian's store from any other SQLite file */
    BUSY_TIMEOUT_MS = 5000,
};

struct store {
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *rollback, *insert, *lookup;
};

/* A checkpoint copies pages back and syncs the main file, so it is made rarer than SQLite's 1,000 pages. */
static const char settings[] =
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;"
    "PRAGMA wal_autocheckpoint = 4000;"
    "PRAGMA journal_size_limit = 67108864;"
    "PRAGMA cache_size = -16384;"
    "PRAGMA trusted_schema = OFF;";

/* Times are microseconds since 1970. */
static const char schema[] =
    "CREATE TABLE meta ("
    " only INTEGER PRIMARY KEY CHECK (only = 1),"
    " node_id INTEGER NOT NULL CHECK (node_id BETWEEN 1 AND 32767),"
    " opened_at INTEGER NOT NULL"
    ") STRICT;"
    "CREATE TABLE share ("
    " deployment TEXT NOT NULL,"
    " round_id TEXT NOT NULL,"
    " node_id INTEGER NOT NULL CHECK (node_id BETWEEN 1 AND 32767),"
    " nonce INTEGER NOT NULL CHECK (nonce > 0),"
    " payload BLOB NOT NULL CHECK (length(payload) > 0),"
    " sha256 BLOB NOT NULL CHECK (length(sha256) = 32),"
    " stored_at INTEGER NOT NULL,"
    " UNIQUE (deployment, round_id, node_id)" /* with a rowid, since payloads may be large */
    ") STRICT;";

static bool fail(const struct store *store, const char *doing, struct error *err) {
    enum exit_code code = sqlite3_errcode(store->db) == SQLITE_NOTADB ? EXIT_USAGE : EXIT_UNEXPECTED;
    return error_set(err, code, "store %s: cannot %s: %s (SQLite code %d)", store->path, doing,
                     sqlite3_errmsg(store->db), sqlite3_extended_errcode(store->db));
}

static bool execute(struct store *store, const char *sql, const char *doing, struct error *err) {
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK || fail(store, doing, err);
}

/* Runs a statement that returns no row. */
static bool run(sqlite3_stmt *statement) {
    bool done = sqlite3_step(statement) == SQLITE_DONE;
    return sqlite3_reset(statement) == SQLITE_OK && done;
}

static bool query_int(struct store *store, const char *sql, int64_t *value, struct error *err) {
    sqlite3_stmt *statement = NULL;
    bool good =
        sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
    if (good)
        *value = sqlite3_column_int64(statement, 0);
    else
        (void)fail(store, "read what it is", err);
    sqlite3_finalize(statement);
    return good;
}

/* Creates the file with mode 0600, or looks whether the one that is there is as private. Closed again before SQLite
 * opens it, because closing a descriptor later would drop SQLite's locks. */
static bool check_file(const char *path, struct error *err) {
    struct stat info;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return error_set(err, EXIT_UNEXPECTED, "store %s: cannot open: %s", path, strerror(errno));
    bool known = fstat(fd, &info) == 0;
    close(fd);
    if (!known)
        return error_set(err, EXIT_UNEXPECTED, "store %s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(err, EXIT_USAGE, "store %s: not a regular file", path);
    if (info.st_mode & 077) {
        return error_set(err, EXIT_USAGE, "store %s: mode %04o lets others in; it must be 0600", path,
                         (unsigned)(info.st_mode & 07777));
    }
    return true;
}

/* Is this an empty file (then `fresh`), or a store of this format for this node? */
static bool identify(struct store *store, int node_id, bool *fresh, struct error *err) {
    int64_t application, format, objects, owner;

    if (!query_int(store, "PRAGMA application_id", &application, err) ||
        !query_int(store, "PRAGMA user_version", &format, err) ||
        !query_int(store, "SELECT count(*) FROM sqlite_schema", &objects, err))
        return false;
    *fresh = application == 0 && format == 0 && objects == 0;
    if (*fresh)
        return true;
    if (application != APPLICATION_ID)
        return error_set(err, EXIT_USAGE, "store %s: an SQLite file, but not a custodian's store", store->path);
    if (format != FORMAT) {
        return error_set(err, EXIT_USAGE, "store %s: format %lld, but this program knows only format %d", store->path,
                         (long long)format, FORMAT);
    }
    if (!query_int(store, "SELECT node_id FROM meta", &owner, err))
        return false;
    return owner == node_id || error_set(err, EXIT_USAGE, "store %s: belongs to node %lld, not to node %d", store->path,
                                         (long long)owner, node_id);
}

static bool set_up(struct store *store, struct error *err) {
    int64_t wal;
    return execute(store, settings, "open", err) &&
           query_int(store, "SELECT journal_mode = 'wal' FROM pragma_journal_mode", &wal, err) &&
           (wal ||
            error_set(err, EXIT_UNEXPECTED, "store %s: this file system cannot hold a write-ahead log", store->path));
}

/* The commit that notes the opening also syncs the whole WAL: a killed process may have left rows there that can be
 * read but are not on disk, and a receipt must never be given for such a row. */
static bool adopt(struct store *store, int node_id, struct error *err) {
    char create[160], note[80];
    bool fresh;

    (void)snprintf(create, sizeof create,
                   "PRAGMA application_id = %d; PRAGMA user_version = %d; INSERT INTO meta VALUES (1, %d, 0)",
                   APPLICATION_ID, FORMAT, node_id);
    (void)snprintf(note, sizeof note, "UPDATE meta SET opened_at = %lld", (long long)clock_wall_us());
    return execute(store, "BEGIN IMMEDIATE", "begin", err) && identify(store, node_id, &fresh, err) &&
           (!fresh ||
            (execute(store, schema, "create its tables", err) && execute(store, create, "create its tables", err))) &&
           execute(store, note, "write", err) && execute(store, "COMMIT", "commit", err);
}

static bool prepare(struct store *store, const char *sql, sqlite3_stmt **statement, struct error *err) {
    return sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL) == SQLITE_OK ||
           fail(store, "prepare a statement", err);
}

static bool prepare_all(struct store *store, struct error *err) {
    return prepare(store, "BEGIN IMMEDIATE", &store->begin, err) && prepare(store, "COMMIT", &store->commit, err) &&
           prepare(store, "ROLLBACK", &store->rollback, err) &&
           prepare(store,
                   "INSERT INTO share (deployment, round_id, node_id, nonce, payload, sha256, stored_at)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (deployment, round_id, node_id) DO NOTHING",
                   &store->insert, err) &&
           prepare(store,
                   "SELECT nonce = ?4 AND sha256 = ?5 FROM share"
                   " WHERE deployment = ?1 AND round_id = ?2 AND node_id = ?3",
                   &store->lookup, err);
}

struct store *store_open(const char *path, int node_id, struct error *err) {
    if (!check_file(path, err))
        return NULL;
    struct store *store = calloc(1, sizeof *store);
    if (!store) {
        (void)error_set(err, EXIT_UNEXPECTED, "store %s: out of memory", path);
        return NULL;
    }
    store->path = path;
    if (sqlite3_open_v2(path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        (void)error_set(err, EXIT_UNEXPECTED, "store %s: %s", path,
                        store->db ? sqlite3_errmsg(store->db) : "out of memory");
        goto failed;
    }
    (void)sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    bool fresh; /* asked once before anything is changed, and again under the write lock */
    if (!identify(store, node_id, &fresh, err) || !set_up(store, err) || !adopt(store, node_id, err) ||
        !prepare_all(store, err))
        goto failed;
    return store;
failed:
    store_close(store);
    return NULL;
}

static bool bind_key(sqlite3_stmt *statement, const struct envelope_key *key) {
    return sqlite3_bind_text(statement, 1, key->deployment, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_text(statement, 2, key->round_id, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_int(statement, 3, key->node_id) == SQLITE_OK &&
           sqlite3_bind_int64(statement, 4, key->nonce) == SQLITE_OK;
}

/* Looks at the row that was in the way. */
static bool compare(struct store *store, struct put *put) {
    if (!bind_key(store->lookup, &put->key) ||
        sqlite3_bind_blob(store->lookup, 5, put->digest, SHA256_BYTES, SQLITE_STATIC) != SQLITE_OK)
        return false;
    bool found = sqlite3_step(store->lookup) == SQLITE_ROW;
    if (found)
        put->result = sqlite3_column_int(store->lookup, 0) ? PUT_HELD : PUT_CONFLICT;
    return sqlite3_reset(store->lookup) == SQLITE_OK && found;
}

static bool put_one(struct store *store, struct put *put, int64_t now_us) {
    if (!bind_key(store->insert, &put->key) ||
        sqlite3_bind_blob64(store->insert, 5, put->payload, put->payload_size, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_blob(store->insert, 6, put->digest, SHA256_BYTES, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_int64(store->insert, 7, now_us) != SQLITE_OK || !run(store->insert))
        return false;
    if (sqlite3_changes(store->db) == 0)
        return compare(store, put);
    put->result = PUT_STORED;
    return true;
}

/* What is committed to a file that has lost its name is gone with this process: no receipt may be given for it. */
static bool still_there(struct store *store, struct error *err) {
    int moved = 0;
    (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    return !moved || error_set(err, EXIT_UNEXPECTED,
                               "store %s: the file was moved, deleted or replaced: put it back, or start the custodian "
                               "again",
                               store->path);
}

bool store_put_group(struct store *store, struct put *list, struct error *err) {
    int64_t now_us = clock_wall_us();
    bool good = run(store->begin);

    for (struct put *put = list; good && put; put = put->next)
        good = put_one(store, put, now_us);
    good = (good && run(store->commit)) || fail(store, "write", err);
    if (good && still_there(store, err))
        return true;
    if (!sqlite3_get_autocommit(store->db))
        (void)run(store->rollback);
    for (struct put *put = list; put; put = put->next)
        put->result = PUT_FAILED;
    return false;
}

void store_close(struct store *store) {
    if (!store)
        return;
    sqlite3_finalize(store->begin);
    sqlite3_finalize(store->commit);
    sqlite3_finalize(store->rollback);
    sqlite3_finalize(store->insert);
    sqlite3_finalize(store->lookup);
    sqlite3_close(store->db);
    free(store);
}
