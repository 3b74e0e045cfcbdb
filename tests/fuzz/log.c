/* Values in the log: whatever a stranger sends stays one value on one line, and says what it was. */
#include "base/log.h"

#include "base/error.h"
#include "fuzz.h"

/* Reads a quoted value back; its length. */
static size_t read_back(const char *quoted, char *out) {
    size_t used = 0;
    for (quoted++; *quoted != '"'; quoted++) {
        MUST(*quoted != '\0');
        if (*quoted != '\\') {
            out[used++] = *quoted;
            continue;
        }
        quoted++;
        unsigned code = 0;
        if (*quoted == 'x') {
            const char digits[] = {quoted[1], quoted[1] != '\0' ? quoted[2] : '\0', '\0'};
            char *end;
            code = (unsigned)strtoul(digits, &end, 16);
            MUST(end == digits + 2);
            quoted += 2;
        }
        out[used++] = (char)(*quoted == 'n'   ? '\n'
                             : *quoted == 'r' ? '\r'
                             : *quoted == 't' ? '\t'
                             : code != 0      ? (int)code
                                              : *quoted);
    }
    MUST(quoted[1] == '\0');
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    size_t room = fuzz_byte(&in);
    char *text = fuzz_text(&in), *out = fuzz_memory(room), last[8] = "";
    struct error err = {0};
    log_quote(text, out, room);
    if (room > 0)
        MUST(strlen(out) < room && fuzz_is_line(out));
    if (room >= 3 && out[0] == '"') {
        char *again = fuzz_memory(room);
        size_t used = read_back(out, again);
        MUST(used <= strlen(text) && memcmp(again, text, used) == 0);
        free(again);
    } else if (room >= 3) {
        MUST(strncmp(out, text, strlen(out)) == 0 && strpbrk(out, " \"\\=") == NULL);
    }
    MUST(!error_set(&err, EXIT_USAGE, "%s", text) && fuzz_is_line(err.text));
    (void)log_changed(last, sizeof last, text);
    MUST(!log_changed(last, sizeof last, text));
    free(text);
    free(out);
    return 0;
}
