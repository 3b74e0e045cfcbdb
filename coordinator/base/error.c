/* Fills struct error: one code, one clean line of text. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/redact.h"

bool(error_set)(struct error *err, enum exit_code code, const char *format, ...) {
    if (err == NULL)
        return false;

    /* Written aside first, because an argument may well be err->text itself: "node 3: <what was wrong before>". */
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (written < 0)
        snprintf(text, sizeof text, "an error whose text could not be written");

    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    (void)redact(text);
    err->code = code;
    memcpy(err->text, text, sizeof text);
    return false;
}
