/* Carries one envelope to one node: signs the request, judges the answer, and reports the outcome. */
#ifndef QUORATE_ROUND_COURIER_H
#define QUORATE_ROUND_COURIER_H

#include <stddef.h>

#include "round/round.h"

/* Starts the request of the track's current attempt, which must be committed. Copies the payload, and wipes the copy
 * after use. The outcome reaches the track (if it is still there) as TRACK_FAILED or TRACK_FINISHED, and the lane as a
 * record. */
void courier_send(struct track *track, const unsigned char *payload, size_t size);

/* Wipes and frees the parcels whose requests ended with the HTTP client. */
void courier_free_parcels(struct coordinator *coordinator);

#endif
