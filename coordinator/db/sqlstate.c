/* The table of SQLSTATEs and the exit codes of quorate(1). */
#include "db/sqlstate.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *prefix; /* longest first where one begins another */
    enum exit_code code;
} meanings[] = {
    {"QR001", EXIT_STALLED},       /* round stalled */
    {"QR002", EXIT_DEAD_LETTERED}, /* no longer fresh */
    {"QR003", EXIT_UNKNOWN},       /* unknown round */
    {"QR004", EXIT_CANCELLED},     /* round cancelled */
    {"QR005", EXIT_REFUSED},       /* nonce already used */
    {"QR006", EXIT_REFUSED},       /* round id already used */
    {"QR007", EXIT_USAGE},         /* invalid policy or argument */
    {"QR008", EXIT_UNKNOWN},       /* unknown or disabled node */
    {"QR009", EXIT_REFUSED},       /* an envelope of submit_round was refused */
    {"08", EXIT_UNREACHABLE},      /* connection exceptions */
    {"57P0", EXIT_UNREACHABLE},    /* shutdown, crash, not accepting connections yet */
    {"53300", EXIT_UNREACHABLE},   /* too many connections */
};

enum exit_code sqlstate_exit_code(const char *sqlstate) {
    if (sqlstate[0] == 0)
        return EXIT_UNREACHABLE;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (strncmp(sqlstate, meanings[i].prefix, strlen(meanings[i].prefix)) == 0)
            return meanings[i].code;
    return EXIT_UNEXPECTED;
}

bool sqlstate_is_missing_schema(const char *sqlstate) {
    return strcmp(sqlstate, "3F000") == 0 || strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "42883") == 0 ||
           strcmp(sqlstate, "42703") == 0;
}
