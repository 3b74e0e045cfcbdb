/* Reads and writes durations with a unit, exact to the microsecond. */
#include "base/duration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t microseconds;
};

static const struct unit units[] = {
    {"d", 86400000000}, {"h", 3600000000}, {"m", 60000000}, {"s", 1000000}, {"ms", 1000}, {"us", 1},
};
enum { UNIT_COUNT = sizeof units / sizeof units[0] };

static const int64_t longest = INT64_C(36500) * 86400000000;

static const struct unit *unit_named(const char *name) {
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The decimals of a number times `unit`, exactly. From the last digit to the first, so that every step is a whole
 * number whenever the result is one. */
static bool fraction_of(const char *digits, size_t count, int64_t unit, int64_t *result) {
    int64_t sum = 0;
    for (size_t i = count; i-- > 0;) {
        sum += (digits[i] - '0') * unit;
        if (sum % 10 != 0)
            return false;
        sum /= 10;
    }
    *result = sum;
    return true;
}

bool duration_parse(const char *text, int64_t *microseconds) {
    const char *at = text;
    int64_t whole = 0;
    for (; is_digit(*at); at++) {
        whole = whole * 10 + (*at - '0');
        if (whole > longest)
            return false;
    }
    if (at == text)
        return false;

    const char *decimals = at;
    size_t decimal_count = 0;
    if (*at == '.') {
        decimals = ++at;
        while (is_digit(*at))
            at++;
        decimal_count = (size_t)(at - decimals);
        if (decimal_count == 0)
            return false;
    }

    const struct unit *unit = unit_named(at);
    int64_t fraction = 0;
    if (unit == NULL || whole > longest / unit->microseconds ||
        !fraction_of(decimals, decimal_count, unit->microseconds, &fraction))
        return false;
    int64_t total = whole * unit->microseconds + fraction;
    if (total <= 0 || total > longest)
        return false;
    *microseconds = total;
    return true;
}

const char *duration_format(int64_t microseconds, char *out, size_t out_size) {
    const char *sign = microseconds < 0 ? "-" : "";
    uint64_t size = microseconds < 0 ? 0 - (uint64_t)microseconds : (uint64_t)microseconds;
    if (size == 0) {
        snprintf(out, out_size, "0s");
        return out;
    }
    /* Microseconds always fit: they come last and need no decimals. */
    size_t i = 0;
    while (i + 1 < UNIT_COUNT) {
        uint64_t unit = (uint64_t)units[i].microseconds;
        if (size >= unit && size % unit * 1000 % unit == 0)
            break;
        i++;
    }
    uint64_t unit = (uint64_t)units[i].microseconds;
    unsigned thousandths = (unsigned)(size % unit * 1000 / unit);
    char decimals[8] = "";
    if (thousandths != 0) {
        snprintf(decimals, sizeof decimals, ".%03u", thousandths % 1000);
        for (size_t end = strlen(decimals); decimals[end - 1] == '0'; end--)
            decimals[end - 1] = '\0';
    }
    snprintf(out, out_size, "%s%" PRIu64 "%s%s", sign, size / unit, decimals, units[i].name);
    return out;
}
