/* One round as a screen of text. */
#ifndef QUORATE_CLI_ROUND_SCREEN_H
#define QUORATE_CLI_ROUND_SCREEN_H

#include <jansson.h>

/* Prints what db_round_status gives. */
void round_screen(const json_t *status);

#endif
