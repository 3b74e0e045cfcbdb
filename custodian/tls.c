/* The custodian's side of TLS, on GnuTLS: every connection is given the certificate that is current when it begins. */
#include "tls.h"

#include <gnutls/x509.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/log.h"
#include "base/told.h"

static const int64_t REFUSED_QUIET_US = 10 * 1000000;

/* What one reading of the files brought. Sessions refer to it until they end: an older one is kept, since nobody counts
 * them and files change a few times a year. */
struct generation {
    struct generation *before;
    gnutls_certificate_credentials_t credentials;
};

struct tls {
    struct tls_files files;
    pthread_mutex_t lock; /* guards the current one */
    struct generation *current;
    struct told refused; /* of the HTTP thread alone */
};

/* When the first certificate of the file ends, for the log. */
static void log_loaded(const struct tls *tls) {
    gnutls_x509_crt_t *chain = NULL;
    unsigned count = 0;
    char until[32] = "unknown";
    struct tm parts;
    if (gnutls_certificate_get_x509_crt(tls->current->credentials, 0, &chain, &count) < 0)
        return;
    time_t end = count > 0 ? gnutls_x509_crt_get_expiration_time(chain[0]) : (time_t)-1;
    if (end != (time_t)-1 && gmtime_r(&end, &parts) != NULL)
        (void)strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &parts);
    for (unsigned i = 0; i < count; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
    log_event(end <= time(NULL) ? LOG_WARN : LOG_INFO, "certificate", "valid_until=%s clients=%s", until,
              tls->files.ca.path ? "verified" : "any");
}

bool tls_reload(struct tls *tls, struct error *err) {
    struct generation *next = calloc(1, sizeof *next);
    if (!next)
        return error_set(err, EXIT_UNEXPECTED, "TLS: out of memory");
    next->credentials = tls_files_load(&tls->files, err);
    if (!next->credentials) {
        free(next);
        return false;
    }
    pthread_mutex_lock(&tls->lock);
    next->before = tls->current;
    tls->current = next;
    pthread_mutex_unlock(&tls->lock);
    log_loaded(tls);
    return true;
}

struct tls *tls_new(const struct tls_files *files, struct error *err) {
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls) {
        (void)error_set(err, EXIT_UNEXPECTED, "TLS: out of memory");
        return NULL;
    }
    tls->files = *files;
    pthread_mutex_init(&tls->lock, NULL);
    if (tls_reload(tls, err))
        return tls;
    tls_free(tls);
    return NULL;
}

void tls_free(struct tls *tls) {
    if (!tls)
        return;
    while (tls->current) {
        struct generation *before = tls->current->before;
        gnutls_certificate_free_credentials(tls->current->credentials);
        free(tls->current);
        tls->current = before;
    }
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* 0: the client's chain ends at a CA of ours, is valid now, and is a client's; a node's of the same CA is not. */
static int verify(gnutls_session_t session, unsigned *status) {
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(char[]){GNUTLS_KP_TLS_WWW_CLIENT}};
    *status = ~0U;
    int code = gnutls_certificate_verify_peers(session, &purpose, 1, status);
    return code < 0 ? code : *status == 0 ? 0 : GNUTLS_E_CERTIFICATE_ERROR;
}

bool tls_trusted(const struct tls *tls, gnutls_session_t session) {
    unsigned count = 0;
    return !tls->files.ca.path || (gnutls_certificate_get_peers(session, &count) != NULL && count > 0);
}

/* Strangers can have this said no more often than told allows. */
static void log_refused(struct tls *tls, gnutls_session_t session, const char *why) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    char peer[64] = "gone", quoted[512];
    if (!told_news(&tls->refused, why, REFUSED_QUIET_US))
        return;
    if (getpeername(gnutls_transport_get_int(session), (struct sockaddr *)&address, &size) == 0)
        (void)getnameinfo((struct sockaddr *)&address, size, peer, sizeof peer, NULL, 0, NI_NUMERICHOST);
    log_event(LOG_WARN, "client_refused", "peer=%s reason=%s", peer, log_quote(why, quoted, sizeof quoted));
}

/* In the handshake, once the client has sent a certificate. */
static int on_certificate(gnutls_session_t session) {
    struct tls *tls = gnutls_session_get_ptr(session);
    gnutls_datum_t said = {0};
    unsigned status;
    int code = verify(session, &status);
    if (code == 0) {
        (void)told_over(&tls->refused);
        return 0;
    }
    bool known = code == GNUTLS_E_CERTIFICATE_ERROR &&
                 gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &said, 0) == 0;
    log_refused(tls, session, known ? (const char *)said.data : gnutls_strerror(code));
    gnutls_free(said.data);
    return GNUTLS_E_CERTIFICATE_ERROR;
}

void tls_end(struct tls *tls, gnutls_session_t session) {
    if (!tls_trusted(tls, session))
        log_refused(tls, session, "it showed no certificate, or left before");
}

void tls_begin(struct tls *tls, gnutls_session_t session) {
    pthread_mutex_lock(&tls->lock);
    gnutls_certificate_credentials_t credentials = tls->current->credentials;
    pthread_mutex_unlock(&tls->lock);
    if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) < 0 || !tls->files.ca.path)
        return;
    gnutls_session_set_ptr(session, tls);
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_function(session, on_certificate);
}

int tls_no_certificate(gnutls_session_t session, const gnutls_datum_t *names, int name_count,
                       const gnutls_pk_algorithm_t *kinds, int kind_count, gnutls_pcert_st **certificates,
                       unsigned int *count, gnutls_privkey_t *key) {
    (void)session, (void)names, (void)name_count, (void)kinds, (void)kind_count, (void)certificates, (void)count;
    (void)key;
    return -1;
}
