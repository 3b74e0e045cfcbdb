/* How a coordinator may reach nodes: what the options of `quorate run` say, read and checked. */
#ifndef QUORATE_CLI_REACH_H
#define QUORATE_CLI_REACH_H

#include "base/check.h"
#include "base/error.h"
#include "base/options.h"
#include "transport/http.h"
#include "transport/pins.h"

struct reach_options {
    const char *ca, *client_cert, *client_key, *node_pins;
    struct option_list networks;
    bool plain_http;
};

struct reach {
    struct http_policy policy;
    struct network *networks;
    struct pin_set *pins;
};

/* EXIT_USAGE when an option is wrong, or a file cannot be used. The options outlive what was loaded. Free with
 * reach_free in every case. */
bool reach_load(const struct reach_options *options, struct reach *reach, struct error *err) MUST_CHECK;
void reach_free(struct reach *reach);

#endif
