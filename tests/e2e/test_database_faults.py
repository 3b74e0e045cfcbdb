"""The database under a coordinator crashes, has no connection left, refuses, deadlocks or holds locks; it goes on, and says so once."""

import collections
import os
import secrets
import signal
import threading
import time

import psycopg
import pytest
from harness import behaviours as b
from harness.cluster import Cluster
from harness.lab import Lab

PATIENT = {"per_share_timeout": "5 s", "retry_budget": 20, "max_backoff": "50 ms", "round_deadline": "60 s"}


def flood(lab, nodes, rounds=100, **policy):
    submitted = []
    for _ in range(rounds // 10):
        with lab.db.conn.transaction():
            submitted += [lab.db.submit(2, nodes, **{**PATIENT, **policy}) for _ in range(10)]
    return submitted


def assert_all_complete(lab, rounds, acked=3):
    lab.db.wait_all_settled()
    assert {(row["round_id"], row["state"], row["acked"]) for row in lab.db.rounds()} == {(one, "complete", acked) for one in rounds}


def told(coordinator, since=0):
    return [line for line in coordinator.lines[since:] if " level=warn " in line or " level=error " in line]


CALM = "-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0"


def backends(lab, what="TRUE"):
    """The coordinators' sessions that meet an SQL condition over pg_stat_activity."""
    with lab.cluster.connect(options=CALM) as conn:
        return [pid for (pid,) in conn.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name LIKE"
                                               f" 'quorate %%' AND ({what}) ORDER BY backend_start", [lab.db.name])]


# Crashes.

@pytest.mark.parametrize("victim", ["of a batch", "of the beat"])
def test_a_backend_that_crashes_takes_all_sessions_with_it(durable_lab, victim):
    """kill -9 of one backend: the server ends all of them and recovers from its log."""
    lab = durable_lab
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.02))
    coordinators = [lab.coordinator(), lab.coordinator()]
    rounds = flood(lab, nodes)
    nodes[0].primary.wait_requests(len(rounds) // 3)
    of_the_beat = "query LIKE '%%tick%%' OR query LIKE 'LISTEN%%'"
    (pid, *_) = lab.db.wait("such a session", lambda: backends(lab, of_the_beat if victim == "of the beat" else f"NOT ({of_the_beat})"))
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while "ready to accept connections" not in lab.cluster.read_log().partition("was terminated by signal 9")[2]:
        assert time.monotonic() < deadline, "it never recovered"
        nodes[0].primary.closing.wait(0.05)
    assert_all_complete(lab, rounds)
    assert all(one.running() for one in coordinators)
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"


# No connection is left.

@pytest.fixture
def narrow_lab(tmp_path, request):
    """A server with room for few connections."""
    with Cluster(durable=True, settings={"max_connections": 12, "superuser_reserved_connections": 0, "max_wal_senders": 0}) as own:
        own.create_template()
        lab = Lab(own, tmp_path)
        request.node.lab = lab
        yield lab
        lab.close()


def test_too_many_clients_for_a_while(narrow_lab):
    """53300: it is said once, no round ends wrongly meanwhile, and with the first free places all goes on."""
    lab = narrow_lab
    lab.punctual = False
    # A node for each round: of two rounds at one node, either may come first.
    node, silent, hesitant = lab.node(), lab.node().plan(then=b.silent()), lab.node().plan(b.silent(), then=b.ok())
    coordinator = lab.coordinator()
    lapsing = lab.db.submit(2, [node, silent], per_share_timeout="1 s", retry_budget=1, round_deadline="3 s")
    lasting = lab.db.submit(2, [node, hesitant], **PATIENT)
    node.primary.wait_requests(2)
    lab.db.wait("one ack each", lambda: all(lab.db.round(one)["acked"] >= 1 for one in (lapsing, lasting)))
    hogs, over = [], threading.Event()

    def hog():
        while not over.is_set():
            try:
                hogs.append(lab.cluster.connect())
            except psycopg.OperationalError:
                over.wait(0.001)

    watcher = lab.db.conn  # the only other connection that is left, beside the hogs'
    hogging = [threading.Thread(target=hog) for _ in range(4)]
    for thread in hogging:
        thread.start()
    try:
        since = len(coordinator.lines)
        began = time.monotonic()
        while time.monotonic() - began < 8:
            watcher.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'quorate %'")
            node.primary.closing.wait(0.25)
        left = watcher.execute("SELECT count(*) AS count FROM pg_stat_activity WHERE application_name LIKE 'quorate %'").fetchone()
        assert left["count"] == 0
        row = watcher.execute("SELECT state FROM quorate.rounds WHERE round_id = %s", [lapsing]).fetchone()
        assert row["state"] in ("open", "stalled")
        with pytest.raises(psycopg.Error) as refused:
            watcher.execute("SELECT quorate.collect(%s)", [lapsing])  # it fails closed without any coordinator
        assert refused.value.sqlstate == "QR001"
        lines = told(coordinator, since)
        assert any("too many clients" in line for line in lines), coordinator.log
        kinds = collections.Counter(line.split(" reason=")[1][:90] for line in lines if " reason=" in line)
        assert max(kinds.values()) <= 10 and len(lines) < 31, coordinator.log  # five sessions, each no more than every 5 s
    finally:
        over.set()
        for thread in hogging:
            thread.join()
        for one in hogs:
            one.close()
    assert lab.db.wait_settled(lapsing)["state"] == "stalled"
    assert lab.db.wait_settled(lasting)["state"] == "complete"
    assert coordinator.running()


# Transactions that fail and are repeated.

def fail_now_and_then(lab, sqlstate, every):
    """Of the coordinators' commits that change rounds or attempts, one in `every` fails with this SQLSTATE."""
    lab.db.conn.execute("CREATE SEQUENCE public.failed")
    lab.db.conn.execute(f"""
        CREATE FUNCTION public.fail_now_and_then() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF current_setting('application_name') LIKE 'quorate %'
               AND hashint8(pg_current_xact_id()::text::bigint)::bigint % {every} = 0 THEN
                PERFORM nextval('public.failed');
                RAISE EXCEPTION 'a transaction fails with {sqlstate}' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NULL;
        END $$""")
    for table in ("round", "attempt"):
        lab.db.conn.execute(f"CREATE CONSTRAINT TRIGGER fail_now_and_then AFTER INSERT OR UPDATE ON quorate_store.{table} DEFERRABLE"
                            " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.fail_now_and_then()")


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "57014"])
def test_what_fails_now_and_then_is_repeated_and_told_once(lab, sqlstate):
    """Serialization failures, deadlocks, locks and time-outs: each batch is sent again, and nothing is sent or counted twice."""
    nodes = lab.some_nodes(3)
    fail_now_and_then(lab, sqlstate, 4)
    coordinator = lab.coordinator()
    rounds, failed = [], 0
    for _ in range(20):  # one takes only a few commits where many rounds fit in each
        if failed < 3:
            rounds += flood(lab, nodes, round_deadline="100 s")
            assert_all_complete(lab, rounds)
            failed = lab.db.one("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.failed")
    assert failed >= 3, failed
    lines = [line for line in told(coordinator) if sqlstate in line]
    assert 1 <= len(lines) <= 6, "\n".join(lines)
    assert {len(node.requests) for node in nodes} == {len(rounds)}, "each envelope once"


def test_a_real_deadlock_with_someone_who_locks_whole_tables(lab):
    """An administrator's transaction takes tables in another order than the batches do: one of the two loses, and all goes on."""
    nodes = lab.some_nodes(3)
    coordinator = lab.coordinator()
    lab.db.conn.execute("CREATE SEQUENCE public.won")
    over = threading.Event()
    outcomes = collections.Counter()

    def administrator():
        with lab.db.connect() as conn:
            while not over.is_set():
                try:
                    with conn.transaction():
                        conn.execute("LOCK TABLE quorate_store.envelope IN SHARE ROW EXCLUSIVE MODE")
                        over.wait(0.02)
                        conn.execute("LOCK TABLE quorate_store.ledger IN SHARE ROW EXCLUSIVE MODE")
                        conn.execute("LOCK TABLE quorate_store.round IN SHARE ROW EXCLUSIVE MODE")
                    outcomes["locked"] += 1
                except psycopg.errors.DeadlockDetected:
                    outcomes["lost"] += 1
                over.wait(0.05)

    thread = threading.Thread(target=administrator)
    thread.start()
    rounds = []
    try:
        for _ in range(10):
            try:
                with lab.db.conn.transaction():
                    ten = [lab.db.submit(2, nodes, **PATIENT) for _ in range(10)]
                rounds += ten
            except psycopg.errors.DeadlockDetected:
                outcomes["dealer lost"] += 1
    finally:
        over.set()
        thread.join()
    for key in [key for key in lab.db.payloads if key[0] not in rounds]:
        del lab.db.payloads[key]
    assert rounds and outcomes["locked"]
    assert_all_complete(lab, rounds)
    assert coordinator.running()


def test_a_table_that_stays_locked_hangs_nothing_for_good(lab):
    """Locked for longer than the beat waits for an answer: it is said once, sessions do not pile up, and all goes on after."""
    lab.punctual = False
    nodes = lab.some_nodes(2)
    coordinator = lab.coordinator()
    with lab.db.connect() as other, other.transaction():
        other.execute("LOCK TABLE quorate_store.coordinator, quorate_store.round")
        since, began, most = len(coordinator.lines), time.monotonic(), 0
        while time.monotonic() - began < 17:
            most = max(most, len(backends(lab)))
            nodes[0].primary.closing.wait(0.25)
        lines = told(coordinator, since)
        assert 1 <= len(lines) <= 4 and any("no answer to the heartbeat" in line for line in lines), "\n".join(lines)
        assert most <= 7, f"{most} sessions"  # the five, and what the beat and the history began anew
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"
    assert len(backends(lab)) == 5


# Settings that appear under it.

def test_time_outs_that_an_administrator_sets_reach_no_coordinator(durable_lab):
    """Neither those of running sessions nor of new ones, not even those that end an idle session."""
    lab = durable_lab
    nodes = lab.some_nodes(3)
    coordinator = lab.coordinator()
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"
    since = len(coordinator.lines)
    with lab.cluster.connect(options=CALM) as conn:
        for setting in ("statement_timeout = '1ms'", "lock_timeout = '1ms'", "idle_session_timeout = '200ms'",
                        "idle_in_transaction_session_timeout = '1ms'"):
            conn.execute(f"ALTER SYSTEM SET {setting}")
        conn.execute("SELECT pg_reload_conf()")
    first = backends(lab)
    nodes[0].primary.closing.wait(1)
    assert backends(lab) == first, "a session was ended"
    with lab.cluster.connect(options=CALM) as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", [first])
    for name in ("beat", "history", "ring", "lane1", "lane2"):
        coordinator.wait_line(rf"event=database_connected session={name}\b", since=since)
    second = backends(lab)
    nodes[0].primary.closing.wait(1)
    assert backends(lab) == second, "a session was ended"
    with lab.db.connect(options=CALM) as own:
        for number in range(10):
            own.execute("SELECT quorate.submit_round(%s, 2, %s, %s)",
                        [f"late-{number}", [n.node_id for n in nodes], [secrets.token_bytes(9) for _ in nodes]])
    with lab.cluster.connect(options=CALM) as conn:
        conn.execute("ALTER SYSTEM RESET ALL")
        conn.execute("SELECT pg_reload_conf()")
    lab.db.wait_all_settled()
    assert {row["state"] for row in lab.db.rounds()} == {"complete"}
    assert not [line for line in told(coordinator, since) if "57014" in line or "57P05" in line], coordinator.log


# Said once.

def test_a_schema_that_is_too_old_is_said_once(lab):
    lab.db.conn.execute("CREATE TABLE public.kept AS SELECT * FROM quorate_store.migration WHERE number > 1")
    lab.db.conn.execute("DELETE FROM quorate_store.migration WHERE number > 1")
    node = lab.node()
    coordinator = lab.coordinator(ready=False)
    coordinator.wait_line("event=schema_too_old")
    node.primary.closing.wait(2.5)
    assert sum("event=schema_too_old" in line for line in coordinator.lines) == 1, coordinator.log
    lab.db.conn.execute("INSERT INTO quorate_store.migration SELECT * FROM public.kept")
    coordinator.wait_line(r"\bevent=ready\b")
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


def test_faults_that_take_turns_are_each_said_once(lab):
    """Functions fail in ways that alternate, for long: a line for each way, not for each time."""
    node = lab.node()
    coordinator = lab.coordinator(options=("--lease", "1m"))  # or the ring finds it dead
    lab.db.conn.execute("CREATE SEQUENCE public.calls")
    real = lab.db.one("SELECT pg_get_functiondef('quorate_worker.tick(int, boolean, int, boolean)'::regprocedure)")
    body = real.replace("BEGIN\n", """BEGIN
        IF nextval('public.calls') % 2 = 0 THEN RAISE EXCEPTION 'one way, process %', pg_backend_pid(); END IF;
        RAISE EXCEPTION 'the other way, process %', pg_backend_pid();\n""", 1)
    assert body != real
    lab.db.conn.execute(body)
    since = len(coordinator.lines)
    lab.db.wait("many failures", lambda: lab.db.one("SELECT last_value FROM public.calls") >= 14)
    assert len(told(coordinator, since)) == 2, "\n".join(coordinator.lines[since:])
    assert not any("database_lost" in line for line in coordinator.lines[since:]), "it was not lost, it was dropped"
    lab.db.conn.execute(real)
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
