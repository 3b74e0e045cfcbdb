/* Reads the file of --node-pins. */
#include "transport/pins.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/lines.h"
#include "base/public_file.h"

enum { FILE_BYTES_MAX = 4 * 1024 * 1024, BASE64 = sodium_base64_VARIANT_ORIGINAL };

static const char prefix[] = "sha256//";
enum { PREFIX_SIZE = sizeof prefix - 1 };

struct pins {
    UT_hash_handle hh;
    int node_id;
    char *text;
};

struct pin_set {
    struct pins *nodes;
};

static bool pin_valid(const char *text) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    char again[sodium_base64_ENCODED_LEN(sizeof digest, BASE64)];
    size_t size = 0;
    if (strncmp(text, prefix, PREFIX_SIZE) != 0 || strlen(text) != PREFIX_SIZE + sizeof again - 1 ||
        sodium_base642bin(digest, sizeof digest, text + PREFIX_SIZE, sizeof again - 1, NULL, &size, NULL, BASE64) !=
            0 ||
        size != sizeof digest)
        return false;
    return strcmp(sodium_bin2base64(again, sizeof again, digest, sizeof digest, BASE64), text + PREFIX_SIZE) == 0;
}

static struct pins *pins_of(struct pin_set *set, int node_id) {
    struct pins *pins;
    HASH_FIND_INT(set->nodes, &node_id, pins);
    if (pins != NULL || (pins = calloc(1, sizeof *pins)) == NULL)
        return pins;
    pins->node_id = node_id;
    HASH_ADD_INT(set->nodes, node_id, pins);
    return pins;
}

static bool take_line(void *context, char *line, struct error *err) {
    int node_id;
    const char *pin = line_of_node(line, "sha256//...", &node_id, err);
    if (pin == NULL)
        return false;
    if (!pin_valid(pin))
        return error_set(err, EXIT_USAGE,
                         "the pin of node %d is none: write sha256// and the base64 of the SHA-256 of its public key, "
                         "44 characters",
                         node_id);
    struct pins *pins = pins_of(context, node_id);
    char *joined = NULL;
    if (pins == NULL ||
        asprintf(&joined, "%s%s%s", pins->text != NULL ? pins->text : "", pins->text != NULL ? ";" : "", pin) < 0)
        return error_set(err, EXIT_UNEXPECTED, "out of memory");
    free(pins->text);
    pins->text = joined;
    return true;
}

struct pin_set *pin_set_parse(char *text, size_t size, struct error *err) {
    struct pin_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED, "out of memory");
        return NULL;
    }
    if (lines_read(text, size, take_line, set, err))
        return set;
    pin_set_free(set);
    return NULL;
}

struct pin_set *pin_set_load(const char *path, struct error *err) {
    size_t size;
    struct error cause = {0};
    char *text = public_file_read("--node-pins", path, FILE_BYTES_MAX, &size, err);
    if (text == NULL)
        return NULL;
    struct pin_set *set = pin_set_parse(text, size, &cause);
    free(text);
    if (set == NULL) {
        (void)error_set(err, cause.code, "--node-pins \"%.300s\", %s", path, cause.text);
    } else if (set->nodes == NULL) { /* most likely it was cut off: nodes are not to go unpinned for that */
        (void)error_set(err, EXIT_USAGE, "--node-pins \"%.300s\" holds no pin: write lines ID = sha256//...", path);
        pin_set_free(set);
        set = NULL;
    }
    return set;
}

void pin_set_free(struct pin_set *set) {
    if (set == NULL)
        return;
    struct pins *pins = set->nodes;
    HASH_CLEAR(hh, set->nodes); /* it frees the table and leaves its members chained */
    while (pins != NULL) {
        struct pins *next = pins->hh.next;
        free(pins->text);
        free(pins);
        pins = next;
    }
    free(set);
}

const char *pin_set_find(const struct pin_set *set, int node_id) {
    struct pins *pins = NULL;
    if (set != NULL)
        HASH_FIND_INT(set->nodes, &node_id, pins);
    return pins != NULL ? pins->text : NULL;
}
