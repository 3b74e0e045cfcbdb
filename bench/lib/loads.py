"""The loads: a flood, a fixed rate without coordinated omission, and one round at a time; each is timed from submission to wake-up."""

import contextlib
import threading
import time

from .collectors import LONGEST_WAIT_S, Collector
from .contenders import Contender

PER_COMMIT = 100
WARM = 20  # rounds before a fixed rate


def submit_all(contender: Contender, conn, prefix: str, rounds: int, per_commit: int) -> None:
    for first in range(1, rounds + 1, per_commit):
        contender.submit(conn, prefix, first, min(first + per_commit - 1, rounds))


def flood(here, contender: Contender, rounds: int, submit=None, per_commit: int = PER_COMMIT, warm: int = 200, name: str = "flood") -> float:
    """One dealer submits as fast as it can; rounds/s up to the last wake-up. submit(prefix, rounds): instead of the contender's own way.
    name: of its rounds, which a database takes once."""
    with here.connect() as dealer, here.connect() as listener:
        submit = submit or (lambda prefix, count: submit_all(contender, dealer, prefix, count, per_commit))
        collector = Collector(here, listener, contender.channel)
        if warm:
            submit(f"{name}-warm-", warm)
            collector.wait(warm)
        began = time.monotonic()
        thread = threading.Thread(target=submit, args=(f"{name}-", rounds))
        thread.start()
        collector.wait(warm + rounds)
        took = time.monotonic() - began
        thread.join()
    return rounds / took


def quantiles(values: list[float], *shares: float) -> list[float]:
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in shares]


def waits_ms(waits: list[float], what: str = "") -> dict[str, float]:
    """Their percentiles as figures."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "longest": 1}
    return {f"{what}{name} ms": value * 1e3 for name, value in zip(shares, quantiles(waits, *shares.values()))}


def fixed_rate(here, contender: Contender, rate: float, seconds: float, collector_of=Collector) -> tuple[list[float], Collector]:
    """An open loop: round i is due at i / rate whatever became of the others, and is timed from then on, not from when it could be
    submitted. Those that are due by now go in one call. Returns the waits, and who collected."""
    rounds = max(20, int(rate * seconds))
    names = [f"rate-{number}" for number in range(1, rounds + 1)]
    with here.connect() as dealer, here.connect() as listener:
        collector = collector_of(here, listener, contender.channel)
        contender.submit(dealer, "warm-", 1, WARM)
        collector.wait(WARM)
        over = threading.Event()
        thread = threading.Thread(target=collector.listen, args=(names, over))
        thread.start()
        began, sent = time.monotonic() + 0.05, 0
        while sent < rounds:
            ready = min(rounds, int((time.monotonic() - began) * rate) + 1 if time.monotonic() >= began else 0)
            if ready == sent:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
                continue
            contender.submit(dealer, "rate-", sent + 1, ready)
            sent = ready
        thread.join(LONGEST_WAIT_S)
        over.set()
        thread.join()
        assert len(collector.woken) == WARM + rounds, f"{len(collector.woken) - WARM} of {rounds} rounds completed"
    return [collector.woken[name] - (began + number / rate) for number, name in enumerate(names)], collector


def lone(here, contenders: list[Contender], rounds: int) -> dict[str, list[float]]:
    """One round at a time of each contender in turn, and before them a one-row commit, so that what else the machine does meets all alike:
    the waits by contender, and those for the commit."""
    waits: dict[str, list[float]] = {"commit": [], **{contender.name: [] for contender in contenders}}
    with contextlib.ExitStack() as stack:
        dealer = stack.enter_context(here.connect())
        collectors = [Collector(here, stack.enter_context(here.connect()), contender.channel) for contender in contenders]
        dealer.execute("CREATE TABLE public.commits (i int)")
        for number in range(1, rounds + 1):
            began = time.monotonic()
            dealer.execute("INSERT INTO public.commits VALUES (1)")
            waits["commit"].append(time.monotonic() - began)
            for which, (contender, collector) in enumerate(zip(contenders, collectors)):
                round_id = f"lone-{which}-{number}"
                began = time.monotonic()
                contender.submit(dealer, f"lone-{which}-", number, number)
                while round_id not in collector.woken:
                    collector.look(1)
                    assert time.monotonic() < began + LONGEST_WAIT_S, f"round {number} of {contender.name} never completed"
                waits[contender.name].append(collector.woken[round_id] - began)
                time.sleep(0.005)  # what is left to do after the wake-up is not the next one's burden
    return {name: values[rounds // 10:] for name, values in waits.items()}  # the first ones warm everything up
