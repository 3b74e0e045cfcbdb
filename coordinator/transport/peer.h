/* Which addresses a node may have, so that nobody who can name a URL can send coordinators where they have no business.
 * Pure. */
#ifndef QUORATE_TRANSPORT_PEER_H
#define QUORATE_TRANSPORT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/error.h"

enum { PEER_WHY = 96 };

struct network {
    int family; /* AF_INET or AF_INET6 */
    int bits;
    unsigned char address[16]; /* 4 bytes of it for AF_INET */
};

/* All zeros: every network, and plain http to this host alone. Whatever the rules are, no node is at a link-local,
 * multicast or unspecified address, nor at one where clouds tell their machines secrets. */
struct peer_rules {
    const struct network *networks; /* where nodes may be */
    size_t network_count;           /* 0: everywhere */
    bool plain_http;                /* to other hosts as well */
};

/* "10.0.0.0/8", "fd12::/64", or an address alone. EXIT_USAGE when it is none, has bits behind its length, or lies where
 * no node may be. */
bool network_parse(const char *text, struct network *network, struct error *err) MUST_CHECK;

/* Whether a connection to `address` may be made, which is an IPv4 address also when it is written as an IPv6 one. When
 * not, `why` says the address, what is wrong and what would be right. */
bool peer_allowed(const struct peer_rules *rules, const struct sockaddr *address, bool tls,
                  char why[PEER_WHY]) MUST_CHECK;

#endif
