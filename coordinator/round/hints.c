/* Hints of work that led to nothing: anyone who may connect to the database can notify, so these are followed only so
 * often. Pure. */
#include "round/hints.h"

static void pass_time(struct hints *hints, double now) {
    double owed = hints->owed - (now - hints->at) * HINTS_A_SECOND;
    hints->owed = owed > 0 ? owed : 0;
    hints->at = now;
}

void hints_fruitless(struct hints *hints, double now) {
    pass_time(hints, now);
    if (hints->owed < HINTS_AT_ONCE) {
        hints->owed++;
    }
}

double hints_wait(struct hints *hints, double now) {
    pass_time(hints, now);
    double over = hints->owed - (HINTS_AT_ONCE - 1);
    return over > 0 ? over / HINTS_A_SECOND : 0;
}
