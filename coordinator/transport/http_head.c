/* Reads a response head line by line: status, receipt, Retry-After and Date. */
#include "transport/http_head.h"

#include <string.h>
#include <strings.h>

enum { HEAD_MAX_BYTES = 64 * 1024, HEAD_MAX_FIELDS = 2000 };

static const char *const field_names[FIELD_COUNT] = {"quorate-receipt", "retry-after", "date"};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* "HTTP/1.x NNN" and then a blank or the end: the status, or 0. */
static int status_of(const char *line, size_t size) {
    static const char version[] = "HTTP/1.";
    const size_t at = sizeof version - 1;
    if (size < at + 5 || memcmp(line, version, at) != 0 || !is_digit(line[at]) || line[at + 1] != ' ')
        return 0;
    const char *code = line + at + 2;
    if (!is_digit(code[0]) || !is_digit(code[1]) || !is_digit(code[2]) ||
        (size > at + 5 && memchr(" \r\n", code[3], 3) == NULL))
        return 0;
    int status = (code[0] - '0') * 100 + (code[1] - '0') * 10 + (code[2] - '0');
    return status >= 100 && status <= 599 ? status : 0;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void keep_field(struct http_head *head, const char *line, size_t size) {
    head->last_field = 0;
    const char *colon = memchr(line, ':', size);
    if (colon == NULL)
        return;
    size_t name_size = (size_t)(colon - line);
    int field = 0;
    while (field < FIELD_COUNT &&
           (strlen(field_names[field]) != name_size || strncasecmp(field_names[field], line, name_size) != 0))
        field++;
    if (field == FIELD_COUNT)
        return;

    head->last_field = field + 1;
    head->fields[field].seen++;
    head->fields[field].text[0] = '\0';
    const char *value = colon + 1, *end = line + size;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    size_t value_size = (size_t)(end - value);
    if (value_size >= sizeof head->fields[field].text || memchr(value, '\0', value_size) != NULL)
        return;
    memcpy(head->fields[field].text, value, value_size);
    head->fields[field].text[value_size] = '\0';
}

/* A new head begins: what an interim one (1xx) said is forgotten. */
static enum http_head_state begin(struct http_head *head, int status) {
    for (int field = 0; field < FIELD_COUNT; field++)
        head->fields[field].seen = 0;
    head->last_field = 0;
    head->status = status;
    return status != 0 ? HEAD_MORE : HEAD_WRONG;
}

enum http_head_state http_head_line(struct http_head *head, const char *line, size_t size) {
    if (head->state != HEAD_MORE)
        return head->state;
    head->bytes += size;
    bool empty = size == 0 || line[0] == '\n' || (size >= 2 && line[0] == '\r' && line[1] == '\n');
    head->lines += !empty && head->status != 0;
    if (head->bytes > HEAD_MAX_BYTES || head->lines > HEAD_MAX_FIELDS) {
        head->state = HEAD_WRONG;
    } else if (head->status == 0) {
        head->state = begin(head, status_of(line, size));
    } else if (empty) {
        if (head->status >= 200)
            head->state = HEAD_COMPLETE;
        else
            head->status = 0; /* an interim head is over: the next line is a status again */
    } else if (line[0] == ' ' || line[0] == '\t') {
        if (head->last_field != 0)
            head->fields[head->last_field - 1].text[0] = '\0';
    } else {
        keep_field(head, line, size);
    }
    return head->state;
}

const char *http_head_field(const struct http_head *head, enum http_field field) {
    return head->fields[field].seen == 1 ? head->fields[field].text : "";
}
