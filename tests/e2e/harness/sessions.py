"""Sessions of one database side by side, for tests of races between them: the SQL alone, without any program."""

import concurrent.futures
import contextlib
import time
import uuid

import psycopg

from .cluster import Cluster

KEY = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
RECEIPT = bytes(64)
LONG = {"round_deadline": "1 h"}
BRIEF = {"base_backoff": "1 us", "max_backoff": "1 us", "retry_budget": 1}


class Session:
    """One connection. `later` runs a statement in a thread and waits until it is blocked by a lock, or done."""

    def __init__(self, db, conn):
        self.db, self.conn = db, conn

    def rows(self, sql, *values):
        return self.conn.execute(sql, values).fetchall()

    def one(self, sql, *values):
        ((value,),) = self.rows(sql, *values)
        return value

    def begin(self, isolation=""):
        self.conn.execute("BEGIN " + (f"ISOLATION LEVEL {isolation}" if isolation else ""))

    def commit(self):
        self.conn.execute("COMMIT")

    def rollback(self):
        self.conn.execute("ROLLBACK")

    def later(self, call):
        future = self.db.pool.submit(call)
        deadline = time.monotonic() + 10
        while not future.done() and time.monotonic() < deadline:
            if self.db.admin.one("SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'",
                                 self.conn.info.backend_pid):
                return future
            time.sleep(0.005)
        assert future.done(), "neither blocked by a lock nor done"
        return future

    # Dealers and collectors.

    def open(self, round_id, quorum=1, nodes=None, nonce=None, **policy):
        named = "".join(f", {name} => %s" for name in policy)
        return self.rows(f"SELECT nonce FROM quorate.open_round(%s, %s, %s, %s{named})", round_id, quorum, nodes, nonce,
                         *policy.values())[0][0]

    def submit(self, round_id, quorum=1, nodes=(1, 2), **policy):
        named = "".join(f", {name} => %s" for name in {**LONG, **policy})
        return self.rows(f"SELECT nonce FROM quorate.submit_round(%s, %s, %s, %s{named})", round_id, quorum, list(nodes),
                         [b"share %d" % n for n in nodes], *{**LONG, **policy}.values())[0][0]

    def distribute(self, round_id, nonce, payloads):
        return [v for (v,) in self.rows("SELECT verdict FROM quorate.distribute(%s, %s, %s, %s)", round_id, nonce,
                                        list(payloads), list(payloads.values()))]

    def collect(self, round_id):
        return self.one("SELECT quorate.collect(%s)", round_id)

    def state(self, round_id):
        return self.one("SELECT state FROM quorate.rounds WHERE round_id = %s", round_id)

    def pass_deadline(self, round_id):
        self.one("SELECT pg_sleep_until(deadline_at + interval '2 ms') IS NULL FROM quorate.rounds WHERE round_id = %s", round_id)

    # Coordinators.

    def join(self, name="c", lease="1 h", instance_id=None):
        return self.rows("SELECT instance_no FROM quorate_worker.join_deployment(%s, %s, %s)", instance_id or uuid.uuid4(),
                         name, lease)[0][0]

    def claim(self, instance, most=1000):
        return sorted({row[0] for row in self.rows("SELECT round_id FROM quorate_worker.claim(%s, %s, 1000000, '{}')", instance, most)})

    def record(self, instance, *acks, outcome="ack", notify=True):
        """acks: (round_id, node_id); the first attempt on the primary route. The states by round_id."""
        numbers = [self.one("SELECT round_no FROM quorate_store.ledger WHERE round_id = %s", r) for r, _ in acks]
        count = len(acks)
        rows = self.rows("SELECT round_no, state FROM quorate_worker.record(%s, %s, %s, %s::smallint[], %s, %s::smallint[], %s,"
                         " %s::smallint[], %s::bigint[], %s::bytea[])", instance, notify, numbers, [n for _, n in acks],
                         ["primary"] * count, [1] * count, [outcome] * count, [None] * count, [None] * count,
                         [RECEIPT if outcome == "ack" else None] * count)
        names = dict(zip(numbers, (r for r, _ in acks)))
        return {names[number]: state for number, state in rows}

    def reserve(self, instance, round_id, node_id, attempt):
        return self.rows("SELECT granted, state FROM quorate_worker.reserve(%s, ARRAY[(SELECT round_no FROM quorate_store.ledger"
                         " WHERE round_id = %s)], ARRAY[%s]::smallint[], '{primary}', ARRAY[%s]::smallint[])",
                         instance, round_id, node_id, attempt)[0]

    def settle(self, instance, round_id):
        return self.rows("SELECT state, settled FROM quorate_worker.settle(%s, true, ARRAY[(SELECT round_no FROM"
                         " quorate_store.ledger WHERE round_id = %s)])", instance, round_id)[0]

    def tick(self, instance, notify=True):
        return self.rows("SELECT alive, stalled, dead_lettered, fenced FROM quorate_worker.tick(%s, %s, 100, false)", instance, notify)[0]


class Sessions:
    def __init__(self, cluster: Cluster):
        self.cluster, self.name = cluster, cluster.create_database()
        self.stack = contextlib.ExitStack()
        self.pool = self.stack.enter_context(concurrent.futures.ThreadPoolExecutor(20))
        self.admin = self.session()
        with psycopg.connect(cluster.conninfo(self.name), autocommit=True) as conn:
            conn.execute("CREATE FUNCTION pg_sleep_until(t timestamptz) RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
                         " WHILE clock_timestamp() < t LOOP PERFORM pg_sleep_for(t - clock_timestamp()); END LOOP; END $$")
            conn.execute("SELECT quorate.add_node(i, format('http://n%%s.test/', i), %s) FROM generate_series(1, 4) i", [KEY])

    def session(self, **options) -> Session:
        conn = self.stack.enter_context(psycopg.connect(self.cluster.conninfo(self.name), autocommit=True, **options))
        conn.execute("SET statement_timeout = '20 s'")
        return Session(self, conn)

    def close(self):
        self.stack.close()
        self.cluster.drop_database(self.name)
