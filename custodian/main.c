/* The reference custodian: opens its key, its store and its socket, serves until it is told to stop, and stops cleanly.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/listener.h"
#include "base/log.h"
#include "base/secrecy.h"
#include "base/version.h"
#include "server.h"
#include "settings.h"
#include "store.h"
#include "tls.h"

enum {
    TICK_S = 1,
    REFUSALS_EVERY_TICKS = 10,
    DRAIN_US = 10 * 1000000, /* for requests under way when told to stop */
    STOP_MAX_S = 20,         /* for all of stopping */
    OTHER_DESCRIPTORS = 64,  /* besides the connections */
};

/* Blocked in every thread, and taken by the main one in wait_for_stop; a second one to stop changes nothing. SIGHUP
 * ends a program that has no certificate to read again. */
static sigset_t taken_signals(bool has_tls) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (has_tls)
        sigaddset(&set, SIGHUP);
    return set;
}

/* A reader of the log that goes away, and a file that may not grow, are errors to be handled, not ends. */
static void set_signals(bool has_tls) {
    sigset_t taken = taken_signals(has_tls);
    sigprocmask(SIG_BLOCK, &taken, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

static bool raise_descriptor_limit(int64_t connections, struct error *err) {
    struct rlimit limit;
    rlim_t needed = (rlim_t)connections + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return true;
    if (limit.rlim_max < needed) {
        return error_set(err, EXIT_USAGE,
                         "--max-connections: %lld need %llu file descriptors, but the limit here is %llu",
                         (long long)connections, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    }
    limit.rlim_cur = needed;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ||
           error_set(err, EXIT_UNEXPECTED, "cannot raise the limit of file descriptors: %s", strerror(errno));
}

/* One line for all refusals since the last one; none when there was nothing. */
static void log_refusals(const struct server *server, uint64_t seen[VERDICT_COUNT]) {
    uint64_t counts[VERDICT_COUNT];
    char fields[512] = "";
    size_t used = 0;

    server_counts(server, counts);
    for (enum verdict verdict = VERDICT_CONFLICT; verdict < VERDICT_COUNT; verdict++) {
        if (counts[verdict] > seen[verdict]) {
            used +=
                (size_t)snprintf(fields + used, sizeof fields - used, "%s%s=%llu", used ? " " : "",
                                 verdict_answer(verdict)->name, (unsigned long long)(counts[verdict] - seen[verdict]));
        }
        seen[verdict] = counts[verdict];
    }
    if (used)
        log_event(LOG_INFO, "refused", "%s", fields);
}

static void reload(struct tls *tls) {
    struct error err = {0};
    char quoted[sizeof err.text * 2];
    if (!tls_reload(tls, &err))
        log_event(LOG_ERROR, "certificate_not_reloaded", "reason=%s", log_quote(err.text, quoted, sizeof quoted));
}

static void wait_for_stop(struct server *server, struct tls *tls) {
    const struct timespec tick = {.tv_sec = TICK_S};
    sigset_t taken = taken_signals(tls != NULL);
    uint64_t seen[VERDICT_COUNT] = {0};
    int got;

    for (unsigned ticks = 0; (got = sigtimedwait(&taken, NULL, &tick)) < 0 || got == SIGHUP; ticks++) {
        if (got == SIGHUP)
            reload(tls);
        server_tick(server);
        if (ticks % REFUSALS_EVERY_TICKS == 0)
            log_refusals(server, seen);
    }
    log_refusals(server, seen);
    log_event(LOG_INFO, "stopping", "signal=%s", got == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* A disk that never answers must not keep the program from ending: then SIGALRM ends it, which the store allows. */
static void stop(struct server *server) {
    uint64_t counts[VERDICT_COUNT];

    (void)alarm(STOP_MAX_S);
    server_stop(server, DRAIN_US);
    server_counts(server, counts);
    log_event(LOG_INFO, "stopped", "stored=%llu held=%llu", (unsigned long long)counts[VERDICT_STORED],
              (unsigned long long)counts[VERDICT_HELD]);
}

static bool serve(const struct settings *settings, const struct secret_key *key, struct tls *tls, struct store *store,
                  const struct judge_rules *rules, struct error *err) {
    const struct server_config config = {
        .rules = *rules,
        .key = key,
        .tls = tls,
        .max_body = (size_t)settings->max_body,
        .max_connections = (unsigned)settings->max_connections,
        .max_connections_per_peer = (unsigned)settings->max_connections_per_peer,
        .request_us = settings->request_us,
        .idle_us = settings->idle_us,
        .log_requests = settings->log_level == LOG_DEBUG,
    };
    char address[LISTENER_ADDRESS];
    int listener, port;

    if (!listener_open("--listen", settings->listen, &listener, address, &port, err))
        return false;
    struct server *server = server_start(&config, listener, store, err);
    if (!server)
        return false;
    bool good = !settings->port_file || port_file_write(settings->port_file, port, err);
    if (good) {
        log_event(LOG_INFO, "listening", "node_id=%d address=%s port=%d scheme=%s", rules->node_id, address, port,
                  tls ? "https" : "http");
        wait_for_stop(server, tls);
    }
    stop(server);
    server_free(server);
    return good;
}

static void tell_unlocked(const struct secret_key *key, const struct judge_rules *rules) {
    bool locked = (!key || secret_key_locked(key)) && secret_set_locked(rules->secrets);
    for (size_t i = 0; i < rules->seal_secret_count; i++)
        locked = seal_secret_locked(rules->seal_secrets[i]) && locked;
    if (!locked)
        log_event(LOG_WARN, "keys_not_locked",
                  "hint=\"they may be written to swap: raise the limit of locked memory (ulimit -l)\"");
}

/* True when none is asked for as well. */
static bool start_tls(const struct settings *settings, struct tls **tls, struct error *err) {
    const struct tls_files files = {.certificate = {"--tls-cert", settings->tls_cert},
                                    .key = {"--tls-key", settings->tls_key},
                                    .ca = {"--tls-client-ca", settings->tls_client_ca}};
    return !settings->tls_cert || (*tls = tls_new(&files, err)) != NULL;
}

static bool run(const struct settings *settings, struct error *err) {
    struct judge_rules rules = {0};

    struct secret_key *key = NULL;
    struct tls *tls = NULL;
    struct store *store = NULL;
    bool good = wire_start(err) && settings_rules(settings, &rules, err) &&
                raise_descriptor_limit(settings->max_connections, err) &&
                (rules.secrets || (key = secret_key_load(settings->key, err)) != NULL);
    if (good)
        tell_unlocked(key, &rules);
    good = good && start_tls(settings, &tls, err) &&
           (store = store_open(settings->store, rules.node_id, err)) != NULL &&
           serve(settings, key, tls, store, &rules, err);
    store_close(store);
    tls_free(tls);
    secret_key_free(key);
    settings_rules_free(&rules);
    return good;
}

int main(int argc, char **argv) {
    struct error err = {EXIT_DONE, ""};
    struct settings settings;

    secrecy_begin(argc, argv);
    (void)umask(077);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("quorate-custodian %s\n", QUORATE_VERSION);
        return EXIT_DONE;
    }
    enum options_result parsed = settings_parse(argc, argv, &settings, &err);
    set_signals(settings.tls_cert != NULL);
    if (parsed == OPTIONS_OK) {
        log_open("quorate-custodian", settings.log_level);
        (void)run(&settings, &err);
    }
    if (err.code != EXIT_DONE)
        (void)fprintf(stderr, "quorate-custodian: %s\n", err.text);
    settings_free(&settings);
    return (int)err.code;
}
