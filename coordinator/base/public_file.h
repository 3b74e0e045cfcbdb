/* Reads files that anybody may read, and that nobody else may write: certificates and the like. */
#ifndef QUORATE_BASE_PUBLIC_FILE_H
#define QUORATE_BASE_PUBLIC_FILE_H

#include <stddef.h>

#include "base/check.h"
#include "base/error.h"

/* The whole file, a 0 behind it; to be freed. NULL on error: EXIT_USAGE when it cannot be read, is no regular file, is
 * larger than `most` bytes, or its group or others can write it. `what` is what errors call it: "--ca". */
char *public_file_read(const char *what, const char *path, size_t most, size_t *size, struct error *err) MUST_CHECK;

#endif
