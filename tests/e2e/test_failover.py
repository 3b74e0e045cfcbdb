"""A primary and a synchronous standby: failover, commits that hang, demotion, and hosts of a string that do not answer."""

import collections
import contextlib
import os
import pathlib
import signal
import socket
import threading
import time

import psycopg
import pytest
from harness import behaviours as b
from harness import build as programs
from harness.processes import fields

PATIENT = {"per_share_timeout": "5 s", "retry_budget": 20, "max_backoff": "50 ms", "round_deadline": "60 s"}
ROUNDS = 150
SESSIONS = ("beat", "history", "ring", "lane1", "lane2")


def flood(lab, nodes, rounds=ROUNDS):
    """Submits rounds in transactions of ten; only those that the database confirmed are returned."""
    submitted = []
    for _ in range(rounds // 10):
        with lab.db.conn.transaction():
            ten = [lab.db.submit(2, nodes, **PATIENT) for _ in range(10)]
        submitted += ten
    return submitted


def of_event(coordinator, event, since=0):
    return [line for line in coordinator.lines[since:] if f" event={event} " in line or line.endswith(f" event={event}")]


def told(coordinator, since=0):
    """What it complained of."""
    return [line for line in coordinator.lines[since:] if " level=warn " in line or " level=error " in line]


def sessions(cluster, database):
    """How many sessions coordinators have, dead ones included that the server has not noticed yet."""
    with cluster.connect() as conn:
        return conn.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE 'quorate %%'",
                            [database]).fetchone()[0]


@contextlib.contextmanager
def in_background(call):
    """Runs a call in a thread, which is to end with the block; what it raised is raised there."""
    outcome = []

    def run():
        try:
            outcome.append((call(), None))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is told below)
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    yield outcome
    thread.join(60)
    assert not thread.is_alive(), "still waiting"
    if outcome[0][1] is not None:
        raise outcome[0][1]


# The primary dies.

@pytest.mark.parametrize("after_requests", [0, ROUNDS // 3, ROUNDS])
def test_failover_to_the_synchronous_standby_forgets_nothing(pair_lab, after_requests):
    """What dealers were told is committed goes on at the other host; what was sent stays counted."""
    lab = pair_lab
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.02))
    coordinators = [lab.coordinator(), lab.coordinator()]
    rounds = flood(lab, nodes)
    nodes[0].primary.wait_requests(after_requests)
    lab.cluster.failover()
    lab.db.wait_all_settled()
    found = {row["round_id"]: row for row in lab.db.rounds()}
    assert sorted(found) == sorted(rounds)
    assert {(row["state"], row["acked"]) for row in found.values()} == {("complete", 3)}
    assert all(one.running() for one in coordinators)
    later = lab.db.submit(2, nodes)
    assert lab.db.wait_settled(later)["state"] == "complete"


def test_a_failover_in_the_middle_of_hanging_commits_loses_no_ack(pair_lab):
    """The standby stops listening, so that nothing more is confirmed; then the primary dies. Whatever of it the new primary has, each
    round ends well, once, and no request is unaccounted for."""
    lab = pair_lab
    nodes, answer = lab.some_nodes(3), threading.Event()
    for node in nodes:
        node.plan(then=b.after(answer))
    coordinator = lab.coordinator()
    rounds = flood(lab, nodes, 30)
    nodes[0].primary.wait_requests(20)
    with lab.cluster.primary.connect() as conn:
        (sender,) = conn.execute("SELECT pid FROM pg_stat_replication").fetchone()
    os.kill(sender, signal.SIGSTOP)
    try:
        answer.set()
        lab.db.wait("commits hang", lambda: lab.cluster.hanging() >= 2)
        assert lab.db.one("SELECT count(*) FROM quorate.acks") == 0, "what is not confirmed is not seen"
        lab.cluster.primary.process.send_signal(signal.SIGQUIT)  # the sender, too, once it is thawed
    finally:
        os.kill(sender, signal.SIGCONT)
    lab.cluster.failover()
    lab.db.wait_all_settled()
    assert {(row["round_id"], row["state"], row["acked"]) for row in lab.db.rounds()} == {(one, "complete", 3) for one in rounds}
    assert coordinator.running()


# The standby dies.

def test_commits_hang_while_the_standby_is_down(pair_lab):
    """Nobody hears of what is not replicated; nothing is half-done; the sessions of the coordinator do not pile up; and all goes on by
    itself once a standby is there again."""
    lab = pair_lab
    lab.punctual = False
    nodes, answer = lab.some_nodes(2), threading.Event()
    for node in nodes:
        node.plan(then=b.after(answer))
    silent = lab.node().plan(then=b.silent())
    coordinator = lab.coordinator()
    hopeless = lab.db.submit(1, [silent], per_share_timeout="1 s", retry_budget=2, round_deadline="6 s")
    lapsing = lab.db.submit(2, nodes, per_share_timeout="4 s", retry_budget=2, round_deadline="9 s")
    lasting = lab.db.submit(2, nodes, **PATIENT)
    lab.db.wait("all are under way", lambda: len(silent.requests) and all(len(node.requests) == 2 for node in nodes))
    lab.cluster.standby.stop("immediate")
    since = len(coordinator.lines)
    answer.set()
    lab.db.wait("commits hang", lambda: lab.cluster.hanging() >= 2)
    with in_background(lambda: lab.db.submit(2, nodes)) as told_dealer:
        most = 0
        began = time.monotonic()
        while time.monotonic() - began < 20:
            most = max(most, sessions(lab.cluster.primary, lab.db.name))
            for round_id in (hopeless, lapsing, lasting):
                row = lab.db.round(round_id)
                assert (row["state"], row["acked"], row["settled_at"]) == ("open", 0, None), "told before it was replicated"
            silent.primary.closing.wait(0.5)
        # The ring's, those of two lanes, a beat and a history whose commits hang, those that took the latter two's places, and their
        # predecessors, whose end the server has not noticed yet.
        assert most <= 9, f"{most} sessions"
        with lab.db.connect() as reader, pytest.raises(psycopg.Error) as refused:
            reader.execute("SELECT quorate.collect(%s)", [lapsing])  # past its deadline
        # Not decided for anyone yet; or, if both of its acks wait behind the commit that hangs, too late for ever.
        assert refused.value.sqlstate in ("55P03", "QR001")
        assert not told_dealer
        lines = told(coordinator, since)
        assert 1 <= len(lines) <= 4, "\n".join(lines)
        lab.cluster.standby.start()
    lab.db.wait_all_settled()
    assert lab.db.round(lasting)["state"] == "complete"
    # If both acks were stored in time, so was its end, although nobody heard of it for long; one that had to wait behind the commit that hung
    # came too late, and then it stalled.
    row, late = lab.db.round(lapsing), [ack["late"] for ack in lab.db.acks(lapsing).values()]
    if any(late) or refused.value.sqlstate == "QR001":
        assert row["state"] == "stalled" and row["closed_at"] > row["deadline_at"] and row["quorum_nodes"] is None
    else:
        assert (row["state"], row["quorum_nodes"]) == ("complete", [1, 2]) and lab.db.collect(lapsing) == [1, 2]
    row = lab.db.round(hopeless)
    assert row["state"] == "stalled" and row["closed_at"] > row["deadline_at"]
    assert coordinator.running() and sessions(lab.cluster.primary, lab.db.name) <= 5
    lab.cluster.await_streaming("sync")


# The primary does not take writes any more.

def demote(cluster):
    """Comes back as a standby of nobody: it reads, and refuses to write (25006)."""
    cluster.stop("fast")
    signal_file = pathlib.Path(cluster.data) / "standby.signal"
    signal_file.touch()
    owner = cluster.data.stat()
    os.chown(signal_file, owner.st_uid, owner.st_gid)
    cluster.start()


def test_a_demoted_primary_takes_no_writes_until_it_is_promoted_again(durable_lab):
    lab = durable_lab
    lab.punctual = False
    node, silent = lab.node(), lab.node().plan(then=b.silent())
    coordinator = lab.coordinator()
    lapsing = lab.db.submit(1, [silent], per_share_timeout="1 s", retry_budget=1, round_deadline="4 s", max_backoff="1 s")
    lasting = lab.db.submit(2, [node, silent], **PATIENT)
    silent.primary.wait_requests(2)
    lab.db.wait("one ack", lambda: lab.db.round(lasting)["acked"] == 1)
    demote(lab.cluster)
    coordinator.wait_line("25006")
    since = len(coordinator.lines)
    began, requests = time.monotonic(), len(node.requests)
    while time.monotonic() - began < 12:
        assert lab.db.round(lapsing)["state"] == "open"
        node.primary.closing.wait(0.5)
    # Each of the two lanes may say what each of its statements met.
    said = collections.Counter(line.split(" ", 1)[1] for line in told(coordinator, since) if "event=attempt " not in line)
    assert sum(said.values()) <= 12 and max(said.values(), default=0) <= 2, said
    assert len(node.requests) == requests and coordinator.running()
    silent.plan(then=b.ok())
    with lab.cluster.connect() as conn:
        assert conn.execute("SELECT pg_promote(true, 60)").fetchone()[0]
    assert lab.db.wait_settled(lapsing)["state"] == "stalled"
    assert lab.db.wait_settled(lasting)["state"] == "complete"
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


def test_a_demoted_primary_is_left_for_the_new_one(pair_lab):
    """It is up and answers, but only reads: the string says read-write, and the other host is found."""
    lab = pair_lab
    nodes = lab.some_nodes(2)
    coordinator = lab.coordinator()
    old = lab.cluster.primary
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"
    old.stop("fast")
    lab.cluster.promote()
    demote_again = lab.cluster.standby
    assert demote_again is old
    demote(old)
    later = lab.db.submit(2, nodes)
    assert lab.db.wait_settled(later)["state"] == "complete"
    assert coordinator.running()


# Hosts that do not answer.

@contextlib.contextmanager
def deaf_port(swallow):
    """A TCP port that does not answer: it swallows the packets that ask for a connection, or takes connections and says nothing."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0 if swallow else 64)
        for _ in range(4 if swallow else 0):  # fills its queue, after which the kernel drops what comes
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        if swallow:
            probe = stack.enter_context(socket.socket())
            probe.settimeout(0.5)
            with pytest.raises(TimeoutError):
                probe.connect(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.parametrize("way", ["swallows_connections", "takes_connections_and_says_nothing"])
@pytest.mark.parametrize("given", ["connect_timeout=2", ""], ids=["2s", "default"])
def test_a_first_host_that_does_not_answer_does_not_hide_the_second(lab, way, given):
    """libpq's own connect_timeout is of no effect on a connection that is made asynchronously."""
    node = lab.node()
    with deaf_port(way == "swallows_connections") as port:
        lab.db.conninfo = (f"host=127.0.0.1,{lab.cluster.socket_dir} port={port},{lab.cluster.port} user=postgres "
                           f"dbname={lab.db.name} target_session_attrs=read-write {given}")
        began = time.monotonic()
        coordinator = lab.coordinator(ready=False)
        coordinator.wait_line(r"\bevent=ready\b", timeout=40)
        took = time.monotonic() - began
        assert took > (2 if given else 5) - 0.5
        silent = [line for line in told(coordinator) if f"no answer in time from 127.0.0.1 (127.0.0.1) port {port}" in line]
        assert len(silent) == len(SESSIONS), coordinator.log
        lab.db.conninfo = lab.cluster.conninfo(lab.db.name)
        assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
        # Once it has been passed over, it is not waited for again.
        since, began = len(coordinator.lines), time.monotonic()
        lab.cluster.terminate_backends(lab.db.name)
        for name in SESSIONS:
            coordinator.wait_line(rf"event=database_connected session={name}\b", since=since)
        assert time.monotonic() - began < (2 if given else 5), coordinator.log


def test_every_host_is_tried_when_two_do_not_answer(lab):
    node = lab.node()
    with deaf_port(True) as first, deaf_port(False) as second:
        lab.db.conninfo = (f"host=127.0.0.1,127.0.0.1,{lab.cluster.socket_dir} port={first},{second},{lab.cluster.port} "
                           f"user=postgres dbname={lab.db.name} connect_timeout=2")
        lab.coordinator(ready=False).wait_line(r"\bevent=ready\b", timeout=40)
        lab.db.conninfo = lab.cluster.conninfo(lab.db.name)
        assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


def test_hosts_from_the_environment_and_a_service_file_are_passed_over_as_well(lab, monkeypatch):
    """The list need not stand in the connection string."""
    node = lab.node()
    with deaf_port(False) as port:
        service = lab.folder / "services"
        service.write_text(f"[quorate]\nhost=127.0.0.1,{lab.cluster.socket_dir}\nuser=postgres\ndbname={lab.db.name}\n")
        given = {"PGSERVICEFILE": str(service), "PGPORT": f"{port},{lab.cluster.port}"}
        monkeypatch.setattr(programs, "environment", lambda plain=programs.environment: {**plain(), **given})
        lab.db.conninfo = "service=quorate connect_timeout=2"
        coordinator = lab.coordinator(ready=False)
        coordinator.wait_line(r"\bevent=ready\b", timeout=40)
        monkeypatch.undo()
        lab.db.conninfo = lab.cluster.conninfo(lab.db.name)
        assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


# Warnings at start.

def warnings_of(coordinator):
    """The settings warned of, each with its value; by then it has ticked."""
    coordinator.wait_line(r"\bevent=ready\b")
    return [(found["setting"], found["value"]) for found in map(fields, of_event(coordinator, "not_durable"))]


def test_no_warning_when_nothing_can_be_forgotten(pair_lab):
    lab = pair_lab
    node, coordinator = lab.node(), lab.coordinator()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert warnings_of(coordinator) == []


def test_a_warning_when_no_standby_is_synchronous(pair_lab):
    lab = pair_lab
    lab.cluster.set_synchronous("")
    lab.cluster.await_streaming("async")
    node, coordinator = lab.node(), lab.coordinator()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert warnings_of(coordinator) == [("synchronous_standby_names", "")]
    assert "a failover forgets" in of_event(coordinator, "not_durable")[0]


def test_a_warning_when_commits_do_not_wait_for_the_standby(pair_lab):
    lab = pair_lab
    lab.db.conn.execute(f'ALTER DATABASE "{lab.db.name}" SET synchronous_commit = local')
    node, coordinator = lab.node(), lab.coordinator()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert warnings_of(coordinator) == [("synchronous_commit", "local")]


def test_the_missing_standby_is_seen_without_any_privilege(pair_lab):
    """The owner of the schema need not be a superuser, nor may it read pg_stat_replication's columns."""
    lab = pair_lab
    lab.cluster.set_synchronous("")
    lab.cluster.await_streaming("async")
    with lab.cluster.connect(lab.db.name) as conn:
        conn.execute("CREATE ROLE plain LOGIN")
        conn.execute("ALTER FUNCTION quorate_worker.durability_warnings() OWNER TO plain")
        conn.execute("SET SESSION AUTHORIZATION plain")
        assert conn.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [(None,)]
        conn.execute("RESET SESSION AUTHORIZATION")
        rows = conn.execute("SELECT setting, value FROM quorate_worker.durability_warnings()").fetchall()
    assert rows == [("synchronous_standby_names", "")]


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_warning_for_each_setting_under_which_a_crash_forgets(durable_lab, setting):
    lab = durable_lab
    with lab.cluster.connect() as conn:
        conn.execute(f"ALTER SYSTEM SET {setting} = off")
    lab.cluster.settings.pop(setting, None)  # the command line would win
    lab.cluster.restart()
    node, coordinator = lab.node(), lab.coordinator()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert warnings_of(coordinator) == [(setting, "off")]
    assert "risk=" in of_event(coordinator, "not_durable")[0]
    lab.cluster.restart()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert warnings_of(coordinator) == [(setting, "off")], "said once"


def test_warnings_that_cannot_be_had_stop_nobody(lab):
    """As in a database where sql/ is older than the program."""
    lab.db.conn.execute("DROP FUNCTION quorate_worker.durability_warnings()")
    node, coordinator = lab.node(), lab.coordinator()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert warnings_of(coordinator) == []
