"""Starts a reference custodian and talks to it as a coordinator would, or as nobody should."""

import http.client
import socket
import sqlite3
import threading
import time
import urllib.parse

import pytest

from harness import wire
from harness.processes import Processes
from harness.wire import EnvelopeKey, KeyPair

TIMEOUT_S = 20

# The test vector of the delivery protocol.
COORDINATOR = KeyPair(bytes(range(0x00, 0x20)))
NODE_1 = KeyPair(bytes(range(0x20, 0x40)))
KEY = EnvelopeKey("demo", "rnd-1", 1, 1001)
BODY = bytes.fromhex("00112233445566778899aabbccddeeff")
VECTOR_RECEIPT = "v1a,ZiTkBT4x2cEkDsufEagKW2YcOmrILdNwLrQHNSOV8PtyT019QShVrt9gIVMgZ2fQvlIrfA8kPHEtKPjQl3W8Ag=="


@pytest.fixture
def processes(tmp_path):
    started = Processes(tmp_path)
    yield started
    started.close()


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "node.key"
    path.write_text(NODE_1.secret_text + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def start(processes, key_file, tmp_path):
    """Starts the custodian of node 1 with further options; all starts of a test share one store."""

    def start_one(*options, coordinator_key: str = COORDINATOR.public_text, log_level: str = "debug"):
        store = tmp_path / "store.db"
        process = processes.custodian(1, key_file, coordinator_key, store, ("--log-level", log_level, *options))
        process.store = store
        return process

    return start_one


@pytest.fixture
def custodian(start):
    return start()


class Answer:
    """A response, read to its end."""

    def __init__(self, response: http.client.HTTPResponse):
        self.status, self.headers, self.body = response.status, response.headers, response.read()
        self.receipt = self.headers.get("quorate-receipt")

    def __repr__(self) -> str:
        return f"<{self.status} receipt={self.receipt} {self.body!r}>"


def signed_headers(webhook_id, body: bytes, key: KeyPair = COORDINATOR, timestamp: int | str | None = None) -> dict:
    stamp = str(int(time.time()) if timestamp is None else timestamp)
    return {
        "content-type": "application/octet-stream",
        "webhook-id": str(webhook_id),
        "webhook-timestamp": stamp,
        "webhook-signature": key.sign(wire.request_message(str(webhook_id), stamp, body)),
    }


def raw_request(webhook_id, body: bytes, path: str = "/", **more) -> bytes:
    """A whole request as bytes, for tests that decide when which of them is sent."""
    headers = {"host": "node", "content-length": str(len(body)), **signed_headers(webhook_id, body, **more)}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def receipt_verifies(answer: Answer, key: EnvelopeKey, body: bytes, node: KeyPair = NODE_1) -> bool:
    return answer.receipt is not None and wire.verify(
        node.public_text, answer.receipt, wire.receipt_message(key, wire.sha256(body)))


class Client:
    """One keep-alive connection to a custodian."""

    def __init__(self, url: str, timeout: float = TIMEOUT_S):
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port)
        self.http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.http.close()

    def send(self, webhook_id, body: bytes, path: str = "/", **more) -> Answer:
        return self.request("POST", path, body, signed_headers(webhook_id, body, **more))

    def request(self, method: str, path: str, body, headers: dict, **more) -> Answer:
        self.http.request(method, path, body, headers, **more)
        return Answer(self.http.getresponse())


def post(url: str, webhook_id, body: bytes, **more) -> Answer:
    """One signed request on a connection of its own."""
    with Client(url) as client:
        return client.send(webhook_id, body, **more)


def connect(url: str, timeout: float = TIMEOUT_S) -> socket.socket:
    parts = urllib.parse.urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=timeout)


def read_answer(sock: socket.socket) -> Answer:
    response = http.client.HTTPResponse(sock)
    response.begin()
    return Answer(response)


def read_to_end(sock: socket.socket) -> bytes:
    """All that comes until the other side closes; a reset counts as closing."""
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return received


def rows(store, columns: str = "deployment, round_id, node_id, nonce, payload") -> list[tuple]:
    """The shares as another process sees them, with the custodian running or not."""
    connection = sqlite3.connect(store, timeout=10)
    try:
        return connection.execute(f"SELECT {columns} FROM share ORDER BY deployment, round_id, node_id").fetchall()
    finally:
        connection.close()


def run_together(count: int, work) -> list:
    """Runs work(number) in `count` threads that all start at the same moment; their results in order."""
    results: list = [None] * count
    barrier = threading.Barrier(count)

    def one(number: int) -> None:
        barrier.wait()
        results[number] = work(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
