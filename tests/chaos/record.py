"""What really happened when: the windows of all faults, and how long commits took; says in which times nothing was wrong."""

import contextlib
import dataclasses
import threading
import time

import psycopg

from schedule import COORDINATORS, Fault

RECOVERY_S = 3.5  # after a fault: reconnecting takes 2 s at most and a beat half a second; starting anew takes a while here
LEASE_S = 2.0
SLOW_COMMIT_S = 0.6  # a gap this long between commits is an outage, whatever its reason
DOWN = {"coordinator-kill", "coordinator-freeze", "coordinator-term", "coordinator-term-twice", "coordinators-all-killed", "database-cut",
        "database-hole", "database-deaf", "database-reset"}
# A coordinator that is frozen or cut off in the midst of a batch holds its row locks until its peers have fenced it.
HOLDS_LOCKS = {"coordinator-freeze", "database-hole", "database-deaf"}


@dataclasses.dataclass
class Window:
    fault: Fault
    start: float  # time.time(), which is the database's clock too
    end: float | None = None
    rounds: frozenset = frozenset()  # those that the fault touches, when it does not touch all


class Record:
    def __init__(self):
        self.windows: list[Window] = []
        self.gaps: list[tuple[float, float]] = []
        self.commits = 0
        self.slowest_commit = 0.0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def window(self, fault: Fault):
        window = Window(fault, time.time())
        with self._lock:
            self.windows.append(window)
        try:
            yield window
        finally:
            window.end = time.time()

    def beat(self, conninfo: str, stopping: threading.Event) -> None:
        """The canary: commits ten times a second on a table of its own, and notes when that stops."""
        last, conn = time.time(), None
        while not stopping.wait(0.1):
            try:
                if conn is None:
                    conn = psycopg.connect(conninfo, autocommit=True, application_name="canary")
                conn.execute("UPDATE canary.beat SET at = clock_timestamp()")
                self.commits += 1
            except psycopg.Error:
                if conn is not None:
                    conn.close()
                conn = None
                continue
            now = time.time()
            self.slowest_commit = max(self.slowest_commit, now - last)
            if now - last > SLOW_COMMIT_S:
                self.gaps.append((last, now))
            last = now
        if conn is not None:
            conn.close()

    # Afterwards.

    def trouble(self) -> list[tuple[float, float]]:
        """When punctuality cannot be asked for: no commits, no coordinator, or locks held by one that is frozen."""
        spans = [(start, end + RECOVERY_S) for start, end in self.gaps]
        down: dict[str, list] = {name: [] for name in COORDINATORS}
        for w in self.windows:
            if w.fault.lane == "database" or w.fault.kind == "tables-locked":
                spans.append((w.start, w.end + RECOVERY_S))
            if w.fault.kind in HOLDS_LOCKS:
                spans.append((w.start, min(w.end, w.start + LEASE_S + 2) + 1))
            if w.fault.kind in DOWN:
                for name in COORDINATORS if w.fault.target == "" else (w.fault.target,):
                    down[name].append((w.start, w.end + RECOVERY_S))
        nobody = merge(down[COORDINATORS[0]])
        for name in COORDINATORS[1:]:
            nobody = intersect(nobody, merge(down[name]))
        return merge(spans + nobody)

    def touching(self, start: float, end: float) -> list[Window]:
        return [w for w in self.windows if w.start <= end and (w.end or time.time()) >= start]

    def lines(self) -> list[str]:
        """What happened when, for a reader."""
        events = [(w.start, f"{w.end - w.start:6.2f} s  {w.fault.kind} {w.fault.target}") for w in self.windows if w.end is not None]
        events += [(start, f"{end - start:6.2f} s  no commit") for start, end in self.gaps]
        began = min((at for at, _ in events), default=0.0)
        return [f"{time.strftime('%H:%M:%S', time.gmtime(at))} {at - began:8.2f}  {what}" for at, what in sorted(events)]

    def held(self, round_id: str) -> list[tuple[float, float]]:
        """When a client held the round's row."""
        return [(w.start, w.end + 1) for w in self.windows if round_id in w.rounds]


def merge(spans: list) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersect(one: list, other: list) -> list[tuple[float, float]]:
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) < min(b, d)]


def longest_calm(start: float, end: float, trouble: list) -> float:
    """The longest stretch between two times in which nothing was wrong."""
    longest, at = 0.0, start
    for begin, over in trouble:
        if over <= at:
            continue
        if begin >= end:
            break
        longest, at = max(longest, begin - at), max(at, over)
    return max(longest, end - at)
