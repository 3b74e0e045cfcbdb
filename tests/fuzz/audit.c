/* What an auditor is given: files of `quorate audit export`, checkpoints and records of any content fit or are refused
 * in one line. */
#include <jansson.h>

#include "cli/audit_check.h"
#include "cli/audit_past.h"
#include "fuzz.h"
#include "wire/key.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    MUST(wire_start(NULL));
    return 0;
}

static void refused(const struct error *err) {
    MUST(err->code != EXIT_DONE && fuzz_is_line(err->text));
}

static void read_file(const char *text, size_t size) {
    struct audit_keys keys = {0};
    struct audit_tally tally = {0};
    struct error err = {0};
    if (!audit_text(text, size, &keys, &tally, &err))
        refused(&err);
}

static void read_checkpoint(const char *text) {
    struct checkpoint checkpoint;
    char again[CHECKPOINT_LINE_MAX + 1];
    if (checkpoint_parse(text, &checkpoint)) {
        checkpoint_format(&checkpoint, again);
        MUST(strcmp(again, text) == 0);
    }
}

/* A record whose digest is its own, so that what it says is looked at. */
static void read_record(const char *text, size_t size) {
    static const char *const kinds[] = {"ended", "settled", "acked", "node_key", "coordinator", "pruned"};
    struct history_entry entry = {.seq = 1, .key = 5, .at_us = 1};
    struct audit_past past = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct audit_tally tally = {0};
        struct error err = {0};
        snprintf(entry.kind, sizeof entry.kind, "%s", kinds[i]);
        sha256(text, size, entry.digest);
        if (!audit_record("demo", &entry, text, &tally, &err))
            refused(&err);
        if (!audit_past_check(&past, &entry, text, &err))
            refused(&err);
    }
    audit_past_free(&past);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char *text = fuzz_text(&in);
    read_file((const char *)data, size);
    read_checkpoint(text);
    read_record(text, strlen(text));
    free(text);
    return 0;
}
