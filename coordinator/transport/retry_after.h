/* Retry-After: how long a node asks us to wait (RFC 9110, section 10.2.3). */
#ifndef QUORATE_TRANSPORT_RETRY_AFTER_H
#define QUORATE_TRANSPORT_RETRY_AFTER_H

#include <stdint.h>

/* `value`: the header's value, seconds or an HTTP date. `date`: the response's Date header or NULL: an HTTP date is
 * read against it, and only without it against `now_s` (unix seconds), so that skewed hosts do not matter. Returns
 * milliseconds, 0 for anything else or a date in the past; capped at 24 h. */
int64_t retry_after_parse(const char *value, const char *date, int64_t now_s);

#endif
