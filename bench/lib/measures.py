"""What is measured: each measurement is a function of a fresh ground that returns its figures by name."""

import dataclasses
from collections.abc import Callable

from . import ceilings, contenders, loads, peers


@dataclasses.dataclass
class Scale:
    """How much of everything: a smoke run has little of it."""

    rounds: int = 5000  # of a flood
    lone: int = 500
    seconds: float = 10  # of a fixed rate
    ceiling: float = 10  # seconds of pgbench


@dataclasses.dataclass
class Measurement:
    name: str
    smoke: bool  # part of the smoke run as well
    run: Callable  # (ground, scale, what was measured so far in this turn) -> {figure: value}


MS = 1e3


def quorate_flood(**options):
    def run(here, scale, _):
        here.quorate(**options)
        nodes = options.get("nodes", 3)
        contender = contenders.quorate(nodes=nodes, quorum=nodes // 2 + 1)
        return {"rounds/s": loads.flood(here, contender, max(200, scale.rounds * 3 // nodes))}

    return run


def envelopes(size: int):
    def run(here, scale, _):
        here.quorate()
        rounds = max(20, min(scale.rounds, 64 * 1024 * 1024 // size))
        per_commit = max(1, min(loads.PER_COMMIT, 16 * 1024 * 1024 // size))
        rate = loads.flood(here, contenders.quorate(envelope=size), rounds, per_commit=per_commit, warm=min(200, rounds))
        return {"rounds/s": rate, "MiB/s": rate * 3 * size / 2**20}

    return run


def fixed_rate(percent: int):
    def run(here, scale, so_far):
        here.quorate()
        rate = so_far["quorate flood"]["rounds/s"] * percent / 100
        waits = loads.fixed_rate(here, contenders.quorate(), rate, scale.seconds)
        p50, p99, p999 = loads.quantiles(waits, 0.5, 0.99, 0.999)
        return {"rounds/s": rate, "p50 ms": p50 * MS, "p99 ms": p99 * MS, "p99.9 ms": p999 * MS}

    return run


def idle(here, scale, _):
    here.quorate()
    figures = {}
    for name, waits in loads.lone(here, [contenders.quorate(), peers.graphile(here)], scale.lone).items():
        p50, p99 = loads.quantiles(waits, 0.5, 0.99)
        figures |= {f"{name} p50 ms": p50 * MS, f"{name} p99 ms": p99 * MS}
    return figures


def graphile_flood(tuned: bool):
    def run(here, scale, _):
        return {"rounds/s": loads.flood(here, peers.graphile(here, tuned), scale.rounds)}

    return run


def pgboss_flood(here, scale, _):
    with peers.pgboss(here) as (contender, submit):
        return {"rounds/s": loads.flood(here, contender, scale.rounds, submit)}


def router(here, scale, _):
    return {"rounds/s": peers.router(here, scale.rounds * 2)}


def curl(here, scale, _):
    return {"requests/s": peers.curl_rate(here, scale.rounds * 6)}


def ceiling(batch: bool):
    def run(here, scale, _):
        return {"rounds/s": ceilings.rate(here, batch, scale.ceiling)}

    return run


# In the order in which each turn runs them; a fixed rate needs the flood of its turn before it.
ALL = [
    Measurement("quorate flood", True, quorate_flood()),
    Measurement("quorate flood, two coordinators", True, quorate_flood(coordinators=2)),
    Measurement("quorate flood, one of three nodes dark", True, quorate_flood(dark=(3,))),
    Measurement("graphile-worker flood, as documented", True, graphile_flood(False)),
    Measurement("graphile-worker flood, tuned", True, graphile_flood(True)),
    Measurement("pg-boss flood", True, pgboss_flood),
    Measurement("idle, a round at a time", True, idle),
    *(Measurement(f"quorate at {percent} % of its flood", percent == 50, fixed_rate(percent)) for percent in (10, 25, 50, 75, 90)),
    Measurement("ceiling (a): five commits a round, 16 clients", False, ceiling(False)),
    Measurement("ceiling (b): 64 rounds a transaction, 2 clients", True, ceiling(True)),
    Measurement("in-memory router", True, router),
    Measurement("libcurl on libev, bare requests", False, curl),
    Measurement("quorate flood, reference custodians", False, quorate_flood(custodians=True)),
    Measurement("quorate flood, n = 5", False, quorate_flood(nodes=5)),
    Measurement("quorate flood, n = 25", False, quorate_flood(nodes=25)),
    *(Measurement(f"quorate flood, envelopes of {text}", False, envelopes(size))
      for text, size in (("4 KiB", 4096), ("64 KiB", 65536), ("1 MiB", 2**20))),
]
