/* Reads and writes files that hold secrets. */
#include "wire/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK: a FIFO is refused below instead of waited for. */
int key_file_open(const char *what, const char *path, struct error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be opened: %s", what, path, strerror(errno));
        return -1;
    }
    struct stat status;
    bool good = false;
    if (fstat(fd, &status) != 0)
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be examined: %s", what, path, strerror(errno));
    else if (!S_ISREG(status.st_mode))
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" is no regular file", what, path);
    else if ((status.st_mode & 077) != 0)
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" has mode %04o, open to others: chmod 600 it", what, path,
                        (unsigned)(status.st_mode & 07777));
    else
        good = true;
    if (!good) {
        close(fd);
        return -1;
    }
    return fd;
}

ssize_t key_file_read(int fd, char *buffer, size_t size) {
    size_t used = 0;
    while (used < size) {
        ssize_t got = read(fd, buffer + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

char *key_file_line(const char *what, const char *path, size_t most, struct error *err) {
    int fd = key_file_open(what, path, err);
    if (fd < 0)
        return NULL;
    size_t room = most + 2; /* its newline, and one more byte to notice a longer file */
    char *text = sodium_malloc(room + 1);
    ssize_t size = text != NULL ? key_file_read(fd, text, room) : 0;
    bool good = false;
    if (text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED,
                        "no protected memory for the secret key: raise the limit of locked memory");
    } else if (size < 0) {
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be read: %s", what, path, strerror(errno));
    } else {
        if (size > 0 && text[size - 1] == '\n')
            size--;
        text[size] = '\0';
        good = (strlen(text) == (size_t)size && strchr(text, '\n') == NULL) ||
               error_set(err, EXIT_USAGE, "%s \"%.300s\" holds more than one line of text", what, path);
    }
    close(fd);
    if (!good) {
        sodium_free(text);
        text = NULL;
    }
    return text;
}

static bool write_fully(int fd, const char *text, size_t size) {
    while (size > 0) {
        ssize_t put = write(fd, text, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        text += put;
        size -= (size_t)put;
    }
    return true;
}

bool key_file_sync_directory(const char *path) {
    char *copy = strdup(path);
    if (copy == NULL)
        return false;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int saved_errno = errno;
    if (fd >= 0)
        close(fd);
    free(copy);
    errno = saved_errno;
    return good;
}

bool key_file_write(const char *what, const char *path, const char *text, size_t size, struct error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return error_set(err, EXIT_REFUSED,
                         "%s \"%.300s\" exists and is never overwritten: choose another name or move it away", what,
                         path);
    if (fd < 0)
        return error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be created: %s", what, path, strerror(errno));
    /* fchmod: a umask may have taken from the mode. */
    bool good = fchmod(fd, 0600) == 0 && write_fully(fd, text, size) && fsync(fd) == 0;
    int cause = errno;
    if (close(fd) != 0 && good) {
        good = false;
        cause = errno;
    }
    if (good && !key_file_sync_directory(path)) {
        good = false;
        cause = errno;
    }
    if (!good) {
        unlink(path);
        return error_set(err, EXIT_UNEXPECTED, "%s \"%.300s\" cannot be written: %s", what, path, strerror(cause));
    }
    return true;
}
