/* Reads shares from files straight into wiped memory: no stdio, whose buffers nobody wipes. */
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

ssize_t share_file_read(const char *path, unsigned char *buffer, size_t room) {
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

/* `total`: the bytes of all shares so far. */
static bool add_share(const char *given, unsigned char *buffer, bool *seen, size_t *total, struct share *share,
                      struct error *err) {
    if (!parse_share(given, &share->node_id, &share->path, err))
        return false;
    int node_id = (int)share->node_id;
    if (seen[node_id])
        return error_set(err, EXIT_USAGE, "--share: node %d is given twice: give one file for each node", node_id);
    seen[node_id] = true;

    ssize_t size = share_file_read(share->path, buffer, ENVELOPE_MAX_BYTES + 1);
    if (size < 0)
        return error_set(err, EXIT_USAGE, "--share: the file of node %d, %.400s, cannot be read: %s", node_id,
                         share->path, strerror(errno));
    if (size == 0 || size > ENVELOPE_MAX_BYTES)
        return error_set(err, EXIT_USAGE,
                         "--share: the file of node %d, %.400s, is %s: an envelope is 1 byte to 16 MiB", node_id,
                         share->path, size == 0 ? "empty" : "larger than 16 MiB");
    *total += (size_t)size;
    if (*total > ENVELOPES_MAX_BYTES)
        return error_set(err, EXIT_USAGE,
                         "--share: the files are larger than 256 MiB together: distribute them in "
                         "several calls");
    share->bytes = malloc((size_t)size);
    if (!share->bytes)
        return error_set(err, EXIT_UNEXPECTED, "out of memory for the shares");
    share->size = (size_t)size;
    memcpy(share->bytes, buffer, share->size);
    return true;
}

bool shares_read(const struct option_list *given, struct share_list *shares, struct error *err) {
    unsigned char *buffer = malloc(ENVELOPE_MAX_BYTES + 1);
    bool *seen = calloc(NODE_IDS, sizeof *seen);
    shares->items = calloc(given->count, sizeof *shares->items);
    size_t total = 0;
    bool done = buffer && seen && shares->items;
    if (!done)
        error_set(err, EXIT_UNEXPECTED, "out of memory for the shares");
    for (size_t i = 0; done && i < given->count; i++) {
        done = add_share(given->values[i], buffer, seen, &total, &shares->items[i], err);
        shares->count++;
    }
    if (buffer)
        sodium_memzero(buffer, ENVELOPE_MAX_BYTES + 1);
    free(buffer);
    free(seen);
    return done;
}

void share_wipe(struct share *share) {
    if (share->bytes)
        sodium_memzero(share->bytes, share->size);
    free(share->bytes);
    share->bytes = NULL;
}

void shares_free(struct share_list *shares) {
    for (size_t i = 0; i < shares->count; i++)
        share_wipe(&shares->items[i]);
    free(shares->items);
    *shares = (struct share_list){0};
}
