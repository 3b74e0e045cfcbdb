/* The demo's input, and the form in which dealer and kernel exchange it. */
#ifndef QUORATE_DEMO_CITIES_H
#define QUORATE_DEMO_CITIES_H

#include <stddef.h>

enum {
    CITIES_MAX = 200,
    NAME_BYTES = 40,
    SECRET_BYTES = 32,
    ENVELOPE_BYTES = 1 + SECRET_BYTES, /* the share's x-coordinate, then the share */
    SHARES_MAX = 255,                  /* x-coordinates are the non-zero elements of GF(2^8) */
};

/* The secret is the text "latitude,longitude", filled up with zeros so that all are of one length. */
struct city {
    char name[NAME_BYTES];
    char secret[SECRET_BYTES];
};

/* Reads a CSV file of name,latitude,longitude under a header line. Returns how many cities there are, at most
 * CITIES_MAX; ends the program with a message when the file is missing or malformed. */
size_t cities_read(const char *path, struct city cities[CITIES_MAX]);

/* The city of that name; ends the program with a message when there is none. */
const struct city *city_find(const char *path, const char *name);

/* A whole number between 1 and `max`; ends the program with a message otherwise. */
unsigned char number(const char *what, const char *text, int max);

/* Says on stderr what was wrong, and ends the program with status 1. */
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
