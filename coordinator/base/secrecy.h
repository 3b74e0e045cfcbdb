/* Keeps what a process knows to itself: no core dumps, no other process of its user that looks into it, and nothing
 * secret where the system lists what it was started with. */
#ifndef QUORATE_BASE_SECRECY_H
#define QUORATE_BASE_SECRECY_H

#include <stdbool.h>
#include <stddef.h>

/* Call first in main. Where an argument or a variable that libpq reads holds something secret, argv and the environment
 * get a copy, and what /proc and ps show is overwritten. With QUORATE_ALLOW_CORE_DUMPS in the environment debuggers and
 * core dumps are left as they are. Nothing that is opened later is taken for one of the standard descriptors, and no
 * TLS library writes its keys to a file (SSLKEYLOGFILE). */
void secrecy_begin(int argc, char **argv);

/* False if this memory may be written to swap: the limit of locked memory was too small to lock it. */
bool secrecy_locked(const void *memory, size_t size);

#endif
