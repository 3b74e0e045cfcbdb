/* The demo's MPC kernel: takes the shares of one round from the custodians' own stores, puts the coordinate together
 * again and compares it with the input. */
#include <libgfshare.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "cities.h"

struct shares {
    unsigned char x[SHARES_MAX];
    unsigned char y[SHARES_MAX][SECRET_BYTES];
    unsigned char count;
};

/* Takes one node's share from its store: whatever is there for this round, read while the custodian is running. */
static void fetch(struct shares *shares, const char *deployment, const char *round, int node, const char *store) {
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_open_v2(store, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT payload FROM share WHERE deployment = ?1 AND round_id = ?2 AND node_id = ?3", -1,
                           &statement, NULL) != SQLITE_OK ||
        sqlite3_bind_text(statement, 1, deployment, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_text(statement, 2, round, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_int(statement, 3, node) != SQLITE_OK)
        give_up("%s: %s", store, db ? sqlite3_errmsg(db) : "out of memory");
    if (sqlite3_step(statement) != SQLITE_ROW)
        give_up("%s: holds no share of round %s for node %d", store, round, node);
    const unsigned char *envelope = sqlite3_column_blob(statement, 0);
    if (sqlite3_column_bytes(statement, 0) != ENVELOPE_BYTES || envelope[0] == 0)
        give_up("%s: what node %d holds for round %s is not a share", store, node, round);
    if (memchr(shares->x, envelope[0], shares->count))
        give_up("two nodes hold the same share of round %s", round);
    shares->x[shares->count] = envelope[0];
    memcpy(shares->y[shares->count++], envelope + 1, SECRET_BYTES);
    sqlite3_finalize(statement);
    sqlite3_close(db);
}

static void reconstruct(struct shares *shares, char secret[SECRET_BYTES]) {
    gfshare_ctx *context = gfshare_ctx_init_dec(shares->x, shares->count, SECRET_BYTES);
    if (!context)
        give_up("out of memory");
    for (unsigned char i = 0; i < shares->count; i++)
        gfshare_ctx_dec_giveshare(context, i, shares->y[i]);
    gfshare_ctx_dec_extract(context, (unsigned char *)secret);
    gfshare_ctx_free(context);
}

static void fill_random(unsigned char *bytes, unsigned int count) {
    randombytes_buf(bytes, count);
}

int main(int argc, char **argv) {
    static struct shares shares;
    char secret[SECRET_BYTES];

    if (argc < 6)
        give_up("usage: %s CITIES.csv CITY THRESHOLD DEPLOYMENT ROUND [NODE=STORE ...]", argv[0]);
    if (sodium_init() < 0)
        give_up("libsodium does not start");
    gfshare_fill_rand = fill_random; /* libgfshare wipes what it frees with random bytes */
    const struct city *city = city_find(argv[1], argv[2]);
    int threshold = number("threshold", argv[3], SHARES_MAX);
    if (argc - 6 < threshold || argc - 6 > SHARES_MAX)
        give_up("round %s: %d shares, but %d are needed: nothing is reconstructed", argv[5], argc - 6, threshold);
    for (int i = 6; i < argc; i++) {
        char *store = strchr(argv[i], '=');
        if (!store)
            give_up("\"%s\" is not NODE=STORE", argv[i]);
        *store++ = 0;
        fetch(&shares, argv[4], argv[5], number("node", argv[i], SHARES_MAX), store);
    }
    reconstruct(&shares, secret);
    if (memcmp(secret, city->secret, SECRET_BYTES) != 0)
        give_up("round %s: the shares give another coordinate than the input has for %s", argv[5], city->name);
    printf("%.*s\n", SECRET_BYTES, secret);
    return 0;
}
