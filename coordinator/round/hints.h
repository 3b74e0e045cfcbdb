/* Hints of work that led to nothing: anyone who may connect to the database can notify, so these are followed only so
 * often. Pure. */
#ifndef QUORATE_ROUND_HINTS_H
#define QUORATE_ROUND_HINTS_H

enum { HINTS_AT_ONCE = 50, HINTS_A_SECOND = 50 };

/* Start from a struct of zeros. */
struct hints {
    double owed; /* fruitless ones that are not made up for yet */
    double at;
};

/* A claim found nothing. */
void hints_fruitless(struct hints *hints, double now);

/* How long the next hint is to wait; 0: it is followed at once. */
double hints_wait(struct hints *hints, double now);

#endif
