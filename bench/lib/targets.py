"""The targets: ratios of medians of one run, never absolute figures."""

import dataclasses


@dataclasses.dataclass
class Ratio:
    what: str
    value: float
    target: float
    at_least: bool  # otherwise: at most

    def met(self, slack: float = 1) -> bool:
        return self.value >= self.target / slack if self.at_least else self.value <= self.target * slack

    def line(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{self.what}: {self.value:.2f} (target {sign} {self.target:g})"


# What is compared: (what, measurement and figure, measurement and figure to divide by, target, at least). A tuple of measurements: the best
# of them.
FLOOD = "rounds/s"
DOCUMENTED = ("graphile-worker flood, as documented", "pg-boss flood")
IDLE, HALF = "idle, a round at a time", "quorate at 50 % of its flood"
COMPARED = [
    ("flood, Ed25519 / best peer as documented", ("quorate flood", FLOOD), (DOCUMENTED, FLOOD), 2, True),
    ("flood, Ed25519 / peer tuned with prepared statements", ("quorate flood", FLOOD), ("graphile-worker flood, tuned", FLOOD), 1.5, True),
    ("idle p50 / one-row commit", (IDLE, "quorate p50 ms"), (IDLE, "commit p50 ms"), 8, False),
    ("idle p99 / one-row commit", (IDLE, "quorate p99 ms"), (IDLE, "commit p50 ms"), 25, False),
    ("idle p50 / graphile-worker's", (IDLE, "quorate p50 ms"), (IDLE, "graphile-worker p50 ms"), 0.5, False),
    ("idle p99 / graphile-worker's", (IDLE, "quorate p99 ms"), (IDLE, "graphile-worker p99 ms"), 0.5, False),
    ("p99 at half the flood rate / one-row commit", (HALF, "p99 ms"), (IDLE, "commit p50 ms"), 80, False),
    ("one of three nodes dark / healthy", ("quorate flood, one of three nodes dark", FLOOD), ("quorate flood", FLOOD), 0.95, True),
    ("two coordinators / one", ("quorate flood, two coordinators", FLOOD), ("quorate flood", FLOOD), 0.95, True),
]


def _value(medians: dict, where: tuple) -> float | None:
    names, figure = where
    found = [medians[name][figure] for name in ((names,) if isinstance(names, str) else names) if name in medians]
    return max(found) if found else None


def ratios(medians: dict) -> list[Ratio]:
    """Of whatever was measured."""
    result = []
    for what, above, below, target, at_least in COMPARED:
        value, base = _value(medians, above), _value(medians, below)
        if value is not None and base:
            result.append(Ratio(what, value / base, target, at_least))
    return result
