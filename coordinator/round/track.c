/* The state table of one route of one delivery: what each event means in each state. Pure: no clock, no memory, no I/O.
 */
#include "round/track.h"

static const char *const STATE_NAMES[TRACK_STATE_COUNT] = {"closed",  "waiting", "queued", "reserving",
                                                           "loading", "sending", "ended"};
static const char *const EVENT_NAMES[TRACK_EVENT_COUNT] = {"opened",   "due",     "slot",      "granted", "denied",
                                                           "again",    "locked",  "loaded",    "missing", "failed",
                                                           "finished", "stopped", "node_acked"};

static const struct track_edge EDGES[TRACK_STATE_COUNT][TRACK_EVENT_COUNT] =
    {
        [TRACK_CLOSED] =
            {
                [TRACK_OPENED] = {TRACK_WAITING, TRACK_WAIT, "a route begins with whatever wait its history left"},
                [TRACK_DUE] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "no timer runs"},
                [TRACK_SLOT] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "it is in no queue"},
                [TRACK_GRANTED] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_DENIED] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_AGAIN] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_LOCKED] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_LOADED] = {TRACK_CLOSED, TRACK_NOTHING, "an envelope read for an attempt that was not granted"},
                [TRACK_MISSING] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_FAILED] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_FINISHED] = {TRACK_CLOSED, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_STOPPED] = {TRACK_ENDED, TRACK_NOTHING, "an ended round escalates no more"},
                [TRACK_NODE_ACKED] = {TRACK_ENDED, TRACK_NOTHING, "an acked node needs no backup"},
            },
        [TRACK_WAITING] =
            {
                [TRACK_OPENED] = {TRACK_WAITING, TRACK_NOTHING, "it is open already"},
                [TRACK_DUE] = {TRACK_QUEUED, TRACK_QUEUE, "no attempt is reserved without a slot"},
                [TRACK_SLOT] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "it is in no queue"},
                [TRACK_GRANTED] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_DENIED] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_AGAIN] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_LOCKED] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_LOADED] = {TRACK_WAITING, TRACK_NOTHING, "an envelope read for an attempt that was not granted"},
                [TRACK_MISSING] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_FAILED] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_FINISHED] = {TRACK_WAITING, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_STOPPED] = {TRACK_ENDED, TRACK_CANCEL, "no attempt starts after the round has ended"},
                [TRACK_NODE_ACKED] = {TRACK_ENDED, TRACK_CANCEL, "whichever route acks first counts"},
            },
        [TRACK_QUEUED] =
            {
                [TRACK_OPENED] = {TRACK_QUEUED, TRACK_NOTHING, "it is open already"},
                [TRACK_DUE] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "no timer runs"},
                [TRACK_SLOT] = {TRACK_RESERVING, TRACK_RESERVE, "the attempt is committed before it is sent"},
                [TRACK_GRANTED] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_DENIED] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_AGAIN] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_LOCKED] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_LOADED] = {TRACK_QUEUED, TRACK_NOTHING, "an envelope read for an attempt that was not granted"},
                [TRACK_MISSING] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "nothing was asked"},
                [TRACK_FAILED] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_FINISHED] = {TRACK_QUEUED, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_STOPPED] = {TRACK_ENDED, TRACK_CANCEL, "no attempt starts after the round has ended"},
                [TRACK_NODE_ACKED] = {TRACK_ENDED, TRACK_CANCEL, "whichever route acks first counts"},
            },
        [TRACK_RESERVING] =
            {
                [TRACK_OPENED] = {TRACK_RESERVING, TRACK_NOTHING, "it is open already"},
                [TRACK_DUE] = {TRACK_RESERVING, TRACK_IMPOSSIBLE, "no timer runs"},
                [TRACK_SLOT] = {TRACK_RESERVING, TRACK_IMPOSSIBLE, "it has a slot"},
                [TRACK_GRANTED] = {TRACK_LOADING, TRACK_LOAD, "the attempt is committed"},
                [TRACK_DENIED] = {TRACK_ENDED, TRACK_GIVE_BACK, "the database decides that no attempt is left to make"},
                [TRACK_AGAIN] = {TRACK_RESERVING, TRACK_RESERVE, "asking twice is harmless: the key is the same"},
                [TRACK_LOCKED] = {TRACK_WAITING, TRACK_STEP_BACK, "a locked round must not keep a slot from others"},
                [TRACK_LOADED] = {TRACK_RESERVING, TRACK_IMPOSSIBLE, "the answer to the reservation comes first"},
                [TRACK_MISSING] = {TRACK_RESERVING, TRACK_IMPOSSIBLE, "the answer to the reservation comes first"},
                [TRACK_FAILED] = {TRACK_RESERVING, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_FINISHED] = {TRACK_RESERVING, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_STOPPED] = {TRACK_RESERVING, TRACK_NOTHING,
                                   "the database's answer decides, and it knows the end too"},
                [TRACK_NODE_ACKED] = {TRACK_RESERVING, TRACK_NOTHING, "the database's answer decides"},
            },
        [TRACK_LOADING] =
            {
                [TRACK_OPENED] = {TRACK_LOADING, TRACK_NOTHING, "it is open already"},
                [TRACK_DUE] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "no timer runs"},
                [TRACK_SLOT] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "it has a slot"},
                [TRACK_GRANTED] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_DENIED] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_AGAIN] = {TRACK_LOADING, TRACK_LOAD, "reading twice is harmless"},
                [TRACK_LOCKED] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_LOADED] = {TRACK_SENDING, TRACK_SEND, "committed and loaded: it may leave"},
                [TRACK_MISSING] = {TRACK_ENDED, TRACK_UNSENT, "only an ended round has lost its envelopes"},
                [TRACK_FAILED] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_FINISHED] = {TRACK_LOADING, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_STOPPED] = {TRACK_ENDED, TRACK_UNSENT, "reserved, but its round ended first"},
                [TRACK_NODE_ACKED] = {TRACK_LOADING, TRACK_NOTHING, "a committed attempt of a living round is sent"},
            },
        [TRACK_SENDING] =
            {
                [TRACK_OPENED] = {TRACK_SENDING, TRACK_NOTHING, "it is open already"},
                [TRACK_DUE] = {TRACK_SENDING, TRACK_IMPOSSIBLE, "no timer runs"},
                [TRACK_SLOT] = {TRACK_SENDING, TRACK_IMPOSSIBLE, "it has a slot"},
                [TRACK_GRANTED] = {TRACK_SENDING, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_DENIED] = {TRACK_SENDING, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_AGAIN] = {TRACK_SENDING, TRACK_NOTHING, "the batch that failed was not needed any more"},
                [TRACK_LOCKED] = {TRACK_SENDING, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_LOADED] = {TRACK_SENDING, TRACK_NOTHING, "it has its envelope"},
                [TRACK_MISSING] = {TRACK_SENDING, TRACK_NOTHING, "it has its envelope"},
                [TRACK_FAILED] = {TRACK_WAITING, TRACK_WAIT, "full jitter before the next attempt"},
                [TRACK_FINISHED] = {TRACK_ENDED, TRACK_NOTHING, "acked, refused, or the budget is used up"},
                [TRACK_STOPPED] = {TRACK_SENDING, TRACK_NOTHING, "requests under way are awaited"},
                [TRACK_NODE_ACKED] = {TRACK_SENDING, TRACK_NOTHING, "requests under way are awaited"},
            },
        [TRACK_ENDED] =
            {
                [TRACK_OPENED] = {TRACK_ENDED, TRACK_NOTHING, "an ended route stays ended"},
                [TRACK_DUE] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "no timer runs"},
                [TRACK_SLOT] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "it is in no queue"},
                [TRACK_GRANTED] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_DENIED] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_AGAIN] = {TRACK_ENDED, TRACK_NOTHING, "the batch that failed was not needed any more"},
                [TRACK_LOCKED] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "nothing is being asked"},
                [TRACK_LOADED] = {TRACK_ENDED, TRACK_NOTHING, "the envelope is not needed any more"},
                [TRACK_MISSING] = {TRACK_ENDED, TRACK_NOTHING, "the envelope is not needed any more"},
                [TRACK_FAILED] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_FINISHED] = {TRACK_ENDED, TRACK_IMPOSSIBLE, "no request is under way"},
                [TRACK_STOPPED] = {TRACK_ENDED, TRACK_NOTHING, "an ended route stays ended"},
                [TRACK_NODE_ACKED] = {TRACK_ENDED, TRACK_NOTHING, "an ended route stays ended"},
            },
};

const struct track_edge *track_edge(enum track_state state, enum track_event event) {
    return &EDGES[state][event];
}

const char *track_state_name(enum track_state state) {
    return STATE_NAMES[state];
}

const char *track_event_name(enum track_event event) {
    return EVENT_NAMES[event];
}
