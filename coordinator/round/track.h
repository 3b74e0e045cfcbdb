/* The state table of one route of one delivery: what each event means in each state. Pure: no clock, no memory, no I/O.
 */
#ifndef QUORATE_ROUND_TRACK_H
#define QUORATE_ROUND_TRACK_H

enum track_state {
    TRACK_CLOSED,    /* this route may not be used (yet): a backup before the escalation */
    TRACK_WAITING,   /* for its next attempt's time */
    TRACK_QUEUED,    /* for a free slot of its endpoint */
    TRACK_RESERVING, /* holds a slot; its attempt's row is asked of the database */
    TRACK_LOADING,   /* its attempt is committed; its envelope is being read */
    TRACK_SENDING,   /* its request is under way */
    TRACK_ENDED,     /* no further attempt on this route */
    TRACK_STATE_COUNT
};

enum track_event {
    TRACK_OPENED,     /* the route may be used now */
    TRACK_DUE,        /* the wait is over */
    TRACK_SLOT,       /* its endpoint gives it a slot */
    TRACK_GRANTED,    /* the attempt's row is committed */
    TRACK_DENIED,     /* the database grants no attempt: the round has ended or the node has acked */
    TRACK_AGAIN,      /* the batch that asked the database failed */
    TRACK_LOCKED,     /* someone else holds the round's row */
    TRACK_LOADED,     /* the envelope is here */
    TRACK_MISSING,    /* the envelope was erased: the round has ended */
    TRACK_FAILED,     /* the request failed, and an attempt is left */
    TRACK_FINISHED,   /* the request was acked or refused, or was the last one of the budget */
    TRACK_STOPPED,    /* the round has ended */
    TRACK_NODE_ACKED, /* the node has acked on the other route */
    TRACK_EVENT_COUNT
};

enum track_action {
    TRACK_NOTHING,
    TRACK_WAIT,      /* start the timer */
    TRACK_QUEUE,     /* join the endpoint's queue */
    TRACK_RESERVE,   /* ask the database for the attempt */
    TRACK_LOAD,      /* ask the database for the envelope */
    TRACK_SEND,      /* start the request */
    TRACK_GIVE_BACK, /* give the slot back */
    TRACK_STEP_BACK, /* give the slot back and start the timer */
    TRACK_CANCEL,    /* leave the timer or the queue; a reserved attempt is recorded as in doubt */
    TRACK_UNSENT,    /* give the slot back and record the reserved attempt as never sent */
    TRACK_IMPOSSIBLE /* this event does not happen in this state: a mistake of the program */
};

struct track_edge {
    enum track_state next;
    enum track_action action;
    const char *why;
};

const struct track_edge *track_edge(enum track_state state, enum track_event event);

const char *track_state_name(enum track_state state);
const char *track_event_name(enum track_event event);

#endif
