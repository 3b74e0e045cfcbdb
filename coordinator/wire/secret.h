/* Symmetric secrets as Standard Webhooks writes them: whsec_<base64 of 24 to 64 bytes>; the world knows only their ids.
 */
#ifndef QUORATE_WIRE_SECRET_H
#define QUORATE_WIRE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"

enum {
    SECRET_BYTES_MIN = 24,
    SECRET_BYTES_MAX = 64,
    SECRET_DRAWN_BYTES = 32,
    SECRET_ID_TEXT = 5 + 16, /* "whid_" + the first 16 hex digits of the secret's SHA-256, without the final 0 */
    MAC_BYTES = 32,          /* HMAC-SHA256 */
};

/* One secret of a set. */
struct secret;

/* All secrets of a file, in sodium_malloc memory: locked, guarded, wiped when freed. Opaque on purpose. */
struct secret_set;

enum secret_lines {
    SECRET_LINES_PLAIN, /* "whsec_..." */
    SECRET_LINES_NODES, /* "ID = whsec_...", ID being a node's; several lines of a node while its secret changes */
};

/* Reads a text of such lines; blank ones and those that begin with # are passed over. NULL on error: EXIT_USAGE, with
 * the number of the line and never a part of it. The text is taken to pieces and text[size] written; its owner wipes
 * it.
 */
struct secret_set *secret_set_parse(char *text, size_t size, enum secret_lines lines, struct error *err) MUST_CHECK;
/* The same from a file, which is refused when others can read or write it (as for key files). */
struct secret_set *secret_set_load(const char *path, enum secret_lines lines, struct error *err) MUST_CHECK;
void secret_set_free(struct secret_set *set); /* NULL is allowed */

/* False: it may be written to swap. NULL is allowed. */
bool secret_set_locked(const struct secret_set *set);

size_t secret_set_count(const struct secret_set *set);
const struct secret *secret_set_at(const struct secret_set *set, size_t index);
/* The node's secret of that id, or NULL. `set` may be NULL. */
const struct secret *secret_set_find(const struct secret_set *set, int node_id, const char *id);

/* "whid_" and 16 lower-case hex digits: what the database knows of a secret. */
const char *secret_id(const struct secret *secret);
bool secret_id_valid(const char *text);

/* Draws a secret of 32 bytes and writes it on one line to a new file, as key_generate does; `id` receives its id. */
bool secret_generate(const char *path, char id[SECRET_ID_TEXT + 1], struct error *err) MUST_CHECK;

/* A piece of what is authenticated: so that an envelope need not be copied next to what precedes it. */
struct text_part {
    const void *data;
    size_t size;
};

/* HMAC-SHA256 over the parts, one behind the other. */
void hmac_sha256(const unsigned char *key, size_t key_size, const struct text_part *parts, size_t count,
                 unsigned char out[MAC_BYTES]);
void secret_hmac(const struct secret *secret, const struct text_part *parts, size_t count,
                 unsigned char out[MAC_BYTES]);

#endif
