/* Files of any content that say what nodes' keys and pins are, and networks: read whole or refused in one line. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/node_keys.h"
#include "fuzz.h"
#include "transport/peer.h"
#include "transport/pins.h"
#include "wire/key.h"

static char path[64];
static int file;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    MUST(wire_start(NULL));
    file = memfd_create("lines", MFD_CLOEXEC);
    MUST(file >= 0 && fchmod(file, 0644) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

static void refused(const struct error *err) {
    MUST(err->code == EXIT_USAGE && fuzz_is_line(err->text) && strstr(err->text, path) != NULL);
}

static void read_pins(const uint8_t *data, size_t size) {
    enum { PIN_SIZE = 8 + 44, NODES = 100 };
    struct error err = {0};
    struct pin_set *pins = pin_set_load(path, &err);
    if (pins == NULL)
        refused(&err);
    else
        MUST(memmem(data, size, "sha256//", 8) != NULL); /* a file without a pin would leave all nodes unpinned */
    for (int node_id = 0; pins != NULL && node_id <= NODES; node_id++) {
        const char *text = pin_set_find(pins, node_id);
        for (; text != NULL && strlen(text) > PIN_SIZE; text += PIN_SIZE + 1)
            MUST(strncmp(text, "sha256//", 8) == 0 && text[PIN_SIZE] == ';');
        MUST(text == NULL || (node_id > 0 && strncmp(text, "sha256//", 8) == 0 && strlen(text) == PIN_SIZE));
    }
    pin_set_free(pins);
}

static void read_keys(void) {
    struct error err = {0};
    struct node_keys *keys = node_keys_load(path, &err);
    if (keys == NULL)
        refused(&err);
    node_keys_free(keys);
}

static void read_network(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct network network;
    struct error err = {0};
    char *text = fuzz_text(&in);
    if (!network_parse(text, &network, &err))
        MUST(err.code == EXIT_USAGE && fuzz_is_line(err.text));
    else
        MUST(network.bits >= 0 && network.bits <= (network.family == AF_INET ? 32 : 128));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MUST(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    read_pins(data, size);
    read_keys();
    read_network(data, size);
    return 0;
}
