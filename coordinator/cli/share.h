/* Shares given on the command line as ID=FILE. */
#ifndef QUORATE_CLI_SHARE_H
#define QUORATE_CLI_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/check.h"
#include "base/error.h"
#include "base/options.h"

enum { ENVELOPE_MAX_BYTES = 16 * 1024 * 1024, ENVELOPES_MAX_BYTES = 256 * 1024 * 1024 };

struct share {
    int32_t node_id;
    const char *path;
    unsigned char *bytes;
    size_t size; /* 1..ENVELOPE_MAX_BYTES */
    bool sealed; /* how it is sent, see cli/sealing.h */
};

struct share_list {
    struct share *items;
    size_t count;
};

/* Reads every ID=FILE of `given` into `shares`, a struct of zeros at first; free it with shares_free, which wipes them,
 * whatever the result. EXIT_USAGE for a bad syntax, the same node twice, and a file that cannot be read, is empty or
 * too large; EXIT_UNEXPECTED without memory. No byte read is in any error. */
bool shares_read(const struct option_list *given, struct share_list *shares, struct error *err) MUST_CHECK;
void share_wipe(struct share *share); /* its bytes are gone */
void shares_free(struct share_list *shares);

/* Reads at most `room` bytes; how many there were, or -1 with errno. A pipe is as good as a file. */
ssize_t share_file_read(const char *path, unsigned char *buffer, size_t room) MUST_CHECK;

#endif
