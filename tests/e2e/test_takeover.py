"""Whoever dies is taken over at once, through the ring of life locks and not through its lease; whoever lives is not; whoever goes hands over."""

import signal
import threading
import time

import pytest
from harness import behaviours as b

LONG = ("--lease", "1h")  # a lease that no test outlives: what is taken over, the ring took
PATIENT = {"per_share_timeout": "20 s", "retry_budget": 3, "round_deadline": "5 min"}


def number(lab, name: str) -> int:
    return lab.db.one("SELECT max(instance_no) FROM quorate_store.coordinator WHERE name = %s", name)


def wait_watched(lab, *names: str) -> None:
    """Until somebody waits for the life lock of each."""
    for name in names:
        lab.db.wait(f"somebody watches {name}", lambda: lab.db.one(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = quorate_store.life_class() AND NOT granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid = %s", number(lab, name)))


def joins(lab) -> dict[str, int]:
    return {row["name"]: row["n"] for row in lab.db.rows("SELECT name, count(*) AS n FROM quorate_store.coordinator GROUP BY 1")}


def fenced(lab) -> list[str]:
    return [row["name"] for row in lab.db.rows("SELECT name FROM quorate_store.coordinator WHERE end_reason = 'fenced' ORDER BY 1")]


@pytest.mark.parametrize("rounds", [1, 300])
def test_a_killed_coordinator_is_taken_over_at_once(lab, rounds):
    """Its requests under way are sent again under their numbers, long before its lease is over."""
    dead, alive = threading.Event(), lab.node()
    node = lab.node().plan(then=b.after(dead))
    first = lab.coordinator(options=(*LONG, "--slots", "500"))
    with lab.db.conn.transaction():
        submitted = [lab.db.submit(2, [alive, node], **PATIENT) for _ in range(rounds)]
    node.primary.wait_requests(rounds)
    second = lab.coordinator(options=(*LONG, "--slots", "500"))
    wait_watched(lab, first.name)
    first.kill()
    dead.set()
    lab.db.wait_all_settled()
    assert fenced(lab) == [first.name] and second.running()
    for round_id in submitted:
        row = lab.db.round(round_id)
        assert (row["state"], row["acked"], row["coordinator"]) == ("complete", 2, second.name)
        assert [(a["attempt"], a["outcome"], a["resends"]) for a in lab.db.attempts(round_id, node.node_id)] == [(1, "ack", 1)]


def test_one_death_after_the_other(lab):
    """Three in a ring; the last one ends up with all of it."""
    dead = threading.Event()
    nodes = [lab.node().plan(then=b.after(dead))]  # whoever has the round now waits until then, not for a time-out
    options = ("--lease", "1h")
    names = [lab.coordinator(options=options) for _ in range(3)]
    round_id = lab.db.submit(1, nodes, **PATIENT)
    nodes[0].primary.wait_requests(1)
    wait_watched(lab, *(c.name for c in names))
    names[0].kill()
    lab.db.wait("the first is fenced", lambda: fenced(lab) == [names[0].name])
    wait_watched(lab, names[1].name, names[2].name)
    names[1].kill()
    dead.set()
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["coordinator"] == names[2].name
    lab.db.wait("both are fenced", lambda: fenced(lab) == [names[0].name, names[1].name])


def test_who_lost_only_its_listening_session_lives_on(lab):
    """Its life lock is free for a moment, but the other sessions of it are there."""
    nodes = lab.some_nodes(2)
    both = [lab.coordinator(options=LONG) for _ in range(2)]
    wait_watched(lab, *(c.name for c in both))
    for _ in range(5):
        ended = lab.db.one("SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted "
                           "AND classid = quorate_store.life_class() AND objid = %s "
                           "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", number(lab, both[0].name))
        assert ended == 1
        lab.db.wait("it holds its lock again", lambda: lab.db.one(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = quorate_store.life_class() "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid = %s", number(lab, both[0].name)))
        wait_watched(lab, both[0].name)
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"
    assert fenced(lab) == [] and joins(lab) == {c.name: 1 for c in both}


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restarted_database_frees_all_locks_and_nobody_is_fenced(durable_lab, mode):
    lab = durable_lab
    both = [lab.coordinator(options=LONG) for _ in range(2)]
    wait_watched(lab, *(c.name for c in both))
    for _ in range(3):
        lab.cluster.restart(mode)
        wait_watched(lab, *(c.name for c in both))
    assert fenced(lab) == [] and joins(lab) == {c.name: 1 for c in both}


def test_waiting_in_the_ring_does_not_hold_vacuum_back(lab):
    both = [lab.coordinator(options=LONG) for _ in range(2)]
    wait_watched(lab, *(c.name for c in both))
    ends = time.monotonic() + 4
    while time.monotonic() < ends:
        oldest = lab.db.one("SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - xact_start)), 0) FROM pg_stat_activity "
                            "WHERE datname = current_database() AND application_name LIKE 'quorate %%' AND xact_start IS NOT NULL")
        assert oldest < 2, oldest
        time.sleep(0.1)


def test_waiting_in_the_ring_asks_only_a_few_times_a_second(lab):
    """The waiting is done in the database, where the lock is, and not by asking for it again and again."""
    with lab.cluster.connect() as admin:
        admin.execute(f'ALTER DATABASE "{lab.db.name}" SET track_functions = \'pl\'')
    both = [lab.coordinator(options=LONG) for _ in range(2)]
    wait_watched(lab, *(c.name for c in both))

    def calls() -> int:  # as of a second ago at most: who is busy reports once a second
        return lab.db.one("SELECT COALESCE(sum(calls), 0)::int FROM pg_stat_user_functions WHERE schemaname = 'quorate_worker' AND funcname = 'watch'")

    lab.db.wait("counted", calls)
    before, began = calls(), time.monotonic()
    time.sleep(3)
    asked, took = calls() - before, time.monotonic() - began
    print(asked, took)
    assert 2 <= asked <= 4 * len(both) * (took + 1), (asked, took)
    assert fenced(lab) == [] and joins(lab) == {c.name: 1 for c in both}


def test_who_is_told_to_stop_hands_over_round_by_round(lab):
    """What waits goes to the peer at once; what is under way is finished here, counts once, and goes then."""
    answer_now = threading.Event()
    busy, waiting = lab.node().plan(b.after(answer_now)), lab.node(dark=True)
    first = lab.coordinator()
    under_way = lab.db.submit(1, [busy], per_share_timeout="30 s", round_deadline="60 s")
    busy.primary.wait_requests(1)
    others = [lab.db.submit(1, [waiting], retry_budget=3, base_backoff="18 s", max_backoff="18 s", round_deadline="60 s") for _ in range(20)]
    for round_id in others:
        lab.db.wait_attempts(round_id, waiting.node_id, 1)
    second = lab.coordinator()
    first.kill(signal.SIGTERM)
    lab.db.wait("what waits is the peer's", lambda: {lab.db.round(r)["coordinator"] for r in others} == {second.name})
    assert lab.db.round(under_way)["coordinator"] == first.name and first.running()
    answer_now.set()
    assert first.popen.wait(20) == 0
    assert lab.db.wait_settled(under_way)["state"] == "complete"
    assert [(a["attempt"], a["outcome"], a["resends"], a["coordinator"]) for a in lab.db.attempts(under_way)] == [(1, "ack", 0, first.name)]
    assert len(busy.requests) == 1
    for round_id in others:
        assert lab.db.one("SELECT quorate.cancel_round(%s, 'enough')", round_id)
    lab.db.wait_all_settled()


def test_a_round_whose_row_is_locked_does_not_keep_it_from_stopping(lab):
    node = lab.node(dark=True)
    first = lab.coordinator()
    round_id = lab.db.submit(1, [node], retry_budget=3, base_backoff="18 s", max_backoff="18 s", round_deadline="60 s")
    lab.db.wait_attempts(round_id, node.node_id, 1)
    lab.db.wait("its outcome is known", lambda: lab.db.attempts(round_id)[0]["outcome"])
    with lab.db.connect() as client, client.transaction():
        client.execute("SELECT FROM quorate_store.round WHERE round_no = (SELECT round_no FROM quorate_store.ledger WHERE round_id = %s) FOR UPDATE",
                       [round_id])
        first.kill(signal.SIGTERM)
        assert first.popen.wait(20) == 0
    second = lab.coordinator()
    lab.db.wait("taken over", lambda: lab.db.round(round_id)["coordinator"] == second.name)
    assert lab.db.one("SELECT quorate.cancel_round(%s, 'enough')", round_id)
    lab.db.wait_all_settled()


@pytest.mark.parametrize("peer", ["waiting in the ring", "started afterwards"])
@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_it_at_once_and_loses_nothing_but_time(lab, again, peer):
    """It does not wait for what is under way: the peer sends that again under its number, and nothing that was acknowledged."""
    answer_now = threading.Event()
    quick, busy = lab.node(), lab.node().plan(then=b.after(answer_now))
    options = LONG if peer == "waiting in the ring" else ("--lease", "1s")
    first = lab.coordinator(options=options)
    round_id = lab.db.submit(2, [quick, busy], **{**PATIENT, "per_share_timeout": "60 s"})
    busy.primary.wait_requests(1)
    lab.db.wait("the quick one counts", lambda: list(lab.db.acks(round_id)) == [quick.node_id])
    if peer == "waiting in the ring":
        second = lab.coordinator(options=options)
        wait_watched(lab, first.name)
    first.kill(signal.SIGTERM)
    first.wait_line(r"\bevent=draining requests=1 rounds=1\b")
    assert first.running()
    first.kill(again)
    assert first.popen.wait(10) == 0  # the answer may take a minute
    first.wait_line(r"\bevent=stopped left=no\b")
    assert lab.db.attempt_list(round_id, busy.node_id) == [("primary", 1, None, None)]
    if peer == "started afterwards":
        second = lab.coordinator(options=options)
    busy.primary.wait_requests(2)
    answer_now.set()
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["acked"], row["coordinator"]) == ("complete", 2, second.name)
    assert [(a["attempt"], a["outcome"], a["resends"], a["coordinator"]) for a in lab.db.attempts(round_id, busy.node_id)] == [
        (1, "ack", 1, second.name)]
    assert [(a["attempt"], a["outcome"], a["resends"], a["coordinator"]) for a in lab.db.attempts(round_id, quick.node_id)] == [
        (1, "ack", 0, first.name)]
    assert (len(quick.requests), len(busy.requests)) == (1, 2) and fenced(lab) == [first.name]
    assert len({request.header("webhook-id") for request in busy.requests}) == 1
    assert sorted(lab.db.acks(round_id)) == [quick.node_id, busy.node_id]
