/* Public keys that the TLS certificates of nodes must have: lines "ID = sha256//<base64 of SHA-256 over the key>". */
#ifndef QUORATE_TRANSPORT_PINS_H
#define QUORATE_TRANSPORT_PINS_H

#include <stddef.h>

#include "base/check.h"
#include "base/error.h"

struct pin_set;

/* Several lines of a node while its key changes; blank lines and those that begin with # are passed over. NULL on
 * error: EXIT_USAGE, with the number of the line. The text is taken to pieces and text[size] written. */
struct pin_set *pin_set_parse(char *text, size_t size, struct error *err) MUST_CHECK;
/* The same from a file, which is refused when others can write it, or when it holds no pin. */
struct pin_set *pin_set_load(const char *path, struct error *err) MUST_CHECK;
void pin_set_free(struct pin_set *set); /* NULL is allowed */

/* All pins of a node, as libcurl reads them: "sha256//...;sha256//...". NULL when it has none; `set` may be NULL. */
const char *pin_set_find(const struct pin_set *set, int node_id);

#endif
