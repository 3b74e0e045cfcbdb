"""One database of quorate as a test sees it: submits rounds, waits for what happens to them, reads the views."""

import secrets
import select
import threading
import time

import psycopg
from psycopg.rows import dict_row

from .cluster import Cluster

# Short, so that tests are, and long enough for a busy machine: a test whose subject is the time-out says a shorter one.
POLICY = {"per_share_timeout": "3 s", "retry_budget": 3, "base_backoff": "20 ms", "max_backoff": "100 ms",
          "round_deadline": "6 s"}
TERMINAL = ("complete", "stalled", "cancelled", "dead_lettered")
FIXED = ("nonce", "quorum", "total_nodes", "node_ids", "per_share_timeout", "retry_budget", "base_backoff", "max_backoff",
         "after_quorum", "require_sealed", "opened_at", "escalate_at", "deadline_at", "fresh_until")


class Database:
    """Remembers what it submitted and saw, so that invariants over time can be checked (harness/invariants.py)."""

    def __init__(self, cluster: Cluster, name: str):
        self.cluster, self.name = cluster, name
        self.conninfo = cluster.conninfo(name)
        self.payloads: dict[tuple[str, int], bytes] = {}
        self.seen_state: dict[str, str] = {}
        self.seen_fixed: dict[str, dict] = {}
        self._local = threading.local()

    def connect(self, **options) -> psycopg.Connection:
        return psycopg.connect(self.conninfo, autocommit=True, row_factory=dict_row, **options)

    @property
    def conn(self) -> psycopg.Connection:
        """A connection per thread, made again when it broke."""
        conn = getattr(self._local, "conn", None)
        if conn is None or conn.closed or conn.broken:
            conn = self._local.conn = self.connect()
        return conn

    def rows(self, sql: str, *parameters) -> list[dict]:
        """All rows of a query; a connection that turns out dead is replaced once (only for what may be repeated)."""
        try:
            return self.conn.execute(sql, parameters).fetchall()
        except psycopg.OperationalError:
            if not self._local.conn.closed:
                raise
            return self.conn.execute(sql, parameters).fetchall()

    def one(self, sql: str, *parameters):
        """The only value of the only row."""
        (row,) = self.rows(sql, *parameters)
        (value,) = row.values()
        return value

    # Dealers.

    def add_node(self, node, enabled: bool = True) -> None:
        self.rows("SELECT quorate.add_node(%s, %s, %s, %s)", node.node_id, node.primary.url, node.key.public_text,
                  node.backup.url if node.backup else None)
        if not enabled:
            self.rows("SELECT quorate.set_node_enabled(%s, false)", node.node_id)

    def new_round_id(self) -> str:
        return "r-" + secrets.token_hex(6)

    def _arguments(self, policy: dict) -> tuple[str, list]:
        given = {**POLICY, **policy}
        given = {name: value for name, value in given.items() if value is not None}
        casts = {"nonce": "bigint", "retry_budget": "int", "after_quorum": "text", "node_ids": "int[]", "require_sealed": "boolean"}
        text = "".join(f", {name} => %s::{casts.get(name, 'interval')}" for name in given)
        return text, list(given.values())

    def open(self, quorum: int, round_id: str | None = None, **policy) -> dict:
        """open_round; returns its row and the round_id."""
        round_id = round_id or self.new_round_id()
        text, values = self._arguments(policy)
        (row,) = self.rows(f"SELECT * FROM quorate.open_round(%s, %s{text})", round_id, quorum, *values)
        return {"round_id": round_id, **row}

    def distribute(self, round_id: str, nonce: int, payloads: dict[int, bytes]) -> dict[int, str]:
        """distribute; the verdicts by node."""
        rows = self.rows("SELECT * FROM quorate.distribute(%s, %s, %s::int[], %s::bytea[])", round_id, nonce,
                         list(payloads), list(payloads.values()))
        assert [row["node_id"] for row in rows] == list(payloads)
        self.payloads.update({(round_id, row["node_id"]): payloads[row["node_id"]]
                              for row in rows if row["verdict"] == "accepted"})
        return {row["node_id"]: row["verdict"] for row in rows}

    def submit(self, quorum: int, nodes, round_id: str | None = None, payloads: dict[int, bytes] | None = None,
               **policy) -> str:
        """submit_round with random envelopes for `nodes` (ids or Nodes); returns the round_id."""
        round_id = round_id or self.new_round_id()
        ids = [getattr(node, "node_id", node) for node in nodes]
        payloads = payloads or {node_id: secrets.token_bytes(48) for node_id in ids}
        text, values = self._arguments(policy)
        self.rows(f"SELECT * FROM quorate.submit_round(%s, %s, %s::int[], %s::bytea[]{text})", round_id, quorum,
                  list(payloads), list(payloads.values()), *values)
        self.payloads.update({(round_id, node_id): payload for node_id, payload in payloads.items()})
        return round_id

    def collect(self, round_id: str, quorum: int | None = None) -> list[int] | None:
        return self.one("SELECT quorate.collect(%s, %s)", round_id, quorum)

    # Auditors.

    def round(self, round_id: str) -> dict:
        (row,) = self.rows("SELECT * FROM quorate.rounds WHERE round_id = %s", round_id)
        self._remember([row])
        return row

    def rounds(self) -> list[dict]:
        rows = self.rows("SELECT * FROM quorate.rounds ORDER BY opened_at, round_id")
        self._remember(rows)
        return rows

    def _remember(self, rows: list[dict]) -> None:
        """Terminal states and the policy never change: whoever looks twice notices."""
        for row in rows:
            before, now = self.seen_state.get(row["round_id"], "open"), row["state"]
            assert before in ("open", now) or (before, now) == ("complete", "dead_lettered"), \
                f"I3: {row['round_id']} went from {before} to {now}"
            self.seen_state[row["round_id"]] = now
            fixed = {name: row[name] for name in FIXED}
            assert self.seen_fixed.setdefault(row["round_id"], fixed) == fixed, \
                f"I9: {row['round_id']} was {self.seen_fixed[row['round_id']]} and is {fixed}"

    def deliveries(self, round_id: str) -> dict[int, dict]:
        return {row["node_id"]: row for row in
                self.rows("SELECT * FROM quorate.deliveries WHERE round_id = %s ORDER BY node_id", round_id)}

    def attempts(self, round_id: str, node_id: int | None = None, route: str | None = None) -> list[dict]:
        rows = self.rows("SELECT * FROM quorate.attempts WHERE round_id = %s", round_id)
        rows.sort(key=lambda row: (row["node_id"], row["route"] != "primary", row["attempt"]))
        return [row for row in rows if node_id in (None, row["node_id"]) and route in (None, row["route"])]

    def attempt_list(self, round_id: str, node_id: int) -> list[tuple]:
        """(route, attempt, outcome, http_status) of one delivery: what most tests compare."""
        return [(a["route"], a["attempt"], a["outcome"], a["http_status"]) for a in self.attempts(round_id, node_id)]

    def acks(self, round_id: str) -> dict[int, dict]:
        return {row["node_id"]: row for row in
                self.rows("SELECT * FROM quorate.acks WHERE round_id = %s ORDER BY node_id", round_id)}

    def deployment(self) -> str:
        return self.one("SELECT deployment_id FROM quorate.deployment")

    # Waiting.

    def wait(self, what: str, condition, timeout: float = 20):
        """Waits until condition() is true and returns its value: looks at each notification, and 20 times a second."""
        deadline = time.monotonic() + timeout
        with self.connect(options="-c statement_timeout=0") as listener:  # whatever a test has set for others
            listener.execute("LISTEN quorate_round")
            while True:
                value = condition()
                if value:
                    return value
                left = deadline - time.monotonic()
                assert left > 0, f"not within {timeout} s: {what}"
                if select.select([listener.fileno()], [], [], min(left, 0.05))[0]:
                    listener.execute("SELECT 1")

    def wait_state(self, round_id: str, *states: str, timeout: float = 20) -> dict:
        states = states or TERMINAL

        def look():
            row = self.round(round_id)
            return row if row["state"] in states else None

        return self.wait(f"{round_id} {' or '.join(states)}", look, timeout)

    def wait_settled(self, round_id: str, timeout: float = 20) -> dict:
        def look():
            row = self.round(round_id)
            return row if row["settled_at"] is not None else None

        return self.wait(f"{round_id} settled", look, timeout)

    def wait_all_settled(self, timeout: float = 60) -> None:
        self.wait("all rounds settled",
                  lambda: self.one("SELECT count(*) FROM quorate.rounds WHERE settled_at IS NULL") == 0, timeout)

    def wait_attempts(self, round_id: str, node_id: int, count: int, route: str | None = None, timeout: float = 20) -> list:
        """Waits until so many attempts have finished."""

        def look():
            done = [a for a in self.attempts(round_id, node_id, route) if a["finished_at"] is not None]
            return done if len(done) >= count else None

        return self.wait(f"{count} attempts of {round_id} at node {node_id}", look, timeout)
