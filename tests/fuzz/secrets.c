/* Texts of symmetric secrets: each line that is read is the secret that it says, and no error repeats one. */
#include <sodium.h>

#include "fuzz.h"
#include "wire/key.h"
#include "wire/secret.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    MUST(wire_start(NULL));
    return 0;
}

/* Reads the next line that is neither blank nor a remark another way; false at the end. */
static bool next_line(const char **text, const char *end, long *node_id, char id[SECRET_ID_TEXT + 1]) {
    while (*text < end) {
        const char *line = *text + strspn(*text, " \t\r");
        size_t size = strcspn(*text, "\n");
        const char *after = *text + size;
        *text = after + 1;
        if (line >= after || *line == '#')
            continue;
        const char *secret = strstr(line, "whsec_");
        unsigned char bytes[SECRET_BYTES_MAX], digest[crypto_hash_sha256_BYTES];
        size_t length;
        MUST(secret != NULL && secret < after);
        secret += strlen("whsec_");
        MUST(sodium_base642bin(bytes, sizeof bytes, secret, strcspn(secret, " \t\r\n"), NULL, &length, NULL,
                               sodium_base64_VARIANT_ORIGINAL) == 0);
        crypto_hash_sha256(digest, bytes, length);
        strcpy(id, "whid_");
        sodium_bin2hex(id + 5, SECRET_ID_TEXT + 1 - 5, digest, 8);
        *node_id = strtol(line, NULL, 10);
        return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    enum secret_lines lines = fuzz_byte(&in) & 1 ? SECRET_LINES_NODES : SECRET_LINES_PLAIN;
    struct error err = {0};
    size_t text_size = in.left;
    char *text = fuzz_memory(text_size + 1), *copy = fuzz_memory(text_size + 1);
    if (text_size > 0)
        memcpy(text, in.at, text_size);
    memcpy(copy, text, text_size);
    copy[text_size] = '\0';
    struct secret_set *set = secret_set_parse(text, text_size, lines, &err);
    if (set == NULL) {
        MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text) && strstr(err.text, "line ") != NULL);
        MUST(!fuzz_repeats(err.text, in.at, in.left));
    } else {
        const char *at = copy;
        char id[SECRET_ID_TEXT + 1];
        long node_id;
        for (size_t i = 0; i < secret_set_count(set); i++) {
            MUST(next_line(&at, copy + text_size, &node_id, id));
            MUST(strcmp(secret_id(secret_set_at(set, i)), id) == 0 && secret_id_valid(id));
            MUST(secret_set_find(set, lines == SECRET_LINES_NODES ? (int)node_id : 0, id) != NULL);
        }
        MUST(!next_line(&at, copy + text_size, &node_id, id));
    }
    secret_set_free(set);
    free(text);
    free(copy);
    return 0;
}
