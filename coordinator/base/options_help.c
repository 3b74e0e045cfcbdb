/* Prints the help of a command from the table that parses it. */
#include "base/options.h"

#include <stdarg.h>
#include <string.h>

enum { WIDTH = 100, MAX_LABEL = 30 };

/* Prints `text`, whose first line begins at column `column`, broken between words; lines after the first are indented
 * by `indent`. Newlines and leading blanks of the text are kept. */
static void print_wrapped(FILE *out, const char *text, size_t column, size_t indent) {
    bool fresh = true; /* no word stands in this line yet */
    while (*text != '\0') {
        size_t blanks = strspn(text, " ");
        size_t size = strcspn(text + blanks, " \n");
        if (!fresh && size > 0 && column + blanks + size > WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            text += blanks;
            blanks = 0;
        }
        fprintf(out, "%.*s", (int)(blanks + size), text);
        column += blanks + size;
        fresh = false;
        text += blanks + size;
        if (*text == '\n') {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            fresh = true;
            text++;
        }
    }
    fputc('\n', out);
}

/* "  --deadline DURATION   sentence…" with the sentence in a column of its own. */
static void print_entry(FILE *out, const char *label, size_t label_width, const char *help) {
    size_t column = 2 + label_width + 2;
    fprintf(out, "  %s", label);
    if (strlen(label) > label_width)
        fprintf(out, "\n%*s", (int)column, "");
    else
        fprintf(out, "%*s", (int)(label_width - strlen(label) + 2), "");
    print_wrapped(out, help, column, column);
}

static const char *argument_name(const struct option_spec *option) {
    if (option->argument != NULL)
        return option->argument;
    return option->kind == OPTION_CHOICE ? option->choices : "VALUE";
}

static const char *option_label(const struct option_spec *option, char *out, size_t out_size) {
    if (option->kind == OPTION_FLAG)
        snprintf(out, out_size, "--%s", option->name);
    else
        snprintf(out, out_size, "--%s %s", option->name, argument_name(option));
    return out;
}

static void append(char *text, size_t size, const char *format, ...) PRINTF_LIKE(3, 4);
static void append(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static void print_usage(const struct command_syntax *syntax, FILE *out) {
    char usage[2048] = "Usage: ";
    append(usage, sizeof usage, "%s", syntax->name);
    for (const struct option_argument *a = syntax->arguments; a != NULL && a->name != NULL; a++)
        append(usage, sizeof usage, a->optional ? " [%s]" : " %s", a->name);
    for (const struct option_spec *o = syntax->options; o->name != NULL; o++)
        if (o->required)
            append(usage, sizeof usage, " --%s %s%s", o->name, argument_name(o), o->kind == OPTION_LIST ? " ..." : "");
    append(usage, sizeof usage, " [OPTION ...]");
    print_wrapped(out, usage, 0, strlen("Usage: "));
}

void options_help(const struct command_syntax *syntax, FILE *out) {
    print_usage(syntax, out);
    fputc('\n', out);
    print_wrapped(out, syntax->summary, 0, 0);

    char label[128];
    size_t width = strlen("--help");
    for (const struct option_argument *a = syntax->arguments; a != NULL && a->name != NULL; a++)
        if (strlen(a->name) > width && strlen(a->name) <= MAX_LABEL)
            width = strlen(a->name);
    for (const struct option_spec *o = syntax->options; o->name != NULL; o++) {
        size_t size = strlen(option_label(o, label, sizeof label));
        if (size > width && size <= MAX_LABEL)
            width = size;
    }

    if (syntax->arguments != NULL && syntax->arguments->name != NULL)
        fputs("\nArguments:\n", out);
    for (const struct option_argument *a = syntax->arguments; a != NULL && a->name != NULL; a++)
        print_entry(out, a->name, width, a->help);
    fputs("\nOptions:\n", out);
    for (const struct option_spec *o = syntax->options; o->name != NULL; o++)
        print_entry(out, option_label(o, label, sizeof label), width, o->help);
    print_entry(out, "--help", width, "print this help");
    if (syntax->notes != NULL) {
        fputc('\n', out);
        print_wrapped(out, syntax->notes, 0, 0);
    }
}
