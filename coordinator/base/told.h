/* What the log has been told already, so that a fault that lasts is said once, and one that comes and goes not often.
 */
#ifndef QUORATE_BASE_TOLD_H
#define QUORATE_BASE_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

enum { TOLD_REASONS = 8, TOLD_PAUSE_US = 30000000 };

/* Start from a struct of zeros. */
struct told {
    struct {
        uint64_t hash; /* of the reason's text without its digits, which may be those of processes; 0: free */
        int64_t at_us;
        bool over; /* the fault ended after it was told */
    } reasons[TOLD_REASONS];
    unsigned next; /* the place of the next new reason */
};

/* True when `reason` is to be logged now: it is new since the last time that all was well, and was not logged within
 * the last `quiet_us`. Reasons that take turns count each, but there are never more than TOLD_REASONS within
 * TOLD_PAUSE_US (or `quiet_us`, if that is shorter): who can make up reasons cannot flood the log. */
bool told_news(struct told *told, const char *reason, int64_t quiet_us) MUST_CHECK;

/* All is well again. True: something had been logged since it was well the last time. */
bool told_over(struct told *told);

#endif
