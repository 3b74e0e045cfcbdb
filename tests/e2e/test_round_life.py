"""The life of a round, sentence by sentence: escalation, deadline, cancellation, late acks, dead letters, erasure."""

import secrets
import time
from datetime import timedelta

import psycopg
import pytest
from harness import behaviours as b


def states(lab, round_id):
    return {node_id: d["state"] for node_id, d in lab.db.deliveries(round_id).items()}


def sqlstate_of(call, *arguments):
    with pytest.raises(psycopg.Error) as raised:
        call(*arguments)
    return raised.value.sqlstate


# Opening and distributing.

def test_open_without_distribute_stalls_at_its_deadline(lab):
    node = lab.node()
    lab.coordinator()
    opened = lab.db.open(1, round_deadline="1 s")
    row = lab.db.wait_settled(opened["round_id"])
    assert row["state"] == "stalled" and row["acked"] == 0 and row["close_reason"]
    assert lab.db.deliveries(row["round_id"]) == {} and lab.db.attempts(row["round_id"]) == [] and node.requests == []


def test_envelopes_distributed_after_the_claim_are_sent_at_once(lab):
    one, two, three = lab.some_nodes(3)
    lab.coordinator()
    opened = lab.db.open(2)
    round_id, nonce = opened["round_id"], opened["nonce"]
    lab.db.wait("claimed", lambda: lab.db.round(round_id)["coordinator"])
    assert lab.db.distribute(round_id, nonce, {1: b"first envelope, 16+"}) == {1: "accepted"}
    one.primary.wait_requests(1, timeout=1)
    lab.db.wait("the first ack", lambda: lab.db.acks(round_id).keys() == {1})
    assert lab.db.round(round_id)["state"] == "open"
    assert lab.db.distribute(round_id, nonce, {2: b"second envelope, 16+", 3: b"third envelope, 16+"}) == \
        {2: "accepted", 3: "accepted"}
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["acked"] == 3
    assert [len(n.requests) for n in (one, two, three)] == [1, 1, 1]
    assert row["closed_at"] - row["opened_at"] < timedelta(seconds=4)


def test_stale_nonce_never_becomes_a_delivery(lab):
    one, two = lab.some_nodes(2)
    lab.coordinator()
    opened = lab.db.open(1, round_deadline="2 s")
    round_id, nonce = opened["round_id"], opened["nonce"]
    assert lab.db.distribute(round_id, nonce - 1 or 2, {1: b"an envelope of old times"}) == {1: "stale_nonce"}
    assert lab.db.distribute(round_id, nonce, {2: b"an envelope of today"}) == {2: "accepted"}
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["quorum_nodes"] == [2]
    assert one.requests == [] and len(two.requests) == 1 and list(lab.db.deliveries(round_id)) == [2]
    (rejection,) = lab.db.rows("SELECT * FROM quorate.rejections WHERE round_id = %s", round_id)
    assert (rejection["node_id"], rejection["verdict"], rejection["rejected_for"]) == (1, "stale_nonce", "postgres")


def test_exact_replay_is_harmless_and_counts_once(lab):
    one, two = lab.some_nodes(2)
    lab.coordinator()
    opened = lab.db.open(2, round_deadline="3 s")
    round_id, nonce, payload = opened["round_id"], opened["nonce"], b"the same bytes again"
    assert lab.db.distribute(round_id, nonce, {1: payload}) == {1: "accepted"}
    lab.db.wait("acked", lambda: lab.db.acks(round_id))
    assert [lab.db.distribute(round_id, nonce, {1: payload}) for _ in range(3)] == [{1: "duplicate"}] * 3
    assert lab.db.distribute(round_id, nonce, {1: b"other bytes this time"}) == {1: "conflict"}
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and row["acked"] == 1 and len(one.requests) == 1 and two.requests == []
    assert lab.db.distribute(round_id, nonce, {1: payload}) == {1: "duplicate"}
    assert lab.db.distribute(round_id, nonce, {2: b"much too late by now"}) == {2: "round_closed"}
    verdicts = [r["verdict"] for r in lab.db.rows("SELECT verdict FROM quorate.rejections ORDER BY rejected_at")]
    assert verdicts == ["conflict", "round_closed"]


def test_a_round_keeps_the_nodes_it_was_opened_with(lab):
    """A changed URL or key of a node is for later rounds."""
    node = lab.node()
    elsewhere = lab.node(2)
    opened = lab.db.open(1, node_ids=[1])
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", elsewhere.primary.url, elsewhere.key.public_text)
    lab.db.rows("SELECT quorate.set_node_enabled(1, false)")
    lab.coordinator()
    lab.db.distribute(opened["round_id"], opened["nonce"], {1: b"for the node as it was"})
    row = lab.db.wait_settled(opened["round_id"])
    assert row["state"] == "complete" and len(node.requests) == 1 and elsewhere.requests == []
    assert lab.db.acks(row["round_id"])[1]["receipt_key"] == node.key.public_text


def test_a_round_keeps_the_backup_it_was_opened_with(lab):
    node = lab.node(backup=True, dark=True)
    elsewhere = lab.node(2, backup=True)
    opened = lab.db.open(1, node_ids=[1], round_deadline="4 s")
    lab.db.rows("SELECT quorate.add_node(1, %s, %s, %s)", elsewhere.primary.url, elsewhere.key.public_text, elsewhere.backup.url)
    lab.coordinator()
    lab.db.distribute(opened["round_id"], opened["nonce"], {1: b"for the backup as it was"})
    row = lab.db.wait_settled(opened["round_id"])
    assert row["state"] == "complete" and len(node.backup.requests) == 1 and elsewhere.all_requests() == []
    assert lab.db.acks(row["round_id"])[1]["receipt_key"] == node.key.public_text
    (share,) = lab.db.rows("SELECT * FROM quorate.collected(%s)", row["round_id"])
    assert (share["route"], share["url"]) == ("backup", node.backup.url)


# Quorum.

def test_quorum_is_decided_by_the_t_th_ack_and_surplus_is_kept(lab):
    fast = lab.some_nodes(2)
    slow = lab.node().plan(then=b.slow(0.4))
    lab.coordinator()
    round_id = lab.db.submit(2, [*fast, slow])
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["quorum_nodes"] == [1, 2] and row["acked"] == 3
    acks = lab.db.acks(round_id)
    assert {n: (a["in_quorum"], a["late"]) for n, a in acks.items()} == {1: (True, False), 2: (True, False), 3: (False, False)}
    assert lab.db.collect(round_id) == [1, 2]
    shares = lab.db.rows("SELECT * FROM quorate.collected(%s)", round_id)
    assert [(s["node_id"], s["route"], s["url"], s["in_quorum"]) for s in shares] == \
        [(n.node_id, "primary", n.primary.url, n is not slow) for n in lab.nodes]
    assert [s["receipt"] for s in shares] == [acks[n]["receipt"] for n in (1, 2, 3)]


def test_after_quorum_stop_makes_no_further_attempt(lab):
    one, two = lab.some_nodes(2)
    failing = lab.node().plan(then=b.slow(0.3, b.status(500)))
    lab.coordinator()
    round_id = lab.db.submit(2, [one, two, failing], after_quorum="stop", retry_budget=5)
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and states(lab, round_id) == {1: "acked", 2: "acked", 3: "abandoned"}
    assert len(failing.requests) == 1 and lab.db.attempt_list(round_id, 3) == [("primary", 1, "http_error", 500)]


def test_after_quorum_continue_goes_on_inside_the_budget(lab):
    one, two = lab.some_nodes(2)
    failing = lab.node().plan(b.status(500), b.status(503))
    lab.coordinator()
    round_id = lab.db.submit(2, [one, two, failing])
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["acked"] == 3 and row["quorum_nodes"] == [1, 2]
    assert lab.db.attempt_list(round_id, 3) == [
        ("primary", 1, "http_error", 500), ("primary", 2, "http_error", 503), ("primary", 3, "ack", 200)]


def test_surplus_still_outstanding_stops_at_the_deadline(lab):
    """Complete, and one node dark for ever: no attempt after the deadline, then settled."""
    one = lab.node()
    failing = lab.node().plan(then=b.status(429, ("retry-after", "1")))
    lab.coordinator()
    round_id = lab.db.submit(1, [one, failing], retry_budget=20, round_deadline="2500 ms")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and states(lab, round_id) == {1: "acked", 2: "abandoned"}
    assert 2 <= len(failing.requests) <= 3
    assert row["settled_at"] <= row["deadline_at"] + timedelta(seconds=3)


def test_all_of_many_nodes(lab):
    nodes = lab.some_nodes(20)
    lab.coordinator()
    round_id = lab.db.submit(20, nodes, per_share_timeout="3 s", round_deadline="15 s")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["quorum_nodes"] == list(range(1, 21))
    assert [len(n.requests) for n in nodes] == [1] * 20


# Escalation.

def test_backup_acks_after_the_escalation(lab):
    one = lab.node()
    dark = lab.node(backup=True, dark=True)
    lab.coordinator()
    round_id = lab.db.submit(2, [one, dark], round_deadline="3 s")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["quorum_nodes"] == [1, 2]
    assert row["escalate_at"] <= row["escalated_at"] <= row["escalate_at"] + timedelta(seconds=1)
    assert abs((row["escalate_at"] - row["opened_at"]) * 2 - (row["deadline_at"] - row["opened_at"])) < timedelta(milliseconds=1)
    attempts = lab.db.attempt_list(round_id, 2)
    assert [a for a in attempts if a[0] == "backup"] == [("backup", 1, "ack", 200)]
    assert [a for a in attempts if a[0] == "primary"] == [("primary", n, "connect_error", None) for n in (1, 2, 3)]
    assert lab.db.acks(round_id)[2]["route"] == "backup" and len(dark.backup.requests) == 1
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "ack", 200)]
    (share,) = [s for s in lab.db.rows("SELECT * FROM quorate.collected(%s)", round_id) if s["node_id"] == 2]
    assert (share["route"], share["url"]) == ("backup", dark.backup.url)


@pytest.mark.parametrize("behaviour, outcome, status, count", [
    (b.status(409), "refused", 409, 1), (b.redirect_to_itself(), "refused", 302, 1), (b.status(500), "http_error", 500, 3)],
    ids=["refused", "redirected", "exhausted"])
def test_a_primary_that_refused_or_gave_out_does_not_bar_the_backup(lab, behaviour, outcome, status, count):
    node = lab.node(backup=True).plan(then=behaviour)
    lab.coordinator()
    round_id = lab.db.submit(1, [node], round_deadline="3 s")
    lab.db.wait_attempts(round_id, 1, count)
    assert states(lab, round_id) == {1: "pending"}, "its backup has not been asked yet"
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and states(lab, round_id) == {1: "acked"}
    assert lab.db.attempt_list(round_id, 1) == \
        [("primary", n + 1, outcome, status) for n in range(count)] + [("backup", 1, "ack", 200)]


def test_both_routes_have_a_budget_of_their_own(lab):
    node = lab.node(backup=True).plan(then=b.status(503))
    node.backup.default = b.status(500)
    lab.coordinator()
    round_id = lab.db.submit(1, [node], round_deadline="3 s")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and states(lab, round_id) == {1: "exhausted"}
    attempts = {route: [(a["attempt"], a["http_status"]) for a in lab.db.attempts(round_id, 1, route)]
                for route in ("primary", "backup")}
    assert attempts == {"primary": [(1, 503), (2, 503), (3, 503)], "backup": [(1, 500), (2, 500), (3, 500)]}


def test_refused_on_both_routes(lab):
    node = lab.node(backup=True).plan(then=b.status(403))
    node.backup.default = b.status(404)
    lab.coordinator()
    row = lab.db.wait_settled(lab.db.submit(1, [node], round_deadline="2 s"))
    assert row["state"] == "stalled" and states(lab, row["round_id"]) == {1: "refused"}
    assert lab.db.attempt_list(row["round_id"], 1) == [("primary", 1, "refused", 403), ("backup", 1, "refused", 404)]


def test_the_primary_goes_on_after_the_escalation_and_whoever_acks_first_counts(lab):
    node = lab.node(backup=True).plan(*[b.silent()] * 2)
    node.backup.default = b.silent()
    lab.coordinator()
    # Primary: silent to 1.2 s, silent to 2.4 s or so, then a good answer; the backup is asked at 2 s and stays silent.
    round_id = lab.db.submit(1, [node], per_share_timeout="1200 ms", round_deadline="4 s", base_backoff="1 ms", max_backoff="1 ms")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["escalated_at"] is not None
    assert lab.db.acks(round_id)[1]["route"] == "primary"
    assert ("primary", 3, "ack", 200) in lab.db.attempt_list(round_id, 1)
    assert node.backup.requests and len(node.primary.requests) == 3


def test_one_node_that_acks_by_both_routes_counts_once(lab):
    """Both routes answer well at the same time: one ack, one count."""
    node = lab.node(backup=True).plan(then=b.slow(2.4))
    other = lab.node(dark=True)
    node.backup.default = b.slow(0.1)
    lab.coordinator()
    round_id = lab.db.submit(2, [node, other], per_share_timeout="4 s", round_deadline="3 s")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and row["acked"] == 1
    assert len(node.primary.requests) == 1 and len(node.backup.requests) == 1
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "ack", 200), ("backup", 1, "ack", 200)]
    assert lab.db.acks(round_id)[1]["route"] == "backup", "it answered first"
    assert sqlstate_of(lab.db.collect, round_id) == "QR001"


def test_no_escalation_without_a_need(lab):
    """Complete before half-time; or no backup at all; or only of nodes that had acked."""
    acked_with_backup = lab.node(backup=True)
    dark = lab.node(dark=True)
    lab.coordinator()
    done = lab.db.submit(1, [acked_with_backup], round_deadline="1500 ms")
    none = lab.db.submit(2, [acked_with_backup, dark], round_deadline="1500 ms")
    assert lab.db.wait_settled(done)["escalated_at"] is None
    row = lab.db.wait_settled(none)
    assert row["state"] == "stalled" and row["escalated_at"] is None
    assert acked_with_backup.backup.requests == []


def test_envelopes_distributed_after_the_escalation_take_both_routes(lab):
    one = lab.node(backup=True).plan(then=b.status(500))
    two = lab.node(backup=True).plan(then=b.slow(0.3))
    two.backup.default = b.slow(0.3)
    one.backup.default = b.status(500)
    lab.coordinator()
    opened = lab.db.open(2, round_deadline="4 s")
    round_id = opened["round_id"]
    lab.db.distribute(round_id, opened["nonce"], {1: b"early bird's envelope"})
    lab.db.wait("escalated", lambda: lab.db.round(round_id)["escalated_at"])
    began = time.monotonic()
    lab.db.distribute(round_id, opened["nonce"], {2: b"late riser's envelope"})
    two.primary.wait_requests(1, 2)
    two.backup.wait_requests(1, 2)
    assert time.monotonic() - began < 1
    lab.db.wait_settled(round_id)


# Deadline, cancellation, late acks.

def test_stalls_at_the_deadline_and_fails_closed(lab):
    one, dark, darker = lab.node(), lab.node(dark=True), lab.node(dark=True)
    lab.coordinator()
    round_id = lab.db.submit(2, [one, dark, darker], round_deadline="1500 ms")
    assert lab.db.collect(round_id) is None
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and row["acked"] == 1 and row["quorum_nodes"] is None
    assert row["deadline_at"] < row["closed_at"] <= row["deadline_at"] + timedelta(seconds=1)
    assert sqlstate_of(lab.db.collect, round_id) == "QR001"
    assert lab.db.rows("SELECT * FROM quorate.dead_letters") == []


def test_collect_fails_closed_without_any_coordinator(lab):
    lab.punctual = False
    node = lab.node()
    round_id = lab.db.submit(1, [node], round_deadline="400 ms")
    lab.db.wait("past its deadline", lambda: lab.db.one("SELECT clock_timestamp() > deadline_at FROM quorate.rounds"))
    assert sqlstate_of(lab.db.collect, round_id) == "QR001"
    assert lab.db.round(round_id)["state"] == "open", "collect reads"
    assert lab.db.one("SELECT quorate.settle_round(%s)", round_id) == "stalled"
    assert lab.db.round(round_id)["state"] == "stalled" and node.requests == []


def test_a_coordinator_that_comes_late_closes_and_settles_what_is_due(lab):
    lab.punctual = False
    node = lab.node()
    round_id = lab.db.submit(1, [node], round_deadline="400 ms")
    lab.db.wait("past its deadline", lambda: lab.db.one("SELECT clock_timestamp() > deadline_at FROM quorate.rounds"))
    lab.coordinator()
    row = lab.db.wait_settled(round_id, timeout=5)
    assert row["state"] == "stalled" and node.requests == [] and states(lab, round_id) == {1: "abandoned"}


def test_cancel_stops_and_wakes(lab):
    slow = lab.node().plan(then=b.status(500))
    lab.coordinator()
    round_id = lab.db.submit(1, [slow], retry_budget=50)
    lab.db.wait_attempts(round_id, 1, 1)
    with lab.db.connect() as listener:
        listener.execute("LISTEN quorate_round")
        assert lab.db.one("SELECT quorate.cancel_round(%s, %s)", round_id, "changed our mind") is True
        assert next(listener.notifies()).payload == f"{round_id} cancelled"
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "cancelled" and row["close_reason"] == "changed our mind"
    assert states(lab, round_id) == {1: "abandoned"}
    assert lab.db.one("SELECT quorate.cancel_round(%s, %s)", round_id, "again") is False
    assert sqlstate_of(lab.db.collect, round_id) == "QR004"
    seen = len(slow.requests)
    lab.db.wait_settled(lab.db.submit(1, [lab.node()]))
    assert len(slow.requests) == seen, "went on after the cancellation"


def test_ack_after_the_cancellation_is_late_and_changes_nothing(lab):
    slow = lab.node().plan(then=b.slow(0.5))
    lab.coordinator()
    round_id = lab.db.submit(1, [slow], per_share_timeout="2 s")
    slow.primary.wait_requests(1)
    lab.db.rows("SELECT quorate.cancel_round(%s, 'too slow')", round_id)
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "cancelled" and row["acked"] == 0
    ack = lab.db.acks(round_id)[1]
    assert ack["late"] and not ack["in_quorum"] and states(lab, round_id) == {1: "acked"}
    assert sqlstate_of(lab.db.collect, round_id) == "QR004" and lab.db.rows("SELECT * FROM quorate.dead_letters") == []


def test_late_quorum_is_a_dead_letter_and_never_a_quorum(lab):
    """Two of three answer after the deadline: kept, late, listed; collect goes on refusing."""
    one = lab.node()
    late = [lab.node().plan(then=b.slow(1.6)) for _ in range(2)]
    lab.coordinator()
    round_id = lab.db.submit(3, [one, *late], per_share_timeout="3 s", round_deadline="1 s")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and row["acked"] == 1 and row["quorum_nodes"] is None
    assert {n: a["late"] for n, a in lab.db.acks(round_id).items()} == {1: False, 2: True, 3: True}
    assert all(a["acked_at"] > row["deadline_at"] for n, a in lab.db.acks(round_id).items() if n > 1)
    (letter,) = lab.db.rows("SELECT * FROM quorate.dead_letters")
    assert (letter["round_id"], letter["reason"], letter["acked"], letter["quorum"]) == (round_id, "late_quorum", 3, 3)
    assert sqlstate_of(lab.db.collect, round_id) == "QR001"
    assert row["settled_at"] <= row["closed_at"] + timedelta(seconds=5)


# Freshness.

def test_not_collected_in_time_is_dead_lettered(lab):
    nodes = lab.some_nodes(2)
    lab.coordinator()
    round_id = lab.db.submit(2, nodes, freshness="1500 ms")
    assert lab.db.wait_state(round_id, "complete")["fresh_until"]
    row = lab.db.wait_state(round_id, "dead_lettered")
    assert row["fresh_until"] < row["dead_lettered_at"] <= row["fresh_until"] + timedelta(seconds=1)
    assert row["quorum_nodes"] == [1, 2] and row["collected_at"] is None
    assert row["deadline_at"] == row["fresh_until"], "freshness is shorter than the round's deadline"
    (letter,) = lab.db.rows("SELECT * FROM quorate.dead_letters")
    assert (letter["round_id"], letter["reason"], letter["acked"]) == (round_id, "not_collected", 2)
    assert sqlstate_of(lab.db.collect, round_id) == "QR002"
    lab.db.wait_settled(round_id)


def test_collected_in_time_is_no_dead_letter_but_refused_after_freshness(lab):
    node = lab.node()
    lab.coordinator()
    round_id = lab.db.submit(1, [node], freshness="1500 ms")
    lab.db.wait_state(round_id, "complete")
    assert lab.db.collect(round_id) == [1] and lab.db.collect(round_id) == [1]
    first = lab.db.round(round_id)["collected_at"]
    lab.db.wait("no longer fresh", lambda: lab.db.one(
        "SELECT clock_timestamp() > fresh_until + interval '1.2 s' FROM quorate.rounds"))
    assert sqlstate_of(lab.db.collect, round_id) == "QR002"
    row = lab.db.round(round_id)
    assert row["state"] == "complete" and row["collected_at"] == first
    assert lab.db.rows("SELECT * FROM quorate.dead_letters") == []


def test_collectors_floor(lab):
    nodes = lab.some_nodes(3)
    lab.coordinator()
    round_id = lab.db.submit(2, nodes)
    lab.db.wait_settled(round_id)
    assert len(lab.db.collect(round_id, 2)) >= 2
    assert sqlstate_of(lab.db.collect, round_id, 3) == "QR007"
    assert sqlstate_of(lab.db.collect, "no-such-round") == "QR003"


# Settling.

def test_payloads_are_erased_when_settled_and_only_then(lab):
    slow = lab.node().plan(then=b.slow(1))
    fast = lab.node()
    lab.coordinator()
    round_id = lab.db.submit(1, [slow, fast], per_share_timeout="3 s")
    row = lab.db.wait_state(round_id, "complete")
    assert row["settled_at"] is None, "an attempt is under way"
    row = lab.db.wait_settled(round_id)
    for node_id, delivery in lab.db.deliveries(round_id).items():
        payload = lab.db.payloads[round_id, node_id]
        assert delivery["payload_bytes"] == len(payload) and delivery["payload_erased_at"] is not None
    assert row["acked"] == 2
    # The lab looks for the bytes in every table when the test ends.


@pytest.mark.parametrize("end", ["complete", "stalled", "cancelled"])
def test_settles_within_the_timeout_and_two_seconds(lab, end):
    """A silent node holds a settlement up for its per_share_timeout and no longer."""
    silent = lab.node().plan(then=b.silent())
    one = lab.node()
    lab.coordinator()
    quorum = 1 if end == "complete" else 2
    round_id = lab.db.submit(quorum, [one, silent], per_share_timeout="1500 ms", round_deadline="2500 ms", retry_budget=1)
    silent.primary.wait_requests(1)
    if end == "cancelled":
        lab.db.rows("SELECT quorate.cancel_round(%s, 'test')", round_id)
    row = lab.db.wait_settled(round_id)
    assert row["state"] == end
    assert row["settled_at"] <= row["closed_at"] + timedelta(seconds=3.5)


def test_wake_up_reaches_the_collector(lab):
    nodes = lab.some_nodes(3)
    lab.coordinator()
    with lab.db.connect() as listener:
        listener.execute("LISTEN quorate_round")
        round_id = lab.db.submit(2, nodes)
        notification = next(listener.notifies())
        assert (notification.channel, notification.payload) == ("quorate_round", f"{round_id} complete")
        assert lab.db.collect(round_id) == lab.db.round(round_id)["quorum_nodes"]
    lab.db.wait_settled(round_id)


# Ledger.

def test_a_nonce_and_a_round_id_are_used_once_even_after_pruning(lab):
    node = lab.node()
    lab.coordinator()
    round_id = lab.db.submit(1, [node], nonce=4711)
    lab.db.wait_settled(round_id)
    assert lab.db.one("SELECT quorate.prune_rounds(clock_timestamp())") == 1
    for view in ("rounds", "deliveries", "attempts", "acks", "rejections"):
        assert lab.db.rows(f"SELECT * FROM quorate.{view}") == []
    assert sqlstate_of(lambda: lab.db.open(1, round_id=round_id)) == "QR006"
    assert sqlstate_of(lambda: lab.db.open(1, nonce=4711)) == "QR005"
    assert sqlstate_of(lab.db.collect, round_id) == "QR003"
    lab.nodes.clear()  # their requests have no attempts any more
    node.close()


def test_many_rounds_at_once(lab):
    """A flood of 300 rounds: all complete, each node asked once each."""
    nodes = lab.some_nodes(3)
    lab.coordinator()
    with lab.db.conn.transaction():
        for _ in range(300):
            lab.db.submit(2, nodes, per_share_timeout="10 s", round_deadline="60 s",
                          payloads={n.node_id: secrets.token_bytes(64) for n in nodes})
    lab.db.wait_all_settled()
    assert {(row["state"], row["acked"]) for row in lab.db.rounds()} == {("complete", 3)}
    assert [len(n.requests) for n in nodes] == [300] * 3
