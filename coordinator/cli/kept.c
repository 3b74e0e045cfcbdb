/* Keeps sealed envelopes. The file is one line of text, which says what it is, and then the envelope:
 *
 *     quorate-sealed-v1 <webhook id> <sealing key> <SHA-256 of the envelope and then the share>
 *
 * The digest tells a share that has changed since; the envelope's random bytes keep it from telling anything else. */
#include "cli/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/key_file.h"

enum { LINE_MAX_BYTES = 18 + WEBHOOK_ID_MAX + 1 + SEAL_KEY_TEXT + 1 + SHA256_HEX + 1 };

/* What a file of this share and envelope begins with; the length. */
static size_t line_of(const struct kept_for *wanted, const struct share *share, const unsigned char *envelope,
                      size_t size, char out[LINE_MAX_BYTES + 1]) {
    char id[WEBHOOK_ID_MAX + 1], key[SEAL_KEY_TEXT + 1], hex[SHA256_HEX + 1];
    unsigned char digest[SHA256_BYTES];
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, envelope, size);
    crypto_hash_sha256_update(&state, share->bytes, share->size);
    crypto_hash_sha256_final(&state, digest);
    sha256_hex(digest, hex);
    webhook_id_format(&wanted->key, id);
    seal_key_format(&wanted->node, key);
    return (size_t)snprintf(out, LINE_MAX_BYTES + 1, "quorate-sealed-v1 %s %s %s\n", id, key, hex);
}

/* Says which of the words differs from what it should be. */
static bool refuse(const char *path, const unsigned char *text, size_t size, const char *wanted, struct error *err) {
    static const char *const what[] = {"of another format", "of another round, node, nonce or deployment",
                                       "sealed to another key", "of another share, or damaged"};
    size_t word = 0;
    for (size_t i = 0; i < size && wanted[i] && text[i] == (unsigned char)wanted[i]; i++)
        word += wanted[i] == ' ';
    return error_set(err, EXIT_REFUSED,
                     "the sealed envelope kept in \"%.400s\" is %s, so it is not sent: move it away only if nothing "
                     "was distributed with it",
                     path, what[word < 3 ? word : 3]);
}

/* Takes a file's contents apart; `*text` becomes the envelope. */
static bool check(const struct kept_for *wanted, const struct share *share, const char *path, unsigned char *text,
                  size_t *size, struct error *err) {
    char line[LINE_MAX_BYTES + 1];
    unsigned char *end = memchr(text, '\n', *size < LINE_MAX_BYTES ? *size : LINE_MAX_BYTES);
    size_t begins = end ? (size_t)(end - text) + 1 : *size;
    size_t line_size = line_of(wanted, share, text + begins, *size - begins, line);
    if (begins != line_size || memcmp(text, line, line_size) != 0)
        return refuse(path, text, *size, line, err);
    *size -= begins;
    memmove(text, text + begins, *size);
    return true;
}

/* False with errno ENOENT, and no error, when there is none. Whoever put the file there may have been killed before its
 * name was on disk: nothing is sent before it is. */
static bool read_kept(const struct kept_for *wanted, const struct share *share, const char *path,
                      unsigned char **envelope, size_t *size, struct error *err) {
    enum { ROOM = LINE_MAX_BYTES + ENVELOPE_MAX_BYTES };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno != ENOENT &&
               error_set(err, EXIT_USAGE, "the sealed envelope kept in \"%.400s\" cannot be read: %s", path,
                         strerror(errno));
    struct stat status;
    ssize_t got = -1;
    unsigned char *text = NULL;
    bool good = false;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        (void)error_set(err, EXIT_USAGE, "\"%.400s\", where the sealed envelope is kept, is no regular file", path);
    else if (status.st_size > ROOM)
        good = refuse(path, NULL, 0, "", err);
    else if (!(text = malloc((size_t)status.st_size + 1)))
        (void)error_set(err, EXIT_UNEXPECTED, "out of memory for the envelopes");
    else if ((got = key_file_read(fd, (char *)text, (size_t)status.st_size)) < 0)
        (void)error_set(err, EXIT_USAGE, "the sealed envelope kept in \"%.400s\" cannot be read: %s", path,
                        strerror(errno));
    else if (!key_file_sync_directory(path))
        (void)error_set(err, EXIT_UNEXPECTED, "the folder of \"%.400s\" cannot be written to disk: %s", path,
                        strerror(errno));
    else
        good = check(wanted, share, path, text, (*size = (size_t)got, size), err);
    close(fd);
    *envelope = good ? text : NULL;
    if (!good)
        free(text);
    errno = 0;
    return good;
}

/* Under a name of its own until it is whole and on disk, then under `path`, unless somebody else was first: true, and
 * `*first` false. */
static bool write_kept(const char *path, const char *text, size_t size, bool *first, struct error *err) {
    char draft[PATH_MAX];
    if (snprintf(draft, sizeof draft, "%s.%08" PRIx32, path, randombytes_random()) >= (int)sizeof draft)
        return error_set(err, EXIT_USAGE, "the name of the share is too long to keep its sealed envelope beside it");
    if (!key_file_write("the sealed envelope", draft, text, size, err))
        return false;
    *first = link(draft, path) == 0;
    bool good = *first || errno == EEXIST;
    int cause = errno;
    unlink(draft);
    if (good && !key_file_sync_directory(path)) {
        good = false;
        cause = errno;
    }
    return good || error_set(err, EXIT_UNEXPECTED, "the sealed envelope \"%.400s\" cannot be written: %s", path,
                             strerror(cause));
}

/* Seals anew and keeps the result. */
static bool seal_and_keep(const struct kept_for *wanted, const struct share *share, const char *path,
                          unsigned char **envelope, size_t *size, bool *first, struct error *err) {
    char line[LINE_MAX_BYTES + 1];
    size_t sealed_size = seal_overhead(&wanted->key) + share->size;
    unsigned char *text = malloc(LINE_MAX_BYTES + sealed_size);
    unsigned char *sealed = malloc(sealed_size);
    bool good = false;
    if (!text || !sealed) {
        (void)error_set(err, EXIT_UNEXPECTED, "out of memory for the envelopes");
    } else if (!seal(&wanted->node, &wanted->key, share->bytes, share->size, sealed)) {
        (void)error_set(err, EXIT_USAGE,
                        "nothing can be sealed to the sealing key of node %d: add the node with another",
                        wanted->key.node_id);
    } else {
        size_t line_size = line_of(wanted, share, sealed, sealed_size, line);
        memcpy(text, line, line_size);
        memcpy(text + line_size, sealed, sealed_size);
        good = write_kept(path, (const char *)text, line_size + sealed_size, first, err);
    }
    free(text);
    if (good && *first) {
        *envelope = sealed;
        *size = sealed_size;
    } else {
        free(sealed);
    }
    return good;
}

/* A share out of a pipe has no place beside it. */
static bool name_of(const struct kept_for *wanted, const struct share *share, char path[PATH_MAX], struct error *err) {
    struct stat status;
    if (stat(share->path, &status) != 0 || !S_ISREG(status.st_mode))
        return error_set(err, EXIT_USAGE,
                         "--share: the file of node %d, %.400s, is no regular file, so its sealed envelope cannot be "
                         "kept beside it: give a file, or --unsealed",
                         wanted->key.node_id, share->path);
    int size = snprintf(path, PATH_MAX, "%s.%s.%d.%" PRId64 ".sealed", share->path, wanted->key.round_id,
                        wanted->key.node_id, wanted->key.nonce);
    return size < PATH_MAX || error_set(err, EXIT_USAGE,
                                        "the name of node %d's share is too long to keep its sealed "
                                        "envelope beside it",
                                        wanted->key.node_id);
}

bool kept_envelope(const struct kept_for *wanted, const struct share *share, unsigned char **envelope, size_t *size,
                   struct error *err) {
    char path[PATH_MAX];
    size_t most = ENVELOPE_MAX_BYTES - seal_overhead(&wanted->key);
    if (share->size > most)
        return error_set(err, EXIT_USAGE,
                         "--share: the file of node %d, %.400s, has %zu bytes: sealed for this round, at most %zu fit "
                         "into an envelope of 16 MiB",
                         wanted->key.node_id, share->path, share->size, most);
    if (!name_of(wanted, share, path, err))
        return false;
    if (read_kept(wanted, share, path, envelope, size, err))
        return true;
    bool first = false;
    if (errno != ENOENT || !seal_and_keep(wanted, share, path, envelope, size, &first, err))
        return false;
    if (first || read_kept(wanted, share, path, envelope, size, err)) /* if not, another call was */
        return true;
    return errno == ENOENT &&
           error_set(
               err, EXIT_USAGE,
               "\"%.400s\", where the sealed envelope is kept, is there and cannot be opened: a symbolic link that "
               "leads nowhere?",
               path);
}
