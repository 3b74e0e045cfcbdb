"""The targets: ratios of what one turn measured side by side, and a few figures that no machine makes larger or smaller."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Target:
    what: str
    above: tuple  # (measurement, figure); a tuple of measurements: the best of them
    below: tuple | None  # what it is divided by
    target: float
    at_least: bool  # otherwise: at most
    smoke: bool = False  # judged by a smoke run

    def names(self) -> set[str]:
        """The measurements that it needs."""
        return {name for where in (self.above, self.below) if where for name in (where[0] if isinstance(where[0], tuple) else where[:1])}


@dataclasses.dataclass
class Ratio:
    """A target and what came of it."""

    what: str
    value: float
    target: float
    at_least: bool

    def met(self, slack: float = 1) -> bool:
        return self.value >= self.target / slack if self.at_least else self.value <= self.target * slack

    def line(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{self.what}: {self.value:.2f} (target {sign} {self.target:g})"


FLOOD = "rounds/s"
PLAIN, AGAIN, HMAC = ("quorate flood", FLOOD), ("quorate flood, again", FLOOD), ("quorate flood, HMAC", FLOOD)
DOCUMENTED = (("graphile-worker flood, as documented", "pg-boss flood"), FLOOD)
TUNED = ("graphile-worker flood, tuned", FLOOD)
COMMIT = ("idle, a round at a time", "commit p50 ms")
OPEN, STEADY = "100,000 open rounds", "ten minutes of steady load"
GROWN = 1.25  # by this much the highest of one third of the time may pass that of the third before


def _idle(figure: str) -> tuple:
    return "idle, a round at a time", f"{figure} ms"


TARGETS = [
    Target("flood, Ed25519 / best peer as documented", PLAIN, DOCUMENTED, 2, True, smoke=True),
    Target("flood, Ed25519 / peer tuned with prepared statements", PLAIN, TUNED, 1.5, True, smoke=True),
    Target("flood, HMAC / best peer as documented", HMAC, DOCUMENTED, 4, True, smoke=True),
    Target("flood, HMAC / peer tuned with prepared statements", HMAC, TUNED, 3, True, smoke=True),
    Target("flood, HMAC / in-memory router", HMAC, ("in-memory router", FLOOD), 0.5, True, smoke=True),
    Target("flood, HMAC / ceiling (b)", HMAC, ("ceiling (b): 64 rounds a transaction, 2 clients", FLOOD), 0.3, True, smoke=True),
    Target("two coordinators / one", ("quorate flood, two coordinators", FLOOD), AGAIN, 0.95, True, smoke=True),
    Target("one of three nodes dark / healthy", ("quorate flood, one of three nodes dark", FLOOD), AGAIN, 0.95, True, smoke=True),
    *(Target(f"idle {keys}{share} / {beside}", _idle(f"{name} {share}"), base, target, False, smoke=smoke)
      for name, keys in (("quorate", ""), ("quorate HMAC", "HMAC "))
      for share, beside, base, target, smoke in (
          ("p50", "one-row commit", COMMIT, 8, True), ("p99", "one-row commit", COMMIT, 25, False),
          ("p50", "graphile-worker's", _idle("graphile-worker p50"), 0.5, True),
          ("p99", "graphile-worker's", _idle("graphile-worker p99"), 0.5, False))),
    Target("p99 at half the flood rate / one-row commit", ("quorate at 50 % of its flood", "p99 ms"), COMMIT, 80, False, smoke=True),
    Target("p99 of 1,000 collectors / one-row commit", ("1,000 collectors in one process, at 50 % of the flood", "p99 ms"), COMMIT, 80, False),
    Target("a million finished rounds / an empty database", ("quorate flood, a million finished rounds", "of the empty rate"), None, 0.95, True),
    Target("flood with the history / without", ("quorate flood, with and without its history", "of the rate without"), None, 0.9, True),
    Target("100,000 open rounds: bytes a waiting delivery", (OPEN, "bytes a waiting delivery"), None, 512, False),
    Target("100,000 open rounds: full scans of big tables", (OPEN, "full scans of big tables"), None, 0, False),
    Target("100,000 open rounds: plans with a full scan", (OPEN, "plans with a full scan"), None, 0, False),
    *(Target(f"ten minutes of load: growth of {what}", (STEADY, f"growth of {what}"), None, GROWN, False)
      for what in ("memory", "tables", "indexes", "dead rows")),
]


def _value(turn: dict, where: tuple) -> float | None:
    names, figure = where
    found = [turn[name][figure] for name in ((names,) if isinstance(names, str) else names) if figure in turn.get(name, {})]
    return max(found) if found else None


def turns(runs: list[dict]) -> list[dict]:
    """What each turn measured: figures by measurement."""
    found: dict[int, dict] = {}
    for run in runs:
        found.setdefault(run["turn"], {})[run["name"]] = run["figures"]
    return list(found.values())


def ratio(target: Target, runs: list[dict], best: bool = False) -> Ratio | None:
    """The median of the turns' own ratios, so that a busy minute meets both sides; or the best of them. None: no turn has both sides."""
    values = []
    for turn in turns(runs):
        above, below = _value(turn, target.above), _value(turn, target.below) if target.below else 1
        if above is not None and below:
            values.append(above / below)
    if not values:
        return None
    choose = statistics.median if not best else max if target.at_least else min
    return Ratio(target.what, choose(values), target.target, target.at_least)


def ratios(runs: list[dict]) -> list[Ratio]:
    """Of whatever was measured."""
    return [found for target in TARGETS if (found := ratio(target, runs))]
