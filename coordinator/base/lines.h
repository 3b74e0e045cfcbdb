/* Takes small text files to pieces, line by line; what is wrong is told by the number of its line. */
#ifndef QUORATE_BASE_LINES_H
#define QUORATE_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/error.h"

enum { NODE_ID_MAX = 32767 };

/* Called with each line, without the blanks around it; false, with `err` filled, to refuse it. */
typedef bool line_taker(void *context, char *line, struct error *err);

/* Blank lines, and those that begin with #, are passed over. The text is taken to pieces and text[size] written. False
 * with what the taker said, behind "line N: ", or when a line is no text (EXIT_USAGE). */
bool lines_read(char *text, size_t size, line_taker *take, void *context, struct error *err) MUST_CHECK;

/* Takes "ID = value" to pieces and returns the value; `form` is how values are written, such as "whsec_...", for the
 * error (EXIT_USAGE, never a part of the line). NULL on error. */
char *line_of_node(char *line, const char *form, int *node_id, struct error *err) MUST_CHECK;

#endif
