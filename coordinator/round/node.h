/* Nodes as rounds remember them, and the bulkhead of each of their endpoints: a dark one never takes the slots of a
 * healthy one. */
#ifndef QUORATE_ROUND_NODE_H
#define QUORATE_ROUND_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "base/check.h"
#include "base/told.h"
#include "db/worker.h"
#include "transport/peer.h"
#include "transport/pins.h"
#include "wire/key.h"
#include "wire/secret.h"
#include "wire/webhook.h"

struct track;

/* One URL, shared by all node versions that have it. */
struct endpoint {
    UT_hash_handle hh;
    unsigned in_flight; /* slots given away */
    unsigned slots;     /* how many there are */
    unsigned nodes;     /* different nodes that have it as their primary */
    double hold_s;      /* how long a slot is held, smoothed */
    double answered_at; /* when it last gave an answer, by the loop's clock */
    struct track *queue;
    struct told told;        /* what is wrong with it */
    char obstacle[PEER_WHY]; /* why nothing may be sent there, as far as its URL says; "" */
    bool tls;
    char url[];
};

enum { NODE_KEYS_MAX = 8 };

/* A key that a node may sign receipts with, and which one of the version's that is, counted from 1. */
struct node_key {
    int16_t number;
    struct public_key key;
};

/* An immutable node version. */
struct node {
    UT_hash_handle hh;
    int32_t version;
    int node_id;
    bool symmetric;                      /* it shares a secret with us; else it has keys of its own */
    int key_count;                       /* those that can be used; 0 if symmetric */
    struct node_key keys[NODE_KEYS_MAX]; /* newest first */
    const struct secret *secret;         /* if symmetric; NULL with an obstacle */
    char secret_id[SECRET_ID_TEXT + 1];  /* if symmetric */
    const char *pin;                     /* the public keys that its certificates may have; NULL: any */
    const char *obstacle;                /* why nothing can be sent to it; NULL: nothing stands in the way */
    struct endpoint *route[ROUTE_COUNT]; /* backup: may be NULL */
};

/* Start from a struct of zeros. Nothing in it is freed before node_book_free. */
struct node_book {
    struct node *nodes;
    struct endpoint *endpoints;
    const struct secret_set *secrets; /* of nodes, by id; may be NULL; outlives the book */
    const struct pin_set *pins;       /* the same */
    struct peer_rules peers;
    unsigned slots_per_endpoint;
    unsigned pledged; /* slots of every endpoint that a claim under way may take */
    bool closed;      /* draining: no slot is given any more */
};

const struct node *node_find(struct node_book *book, int32_t version);
/* False: out of memory. A node whose key cannot be used is added with an obstacle. */
bool node_add(struct node_book *book, const struct node_version_row *row) MUST_CHECK;
/* Other secrets from now on, for the nodes that are known, too; those before are not used any more. */
void node_book_take_secrets(struct node_book *book, const struct secret_set *secrets);
/* Which of the node's keys made the receipt, counted from 1; 0: none of them. */
int16_t node_signer(const struct node *node, const struct envelope_key *envelope,
                    const unsigned char digest[SHA256_BYTES], const struct signature *receipt) MUST_CHECK;
/* Why nothing can be sent to the node on the endpoint of a route; NULL: nothing is in the way. */
const char *node_obstacle(const struct node *node, const struct endpoint *endpoint);
void node_book_free(struct node_book *book);

/* Takes a slot if one is free and nobody waits, else joins the queue; the track then gets TRACK_SLOT in its turn. */
void endpoint_join(struct node_book *book, struct endpoint *endpoint, struct track *track);
void endpoint_leave(struct endpoint *endpoint, struct track *track);
/* Takes a slot beyond the limit if need be: for an attempt that is committed already. */
void endpoint_take(struct endpoint *endpoint);
/* Gives a slot back, and away again to who has waited longest. */
void endpoint_give_back(struct node_book *book, struct endpoint *endpoint);
/* Keeps `slots` of every endpoint for a claim, or (0) lets go of them again. */
void node_book_pledge(struct node_book *book, unsigned slots);
/* Notes that a request held its slot for `held_s` seconds, up to now, and whether the node answered. */
void endpoint_note(struct endpoint *endpoint, double held_s, double now, bool answered);

/* How many rounds may be claimed such that a first attempt to each node has a slot: between 0 and `most`. Only
 * endpoints that are quick to give slots back hold a claim up. `busy` (room for `busy_size`) receives the node versions
 * whose primary endpoint is slow or dark and has too few slots: their deliveries wait in its queue. */
int32_t node_book_room(const struct node_book *book, double now, int32_t most, int32_t *busy, size_t busy_size,
                       size_t *busy_count);

/* From how many rounds on a claim is worth its while, when more slots are about to become free: an eighth of what there
 * is room for when nothing is under way, `most` at most. */
int32_t node_book_worth(const struct node_book *book, int32_t most);

#endif
