"""One custodian misbehaves, one way at a time; after each: exact attempts, acks, states, and what the node saw."""

import email.utils
import time

import pytest
from harness import behaviours as b
from harness import wire

ONCE = [("primary", 1, "ack", 200)]
VALID = "{valid}"


def deliver(lab, node, *script, then=None, **policy):
    """Sends one envelope to one node with quorum 1 and returns the round once it is settled."""
    node.plan(*script, then=then)
    if not lab.processes.all:
        lab.coordinator()
    round_id = lab.db.submit(1, [node], **policy)
    return lab.db.wait_settled(round_id)


def assert_outcome(lab, row, node, state, delivery, attempts, requests):
    round_id = row["round_id"]
    assert lab.db.attempt_list(round_id, node.node_id) == attempts
    assert row["state"] == state
    assert lab.db.deliveries(round_id)[node.node_id]["state"] == delivery
    assert lab.db.deliveries(round_id)[node.node_id]["last_outcome"] == (attempts[-1][2] if attempts else None)
    assert sorted(lab.db.acks(round_id)) == ([node.node_id] if delivery == "acked" else [])
    assert [r.key.round_id for r in node.requests] == [round_id] * requests


def test_request_is_as_the_protocol_says(lab):
    """Every byte of it: four headers, the signature, the timestamp of this attempt, nothing else of ours."""
    node, payload = lab.node(), bytes(range(256)) * 8
    lab.coordinator()
    round_id = lab.db.submit(1, [node], payloads={1: payload})
    row = lab.db.wait_settled(round_id)
    (request,) = node.requests
    assert (request.method, request.path) == ("POST", "/")
    assert sorted(name for name, _ in request.headers) == [
        "content-length", "content-type", "host", "webhook-id", "webhook-signature", "webhook-timestamp"]
    assert request.header("content-type") == "application/octet-stream"
    assert request.header("host") == f"127.0.0.1:{node.primary.port}"
    assert request.header("webhook-id") == f"{lab.db.deployment()}:{round_id}:1:{row['nonce']}"
    assert request.body_sha256 == wire.sha256(payload) and request.body_size == len(payload)
    assert request.signature_ok
    (attempt,) = lab.db.attempts(round_id)
    assert abs(int(request.header("webhook-timestamp")) - attempt["reserved_at"].timestamp()) <= 2
    (ack,) = lab.db.acks(round_id).values()
    assert ack["receipt_key"] == node.key.public_text and ack["in_quorum"] and not ack["late"]
    assert ack["receipt"] == node.key.sign(wire.receipt_message(request.key, wire.sha256(payload)))


def test_a_first_ack_is_written_down_with_the_one_that_makes_the_quorum(lab):
    """Two commits for two acks would keep the second waiting for the first's."""
    nodes = lab.some_nodes(3)
    lab.coordinator()
    together = 0
    for _ in range(10):
        round_id = lab.db.submit(2, nodes)
        lab.db.wait_settled(round_id)
        times = sorted(ack["acked_at"] for ack in lab.db.acks(round_id).values())
        assert len(times) == 3
        together += times[0] == times[1]
    assert together >= 5, together  # not on a machine that is so busy that the second one takes its time


def test_a_first_ack_does_not_wait_for_a_silent_node(lab):
    nodes = lab.some_nodes(2)
    nodes[1].plan(b.silent())
    lab.coordinator()
    round_id = lab.db.submit(2, nodes, per_share_timeout="30 s", round_deadline="60 s")
    lab.db.wait("the first ack", lambda: lab.db.acks(round_id), timeout=5)
    assert sorted(lab.db.acks(round_id)) == [nodes[0].node_id] and lab.db.round(round_id)["state"] == "open"
    lab.db.conn.execute("SELECT quorate.cancel_round(%s, 'enough')", [round_id])
    nodes[1].close()


@pytest.mark.parametrize("size", [1, 2, 65_536, 1_000_000, 16 << 20])
def test_sizes(lab, size):
    node, payload = lab.node(), b"\x00\xff\n" * (size // 3) + b"z" * (size % 3)
    lab.coordinator()
    round_id = lab.db.submit(1, [node], payloads={1: payload}, per_share_timeout="5 s", round_deadline="20 s")
    row = lab.db.wait_settled(round_id)
    assert_outcome(lab, row, node, "complete", "acked", ONCE, 1)
    assert node.requests[0].body_sha256 == wire.sha256(payload)


@pytest.mark.parametrize("behaviour, status", [
    (b.ok(), 200), (b.ok(201), 201), (b.ok(204), 204), (b.ok(299), 299), (b.ok(body=b"x" * 200_000), 200),
    (b.slow(0.2), 200), (b.informational_first(102, 103), 200), (b.informational_first(100), 200),
    (b.half_body(), 200), (b.endless_body(), 200), (b.dribbling_body(), 200),
    (b.ok(headers=(("connection", "close"),)), 200), (b.receipt_text("  {valid}  "), 200)],
    ids=lambda value: getattr(value, "__name__", str(value)))
def test_good_enough(lab, behaviour, status):
    """The head is what counts: as soon as it is complete and carries a receipt, the envelope is acked."""
    node = lab.node()
    row = deliver(lab, node, behaviour, then=b.status(500), per_share_timeout="5 s")
    assert_outcome(lab, row, node, "complete", "acked", [("primary", 1, "ack", status)], 1)
    (attempt,) = lab.db.attempts(row["round_id"])
    assert (attempt["finished_at"] - attempt["reserved_at"]).total_seconds() < 4, "waited for the body"


RETRIED = [
    (b.silent(), "timeout", None),
    (b.slow(2.5), "timeout", None),
    (b.informational_for_ever(), "timeout", None),
    (b.store_then_lose_answer(), "connect_error", None),
    (b.hang_up(), "connect_error", None),
    (b.half_answer(), "connect_error", None),
    (b.huge_head(), "connect_error", None),
    (b.garbage(), "connect_error", None),
    (b.no_receipt(), "bad_receipt", 200),
    (b.no_receipt(204), "bad_receipt", 204),
    (b.half_body(with_receipt=False), "bad_receipt", 200),
    (b.endless_body(with_receipt=False), "bad_receipt", 200),
    (b.endless_body(code=500), "http_error", 500),
    (b.forged_receipt(key=wire.KeyPair()), "bad_receipt", 200),
    (b.forged_receipt(round_id="another"), "bad_receipt", 200),
    (b.forged_receipt(node_id=2), "bad_receipt", 200),
    (b.forged_receipt(nonce=1), "bad_receipt", 200),
    (b.forged_receipt(body=b"other bytes"), "bad_receipt", 200),
    (b.forged_receipt(deployment="elsewhere"), "bad_receipt", 200),
    (b.receipt_text(""), "bad_receipt", 200),
    (b.receipt_text("v1a,"), "bad_receipt", 200),
    (b.receipt_text("v1a," + "A" * 86 + "=="), "bad_receipt", 200),
    (b.receipt_text(VALID + "x"), "bad_receipt", 200),
    (b.receipt_text("v1," + "A" * 86 + "=="), "bad_receipt", 200),
    (b.receipt_text("v1a," + "A" * 20_000), "bad_receipt", 200),
    (b.status(408), "http_error", 408),
    (b.status(425), "http_error", 425),
    (b.status(429), "http_error", 429),
    (b.status(500), "http_error", 500),
    (b.status(502), "http_error", 502),
    (b.status(503), "http_error", 503),
    (b.status(599), "http_error", 599),
]


@pytest.mark.parametrize("behaviour, outcome, status", RETRIED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_retried_once_and_then_acked(lab, behaviour, outcome, status):
    node = lab.node()
    row = deliver(lab, node, behaviour, **({"per_share_timeout": "1 s"} if outcome == "timeout" else {}))
    assert_outcome(lab, row, node, "complete", "acked", [("primary", 1, outcome, status), ("primary", 2, "ack", 200)], 2)
    first, second = lab.db.attempts(row["round_id"])
    if outcome == "timeout":
        assert 0.99 <= (first["finished_at"] - first["reserved_at"]).total_seconds() < 2.5
    assert second["reserved_at"] >= first["finished_at"]
    assert len(node.held) == 1


@pytest.mark.parametrize("behaviour, outcome, status", [
    (b.silent(), "timeout", None), (b.hang_up(), "connect_error", None), (b.status(500), "http_error", 500),
    (b.no_receipt(), "bad_receipt", 200), (b.forged_receipt(key=wire.KeyPair()), "bad_receipt", 200)],
    ids=lambda value: getattr(value, "__name__", str(value)))
def test_budget_runs_out_and_the_round_stalls(lab, behaviour, outcome, status):
    node = lab.node()
    row = deliver(lab, node, then=behaviour, per_share_timeout="500 ms" if outcome == "timeout" else "3 s", round_deadline="3 s")
    assert_outcome(lab, row, node, "stalled", "exhausted", [("primary", n, outcome, status) for n in (1, 2, 3)], 3)


def test_dark_node_uses_up_its_budget_while_the_quorum_completes(lab):
    """Connections are refused: three attempts, none arrives, and the others decide."""
    one, two = lab.some_nodes(2)
    dark = lab.node(dark=True)
    lab.coordinator()
    round_id = lab.db.submit(2, [one, two, dark])
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["quorum_nodes"] == [1, 2] and row["acked"] == 2
    assert lab.db.attempt_list(round_id, 3) == [("primary", n, "connect_error", None) for n in (1, 2, 3)]
    assert {n: d["state"] for n, d in lab.db.deliveries(round_id).items()} == {1: "acked", 2: "acked", 3: "exhausted"}
    assert dark.requests == [] and [len(n.requests) for n in (one, two)] == [1, 1]


def test_dark_node_that_comes_back_in_time(lab):
    node = lab.node(dark=True)
    lab.coordinator()
    round_id = lab.db.submit(1, [node], retry_budget=50)
    lab.db.wait_attempts(round_id, 1, 2)
    node.primary.light()
    row = lab.db.wait_settled(round_id)
    attempts = lab.db.attempt_list(round_id, 1)
    assert row["state"] == "complete" and attempts[-1][2:] == ("ack", 200)
    assert set(a[2:] for a in attempts[:-1]) == {("connect_error", None)} and len(node.requests) == 1


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402, 403, 404, 405, 409, 410, 413, 418, 422, 451, 499])
def test_refused_is_never_repeated(lab, code):
    """409, every other 4xx but 408, 425 and 429, and every redirect: once, and no more on this route."""
    node = lab.node()
    row = deliver(lab, node, b.redirect_to_itself(code) if code < 400 else b.status(code), round_deadline="1500 ms")
    assert_outcome(lab, row, node, "stalled", "refused", [("primary", 1, "refused", code)], 1)
    assert [r.path for r in node.requests] == ["/"], "followed a redirect"


def test_a_receipt_on_a_refusal_is_no_ack(lab):
    node = lab.node()
    node.plan(b.endless_body(code=409))
    lab.coordinator()
    round_id = lab.db.submit(1, [node], round_deadline="1500 ms")
    row = lab.db.wait_settled(round_id)
    assert_outcome(lab, row, node, "stalled", "refused", [("primary", 1, "refused", 409)], 1)


def test_a_node_that_holds_other_bytes_refuses(lab):
    """409 from a node that judges by itself: another deployment's dealer had used its key for this round."""
    node = lab.node()
    round_id = lab.db.new_round_id()
    node.held[lab.db.deployment(), round_id] = (1, wire.sha256(b"other bytes"))
    lab.coordinator()
    lab.db.submit(1, [node], round_id=round_id, round_deadline="1500 ms")
    row = lab.db.wait_settled(round_id)
    assert_outcome(lab, row, node, "stalled", "refused", [("primary", 1, "refused", 409)], 1)


def http_date(seconds: float) -> str:
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


@pytest.mark.parametrize("code, value, least, most", [
    (429, "1", 0.99, 2.5), (503, "1", 0.99, 2.5), (429, lambda: http_date(3), 1.5, 4.5),
    (429, "0", 0, 0.9), (429, "-5", 0, 0.9), (429, "soon", 0, 0.9), (429, "1.5", 0, 0.9), (429, "", 0, 0.9), (429, "99999999999999999999x", 0, 0.9),
    (429, "Thu, 01 Jan 1970 00:00:00 GMT", 0, 0.9), (500, "1", 0.99, 2.5)],
    ids=lambda value: "date" if callable(value) else str(value))
def test_retry_after(lab, code, value, least, most):
    """Seconds or a date lengthen the wait; anything else is as if it were not there."""
    node = lab.node()

    def refuse(exchange) -> None:  # a date counts from the answer, however long the start took
        b.status(code, ("retry-after", value() if callable(value) else value))(exchange)

    row = deliver(lab, node, refuse, round_deadline="8 s")
    assert_outcome(lab, row, node, "complete", "acked", [("primary", 1, "http_error", code), ("primary", 2, "ack", 200)], 2)
    wait = node.requests[1].at - node.requests[0].at
    assert least <= wait <= most, f"waited {wait:.3f} s"


def test_retry_after_never_passes_the_deadline(lab):
    """Whoever asks for an hour gets no second request, and the round ends when it must."""
    node = lab.node()
    row = deliver(lab, node, b.status(429, ("retry-after", "3600")), round_deadline="1500 ms")
    assert_outcome(lab, row, node, "stalled", "abandoned", [("primary", 1, "http_error", 429)], 1)


def test_waits_are_full_jitter(lab):
    """Between attempts: uniform in [0, backoff], doubling from base_backoff, capped at max_backoff."""
    node = lab.node().plan(then=b.status(500))
    lab.coordinator()
    rounds = [lab.db.submit(1, [node], retry_budget=5, base_backoff="100 ms", max_backoff="400 ms") for _ in range(20)]
    for round_id in rounds:
        lab.db.wait_attempts(round_id, 1, 5)
    waits = {number: [] for number in (1, 2, 3, 4)}
    for round_id in rounds:
        attempts = lab.db.attempts(round_id)
        for before, after in zip(attempts, attempts[1:]):
            waits[before["attempt"]].append((after["reserved_at"] - before["finished_at"]).total_seconds())
    for number, backoff in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.4)):
        # 20 draws: all above half the backoff, or all below it, has a chance of one in 500,000.
        assert min(waits[number]) < backoff / 2, f"after attempt {number}: {sorted(waits[number])}"
        assert max(waits[number]) > backoff / 2, f"after attempt {number}: {sorted(waits[number])}"
        assert sorted(waits[number])[15] < backoff + 0.15, f"after attempt {number}: {sorted(waits[number])}"
    for round_id in rounds:
        lab.db.rows("SELECT quorate.cancel_round(%s, 'seen enough')", round_id)
    lab.db.wait_all_settled()


def test_a_kept_connection_that_died_is_one_attempt_one_request(lab):
    """An HTTP library repeats by itself what a dead connection swallowed; then a request would have no attempt."""
    node = lab.node().plan(*[b.ok(), b.hang_up()] * 10)
    lab.coordinator()
    for _ in range(15):
        lab.db.wait_settled(lab.db.submit(1, [node], retry_budget=20))
    assert [row["state"] for row in lab.db.rounds()] == ["complete"] * 15
    outcomes = [a["outcome"] for row in lab.db.rounds() for a in lab.db.attempts(row["round_id"])]
    swallowed = [r for r in node.requests if r.behaviour == "hang_up"]
    first_use = {r.connection: r for r in reversed(node.requests)}
    assert any(first_use[r.connection] is not r for r in swallowed), "no connection was used again: proves nothing"
    assert outcomes.count("connect_error") == len(swallowed) and outcomes.count("ack") == 15
    assert len(node.requests) == len(outcomes)


def test_connections_are_used_again(lab):
    node = lab.node()
    lab.coordinator()
    for _ in range(10):
        lab.db.wait_settled(lab.db.submit(1, [node]))
    assert len(node.requests) == 10 and node.primary.connections <= 2


def test_little_of_an_endless_body_is_read(lab):
    """At most 64 KiB (and what the sockets buffer); then the connection goes."""
    node = lab.node().plan(b.endless_body())
    lab.coordinator()
    lab.db.wait_settled(lab.db.submit(1, [node]))
    lab.db.wait("the connection is closed", lambda: not node.primary._open_sockets)
    assert node.primary.endless_bytes < 8 << 20


def test_a_dark_or_silent_node_does_not_slow_the_others(lab):
    """A bulkhead per endpoint: fifty rounds with one silent node end as fast as the healthy ones answer."""
    one, two = lab.some_nodes(2)
    silent = lab.node().plan(then=b.silent())
    lab.coordinator(options=("--slots", "8"))  # the silent one's are soon gone
    began = time.monotonic()
    rounds = [lab.db.submit(2, [one, two, silent], per_share_timeout="60 s", round_deadline="120 s", after_quorum="stop")
              for _ in range(50)]
    for round_id in rounds:
        assert lab.db.wait_state(round_id)["quorum_nodes"] == [1, 2]
    assert time.monotonic() - began < 20, "the healthy ones waited for the silent one"
    silent.close()
    lab.db.wait_all_settled()


def test_every_request_comes_after_its_commit(lab):
    """I5 at the moment it matters: when a request arrives, its attempt is already visible to others."""
    nodes = lab.some_nodes(2)
    missing = []

    def witness(endpoint, request):
        attempts = lab.db.attempts(request.key.round_id, endpoint.node.node_id)
        seen = sum(r.key == request.key for r in endpoint.requests) + 1
        if sum(1 + a["resends"] for a in attempts) < seen:
            missing.append((request.key, attempts))

    for node in nodes:
        node.witness = witness
        node.plan(*[b.status(500), b.ok(), b.no_receipt(), b.ok()] * 5)
    lab.coordinator()
    for _ in range(10):
        lab.db.submit(2, nodes, retry_budget=20)
    lab.db.wait_all_settled()
    assert not missing
    assert [row["state"] for row in lab.db.rounds()] == ["complete"] * 10
