"""The reference custodian's answers: receipts, refusals, and what its store and its log say about them."""

import hashlib
import os
import socket
import sqlite3
import stat
import time

import pytest

from custodian_client import (BODY, COORDINATOR, KEY, NODE_1, VECTOR_RECEIPT, Client, EnvelopeKey, KeyPair, connect,
                              post, raw_request, read_answer, read_to_end, receipt_verifies, rows, run_together,
                              signed_headers)
from custodian_client import custodian, key_file, processes, start  # noqa: F401  (fixtures)
from harness.processes import fields

MIB = 1024 * 1024

# Receipts


def test_receipt_is_the_protocols_vector(custodian):
    answer = post(custodian.url, KEY, BODY)
    assert (answer.status, answer.receipt) == (200, VECTOR_RECEIPT)
    assert rows(custodian.store) == [("demo", "rnd-1", 1, 1001, BODY)]


def test_same_bytes_again_get_the_receipt_again_and_no_row(custodian):
    with Client(custodian.url) as client:
        answers = [client.send(KEY, BODY) for _ in range(3)]
    assert [(a.status, a.receipt) for a in answers] == [(200, VECTOR_RECEIPT)] * 3
    assert len(rows(custodian.store)) == 1


def test_the_timestamp_may_differ_from_attempt_to_attempt(custodian):
    now = int(time.time())
    answers = [post(custodian.url, KEY, BODY, timestamp=now + skew) for skew in (-290, 0, 290)]
    assert [a.receipt for a in answers] == [VECTOR_RECEIPT] * 3


def test_largest_numbers_and_ids(custodian):
    key = EnvelopeKey("d" * 128, "-_" * 64, 1, 2**63 - 1)
    assert receipt_verifies(post(custodian.url, key, b"x"), key, b"x")
    assert rows(custodian.store) == [(key.deployment, key.round_id, 1, 2**63 - 1, b"x")]


def test_any_path_is_taken(custodian):
    for number, path in enumerate(("/", "/backup", "/a/b?c=d", "/%00%ff", "//")):
        key = EnvelopeKey("demo", f"path-{number}", 1, 1)
        assert receipt_verifies(post(custodian.url, key, BODY, path=path), key, BODY), path


def test_every_one_of_eight_coordinators_is_believed_and_no_other(start):
    keys = [KeyPair() for _ in range(8)]
    more = [part for key in keys[1:] for part in ("--coordinator-key", key.public_text)]
    custodian = start(*more, coordinator_key=keys[0].public_text)
    for number, key in enumerate(keys):
        assert post(custodian.url, f"demo:r{number}:1:1", BODY, key=key).status == 200
    assert post(custodian.url, "demo:other:1:1", BODY, key=COORDINATOR).status == 401


def test_one_good_signature_among_several_is_enough(custodian):
    headers = signed_headers(KEY, BODY)
    good, other = headers["webhook-signature"], KeyPair().sign(b"something else")
    headers["webhook-signature"] = f"v1,c2VjcmV0 {other} {good}"
    with Client(custodian.url) as client:
        assert client.request("POST", "/", BODY, headers).receipt == VECTOR_RECEIPT


def test_header_names_in_any_case(custodian):
    headers = {name.upper(): value for name, value in signed_headers(KEY, BODY).items()}
    with Client(custodian.url) as client:
        assert client.request("POST", "/", BODY, headers).receipt == VECTOR_RECEIPT


def test_chunked_body(custodian):
    with Client(custodian.url) as client:
        answer = client.request("POST", "/", iter([BODY[:5], BODY[5:]]), signed_headers(KEY, BODY), encode_chunked=True)
    assert answer.receipt == VECTOR_RECEIPT


def test_expect_continue(custodian):
    request = raw_request(KEY, BODY).replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n", 1)
    with connect(custodian.url) as sock:
        sock.sendall(request[:-len(BODY)])
        assert sock.recv(4096).startswith(b"HTTP/1.1 100 ")
        sock.sendall(BODY)
        assert read_answer(sock).receipt == VECTOR_RECEIPT


def test_pipelined_requests_are_answered_in_order(custodian):
    keys = [EnvelopeKey("demo", f"pipe-{n}", 1, 1) for n in range(5)]
    received = b""
    with connect(custodian.url) as sock:
        sock.sendall(b"".join(raw_request(key, BODY) for key in keys))
        while received.count(b"quorate-receipt: ") < len(keys) or not received.endswith(b"\r\n\r\n"):
            piece = sock.recv(65536)
            assert piece, received
            received += piece
    receipts = [line.split(": ")[1] for line in received.decode().split("\r\n") if line.startswith("quorate-receipt")]
    assert receipts == [post(custodian.url, key, BODY).receipt for key in keys]


# Refusals


def altered(name: str, value: str | None) -> dict:
    headers = signed_headers(KEY, BODY)
    if value is None:
        del headers[name]
    else:
        headers[name] = value
    return headers


BAD_SIGNATURES = {
    "no signature": lambda: altered("webhook-signature", None),
    "no id": lambda: altered("webhook-id", None),
    "no timestamp": lambda: altered("webhook-timestamp", None),
    "another id": lambda: altered("webhook-id", "demo:rnd-2:1:1001"),
    "another nonce": lambda: altered("webhook-id", "demo:rnd-1:1:1002"),
    "another timestamp": lambda: altered("webhook-timestamp", str(int(time.time()) + 30)),
    "a timestamp that is no number": lambda: altered("webhook-timestamp", "now"),
    "a negative timestamp": lambda: signed_headers(KEY, BODY, timestamp=-1),
    "an endless timestamp": lambda: signed_headers(KEY, BODY, timestamp="9" * 400),
    "an empty signature": lambda: altered("webhook-signature", ""),
    "garbage": lambda: altered("webhook-signature", "v1a,!!!!"),
    "a shared-secret signature": lambda: altered("webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H="),
    "an unknown coordinator": lambda: signed_headers(KEY, BODY, key=KeyPair()),
    "the node's own key": lambda: signed_headers(KEY, BODY, key=NODE_1),
    "the same signature without padding": lambda: altered(
        "webhook-signature", signed_headers(KEY, BODY)["webhook-signature"].rstrip("=")),
    "another body": lambda: signed_headers(KEY, BODY + b"\0"),
    # What is not signed is not looked at: neither the id's form nor whose it is.
    "a malformed id, unsigned": lambda: altered("webhook-id", "nonsense"),
    "another node's id, unsigned": lambda: altered("webhook-id", "demo:rnd-1:2:1001"),
    "an old timestamp, unsigned": lambda: altered("webhook-timestamp", "1700000000"),
}


@pytest.mark.parametrize("case", BAD_SIGNATURES)
def test_401(custodian, case):
    with Client(custodian.url) as client:
        answer = client.request("POST", "/", BODY, BAD_SIGNATURES[case]())
        assert (answer.status, answer.receipt) == (401, None)
        assert rows(custodian.store) == []
        assert client.send(KEY, BODY).receipt == VECTOR_RECEIPT  # the connection and the round are unharmed


@pytest.mark.parametrize("skew", (-310, 310, -10**9, 10**9))
def test_425_when_the_clocks_are_more_than_five_minutes_apart(custodian, skew):
    answer = post(custodian.url, KEY, BODY, timestamp=int(time.time()) + skew)
    assert (answer.status, answer.receipt) == (425, None)
    assert rows(custodian.store) == []


def test_425_at_the_end_of_time(custodian):
    assert post(custodian.url, KEY, BODY, timestamp=2**63 - 1).status == 425


@pytest.mark.parametrize("bad", (
    "nonsense", "demo:rnd-1:1", "demo:rnd-1:1:", "demo:rnd-1:1:0", "demo:rnd-1:0:1", "demo:rnd-1:1:01",
    "demo:rnd-1:01:1", "demo:rnd-1:1:-5", "demo:rnd-1:+1:5", "demo:rnd-1:1:5:6", ":rnd-1:1:5", "demo::1:5",
    "demo:rnd 1:1:5", "demo:rnd.1:1:5", "demo:rnd-1:1:9223372036854775808", "demo:rnd-1:32768:5",
    "demo:rnd-1:4294967297:5", "d" * 129 + ":rnd-1:1:5", "demo:" + "r" * 129 + ":1:5",
    "demo:" + "r" * 3000 + ":1:5", "demo:rnd-1:1:5'; DROP TABLE share; --"))
def test_400_for_a_malformed_id(custodian, bad):
    answer = post(custodian.url, bad, BODY)
    assert (answer.status, answer.receipt) == (400, None)
    assert rows(custodian.store) == []


def test_400_for_an_empty_envelope(custodian):
    answer = post(custodian.url, KEY, b"")
    assert (answer.status, answer.receipt) == (400, None)
    assert rows(custodian.store) == []


@pytest.mark.parametrize("node_id", (2, 11, 32767))
def test_404_for_another_node(custodian, node_id):
    answer = post(custodian.url, f"demo:rnd-1:{node_id}:1001", BODY)
    assert (answer.status, answer.receipt) == (404, None)
    assert rows(custodian.store) == []


@pytest.mark.parametrize("webhook_id, body", (
    ("demo:rnd-1:1:1002", BODY), ("demo:rnd-1:1:1001", BODY[:-1]), ("demo:rnd-1:1:1001", BODY + b"\0"),
    ("demo:rnd-1:1:1002", b"other")))
def test_409_for_another_nonce_or_other_bytes(custodian, webhook_id, body):
    assert post(custodian.url, KEY, BODY).status == 200
    for _ in range(2):
        answer = post(custodian.url, webhook_id, body)
        assert (answer.status, answer.receipt) == (409, None)
    assert rows(custodian.store) == [("demo", "rnd-1", 1, 1001, BODY)]
    assert post(custodian.url, KEY, BODY).receipt == VECTOR_RECEIPT


def test_another_deployment_is_another_round(custodian):
    other = EnvelopeKey("other", "rnd-1", 1, 7)
    assert post(custodian.url, KEY, BODY).status == 200
    assert receipt_verifies(post(custodian.url, other, b"else"), other, b"else")
    assert len(rows(custodian.store)) == 2


@pytest.mark.parametrize("chunked", (False, True))
def test_413_above_the_limit(start, chunked):
    custodian = start("--max-body", "1000")
    with Client(custodian.url) as client:
        assert client.send("demo:fits:1:1", b"x" * 1000).status == 200
        body = b"x" * 1001
        sent = iter([body[:600], body[600:]]) if chunked else body
        answer = client.request("POST", "/", sent, signed_headers(KEY, body), encode_chunked=chunked)
        assert (answer.status, answer.receipt) == (413, None)
        assert client.send(KEY, BODY).receipt == VECTOR_RECEIPT  # on the same connection
    assert len(rows(custodian.store)) == 2


def test_413_for_a_large_body_reaches_a_sender_that_does_not_read_meanwhile(start):
    custodian = start("--max-body", "1000")
    assert post(custodian.url, KEY, bytes(16 * MIB)).status == 413


def test_sixteen_mib_are_the_default_limit(custodian):
    body = os.urandom(16 * MIB)
    assert receipt_verifies(post(custodian.url, KEY, body), KEY, body)
    assert post(custodian.url, "demo:rnd-2:1:1", body + b"x").status == 413
    assert rows(custodian.store, "round_id, sha256, length(payload)") == [
        ("rnd-1", hashlib.sha256(body).digest(), 16 * MIB)]


@pytest.mark.parametrize("length", (b"1000000000000", b"9223372036854775807"))
def test_413_at_once_when_an_absurd_length_is_announced(custodian, length):
    request = raw_request(KEY, BODY).replace(b"content-length: 16", b"content-length: " + length)
    with connect(custodian.url) as sock:
        sock.sendall(request)
        assert read_answer(sock).status == 413
        assert read_to_end(sock) == b""


@pytest.mark.parametrize("method", ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "post", "QUORATE"))
def test_405(custodian, method):
    with Client(custodian.url) as client:
        body = BODY if method in ("PUT", "PATCH", "post") else None
        answer = client.request(method, "/", body, signed_headers(KEY, BODY))
        assert (answer.status, answer.receipt, answer.headers["allow"]) == (405, None, "POST")
    assert rows(custodian.store) == []


# The store


def test_the_store_is_private_durable_and_marked(custodian, tmp_path):
    post(custodian.url, KEY, BODY)
    files = sorted(path.name for path in tmp_path.glob("store.db*"))
    assert files == ["store.db", "store.db-shm", "store.db-wal"]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in files} == {0o600}
    connection = sqlite3.connect(custodian.store)
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT node_id FROM meta").fetchone() == (1,)
        digest, stored_at = connection.execute("SELECT sha256, stored_at FROM share").fetchone()
    finally:
        connection.close()
    assert digest == hashlib.sha256(BODY).digest()
    assert abs(stored_at / 1e6 - time.time()) < 60


def test_a_restart_keeps_shares_and_conflicts(start):
    first = start()
    assert post(first.url, KEY, BODY).status == 200
    assert first.stop() == 0
    again = start()
    assert post(again.url, KEY, BODY).receipt == VECTOR_RECEIPT
    assert post(again.url, "demo:rnd-1:1:1002", BODY).status == 409
    assert len(rows(again.store)) == 1


def test_of_concurrent_conflicting_requests_exactly_one_wins(custodian):
    for attempt in range(5):
        def work(number: int):
            nonce, body = (number % 4) + 1, bytes([number])
            return post(custodian.url, EnvelopeKey("demo", f"race-{attempt}", 1, nonce), body)

        answers = run_together(16, work)
        winners = [number for number, answer in enumerate(answers) if answer.status == 200]
        assert len(winners) == 1, answers
        assert sorted({answer.status for answer in answers}) == [200, 409]
        held = [row for row in rows(custodian.store) if row[1] == f"race-{attempt}"]
        assert held == [("demo", f"race-{attempt}", 1, winners[0] % 4 + 1, bytes([winners[0]]))]


def test_concurrent_same_requests_are_stored_once_and_all_get_the_receipt(custodian):
    answers = run_together(16, lambda _: post(custodian.url, KEY, BODY))
    assert [(a.status, a.receipt) for a in answers] == [(200, VECTOR_RECEIPT)] * 16
    assert len(rows(custodian.store)) == 1
    custodian.stop()
    verdicts = [fields(line)["verdict"] for line in custodian.lines if "event=request " in line]
    assert sorted(verdicts) == ["held"] * 15 + ["stored"]


def test_no_receipt_before_the_commit(custodian):
    blocker = sqlite3.connect(custodian.store, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with connect(custodian.url, timeout=0.5) as sock:
        sock.sendall(raw_request(KEY, BODY))
        with pytest.raises(socket.timeout):
            sock.recv(1)
        blocker.execute("ROLLBACK")
        sock.settimeout(20)
        assert read_answer(sock).receipt == VECTOR_RECEIPT
    blocker.close()


# The log


def test_the_debug_log_has_a_line_for_each_request_and_never_an_envelope_or_a_key(custodian):
    body = b"SECRET-ENVELOPE-BYTES-" * 4
    now = int(time.time())
    post(custodian.url, "demo:logged:1:1", body, timestamp=now, path="/backup")
    post(custodian.url, "demo:logged:1:2", body, timestamp=now)
    post(custodian.url, "demo:logged:1:3", body, timestamp=now, key=KeyPair())
    post(custodian.url, 'a "quoted" id', body, timestamp=now)
    custodian.stop()
    requests = [fields(line) for line in custodian.lines if "event=request " in line]
    assert [(r["webhook_id"], r["timestamp"], r["path"], r["bytes"], r["status"], r["verdict"]) for r in requests] == [
        ("demo:logged:1:1", str(now), "/backup", str(len(body)), "200", "stored"),
        ("demo:logged:1:2", str(now), "/", str(len(body)), "409", "conflict"),
        ("demo:logged:1:3", str(now), "/", str(len(body)), "401", "bad_signature"),
        ('a "quoted" id', str(now), "/", str(len(body)), "400", "bad_id"),
    ]
    assert "SECRET" not in custodian.log and "whsk_" not in custodian.log and body.hex() not in custodian.log
    assert NODE_1.secret_text[5:] not in custodian.log


def test_the_info_log_counts_refusals_instead(start):
    custodian = start(log_level="info")
    for _ in range(3):
        post(custodian.url, KEY, BODY, key=KeyPair())
    post(custodian.url, KEY, BODY)
    post(custodian.url, KEY, b"other")
    custodian.stop()
    assert "event=request" not in custodian.log and "rnd-1" not in custodian.log
    counted: dict[str, int] = {}
    for line in custodian.lines:
        if "event=refused" in line:
            for name in ("bad_signature", "conflict"):
                counted[name] = counted.get(name, 0) + int(fields(line).get(name, 0))
    assert counted == {"bad_signature": 3, "conflict": 1}
    assert [fields(line)["stored"] for line in custodian.lines if "event=stopped" in line] == ["1"]
