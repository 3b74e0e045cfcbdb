/* Reads files that anybody may read, and that nobody else may write: certificates and the like. */
#include "base/public_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool examine(const char *what, const char *path, int fd, size_t most, struct error *err) {
    struct stat status;
    if (fstat(fd, &status) != 0)
        return error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be examined: %s", what, path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return error_set(err, EXIT_USAGE, "%s \"%.300s\" is no regular file", what, path);
    if ((status.st_mode & 022) != 0)
        return error_set(err, EXIT_USAGE, "%s \"%.300s\" has mode %04o, others can write it: chmod 644 it", what, path,
                         (unsigned)(status.st_mode & 07777));
    if (status.st_size > (off_t)most)
        return error_set(err, EXIT_USAGE, "%s \"%.300s\" is larger than %zu bytes", what, path, most);
    return true;
}

char *public_file_read(const char *what, const char *path, size_t most, size_t *size, struct error *err) {
    /* O_NONBLOCK: a FIFO is refused instead of waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be opened: %s", what, path, strerror(errno));
        return NULL;
    }
    char *text = NULL;
    bool good = examine(what, path, fd, most, err);
    FILE *file = good ? fdopen(fd, "r") : NULL;
    if (file == NULL) {
        if (good)
            (void)error_set(err, EXIT_UNEXPECTED, "%s \"%.300s\" cannot be read: %s", what, path, strerror(errno));
        close(fd);
        return NULL;
    }
    text = malloc(most + 1);
    if (text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED, "%s \"%.300s\": out of memory", what, path);
    } else {
        *size = fread(text, 1, most, file);
        text[*size] = '\0';
        if (ferror(file)) {
            (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be read: %s", what, path, strerror(errno));
            free(text);
            text = NULL;
        }
    }
    (void)fclose(file);
    return text;
}
