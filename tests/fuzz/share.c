/* Shares given as ID=FILE: what is taken is one envelope for each node, and errors show no byte of any. */
#include "cli/share.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include "fuzz.h"

static int folder_fd, back;

/* In place of libsodium's: the buffer of 16 MiB, of which little is ever used, is not wiped each time. */
void sodium_memzero(void *const memory, const size_t size) {
    memset(memory, 0, size < 4096 ? size : 4096);
}

static const char envelope[] = "ENVELOPEBYTESENVELOPEBYTES";

static void make_file(const char *name, const char *text, size_t size) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    MUST(fd >= 0 && write(fd, text, size) == (ssize_t)size && close(fd) == 0);
}

/* In a folder of its own, which the files' names do not leave. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    char folder[] = "/tmp/quorate-fuzz-share-XXXXXX";
    MUST(mkdtemp(folder) != NULL);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(folder_fd >= 0 && back >= 0 && fchdir(folder_fd) == 0);
    make_file("a", envelope, sizeof envelope - 1);
    make_file("b", envelope, 1);
    make_file("empty", "", 0);
    MUST(fchdir(back) == 0);
    return 0;
}

enum { SHARES_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    const char *values[SHARES_MAX];
    struct option_list shares = {.values = values};
    while (in.left > 0 && shares.count < SHARES_MAX) {
        char *share = fuzz_text(&in);
        for (char *slash = share; (slash = strchr(slash, '/')) != NULL;)
            *slash = '_';
        values[shares.count++] = share;
    }
    struct share_list read_in = {0};
    struct error err = {0};
    MUST(fchdir(folder_fd) == 0);
    bool read = shares_read(&shares, &read_in, &err);
    MUST(fchdir(back) == 0);
    MUST(!read || read_in.count == shares.count);
    for (size_t i = 0; read && i < read_in.count; i++)
        MUST(read_in.items[i].node_id >= 1 && read_in.items[i].node_id <= 32767 && read_in.items[i].size >= 1);
    if (!read)
        MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text) && strstr(err.text, envelope) == NULL);
    shares_free(&read_in);
    for (size_t i = 0; i < shares.count; i++)
        free((char *)(uintptr_t)values[i]);
    return 0;
}
