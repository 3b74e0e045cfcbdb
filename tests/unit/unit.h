/* What every unit test includes: cmocka and the headers that it wants before it. */
#ifndef QUORATE_TESTS_UNIT_H
#define QUORATE_TESTS_UNIT_H

/* cmocka wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
