/* Which addresses a node may have: link-local, multicast and metadata addresses never, nor IPv6 addresses that lead to
 * them; others by the networks that are allowed. */
#include "transport/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"

enum { IPV4_BYTES = 4, IPV6_BYTES = 16 };

/* An address, IPv4 ones as such however they were written. */
struct address {
    int family;
    unsigned char bytes[IPV6_BYTES];
};

static const struct {
    struct network network;
    const char *what;
} FORBIDDEN[] = {
    {{AF_INET, 8, {0}}, "stands for no host"},
    {{AF_INET, 16, {169, 254}}, "is link-local"},
    {{AF_INET, 4, {224}}, "is multicast"},
    {{AF_INET, 32, {255, 255, 255, 255}}, "is broadcast"},
    {{AF_INET, 32, {100, 100, 100, 200}}, "is a metadata service"}, /* Alibaba Cloud */
    {{AF_INET, 32, {168, 63, 129, 16}}, "is a metadata service"},   /* Azure */
    {{AF_INET, 32, {192, 0, 0, 192}}, "is a metadata service"},     /* Oracle Cloud, the older one */
    {{AF_INET6, 128, {0}}, "stands for no host"},
    {{AF_INET6, 10, {0xfe, 0x80}}, "is link-local"},
    {{AF_INET6, 8, {0xff}}, "is multicast"},
    {{AF_INET6, 128, {0xfd, 0, 0x0e, 0xc2, [14] = 0x02, 0x54}}, "is a metadata service"},          /* AWS */
    {{AF_INET6, 128, {0xfd, 0, 0x0e, 0xc2, [15] = 0x23}}, "is a metadata service"},                /* AWS, of pods */
    {{AF_INET6, 128, {0xfd, 0x20, 0, 0xce, [14] = 0x02, 0x54}}, "is a metadata service"},          /* Google Cloud */
    {{AF_INET6, 128, {0xfd, 0, 0, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe}}, "is a metadata service"}, /* Oracle Cloud */
    {{AF_INET6, 128, {0xfd, 0, 0, 0x42, [15] = 0x42}}, "is a metadata service"},                   /* Scaleway */
    {{AF_INET6, 128, {0xfd, 0, 0xa9, 0xfe, 0xa9, 0xfe, [15] = 0x01}}, "is a metadata service"},    /* Linode */
};

static const struct network LOOPBACK[] = {{AF_INET, 8, {127}}, {AF_INET6, 128, {[15] = 1}}};

/* IPv6 networks whose addresses hold an IPv4 address to which something on the way sends what is sent to them. */
static const struct {
    struct network network;
    unsigned char at[IPV4_BYTES]; /* where its bytes are */
    unsigned char inverted;       /* 0xff: they are all turned round */
} EMBEDDING[] = {
    {{AF_INET6, 96, {0}}, {12, 13, 14, 15}, 0},                         /* IPv4-compatible, ::a.b.c.d */
    {{AF_INET6, 96, {[8] = 0xff, 0xff}}, {12, 13, 14, 15}, 0},          /* translated, ::ffff:0:a.b.c.d */
    {{AF_INET6, 96, {0, 0x64, 0xff, 0x9b}}, {12, 13, 14, 15}, 0},       /* NAT64 */
    {{AF_INET6, 48, {0, 0x64, 0xff, 0x9b, 0, 1}}, {12, 13, 14, 15}, 0}, /* NAT64 with a prefix of one's own: of */
    {{AF_INET6, 48, {0, 0x64, 0xff, 0x9b, 0, 1}}, {6, 7, 9, 10}, 0},    /* 96, 48, 56 or 64 bits, by RFC 6052 */
    {{AF_INET6, 48, {0, 0x64, 0xff, 0x9b, 0, 1}}, {7, 9, 10, 11}, 0},
    {{AF_INET6, 48, {0, 0x64, 0xff, 0x9b, 0, 1}}, {9, 10, 11, 12}, 0},
    {{AF_INET6, 16, {0x20, 0x02}}, {2, 3, 4, 5}, 0},              /* 6to4 */
    {{AF_INET6, 32, {0x20, 0x01, 0, 0}}, {12, 13, 14, 15}, 0xff}, /* Teredo: the client's, and */
    {{AF_INET6, 32, {0x20, 0x01, 0, 0}}, {4, 5, 6, 7}, 0},        /* its server's */
};

static bool within(const struct network *network, const struct address *address) {
    if (network->family != address->family)
        return false;
    size_t bytes = (size_t)network->bits / 8;
    unsigned rest = (unsigned)network->bits % 8;
    return memcmp(network->address, address->bytes, bytes) == 0 &&
           (rest == 0 || (network->address[bytes] ^ address->bytes[bytes]) >> (8 - rest) == 0);
}

static bool within_any(const struct network *networks, size_t count, const struct address *address) {
    for (size_t i = 0; i < count; i++)
        if (within(&networks[i], address))
            return true;
    return false;
}

static bool is_loopback(const struct address *address) {
    return within_any(LOOPBACK, sizeof LOOPBACK / sizeof LOOPBACK[0], address);
}

/* What keeps nodes from this address whatever the rules are, or NULL. */
static const char *forbidden(const struct address *address) {
    for (size_t i = 0; i < sizeof FORBIDDEN / sizeof FORBIDDEN[0]; i++)
        if (within(&FORBIDDEN[i].network, address))
            return FORBIDDEN[i].what;
    return NULL;
}

/* The same for an IPv4 address that an IPv6 one holds: somebody else's loopback is no place for a node either. */
static const char *forbidden_behind(const struct address *address) {
    return is_loopback(address) ? "is loopback" : forbidden(address);
}

/* ISATAP: any network, then 0:5efe or 200:5efe, then an IPv4 address. */
static bool is_isatap(const struct address *address) {
    const unsigned char *bytes = address->bytes;
    return address->family == AF_INET6 && (bytes[8] & ~2) == 0 && bytes[9] == 0 && bytes[10] == 0x5e &&
           bytes[11] == 0xfe;
}

/* What keeps nodes from an IPv4 address that this one leads to, or NULL; `inner` is that address. */
static const char *leads_astray(const struct address *address, struct address *inner) {
    *inner = (struct address){.family = AF_INET};
    if (is_loopback(address))
        return NULL;
    const char *what = NULL;
    for (size_t i = 0; what == NULL && i < sizeof EMBEDDING / sizeof EMBEDDING[0]; i++) {
        if (!within(&EMBEDDING[i].network, address))
            continue;
        for (size_t k = 0; k < IPV4_BYTES; k++)
            inner->bytes[k] = address->bytes[EMBEDDING[i].at[k]] ^ EMBEDDING[i].inverted;
        what = forbidden_behind(inner);
    }
    if (what == NULL && is_isatap(address)) {
        memcpy(inner->bytes, address->bytes + 12, IPV4_BYTES);
        what = forbidden_behind(inner);
    }
    return what;
}

static bool is_mapped(const unsigned char bytes[IPV6_BYTES]) {
    static const unsigned char prefix[12] = {[10] = 0xff, 0xff};
    return memcmp(bytes, prefix, sizeof prefix) == 0;
}

static bool address_take(const struct sockaddr *from, struct address *address) {
    *address = (struct address){.family = from->sa_family};
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        memcpy(address->bytes, &in.sin_addr, IPV4_BYTES);
    } else if (from->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, from, sizeof in);
        memcpy(address->bytes, &in.sin6_addr, IPV6_BYTES);
        if (is_mapped(address->bytes)) {
            address->family = AF_INET;
            memmove(address->bytes, address->bytes + 12, IPV4_BYTES);
        }
    } else {
        return false;
    }
    return true;
}

bool network_parse(const char *text, struct network *network, struct error *err) {
    char address[INET6_ADDRSTRLEN + 1];
    const char *slash = strchr(text, '/');
    size_t length = slash != NULL ? (size_t)(slash - text) : strlen(text);
    int64_t bits = 0;
    bool good = length < sizeof address;
    *network = (struct network){.family = memchr(text, ':', length) != NULL ? AF_INET6 : AF_INET};
    int most = network->family == AF_INET6 ? 128 : 32;
    if (good) {
        memcpy(address, text, length);
        address[length] = '\0';
        good = inet_pton(network->family, address, network->address) == 1 &&
               (slash == NULL || int_parse(slash + 1, 0, most, &bits));
    }
    if (!good)
        return error_set(err, EXIT_USAGE, "\"%.100s\" is no network: write it as 10.1.0.0/16 or fd12:3456::/32", text);
    network->bits = slash != NULL ? (int)bits : most;
    if (network->family == AF_INET6 && network->bits >= 96 && is_mapped(network->address)) {
        network->family = AF_INET;
        network->bits -= 96;
        memmove(network->address, network->address + 12, IPV4_BYTES);
        memset(network->address + IPV4_BYTES, 0, IPV6_BYTES - IPV4_BYTES);
    }
    for (int bit = network->bits; bit < (network->family == AF_INET6 ? 128 : 32); bit++)
        if ((network->address[bit / 8] & (0x80U >> (bit % 8))) != 0)
            return error_set(err, EXIT_USAGE,
                             "\"%.100s\" has bits set behind its length: write the network's first address, such as "
                             "10.1.0.0/16",
                             text);
    struct address first = {.family = network->family};
    memcpy(first.bytes, network->address, sizeof first.bytes);
    for (size_t i = 0; i < sizeof FORBIDDEN / sizeof FORBIDDEN[0]; i++)
        if (FORBIDDEN[i].network.bits <= network->bits && within(&FORBIDDEN[i].network, &first))
            return error_set(err, EXIT_USAGE, "\"%.100s\" %s: no node may be there", text, FORBIDDEN[i].what);
    return true;
}

bool peer_allowed(const struct peer_rules *rules, const struct sockaddr *address, bool tls, char why[PEER_WHY]) {
    struct address peer, inner;
    char text[INET6_ADDRSTRLEN], behind[INET6_ADDRSTRLEN];
    why[0] = '\0';
    if (!address_take(address, &peer)) {
        (void)snprintf(why, PEER_WHY, "it has no IP address");
        return false;
    }
    (void)inet_ntop(peer.family, peer.bytes, text, sizeof text);
    const char *what = forbidden(&peer);
    if (what != NULL)
        (void)snprintf(why, PEER_WHY, "%s %s: no node may be there", text, what);
    else if ((what = leads_astray(&peer, &inner)) != NULL)
        (void)snprintf(why, PEER_WHY, "%s leads to %s, which %s", text,
                       inet_ntop(AF_INET, inner.bytes, behind, sizeof behind), what);
    else if (rules->network_count > 0 && !within_any(rules->networks, rules->network_count, &peer))
        (void)snprintf(why, PEER_WHY, "%s is in no network of --allow-network", text);
    else if (!tls && !rules->plain_http && !is_loopback(&peer))
        (void)snprintf(why, PEER_WHY, "plain http to %s: use https, or --allow-plain-http", text);
    return why[0] == '\0';
}
