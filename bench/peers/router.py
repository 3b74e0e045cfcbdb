#!/usr/bin/python3
"""The same router in memory, without a database: sends envelopes over connections that are kept, counts acks, closes rounds at their quorum.

    router.py ROUNDS URL ...       prints rounds/s; nothing survives its end, which is the point: what it saves is the price of durability"""

import asyncio
import hashlib
import os
import sys
import time
import urllib.parse

CONNECTIONS = 64  # to each node, one request at a time on each
QUORUM = 2


class Round:
    __slots__ = ("acked", "closed")

    def __init__(self) -> None:
        self.acked: set[int] = set()
        self.closed: float | None = None


class Router:
    def __init__(self, rounds: int, urls: list[str]):
        self.rounds = {f"flood-{number}": Round() for number in range(1, rounds + 1)}
        self.urls = [urllib.parse.urlsplit(url) for url in urls]
        self.queues = [self.work(node) for node in range(1, len(urls) + 1)]
        self.left, self.over = rounds * len(urls), asyncio.Event()

    def work(self, node: int):
        """What one node is to be sent, in turn."""
        for round_id in self.rounds:
            yield round_id, hashlib.sha512(os.urandom(16) + bytes([node])).digest()

    def acked(self, round_id: str, node: int) -> None:
        entry = self.rounds[round_id]
        if node not in entry.acked:
            entry.acked.add(node)
            if len(entry.acked) == QUORUM and entry.closed is None:
                entry.closed = time.monotonic()
        self.left -= 1
        if self.left == 0:
            self.over.set()


class Connection(asyncio.Protocol):
    def __init__(self, router: Router, node: int):
        self.router, self.node, self.round_id, self.answer = router, node, None, b""

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        work = next(self.router.queues[self.node - 1], None)
        if work is None:
            return
        self.round_id, envelope = work
        self.transport.write(
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\nwebhook-id: bench:%b:%d:1\r\nContent-Length: %d\r\n\r\n"
            % (self.round_id.encode(), self.node, len(envelope)) + envelope)

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if not self.answer.endswith(b"\r\n\r\n"):
            return
        if not self.answer.startswith(b"HTTP/1.1 200 "):
            sys.exit(f"node {self.node} answered {self.answer!r}")
        self.answer = b""
        self.router.acked(self.round_id, self.node)
        self.next()

    def connection_lost(self, exc) -> None:
        if not self.router.over.is_set():
            sys.exit(f"node {self.node} closed a connection: {exc}")


async def main() -> None:
    router = Router(int(sys.argv[1]), sys.argv[2:])
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    for node, url in enumerate(router.urls, 1):
        for _ in range(CONNECTIONS):
            await loop.create_connection(lambda node=node: Connection(router, node), url.hostname, url.port)
    await router.over.wait()
    last = max(entry.closed for entry in router.rounds.values())
    print(len(router.rounds) / (last - began))
    sys.stdout.flush()
    os._exit(0)  # 192 connections need no farewell


asyncio.run(main())
