/* Reads envelopes from files straight into wiped memory: no stdio, whose buffers nobody wipes. */
#include "cli/share.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"

enum { NODE_IDS = 32768 };

/* Splits "7=path". */
static bool parse_share(const char *share, int32_t *node_id, const char **path, struct error *err) {
    const char *equals = strchr(share, '=');
    size_t length = equals ? (size_t)(equals - share) : 0;
    char word[16] = "";
    if (!equals || length == 0 || length >= sizeof word || !equals[1])
        return error_set(err, EXIT_USAGE, "--share: \"%.200s\" is not ID=FILE, such as 1=share-1.bin", share);
    memcpy(word, share, length);
    *path = equals + 1;
    return cli_node_id("--share", word, node_id, err);
}

/* Reads at most `room` bytes; what was read, or -1. A pipe is as good as a file. */
static ssize_t read_all(const char *path, unsigned char *buffer, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t size = 0;
    ssize_t got = 0;
    do {
        got = read(fd, buffer + size, room - size);
        if (got > 0)
            size += (size_t)got;
    } while ((got > 0 && size < room) || (got < 0 && errno == EINTR));
    int reason = errno;
    (void)close(fd);
    errno = reason;
    return got < 0 ? -1 : (ssize_t)size;
}

/* `total`: the bytes of all envelopes so far. */
static bool add_share(const char *share, unsigned char *buffer, bool *seen, size_t *total, struct db_array *node_ids,
                      struct db_array *payloads, struct error *err) {
    int32_t node_id;
    const char *path = NULL;
    if (!parse_share(share, &node_id, &path, err))
        return false;
    if (seen[node_id])
        return error_set(err, EXIT_USAGE, "--share: node %d is given twice: give one file for each node", (int)node_id);
    seen[node_id] = true;

    ssize_t size = read_all(path, buffer, ENVELOPE_MAX_BYTES + 1);
    if (size < 0)
        return error_set(err, EXIT_USAGE, "--share: the file of node %d, %.400s, cannot be read: %s", (int)node_id,
                         path, strerror(errno));
    if (size == 0 || size > ENVELOPE_MAX_BYTES)
        return error_set(err, EXIT_USAGE,
                         "--share: the file of node %d, %.400s, is %s: an envelope is 1 byte to 16 MiB", (int)node_id,
                         path, size == 0 ? "empty" : "larger than 16 MiB");
    db_array_add_int4(node_ids, node_id);
    db_array_add_bytes(payloads, buffer, (size_t)size);
    *total += (size_t)size;
    if (*total > ENVELOPES_MAX_BYTES)
        return error_set(err, EXIT_USAGE,
                         "--share: the files are larger than 256 MiB together: distribute them in "
                         "several calls");
    return true;
}

bool shares_read(const struct option_list *shares, struct db_array *node_ids, struct db_array *payloads,
                 struct error *err) {
    db_array_start(node_ids, DB_INT4);
    db_array_start(payloads, DB_BYTEA);
    unsigned char *buffer = malloc(ENVELOPE_MAX_BYTES + 1);
    bool *seen = calloc(NODE_IDS, sizeof *seen);
    size_t total = 0;
    bool done = buffer && seen;
    if (!done)
        error_set(err, EXIT_UNEXPECTED, "out of memory for the envelopes");
    for (size_t i = 0; done && i < shares->count; i++)
        done = add_share(shares->values[i], buffer, seen, &total, node_ids, payloads, err);
    if (buffer)
        sodium_memzero(buffer, ENVELOPE_MAX_BYTES + 1);
    free(buffer);
    free(seen);
    return done;
}
