/* How long a delivery waits between two attempts of a route: full jitter. */
#include "round/backoff.h"

int64_t backoff_ceiling(int64_t base_us, int64_t max_us, int attempt) {
    int64_t ceiling = base_us < max_us ? base_us : max_us;
    for (int i = 1; i < attempt && ceiling < max_us; i++) {
        ceiling = ceiling > max_us / 2 ? max_us : ceiling * 2;
    }
    return ceiling;
}

int64_t backoff_draw(int64_t ceiling_us, uint64_t random_bits) {
    /* The high half of a 64 x 64 bit product maps the bits onto [0, ceiling] with a bias below 2^-20 for any real wait.
     */
    unsigned __int128 product = (unsigned __int128)random_bits * ((uint64_t)ceiling_us + 1);
    return (int64_t)(uint64_t)(product >> 64);
}
