/* Certificates, their secret key, and the CAs that are trusted: PEM files, read and checked before they are used. */
#ifndef QUORATE_WIRE_TLS_FILES_H
#define QUORATE_WIRE_TLS_FILES_H

#include <gnutls/gnutls.h>

#include "base/check.h"
#include "base/error.h"

struct tls_file {
    const char *option; /* what errors call it: "--tls-cert" */
    const char *path;   /* NULL: not given */
};

struct tls_files {
    struct tls_file certificate, key; /* both or none; the certificate first, then those between it and its CA */
    struct tls_file ca;
};

/* EXIT_USAGE when a file cannot be read, holds nothing of use, the key is protected by a password, can be read by
 * others or does not belong to the certificate. NULL on error; free with gnutls_certificate_free_credentials. */
gnutls_certificate_credentials_t tls_files_load(const struct tls_files *files, struct error *err) MUST_CHECK;

#endif
