/* What a node's answer means for an attempt. Pure. */
#ifndef QUORATE_ROUND_JUDGE_H
#define QUORATE_ROUND_JUDGE_H

#include <stdbool.h>

#include "db/worker.h"
#include "transport/http.h"

/* The outcome of an attempt whose request ended with `answer`; `receipt_verified` tells whether the answer carries a
 * receipt that verifies. A 2xx is an ack only with one; 408, 425, 429 and 5xx are worth another try; every other 3xx
 * and 4xx is a refusal. */
enum outcome judge_answer(const struct http_answer *answer, bool receipt_verified);

/* True when the same route may be tried again after this outcome, if its budget allows. */
bool outcome_is_retried(enum outcome outcome);

#endif
