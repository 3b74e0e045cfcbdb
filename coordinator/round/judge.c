/* What a node's answer means for an attempt. Pure. */
#include "round/judge.h"

enum outcome judge_answer(const struct http_answer *answer, bool receipt_verified) {
    switch (answer->end) {
    case HTTP_TIMEOUT:
        return OUTCOME_TIMEOUT;
    case HTTP_CONNECT_ERROR:
        return OUTCOME_CONNECT_ERROR;
    case HTTP_ANSWERED:
        break;
    }
    int status = answer->status;
    if (status >= 200 && status < 300) {
        return receipt_verified ? OUTCOME_ACK : OUTCOME_BAD_RECEIPT;
    }
    if (status == 408 || status == 425 || status == 429 || status < 200 || status >= 500) {
        return OUTCOME_HTTP_ERROR;
    }
    return OUTCOME_REFUSED;
}

bool outcome_is_retried(enum outcome outcome) {
    switch (outcome) {
    case OUTCOME_TIMEOUT:
    case OUTCOME_CONNECT_ERROR:
    case OUTCOME_HTTP_ERROR:
    case OUTCOME_BAD_RECEIPT:
        return true;
    case OUTCOME_ACK:
    case OUTCOME_REFUSED:
    case OUTCOME_IN_DOUBT:
    case OUTCOME_UNSENT:
    case OUTCOME_COUNT:
        break;
    }
    return false;
}
