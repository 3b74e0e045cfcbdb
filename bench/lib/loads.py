"""The loads: a flood, a fixed rate without coordinated omission, and one round at a time; each is timed from submission to wake-up."""

import contextlib
import select
import threading
import time

from .contenders import Contender

PER_COMMIT = 100
LONGEST_WAIT_S = 120


class Collector:
    """Listens, as collectors do, and remembers when it was told of which round."""

    def __init__(self, conn, channel: str):
        self.conn, self.woken = conn, {}
        conn.execute(f"LISTEN {channel}")

    def look(self, seconds: float) -> None:
        pgconn = self.conn.pgconn
        if select.select([pgconn.socket], [], [], max(0.0, seconds))[0]:
            pgconn.consume_input()
        while notification := pgconn.notifies():
            round_id, state = notification.extra.decode().rsplit(" ", 1)
            assert state == "complete", f"{round_id} is {state}: what is measured must complete"
            self.woken[round_id] = time.monotonic()

    def wait(self, count: int) -> None:
        """Until so many rounds are complete."""
        ends = time.monotonic() + LONGEST_WAIT_S
        while len(self.woken) < count:
            self.look(0.5)
            assert time.monotonic() < ends, f"only {len(self.woken)} of {count} rounds completed within {LONGEST_WAIT_S} s"


def submit_all(contender: Contender, conn, prefix: str, rounds: int, per_commit: int) -> None:
    for first in range(1, rounds + 1, per_commit):
        contender.submit(conn, prefix, first, min(first + per_commit - 1, rounds))


def flood(here, contender: Contender, rounds: int, submit=None, per_commit: int = PER_COMMIT, warm: int = 200) -> float:
    """One dealer submits as fast as it can; rounds/s up to the last wake-up. submit(prefix, rounds): instead of the contender's own way."""
    with here.connect() as dealer, here.connect() as listener:
        submit = submit or (lambda prefix, count: submit_all(contender, dealer, prefix, count, per_commit))
        collector = Collector(listener, contender.channel)
        if warm:
            submit("warm-", warm)
            collector.wait(warm)
        began = time.monotonic()
        thread = threading.Thread(target=submit, args=("flood-", rounds))
        thread.start()
        collector.wait(warm + rounds)
        took = time.monotonic() - began
        thread.join()
    return rounds / took


def quantiles(values: list[float], *shares: float) -> list[float]:
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in shares]


def fixed_rate(here, contender: Contender, rate: float, seconds: float) -> list[float]:
    """An open loop: round i is due at i / rate whatever became of the others, and is timed from then on, not from when it could be
    submitted. Those that are due by now go in one call. Returns the waits."""
    rounds, due = max(20, int(rate * seconds)), {}
    with here.connect() as dealer, here.connect() as listener:
        collector = Collector(listener, contender.channel)
        contender.submit(dealer, "warm-", 1, 20)
        collector.wait(20)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set() and len(collector.woken) < 20 + rounds:
                collector.look(0.2)

        thread = threading.Thread(target=listen)
        thread.start()
        began, sent = time.monotonic() + 0.05, 0
        while sent < rounds:
            ready = min(rounds, int((time.monotonic() - began) * rate) + 1 if time.monotonic() >= began else 0)
            if ready == sent:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
                continue
            for number in range(sent + 1, ready + 1):
                due[f"rate-{number}"] = began + (number - 1) / rate
            contender.submit(dealer, "rate-", sent + 1, ready)
            sent = ready
        thread.join(LONGEST_WAIT_S)
        over.set()
        thread.join()
        assert len(collector.woken) == 20 + rounds, f"{len(collector.woken) - 20} of {rounds} rounds completed"
    return [collector.woken[name] - moment for name, moment in due.items()]


def lone(here, contenders: list[Contender], rounds: int) -> dict[str, list[float]]:
    """One round at a time of each contender in turn, and before them a one-row commit, so that what else the machine does meets all alike:
    the waits by contender, and those for the commit."""
    waits: dict[str, list[float]] = {"commit": [], **{contender.name: [] for contender in contenders}}
    with contextlib.ExitStack() as stack:
        dealer = stack.enter_context(here.connect())
        collectors = [Collector(stack.enter_context(here.connect()), contender.channel) for contender in contenders]
        dealer.execute("CREATE TABLE public.commits (i int)")
        for number in range(1, rounds + 1):
            began = time.monotonic()
            dealer.execute("INSERT INTO public.commits VALUES (1)")
            waits["commit"].append(time.monotonic() - began)
            for contender, collector in zip(contenders, collectors):
                began = time.monotonic()
                contender.submit(dealer, "lone-", number, number)
                while f"lone-{number}" not in collector.woken:
                    collector.look(1)
                    assert time.monotonic() < began + LONGEST_WAIT_S, f"round {number} of {contender.name} never completed"
                waits[contender.name].append(collector.woken[f"lone-{number}"] - began)
                time.sleep(0.005)  # what is left to do after the wake-up is not the next one's burden
    return {name: values[rounds // 10:] for name, values in waits.items()}  # the first ones warm everything up
