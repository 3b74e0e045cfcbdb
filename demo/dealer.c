/* The demo's dealer: splits every city's coordinate with Shamir t-of-n into one envelope file for each node. */
#include <errno.h>
#include <fcntl.h>
#include <libgfshare.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cities.h"

struct scheme {
    unsigned char threshold;
    unsigned char nodes[SHARES_MAX]; /* node ids, which are the shares' x-coordinates as well */
    unsigned char count;
};

static void fill_random(unsigned char *bytes, unsigned int count) {
    randombytes_buf(bytes, count);
}

/* "1,2,3" */
static void parse_nodes(char *text, struct scheme *scheme) {
    for (char *word; (word = strsep(&text, ","));) {
        if (scheme->count == SHARES_MAX)
            give_up("more than %d nodes", SHARES_MAX);
        unsigned char node = number("node", word, SHARES_MAX);
        if (memchr(scheme->nodes, node, scheme->count))
            give_up("node %d is named twice", node);
        scheme->nodes[scheme->count++] = node;
    }
    if (scheme->threshold >= scheme->count)
        give_up("the threshold %d must be below the number of nodes, %d", scheme->threshold, scheme->count);
}

/* Never overwrites: two shares of one node must not come from different polynomials. */
static void write_envelope(int folder, const char *city, int node, const unsigned char envelope[ENVELOPE_BYTES]) {
    char name[NAME_BYTES + 8];
    snprintf(name, sizeof name, "%.*s.%d", NAME_BYTES - 1, city, node);
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, envelope, ENVELOPE_BYTES) != ENVELOPE_BYTES || close(fd) != 0)
        give_up("%s: %s", name, strerror(errno));
}

static void deal(struct city *city, struct scheme *scheme, int folder) {
    unsigned char envelope[ENVELOPE_BYTES];
    gfshare_ctx *context = gfshare_ctx_init_enc(scheme->nodes, scheme->count, scheme->threshold, SECRET_BYTES);
    if (!context)
        give_up("out of memory");
    gfshare_ctx_enc_setsecret(context, (unsigned char *)city->secret);
    for (unsigned char i = 0; i < scheme->count; i++) {
        envelope[0] = scheme->nodes[i];
        gfshare_ctx_enc_getshare(context, i, envelope + 1);
        write_envelope(folder, city->name, scheme->nodes[i], envelope);
    }
    gfshare_ctx_free(context);
}

int main(int argc, char **argv) {
    static struct city cities[CITIES_MAX];
    struct scheme scheme = {0};

    if (argc != 5)
        give_up("usage: %s CITIES.csv THRESHOLD NODE,NODE,... FOLDER", argv[0]);
    if (sodium_init() < 0)
        give_up("libsodium does not start");
    gfshare_fill_rand = fill_random;
    scheme.threshold = number("threshold", argv[2], SHARES_MAX);
    parse_nodes(argv[3], &scheme);
    size_t count = cities_read(argv[1], cities);
    int folder = open(argv[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        give_up("%s: %s", argv[4], strerror(errno));
    for (size_t i = 0; i < count; i++)
        deal(&cities[i], &scheme, folder);
    close(folder);
    return 0;
}
