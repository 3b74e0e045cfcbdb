/* Durations as people write them: 250ms, 1.5s, 8s, 2m, 1h, 30d. */
#ifndef QUORATE_BASE_DURATION_H
#define QUORATE_BASE_DURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* Parses a positive decimal number with a unit (us, ms, s, m, h, d); a bare number is refused, as are zero, signs,
 * white space, exponents and anything above 36500d. The result is in microseconds (fractions below one are refused). */
bool duration_parse(const char *text, int64_t *microseconds) MUST_CHECK;

/* Writes a duration the way duration_parse reads it, in the largest unit that it fills at least once and that needs no
 * more than three decimals: 250ms, 1.5s, 8s, 1.5m. Zero is "0s". Returns out. */
const char *duration_format(int64_t microseconds, char *out, size_t out_size);

#endif
