/* Takes small text files to pieces, line by line; what is wrong is told by the number of its line. */
#include "base/lines.h"

#include <string.h>

#include "base/options.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends. */
static char *trim(char *text) {
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

bool lines_read(char *text, size_t size, line_taker *take, void *context, struct error *err) {
    char *end = text + size, *next;
    size_t number = 1;
    for (char *at = text; at < end; at = next, number++) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *stop = newline != NULL ? newline : end;
        next = stop + 1;
        *stop = '\0';
        if (strlen(at) != (size_t)(stop - at))
            return error_set(err, EXIT_USAGE, "line %zu: it is no text", number);
        struct error cause = {0};
        char *line = trim(at);
        if (*line != '\0' && *line != '#' && !take(context, line, &cause))
            return error_set(err, cause.code, "line %zu: %s", number, cause.text);
    }
    return true;
}

char *line_of_node(char *line, const char *form, int *node_id, struct error *err) {
    char *equals = strchr(line, '=');
    int64_t id;
    /* A value alone may have a '=' too, the padding of its base64. */
    if (equals == NULL || strncmp(line, form, strcspn(form, ".")) == 0) {
        (void)error_set(err, EXIT_USAGE, "no node is named: a line is written ID = %s, ID from 1 to %d", form,
                        (int)NODE_ID_MAX);
        return NULL;
    }
    *equals = '\0';
    if (!int_parse(trim(line), 1, NODE_ID_MAX, &id)) {
        (void)error_set(err, EXIT_USAGE,
                        "what stands before the = is no node id from 1 to %d: a line is written ID = %s",
                        (int)NODE_ID_MAX, form);
        return NULL;
    }
    *node_id = (int)id;
    return trim(equals + 1);
}
