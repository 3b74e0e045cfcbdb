"""What is measured: each measurement is a function of a fresh ground that returns its figures by name."""

import dataclasses
import statistics
import time
from collections.abc import Callable

from . import ceilings, contenders, crowded, loads, peers, steady, watch
from .collectors import Crowd


@dataclasses.dataclass
class Scale:
    """How much of everything: a smoke run has little of it."""

    rounds: int = 5000  # of a flood
    lone: int = 500
    seconds: float = 10  # of a fixed rate
    ceiling: float = 10  # seconds of pgbench
    dark: int = 20_000  # rounds with every node dark
    history: int = 1_000_000  # finished rounds
    open: int = 100_000  # rounds at once
    steady: float = 600  # seconds
    pairs: int = 5  # floods of a full and of an empty database


@dataclasses.dataclass
class Measurement:
    name: str
    run: Callable  # (ground, scale) -> {figure: value}
    smoke: bool = False  # part of the smoke run as well
    once: bool = False  # it takes long, and repeats within itself what it compares


def quorate_flood(**options):
    def run(here, scale):
        here.quorate(**options)
        nodes = options.get("nodes", 3)
        contender = contenders.quorate(nodes=nodes, quorum=nodes // 2 + 1)
        return {"rounds/s": loads.flood(here, contender, max(200, scale.rounds * 3 // nodes))}

    return run


def envelopes(size: int):
    def run(here, scale):
        here.quorate()
        rounds = max(20, min(scale.rounds, 64 * 1024 * 1024 // size))
        per_commit = max(1, min(loads.PER_COMMIT, 16 * 1024 * 1024 // size))
        rate = loads.flood(here, contenders.quorate(envelope=size), rounds, per_commit=per_commit, warm=min(200, rounds))
        return {"rounds/s": rate, "MiB/s": rate * 3 * size / 2**20}

    return run


def history_price(here, scale):
    """Floods with the history and without its notes in turn; what is not in the chain yet is awaited between them, outside of their time."""
    here.quorate()
    rates: dict[str, list[float]] = {"with": [], "without": []}
    with here.connect() as conn:
        for number in range(scale.pairs):
            for which in ("with", "without") if number % 2 == 0 else ("without", "with"):
                conn.execute(f"ALTER TABLE quorate_store.round {'ENABLE ALWAYS' if which == 'with' else 'DISABLE'} TRIGGER history_round")
                rates[which].append(loads.flood(here, contenders.quorate(), 2 * scale.rounds, name=f"{which}{number}"))
                crowded.wait("the chain has all", lambda: not conn.execute("SELECT count(*) FROM quorate_store.history_due").fetchone()[0], 60, 0.05)
        entries = conn.execute("SELECT count(*) FROM quorate_store.history WHERE kind = 'settled'").fetchone()[0]
    assert entries >= 2 * scale.rounds * scale.pairs, f"only {entries} rounds are in the chain"
    return {"rounds/s": statistics.median(rates["with"]), "rounds/s without": statistics.median(rates["without"]),
            "of the rate without": statistics.median(some / none for some, none in zip(rates["with"], rates["without"]))}


def fixed_rate(percent: int, **options):
    """Of a flood on the same ground a moment before: on a machine that has other things to do, one of another minute says little."""

    def run(here, scale):
        here.quorate(**options)
        rate = loads.flood(here, contenders.quorate(), scale.rounds // 2) * percent / 100
        waits, _ = loads.fixed_rate(here, contenders.quorate(), rate, scale.seconds)
        return {"rounds/s": rate, **loads.waits_ms(waits)}

    return run


def crowd(here, scale):
    """Each round has a collector of its own, and a thousand wait at any time."""
    here.quorate()
    rate = loads.flood(here, contenders.quorate(), scale.rounds // 2) / 2
    waits, collector = loads.fixed_rate(here, contenders.quorate(), rate, max(scale.seconds, 2 * Crowd.SIZE / rate), Crowd)
    with here.connect() as conn:
        ends = dict(conn.execute("SELECT round_id, extract(epoch FROM closed_at)::float8 FROM quorate.rounds WHERE round_id LIKE 'rate-%'").fetchall())
    wall = time.time() - time.monotonic()
    wakes = [collector.woken[name] + wall - ended for name, ended in ends.items()]
    return {"rounds/s": rate, "waited at once": collector.most_waiting, **loads.waits_ms(waits), **loads.waits_ms(wakes, "after the quorum ")}


def idle(here, scale):
    """All on one database and one coordinator: nodes 1 to 3 have keys, 4 to 6 share secrets with it."""
    here.nodes()
    here.nodes(first=4, symmetric=True)
    here.coordinator()
    figures = {}
    contestants = [contenders.quorate(), contenders.quorate("quorate HMAC", first_node=4), peers.graphile(here)]
    for name, waits in loads.lone(here, contestants, scale.lone).items():
        p50, p99 = loads.quantiles(waits, 0.5, 0.99)
        figures |= {f"{name} p50 ms": p50 * 1e3, f"{name} p99 ms": p99 * 1e3}
    return figures


def all_dark(here, scale):
    """Every node swallows connections, and every round stalls at its deadline."""
    seconds = max(10, scale.dark // 400)
    (coordinator,) = here.quorate(dark=(1, 2, 3), metrics=True)
    contender = contenders.quorate(deadline=f"{seconds} s")
    with watch.Watch(coordinator) as seen, here.connect() as conn:
        loads.submit_all(contender, conn, "dark-", scale.dark, loads.PER_COMMIT)
        crowded.wait("all rounds are settled", lambda: not conn.execute(
            "SELECT count(*) FROM quorate_store.round WHERE settled_at IS NULL").fetchone()[0], seconds + 120, 0.2)
        states, late, settled = conn.execute("""SELECT array_agg(DISTINCT state::text), extract(epoch FROM max(closed_at - deadline_at))::float8,
                                                       extract(epoch FROM max(settled_at - deadline_at))::float8 FROM quorate_store.round""").fetchone()
    assert states == ["stalled"], f"with every node dark, rounds became {states}"
    return {"rounds": scale.dark, "s after its deadline the last one stalled": late, "s until it was settled": settled, **seen.figures()}


def graphile_flood(tuned: bool):
    def run(here, scale):
        return {"rounds/s": loads.flood(here, peers.graphile(here, tuned), scale.rounds)}

    return run


def pgboss_flood(here, scale):
    with peers.pgboss(here) as (contender, submit):
        return {"rounds/s": loads.flood(here, contender, scale.rounds, submit)}


def router(here, scale):
    return {"rounds/s": peers.router(here, scale.rounds * 2)}


def curl(here, scale):
    return {"requests/s": peers.curl_rate(here, scale.rounds * 6)}


def ceiling(batch: bool):
    def run(here, scale):
        return {"rounds/s": ceilings.rate(here, batch, scale.ceiling)}

    return run


# In the order in which each turn runs them: what is compared stands close together.
ALL = [
    Measurement("quorate flood", quorate_flood(), smoke=True),
    Measurement("graphile-worker flood, as documented", graphile_flood(False), smoke=True),
    Measurement("quorate flood, HMAC", quorate_flood(symmetric=True), smoke=True),
    Measurement("graphile-worker flood, tuned", graphile_flood(True), smoke=True),
    Measurement("in-memory router", router, smoke=True),
    Measurement("ceiling (b): 64 rounds a transaction, 2 clients", ceiling(True), smoke=True),
    Measurement("ceiling (a): five commits a round, 16 clients", ceiling(False)),
    Measurement("pg-boss flood", pgboss_flood),
    Measurement("quorate flood, two coordinators", quorate_flood(coordinators=2), smoke=True),
    Measurement("quorate flood, again", quorate_flood(), smoke=True),
    Measurement("quorate flood, one of three nodes dark", quorate_flood(dark=(3,)), smoke=True),
    Measurement("idle, a round at a time", idle, smoke=True),
    *(Measurement(f"quorate at {percent} % of its flood", fixed_rate(percent), smoke=percent == 50) for percent in (10, 25, 50, 75, 90)),
    Measurement("quorate HMAC at 50 % of its flood", fixed_rate(50, symmetric=True)),
    Measurement("1,000 collectors in one process, at 50 % of the flood", crowd),
    Measurement("libcurl on libev, bare requests", curl),
    Measurement("quorate flood, reference custodians", quorate_flood(custodians=True)),
    Measurement("quorate flood, reference custodians, HMAC", quorate_flood(custodians=True, symmetric=True)),
    Measurement("quorate flood, n = 5", quorate_flood(nodes=5)),
    Measurement("quorate flood, n = 25", quorate_flood(nodes=25)),
    *(Measurement(f"quorate flood, envelopes of {text}", envelopes(size))
      for text, size in (("4 KiB", 4096), ("64 KiB", 65536), ("1 MiB", 2**20))),
    Measurement("quorate flood, with and without its history", history_price, once=True),
    Measurement("all nodes dark", all_dark, once=True),
    Measurement("quorate flood, a million finished rounds", crowded.million, once=True),
    Measurement("100,000 open rounds", crowded.open_rounds, once=True),
    Measurement("ten minutes of steady load", steady.steady, once=True),
]
