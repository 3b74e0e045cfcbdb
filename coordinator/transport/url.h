/* What the URL of a node says before anything is sent there. */
#ifndef QUORATE_TRANSPORT_URL_H
#define QUORATE_TRANSPORT_URL_H

#include <curl/curl.h>
#include <stdbool.h>

#include "base/check.h"
#include "transport/peer.h"

/* http or https, with a host and without a user name. `parser` holds what was read. */
bool url_usable(CURLU *parser, const char *url) MUST_CHECK;

bool url_is_tls(const char *url);

/* False, and why, when its host is written as an address that peer_allowed refuses; names are looked up later. */
bool url_allowed(const struct peer_rules *rules, const char *url, char why[PEER_WHY]) MUST_CHECK;

#endif
