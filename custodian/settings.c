/* Reads the custodian's command line from one table of options. */
#include "settings.h"

#include <stddef.h>

enum { MAX_CONNECTIONS = 65536 };

static const int64_t second_us = 1000000;
static const int64_t default_request_us = 30 * second_us;
static const int64_t default_idle_us = 150 * second_us;

#define FIELD(name) offsetof(struct settings, name)

static const struct option_spec options[] = {
    {.name = "node-id",
     .kind = OPTION_INT,
     .argument = "ID",
     .help = "the node this is, 1 to 32767; envelopes for another get 404",
     .offset = FIELD(node_id),
     .min = 1,
     .max = 32767,
     .required = true},
    {.name = "listen",
     .kind = OPTION_TEXT,
     .argument = "HOST:PORT",
     .help = "where to take requests; port 0 takes any free one",
     .offset = FIELD(listen),
     .required = true},
    {.name = "store",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "the SQLite file that holds the shares; made with mode 0600 if missing",
     .offset = FIELD(store),
     .required = true},
    {.name = "key",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "this node's secret key, on one line (whsk_...), in a file that only its owner can read; signs receipts",
     .offset = FIELD(key)},
    {.name = "coordinator-key",
     .kind = OPTION_LIST,
     .argument = "WHPK",
     .help = "a coordinator's public key (whpk_...); up to 8, any of which may have signed a request",
     .offset = FIELD(coordinator_keys)},
    {.name = "secret",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help =
         "in place of --key and --coordinator-key: a secret shared with the coordinators (whsec_...), or up to 8 on "
         "a line each while it changes, in a file that only its owner can read; checks requests and signs receipts",
     .offset = FIELD(secret)},
    {.name = "seal-key",
     .kind = OPTION_LIST,
     .argument = "FILE",
     .help = "a secret key, on one line (qbsk_...), that opens what is sealed to this node; up to 8. A sealed envelope "
             "that none of them opens, or that is for another round, gets 422",
     .offset = FIELD(seal_keys)},
    {.name = "require-sealed",
     .kind = OPTION_FLAG,
     .help = "envelopes that are not sealed get 422 as well",
     .offset = FIELD(require_sealed)},
    {.name = "tls-cert",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "serve HTTPS with this certificate, in PEM, followed by those between it and its CA (default: plain HTTP)",
     .offset = FIELD(tls_cert)},
    {.name = "tls-key",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "its secret key, in PEM and without a password, in a file that only its owner can read",
     .offset = FIELD(tls_key)},
    {.name = "tls-client-ca",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "serve only clients with a certificate that one of these CAs, in PEM, has signed for clients",
     .offset = FIELD(tls_client_ca)},
    {.name = "max-body",
     .kind = OPTION_INT,
     .argument = "BYTES",
     .help = "the largest envelope taken, larger ones get 413 (default: 16777216)",
     .offset = FIELD(max_body),
     .min = 1,
     .max = ENVELOPE_BYTES_MAX},
    {.name = "max-connections",
     .kind = OPTION_INT,
     .argument = "COUNT",
     .help = "connections served at a time, more wait (default: 1024)",
     .offset = FIELD(max_connections),
     .min = 1,
     .max = MAX_CONNECTIONS},
    {.name = "max-connections-per-peer",
     .kind = OPTION_INT,
     .argument = "COUNT",
     .help = "connections from one address at a time, more are closed (default: 512)",
     .offset = FIELD(max_connections_per_peer),
     .min = 1,
     .max = MAX_CONNECTIONS},
    {.name = "request-timeout",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "a request that is not complete by then is cut off (default: 30s)",
     .offset = FIELD(request_us),
     .min = 100000,
     .max = 3600 * second_us},
    {.name = "idle-timeout",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "a connection without a request for so long is closed (default: 150s)",
     .offset = FIELD(idle_us),
     .min = 100000,
     .max = 86400 * second_us},
    {.name = "port-file",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "once listening, write the port to this file",
     .offset = FIELD(port_file)},
    {.name = "log-level",
     .kind = OPTION_CHOICE,
     .argument = "LEVEL",
     .help = "debug (a line for each request), info, warn or error (default: info)",
     .offset = FIELD(log_level_text),
     .choices = "debug|info|warn|error"},
    {0},
};

static const struct command_syntax syntax = {
    .name = "quorate-custodian",
    .summary = "Keeps the shares of one node: verifies each envelope, stores it and answers with a signed receipt.",
    .options = options,
    .notes =
        "Needs --key and --coordinator-key, or --secret. Runs until SIGTERM or SIGINT, then finishes the requests "
        "under way (for 10 s at most) and exits 0; "
        "further signals change nothing. With HTTPS, SIGHUP reads its files again, for new connections.\nLogs go to "
        "stderr, one event a line. With --version alone it says which version this is.",
};

/* Either a pair and keys, or secrets: never both, so that neither kind of signature can stand in for the other. */
static bool check_keys(const struct settings *settings, struct error *err) {
    bool has_coordinators = settings->coordinator_keys.count > 0;
    if (settings->secret && (settings->key || has_coordinators))
        return error_set(err, EXIT_USAGE, "--secret takes the place of --key and --coordinator-key: give either");
    if (!settings->secret && !settings->key)
        return error_set(err, EXIT_USAGE, "--key is missing: give it with --coordinator-key, or --secret instead");
    if (!settings->secret && !has_coordinators)
        return error_set(err, EXIT_USAGE, "--coordinator-key is missing: give it with --key, or --secret instead");
    if (settings->coordinator_keys.count > COORDINATOR_KEYS_MAX)
        return error_set(err, EXIT_USAGE, "--coordinator-key: given %zu times; at most %d are allowed",
                         settings->coordinator_keys.count, COORDINATOR_KEYS_MAX);
    if (settings->seal_keys.count > SEAL_SECRETS_MAX)
        return error_set(err, EXIT_USAGE, "--seal-key: given %zu times; at most %d are allowed",
                         settings->seal_keys.count, SEAL_SECRETS_MAX);
    if (settings->require_sealed && settings->seal_keys.count == 0)
        return error_set(err, EXIT_USAGE, "--require-sealed needs a --seal-key, to see whether envelopes open");
    return true;
}

static bool check_tls(const struct settings *settings, struct error *err) {
    if ((settings->tls_cert == NULL) != (settings->tls_key == NULL))
        return error_set(err, EXIT_USAGE, "--tls-cert and --tls-key go together: give both or none");
    if (settings->tls_client_ca && !settings->tls_cert)
        return error_set(err, EXIT_USAGE, "--tls-client-ca needs --tls-cert and --tls-key: give them, too");
    return true;
}

enum options_result settings_parse(int argc, char **argv, struct settings *settings, struct error *err) {
    *settings = (struct settings){
        .max_body = ENVELOPE_BYTES_MAX,
        .max_connections = 1024,
        .max_connections_per_peer = 512,
        .request_us = default_request_us,
        .idle_us = default_idle_us,
        .log_level_text = "info",
    };
    enum options_result result = options_parse(&syntax, argc, argv, settings, err);
    if (result != OPTIONS_OK)
        return result;
    if (!check_keys(settings, err) || !check_tls(settings, err))
        return OPTIONS_WRONG;
    if (!log_level_parse(settings->log_level_text, &settings->log_level)) {
        (void)error_set(err, EXIT_USAGE, "--log-level: \"%s\" is not known", settings->log_level_text);
        return OPTIONS_WRONG;
    }
    return OPTIONS_OK;
}

static struct secret_set *load_secrets(const char *path, struct error *err) {
    struct secret_set *secrets = secret_set_load(path, SECRET_LINES_PLAIN, err);
    size_t count = secrets ? secret_set_count(secrets) : 1;
    if (count >= 1 && count <= SECRETS_MAX)
        return secrets;
    (void)error_set(err, EXIT_USAGE, "secret file \"%.300s\" holds %zu secrets: it may have 1 to %d", path, count,
                    (int)SECRETS_MAX);
    secret_set_free(secrets);
    return NULL;
}

static bool load_seal_keys(const struct settings *settings, struct judge_rules *rules, struct error *err) {
    rules->require_sealed = settings->require_sealed;
    for (size_t i = 0; i < settings->seal_keys.count; i++) {
        struct error cause = {0};
        rules->seal_secrets[i] = seal_secret_load(settings->seal_keys.values[i], &cause);
        if (!rules->seal_secrets[i])
            return error_set(err, cause.code, "--seal-key: %s", cause.text);
        rules->seal_secret_count++;
    }
    return true;
}

bool settings_rules(const struct settings *settings, struct judge_rules *rules, struct error *err) {
    if (!load_seal_keys(settings, rules, err))
        return false;
    rules->node_id = (int)settings->node_id;
    rules->coordinator_count = settings->coordinator_keys.count;
    if (settings->secret)
        return (rules->secrets = load_secrets(settings->secret, err)) != NULL;
    for (size_t i = 0; i < rules->coordinator_count; i++) {
        if (!public_key_parse(settings->coordinator_keys.values[i], &rules->coordinators[i], err)) {
            struct error why = *err;
            return error_set(err, why.code, "--coordinator-key: %s", why.text);
        }
    }
    return true;
}

void settings_rules_free(struct judge_rules *rules) {
    secret_set_free(rules->secrets);
    for (size_t i = 0; i < rules->seal_secret_count; i++)
        seal_secret_free(rules->seal_secrets[i]);
}

void settings_free(struct settings *settings) {
    option_list_free(&settings->coordinator_keys);
    option_list_free(&settings->seal_keys);
}
