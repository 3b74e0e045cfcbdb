/* Turns HOST:PORT into a listening socket, and tells others which port it got. */
#ifndef QUORATE_BASE_LISTENER_H
#define QUORATE_BASE_LISTENER_H

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"

enum { LISTENER_ADDRESS = 64 }; /* room for "[<IPv6 address>%<scope>]:65535" */

/* Listens on `text`, HOST:PORT or [IPV6]:PORT; port 0 takes any free one. `option` names it in errors
 * ("--listen"). Fills in the socket, the numeric address and
 * port that it really has, and the port alone. EXIT_USAGE for an address that cannot be understood, EXIT_UNEXPECTED
 * when it cannot be had. */
bool listener_open(const char *option, const char *text, int *fd, char address[LISTENER_ADDRESS], int *port,
                   struct error *err) MUST_CHECK;

/* Writes the port and a newline to `path`, whole or not at all: to a file beside it that is then renamed. */
bool port_file_write(const char *path, int port, struct error *err) MUST_CHECK;

#endif
