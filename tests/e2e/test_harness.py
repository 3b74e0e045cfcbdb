"""The harness itself: the vectors of the protocol, and custodians that misbehave as they were told."""

import http.client
import signal
import socket
import time

import pytest
from harness import behaviours as b
from harness import tap, wire
from harness.nodes import Node
from harness.processes import Process

COORDINATOR = wire.KeyPair(bytes(range(32)))
BODY = bytes.fromhex("00112233445566778899aabbccddeeff")


@pytest.fixture
def node():
    one = Node(1, COORDINATOR.public_text, backup=True)
    yield one
    one.close()


def headers(round_id="rnd-1", node_id=1, nonce=1001, body=BODY, key=COORDINATOR, age=0):
    webhook_id = f"demo:{round_id}:{node_id}:{nonce}"
    timestamp = str(int(time.time()) - age)
    return {"content-type": "application/octet-stream", "webhook-id": webhook_id, "webhook-timestamp": timestamp,
            "webhook-signature": key.sign(wire.request_message(webhook_id, timestamp, body))}


def post(node, sent=None, body=BODY, timeout=5):
    conn = http.client.HTTPConnection("127.0.0.1", node.primary.port, timeout=timeout)
    try:
        conn.request("POST", "/", body, sent or headers())
        answer = conn.getresponse()
        return answer.status, answer.getheader("quorate-receipt"), answer
    finally:
        conn.close()


def receipt_of(node, text, **changes):
    key = wire.EnvelopeKey("demo", changes.get("round_id", "rnd-1"), changes.get("node_id", 1), changes.get("nonce", 1001))
    return wire.verify(node.key.public_text, text, wire.receipt_message(key, wire.sha256(BODY)))


def test_vectors_of_the_protocol():
    node_key = wire.KeyPair(bytes(range(32, 64)))
    assert COORDINATOR.secret_text == \
        "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA=="
    assert COORDINATOR.public_text == "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
    assert node_key.public_text == "whpk_Kay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc="
    assert COORDINATOR.sign(wire.request_message("demo:rnd-1:1:1001", "1700000000", BODY)) == \
        "v1a,4JmgDBOS2niUy74dO3DnHD4W7Yae7AbRZTDbgsz2zFV5Dbb6Ge0qB+0Jo1/FIfaanorX82ul5ic8mGa+JFMhDA=="
    assert node_key.sign(wire.receipt_message(wire.parse_webhook_id("demo:rnd-1:1:1001"), wire.sha256(BODY))) == \
        "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag=="


def test_vectors_of_the_protocol_with_a_secret():
    secret = wire.Secret(bytes(range(0x40, 0x60)))
    assert (secret.secret_text, secret.public_text) == ("whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=", "whid_ca2a4fe727faaecf")
    assert secret.sign(wire.request_message("demo:rnd-1:1:1001", "1700000000", BODY)) == "v1,axoWsEHp2aeWxmxdkQfzmbFUnOhEm8WqOY/mwj8q/6I="
    assert secret.sign(wire.receipt_message(wire.parse_webhook_id("demo:rnd-1:1:1001"), wire.sha256(BODY))) == \
        "v1,NNkz77vlKpCAlvdJG3nPXLIgIq62OcPbGtApJPLup8k="
    assert not wire.verify(secret.public_text, wire.Secret().sign(b"message"), b"message")
    assert not wire.verify("whid_0000000000000000", secret.sign(b"message"), b"message")


@pytest.mark.parametrize("text", ["", "v1a,", "v1,AAAA", "v1a," + "A" * 88, " v1a," + "A" * 86 + "==", "v1a," + "A" * 86 + "==x"])
def test_no_signature_that_is_not_one(text):
    assert not wire.verify(COORDINATOR.public_text, text, b"message")


def test_a_good_node_stores_once_and_judges(node):
    status, receipt, _ = post(node)
    assert status == 200 and receipt_of(node, receipt)
    assert post(node)[:2] == (200, receipt)
    assert post(node, headers(body=b"other"), b"other")[0] == 409
    assert post(node, headers(nonce=1002))[0] == 409
    assert post(node, headers(round_id="rnd-2", node_id=2))[0] == 404
    assert post(node, headers(round_id="rnd-2", key=wire.KeyPair()))[0] == 401
    assert post(node, headers(round_id="rnd-2", age=400))[0] == 425
    assert [r.signature_ok for r in node.requests] == [True, True, True, True, True, False, True]
    assert [r.number for r in node.requests] == list(range(7))


def test_a_dark_node_refuses_keeps_its_port_and_comes_back(node):
    node.primary.darken()
    with pytest.raises(ConnectionRefusedError):
        post(node)
    node.primary.light()
    assert post(node)[0] == 200


@pytest.mark.parametrize("behaviour, error", [
    (b.store_then_lose_answer(), http.client.RemoteDisconnected), (b.hang_up(), http.client.RemoteDisconnected),
    (b.silent(), socket.timeout), (b.garbage(), http.client.BadStatusLine), (b.huge_head(), http.client.HTTPException),
    (b.slow(2), socket.timeout)])
def test_broken_answers(node, behaviour, error):
    node.plan(behaviour)
    with pytest.raises(error):
        post(node, timeout=0.5)
    assert post(node)[0] == 200


@pytest.mark.parametrize("changes", [{"round_id": "other"}, {"node_id": 2}, {"nonce": 7}, {"body": b"other"},
                                     {"key": wire.KeyPair()}, {"deployment": "elsewhere"}])
def test_forged_receipts_do_not_verify(node, changes):
    node.plan(b.forged_receipt(**changes))
    assert not receipt_of(node, post(node)[1])


def test_scripts_run_in_order(node):
    node.plan(b.status(500), b.status(429, ("retry-after", "7")), b.redirect_to_itself(), b.no_receipt(204),
              b.informational_first(100), then=b.status(503))
    assert [post(node)[0] for _ in range(7)] == [500, 429, 302, 204, 200, 503, 503]
    assert node.requests[1].behaviour == "status(429)"


def test_bodies_without_end(node):
    node.plan(b.endless_body(), b.dribbling_body(), b.half_body())
    for _ in range(3):
        status, receipt, _ = post(node)
        assert status == 200 and receipt_of(node, receipt)


@pytest.mark.parametrize("output, status, found", [
    ("1..2\nok 1 - a\nok 2 - b\n", 0, []),
    ("1..2\nok 1 - a\nnot ok 2 - b\n", 1, ["not ok 2 - b"]),
    ("1..2\nok 1 - a\n", -11, ["ended by signal 11"]),
    ("1..2\nok 1 - a\n", 99, ["planned 2 tests but ran 1 (exit status 99)"]),
    ("1..1\nok 1 - a\n", 99, ["ended with status 99 although no test failed"]),
    ("ok 1 - a\n", 0, ["no plan (exit status 0)"]),
    ("1..0\n", 0, ["ran no test"]),
    ("", None, ["did not end within 5 s"])])
def test_what_counts_as_a_failure(output, status, found):
    assert tap.problems(tap.parse(output), status, 5, plan_required=True) == found


CONTINUED = "trap 'echo continued' CONT; trap 'echo told; end=1' TERM; echo up; until [[ $end ]]; do sleep 0.05; done; sleep 0.05"


@pytest.mark.parametrize("frozen", [False, True])
def test_only_a_frozen_program_is_thawed_to_stop(frozen):
    """SIGCONT takes back the SIGSTOP of a leak check at exit, which then waits for ever."""
    process = Process("shell", ["/bin/bash", "-c", CONTINUED])
    process.wait_line("up")
    if frozen:
        process.kill(signal.SIGSTOP)
    assert process.stop() == 0
    assert ("continued" in process.log, "told" in process.log) == (frozen, True), process.log
