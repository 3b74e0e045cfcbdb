/* A custodian for benchmarks: verifies and signs as the reference one does, but keeps its shares in memory only;
 * with a key or a secret. --unsigned does neither and takes any request with a webhook-id, for the peers that have no
 * keys. */
#include <microhttpd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "../custodian/judge.h"
#include "base/clock.h"
#include "base/listener.h"
#include "base/options.h"

enum { CONNECTIONS_MAX = 4096, CONNECTION_MEMORY = 16 * 1024, BODY_FIRST = 256 };

struct settings {
    int64_t node_id;
    const char *key, *coordinator_key, *secret, *port_file;
    bool is_unsigned;
};

/* A share that this node holds; `id` is "<deployment>:<round>". */
struct share {
    UT_hash_handle hh;
    int64_t nonce;
    unsigned char digest[SHA256_BYTES];
    void *body;
    size_t size;
    char id[];
};

struct node {
    struct judge_rules rules;
    struct secret_key *key; /* NULL: its rules have a secret instead, or it is unsigned */
    bool is_unsigned;
    struct share *shares;
};

struct request {
    unsigned char *body;
    size_t size, capacity;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct option_spec options[] = {
    {.name = "node-id",
     .kind = OPTION_INT,
     .argument = "ID",
     .help = "the node this is",
     .offset = FIELD(node_id),
     .min = 1,
     .max = 32767,
     .required = true},
    {.name = "port-file",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "once listening, write the port to this file",
     .offset = FIELD(port_file),
     .required = true},
    {.name = "key", .kind = OPTION_TEXT, .argument = "FILE", .help = "this node's secret key", .offset = FIELD(key)},
    {.name = "coordinator-key",
     .kind = OPTION_TEXT,
     .argument = "WHPK",
     .help = "the coordinator's public key",
     .offset = FIELD(coordinator_key)},
    {.name = "secret",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "in place of both keys: the secret that it shares with the coordinator",
     .offset = FIELD(secret)},
    {.name = "unsigned",
     .kind = OPTION_FLAG,
     .help = "verify nothing, and answer without a receipt",
     .offset = FIELD(is_unsigned)},
    {0},
};

static const struct command_syntax syntax = {
    .name = "bench-node",
    .summary = "A custodian for benchmarks, on any free port of 127.0.0.1; its shares are in memory only.",
    .options = options,
    .notes = "--key and --coordinator-key, or --secret, or --unsigned must be given. Runs until SIGTERM or SIGINT.",
};

/* Idempotent, as the protocol asks for: what is held already is answered in the same way, other bytes or another nonce
 * are a conflict. */
static enum verdict keep(struct node *node, const struct envelope_key *key, const unsigned char digest[SHA256_BYTES],
                         struct request *request) {
    char id[2 * ROUND_ID_MAX + 2];
    size_t length = (size_t)snprintf(id, sizeof id, "%s:%s", key->deployment, key->round_id);
    struct share *share;

    HASH_FIND(hh, node->shares, id, length, share);
    if (share) {
        bool same = share->nonce == key->nonce && memcmp(share->digest, digest, SHA256_BYTES) == 0;
        return same ? VERDICT_HELD : VERDICT_CONFLICT;
    }
    share = calloc(1, sizeof *share + length + 1);
    if (!share)
        return VERDICT_STORE_FAILED;
    memcpy(share->id, id, length);
    memcpy(share->digest, digest, SHA256_BYTES);
    share->nonce = key->nonce;
    share->body = request->body;
    share->size = request->size;
    request->body = NULL;
    HASH_ADD_KEYPTR(hh, node->shares, share->id, length, share);
    return VERDICT_STORED;
}

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static enum verdict judge_signed(const struct node *node, struct MHD_Connection *connection,
                                 const struct request *request, struct envelope_key *key,
                                 const struct secret **secret) {
    const struct judge_request judged = {
        .webhook_id = header(connection, "webhook-id"),
        .timestamp = header(connection, "webhook-timestamp"),
        .signature = header(connection, "webhook-signature"),
        .body = request->body,
        .body_size = request->size,
    };
    return judge(&node->rules, &judged, clock_wall_us() / 1000000, key, secret);
}

static enum verdict judge_unsigned(const struct node *node, struct MHD_Connection *connection,
                                   struct envelope_key *key) {
    const char *id = header(connection, "webhook-id");
    if (!id || !webhook_id_parse(id, key))
        return VERDICT_BAD_ID;
    return key->node_id == node->rules.node_id ? VERDICT_UNDECIDED : VERDICT_OTHER_NODE;
}

static void sign(const struct node *node, const struct secret *secret, const struct envelope_key *key,
                 const unsigned char digest[SHA256_BYTES], char receipt[SIGNATURE_TEXT + 1]) {
    struct signature signature;
    if (secret)
        receipt_sign_v1(secret, key, digest, &signature);
    else
        receipt_sign(node->key, key, digest, &signature);
    signature_format(&signature, receipt);
}

static enum MHD_Result finish(struct node *node, struct MHD_Connection *connection, struct request *request) {
    struct envelope_key key;
    unsigned char digest[SHA256_BYTES];
    char receipt[SIGNATURE_TEXT + 1];
    const struct secret *secret = NULL;

    enum verdict verdict = node->is_unsigned ? judge_unsigned(node, connection, &key)
                                             : judge_signed(node, connection, request, &key, &secret);
    if (verdict == VERDICT_UNDECIDED) {
        sha256(request->body, request->size, digest);
        verdict = keep(node, &key, digest, request);
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    if (!node->is_unsigned && (verdict == VERDICT_STORED || verdict == VERDICT_HELD)) {
        sign(node, secret, &key, digest, receipt);
        (void)MHD_add_response_header(response, "quorate-receipt", receipt);
    }
    enum MHD_Result queued = MHD_queue_response(connection, verdict_answer(verdict)->status, response);
    MHD_destroy_response(response);
    return queued;
}

static bool append(struct request *request, const char *data, size_t size) {
    size_t needed = request->size + size, capacity = request->capacity ? request->capacity : BODY_FIRST;
    if (needed > ENVELOPE_BYTES_MAX)
        return false;
    while (capacity < needed)
        capacity *= 2;
    if (capacity != request->capacity) {
        unsigned char *grown = realloc(request->body, capacity);
        if (!grown)
            return false;
        request->body = grown;
        request->capacity = capacity;
    }
    memcpy(request->body + request->size, data, size);
    request->size = needed;
    return true;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **request_context) {
    struct request *request = *request_context;
    (void)url;
    (void)version;

    if (!request) {
        *request_context = strcmp(method, MHD_HTTP_METHOD_POST) == 0 ? calloc(1, sizeof *request) : NULL;
        return *request_context ? MHD_YES : MHD_NO;
    }
    if (*size > 0) {
        if (!append(request, data, *size))
            return MHD_NO;
        *size = 0;
        return MHD_YES;
    }
    return finish(context, connection, request);
}

static void on_request_end(void *context, struct MHD_Connection *connection, void **request_context,
                           enum MHD_RequestTerminationCode how) {
    struct request *request = *request_context;
    (void)context;
    (void)connection;
    (void)how;
    if (request)
        free(request->body);
    free(request);
    *request_context = NULL;
}

static void drop_shares(struct node *node) {
    struct share *share, *next;
    HASH_ITER(hh, node->shares, share, next) {
        HASH_DEL(node->shares, share);
        free(share->body);
        free(share);
    }
}

static bool load_keys(const struct settings *settings, struct node *node, struct error *err) {
    node->rules.node_id = (int)settings->node_id;
    if (!wire_start(err))
        return false;
    node->is_unsigned = settings->is_unsigned;
    if (settings->is_unsigned)
        return true;
    if (settings->secret)
        return (node->rules.secrets = secret_set_load(settings->secret, SECRET_LINES_PLAIN, err)) != NULL;
    if (!settings->key || !settings->coordinator_key)
        return error_set(err, EXIT_USAGE, "give --key and --coordinator-key, or --secret, or --unsigned");
    node->rules.coordinator_count = 1;
    if (!public_key_parse(settings->coordinator_key, &node->rules.coordinators[0], err))
        return false;
    node->key = secret_key_load(settings->key, err);
    return node->key != NULL;
}

static bool serve(const struct settings *settings, struct node *node, const sigset_t *stop, struct error *err) {
    char address[LISTENER_ADDRESS];
    int listener, port, got;

    if (!listener_open("--listen", "127.0.0.1:0", &listener, address, &port, err))
        return false;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, node, MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_NOTIFY_COMPLETED, on_request_end, node, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
    if (!daemon)
        return error_set(err, EXIT_UNEXPECTED, "the HTTP library could not start");
    bool good = port_file_write(settings->port_file, port, err);
    if (good)
        (void)sigwait(stop, &got);
    MHD_stop_daemon(daemon);
    return good;
}

int main(int argc, char **argv) {
    struct error err = {EXIT_DONE, ""};
    struct settings settings = {0};
    struct node node = {0};
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (options_parse(&syntax, argc, argv, &settings, &err) == OPTIONS_OK && load_keys(&settings, &node, &err))
        (void)serve(&settings, &node, &stop, &err);
    if (err.code != EXIT_DONE)
        (void)fprintf(stderr, "bench-node: %s\n", err.text);
    drop_shares(&node);
    secret_key_free(node.key);
    secret_set_free(node.rules.secrets);
    return (int)err.code;
}
