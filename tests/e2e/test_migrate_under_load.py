"""Migrating a busy system: functions are replaced under running coordinators and clients, again and again."""

import collections
import random
import secrets
import threading
import time

import psycopg
from harness import behaviours as b

PATIENT = {"per_share_timeout": "5 s", "retry_budget": 20, "max_backoff": "50 ms", "round_deadline": "60 s"}
APPLY_AGAIN = "UPDATE quorate_store.repeatable SET sha256 = sha256('older') WHERE name = '99_end.sql'"


class Clients:
    """Dealers, collectors and auditors that go on for as long as they are told, and count what they meet."""

    def __init__(self, lab, nodes):
        self.lab, self.nodes = lab, nodes
        self.over = threading.Event()
        self.errors: collections.Counter = collections.Counter()
        self.rounds: list[str] = []
        self._threads = [threading.Thread(target=self._repeat, args=(act,))
                         for act in (self._deal, self._deal, self._collect, self._audit, self._audit_in_a_transaction)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self._threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self._threads)

    def _repeat(self, act):
        with self.lab.db.connect() as conn:
            while not self.over.is_set():
                try:
                    act(conn)
                except psycopg.Error as error:
                    self.errors[act.__name__, error.sqlstate, str(error).splitlines()[0]] += 1
                self.over.wait(0.01)

    def _deal(self, conn):
        round_id = self.lab.db.new_round_id()
        payloads = {node.node_id: secrets.token_bytes(48) for node in self.nodes}
        while True:  # until it is there: what fails is tried again under the same id, which is harmless
            try:
                conn.execute("SELECT quorate.submit_round(%s, 2, %s, %s, per_share_timeout => '5 s', retry_budget => 20, max_backoff =>"
                             " '50 ms', round_deadline => '60 s')", [round_id, list(payloads), list(payloads.values())])
                break
            except psycopg.Error as error:
                self.errors["_deal", error.sqlstate, str(error).splitlines()[0]] += 1
                if self.over.is_set():
                    return
        self.lab.db.payloads.update({(round_id, node_id): payload for node_id, payload in payloads.items()})
        self.rounds.append(round_id)

    def _collect(self, conn):
        if self.rounds:
            conn.execute("SELECT quorate.collect(%s)", [random.choice(self.rounds)])

    def _audit(self, conn):
        conn.execute("SELECT state, count(*), sum(acked) FROM quorate.rounds GROUP BY state")

    def _audit_in_a_transaction(self, conn):
        with conn.transaction():
            conn.execute("SELECT count(*) FROM quorate.attempts")
            self.over.wait(0.01)
            conn.execute("SELECT count(*) FROM quorate.rounds")


def migrate(lab, *options):
    """Applies all files of sql/ again."""
    lab.db.conn.execute(APPLY_AGAIN)
    return lab.processes.command("migrate", *options, conninfo=lab.db.conninfo)


def test_functions_are_replaced_under_a_flood_again_and_again(lab):
    """Coordinators go on, no round is lost or sent twice, and what a client meets can be tried again."""
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.005))
    coordinators = [lab.coordinator(), lab.coordinator()]
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    done = collections.Counter()
    with Clients(lab, nodes) as clients:
        lab.db.wait("some rounds", lambda: len(clients.rounds) > 20)
        for _ in range(10):
            result = migrate(lab)
            done[result.returncode] += 1
            assert result.returncode == 0 or "run this again" in result.stderr, result.stderr
            seen = len(clients.rounds)
            lab.db.wait("clients go on", lambda seen=seen: len(clients.rounds) > seen + 5)
    assert done[0] >= 5, done
    lab.db.wait_all_settled()
    found = {row["round_id"]: (row["state"], row["acked"]) for row in lab.db.rounds()}
    assert found == {round_id: ("complete", 3) for round_id in clients.rounds}
    assert {len(node.requests) for node in nodes} == {len(clients.rounds)}, "each envelope once"
    assert lab.db.one(deadlocks) == 0
    assert all(one.running() for one in coordinators)
    assert not clients.errors, clients.errors
    assert not [line for one in coordinators for line in one.lines if "event=batch_failed" in line or "event=beat_failed" in line]


def test_it_waits_no_longer_than_its_lock_timeout_and_deadlocks_with_nobody(lab):
    """A report reads one view after another in a long transaction: migrate gives up in time with nothing changed, the report ends well,
    and the next try succeeds. Meanwhile coordinators and dealers are not kept waiting."""
    nodes = lab.some_nodes(2)
    coordinator = lab.coordinator()
    before = lab.db.rows("SELECT name, applied_at FROM quorate_store.repeatable ORDER BY name")
    with lab.db.connect() as report, report.transaction():
        report.execute("SELECT count(*) FROM quorate.attempts")
        began = time.monotonic()
        results = []
        thread = threading.Thread(target=lambda: results.append((migrate(lab, "--lock-timeout", "3s"), time.monotonic() - began)))
        thread.start()
        done = lab.db.submit(2, nodes)
        assert lab.db.wait_settled(done)["state"] == "complete"
        for view in ("rounds", "deliveries", "acks", "rejections", "dead_letters", "nodes", "coordinators", "deployment"):
            report.execute(f"SELECT count(*) FROM quorate.{view}")
            nodes[0].primary.closing.wait(0.2)
        thread.join(30)
    ((result, took),) = results
    assert result.returncode == 1 and "within 3000 ms" in result.stderr and "run this again" in result.stderr, result.stderr
    assert 2.5 < took < 15
    assert lab.db.rows("SELECT name, applied_at FROM quorate_store.repeatable ORDER BY name") == before
    assert lab.db.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    assert migrate(lab).returncode == 0
    assert lab.processes.command("migrate", "--verify", conninfo=lab.db.conninfo).returncode == 0
    assert coordinator.running() and lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"


def test_a_function_that_cannot_be_replaced_is_dropped_and_made_again(lab):
    """Another result, or other names of arguments, as an older version may have had them; its grants stay."""
    node, coordinator = lab.node(), lab.coordinator()
    kept = lab.db.one("SELECT 'quorate.open_round'::regproc::oid")
    lab.db.conn.execute("DROP FUNCTION quorate.cancel_round(text, text)")
    lab.db.conn.execute("CREATE FUNCTION quorate.cancel_round(id text, why text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    result = migrate(lab)
    assert result.returncode == 0, result.stderr
    assert lab.db.one("SELECT pg_get_function_result('quorate.cancel_round(text, text)'::regprocedure)") == "boolean"
    assert lab.db.one("SELECT 'quorate.open_round'::regproc::oid") != kept, "all were dropped"
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    kept = lab.db.one("SELECT 'quorate.open_round'::regproc::oid")
    assert migrate(lab).returncode == 0
    assert lab.db.one("SELECT 'quorate.open_round'::regproc::oid") == kept, "replaced in its place"
    assert coordinator.running()
