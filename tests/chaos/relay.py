#!/usr/bin/python3
"""TCP relays in a process of their own, which can be cut: each stands between a program and what it talks to.

Told what to do by lines of JSON on stdin, {"name", "target", "mode", "up"}; each is answered by a line {"port"} on stdout.
`up` false: what it leads to is down, so nobody listens here either, whatever the mode is.
Modes: pass; refuse (nobody listens, what was open is reset); hole (nothing gets through, nothing is closed, what was
sent arrives once the hole is mended); deaf (requests arrive, answers are lost)."""

import asyncio
import json
import os
import socket
import struct
import sys

CHUNK = 65536


class Relay:
    """One listening port and where it leads: ["unix", path] or ["tcp", host, port]."""

    def __init__(self):
        self.target: list | None = None
        self.wanted, self.up = "pass", True
        self.mode = "refuse"
        self.server: asyncio.base_events.Server | None = None
        self.pairs: set[tuple] = set()
        self.mended = asyncio.Event()
        # Bound and never listening: keeps the port ours while it is refused.
        self.holder = self._bind(0)
        self.port = self.holder.getsockname()[1]

    @staticmethod
    def _bind(port: int) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        return sock

    async def set_mode(self, mode: str) -> None:
        was, self.mode = self.mode, mode
        if mode == "refuse" or was == "deaf":  # a stream of which bytes were lost is of no use
            self.reset()
        if mode == "refuse" and self.server is not None:
            self.server.close()
            self.server = None
        if mode != "refuse" and self.server is None:
            self.server = await asyncio.start_server(self._serve, sock=self._bind(self.port))
        if mode == "hole":
            self.mended.clear()
        else:
            self.mended.set()

    def reset(self) -> None:
        for pair in list(self.pairs):
            for writer in pair:
                sock = writer.get_extra_info("socket")
                try:
                    if sock.family == socket.AF_INET:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                except OSError:  # it is being closed already
                    pass
                writer.transport.abort()

    async def _serve(self, reader, writer) -> None:
        await self.mended.wait()
        try:
            if self.target[0] == "unix":
                there_reader, there = await asyncio.open_unix_connection(self.target[1])
            else:
                there_reader, there = await asyncio.open_connection(*self.target[1:])
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, there)
        self.pairs.add(pair)
        await asyncio.gather(self._pump(reader, there, False), self._pump(there_reader, writer, True))
        self.pairs.discard(pair)

    async def _pump(self, reader, writer, answers: bool) -> None:
        try:
            while data := await reader.read(CHUNK):
                await self.mended.wait()
                if answers and self.mode == "deaf":
                    continue
                writer.write(data)
                await writer.drain()
            await self.mended.wait()
        except OSError:
            pass
        writer.close()  # both ways: neither HTTP/1.1 nor libpq closes one only


async def main() -> None:
    relays: dict[str, Relay] = {}
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(0, "rb"))
    while line := await lines.readline():
        order = json.loads(line)
        if order["name"] not in relays:
            relays[order["name"]] = Relay()
        relay = relays[order["name"]]
        relay.target = order.get("target", relay.target)
        relay.wanted, relay.up = order.get("mode", relay.wanted), order.get("up", relay.up)
        await relay.set_mode(relay.wanted if relay.up else "refuse")
        sys.stdout.write(json.dumps({"port": relay.port}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
