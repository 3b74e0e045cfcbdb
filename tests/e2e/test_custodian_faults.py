"""The reference custodian among hostile clients, a failing disk, crashes and signals."""

import os
import random
import re
import resource
import signal
import socket
import sqlite3
import ssl
import threading
import time

import pytest

from custodian_client import (BODY, KEY, VECTOR_RECEIPT, Client, EnvelopeKey, connect, post, raw_request, read_answer,
                              read_to_end, receipt_verifies, rows, run_together)
from custodian_client import custodian, key_file, processes, start  # noqa: F401  (fixtures)

MIB = 1024 * 1024


def assert_serves(process) -> None:
    key = EnvelopeKey("health", f"r{time.monotonic_ns()}", 1, 1)
    assert receipt_verifies(post(process.url, key, BODY), key, BODY)


# Hostile clients


GARBAGE = {
    "nothing": b"",
    "one byte": b"\0",
    "zeros": bytes(5000),
    "line ends": b"\r\n" * 5000,
    "no protocol": b"HELLO\r\n\r\n",
    "a bare POST": b"POST\r\n\r\n",
    "HTTP/9.9": b"POST / HTTP/9.9\r\nhost: x\r\n\r\n",
    "no host": b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a negative length": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    "a length that is no number": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n",
    "a length above 2^64": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    "a bad chunk": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
    "a huge chunk": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n",
    "a header without colon": b"POST / HTTP/1.1\r\nhost: x\r\nnocolon\r\n\r\n",
    "zeros in a header": b"POST / HTTP/1.1\r\nhost: x\r\nwebhook-id: a\0b\r\n\r\n",
    "a huge URL": b"POST /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "a huge header": b"POST / HTTP/1.1\r\nhost: x\r\nwebhook-id: " + b"a" * 200_000 + b"\r\n\r\n",
    "many headers": b"POST / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(20_000)) + b"\r\n",
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_refused_or_cut_off(custodian, case):
    with connect(custodian.url) as sock:
        try:
            sock.sendall(GARBAGE[case])
            sock.shutdown(socket.SHUT_WR)
        except (ConnectionResetError, BrokenPipeError, OSError):
            pass  # cut off while we were still talking
        received = read_to_end(sock)
    assert received == b"" or received.split(b" ")[1][:1] in (b"4", b"5"), received[:200]
    assert b"quorate-receipt" not in received
    assert rows(custodian.store) == []
    assert_serves(custodian)


def test_random_bytes(custodian):
    chance = random.Random(7)
    for _ in range(100):
        with connect(custodian.url) as sock:
            try:
                sock.sendall(chance.randbytes(chance.randrange(1, 3000)))
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            read_to_end(sock)
    assert_serves(custodian)


def test_mangled_requests_are_never_stored(custodian):
    """A valid request with one byte changed is refused, or is still the same request."""
    chance = random.Random(11)
    request = raw_request(KEY, BODY)
    for _ in range(200):
        place = chance.randrange(len(request))
        mangled = request[:place] + bytes([request[place] ^ (1 << chance.randrange(8))]) + request[place + 1:]
        with connect(custodian.url) as sock:
            try:
                sock.sendall(mangled)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            read_to_end(sock)
    assert set(rows(custodian.store)) <= {("demo", "rnd-1", 1, 1001, BODY)}
    assert_serves(custodian)


def test_a_tls_client_is_turned_away(custodian):
    with connect(custodian.url) as sock, pytest.raises((ssl.SSLError, OSError)):
        ssl._create_unverified_context().wrap_socket(sock)  # noqa: SLF001
    assert_serves(custodian)


def test_requests_cut_at_every_byte_leave_nothing(custodian):
    request = raw_request(KEY, BODY)
    for length in range(0, len(request), 3):
        with connect(custodian.url) as sock:
            sock.sendall(request[:length])
    assert_serves(custodian)
    assert [row[0] for row in rows(custodian.store)] == ["health"]


def drip(sock: socket.socket, data: bytes, every: float) -> float:
    """Sends a byte at a time until the other side closes; how long that took."""
    started = time.monotonic()
    sock.settimeout(every)
    for number in range(len(data)):
        try:
            sock.sendall(data[number:number + 1])
            if sock.recv(4096) == b"":
                break
        except socket.timeout:
            continue
        except (ConnectionResetError, BrokenPipeError):
            break
    else:
        pytest.fail("all was sent, and nobody closed")
    return time.monotonic() - started


@pytest.mark.parametrize("part", ("request line", "headers", "body"))
def test_slow_loris_is_cut_off(start, part):
    custodian = start("--request-timeout", "1s")
    request = raw_request(KEY, bytes(1000))
    at_once = {"request line": 0, "headers": request.index(b"\r\n") + 10, "body": request.index(b"\r\n\r\n") + 10}[part]
    with connect(custodian.url) as sock:
        sock.sendall(request[:at_once])
        assert 0.9 < drip(sock, request[at_once:], every=0.05) < 6
    assert_serves(custodian)


def test_an_idle_connection_is_closed_and_a_used_one_is_not(start):
    custodian = start("--idle-timeout", "2s", "--request-timeout", "10s")
    with Client(custodian.url) as used, Client(custodian.url) as idle:
        assert idle.send(KEY, BODY).status == 200
        started = time.monotonic()
        idle.http.sock.setblocking(True)
        closed = threading.Thread(target=lambda: idle.http.sock.recv(1))
        closed.start()
        while closed.is_alive():
            assert used.send(KEY, BODY).status == 200
            assert time.monotonic() - started < 10
            closed.join(0.1)
        assert time.monotonic() - started > 1.9
        assert used.send(KEY, BODY).status == 200


def test_endless_chunked_body_is_cut_off(start):
    custodian = start("--max-body", "1000")
    head = raw_request(KEY, b"").replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    sent = 0
    with connect(custodian.url) as sock:
        sock.sendall(head)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while sent < 200 * MIB:
                sock.sendall(chunk)
                sent += len(chunk)
    assert sent < 64 * MIB
    assert_serves(custodian)


def test_bodies_under_way_are_bounded_in_memory(custodian):
    """Sixteen bodies of 16 MiB fill what all bodies together may take; the next sender is asked to come again."""
    body = bytes(16 * MIB)
    request = raw_request(KEY, body)
    waiting = []
    try:
        for _ in range(16):
            sock = connect(custodian.url)
            waiting.append(sock)
            sock.sendall(request[:-1])
        answer = post(custodian.url, "demo:more:1:1", bytes(16 * MIB))
        assert (answer.status, answer.headers["retry-after"], answer.receipt) == (503, "1", None)
        assert_peak_memory(custodian, 400 * MIB)
        waiting[0].sendall(request[-1:])
        assert read_answer(waiting[0]).status == 200
    finally:
        for sock in waiting:
            sock.close()
    deadline = time.monotonic() + 10
    while (status := post(custodian.url, "demo:more:1:1", bytes(16 * MIB)).status) == 503:
        assert time.monotonic() < deadline  # the memory of the senders that went away is free again
    assert status == 200


def assert_peak_memory(process, limit: int) -> None:
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    with open(f"/proc/{process.pid}/maps", encoding="ascii") as maps:
        if not re.search("lib[at]san", maps.read()):  # their shadow memory would count as well
            assert int(lines["VmHWM"].split()[0]) * 1024 < limit


def test_two_hundred_connections_at_once(custodian):
    clients = [Client(custodian.url) for _ in range(200)]
    keys = [EnvelopeKey("demo", f"many-{number}", 1, 1) for number in range(200)]
    for client in clients:
        client.http.connect()
    answers = run_together(200, lambda number: clients[number].send(keys[number], BODY))
    for client in clients:
        client.http.close()
    assert all(receipt_verifies(answer, key, BODY) for answer, key in zip(answers, keys, strict=True))
    assert len(rows(custodian.store)) == 200


def test_connections_above_the_limit_wait_for_a_place(start):
    custodian = start("--max-connections", "4")
    holders = [Client(custodian.url) for _ in range(4)]
    for holder in holders:
        assert holder.send(KEY, BODY).status == 200
    with connect(custodian.url, timeout=0.5) as sock:
        sock.sendall(raw_request(KEY, BODY))
        with pytest.raises(socket.timeout):
            sock.recv(1)
        holders[0].http.close()
        sock.settimeout(20)
        assert read_answer(sock).receipt == VECTOR_RECEIPT
    for holder in holders:
        holder.http.close()


def test_one_address_cannot_take_all_connections(start):
    custodian = start("--max-connections-per-peer", "4")
    holders = [Client(custodian.url) for _ in range(4)]
    for holder in holders:
        assert holder.send(KEY, BODY).status == 200
    with connect(custodian.url) as sock:
        assert read_to_end(sock) == b""
    holders[0].http.close()
    assert_serves_soon(custodian)
    for holder in holders:
        holder.http.close()


def assert_serves_soon(process) -> None:
    """The custodian learns of a closed connection a moment after we close it."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return assert_serves(process)
        except OSError:  # http.client.RemoteDisconnected is one
            assert time.monotonic() < deadline


# Crashes and a failing disk


def flood(process, prefix: str, threads: int, receipts: dict, until: threading.Event) -> list[threading.Thread]:
    """Sends distinct envelopes on `threads` connections until the custodian is gone; notes every receipt."""

    def one(number: int) -> None:
        count = 0
        try:
            with Client(process.url) as client:
                while not until.is_set():
                    key, body = EnvelopeKey("demo", f"{prefix}-{number}-{count}", 1, count + 1), os.urandom(64)
                    count += 1
                    answer = client.send(key, body)
                    if answer.status == 200:
                        receipts[key] = (answer, body)
        except OSError:
            pass

    running = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    return running


def test_sigkill_in_a_flood_loses_no_receipt(start):
    all_receipts: dict = {}
    for life in range(3):
        process = start()
        receipts: dict = {}
        until = threading.Event()
        threads = flood(process, f"life{life}", 8, receipts, until)
        deadline = time.monotonic() + 30
        while len(receipts) < 300 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill(signal.SIGKILL)
        until.set()
        for thread in threads:
            thread.join()
        assert len(receipts) >= 300
        all_receipts.update(receipts)
    held = {(row[0], row[1], row[2], row[3]): row[4] for row in rows(process.store)}
    for key, (answer, body) in all_receipts.items():
        assert held[(key.deployment, key.round_id, key.node_id, key.nonce)] == body
        assert receipt_verifies(answer, key, body)
    survivor = start()
    for key, (answer, body) in random.Random(3).sample(sorted(all_receipts.items(), key=str), 50):
        assert post(survivor.url, key, body).receipt == answer.receipt


def test_a_full_disk_gets_503_and_never_a_receipt(start):
    custodian = start()
    resource.prlimit(custodian.pid, resource.RLIMIT_FSIZE, (512 * 1024, resource.RLIM_INFINITY))
    bodies = {EnvelopeKey("demo", f"full-{number}", 1, 1): os.urandom(64 * 1024) for number in range(20)}
    with Client(custodian.url) as client:
        answers = {key: client.send(key, body) for key, body in bodies.items()}
        refused = [key for key, answer in answers.items() if answer.status == 503]
        stored = [key for key, answer in answers.items() if answer.status == 200]
        assert len(refused) > 5 and stored and len(refused) + len(stored) == 20
        assert all(answers[key].receipt is None and answers[key].headers["retry-after"] == "1" for key in refused)
        assert all(receipt_verifies(answers[key], key, bodies[key]) for key in stored)
        assert {row[1] for row in rows(custodian.store)} == {key.round_id for key in stored}
        assert custodian.log.count("event=store_failed") == 1  # a lasting condition is said once

        resource.prlimit(custodian.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert all(receipt_verifies(client.send(key, bodies[key]), key, bodies[key]) for key in refused)
    custodian.wait_line("event=store_recovered")
    assert len(rows(custodian.store)) == 20


def test_a_store_that_lost_its_name_gets_503_until_it_is_back(start):
    """What is written to it would be gone with the process; and another file in its place is not the one that is written to."""
    custodian = start()
    moved = custodian.store.with_name("moved.db")
    keys = [EnvelopeKey("demo", f"moved-{number}", 1, 1) for number in range(3)]
    with Client(custodian.url) as client:
        assert client.send(keys[0], BODY).status == 200
        custodian.store.rename(moved)
        assert [(answer.status, answer.receipt) for answer in (client.send(keys[1], BODY), client.send(keys[0], BODY))] == [(503, None)] * 2
        custodian.store.write_bytes(b"")
        assert client.send(keys[2], BODY).status == 503
        assert custodian.log.count("event=store_failed") == 1 and "moved, deleted or replaced" in custodian.log
        moved.replace(custodian.store)
        assert all(receipt_verifies(client.send(key, BODY), key, BODY) for key in keys)
    custodian.wait_line("event=store_recovered")
    assert {row[1] for row in rows(custodian.store)} == {key.round_id for key in keys}


# Signals


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_a_signal_ends_it_at_once_with_0_despite_idle_connections(start, number):
    custodian = start()
    with Client(custodian.url) as used, connect(custodian.url) as fresh:
        assert used.send(KEY, BODY).status == 200
        started = time.monotonic()
        custodian.kill(number)
        assert read_to_end(fresh) == b""
        assert custodian.popen.wait(10) == 0
        assert time.monotonic() - started < 5
        with pytest.raises(ConnectionRefusedError):
            connect(custodian.url)
    assert "event=stopped" in custodian.wait_line("event=stopped")
    assert not os.path.exists(f"{custodian.store}-wal")  # folded into the store


@pytest.fixture
def write_lock(custodian):
    """Holds the store's write lock, so that a request stays under way as long as the test likes."""
    blocker = sqlite3.connect(custodian.store, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    yield blocker
    blocker.close()


def wait_until_read(process) -> None:
    """Returns when the custodian has read what was sent before, since it answers a later request."""
    with Client(process.url) as probe:
        for _ in range(2):
            assert probe.request("GET", "/", None, {}).status == 405


def wait_until_it_takes_no_connection(process) -> None:
    with pytest.raises(ConnectionRefusedError):
        while True:
            try:
                connect(process.url).close()
            except ConnectionResetError:
                pass  # we were in the queue when the socket was closed


def test_a_request_under_way_is_finished_after_sigterm(custodian, write_lock):
    with connect(custodian.url) as sock:
        sock.sendall(raw_request(KEY, BODY))
        wait_until_read(custodian)
        custodian.kill(signal.SIGTERM)
        custodian.wait_line("event=stopping")
        wait_until_it_takes_no_connection(custodian)
        assert custodian.running()
        write_lock.execute("ROLLBACK")
        assert read_answer(sock).receipt == VECTOR_RECEIPT
        assert read_to_end(sock) == b""
    assert custodian.popen.wait(10) == 0
    assert rows(custodian.store) == [("demo", "rnd-1", 1, 1001, BODY)]


def test_more_signals_change_nothing(custodian, write_lock):
    with connect(custodian.url) as sock:
        sock.sendall(raw_request(KEY, BODY))
        wait_until_read(custodian)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            custodian.kill(number)
        wait_until_it_takes_no_connection(custodian)
        custodian.kill(signal.SIGTERM)
        write_lock.execute("ROLLBACK")
        assert read_answer(sock).receipt == VECTOR_RECEIPT
    assert custodian.popen.wait(10) == 0


def test_a_client_that_never_finishes_does_not_keep_it_from_ending(start):
    custodian = start("--request-timeout", "1s")
    request = raw_request(KEY, BODY)
    with connect(custodian.url) as sock:
        sock.sendall(request[:-1])
        wait_until_read(custodian)
        started = time.monotonic()
        custodian.kill(signal.SIGTERM)
        assert read_to_end(sock) == b""
        assert custodian.popen.wait(20) == 0
        assert time.monotonic() - started < 8


def test_sigterm_in_a_flood_loses_no_receipt(start):
    process = start(log_level="info")
    receipts: dict = {}
    until = threading.Event()
    threads = flood(process, "flood", 8, receipts, until)
    deadline = time.monotonic() + 30
    while len(receipts) < 200 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.stop() == 0
    until.set()
    for thread in threads:
        thread.join()
    held = {(row[1], row[3]): row[4] for row in rows(process.store)}
    assert len(receipts) >= 200
    assert all(held[(key.round_id, key.nonce)] == body for key, (_, body) in receipts.items())
