/* Reads and checks the files of TLS with GnuTLS. */
#include "wire/tls_files.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/public_file.h"
#include "wire/key_file.h"

enum { FILE_BYTES_MAX = 4 * 1024 * 1024, KEY_BYTES_MAX = 64 * 1024 };

static gnutls_datum_t datum(char *text, size_t size) {
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)size};
}

/* In memory of its own, which sodium_free wipes. */
static char *read_key(const struct tls_file *file, size_t *size, struct error *err) {
    int fd = key_file_open(file->option, file->path, err);
    if (fd < 0)
        return NULL;
    char *text = sodium_malloc(KEY_BYTES_MAX);
    ssize_t got = text != NULL ? key_file_read(fd, text, KEY_BYTES_MAX) : -1;
    close(fd);
    if (got < 0) {
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be read", file->option, file->path);
        sodium_free(text);
        return NULL;
    }
    *size = (size_t)got;
    return text;
}

static bool set_pair(gnutls_certificate_credentials_t made, const struct tls_file *certificate,
                     const struct tls_file *key, struct error *err) {
    size_t certificate_size, key_size;
    char *certificate_text =
        public_file_read(certificate->option, certificate->path, FILE_BYTES_MAX, &certificate_size, err);
    char *key_text = certificate_text != NULL ? read_key(key, &key_size, err) : NULL;
    bool good = key_text != NULL;
    if (good) {
        const gnutls_datum_t pair[] = {datum(certificate_text, certificate_size), datum(key_text, key_size)};
        int code = gnutls_certificate_set_x509_key_mem2(made, &pair[0], &pair[1], GNUTLS_X509_FMT_PEM, NULL, 0);
        good = code >= 0 ||
               error_set(err, EXIT_USAGE,
                         "%s \"%.300s\" and %s \"%.300s\" are no certificate and its secret key, in PEM "
                         "and without a password: %s",
                         certificate->option, certificate->path, key->option, key->path, gnutls_strerror(code));
    }
    sodium_free(key_text);
    free(certificate_text);
    return good;
}

static bool set_ca(gnutls_certificate_credentials_t made, const struct tls_file *file, struct error *err) {
    size_t size;
    char *text = public_file_read(file->option, file->path, FILE_BYTES_MAX, &size, err);
    if (text == NULL)
        return false;
    const gnutls_datum_t bundle = datum(text, size);
    int count = gnutls_certificate_set_x509_trust_mem(made, &bundle, GNUTLS_X509_FMT_PEM);
    free(text);
    if (count > 0)
        return true;
    return error_set(err, EXIT_USAGE, "%s \"%.300s\" holds no certificate of a CA in PEM: %s", file->option, file->path,
                     count < 0 ? gnutls_strerror(count) : "it has none at all");
}

gnutls_certificate_credentials_t tls_files_load(const struct tls_files *files, struct error *err) {
    gnutls_certificate_credentials_t made = NULL;
    if (gnutls_certificate_allocate_credentials(&made) < 0) {
        (void)error_set(err, EXIT_UNEXPECTED, "GnuTLS: out of memory");
        return NULL;
    }
    if ((files->certificate.path == NULL || set_pair(made, &files->certificate, &files->key, err)) &&
        (files->ca.path == NULL || set_ca(made, &files->ca, err)))
        return made;
    gnutls_certificate_free_credentials(made);
    return NULL;
}
