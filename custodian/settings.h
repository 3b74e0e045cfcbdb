/* The custodian's command line. */
#ifndef CUSTODIAN_SETTINGS_H
#define CUSTODIAN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "judge.h"

/* What each means stands in the option table in settings.c, which also prints --help. */
struct settings {
    int64_t node_id;
    const char *listen, *store;
    const char *key, *secret; /* one of them is NULL */
    struct option_list coordinator_keys, seal_keys;
    bool require_sealed;
    const char *tls_cert, *tls_key; /* both or none */
    const char *tls_client_ca;      /* NULL: clients need no certificate */
    int64_t max_body;
    int64_t max_connections, max_connections_per_peer;
    int64_t request_us, idle_us;
    const char *port_file; /* NULL: none */
    const char *log_level_text;
    enum log_level log_level;
};

/* Reads argv into `settings`. OPTIONS_HELP when --help was asked for and printed; `err` is filled on OPTIONS_WRONG.
 * Free with settings_free in every case. */
enum options_result settings_parse(int argc, char **argv, struct settings *settings, struct error *err) MUST_CHECK;

/* The rules to judge requests by: node id, and coordinators' keys or the secrets of a file, and the keys that open
 * sealed envelopes. `rules` begins as zeros; free what it holds with settings_rules_free, whatever the result.
 * wire_start comes before. */
bool settings_rules(const struct settings *settings, struct judge_rules *rules, struct error *err) MUST_CHECK;
void settings_rules_free(struct judge_rules *rules);

void settings_free(struct settings *settings);

#endif
