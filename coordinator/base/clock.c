/* Reads the monotonic and the wall clock in microseconds. */
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t clock) {
    struct timespec now = {0};
    clock_gettime(clock, &now); /* cannot fail for the two clocks used here */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_monotonic_us(void) {
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void) {
    return read_clock(CLOCK_REALTIME);
}
