/* Response heads: whatever lines come, a head is complete only with a final status, and its fields are clean. */
#include "transport/http_head.h"
#include "fuzz.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void check_field(const char *text, const uint8_t *data, size_t size) {
    size_t length = strlen(text);
    MUST(length < 256);
    MUST(length == 0 ||
         (!is_blank(text[0]) && !is_blank(text[length - 1]) && memmem(data, size, text, length) != NULL));
}

/* The status that this line says, read another way; 0 for none. */
static int status_of(const uint8_t *line, size_t size) {
    static const char form[] = "HTTP/1.0 000";
    if (size < sizeof form - 1)
        return 0;
    for (size_t i = 0; form[i] != '\0'; i++)
        if (form[i] == '0' ? line[i] < '0' || line[i] > '9' : line[i] != (uint8_t)form[i])
            return 0;
    if (size > 12 && line[12] != ' ' && line[12] != '\r' && line[12] != '\n')
        return 0;
    return line[9] >= '1' && line[9] <= '5' ? (line[9] - '0') * 100 + (line[10] - '0') * 10 + line[11] - '0' : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    struct http_head head = {0};
    size_t fed = 0;
    while (in.left > 0) {
        const uint8_t *end = memchr(in.at, '\n', in.left);
        size_t length = end != NULL ? (size_t)(end - in.at) + 1 : in.left;
        char *line = (char *)fuzz_bytes(&in, &length);
        bool wants_status = head.state == HEAD_MORE && head.status == 0;
        enum http_head_state before = head.state, after = http_head_line(&head, line, length);
        fed += length;
        MUST(after == head.state && (before == HEAD_MORE || after == before));
        if (wants_status && fed <= 64 * 1024)
            MUST(head.status == status_of((const uint8_t *)line, length) &&
                 (after == HEAD_WRONG) == (head.status == 0));
        MUST(fed <= 64 * 1024 || after != HEAD_MORE);
        MUST(after != HEAD_COMPLETE || (head.status >= 200 && head.status <= 599));
        for (int field = 0; field < FIELD_COUNT; field++)
            check_field(http_head_field(&head, (enum http_field)field), data, size);
        free(line);
    }
    return 0;
}
