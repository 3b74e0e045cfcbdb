"""What dealers and collectors know: what they asked for, what they were told, and of what they cannot be sure."""

import dataclasses
import threading
import time

import psycopg

# These say for certain that nothing was done, so the same may be tried again.
NOT_DONE = {"40001", "40P01", "55P03", "57014", "25006", "53300", "57P03"}


@dataclasses.dataclass(frozen=True)
class Reply:
    """Of one call. status: done, refused (sqlstate says why), not_done, or unknown: the connection died over it."""

    status: str
    rows: tuple = ()
    sqlstate: str | None = None
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a collector was told: open, a state's SQLSTATE, or "nodes" with the nodes."""

    asked: float
    told: float
    text: str
    nodes: tuple = ()


@dataclasses.dataclass
class Entry:
    """One round, as its dealer knows it."""

    round_id: str
    quorum: int
    policy: dict
    known: str = "unknown"  # committed; refused: it must not exist; unknown
    nonce: int | None = None
    accepted: dict = dataclasses.field(default_factory=dict)  # node -> SHA-256, where the verdict was heard
    maybe: dict = dataclasses.field(default_factory=dict)  # node -> SHA-256s, where it was not
    refusals: int = 0
    cancelled: bool | None = None
    answers: list = dataclasses.field(default_factory=list)


class Book:
    def __init__(self):
        self.entries: dict[str, Entry] = {}
        self.broken: list[tuple[str, str, str]] = []  # (rule, round_id, what) that a client saw at once
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, entry: Entry) -> Entry:
        with self._lock:
            self.entries[entry.round_id] = entry
        return entry

    def count(self, what: str, more: int = 1) -> None:
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + more

    def breach(self, rule: str, round_id: str, what: str) -> None:
        with self._lock:
            self.broken.append((rule, round_id, what))


class Client:
    """A connection that is made anew whenever it broke; one thread's own."""

    def __init__(self, conninfo: str, name: str):
        self.conninfo, self.name, self.conn = conninfo, name, None

    def call(self, sql: str, *values) -> Reply:
        try:
            if self.conn is None:
                self.conn = psycopg.connect(self.conninfo, autocommit=True, application_name=self.name)
        except psycopg.Error:
            time.sleep(0.1)
            return Reply("not_done")
        try:
            return Reply("done", tuple(self.conn.execute(sql, values).fetchall()))
        except psycopg.Error as error:
            state = error.sqlstate
            if self.conn.broken or self.conn.closed or state is None:
                self.close()
                return Reply("unknown")
            if state in NOT_DONE:
                return Reply("not_done", sqlstate=state)
            return Reply("refused", sqlstate=state, detail=f"{error.diag.message_primary} {error.diag.message_detail or ''}")

    def insist(self, stopping: threading.Event, sql: str, *values) -> Reply:
        """Repeats what was certainly not done."""
        reply = self.call(sql, *values)
        while reply.status == "not_done" and not stopping.is_set():
            time.sleep(0.05)
            reply = self.call(sql, *values)
        return reply

    def close(self) -> None:
        if self.conn is not None:
            self.conn.close()
        self.conn = None
