/* One round, two coordinators and the faults between them: spin shows that no order of steps breaks I1 to I7, and that
 * none leaves the round behind (I10). What is left out, and why that is no loss, stands in README.md.
 *
 * A step is one d_step: a transaction of the database, or something that a node, a clock, a user or a fault does.
 * -DNAME switches on a mutant: a rule of the program is left out, and spin must find out.
 *
 * Routes 0 .. NODES-1 are the primaries of the nodes; the next ones are the backups of the last BACKUPS nodes. */
/* Bounds, given by tests/model/run with -D: NODES, BACKUPS, BUDGET (attempts a route), INSTANCES (starts in all). */
#define QUORUM 2
#define ROUTES (NODES + BACKUPS)
#define NODE(r) (r < NODES -> r : r - BACKUPS)
#ifdef NO_BUDGET
#define NUMBERS (BUDGET + 1)
#else
#define NUMBERS BUDGET
#endif

/* ---- The database. */
#define OPEN 0
#define COMPLETE 1
#define STALLED 2
#define CANCELLED 3
#define DEAD 4
byte state;                  /* of the round */
byte phase;                  /* its clock: 1 escalate_at has come, 2 past deadline_at, which is fresh_until too */
bool kept = true;            /* the round's row is there: not pruned */
bool ledger = true;          /* its id and nonce stand in the ledger */
byte opened = 1;             /* how often they were accepted */
byte owner;                  /* the instance that owns the round, 0 for none */
bool fenced[INSTANCES + 1];
byte joined = 2;             /* instances so far */
bool escalated, settled, collected;
byte escalations;            /* how often it was escalated, whatever the row remembers of it */
byte on_time[NODES], late[NODES]; /* ack rows */
byte row[ROUTES * NUMBERS];  /* attempt rows: NONE, the instance that an unfinished one belongs to, or DONE */
#define ROW(r, k) row[(r) * NUMBERS + (k) - 1]
#define NONE 0
#define DONE 9
byte locks;                  /* transactions under way that hold the row lock */

/* ---- Coordinator c: what a kill takes, and a fence makes stale. */
byte instance[2];            /* 0: it is dead */
bool holds[2], knows_escalated[2];
byte track[2 * ROUTES];      /* 0: closed or ended, k: attempt k is to be reserved, SENT + k: it is under way */
#define TRACK(c, r) track[(c) * ROUTES + (r)]
#define SENT 4
byte parcel[2 * ROUTES * NUMBERS]; /* its requests, also of a round that it has lost: 0, FLYING, or FAILED and not recorded yet */
#define PARCEL(c, r, k) parcel[((c) * ROUTES + (r)) * NUMBERS + (k) - 1]
#define FLYING 1
#define FAILED 2
byte batch[2];               /* the transaction under way that records a receipt: 1 + its parcel's place, 0 for none */
bool past[2];                /* the clock as that transaction read it after the lock: past the deadline? */

/* ---- Witnesses. */
bool really_past[2];         /* what the database's clock said at that moment */
byte counted[2];             /* acks that a transaction counted without the lock: a mutant's */
bool stopped;                /* the clock never gets to the deadline: nothing but its acks can end the round */
bool told_stalled;           /* a collector got QR001 */
#ifdef LIVE
byte faults = FAULTS, failures = 1; /* that still may happen */
#define MORE(x) x > 0
#define SPEND(x) x--
#define LOSE(heard) faults = (heard -> faults : faults - 1)
#define BOUNDED true
#else
#define MORE(x) true
#define SPEND(x) skip
#define LOSE(heard) skip
#define BOUNDED false
#endif
hidden byte i, n, k, sum, acks, open_rows;
hidden byte I1, I2, I3, I4, I5, I6, I7, FENCING, AWAITED; /* always 0: assert(I1) names what was broken */

inline must(condition, name) { if :: condition :: else -> assert(name) fi }

/* The one way to change the state. */
inline become(next) {
    must(state == OPEN || (state == COMPLETE && next == DEAD), I3);
    state = next
}

#define ACKED(n) (on_time[n] + late[n] > 0)
#define OVER (phase >= 2 || (state != OPEN && state != COMPLETE))
#define RUNS(c) (instance[c] != 0 && batch[c] == 0)
#define FREE (kept && locks == 0) /* FOR UPDATE SKIP LOCKED: a locked round is asked for again */
#ifdef NO_FENCING
#define OWNS(c) (holds[c] || owner == instance[c])
#else
#define OWNS(c) (owner == instance[c] && !fenced[instance[c]])
#endif

inline forget(c) {
    holds[c] = false;
    knows_escalated[c] = false;
    for (i : 0 .. ROUTES - 1) { TRACK(c, i) = 0 }
    i = 0
}

/* Goes on where the rows are: an attempt without an outcome goes again under its number. */
inline read_back(c) {
    holds[c] = true;
    knows_escalated[c] = escalated;
    for (i : 0 .. ROUTES - 1) {
        TRACK(c, i) = 0;
        if
        :: ACKED(NODE(i)) || OVER || (i >= NODES && !escalated)
        :: else ->
            k = BUDGET; /* the last unfinished one, or else the next one */
            do :: k > 0 && (ROW(i, k) == NONE || ROW(i, k) == DONE) -> k-- :: else -> break od;
            if
            :: k == 0 ->
                k = 1;
                do :: k <= BUDGET && ROW(i, k) != NONE -> k++ :: else -> break od
            :: else
            fi;
            if :: k <= BUDGET -> TRACK(c, i) = k :: else fi
        fi
    }
    i = 0; k = 0
}

/* claim: a round of nobody or of a fenced instance, together with the first attempts. heard: its answer arrives. */
inline claim(c, heard) {
    d_step {
        RUNS(c) && FREE && !settled && !holds[c] && !fenced[instance[c]] && (owner == 0 || fenced[owner]) && (heard || MORE(faults)) ->
        LOSE(heard);
        owner = instance[c];
        n = 0;
        for (i : 0 .. ROUTES - 1) {
            for (k : 1 .. BUDGET - 1) {
                if
                :: ROW(i, k) != NONE && ROW(i, k + 1) != NONE -> ROW(i, k) = DONE /* in doubt: only the newest goes again */
                :: else
                fi
            }
            if :: i < NODES && ROW(i, 1) == NONE && !OVER -> ROW(i, 1) = owner; n = n | (1 << i) :: else fi
        }
        if
        :: heard ->
            read_back(c);
            for (i : 0 .. NODES - 1) {
                if :: n & (1 << i) -> TRACK(c, i) = SENT + 1; PARCEL(c, i, 1) = FLYING :: else fi
            }
        :: else
        fi;
        i = 0; n = 0; k = 0
    }
}

/* owned: what a claim took whose answer was lost. */
inline read_owned(c) {
    d_step { RUNS(c) && FREE && !settled && !holds[c] && OWNS(c) -> read_back(c) }
}

/* reserve, and the request leaves once its commit was heard of. */
inline reserve(c, r, heard) {
    d_step {
        RUNS(c) && holds[c] && TRACK(c, r) != 0 && TRACK(c, r) < SENT && (FREE || !kept) && (heard || MORE(faults)) ->
        LOSE(heard);
        k = TRACK(c, r);
        if
        :: !kept || !OWNS(c) -> forget(c)
        :: else ->
            if
#ifdef NO_BUDGET
            :: ACKED(NODE(r)) || OVER || ROW(r, k) == DONE ->
#else
            :: ACKED(NODE(r)) || OVER || ROW(r, k) == DONE || k > BUDGET ->
#endif
                TRACK(c, r) = 0; /* denied; of a row that is there all the same it says that it was not sent */
                if :: ROW(r, k) != NONE -> ROW(r, k) = DONE :: else fi
            :: else ->
                must(owner == instance[c] && !fenced[owner], FENCING);
                must(k <= BUDGET, I5);
                must(r < NODES || (escalations > 0 && !ACKED(NODE(r))), I7);
                ROW(r, k) = instance[c];
                if :: heard -> TRACK(c, r) = SENT + k; PARCEL(c, r, k) = FLYING :: else fi
            fi
        fi;
        k = 0
    }
}

inline send_first(c, r) { /* a mutant's */
    d_step {
        RUNS(c) && holds[c] && TRACK(c, r) != 0 && TRACK(c, r) < SENT && PARCEL(c, r, TRACK(c, r)) == 0 ->
        PARCEL(c, r, TRACK(c, r)) = FLYING
    }
}

/* record, an outcome: written once, by whom the attempt belongs to. */
inline write_failure(c, r, number) {
    if
#ifdef NO_FENCING
    :: ROW(r, number) != DONE ->
        must(ROW(r, number) == instance[c], FENCING);
        ROW(r, number) = DONE
#else
    :: !fenced[instance[c]] && ROW(r, number) == instance[c] -> ROW(r, number) = DONE
#endif
    :: else
    fi;
    if :: !OWNS(c) -> forget(c) :: else fi
}

/* A request ends without a receipt. (Of a round that was lost meanwhile, this is the same as no answer yet.) */
inline fail(c, r, number) {
    d_step {
        RUNS(c) && TRACK(c, r) == SENT + number && FREE && MORE(failures) ->
        SPEND(failures);
        PARCEL(c, r, number) = 0;
        TRACK(c, r) = (number < NUMBERS && !OVER -> number + 1 : 0);
        write_failure(c, r, number)
    }
}

#ifdef PARKED
/* The same where the round was locked: its outcome is brought again, maybe after the next attempt was reserved. */
inline fail_parked(c, r, number) {
    d_step {
        RUNS(c) && TRACK(c, r) == SENT + number && kept && MORE(failures) ->
        SPEND(failures);
        PARCEL(c, r, number) = FAILED;
        TRACK(c, r) = (number < NUMBERS && !OVER -> number + 1 : 0)
    }
}

inline bring_again(c, r, number) {
    d_step {
        RUNS(c) && PARCEL(c, r, number) == FAILED && (FREE || !kept) ->
        PARCEL(c, r, number) = 0;
        if :: kept -> write_failure(c, r, number) :: else fi
    }
}
#define MAYBE_PARKED(c, r, number) :: fail_parked(c, r, number) :: bring_again(c, r, number)
#define PARKS(c, r) (PARCEL(c, r, 1) == FAILED || PARCEL(c, r, BUDGET) == FAILED)
#else
#define MAYBE_PARKED(c, r, number)
#define PARKS(c, r) false
#endif

/* record, a receipt: the row lock, then the clock, then the ack, and the count of ack rows. Between lock and commit nothing
 * of the round can happen, but the clock can pass the deadline: hence two steps before it, and one at any other time. */
#ifdef QUORUM_UNLOCKED
#define TWO_STEPS true
#else
#define TWO_STEPS phase == 1
#endif
inline read_clock(c, r, number) {
    must(ROW(r, number) != NONE, I5); /* the node has signed: a request has reached it */
    batch[c] = 1 + (r) * NUMBERS + number - 1;
    really_past[c] = phase >= 2;
#ifdef LOCAL_CLOCK
    past[c] = phase >= 2 + (c == 0) /* the host of coordinator 0 is an hour behind */
#else
    past[c] = phase >= 2
#endif
}

inline end_batch(c) {
    batch[c] = 0; past[c] = false; really_past[c] = false; counted[c] = 0;
#ifndef QUORUM_UNLOCKED
    locks--
#else
    skip
#endif
}

inline write_receipt(c) {
    n = (batch[c] - 1) / NUMBERS; /* the route */
    k = (batch[c] - 1) % NUMBERS + 1;
    if
#ifndef NO_DEDUP
    :: ACKED(NODE(n))
#endif
    :: else ->
        if
        :: past[c] || (state != OPEN && state != COMPLETE) -> late[NODE(n)]++
        :: else ->
            must(!really_past[c], I1);
            on_time[NODE(n)]++
        fi
    fi;
    if :: !fenced[instance[c]] && ROW(n, k) == instance[c] -> ROW(n, k) = DONE :: else fi;
    sum = 0; acks = 0; open_rows = 0;
    for (i : 0 .. NODES - 1) {
        sum = sum + on_time[i];
        acks = acks + (ACKED(i) -> 1 : 0)
    }
    for (i : 0 .. ROUTES * NUMBERS - 1) {
        open_rows = open_rows + (row[i] != NONE && row[i] != DONE -> 1 : 0)
    }
#ifdef QUORUM_UNLOCKED
    sum = counted[c] + 1;
#endif
    if
#ifdef LATE_COUNTS
    :: state != COMPLETE && state != DEAD && sum + late[NODE(n)] >= QUORUM -> become(COMPLETE)
#endif
    :: state == OPEN && past[c] -> become(STALLED)
    :: state == OPEN && !past[c] && sum >= QUORUM -> become(COMPLETE)
    :: else
    fi;
    if :: state != OPEN && acks == NODES && open_rows == 0 -> settled = true :: else fi;
    PARCEL(c, n, k) = 0;
    if
    :: !holds[c]
    :: holds[c] && (!OWNS(c) || settled) -> forget(c)
    :: else ->
        for (i : 0 .. ROUTES - 1) {
            if :: NODE(i) == NODE(n) && (TRACK(c, i) < SENT || i == n) -> TRACK(c, i) = 0 :: else fi
        }
    fi;
    end_batch(c);
    i = 0; n = 0; k = 0; sum = 0; acks = 0; open_rows = 0
}

inline record_begin(c, r, number) {
    d_step {
        RUNS(c) && PARCEL(c, r, number) == FLYING && FREE && TWO_STEPS ->
#ifdef QUORUM_UNLOCKED
        for (i : 0 .. NODES - 1) { counted[c] = counted[c] + on_time[i] }
        i = 0;
#else
        locks++;
#endif
        read_clock(c, r, number)
    }
}

inline record_whole(c, r, number) {
    d_step {
        RUNS(c) && PARCEL(c, r, number) == FLYING && FREE && !(TWO_STEPS) ->
        read_clock(c, r, number);
        locks++;
        write_receipt(c)
    }
}

inline receipt_gone(c, r, number) { /* of a pruned round */
    d_step { RUNS(c) && PARCEL(c, r, number) == FLYING && !kept -> PARCEL(c, r, number) = 0 }
}

inline commit_receipt(c) {
    d_step { batch[c] != 0 -> write_receipt(c) }
}

inline roll_back(c) {
    d_step {
        batch[c] != 0 && MORE(faults) ->
        SPEND(faults);
        end_batch(c)
    }
}

/* settle: the round is over, and nothing of it is awaited here. */
#define TO_RECORD(c) (PARKS(c, 0) || PARKS(c, 1) || (ROUTES > 2 && PARKS(c, 2)) || (ROUTES > 3 && PARKS(c, 3)))
#define AWAITS(c) \
    (TO_RECORD(c) || TRACK(c, 0) >= SENT || TRACK(c, 1) >= SENT || (ROUTES > 2 && TRACK(c, 2) >= SENT) || (ROUTES > 3 && TRACK(c, 3) >= SENT))
#define IDLES(c) (TRACK(c, 0) + TRACK(c, 1) + (ROUTES > 2 -> TRACK(c, 2) : 0) + (ROUTES > 3 -> TRACK(c, 3) : 0) == 0)
#define LEFT(r) (!ACKED(NODE(r)) && (r < NODES || escalated) && ROW(r, BUDGET) != DONE)
#define ANY_LEFT (LEFT(0) || LEFT(1) || (ROUTES > 2 && LEFT(2)) || (ROUTES > 3 && LEFT(3)))
inline settle(c) {
    d_step {
        RUNS(c) && holds[c] && (FREE || !kept) &&
        (!kept || !OWNS(c) || (OVER && !AWAITS(c)) || (state == COMPLETE && IDLES(c) && !TO_RECORD(c) && !ANY_LEFT)) ->
        if
        :: kept && OWNS(c) ->
            must(owner != instance[1 - c] || !AWAITS(1 - c), AWAITED);
            if :: state == OPEN -> become(STALLED) :: else fi;
            for (i : 0 .. ROUTES * NUMBERS - 1) {
                if :: row[i] != NONE -> row[i] = DONE /* in doubt, or unsent */ :: else fi
            }
            settled = true
        :: else
        fi;
        forget(c)
    }
}

#define BACKUP_NEEDED (!ACKED(NODES - 1) || (BACKUPS > 1 && !ACKED(NODES - 2)))
inline escalate(c, heard) {
    d_step {
        RUNS(c) && FREE && holds[c] && OWNS(c) && !knows_escalated[c] && phase == 1 && state == OPEN &&
        (escalated || BACKUP_NEEDED) && (heard || MORE(faults)) ->
        LOSE(heard);
        if
        :: !escalated ->
            escalations++;
#ifndef ESCALATED_IN_MEMORY
            escalated = true
#endif
        :: else
        fi;
        if
        :: heard ->
            knows_escalated[c] = true;
            for (i : NODES .. ROUTES - 1) { TRACK(c, i) = (ACKED(NODE(i)) -> 0 : 1) }
        :: else
        fi;
        i = 0
    }
}

/* tick: ends what is due, whoever owns it ... */
inline tick(c) {
    d_step {
        RUNS(c) && FREE && phase == 2 && (state == OPEN || (state == COMPLETE && !collected)) ->
        if
        :: state == COMPLETE -> become(DEAD)
#ifdef ONLY_OWN_DUE
        :: state == OPEN && owner == instance[c] -> become(STALLED)
#else
        :: state == OPEN -> become(STALLED)
#endif
        :: else
        fi;
        must(state != OPEN, I6) /* a tick comes within a second */
    }
}

/* ... and fences an owner that has been silent, dead or not. (Who owns nothing has nothing to lose by it.) */
inline fence(c) {
    d_step {
        RUNS(c) && !fenced[instance[c]] && owner != 0 && owner != instance[c] && !fenced[owner] && locks == 0 &&
        (MORE(faults) || instance[1 - c] != owner) ->
        if :: instance[1 - c] == owner -> SPEND(faults) :: else fi;
        fenced[owner] = true
    }
}

/* A new start, or the next life of one that found itself fenced. */
inline join(c) {
    d_step {
        batch[c] == 0 && locks == 0 && joined < INSTANCES && (instance[c] == 0 || fenced[instance[c]]) ->
        forget(c);
        joined++;
        instance[c] = joined
    }
}

#define REQUEST(c, r, number) \
    :: fail(c, r, number) \
    MAYBE_PARKED(c, r, number) \
    :: record_begin(c, r, number) \
    :: record_whole(c, r, number) \
    :: receipt_gone(c, r, number)
#ifdef NO_BUDGET
#define REQUESTS(c, r) REQUEST(c, r, 1) REQUEST(c, r, 2) REQUEST(c, r, 3)
#elif BUDGET == 2
#define REQUESTS(c, r) REQUEST(c, r, 1) REQUEST(c, r, 2)
#else
#define REQUESTS(c, r) REQUEST(c, r, 1)
#endif
#ifdef SEND_FIRST
#define ROUTE(c, r) :: send_first(c, r) :: reserve(c, r, true) REQUESTS(c, r)
#else
#define ROUTE(c, r) :: reserve(c, r, true) LOST(reserve(c, r, false)) REQUESTS(c, r)
#endif
#ifdef NO_LOST
#define LOST(call)
#else
#define LOST(call) :: call
#endif

proctype Coordinator(byte c) {
end:
    do
    :: claim(c, true)
    LOST(claim(c, false))
#ifndef NOT_READ_BACK
    :: read_owned(c)
#endif
    ROUTE(c, 0)
    ROUTE(c, 1)
#if ROUTES > 2
    ROUTE(c, 2)
#endif
#if ROUTES > 3
    ROUTE(c, 3)
#endif
    :: settle(c)
#if BACKUPS > 0
    :: escalate(c, true)
    LOST(escalate(c, false))
#endif
    :: tick(c)
#ifndef NO_TAKEOVER
    :: fence(c)
#endif
    :: join(c)
    od
}

active proctype Database() {
end:
    do
    :: commit_receipt(0)
    :: commit_receipt(1)
    :: roll_back(0)
    :: roll_back(1)
    od
}

active proctype Clock() {
end:
    do
    :: d_step { phase < 2 && !stopped -> phase++ }
#ifdef LIVE
    :: d_step { !stopped -> stopped = true }
#endif
    od
}

active proctype Users() {
end:
    do
#ifdef COLLECT_UNLOCKED
    :: d_step { kept && phase >= 2 && state == OPEN && !told_stalled -> told_stalled = true }
#else
    :: d_step { FREE && phase >= 2 && state == OPEN && !told_stalled -> told_stalled = true }
#endif
    :: d_step { FREE && phase < 2 && state == COMPLETE && !collected -> collected = true }
#ifndef NO_CANCEL
    :: d_step { FREE && phase < 2 && state == OPEN -> become(CANCELLED) }
#endif
#ifndef NO_PRUNE
    :: d_step {
        FREE && settled ->
        kept = false;
        for (i : 0 .. NODES - 1) { on_time[i] = 0; late[i] = 0 }
        for (i : 0 .. ROUTES * NUMBERS - 1) { row[i] = NONE }
#ifdef LEDGER_PRUNED
        ledger = false;
#endif
        i = 0; owner = 0; state = OPEN; escalated = false; escalations = 0; settled = false; collected = false; told_stalled = false
    }
#endif
#ifdef LIVE
    :: d_step { state == OPEN -> skip } /* a collector polls, for as long as it likes */
#endif
    :: d_step { !ledger -> ledger = true; opened++ }
    od
}

#define CAN_GO_ON(c) (instance[c] != 0 && (!fenced[instance[c]] || joined < INSTANCES))
inline kill(c) {
    d_step {
        instance[c] != 0 && batch[c] == 0 && locks == 0 && MORE(faults) && (!BOUNDED || CAN_GO_ON(1 - c)) ->
        SPEND(faults);
        instance[c] = 0;
        forget(c);
        for (i : c * ROUTES * NUMBERS .. (c + 1) * ROUTES * NUMBERS - 1) { parcel[i] = 0 }
        i = 0
    }
}

active proctype Faults() {
end:
    do
    :: kill(0)
    :: kill(1)
    od
}

#if NODES > 2
#define COUNT(rows, is) ((rows[0] is -> 1 : 0) + (rows[1] is -> 1 : 0) + (rows[2] is -> 1 : 0))
#else
#define COUNT(rows, is) ((rows[0] is -> 1 : 0) + (rows[1] is -> 1 : 0))
#endif
#define ONE(n) (on_time[n] + late[n] <= 1)

/* What holds in every state. */
active proctype Monitor() {
end:
    do
    :: kept && ((state == COMPLETE || state == DEAD) != (COUNT(on_time, > 0) >= QUORUM)) -> assert(I1)
    :: !ONE(0) || !ONE(1) || (NODES > 2 && !ONE(2)) -> assert(I2)
    :: (told_stalled && state != OPEN && state != STALLED) || (collected && state != COMPLETE) -> assert(I3)
    :: opened > 1 -> assert(I4)
    :: escalations > 1 -> assert(I7)
    od
}

init {
    d_step { instance[0] = 1; instance[1] = 2 };
    atomic { run Coordinator(0); run Coordinator(1) }
}

#ifdef LIVE
ltl I10 { <> settled }
#endif
