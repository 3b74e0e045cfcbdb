/* Results on stdout: aligned tables for people, JSON for programs. */
#ifndef QUORATE_CLI_OUTPUT_H
#define QUORATE_CLI_OUTPUT_H

#include <jansson.h>

struct output_column {
    const char *title;
    const char *key; /* of the rows' objects */
};

/* Prints the value and a newline on one line. */
void output_json(const json_t *value);

/* Prints an array of objects as a table with a header line; numbers to the right. `columns` ends with a NULL title. */
void output_table(const json_t *rows, const struct output_column *columns);

/* Prints "<title>  <text>" with titles padded to one width. */
void output_line(const char *title, const char *text);

/* A value as people read it: "-" for null, yes/no, "1,2,3" for an array, times to the millisecond; control characters
 * become '?'. The caller frees it. */
char *output_text(const json_t *value);

#endif
