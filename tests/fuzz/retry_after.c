/* Retry-After: never negative, never above a day, whole seconds; digits mean what they say. */
#include "transport/retry_after.h"
#include "fuzz.h"

static const int64_t day_ms = INT64_C(24) * 3600 * 1000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char *value = fuzz_text(&in), *date = fuzz_text(&in);
    int64_t now_s = (int64_t)fuzz_number(&in, 8);
    int64_t by_clock = retry_after_parse(value, NULL, now_s), by_date = retry_after_parse(value, date, now_s);
    MUST(by_clock >= 0 && by_clock <= day_ms && by_clock % 1000 == 0);
    MUST(by_date >= 0 && by_date <= day_ms && by_date % 1000 == 0);
    if (value[0] != '\0' && value[strspn(value, "0123456789")] == '\0') {
        unsigned long long seconds = strtoull(value, NULL, 10);
        MUST(by_date == (seconds < (unsigned long long)day_ms / 1000 ? (int64_t)seconds * 1000 : day_ms));
        MUST(by_clock == by_date);
    } else {
        MUST(retry_after_parse(value, value, now_s) ==
             0); /* a date read against itself is now; anything else is nothing */
    }
    free(value);
    free(date);
    return 0;
}
