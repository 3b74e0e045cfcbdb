"""Rounds survive: coordinators killed, frozen, fenced and told to go; sessions ended; PostgreSQL restarted."""

import random
import re
import signal
import threading
import time

import pytest
from harness import behaviours as b

ROUNDS = 150
PATIENT = {"per_share_timeout": "5 s", "retry_budget": 5, "round_deadline": "60 s"}


def flood(lab, nodes, rounds=ROUNDS, **policy):
    """Submits rounds in transactions of ten, so that they are claimed while more come."""
    submitted = []
    for _ in range(rounds // 10):
        with lab.db.conn.transaction():
            submitted += [lab.db.submit(2, nodes, **{**PATIENT, **policy}) for _ in range(10)]
    return submitted


def assert_all_complete(lab, nodes, rounds):
    """Every round complete, every node acked once in each; the lab checks the invariants besides."""
    lab.db.wait_all_settled()
    found = {row["round_id"]: row for row in lab.db.rounds()}
    assert sorted(found) == sorted(rounds)
    assert {(row["state"], row["acked"]) for row in found.values()} == {("complete", len(nodes))}
    assert lab.db.one("SELECT count(*) FROM quorate.acks") == len(rounds) * len(nodes)
    for node in nodes:
        assert {r.key.round_id for r in node.requests} == set(rounds), f"node {node.node_id} missed a round"
        assert len(node.held) == len(rounds)


@pytest.mark.parametrize("after_requests", [0, 1, 20, 75, 140, ROUNDS])
def test_killed_in_a_flood_and_resumed_by_another(lab, after_requests):
    nodes = lab.some_nodes(3)
    killed = threading.Event()
    # What comes after those requests waits for the kill, so that its rounds cannot be settled before.
    nodes[0].plan(*[b.ok()] * after_requests, then=b.after(killed))
    first = lab.coordinator()
    killer = threading.Thread(target=lambda: (nodes[0].primary.wait_requests(after_requests), first.kill(), killed.set()))
    killer.start()
    rounds = flood(lab, nodes)
    killer.join()
    assert killed.is_set()
    second = lab.coordinator()
    assert_all_complete(lab, nodes, rounds)
    assert second.running()
    assert second.name in {row["coordinator"] for row in lab.db.rounds()} or after_requests == ROUNDS


def test_killed_again_and_again(lab):
    """Ten times at moments drawn at random, each time resumed by a new start."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.01))
    submitter = threading.Thread(target=lambda: rounds.extend(flood(lab, nodes, retry_budget=20, max_backoff="50 ms")))
    rounds = []
    submitter.start()
    for _ in range(10):
        victim = lab.coordinator(ready=draw.random() < 0.8, options=("--lease", "1s"))
        seen = len(nodes[0].requests)
        try:
            nodes[0].primary.wait_requests(seen + draw.randrange(40), timeout=draw.random() * 0.5)
        except AssertionError:
            pass  # then it dies before it has sent so many
        victim.kill()
    submitter.join()
    lab.coordinator()
    assert_all_complete(lab, nodes, rounds)


def test_two_coordinators_share_the_work_and_send_each_envelope_once(lab):
    nodes = lab.some_nodes(3)
    both_busy = threading.Event()
    for node in nodes:
        node.plan(then=b.after(both_busy))
    for _ in range(2):
        lab.coordinator(options=("--max-rounds", "20"))  # neither can take all while no node answers
    rounds = flood(lab, nodes, per_share_timeout="30 s")
    lab.db.wait("both have taken some", lambda: {row["coordinator"] for row in lab.db.rounds()} >= {"c1", "c2"})
    both_busy.set()
    assert_all_complete(lab, nodes, rounds)
    assert {row["coordinator"] for row in lab.db.rounds()} == {"c1", "c2"}
    for node in nodes:
        assert len(node.requests) == len(rounds), "an envelope was sent twice although all went well"
    assert {(a["attempt"], a["outcome"], a["resends"]) for a in lab.db.rows("SELECT * FROM quorate.attempts")} == {(1, "ack", 0)}


def test_one_of_two_is_killed_and_the_other_takes_over(lab):
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.02))
    first, _second = lab.coordinator(), lab.coordinator()
    killer = threading.Thread(target=lambda: (nodes[0].primary.wait_requests(ROUNDS // 3), first.kill()))
    killer.start()
    rounds = flood(lab, nodes)
    killer.join()
    assert_all_complete(lab, nodes, rounds)

    def alive():
        return {row["coordinator"]: row["alive"] for row in lab.db.rows("SELECT * FROM quorate.coordinators")}

    lab.db.wait("the dead one is known to be dead", lambda: alive() == {"c1": False, "c2": True})


def test_a_round_in_mid_flight_is_resumed_under_the_same_number(lab):
    """The request of the dead one may have arrived: it is sent again as the same attempt, and the node counts once."""
    node, other = lab.some_nodes(2)
    node.plan(b.silent())
    first = lab.coordinator()
    round_id = lab.db.submit(2, [node, other], **{**PATIENT, "per_share_timeout": "20 s"})
    node.primary.wait_requests(1)
    lab.db.wait("the other one acked", lambda: lab.db.acks(round_id))
    first.kill()
    lab.coordinator()
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["coordinator"] == "c2"
    assert lab.db.attempt_list(round_id, node.node_id) == [("primary", 1, "ack", 200)]
    assert lab.db.attempts(round_id, node.node_id)[0]["resends"] == 1
    assert [len(n.requests) for n in (node, other)] == [2, 1]


def test_budget_holds_across_coordinators(lab):
    """Killed after each attempt; the sum of all attempts stays inside the budget."""
    node = lab.node().plan(then=b.status(500))
    round_id = lab.db.submit(1, [node], retry_budget=4, base_backoff="1 s", max_backoff="1 s", round_deadline="15 s")
    for count in (1, 2, 3):
        victim = lab.coordinator(options=("--lease", "1s"))
        lab.db.wait_attempts(round_id, 1, count)
        victim.kill()
    lab.coordinator()
    row = lab.db.wait_settled(round_id, timeout=30)
    assert row["state"] == "stalled" and lab.db.deliveries(round_id)[1]["state"] == "exhausted"
    assert [a["attempt"] for a in lab.db.attempts(round_id)] == [1, 2, 3, 4]


# The database goes.

@pytest.mark.parametrize("times", [1, 8])
def test_backends_terminated_in_a_flood(lab, times):
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.01))
    coordinator = lab.coordinator()
    rounds = flood(lab, nodes, retry_budget=20, max_backoff="50 ms")
    for number in range(times):
        try:
            nodes[0].primary.wait_requests((number + 1) * ROUNDS // (times + 1), timeout=5)
        except AssertionError:
            pass
        lab.cluster.terminate_backends(lab.db.name)
    assert_all_complete(lab, nodes, rounds)
    assert coordinator.running()
    later = lab.db.submit(2, nodes)
    assert lab.db.wait_settled(later)["state"] == "complete"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_postgres_restarted_in_a_flood(durable_lab, mode):
    lab = durable_lab
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.02))
    coordinator = lab.coordinator()
    rounds = flood(lab, nodes, retry_budget=20, max_backoff="50 ms")
    nodes[0].primary.wait_requests(ROUNDS // 3)
    lab.cluster.restart(mode)
    assert_all_complete(lab, nodes, rounds)
    assert coordinator.running()
    later = lab.db.submit(2, nodes)
    assert lab.db.wait_settled(later)["state"] == "complete"


def test_postgres_away_past_the_deadline(durable_lab):
    """Nothing is decided by the coordinator alone: what the node acked meanwhile is late, and the round is stalled."""
    lab = durable_lab
    lab.punctual = False
    node = lab.node().plan(then=b.slow(0.5))
    lab.coordinator()
    round_id = lab.db.submit(1, [node], per_share_timeout="5 s", round_deadline="2 s")
    node.primary.wait_requests(1)
    lab.cluster.stop("fast")
    gone_at = time.monotonic()
    node.primary.closing.wait(2.2)  # until the deadline has passed
    lab.cluster.start()
    row = lab.db.wait_settled(round_id)
    assert time.monotonic() - gone_at > 2
    assert row["state"] == "stalled" and row["acked"] == 0 and row["closed_at"] > row["deadline_at"]
    assert {n: a["late"] for n, a in lab.db.acks(round_id).items()} in ({1: True}, {})


def test_starts_before_its_database_does(durable_lab):
    lab = durable_lab
    node = lab.node()
    lab.cluster.stop()
    coordinator = lab.coordinator(ready=False)
    coordinator.wait_line("level=(warn|error)")
    assert coordinator.running()
    lab.cluster.start()
    coordinator.wait_line(r"\bevent=ready\b")
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


def test_says_a_lasting_fault_once(durable_lab):
    """A database that is away fills no log: each session says once what it meets, however long that lasts, and all in
    the log's own form."""
    lab = durable_lab
    node = lab.node()
    coordinator = lab.coordinator()
    lab.cluster.stop()
    sessions = ("lane1", "lane2", "beat", "ring", "history")
    for session in sessions:
        coordinator.wait_line(f'event=database_lost session={session} .*No such file')
    lines = len(coordinator.lines)
    node.primary.closing.wait(3)
    assert coordinator.lines[lines:] == []
    lab.cluster.start()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    reasons = re.findall(r"event=database_lost session=(\S+) reason=(.*)", "\n".join(coordinator.lines))
    assert {session for session, _ in reasons} == set(sessions)
    for session in sessions:
        told = [reason for name, reason in reasons if name == session]
        assert not [reason for reason, last in zip(told[1:], told) if reason == last], told
    assert [line for line in coordinator.lines if not line.startswith("time=")] == []


# Told to go, frozen, fenced.

def test_sigterm_drains(lab):
    """What is in flight is awaited and recorded; what is not begun is left to others, who need not wait for a lease."""
    slow, failing = lab.node().plan(then=b.slow(0.6)), lab.node().plan(then=b.status(500))
    first = lab.coordinator()
    in_flight = lab.db.submit(1, [slow], **PATIENT)
    waiting = lab.db.submit(1, [failing], retry_budget=10, base_backoff="3 s", max_backoff="3 s", round_deadline="60 s")
    slow.primary.wait_requests(1)
    lab.db.wait_attempts(waiting, 2, 1)
    began = time.monotonic()
    assert first.stop() == 0
    assert time.monotonic() - began < 5
    assert lab.db.attempt_list(in_flight, 1) == [("primary", 1, "ack", 200)]
    assert lab.db.round(in_flight)["state"] == "complete" and len(slow.requests) == 1
    assert not [row for row in lab.db.rows("SELECT * FROM quorate.coordinators") if row["alive"]]
    failing.primary.default = b.ok()
    began = time.monotonic()
    lab.coordinator()
    assert lab.db.wait_settled(waiting)["state"] == "complete"
    assert time.monotonic() - began < 5, "waited for a lease although the first one had left"
    assert lab.db.round(waiting)["coordinator"] == "c2"


def test_sigint_is_as_good(lab):
    lab.node()
    coordinator = lab.coordinator()
    coordinator.kill(signal.SIGINT)
    assert coordinator.popen.wait(10) == 0


def test_sigterm_without_a_database(durable_lab):
    """Nobody answers any more; it goes all the same, soon."""
    lab = durable_lab
    coordinator = lab.coordinator()
    lab.cluster.stop("immediate")
    coordinator.kill(signal.SIGTERM)
    assert coordinator.popen.wait(15) in (0, 1)
    lab.processes.all.remove(coordinator)
    lab.cluster.start()


def test_frozen_fenced_and_thawed(lab):
    """Another one takes its rounds; when it wakes up it overwrites nothing and starts over under a new instance."""
    node = lab.node().plan(b.silent())
    frozen = lab.coordinator(options=("--lease", "1s"))
    round_id = lab.db.submit(1, [node], **{**PATIENT, "per_share_timeout": "2 s"})
    node.primary.wait_requests(1)
    frozen.kill(signal.SIGSTOP)
    other = lab.coordinator(options=("--lease", "1s"))
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["coordinator"] == other.name
    before = lab.db.attempts(round_id)
    frozen.kill(signal.SIGCONT)
    frozen_instances = "SELECT instance_id, alive FROM quorate.coordinators WHERE coordinator = 'c1' ORDER BY started_at"
    instances = lab.db.wait("back under a new instance", lambda: (lambda rows: rows if len(rows) == 2 else None)(
        lab.db.rows(frozen_instances)))
    assert [i["alive"] for i in instances] == [False, True]
    assert lab.db.attempts(round_id) == before
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert frozen.running()


def test_receipt_of_a_fenced_coordinator_counts(lab):
    """It was frozen with a good answer in its socket; the other one only met errors; the receipt is as good as any."""
    node = lab.node().plan(b.slow(0.3), then=b.status(500))
    frozen = lab.coordinator(options=("--lease", "1s"))
    round_id = lab.db.submit(1, [node], per_share_timeout="30 s", retry_budget=3, round_deadline="50 s")
    node.primary.wait_requests(1)
    frozen.kill(signal.SIGSTOP)
    lab.coordinator(options=("--lease", "1s"))
    lab.db.wait("the other one gave out", lambda: lab.db.deliveries(round_id)[1]["state"] == "exhausted")
    assert lab.db.round(round_id)["state"] == "open" and lab.db.acks(round_id) == {}
    before = lab.db.attempt_list(round_id, 1)
    frozen.kill(signal.SIGCONT)
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["acked"] == 1 and row["quorum_nodes"] == [1]
    assert lab.db.attempt_list(round_id, 1) == before, "a fenced one overwrote an outcome"
    assert before == [("primary", n, "http_error", 500) for n in (1, 2, 3)]


def test_receipt_that_comes_after_the_round_was_lost_counts(lab):
    """As before, but the answer comes once the fenced one has let go of the round."""
    answer_now = threading.Event()
    node = lab.node().plan(b.after(answer_now), then=b.status(500))
    frozen = lab.coordinator(options=("--lease", "1s"))
    round_id = lab.db.submit(1, [node], per_share_timeout="30 s", retry_budget=2, round_deadline="50 s")
    node.primary.wait_requests(1)
    frozen.kill(signal.SIGSTOP)
    lab.coordinator(options=("--lease", "1s"))
    lab.db.wait("the other one gave out", lambda: lab.db.deliveries(round_id)[1]["state"] == "exhausted")
    frozen.kill(signal.SIGCONT)
    lab.db.wait("joined again", lambda: lab.db.one(
        "SELECT count(*) FROM quorate.coordinators WHERE coordinator = 'c1' AND alive"))
    answer_now.set()
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["quorum_nodes"] == [1]
    assert lab.db.attempt_list(round_id, 1) == [("primary", n, "http_error", 500) for n in (1, 2)]


def test_deadlines_are_kept_while_the_owner_is_frozen(lab):
    """Closing a due round needs no ownership."""
    node = lab.node(dark=True)
    owner = lab.coordinator()
    round_id = lab.db.submit(1, [node], round_deadline="2 s")
    lab.db.wait_attempts(round_id, 1, 1)
    owner.kill(signal.SIGSTOP)
    lab.coordinator()
    row = lab.db.wait_state(round_id)
    assert row["state"] == "stalled"
    lab.db.wait_settled(round_id, timeout=40)
    owner.kill(signal.SIGCONT)
