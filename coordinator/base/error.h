/* One error: an exit code of the command line and one line of text saying what was wrong and what would be
 * right. */
#ifndef QUORATE_BASE_ERROR_H
#define QUORATE_BASE_ERROR_H

#include <stdbool.h>

#include "base/check.h"

/* Exit codes of `quorate`, as quorate(1) explains them. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_UNEXPECTED = 1,
    EXIT_USAGE = 2,
    EXIT_STALLED = 3,
    EXIT_DEAD_LETTERED = 4,
    EXIT_REFUSED = 5,
    EXIT_UNKNOWN = 6,
    EXIT_UNREACHABLE = 7,
    EXIT_STILL_OPEN = 8,
    EXIT_CANCELLED = 9,
};

struct error {
    enum exit_code code; /* EXIT_DONE while there is none */
    char text[1024];     /* one line, no newline, never an envelope or a key */
};

/* Fills `err` (may be NULL); the text is cut to fit, control characters become '?' and what redact() knows to be
 * secret becomes stars. Always returns false, so that a function can `return error_set(...)`. */
bool error_set(struct error *err, enum exit_code code, const char *format, ...) PRINTF_LIKE(3, 4);
#ifdef __clang_analyzer__ /* it looks at one file at a time and cannot see that this is always false */
#define error_set(...) (error_set(__VA_ARGS__), false)
#endif

#endif
