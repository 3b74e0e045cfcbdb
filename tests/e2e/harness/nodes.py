"""A custodian in Python that does what a test tells it, and remembers every request to the byte."""

import collections
import dataclasses
import select
import socket
import ssl
import threading
import time

from . import behaviours, wire

MAX_TIMESTAMP_SKEW_S = 300


@dataclasses.dataclass
class Request:
    """One request as it came."""

    number: int  # order of arrival at this endpoint, from 0
    at: float  # time.monotonic()
    wall: float  # time.time()
    connection: int  # which connection brought it, from 0
    method: str
    path: str
    headers: list[tuple[str, str]]  # lower-case names, in the order they came
    body_sha256: str
    body_size: int
    key: wire.EnvelopeKey | None  # of webhook-id; None when that is no valid one
    signer: "wire.KeyPair | wire.Secret | None"  # what signs the receipt; None when the request is not signed as it should be
    behaviour: str = ""
    peer: str = ""  # the address it came from

    @property
    def signature_ok(self) -> bool:
        return self.signer is not None

    def header(self, name: str) -> str | None:
        """The only value of a header; None when absent; fails when it came twice."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None


class Exchange:
    """One request and the means to answer it."""

    def __init__(self, endpoint: "Endpoint", sock: socket.socket, request: Request):
        self.endpoint, self.sock, self.request = endpoint, sock, request
        self.open = True

    def send(self, data: bytes) -> bool:
        """False when the peer has gone."""
        try:
            self.sock.sendall(data)
            return True
        except OSError:
            self.open = False
            return False

    def send_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers)]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def answer(self, status: int, headers: list[tuple[str, str]] | None = None, body: bytes = b"") -> None:
        length = [] if status == 204 else [("content-length", str(len(body)))]
        head = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in [*(headers or []), *length])]
        self.send(("\r\n".join(head) + "\r\n\r\n").encode("latin-1") + body)

    def close(self) -> None:
        self.open = False

    def receipt(self, key: wire.KeyPair | wire.Secret | None = None, body: bytes | None = None, **changes) -> str:
        """The receipt for this request, or one that differs in what is given."""
        about = dataclasses.replace(self.request.key, **changes)
        digest = self.request.body_sha256 if body is None else wire.sha256(body)
        return (key or self.request.signer or self.endpoint.node.key).sign(wire.receipt_message(about, digest))

    def judge_and_store(self) -> int | None:
        """Stores the envelope as the protocol says; the status of a refusal, or None when it is held now."""
        request, node = self.request, self.endpoint.node
        if request.key is None or not request.signature_ok:
            return 401
        if abs(time.time() - int(request.header("webhook-timestamp"))) > MAX_TIMESTAMP_SKEW_S:
            return 425
        if request.key.node_id != node.node_id:
            return 404
        return None if node.store(request.key, request.body_sha256) else 409

    def wait_for_peer_to_leave(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.endpoint.closing.is_set():
            if select.select([self.sock], [], [], 0.05)[0]:
                try:
                    if not self.sock.recv(65536):
                        break
                except OSError:
                    break
        self.close()


class Endpoint:
    """One URL of a node. `script`: behaviours for the next requests, in order; then `default`."""

    def __init__(self, node: "Node", dark: bool = False, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None):
        self.node, self.host, self.tls = node, host, tls
        self.name = host  # what its URL calls the host
        self.handshakes_failed = 0
        self.script: collections.deque[behaviours.Behaviour] = collections.deque()
        self.default: behaviours.Behaviour = behaviours.ok()
        self.requests: list[Request] = []
        self.connections = 0
        self.endless_bytes = 0
        self.closing = threading.Event()
        self._news = threading.Condition()
        self._open_sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        # Bound and never listening: keeps the port ours while nobody listens on it, so that connections are refused.
        self._holder = self._bind(0)
        self.port = self._holder.getsockname()[1]
        if not dark:
            self.light()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.name}:{self.port}/"

    def _bind(self, port: int) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.host, port))
        return sock

    def light(self) -> None:
        """Listens (again)."""
        self._listener = self._bind(self.port)
        self._listener.listen(256)
        self._start(self._accept, self._listener)

    def darken(self) -> None:
        """From now on connections are refused; those there are break."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._news:
            for sock in self._open_sockets:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def plan(self, *script: behaviours.Behaviour, then: behaviours.Behaviour | None = None) -> "Endpoint":
        """Sets the script, and what follows it."""
        self.script.extend(script)
        self.default = then or self.default
        return self

    def wait_requests(self, count: int, timeout: float = 20) -> list[Request]:
        """Waits until so many requests have come in all."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.requests) >= count, timeout), \
                f"node {self.node.node_id}: {len(self.requests)} requests within {timeout} s, not {count}"
            return list(self.requests)

    def close(self) -> None:
        self.closing.set()
        self.darken()
        self._holder.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target, *arguments) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number, self.connections = self.connections, self.connections + 1
            with self._news:
                self._open_sockets.add(sock)
            self._start(self._serve, sock, number)

    def _handshake(self, sock: socket.socket) -> socket.socket:
        try:
            wrapped = self.tls.wrap_socket(sock, server_side=True)
        except OSError:
            with self._news:
                self.handshakes_failed += 1
            raise
        with self._news:
            self._open_sockets.discard(sock)
            self._open_sockets.add(wrapped)
        return wrapped

    def _serve(self, sock: socket.socket, connection: int) -> None:
        try:
            if self.tls:
                sock = self._handshake(sock)
            reader, peer = sock.makefile("rb"), sock.getpeername()[0]
            while not self.closing.is_set():
                request = self._read(reader, connection)
                if request is None:
                    break
                request.peer = peer
                behaviour = self._note(request)
                exchange = Exchange(self, sock, request)
                behaviour(exchange)
                if not exchange.open:
                    break
        except (OSError, ValueError):
            pass  # the peer has gone or speaks no HTTP; the test sees it by what it awaits
        finally:
            with self._news:
                self._open_sockets.discard(sock)
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()

    def _note(self, request: Request) -> behaviours.Behaviour:
        if self.node.witness is not None:
            self.node.witness(self, request)
        with self._news:
            request.number = len(self.requests)
            behaviour = self.script.popleft() if self.script else self.default
            request.behaviour = behaviour.__name__
            self.requests.append(request)
            self._news.notify_all()
        return behaviour

    def _read(self, reader, connection: int) -> Request | None:
        start = reader.readline(65536)
        if not start:
            return None
        method, path, _version = start.decode("latin-1").split()
        headers = []
        while (line := reader.readline(65536)) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        body = reader.read(int(dict(headers).get("content-length", 0)))
        request = Request(0, time.monotonic(), time.time(), connection, method, path, headers, wire.sha256(body),
                          len(body), wire.parse_webhook_id(dict(headers).get("webhook-id", "")), None)
        message = wire.request_message(dict(headers).get("webhook-id", ""), dict(headers).get("webhook-timestamp", ""), body)
        request.signer = self.node.signer(dict(headers).get("webhook-signature", ""), message)
        return request


class Node:
    """A custodian: one key, one store, a primary and perhaps a backup endpoint."""

    def __init__(self, node_id: int, coordinator_key: str, backup: bool = False, dark: bool = False,
                 dark_backup: bool = False, host: str = "127.0.0.1", symmetric: bool = False,
                 tls: ssl.SSLContext | None = None):
        self.node_id, self.coordinator_key = node_id, coordinator_key
        self.key = wire.Secret() if symmetric else wire.KeyPair()
        self.secrets = [self.key] if symmetric else []  # those it takes
        self.held: dict[tuple[str, str], tuple[int, str]] = {}  # (deployment, round_id) -> (nonce, sha256)
        self._lock = threading.Lock()
        self.witness = None  # called as witness(endpoint, request) before a request is answered
        self.primary = Endpoint(self, dark, host, tls)
        self.backup = Endpoint(self, dark_backup, host, tls) if backup else None

    def signer(self, signature_text: str, message: bytes) -> wire.KeyPair | wire.Secret | None:
        """What signs the receipt for a request of which one signature is good; None when none is."""
        signatures = signature_text.split(" ")
        if not self.secrets:
            return self.key if any(wire.verify(self.coordinator_key, each, message) for each in signatures) else None
        return next((secret for secret in self.secrets for each in signatures if wire.verify(secret.public_text, each, message)), None)

    def store(self, key: wire.EnvelopeKey, body_sha256: str) -> bool:
        """Upserts; False when other bytes or another nonce are held for the round."""
        with self._lock:
            return self.held.setdefault((key.deployment, key.round_id), (key.nonce, body_sha256)) == (key.nonce, body_sha256)

    @property
    def requests(self) -> list[Request]:
        return self.primary.requests

    def all_requests(self) -> list[tuple[str, Request]]:
        backup = [("backup", r) for r in self.backup.requests] if self.backup else []
        return [("primary", r) for r in self.primary.requests] + backup

    def plan(self, *script: behaviours.Behaviour, then: behaviours.Behaviour | None = None) -> "Node":
        self.primary.plan(*script, then=then)
        return self

    def close(self) -> None:
        self.primary.close()
        if self.backup:
            self.backup.close()
