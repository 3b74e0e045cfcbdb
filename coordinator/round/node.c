/* Nodes as rounds remember them, and the bulkhead of each of their endpoints: a dark one never takes the slots of a
 * healthy one. */
#include "round/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/log.h"
#include "round/round.h"
#include "transport/url.h"

/* An endpoint is quick while its slots come back within this time, or about as soon as those of the quickest one: where
 * all are busy, as in a flood, each holds its slots for longer, and no claim need pass any of them by. Slots that come
 * back without an answer say nothing: a dark node's do so as soon as its time-out is over. */
#define NODE_PIN_NEEDS_TLS "the node has a pin: use https, or take it out of --node-pins"

static const double QUICK_S = 0.05, QUICK_RATIO = 4., QUICK_MAX_S = 0.5;

const struct node *node_find(struct node_book *book, int32_t version) {
    struct node *node;
    HASH_FIND(hh, book->nodes, &version, sizeof version, node);
    return node;
}

/* What can be seen of a URL is judged once, and told; requests there fail without being sent. What only a look-up shows
 * is judged at each connection. */
static void judge_url(const struct node_book *book, struct endpoint *endpoint) {
    char url[256], why[2 * PEER_WHY];
    endpoint->tls = url_is_tls(endpoint->url);
    if (!url_allowed(&book->peers, endpoint->url, endpoint->obstacle)) {
        log_event(LOG_WARN, "url_refused", "url=%s reason=%s", log_quote(endpoint->url, url, sizeof url),
                  log_quote(endpoint->obstacle, why, sizeof why));
    }
}

static struct endpoint *endpoint_for(struct node_book *book, const char *url) {
    struct endpoint *endpoint;
    HASH_FIND_STR(book->endpoints, url, endpoint);
    if (endpoint != NULL) {
        return endpoint;
    }
    size_t size = strlen(url) + 1;
    endpoint = calloc(1, sizeof *endpoint + size);
    if (endpoint == NULL) {
        return NULL;
    }
    memcpy(endpoint->url, url, size);
    endpoint->slots = book->slots_per_endpoint;
    judge_url(book, endpoint);
    HASH_ADD_STR(book->endpoints, url, endpoint);
    return endpoint;
}

/* True when another version of the node has the same primary endpoint. */
static bool node_known(const struct node_book *book, const struct node *node) {
    const struct node *other = book->nodes;
    while (other != NULL &&
           (other->node_id != node->node_id || other->route[ROUTE_PRIMARY] != node->route[ROUTE_PRIMARY])) {
        other = other->hh.next;
    }
    return other != NULL;
}

static void tell_key(const struct node *node, const char *event, const char *text, const char *hint) {
    char key[128];
    log_event(LOG_WARN, event, "node=%d key=%s hint=\"%s\"", node->node_id, log_quote(text, key, sizeof key), hint);
}

static void take_secret(const struct node_book *book, struct node *node, const char *id) {
    memmove(node->secret_id, id, sizeof node->secret_id); /* it may be the same */
    node->secret = secret_set_find(book->secrets, node->node_id, id);
    node->obstacle = node->secret == NULL ? "the secret of the node is missing" : NULL;
    if (node->obstacle != NULL) {
        tell_key(node, "secret_missing", id,
                 "add it to the file of --node-secrets and send SIGHUP, or start with that option");
    }
}

/* Keys with one blank between them. One that cannot be used is told, and leaves the others in force. */
static void take_public_keys(struct node *node, const char *text) {
    char one[PUBLIC_KEY_TEXT + 2];
    for (int16_t number = 1; number <= NODE_KEYS_MAX && *text != '\0'; number++) {
        size_t length = strcspn(text, " ");
        struct node_key *key = &node->keys[node->key_count];
        (void)snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one - 1), text);
        if (public_key_parse(one, &key->key, NULL)) {
            key->number = number;
            node->key_count++;
        } else {
            tell_key(node, "key_unusable", one, "add the node again with the key that quorate keygen printed for it");
        }
        text += length;
        text += *text == ' ';
    }
    if (node->key_count == 0) {
        node->obstacle = "the key of the node is no Ed25519 key: no receipt could count";
    }
}

/* A node's keys, or the secret whose id stands in their place. What is wrong with them is told once a version; if none
 * is left, requests to it fail without being sent. */
static void take_keys(const struct node_book *book, struct node *node, const char *receipt_key) {
    node->symmetric = secret_id_valid(receipt_key);
    if (node->symmetric) {
        take_secret(book, node, receipt_key);
    } else {
        take_public_keys(node, receipt_key);
    }
}

int16_t node_signer(const struct node *node, const struct envelope_key *envelope,
                    const unsigned char digest[SHA256_BYTES], const struct signature *receipt) {
    if (node->symmetric) { /* its secret may have been taken away meanwhile */
        return node->secret != NULL && receipt_verify_v1(node->secret, envelope, digest, receipt);
    }
    for (int i = 0; i < node->key_count; i++) {
        if (receipt_verify(&node->keys[i].key, envelope, digest, receipt)) {
            return node->keys[i].number;
        }
    }
    return 0;
}

void node_book_take_secrets(struct node_book *book, const struct secret_set *secrets) {
    book->secrets = secrets;
    for (struct node *node = book->nodes; node != NULL; node = node->hh.next) {
        if (node->symmetric) {
            take_secret(book, node, node->secret_id);
        }
    }
}

/* A pin holds only where there is a certificate: whoever changes a URL to plain http must not get around it. */
static void take_pin(const struct node_book *book, struct node *node) {
    char url[256];
    node->pin = pin_set_find(book->pins, node->node_id);
    for (int route = 0; node->pin != NULL && route < ROUTE_COUNT; route++) {
        if (node->route[route] != NULL && !node->route[route]->tls) {
            log_event(LOG_WARN, "url_refused", "node=%d url=%s reason=\"" NODE_PIN_NEEDS_TLS "\"", node->node_id,
                      log_quote(node->route[route]->url, url, sizeof url));
        }
    }
}

bool node_add(struct node_book *book, const struct node_version_row *row) {
    if (node_find(book, row->version) != NULL) {
        return true;
    }
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL) {
        return false;
    }
    node->version = row->version;
    node->node_id = row->node_id;
    node->route[ROUTE_PRIMARY] = endpoint_for(book, row->url);
    if (row->backup_url != NULL) {
        node->route[ROUTE_BACKUP] = endpoint_for(book, row->backup_url);
    }
    if (node->route[ROUTE_PRIMARY] == NULL || (row->backup_url != NULL && node->route[ROUTE_BACKUP] == NULL)) {
        free(node);
        return false;
    }
    take_keys(book, node, row->receipt_key);
    take_pin(book, node);
    if (!node_known(book, node)) {
        node->route[ROUTE_PRIMARY]->nodes++;
    }
    HASH_ADD(hh, book->nodes, version, sizeof node->version, node);
    return true;
}

const char *node_obstacle(const struct node *node, const struct endpoint *endpoint) {
    return node->obstacle != NULL                ? node->obstacle
           : endpoint->obstacle[0] != '\0'       ? endpoint->obstacle
           : node->pin != NULL && !endpoint->tls ? NODE_PIN_NEEDS_TLS
                                                 : NULL;
}

void node_book_free(struct node_book *book) {
    /* HASH_CLEAR frees the tables and leaves their members chained. */
    struct node *node = book->nodes;
    HASH_CLEAR(hh, book->nodes);
    while (node != NULL) {
        struct node *next = node->hh.next;
        free(node);
        node = next;
    }
    struct endpoint *endpoint = book->endpoints;
    HASH_CLEAR(hh, book->endpoints);
    while (endpoint != NULL) {
        struct endpoint *next = endpoint->hh.next;
        free(endpoint);
        endpoint = next;
    }
}

void endpoint_join(struct node_book *book, struct endpoint *endpoint, struct track *track) {
    if (!book->closed && endpoint->queue == NULL && endpoint->in_flight + book->pledged < endpoint->slots) {
        endpoint->in_flight++;
        track_event(track, TRACK_SLOT);
        return;
    }
    DL_APPEND(endpoint->queue, track);
}

void endpoint_leave(struct endpoint *endpoint, struct track *track) {
    DL_DELETE(endpoint->queue, track);
}

void endpoint_take(struct endpoint *endpoint) {
    endpoint->in_flight++;
}

static void serve_queue(struct node_book *book, struct endpoint *endpoint) {
    while (!book->closed && endpoint->queue != NULL && endpoint->in_flight + book->pledged < endpoint->slots) {
        struct track *track = endpoint->queue;
        DL_DELETE(endpoint->queue, track);
        endpoint->in_flight++;
        track_event(track, TRACK_SLOT);
    }
}

void endpoint_give_back(struct node_book *book, struct endpoint *endpoint) {
    endpoint->in_flight--;
    serve_queue(book, endpoint);
}

void node_book_pledge(struct node_book *book, unsigned slots) {
    book->pledged = slots;
    for (struct endpoint *endpoint = book->endpoints; slots == 0 && endpoint != NULL; endpoint = endpoint->hh.next) {
        serve_queue(book, endpoint);
    }
}

void endpoint_note(struct endpoint *endpoint, double held_s, double now, bool answered) {
    endpoint->hold_s += (held_s - endpoint->hold_s) / 16;
    if (answered) {
        endpoint->answered_at = now;
    }
}

static unsigned free_slots(const struct endpoint *endpoint) {
    return endpoint->in_flight < endpoint->slots ? endpoint->slots - endpoint->in_flight : 0;
}

/* How many rounds can have a first attempt there with so many free slots: each may bring one for every node that shares
 * the URL. */
static unsigned room_with(const struct endpoint *endpoint, unsigned slots) {
    return slots / (endpoint->nodes > 1 ? endpoint->nodes : 1);
}

/* Where nothing is under way a round can go, even if it takes slots beyond the limit: it would wait for ever. */
static unsigned room_at(const struct endpoint *endpoint) {
    unsigned room = room_with(endpoint, free_slots(endpoint));
    return room == 0 && endpoint->in_flight == 0 ? 1 : room;
}

int32_t node_book_worth(const struct node_book *book, int32_t most) {
    unsigned room = book->slots_per_endpoint;
    for (const struct endpoint *endpoint = book->endpoints; endpoint != NULL; endpoint = endpoint->hh.next) {
        unsigned idle = room_with(endpoint, endpoint->slots);
        room = idle < room ? idle : room;
    }
    int32_t worth = (int32_t)(room / 8);
    return worth < most ? worth : most;
}

/* How long a quick endpoint holds a slot at most, after those that still answer. */
static double quick_hold(const struct node_book *book, double now) {
    double quickest = QUICK_MAX_S;
    for (const struct endpoint *endpoint = book->endpoints; endpoint != NULL; endpoint = endpoint->hh.next) {
        if (now - endpoint->answered_at < QUICK_MAX_S && endpoint->hold_s < quickest) {
            quickest = endpoint->hold_s;
        }
    }
    double hold = quickest * QUICK_RATIO;
    return hold < QUICK_S ? QUICK_S : hold < QUICK_MAX_S ? hold : QUICK_MAX_S;
}

static bool is_quick(const struct endpoint *endpoint, double now, double hold_s) {
    return endpoint->in_flight == 0 || (endpoint->hold_s < hold_s && now - endpoint->answered_at < hold_s);
}

int32_t node_book_room(const struct node_book *book, double now, int32_t most, int32_t *busy, size_t busy_size,
                       size_t *busy_count) {
    unsigned room = (unsigned)most < book->slots_per_endpoint ? (unsigned)most : book->slots_per_endpoint;
    double hold_s = quick_hold(book, now);
    for (const struct endpoint *endpoint = book->endpoints; endpoint != NULL; endpoint = endpoint->hh.next) {
        if (is_quick(endpoint, now, hold_s) && room_at(endpoint) < room) {
            room = room_at(endpoint);
        }
    }
    *busy_count = 0;
    for (const struct node *node = book->nodes; node != NULL && *busy_count < busy_size; node = node->hh.next) {
        const struct endpoint *primary = node->route[ROUTE_PRIMARY];
        if (room_at(primary) < room || primary->queue != NULL) {
            busy[(*busy_count)++] = node->version;
        }
    }
    return (int32_t)room;
}
