/* Key files and secret files of any content: they are read whole or refused in a line that repeats nothing of them. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "wire/key.h"
#include "wire/secret.h"

static char path[64];
static int file;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    MUST(wire_start(NULL));
    file = memfd_create("key", MFD_CLOEXEC);
    MUST(file >= 0 && fchmod(file, 0600) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

static void refused(const struct error *err, const uint8_t *content, size_t size) {
    MUST(err->code == EXIT_USAGE && fuzz_is_line(err->text) && strstr(err->text, path) != NULL);
    MUST(!fuzz_repeats(err->text, content, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MUST(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    struct error err = {0};
    struct secret_key *key = secret_key_load(path, &err);
    if (key == NULL)
        refused(&err, data, size);
    else
        MUST(size == SECRET_KEY_TEXT || (size == SECRET_KEY_TEXT + 1 && data[size - 1] == '\n'));
    secret_key_free(key);
    for (int lines = SECRET_LINES_PLAIN; lines <= SECRET_LINES_NODES; lines++) {
        struct secret_set *set = secret_set_load(path, (enum secret_lines)lines, &err);
        if (set == NULL)
            refused(&err, data, size);
        secret_set_free(set);
    }
    return 0;
}
