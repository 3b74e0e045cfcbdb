/* Reads Retry-After: seconds, or one of the three forms of an HTTP date. */
#include "transport/retry_after.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

static const int64_t longest_s = 24 * 3600;

static bool all_digits(const char *text) {
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* Seconds written in digits, `longest_s` at most. */
static int64_t capped_seconds(const char *digits) {
    int64_t seconds = 0;
    for (; *digits != '\0' && seconds < longest_s; digits++)
        seconds = seconds * 10 + (*digits - '0');
    return seconds < longest_s ? seconds : longest_s;
}

/* strptime is generous with blanks, case, names in full and missing zeros: a date counts only if writing it again gives
 * the same text. */
static bool http_date_parse(const char *text, int64_t *unix_s) {
    static const char *const forms[] = {
        "%a, %d %b %Y %H:%M:%S GMT", /* the one that is written today */
        "%A, %d-%b-%y %H:%M:%S GMT", /* RFC 850 */
        "%a %b %e %H:%M:%S %Y",      /* asctime */
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct tm parts = {0};
        const char *end = strptime(text, forms[i], &parts);
        if (end == NULL || *end != '\0')
            continue;
        time_t value = timegm(&parts); /* also puts the weekday right */
        char again[64];
        if (strftime(again, sizeof again, forms[i], &parts) == 0 || strcmp(again, text) != 0)
            continue;
        *unix_s = value;
        return true;
    }
    return false;
}

int64_t retry_after_parse(const char *value, const char *date, int64_t now_s) {
    if (all_digits(value))
        return capped_seconds(value) * 1000;
    int64_t until, from, wait;
    if (!http_date_parse(value, &until))
        return 0;
    if (date == NULL || !http_date_parse(date, &from))
        from = now_s;
    if (until <= from)
        return 0;
    bool far = __builtin_sub_overflow(until, from, &wait) || wait > longest_s;
    return (far ? longest_s : wait) * 1000;
}
