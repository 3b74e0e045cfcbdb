/* The hosts of a connection string in the order in which they are tried: one that did not answer goes to the end. */
#ifndef QUORATE_DB_HOSTS_H
#define QUORATE_DB_HOSTS_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/check.h"

/* Start from a struct of zeros. The lists are written as in a connection string, "a,b,c"; NULL: not given. */
struct db_hosts {
    char *host, *hostaddr, *port;
    unsigned count;     /* 0: not known yet */
    unsigned timeout_s; /* connect_timeout as given; 0: not given, or no limit */
};

/* Takes the lists from a connection that has just been begun, whether they came from its string, a service file or the
 * environment. False: out of memory. */
bool db_hosts_learn(struct db_hosts *hosts, const PGconn *conn) MUST_CHECK;
void db_hosts_free(struct db_hosts *hosts);

/* The host that `conn` is at did not answer: the next connection begins with the one after it. */
void db_hosts_skip(struct db_hosts *hosts, const PGconn *conn);

#endif
