/* Durations and numbers: what is read is written and read back alike, to the microsecond. */
#include <errno.h>

#include "base/duration.h"
#include "base/options.h"
#include "fuzz.h"

static const int64_t longest = INT64_C(36500) * 86400 * 1000000;

static void there_and_back(int64_t value) {
    char text[64];
    int64_t again;
    duration_format(value, text, sizeof text);
    bool good = value > 0 && value <= longest;
    MUST(duration_parse(text, &again) == good);
    MUST(!good || again == value);
}

static void number(const char *text, int64_t min, int64_t max) {
    int64_t value;
    char *end, again[32];
    errno = 0;
    long long reference = strtoll(text, &end, 10);
    bool plain = (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) && end != text && *end == '\0' && errno == 0;
    MUST(int_parse(text, min, max, &value) == (plain && reference >= min && reference <= max));
    MUST(!plain || reference < min || reference > max || value == reference);
    snprintf(again, sizeof again, "%lld", (long long)min);
    MUST(int_parse(again, INT64_MIN, INT64_MAX, &value) && value == min);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz in = {data, size};
    char *text = fuzz_text(&in), small[4];
    int64_t value, a = (int64_t)fuzz_number(&in, 8), b = (int64_t)fuzz_number(&in, 8);
    if (duration_parse(text, &value)) {
        MUST(value > 0 && value <= longest);
        there_and_back(value);
    }
    there_and_back(a);
    duration_format(b, small, sizeof small); /* cut to fit */
    MUST(strlen(small) < sizeof small);
    number(text, a < b ? a : b, a < b ? b : a);
    number(text, INT64_MIN, INT64_MAX);
    free(text);
    return 0;
}
