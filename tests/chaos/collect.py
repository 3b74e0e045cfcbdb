"""Collectors, who ask again and again; a listener; and an auditor, who looks whether what is settled stays so."""

import heapq
import itertools
import random
import re
import threading
import time

import psycopg
from book import Answer, Book, Client, Entry
from harness.rounds import FIXED
from psycopg.rows import dict_row

COLLECTORS = 3
ENDS = {"QR001": "stalled", "QR002": "dead_lettered", "QR004": "cancelled"}
ASK = """SELECT clock_timestamp() > (SELECT deadline_at FROM quorate.rounds WHERE round_id = %s) AS due, quorate.collect(%s) AS nodes"""
NOTICE = re.compile(r"([A-Za-z0-9_-]{1,128}) (complete|stalled|cancelled|dead_lettered)")
LOOK = f"SELECT round_id, state, escalated_at, closed_at, collected_at, quorum_nodes, settled_at, {', '.join(FIXED)} FROM quorate.rounds"
RECENT = " WHERE settled_at IS NULL OR settled_at > clock_timestamp() - interval '15 s'"


class Collectors:
    """Ask about each round a few times, at moments drawn when it was opened; every fourth is left alone until the very end."""

    def __init__(self, conninfo: str, seed: int, book: Book):
        self.conninfo, self.book = conninfo, book
        self.stopping = threading.Event()
        self.notices: set[tuple[str, str]] = set()
        self.odd_notices: list[str] = []
        self._dice = random.Random(f"{seed} collectors")
        self._heap: list = []
        self._serial = itertools.count()
        self._lock = threading.Lock()
        self._seen: dict[str, dict] = {}
        self.looks = 0
        targets = [(self._collect, (number,)) for number in range(COLLECTORS)] + [(self._listen, ()), (self._audit, ())]
        self._threads = [threading.Thread(target=target, args=arguments, daemon=True) for target, arguments in targets]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a collector hangs"

    def expect(self, entry: Entry, deadline_s: float) -> None:
        with self._lock:
            dice, now = self._dice, time.time()
            if dice.random() < 0.25:
                return
            for after in (dice.uniform(0, 1.5), dice.uniform(0, deadline_s), deadline_s + dice.uniform(-0.02, 0.1), deadline_s + dice.uniform(1, 8)):
                heapq.heappush(self._heap, (now + after, next(self._serial), entry))

    def ask(self, client: Client, entry: Entry) -> None:
        asked = time.time()
        reply = client.call(ASK, entry.round_id, entry.round_id)
        told = time.time()
        if reply.status == "done":
            ((due, nodes),) = reply.rows
            if nodes is None and due:
                self.book.breach("I6", entry.round_id, "collect said open, past the deadline")
            entry.answers.append(Answer(asked, told, "open") if nodes is None else Answer(asked, told, "nodes", tuple(nodes)))
        elif reply.status == "refused" and (reply.sqlstate in ENDS or reply.sqlstate == "QR003"):
            entry.answers.append(Answer(asked, told, reply.sqlstate))
        elif reply.status == "refused":
            self.book.breach("client", entry.round_id, f"collect failed with {reply.sqlstate} {reply.detail}")

    def _collect(self, number: int) -> None:
        client = Client(self.conninfo, f"collector {number}")
        while not self.stopping.is_set():
            with self._lock:
                due = heapq.heappop(self._heap) if self._heap and self._heap[0][0] <= time.time() else None
            if due is None:
                self.stopping.wait(0.01)
            else:
                self.ask(client, due[2])
        client.close()

    def ask_all(self) -> None:
        """The last question, about every round."""
        client = Client(self.conninfo, "last collector")
        for entry in list(self.book.entries.values()):
            self.ask(client, entry)
        client.close()

    def _listen(self) -> None:
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.conninfo, autocommit=True, application_name="listener") as conn:
                    conn.add_notify_handler(self._notified)
                    conn.execute("LISTEN quorate_round")
                    while not self.stopping.wait(0.1):
                        conn.execute("SELECT 1")  # takes in what has come
            except psycopg.Error:
                time.sleep(0.1)

    def _notified(self, notice) -> None:
        found = NOTICE.fullmatch(notice.payload)
        if found is None:
            self.odd_notices.append(notice.payload[:200])
        else:
            self.notices.add((found[1], found[2]))

    def _audit(self) -> None:
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.conninfo, autocommit=True, row_factory=dict_row, application_name="auditor") as conn:
                    while not self.stopping.wait(1.0):
                        for row in conn.execute(LOOK + RECENT).fetchall():
                            self.look(row)
            except psycopg.Error:
                time.sleep(0.2)

    def look(self, row: dict) -> None:
        """I3, I7 and I9 by looking twice."""
        self.looks += 1
        round_id, before = row["round_id"], self._seen.setdefault(row["round_id"], row)
        now, was = row["state"], before["state"]
        if was not in ("open", now) and (was, now) != ("complete", "dead_lettered"):
            self.book.breach("I3", round_id, f"it went from {was} to {now}")
        for name in ("escalated_at", "closed_at", "collected_at", "quorum_nodes", "settled_at"):
            if before[name] is not None and row[name] != before[name]:
                rule = "I7" if name == "escalated_at" else "I3"
                self.book.breach(rule, round_id, f"{name} was {before[name]} and is {row[name]}")
        for name in FIXED:
            if row[name] != before[name]:
                self.book.breach("I9", round_id, f"{name} was {before[name]} and is {row[name]}")
        self._seen[round_id] = row
