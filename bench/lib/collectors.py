"""Collectors: who is woken when rounds end, and remembers when; one for all rounds, or a thousand behind one connection that listens."""

import asyncio
import select
import threading
import time

LONGEST_WAIT_S = 120


class Collector:
    """Listens, as collectors do, and remembers when it was told of which round."""

    def __init__(self, here, conn, channel: str):
        self.here, self.conn, self.woken = here, conn, {}
        conn.execute(f"LISTEN {channel}")

    def read(self) -> list[str]:
        """The rounds whose notifications have come."""
        pgconn, ended = self.conn.pgconn, []
        pgconn.consume_input()
        while notification := pgconn.notifies():
            round_id, state = notification.extra.decode().rsplit(" ", 1)
            assert state == "complete", f"{round_id} is {state}: what is measured must complete"
            ended.append(round_id)
        return ended

    def look(self, seconds: float) -> None:
        select.select([self.conn.pgconn.socket], [], [], max(0.0, seconds))
        for round_id in self.read():
            self.woken[round_id] = time.monotonic()

    def wait(self, count: int) -> None:
        """Until so many rounds are complete."""
        ends = time.monotonic() + LONGEST_WAIT_S
        while len(self.woken) < count:
            self.look(0.5)
            assert time.monotonic() < ends, f"only {len(self.woken)} of {count} rounds completed within {LONGEST_WAIT_S} s"

    def listen(self, names: list[str], over: threading.Event) -> None:
        """In a thread of its own: until all these rounds have ended, or it is over."""
        wanted = len(self.woken) + len(names)
        while len(self.woken) < wanted and not over.is_set():
            self.look(0.2)


class Crowd(Collector):
    """A thousand collectors in one process. Each waits for one round at a time, of its own, and all through one LISTEN connection; once a
    second the states of all that are waited for are read as well, since notifications are hints."""

    SIZE = 1000

    def __init__(self, here, conn, channel: str):
        super().__init__(here, conn, channel)
        self.waiting: dict[str, asyncio.Future] = {}
        self.ended: set[str] = set()
        self.most_waiting = 0

    def listen(self, names: list[str], over: threading.Event) -> None:
        asyncio.run(self._listen(names, over))

    async def _listen(self, names: list[str], over: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self.conn.pgconn.socket, lambda: self._tell(self.read()))
        everyone = asyncio.gather(*(self._collect(names[first::self.SIZE]) for first in range(self.SIZE)))
        with self.here.connect() as reader:
            while not over.is_set() and not everyone.done():
                await asyncio.wait([everyone], timeout=1)
                self._tell(await loop.run_in_executor(None, self._states, reader, list(self.waiting)))
        everyone.cancel()
        await asyncio.gather(everyone, return_exceptions=True)

    @staticmethod
    def _states(reader, waiting: list[str]) -> list[str]:
        rows = reader.execute("SELECT round_id FROM quorate.rounds WHERE round_id = ANY (%s) AND state = 'complete'", [waiting])
        return [round_id for round_id, in rows]

    def _tell(self, ended: list[str]) -> None:
        for round_id in ended:
            self.ended.add(round_id)
            future = self.waiting.pop(round_id, None)
            if future is not None and not future.done():
                future.set_result(None)

    async def _collect(self, mine: list[str]) -> None:
        for round_id in mine:
            if round_id not in self.ended:
                self.waiting[round_id] = asyncio.get_running_loop().create_future()
                self.most_waiting = max(self.most_waiting, len(self.waiting))
                await self.waiting[round_id]
            self.woken[round_id] = time.monotonic()
