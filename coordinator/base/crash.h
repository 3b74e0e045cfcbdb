/* Named points of the write path, at which a build for tests ends as if it were killed right there; nothing in any
 * other build. */
#ifndef QUORATE_BASE_CRASH_H
#define QUORATE_BASE_CRASH_H

#ifdef QUORATE_CRASH_POINTS
/* Ends the program with SIGKILL when QUORATE_CRASH_AT is `point`, or, for `point:N`, the N-th time it gets there. */
void crash_point(const char *point);
#else
static inline void crash_point(const char *point) {
    (void)point;
}
#endif

#endif
