/* Tables and JSON on stdout. */
#include "cli/output.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { LINE_TITLE_WIDTH = 14, COLUMNS_MAX = 16 };

/* A command has nothing left to do without memory; everything it changed in the database is committed already. */
static void *must(void *memory) {
    if (!memory) {
        fputs("quorate: out of memory while printing the result\n", stderr);
        exit(EXIT_UNEXPECTED);
    }
    return memory;
}

void output_json(const json_t *value) {
    bool printed = json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) == 0;
    if (!printed && !ferror(stdout)) /* what cannot be written is told at the end */
        (void)must(NULL);
    putchar('\n');
}

/* "2026-01-02T03:04:05.678901+00:00" */
static bool is_time(const char *text) {
    static const char pattern[] = "0000-00-00T00:00:00";
    for (size_t i = 0; pattern[i]; i++)
        if (pattern[i] == '0' ? !isdigit((unsigned char)text[i]) : text[i] != pattern[i])
            return false;
    return true;
}

/* Cuts a time's fraction to three digits. */
static void shorten_time(char *text) {
    char *fraction = strchr(text, '.');
    if (!fraction)
        return;
    size_t digits = strspn(fraction + 1, "0123456789");
    if (digits > 3)
        memmove(fraction + 4, fraction + 1 + digits, strlen(fraction + 1 + digits) + 1);
}

static char *array_text(const json_t *array) {
    char *text = must(strdup(""));
    for (size_t i = 0; i < json_array_size(array); i++) {
        char *item = output_text(json_array_get(array, i));
        char *longer = NULL;
        if (asprintf(&longer, "%s%s%s", text, i > 0 ? "," : "", item) < 0)
            longer = NULL;
        free(item);
        free(text);
        text = must(longer);
    }
    return text;
}

static char *without_controls(char *text) {
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    return text;
}

char *output_text(const json_t *value) {
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_STRING: {
        char *text = without_controls(must(strdup(json_string_value(value))));
        if (is_time(text))
            shorten_time(text);
        return text;
    }
    case JSON_TRUE:
        return must(strdup("yes"));
    case JSON_FALSE:
        return must(strdup("no"));
    case JSON_NULL:
        return must(strdup("-"));
    case JSON_ARRAY:
        return array_text(value);
    case JSON_OBJECT:
    case JSON_INTEGER:
    case JSON_REAL:
        break;
    }
    return without_controls(must(json_dumps(value, JSON_ENCODE_ANY)));
}

/* Characters of an UTF-8 text, each taken to be one column wide. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_cell(const char *text, int width, bool right, bool last) {
    int padding = width - width_of(text);
    if (right)
        printf("%*s%s", padding, "", text);
    else
        printf("%s%*s", text, last ? 0 : padding, "");
    fputs(last ? "\n" : "  ", stdout);
}

void output_table(const json_t *rows, const struct output_column *columns) {
    int widths[COLUMNS_MAX];
    bool right[COLUMNS_MAX];
    size_t count = 0;
    for (; columns[count].title && count < COLUMNS_MAX; count++) {
        widths[count] = width_of(columns[count].title);
        bool numbers = false, others = false;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *value = json_object_get(json_array_get(rows, i), columns[count].key);
            char *text = output_text(value);
            int width = width_of(text);
            free(text);
            widths[count] = width > widths[count] ? width : widths[count];
            numbers = numbers || json_is_number(value);
            others = others || !(json_is_number(value) || json_is_null(value));
        }
        right[count] = numbers && !others;
    }
    for (size_t column = 0; column < count; column++)
        print_cell(columns[column].title, widths[column], right[column], column + 1 == count);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        for (size_t column = 0; column < count; column++) {
            char *text = output_text(json_object_get(json_array_get(rows, i), columns[column].key));
            print_cell(text, widths[column], right[column], column + 1 == count);
            free(text);
        }
    }
}

void output_line(const char *title, const char *text) {
    printf("%-*s  %s\n", LINE_TITLE_WIDTH, title, text);
}
