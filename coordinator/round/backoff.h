/* How long a delivery waits between two attempts of a route: full jitter. */
#ifndef QUORATE_ROUND_BACKOFF_H
#define QUORATE_ROUND_BACKOFF_H

#include <stdint.h>

/* The backoff after attempt number `attempt` (1 or more), in microseconds: base_us for the first, doubled for each
 * further one, capped at max_us. base_us and max_us are > 0. */
int64_t backoff_ceiling(int64_t base_us, int64_t max_us, int attempt);

/* A wait drawn uniformly from [0, ceiling_us], given 64 uniformly random bits. ("Full jitter": Marc Brooker,
 * Exponential Backoff And Jitter, AWS Architecture Blog, 2015.) */
int64_t backoff_draw(int64_t ceiling_us, uint64_t random_bits);

#endif
