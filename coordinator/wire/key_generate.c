/* Draws a key pair and puts its secret half into a new file that survives a crash. */
#include "wire/key.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A new file's name lasts only once its directory is on disk as well. */
static bool sync_directory_of(const char *path) {
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

static bool write_new_file(const char *path, const char *text, size_t size, struct error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return error_set(err, EXIT_REFUSED,
                         "key file \"%.300s\" exists and is never overwritten: choose another name or move it away",
                         path);
    if (fd < 0)
        return error_set(err, EXIT_USAGE, "key file \"%.300s\" cannot be created: %s", path, strerror(errno));
    /* fchmod: a umask may have taken from the mode. */
    bool good = fchmod(fd, 0600) == 0 && write_fully(fd, text, size) && fsync(fd) == 0;
    int cause = errno;
    if (close(fd) != 0 && good) {
        good = false;
        cause = errno;
    }
    if (good && !sync_directory_of(path)) {
        good = false;
        cause = errno;
    }
    if (!good) {
        unlink(path);
        return error_set(err, EXIT_UNEXPECTED, "key file \"%.300s\" cannot be written: %s", path, strerror(cause));
    }
    return true;
}

bool key_generate(const char *path, struct public_key *key, struct error *err) {
    static const char prefix[] = "whsk_";
    enum { TEXT_ROOM = SECRET_KEY_TEXT + 1 };
    unsigned char *secret = sodium_malloc(crypto_sign_SECRETKEYBYTES);
    char *text = sodium_malloc(TEXT_ROOM);
    struct public_key drawn;
    bool good = false;
    if (secret == NULL || text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED,
                        "no protected memory for the secret key: raise the limit of locked memory");
    } else if (crypto_sign_keypair(drawn.bytes, secret) != 0) {
        (void)error_set(err, EXIT_UNEXPECTED, "libsodium could not draw a key pair");
    } else {
        memcpy(text, prefix, sizeof prefix - 1);
        sodium_bin2base64(text + sizeof prefix - 1, TEXT_ROOM - (sizeof prefix - 1), secret, crypto_sign_SECRETKEYBYTES,
                          sodium_base64_VARIANT_ORIGINAL);
        text[SECRET_KEY_TEXT] = '\n'; /* in place of the final 0: the file holds one line */
        good = write_new_file(path, text, TEXT_ROOM, err);
    }
    if (good)
        *key = drawn;
    sodium_free(secret); /* wipes, as for the text */
    sodium_free(text);
    return good;
}
