/* What every fallible function here shares: the attribute that makes callers look at the result. */
#ifndef QUORATE_BASE_CHECK_H
#define QUORATE_BASE_CHECK_H

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

#endif
