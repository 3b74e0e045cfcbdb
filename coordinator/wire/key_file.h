/* Files that hold secrets: read only if nobody else can, written never over another one. */
#ifndef QUORATE_WIRE_KEY_FILE_H
#define QUORATE_WIRE_KEY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/check.h"
#include "base/error.h"

/* Opens a regular file that others can neither read nor write (mode & 077); -1 on error (EXIT_USAGE). `what` is what
 * errors call it: "key file". */
int key_file_open(const char *what, const char *path, struct error *err) MUST_CHECK;

/* Reads until the buffer is full or the file ends; -1 on error. */
ssize_t key_file_read(int fd, char *buffer, size_t size) MUST_CHECK;

/* The one line of at most `most` characters that such a file holds (one final newline allowed), in sodium_malloc memory
 * that the caller frees. A longer one comes cut, but longer than `most`. NULL on error. */
char *key_file_line(const char *what, const char *path, size_t most, struct error *err) MUST_CHECK;

/* A file's new name lasts only once its directory is on disk as well. */
bool key_file_sync_directory(const char *path) MUST_CHECK;

/* Writes a new file of mode 0600 (never over an existing one: EXIT_REFUSED), synced to disk before it returns. */
bool key_file_write(const char *what, const char *path, const char *text, size_t size, struct error *err) MUST_CHECK;

#endif
