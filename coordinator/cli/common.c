/* Parsing and error reports that all commands share. */
#include "cli/common.h"

#include <stdio.h>

#include "wire/webhook.h"

bool cli_parse(const struct command_syntax *syntax, int argc, char **argv, void *into, int *code) {
    struct error err = {0};
    switch (options_parse(syntax, argc, argv, into, &err)) {
    case OPTIONS_OK:
        return true;
    case OPTIONS_HELP:
        *code = EXIT_DONE;
        return false;
    case OPTIONS_WRONG:
        break;
    }
    *code = cli_fail(syntax, &err);
    return false;
}

int cli_fail(const struct command_syntax *syntax, const struct error *err) {
    fprintf(stderr, "%s: %s\n", syntax->name, err->text);
    return (int)err->code;
}

bool cli_round_id(const char *text, struct error *err) {
    if (!identifier_valid(text))
        return error_set(err, EXIT_USAGE, "\"%.200s\" is no round id: write 1 to 128 of A-Z a-z 0-9 _ -", text);
    return true;
}

bool cli_node_id(const char *what, const char *text, int32_t *node_id, struct error *err) {
    int64_t value;
    if (!int_parse(text, 1, 32767, &value))
        return error_set(err, EXIT_USAGE, "%s: \"%.200s\" is no node id: write a number from 1 to 32767", what, text);
    *node_id = (int32_t)value;
    return true;
}
