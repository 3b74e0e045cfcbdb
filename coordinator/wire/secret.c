/* Reads, draws and uses the symmetric secrets that a coordinator and a node share. */
#include "wire/secret.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/secrecy.h"
#include "wire/key_file.h"

enum {
    BASE64 = sodium_base64_VARIANT_ORIGINAL,
    BASE64_MAX = 88, /* characters of SECRET_BYTES_MAX bytes */
    ID_HASH_BYTES = 8,
    FILE_BYTES_MAX = 16 * 1024 * 1024,
};

static const char prefix[] = "whsec_", id_prefix[] = "whid_";
enum { PREFIX_SIZE = sizeof prefix - 1, ID_PREFIX_SIZE = sizeof id_prefix - 1 };

static const char form[] = "a secret is written whsec_ and the base64 of 24 to 64 bytes";
static const char no_memory[] = "no protected memory for the secrets: raise the limit of locked memory";

struct secret {
    unsigned char bytes[SECRET_BYTES_MAX];
    size_t size;
    int node_id; /* 0 where lines name none */
    char id[SECRET_ID_TEXT + 1];
};

struct secret_set {
    size_t count;
    struct secret items[];
};

static_assert(MAC_BYTES == crypto_auth_hmacsha256_BYTES, "an HMAC-SHA256");
static_assert(BASE64_MAX + 1 == sodium_base64_ENCODED_LEN(SECRET_BYTES_MAX, BASE64), "the longest secret's base64");
static_assert(SECRET_ID_TEXT == ID_PREFIX_SIZE + 2 * ID_HASH_BYTES, "an id's text");

void hmac_sha256(const unsigned char *key, size_t key_size, const struct text_part *parts, size_t count,
                 unsigned char out[MAC_BYTES]) {
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key, key_size);
    for (size_t i = 0; i < count; i++)
        crypto_auth_hmacsha256_update(&state, parts[i].data, parts[i].size);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state); /* it was made from the key */
}

void secret_hmac(const struct secret *secret, const struct text_part *parts, size_t count,
                 unsigned char out[MAC_BYTES]) {
    hmac_sha256(secret->bytes, secret->size, parts, count, out);
}

static void make_id(const unsigned char *bytes, size_t size, char id[SECRET_ID_TEXT + 1]) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(digest, bytes, size);
    memcpy(id, id_prefix, ID_PREFIX_SIZE);
    sodium_bin2hex(id + ID_PREFIX_SIZE, SECRET_ID_TEXT + 1 - ID_PREFIX_SIZE, digest, ID_HASH_BYTES);
}

const char *secret_id(const struct secret *secret) {
    return secret->id;
}

bool secret_id_valid(const char *text) {
    return strlen(text) == SECRET_ID_TEXT && memcmp(text, id_prefix, ID_PREFIX_SIZE) == 0 &&
           strspn(text + ID_PREFIX_SIZE, "0123456789abcdef") == SECRET_ID_TEXT - ID_PREFIX_SIZE;
}

/* Reads "whsec_..." into `secret`. */
static bool parse_secret(const char *text, struct secret *secret, struct error *err) {
    if (strncmp(text, prefix, PREFIX_SIZE) != 0)
        return error_set(err, EXIT_USAGE, "the secret does not begin with whsec_: %s", form);
    text += PREFIX_SIZE;
    size_t length = strlen(text);
    if (length > BASE64_MAX)
        return error_set(err, EXIT_USAGE, "the secret has %zu characters behind whsec_, more than %d: %s", length,
                         (int)BASE64_MAX, form);
    char encoded[BASE64_MAX + 1];
    bool good =
        sodium_base642bin(secret->bytes, sizeof secret->bytes, text, length, NULL, &secret->size, NULL, BASE64) == 0;
    if (good) {
        sodium_bin2base64(encoded, sizeof encoded, secret->bytes, secret->size, BASE64);
        good = strcmp(encoded, text) == 0;
        sodium_memzero(encoded, sizeof encoded);
    }
    if (!good)
        return error_set(err, EXIT_USAGE, "the secret is not canonical base64: %s", form);
    if (secret->size < SECRET_BYTES_MIN)
        return error_set(err, EXIT_USAGE, "the secret has %zu bytes: %s", secret->size, form);
    make_id(secret->bytes, secret->size, secret->id);
    return true;
}

/* What takes the lines of a file. */
struct reader {
    struct secret_set *set;
    enum secret_lines lines;
};

static bool take_line(void *context, char *line, struct error *err) {
    struct reader *reader = context;
    struct secret *secret = &reader->set->items[reader->set->count];
    memset(secret, 0, sizeof *secret);
    if (reader->lines == SECRET_LINES_NODES && (line = line_of_node(line, "whsec_...", &secret->node_id, err)) == NULL)
        return false;
    if (!parse_secret(line, secret, err))
        return false;
    reader->set->count++;
    return true;
}

/* As many secrets as there may be in the text. */
static struct secret_set *make_set(const char *text, size_t size) {
    size_t most = 1;
    for (size_t i = 0; i < size; i++)
        most += text[i] == '\n';
    struct secret_set *set = sodium_malloc(sizeof *set + most * sizeof set->items[0]);
    if (set != NULL)
        set->count = 0;
    return set;
}

struct secret_set *secret_set_parse(char *text, size_t size, enum secret_lines lines, struct error *err) {
    struct secret_set *set = make_set(text, size);
    if (set == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED, no_memory);
        return NULL;
    }
    struct reader reader = {set, lines};
    if (!lines_read(text, size, take_line, &reader, err))
        goto failed;
    if (sodium_mprotect_readonly(set) != 0) {
        (void)error_set(err, EXIT_UNEXPECTED, "the secrets' memory could not be protected: %s", strerror(errno));
        goto failed;
    }
    return set;
failed:
    sodium_free(set);
    return NULL;
}

struct secret_set *secret_set_load(const char *path, enum secret_lines lines, struct error *err) {
    static const char what[] = "secret file";
    int fd = key_file_open(what, path, err);
    if (fd < 0)
        return NULL;
    struct secret_set *set = NULL;
    struct stat status;
    char *text = NULL;
    struct error cause = {0};
    if (fstat(fd, &status) != 0 || status.st_size > FILE_BYTES_MAX) {
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" is larger than %d bytes", what, path, (int)FILE_BYTES_MAX);
        goto done;
    }
    size_t room = (size_t)status.st_size;
    text = sodium_malloc(room + 1);
    if (text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED, no_memory);
        goto done;
    }
    ssize_t size = key_file_read(fd, text, room);
    if (size < 0) {
        (void)error_set(err, EXIT_USAGE, "%s \"%.300s\" cannot be read: %s", what, path, strerror(errno));
        goto done;
    }
    set = secret_set_parse(text, (size_t)size, lines, &cause);
    if (set == NULL)
        (void)error_set(err, cause.code, "%s \"%.300s\", %s", what, path, cause.text);
done:
    sodium_free(text); /* wipes */
    close(fd);
    return set;
}

void secret_set_free(struct secret_set *set) {
    sodium_free(set);
}

bool secret_set_locked(const struct secret_set *set) {
    return set == NULL || secrecy_locked(set, sizeof *set + set->count * sizeof set->items[0]);
}

size_t secret_set_count(const struct secret_set *set) {
    return set->count;
}

const struct secret *secret_set_at(const struct secret_set *set, size_t index) {
    return &set->items[index];
}

const struct secret *secret_set_find(const struct secret_set *set, int node_id, const char *id) {
    for (size_t i = 0; set != NULL && i < set->count; i++)
        if (set->items[i].node_id == node_id && strcmp(set->items[i].id, id) == 0)
            return &set->items[i];
    return NULL;
}

bool secret_generate(const char *path, char id[SECRET_ID_TEXT + 1], struct error *err) {
    enum { TEXT = PREFIX_SIZE + sodium_base64_ENCODED_LEN(SECRET_DRAWN_BYTES, BASE64) }; /* the final 0 included */
    unsigned char *drawn = sodium_malloc(SECRET_DRAWN_BYTES);
    char *text = sodium_malloc(TEXT);
    bool good = false;
    if (drawn == NULL || text == NULL) {
        (void)error_set(err, EXIT_UNEXPECTED, no_memory);
    } else {
        randombytes_buf(drawn, SECRET_DRAWN_BYTES);
        memcpy(text, prefix, PREFIX_SIZE);
        sodium_bin2base64(text + PREFIX_SIZE, TEXT - PREFIX_SIZE, drawn, SECRET_DRAWN_BYTES, BASE64);
        text[TEXT - 1] = '\n'; /* in place of the final 0: the file holds one line */
        good = key_file_write("secret file", path, text, TEXT, err);
    }
    if (good)
        make_id(drawn, SECRET_DRAWN_BYTES, id);
    sodium_free(drawn); /* wipes, as for the text */
    sodium_free(text);
    return good;
}
