/* What is printed: any text comes back from the JSON as it was, on one line of ASCII; people's tables hold no control
 * character. */
#include "cli/output.h"

#include "fuzz.h"

static char *printed;
static size_t printed_size;

static void begin(void) {
    stdout = open_memstream(&printed, &printed_size);
    MUST(stdout != NULL);
}

static void end(void) {
    fclose(stdout);
    stdout = NULL;
}

static void as_json(const json_t *value) {
    begin();
    output_json(value);
    end();
    MUST(printed_size > 0 && printed[printed_size - 1] == '\n');
    for (size_t i = 0; i + 1 < printed_size; i++)
        MUST(printed[i] >= 0x20 && (unsigned char)printed[i] <= 0x7f);
    json_t *again = json_loadb(printed, printed_size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    MUST(again != NULL && json_equal(again, value));
    json_decref(again);
    free(printed);
}

static void as_text(json_t *rows) {
    static const struct output_column columns[] = {{"KEY", "key"}, {"OTHER", "other"}, {"NUMBER", "number"}, {0}};
    size_t lines = 0;
    begin();
    output_table(rows, columns);
    end();
    for (size_t i = 0; i < printed_size; i++) {
        lines += printed[i] == '\n';
        MUST(printed[i] == '\n' || ((unsigned char)printed[i] >= 0x20 && printed[i] != 0x7f));
    }
    MUST(lines == json_array_size(rows) + 1);
    free(printed);
    char *text = output_text(rows);
    MUST(fuzz_is_line(text));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    json_t *rows = json_array();
    while (in.left > 0 && json_array_size(rows) < 8) {
        size_t length = fuzz_byte(&in);
        uint8_t kind = fuzz_byte(&in), *bytes = fuzz_bytes(&in, &length);
        json_t *text = json_stringn((const char *)bytes, length); /* NULL: no UTF-8 */
        json_t *other = kind & 1 ? json_pack("[o*,i,n]", text, kind) : text != NULL ? text : json_null();
        json_t *row = json_pack("{s:O?,s:o,s:I}", "key", text, "other", other, "number", (json_int_t)kind * 1000000007);
        if (row != NULL)
            json_array_append_new(rows, row);
        free(bytes);
    }
    as_json(rows);
    as_text(rows);
    json_decref(rows);
    return 0;
}
