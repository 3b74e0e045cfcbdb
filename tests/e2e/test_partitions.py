"""Partitions: whoever is cut off from whom, rounds end as they should, with exactly the attempts and acks that the paths allowed."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import psycopg
import pytest
from harness import behaviours as b
from harness import wire
from harness.netns import Network
from harness.nodes import Node

# Time-outs that are long for this network and short for a test.
QUICK = {"per_share_timeout": "400 ms", "retry_budget": 3, "base_backoff": "20 ms", "max_backoff": "100 ms", "round_deadline": "6 s"}
LASTING = {"per_share_timeout": "1 s", "retry_budget": 100, "base_backoff": "500 ms", "max_backoff": "500 ms", "round_deadline": "60 s"}
SHORT_LEASE = ("--lease", "1s")
CUTS = pytest.mark.parametrize("how, outcome", [("cut", "timeout"), ("refuse", "connect_error")])


@pytest.fixture
def lab(network_lab):
    return network_lab


def warm(lab, nodes):
    """One round that goes well: the connections that a fault then meets are there already."""
    assert lab.db.wait_settled(lab.db.submit(len(nodes), nodes))["state"] == "complete"


def failed(outcome, count, route="primary"):
    return [(route, number, outcome, None) for number in range(1, count + 1)]


ACKED = [("primary", 1, "ack", 200)]


# The path to the nodes.

@CUTS
def test_cut_from_one_node(lab, how, outcome):
    """The others make the quorum; the one that is cut off takes its whole budget, and nothing of it counts."""
    nodes = lab.some_nodes(3)
    lab.coordinator()
    warm(lab, nodes)
    seen = len(nodes[0].requests)
    getattr(lab.network, how)("c1", "n1")
    round_id = lab.db.submit(2, nodes, **QUICK)
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"], row["acked"], row["escalated_at"]) == ("complete", [2, 3], 2, None)
    assert lab.db.attempt_list(round_id, 1) == failed(outcome, 3)
    assert [lab.db.attempt_list(round_id, n) for n in (2, 3)] == [ACKED, ACKED]
    assert {n: d["state"] for n, d in lab.db.deliveries(round_id).items()} == {1: "exhausted", 2: "acked", 3: "acked"}
    assert list(lab.db.acks(round_id)) == [2, 3]
    assert len(nodes[0].requests) == seen and lab.network.lost() > 0


def test_cut_from_one_primary_whose_backup_is_reached(lab):
    """With every node needed, the backup of the one that is cut off makes the quorum after the escalation."""
    nodes = [lab.node(backup=True), lab.node(), lab.node()]
    lab.coordinator()
    lab.network.cut("c1", "n1")
    round_id = lab.db.submit(3, nodes, **QUICK)
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"]) == ("complete", [1, 2, 3])
    assert lab.db.attempt_list(round_id, 1) == failed("timeout", 3) + [("backup", 1, "ack", 200)]
    ack = lab.db.acks(round_id)[1]
    assert (ack["route"], ack["attempt"], ack["late"]) == ("backup", 1, False) and ack["acked_at"] >= row["escalate_at"]
    assert (len(nodes[0].primary.requests), len(nodes[0].backup.requests)) == (0, 1)


@CUTS
def test_cut_from_all_nodes(lab, how, outcome):
    """Fails closed at the deadline, after every budget is used up; the next round goes well once the paths are mended."""
    nodes = lab.some_nodes(3)
    lab.coordinator()
    warm(lab, nodes)
    getattr(lab.network, how)("c1", *lab.names(nodes))
    round_id = lab.db.submit(2, nodes, **{**QUICK, "round_deadline": "4 s"})
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["acked"], row["quorum_nodes"]) == ("stalled", 0, None)
    for node in nodes:
        assert lab.db.attempt_list(round_id, node.node_id) == failed(outcome, 3)
        assert len(node.requests) == 1, "a request passed the cut"
    assert {d["state"] for d in lab.db.deliveries(round_id).values()} == {"exhausted"}
    assert lab.db.acks(round_id) == {}
    with pytest.raises(psycopg.Error) as refused:
        lab.db.collect(round_id)
    assert refused.value.sqlstate == "QR001"
    lab.network.heal()
    warm(lab, nodes)


def test_a_node_comes_back_between_escalation_and_deadline(lab):
    """Both its routes are cut until after the escalation: then its primary takes the envelope in time, and it counts once."""
    nodes = [lab.node(backup=True), lab.node()]
    lab.coordinator()
    lab.network.cut("c1", "n1", "b1")
    round_id = lab.db.submit(2, nodes, **{**LASTING, "retry_budget": 20, "round_deadline": "15 s"})
    row = lab.db.wait("the round is escalated", lambda: (lambda r: r if r["escalated_at"] else None)(lab.db.round(round_id)))
    assert row["state"] == "open" and lab.db.attempts(round_id, 1)
    lab.db.wait_attempts(round_id, 1, 1, route="backup")
    lab.network["c1"].heal()
    lab.network["n1"].heal()  # b1 stays cut off
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"]) == ("complete", [1, 2])
    *before, last = lab.db.attempts(round_id, 1, "primary")
    assert len(before) >= 5 and {a["outcome"] for a in before} == {"timeout"} and last["outcome"] == "ack"
    assert {a["outcome"] for a in lab.db.attempts(round_id, 1, "backup")} <= {"timeout", "unsent"}
    ack = lab.db.acks(round_id)[1]
    assert (ack["route"], ack["attempt"]) == ("primary", last["attempt"])
    assert row["escalated_at"] < ack["acked_at"] <= row["deadline_at"]
    assert (len(nodes[0].primary.requests), len(nodes[0].backup.requests)) == (1, 0)


def test_the_request_arrives_and_its_answer_is_lost(lab):
    """The node holds its share and nobody knows: tried again under the next number, held once, acked once."""
    nodes = lab.some_nodes(2)
    lab.coordinator()
    lab.network.lose_answers("c1", "n1")

    def heal_for_the_second(_endpoint, _request):
        if nodes[0].requests:
            lab.network.heal()

    nodes[0].witness = heal_for_the_second
    round_id = lab.db.submit(2, nodes, **{**QUICK, "per_share_timeout": "1 s"})
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"]) == ("complete", [1, 2])
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "timeout", None), ("primary", 2, "ack", 200)]
    assert lab.db.acks(round_id)[1]["attempt"] == 2
    first, second = nodes[0].requests
    assert first.body_sha256 == second.body_sha256 and first.key == second.key and len(nodes[0].held) == 1


def test_all_answers_are_lost(lab):
    """Every node holds its share, and yet nothing is proved: the round stalls."""
    nodes = lab.some_nodes(3)
    lab.coordinator()
    lab.network.lose_answers("c1", *lab.names(nodes))
    round_id = lab.db.submit(2, nodes, **{**QUICK, "round_deadline": "4 s"})
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["acked"], lab.db.acks(round_id)) == ("stalled", 0, {})
    for node in nodes:
        assert lab.db.attempt_list(round_id, node.node_id) == failed("timeout", 3)
        assert len(node.requests) == 3 and len(node.held) == 1
    assert lab.network["c1"].lost() >= 9


# The path to the database.

def test_cut_from_the_database_and_back_in_time(lab):
    """The receipt that came meanwhile is kept, and written down once the database is back: nothing is sent twice."""
    answer_now = threading.Event()
    nodes = lab.some_nodes(2)
    for node in nodes:
        node.plan(then=b.after(answer_now))
    coordinator = lab.coordinator()
    round_id = lab.db.submit(2, nodes, **{**LASTING, "per_share_timeout": "30 s"})
    for node in nodes:
        node.primary.wait_requests(1)
    lab.network.cut("c1", "db")
    answer_now.set()
    coordinator.wait_line(r"\bevent=database_lost\b.*session=beat\b")
    assert lab.db.round(round_id)["state"] == "open" and lab.db.acks(round_id) == {}
    lab.network.heal()
    row = lab.db.wait_settled(round_id, timeout=40)
    assert (row["state"], row["quorum_nodes"]) == ("complete", [1, 2])
    for node in nodes:
        (attempt,) = lab.db.attempts(round_id, node.node_id)
        assert (attempt["attempt"], attempt["outcome"], attempt["resends"]) == (1, "ack", 0)
        assert len(node.requests) == 1


def test_cut_from_the_database_past_the_deadline(lab):
    """Nobody closes the round, and yet nobody gets it: collect refuses by itself. The receipts that come later are late."""
    lab.punctual = False
    answer_now = threading.Event()
    nodes = lab.some_nodes(2)
    for node in nodes:
        node.plan(then=b.after(answer_now))
    lab.coordinator()
    round_id = lab.db.submit(2, nodes, per_share_timeout="30 s", retry_budget=1, round_deadline="4 s")
    for node in nodes:
        node.primary.wait_requests(1)
    lab.network.cut("c1", "db")
    answer_now.set()
    lab.db.wait("the deadline has passed", lambda: lab.db.one("SELECT deadline_at < clock_timestamp() FROM quorate.rounds"))
    assert lab.db.round(round_id)["state"] == "open"
    with pytest.raises(psycopg.Error) as refused:
        lab.db.collect(round_id)
    assert refused.value.sqlstate == "QR001"
    lab.network.heal()
    row = lab.db.wait_settled(round_id, timeout=40)
    assert (row["state"], row["acked"], row["quorum_nodes"]) == ("stalled", 0, None)
    assert {n: (a["late"], a["attempt"]) for n, a in lab.db.acks(round_id).items()} == {1: (True, 1), 2: (True, 1)}
    assert [lab.db.attempt_list(round_id, n.node_id) for n in nodes] == [ACKED, ACKED]
    assert [len(n.requests) for n in nodes] == [1, 1]
    assert [r["reason"] for r in lab.db.rows("SELECT reason FROM quorate.dead_letters")] == ["late_quorum"]


def other_takes_over(lab, cut):
    """c1 holds a round when `cut` comes between it and the database; c2 takes it over. Returns what each needs to go on."""
    node = lab.node().plan(then=b.status(503))
    first = lab.coordinator(options=SHORT_LEASE)
    round_id = lab.db.submit(1, [node], **LASTING)
    node.primary.wait_requests(2)
    second = lab.coordinator(options=SHORT_LEASE)
    cut()
    began = time.monotonic()
    lab.db.wait("c2 has taken the round over", lambda: lab.db.round(round_id)["coordinator"] == "c2")
    assert time.monotonic() - began < 6, "its lease is a second"
    reserved = [a["attempt"] for a in lab.db.attempts(round_id, 1) if a["coordinator"] == "c1"]
    seen = len(lab.requests_of(node, "c2"))
    lab.db.wait("c2 sends", lambda: len(lab.requests_of(node, "c2")) > seen)
    return node, round_id, reserved, first, second


def assert_the_lost_one_rejoins(lab, node, round_id, reserved, first, second):
    """It comes back while the round is still being tried, finds itself fenced, and sends nothing more for it, but for the one attempt that it
    may have reserved in time without hearing of it before."""
    sent = len(lab.requests_of(node, "c1"))
    lab.network.heal()
    first.wait_line(r"\bevent=fenced\b", timeout=40)
    first.wait_line(r"\bevent=ready\b", since=next(i for i, line in enumerate(first.lines) if "event=fenced" in line), timeout=40)
    seen = len(lab.requests_of(node, "c2"))
    lab.db.wait("c2 tries on", lambda: len(lab.requests_of(node, "c2")) >= seen + 3)
    node.plan(then=b.ok())
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["coordinator"], row["quorum_nodes"]) == ("complete", "c2", [1])
    attempts = lab.db.attempts(round_id, 1)
    # (Of those that c1 had reserved, the one without an outcome may have become c2's, which sent it again.)
    assert [a["attempt"] for a in attempts if a["coordinator"] == "c1" or (a["resends"] == 1 and a["attempt"] in reserved)] == reserved, \
        "it reserved an attempt of a round that it had lost"
    unheard = [a for a in attempts if a["resends"] == 1]  # c1 reserved it, and c2 had to send it in any case
    assert len(lab.requests_of(node, "c1")) - sent in (0, len(unheard)), "it sent something for a round that it had lost"
    assert len(unheard) <= 1
    assert [a["outcome"] for a in attempts[:-1]].count("ack") == 0 and attempts[-1]["outcome"] == "ack"
    never_sent = sum(1 + a["resends"] for a in attempts) - len(node.requests)
    assert never_sent in (0, 1), "c1 can have reserved one attempt at most without hearing of it"
    instances = lab.db.rows("SELECT alive FROM quorate.coordinators WHERE coordinator = 'c1' ORDER BY started_at")
    assert [i["alive"] for i in instances] == [False, True]
    second.kill(signal.SIGKILL)  # the one that came back is as good as new
    later = lab.db.submit(1, [node])
    assert lab.db.wait_settled(later)["state"] == "complete" and lab.db.round(later)["coordinator"] == "c1"


def test_database_cut_from_one_of_two_coordinators(lab):
    node, round_id, reserved, first, second = other_takes_over(lab, lambda: lab.network.cut("c1", "db"))
    first.wait_line(r"\bevent=database_lost\b.*session=beat\b")
    assert_the_lost_one_rejoins(lab, node, round_id, reserved, first, second)


def test_the_database_hears_a_coordinator_that_hears_nothing(lab):
    """One-way loss: what it asks is committed, and no answer comes back."""
    assert_the_lost_one_rejoins(lab, *other_takes_over(lab, lambda: lab.network.lose_answers("c1", "db")))


def test_cut_from_the_database_while_its_requests_are_under_way(lab):
    """The other one sends the same attempt again; both bring a receipt for it, and the node counts once."""
    answer_now = threading.Event()
    node = lab.node().plan(b.after(answer_now), then=b.silent())
    lab.coordinator(options=SHORT_LEASE)
    round_id = lab.db.submit(1, [node], **{**LASTING, "per_share_timeout": "50 s", "retry_budget": 2})
    node.primary.wait_requests(1)
    lab.coordinator(options=SHORT_LEASE)
    lab.network.cut("c1", "db")
    node.primary.wait_requests(2)
    assert [r.peer for r in node.requests] == [lab.network[c].address for c in ("c1", "c2")]
    answer_now.set()  # c1 has a receipt now, and nobody to tell it to
    assert lab.db.acks(round_id) == {} and lab.db.round(round_id)["state"] == "open"
    lab.network.heal()
    row = lab.db.wait_state(round_id, timeout=40)
    assert (row["state"], row["quorum_nodes"], row["acked"], row["coordinator"]) == ("complete", [1], 1, "c2")
    (attempt,) = lab.db.attempts(round_id, 1)
    assert (attempt["attempt"], attempt["resends"]) == (1, 1) and len(node.requests) == 2


# Random loss.

def test_half_of_all_packets_to_and_from_nodes_are_lost(lab):
    nodes = lab.some_nodes(3)
    lab.coordinator()
    lab.network.thin("c1", *lab.names(nodes))
    rounds = [lab.db.submit(2, nodes, **{**LASTING, "per_share_timeout": "4 s"}) for _ in range(20)]
    lab.db.wait_all_settled(timeout=90)
    assert lab.network.lost() > 100
    assert {lab.db.round(r)["state"] for r in rounds} == {"complete"}
    assert lab.db.one("SELECT count(*) FROM quorate.acks") == 60
    outcomes = {a["outcome"] for a in lab.db.rows("SELECT outcome FROM quorate.attempts")}
    assert outcomes <= {"ack", "timeout", "connect_error"}


def test_half_of_all_packets_to_and_from_the_database_are_lost(lab):
    """Two coordinators that fence each other now and then: no round ends wrongly, and none is stranded."""
    nodes = lab.some_nodes(3)
    for _ in range(2):
        lab.coordinator()
    lab.network.thin("db", "c1", "c2")
    lab.punctual = False
    rounds = [lab.db.submit(2, nodes, **{**LASTING, "retry_budget": 30, "round_deadline": "20 s"}) for _ in range(20)]
    lab.db.wait("all have ended", lambda: {row["state"] for row in lab.db.rounds()} <= {"complete", "stalled"}, timeout=60)
    assert lab.network.lost() > 20
    lab.network.heal()
    lab.db.wait_all_settled(timeout=60)
    print(collections.Counter(lab.db.round(r)["state"] for r in rounds))
    warm(lab, nodes)


# The network itself.

def test_a_killed_test_leaves_no_namespace_behind():
    """No program is left in a namespace that it made, and nothing of it shows in the machine's own network."""
    script = ("import sys, time, pathlib; from harness.netns import Network; import os, subprocess\n"
              "network = Network('a', 'b')\n"
              "with network['a'].entered():\n"
              "    child = subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', '--', 'sleep', 'infinity'])\n"
              "print(*(os.fstat(p.fd).st_ino for p in network.parties.values()), flush=True); time.sleep(60)\n")
    before = os.listdir("/sys/class/net")
    victim = subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
    made = {int(inode) for inode in victim.stdout.readline().split()}

    def users():
        found = set()
        for link in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
            try:
                found.add(os.stat(link).st_ino)
            except OSError:  # it has just ended
                continue
        return found & made

    assert len(made) == 2 and len(users()) == 1
    victim.kill()
    victim.wait()
    deadline = time.monotonic() + 10
    while users() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not users()
    assert os.listdir("/sys/class/net") == before


def test_faults_do_what_they_say():
    """Otherwise the tests above would show nothing."""
    with Network("c1", "n1") as network:
        with network["n1"].entered():
            node = Node(1, wire.KeyPair().public_text, host=network["n1"].address).plan(then=b.status(400, ("x-filler", "x" * 100)))
        call = ("import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5); s.settimeout(0.5);"
                " s.sendall(b'POST / HTTP/1.1\\r\\n\\r\\n'); print(s.recv(8).decode())")

        def ask():
            with network["c1"].entered():
                done = subprocess.run([sys.executable, "-c", call, node.primary.host, str(node.primary.port)], capture_output=True, text=True,
                                      check=False)
            return done.stdout.strip() or done.stderr.strip().splitlines()[-1].split(":")[0], len(node.requests)

        try:
            assert ask() == ("HTTP/1.1", 1)
            network.lose_answers("c1", "n1")
            assert ask() == ("TimeoutError", 2) and network.lost() > 0
            network.heal()
            network.cut("c1", "n1")
            assert ask() == ("TimeoutError", 2) and network.lost() > 0
            network.heal()
            network.refuse("c1", "n1")
            assert ask() == ("ConnectionRefusedError", 2)
            network.heal()
            network.thin("c1", "n1", percent=99)
            assert ask() == ("TimeoutError", 2)
            network.heal()
            assert ask() == ("HTTP/1.1", 3)
        finally:
            node.close()
