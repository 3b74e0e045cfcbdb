/* What the log has been told already, so that a fault that lasts is said once, and one that comes and goes not often.
 */
#include "base/told.h"

#include "base/clock.h"

/* FNV-1a */
static uint64_t hash_of(const char *text) {
    uint64_t hash = 14695981039346656037u;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            hash = (hash ^ (unsigned char)*text) * 1099511628211u;
        }
    }
    return hash != 0 ? hash : 1;
}

bool told_news(struct told *told, const char *reason, int64_t quiet_us) {
    uint64_t hash = hash_of(reason);
    int64_t now_us = clock_monotonic_us();
    unsigned at = told->next;
    for (unsigned i = 0; i < TOLD_REASONS; i++) {
        if (told->reasons[i].hash == hash) {
            if (!told->reasons[i].over || now_us - told->reasons[i].at_us < quiet_us) {
                return false;
            }
            at = i;
        }
    }
    if (at == told->next) {
        int64_t crowd_us = quiet_us < TOLD_PAUSE_US ? quiet_us : TOLD_PAUSE_US;
        if (told->reasons[at].hash != 0 && now_us - told->reasons[at].at_us < crowd_us) {
            return false;
        }
        told->next = (told->next + 1) % TOLD_REASONS;
    }
    told->reasons[at].hash = hash;
    told->reasons[at].at_us = now_us;
    told->reasons[at].over = false;
    return true;
}

bool told_over(struct told *told) {
    bool any = false;
    for (unsigned i = 0; i < TOLD_REASONS; i++) {
        any = any || (told->reasons[i].hash != 0 && !told->reasons[i].over);
        told->reasons[i].over = true;
    }
    return any;
}
