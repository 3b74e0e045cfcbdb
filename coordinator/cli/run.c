/* quorate run: the coordinator's process: options, signals, the loop and the monitoring endpoint. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/reach.h"
#include "cli/run_keys.h"
#include "round/coordinator.h"
#include "transport/monitor.h"

enum { NAME_MAX_BYTES = 255 };

struct run {
    struct common_options common;
    struct run_keys keys;
    struct reach_options reach;
    const char *name, *metrics, *log_level, *listen_db;
    int64_t lease, slots, max_rounds, checkpoint_every;
};

static const struct option_spec options[] = {
    {.name = "key",
     .kind = OPTION_LIST,
     .argument = "FILE",
     .help =
         "secret key that signs the requests, as quorate keygen writes it; up to 4 while it changes: each then signs "
         "every request",
     .offset = offsetof(struct run, keys.key_files),
     .required = true},
    {.name = "node-secrets",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "secrets shared with nodes that have no key of their own: a line ID = whsec_... for each, several for a "
             "node while its secret changes; mode 0600",
     .offset = offsetof(struct run, keys.node_secrets_file)},
    {.name = "ca",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "the CAs that sign the certificates of nodes, in PEM; no others are trusted then (default: the system's)",
     .offset = offsetof(struct run, reach.ca)},
    {.name = "client-cert",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "certificate that nodes know coordinators by, in PEM, with those between it and its CA (default: none)",
     .offset = offsetof(struct run, reach.client_cert)},
    {.name = "client-key",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "its secret key, in PEM and without a password; mode 0600",
     .offset = offsetof(struct run, reach.client_key)},
    {.name = "node-pins",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "public keys that the certificates of nodes must have: a line ID = sha256//<base64> for each, several for "
             "a node while its key changes",
     .offset = offsetof(struct run, reach.node_pins)},
    {.name = "allow-network",
     .kind = OPTION_LIST,
     .argument = "CIDR",
     .help = "a network where nodes may be, such as 10.1.0.0/16; can be given more than once (default: everywhere but "
             "link-local, multicast and metadata addresses, which are never allowed)",
     .offset = offsetof(struct run, reach.networks)},
    {.name = "allow-plain-http",
     .kind = OPTION_FLAG,
     .help = "send over http to other machines as well, where anyone on the way can read envelopes (default: http to "
             "this machine alone)",
     .offset = offsetof(struct run, reach.plain_http)},
    {.name = "audit-key",
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help =
         "secret key that signs checkpoints of the history, another one than that of --key (default: none are signed)",
     .offset = offsetof(struct run, keys.audit_key_file)},
    {.name = "checkpoint-every",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "how long a record of the history waits for a signature, at most 1m (default: 10s)",
     .offset = offsetof(struct run, checkpoint_every),
     .min = 1000,
     .max = 60000000},
    {.name = "name",
     .kind = OPTION_TEXT,
     .argument = "NAME",
     .help = "name in audit views (default: host name and pid)",
     .offset = offsetof(struct run, name)},
    {.name = "metrics",
     .kind = OPTION_TEXT,
     .argument = "HOST:PORT",
     .help = "serve /healthz, /readyz and Prometheus /metrics there; port 0: any free one, told in the log",
     .offset = offsetof(struct run, metrics)},
    {.name = "lease",
     .kind = OPTION_DURATION,
     .argument = "DURATION",
     .help = "how long it may be silent before a peer takes its rounds over (default: 2s)",
     .offset = offsetof(struct run, lease),
     .min = 1000000,
     .max = 3600000000},
    {.name = "slots",
     .kind = OPTION_INT,
     .argument = "N",
     .help = "requests under way at once to one endpoint (default: 128)",
     .offset = offsetof(struct run, slots),
     .min = 1,
     .max = 10000},
    {.name = "max-rounds",
     .kind = OPTION_INT,
     .argument = "N",
     .help = "unsettled rounds held at once (default: 200000)",
     .offset = offsetof(struct run, max_rounds),
     .min = 1,
     .max = 100000000},
    {.name = "log-level",
     .kind = OPTION_CHOICE,
     .argument = "LEVEL",
     .help = "debug, info, warn or error (default: info)",
     .offset = offsetof(struct run, log_level),
     .choices = "debug|info|warn|error"},
    {.name = "db",
     .kind = OPTION_TEXT,
     .argument = "CONNINFO",
     .help = "libpq connection string or URI (default: QUORATE_DB, then libpq's PG* variables)",
     .offset = offsetof(struct run, common.db)},
    {.name = "listen-db",
     .kind = OPTION_TEXT,
     .argument = "CONNINFO",
     .help = "the same database without a transaction pooler between, for the sessions that listen (default: as --db)",
     .offset = offsetof(struct run, listen_db)},
    {.name = "json",
     .kind = OPTION_FLAG,
     .help = "accepted for uniformity: the log is key=value lines on stderr",
     .offset = offsetof(struct run, common.json)},
    {0},
};
static const struct command_syntax syntax = {
    .name = "quorate run",
    .summary = "Runs a coordinator: claims rounds, delivers their envelopes, and completes or stalls them.",
    .options = options,
    .notes =
        "Any number of coordinators may share one database. SIGTERM or SIGINT drains: requests under way are awaited, "
        "the rounds are left to peers, and it exits with 0. A second signal ends it at once, which loses only time. "
        "SIGHUP reads the files of --key and --node-secrets again; if one of them is wrong, all stays as it was.",
};

struct daemon {
    struct coordinator coordinator;
    struct monitor *monitor;
    struct run_keys *keys;
    ev_signal terminate, interrupt, hang_up;
};

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int events) {
    (void)events;
    struct daemon *d = watcher->data;
    if (d->coordinator.draining) {
        ev_break(loop, EVBREAK_ALL);
    }
    coordinator_drain(&d->coordinator);
}

static void on_hang_up(struct ev_loop *loop, ev_signal *watcher, int events) {
    (void)loop, (void)events;
    struct daemon *d = watcher->data;
    struct secret_set *before;
    struct error err = {0};
    char quoted[sizeof err.text * 2];
    if (!run_keys_read(d->keys, &before, &err)) {
        log_event(LOG_ERROR, "keys_kept", "reason=%s", log_quote(err.text, quoted, sizeof quoted));
        return;
    }
    coordinator_take_secrets(&d->coordinator, d->keys->node_secrets);
    secret_set_free(before);
    log_event(LOG_INFO, "keys_read", "keys=%zu node_secrets=%zu", d->keys->keys.count,
              d->keys->node_secrets != NULL ? secret_set_count(d->keys->node_secrets) : 0);
}

static bool is_ready(void *context) {
    return coordinator_ready(context);
}

static char *metrics(void *context, size_t *size) {
    struct coordinator *c = context;
    struct metrics_gauges gauges;
    coordinator_gauges(c, &gauges);
    return metrics_text(&c->metrics, &gauges, size);
}

static bool monitor_open(struct daemon *d, struct ev_loop *loop, const char *address, struct error *err) {
    static const struct monitor_source SOURCE = {.ready = is_ready, .metrics = metrics};
    if (address == NULL) {
        return true;
    }
    d->monitor = monitor_start(loop, address, &SOURCE, &d->coordinator, err);
    if (d->monitor == NULL) {
        return false;
    }
    log_event(LOG_INFO, "metrics", "port=%d", monitor_port(d->monitor));
    return true;
}

static void watch_signal(struct ev_loop *loop, ev_signal *watcher, int number, struct daemon *d,
                         void (*handler)(struct ev_loop *, ev_signal *, int)) {
    ev_signal_init(watcher, handler, number);
    watcher->data = d;
    ev_signal_start(loop, watcher);
}

/* Sockets to all nodes need more descriptors than most shells allow at first. */
static void raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* `left`: whether it said goodbye, so that peers take over at once. */
static bool run(const struct coordinator_settings *settings, struct run_keys *keys, const char *metrics_address,
                bool *left, struct error *err) {
    struct daemon *d = calloc(1, sizeof *d);
    struct ev_loop *loop = ev_default_loop(EVFLAG_AUTO);
    bool good = false;
    if (d == NULL || loop == NULL) {
        error_set(err, EXIT_UNEXPECTED, "cannot make an event loop");
        goto done;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets whose peer may be gone */
    raise_descriptor_limit();
    watch_signal(loop, &d->terminate, SIGTERM, d, on_signal);
    watch_signal(loop, &d->interrupt, SIGINT, d, on_signal);
    d->keys = keys;
    watch_signal(loop, &d->hang_up, SIGHUP, d, on_hang_up);
    if (monitor_open(d, loop, metrics_address, err) && coordinator_start(&d->coordinator, loop, settings, err)) {
        ev_run(loop, 0);
        good = true;
    }
    *left = d->coordinator.left;
    coordinator_free(&d->coordinator);
    monitor_free(d->monitor);
done:
    free(d);
    if (loop != NULL) {
        ev_loop_destroy(loop);
    }
    return good;
}

/* Looks at what the table of options cannot judge. */
static bool check(const struct run *given, const char *name, struct error *err) {
    if (strlen(name) > NAME_MAX_BYTES) {
        return error_set(err, EXIT_USAGE, "--name: %zu characters are too many: use at most %d", strlen(name),
                         (int)NAME_MAX_BYTES);
    }
    json_t *readable = json_string(name); /* NULL unless it is UTF-8 */
    if (readable == NULL) {
        return error_set(err, EXIT_USAGE, "--name: it is not UTF-8: use printable characters");
    }
    json_decref(readable);
    return db_conninfo_check(db_conninfo(given->common.db), err) && db_conninfo_check(given->listen_db, err);
}

int cli_run(int argc, char **argv) {
    struct run given = {
        .lease = 2000000, .slots = 128, .max_rounds = 200000, .checkpoint_every = 10000000, .log_level = "info"};
    struct error err = {0};
    enum log_level level;
    char host[128] = "host", name[NAME_MAX_BYTES + 1];
    int code;
    if (!cli_parse(&syntax, argc, argv, &given, &code)) {
        return code;
    }
    log_open("quorate", log_level_parse(given.log_level, &level) ? level : LOG_INFO);
    (void)gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s-%ld", host, (long)getpid());
    if (given.name == NULL) {
        given.name = name;
    }
    struct secret_set *none;
    struct reach reach = {0};
    bool good = check(&given, given.name, &err) && wire_start(&err) && run_keys_read(&given.keys, &none, &err) &&
                reach_load(&given.reach, &reach, &err);
    bool left = false;
    if (good) {
        const struct coordinator_settings settings = {.conninfo = given.common.db,
                                                      .listen_conninfo = given.listen_db,
                                                      .name = given.name,
                                                      .lease_us = given.lease,
                                                      .slots_per_endpoint = (unsigned)given.slots,
                                                      .max_rounds = (size_t)given.max_rounds,
                                                      .keys = &given.keys.keys,
                                                      .node_secrets = given.keys.node_secrets,
                                                      .node_pins = reach.pins,
                                                      .http = reach.policy,
                                                      .audit_key = given.keys.audit_key,
                                                      .checkpoint_us = given.checkpoint_every};
        good = run(&settings, &given.keys, given.metrics, &left, &err);
    }
    run_keys_free(&given.keys);
    reach_free(&reach);
    option_list_free(&given.reach.networks);
    if (!good) {
        return cli_fail(&syntax, &err);
    }
    log_event(LOG_INFO, "stopped", "left=%s", left ? "yes" : "no"); /* the last of its work */
    return EXIT_DONE;
}
