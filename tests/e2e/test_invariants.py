"""The invariant checker must find what it is there to find: each lie told to it is noticed."""

import base64
import copy
from datetime import datetime, timedelta, timezone

import pytest
from harness import wire
from harness.invariants import check_invariants, check_logs

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEY = wire.KeyPair(bytes(32))


def at(seconds):
    return START + timedelta(seconds=seconds)


class World:
    """A round of three nodes and quorum 2, complete and settled, as the views would show it."""

    payloads: dict = {}

    def __init__(self):
        self.round = {"round_id": "r", "nonce": 7, "state": "complete", "quorum": 2, "node_ids": [1, 2, 3], "acked": 2,
                      "quorum_nodes": [1, 2], "retry_budget": 2, "opened_at": at(0), "escalate_at": at(4),
                      "escalated_at": at(4), "deadline_at": at(8), "fresh_until": None, "closed_at": at(5),
                      "collected_at": None, "dead_lettered_at": None, "settled_at": at(7)}
        self.deliveries = [
            {"round_id": "r", "node_id": n, "state": state, "attempts": count, "payload_sha256": bytes.fromhex(wire.sha256(b"x")),
             "payload_erased_at": at(7)} for n, state, count in ((1, "acked", 1), (2, "acked", 2), (3, "exhausted", 2))]
        self.attempts = [
            {"round_id": "r", "node_id": n, "route": route, "attempt": number, "reserved_at": at(when), "finished_at": at(when + 1),
             "outcome": outcome, "resends": 0}
            for n, route, number, when, outcome in ((1, "primary", 1, 0, "ack"), (2, "primary", 1, 0, "timeout"),
                                                    (2, "backup", 1, 4, "ack"), (3, "primary", 1, 0, "http_error"),
                                                    (3, "primary", 2, 1, "http_error"))]
        self.acks = [self.ack(1, "primary", 1), self.ack(2, "backup", 5)]

    def ack(self, node_id, route, when):
        message = wire.receipt_message(wire.EnvelopeKey("d", "r", node_id, 7), wire.sha256(b"x"))
        return {"round_id": "r", "node_id": node_id, "route": route, "attempt": 1, "acked_at": at(when), "in_quorum": True,
                "late": False, "receipt": KEY.sign(message), "receipt_key": KEY.public_text, "third_party": True}

    def rounds(self):
        return [self.round]

    def deployment(self):
        return "d"

    def rows(self, sql, *_):
        return copy.deepcopy(getattr(self, sql.rsplit(".", 1)[1]))


class FakeNode:
    def __init__(self, node_id, *requests, signature_ok=True):
        self.node_id = node_id
        self._requests = [(route, type("Request", (), {
            "signature_ok": signature_ok, "key": wire.EnvelopeKey("d", "r", node_id, 7)})()) for route in requests]

    def all_requests(self):
        return self._requests


def test_the_truth_passes():
    check_invariants(World(), [FakeNode(1, "primary"), FakeNode(2, "primary", "backup"), FakeNode(3, "primary", "primary")])


LIES = {
    "I1: below quorum": lambda w: (w.round.update(quorum=3)),
    "I1: another quorum": lambda w: w.round.update(quorum_nodes=[1, 3]),
    "I1: forged receipt": lambda w: w.acks[0].update(receipt=KEY.sign(b"something else")),
    "I1: receipt of another node": lambda w: w.acks[0].update(receipt=w.acks[1]["receipt"]),
    "I1: ack after the deadline": lambda w: w.acks[1].update(acked_at=at(9)),
    "I2: twice": lambda w: w.acks.append(w.ack(1, "primary", 2)),
    "I2: not in the round": lambda w: w.round.update(node_ids=[1, 3]),
    "quorum although stalled": lambda w: w.round.update(state="stalled", closed_at=at(8)),
    "acked miscounted": lambda w: w.round.update(acked=3),
    "ack without attempt": lambda w: w.acks[0].update(attempt=2),
    "I5: above the budget": lambda w: w.round.update(retry_budget=1),
    "I5: a number left out": lambda w: w.attempts[4].update(attempt=3),
    "attempt after the deadline": lambda w: w.attempts[4].update(reserved_at=at(8.1)),
    "I7: backup without escalation": lambda w: w.round.update(escalated_at=None),
    "I7: backup before the escalation": lambda w: w.attempts[2].update(reserved_at=at(3)),
    "I7: backup of a node that had acked": lambda w: w.acks[1].update(acked_at=at(3)),
    "I7: escalated early": lambda w: w.round.update(escalated_at=at(3)),
    "complete after the deadline": lambda w: w.round.update(closed_at=at(9)),
    "I8: not erased": lambda w: w.deliveries[0].update(payload_erased_at=None),
    "settled and pending": lambda w: w.deliveries[2].update(state="pending"),
    "settled with an attempt under way": lambda w: w.attempts[0].update(finished_at=None, outcome=None),
    "acked without ack": lambda w: w.deliveries[2].update(state="acked"),
    "attempts miscounted": lambda w: w.deliveries[2].update(attempts=1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found(lie):
    world = World()
    LIES[lie](world)
    with pytest.raises(AssertionError):
        check_invariants(world)


@pytest.mark.parametrize("punctual", [True, False])
def test_a_late_stall_is_found_when_a_coordinator_was_up(punctual):
    world = World()
    world.round.update(state="stalled", closed_at=at(9.5), quorum_nodes=None, acked=1)
    world.acks = [{**world.ack(1, "primary", 1), "in_quorum": False}]
    world.deliveries[1]["state"] = "exhausted"
    if punctual:
        with pytest.raises(AssertionError, match="I6"):
            check_invariants(world)
    else:
        check_invariants(world, punctual=False)


@pytest.mark.parametrize("node", [FakeNode(3, "primary", "primary", "primary"), FakeNode(3, "primary"), FakeNode(1, "backup"),
                                  FakeNode(1, "primary", signature_ok=False)])
def test_requests_and_attempts_must_agree(node):
    with pytest.raises(AssertionError):
        check_invariants(World(), [node])


@pytest.mark.parametrize("form", [bytes.hex, lambda p: base64.b64encode(p).decode(), lambda p: p.decode("latin-1")])
def test_an_envelope_in_a_log_is_found(form):
    world = World()
    world.payloads = {("r", 1): b"0123456789abcdef+"}
    check_logs(world, "event=ready")
    with pytest.raises(AssertionError):
        check_logs(world, "event=oops " + form(world.payloads["r", 1]))


@pytest.mark.parametrize("kind", [wire.KeyPair, wire.Secret])
@pytest.mark.parametrize("form", [lambda k: k.secret_text, lambda k: k.secret_text.split("_")[1], lambda k: k.seed.hex()])
def test_a_secret_key_in_a_log_is_found(form, kind):
    key = kind()
    check_logs(World(), f"event=ready key={key.public_text}", [wire.KeyPair(), key])
    with pytest.raises(AssertionError, match="a secret key"):
        check_logs(World(), f"event=oops key={form(key)}", [wire.KeyPair(), key])
