/* The custodian's side of TLS: its certificate, whose certificates it asks for, and both anew while it runs. */
#ifndef CUSTODIAN_TLS_H
#define CUSTODIAN_TLS_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"
#include "wire/tls_files.h"

/* For GnuTLS: 1.2 or later. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct tls;

/* NULL on error (EXIT_USAGE), as of tls_files_load. With a CA, clients must have a certificate of it, made for clients.
 */
struct tls *tls_new(const struct tls_files *files, struct error *err) MUST_CHECK;
void tls_free(struct tls *tls); /* NULL is allowed; no connection is left by then */

/* Reads the files again, for connections that come later; may be called from any thread. False on error: then all stays
 * as it was. */
bool tls_reload(struct tls *tls, struct error *err) MUST_CHECK;

/* Gives a new connection what it needs for its handshake, before that begins. A connection for which this fails cannot
 * finish it. */
void tls_begin(struct tls *tls, gnutls_session_t session);
/* It is over: says so in the log if the client never showed what was asked of it. */
void tls_end(struct tls *tls, gnutls_session_t session);

/* Whether the client showed a certificate where one is asked for, which the handshake then verified. It must be true of
 * every session that has finished its handshake. */
bool tls_trusted(const struct tls *tls, gnutls_session_t session);

/* For the HTTP library, which wants a certificate for connections that have none from us: there is none. */
int tls_no_certificate(gnutls_session_t session, const gnutls_datum_t *names, int name_count,
                       const gnutls_pk_algorithm_t *kinds, int kind_count, gnutls_pcert_st **certificates,
                       unsigned int *count, gnutls_privkey_t *key);

#endif
