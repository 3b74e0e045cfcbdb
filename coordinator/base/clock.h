/* The process's own stopwatch; no decision about a round is taken by it, since those belong to the database's clock. */
#ifndef QUORATE_BASE_CLOCK_H
#define QUORATE_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic time in microseconds since some fixed point. */
int64_t clock_monotonic_us(void);

/* Wall clock in microseconds since 1970; for log lines and for the custodian's check of webhook-timestamp only. */
int64_t clock_wall_us(void);

#endif
