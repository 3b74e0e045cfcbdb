"""Draws the schedule of faults from the seed: what befalls whom, when and for how long. The same seed, the same schedule.

Faults of one lane follow each other, those of different lanes overlap as they fall."""

import dataclasses
import random

COORDINATORS = ("c1", "c2", "c3")
BEHIND_RELAY = ("c1", "c2")  # c3 talks to PostgreSQL directly
REAL = ("1", "2", "3", "4", "1-backup", "2-backup")
ODD = ("5", "6")  # nodes of the harness, which misbehave


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    shortest: float
    longest: float
    targets: tuple = ("",)
    settles: float = 0.0  # how long the next fault of the lane waits besides


# A lane: the least and the most between the end of a fault and the next one, and its kinds. How often a kind stands there says how
# often it is drawn.
LANES = {
    "coordinators": (1.0, 3.5, [
        Kind("coordinator-kill", 0.0, 2.5, COORDINATORS), Kind("coordinator-kill", 0.0, 0.2, COORDINATORS),
        Kind("coordinator-freeze", 0.2, 1.8, COORDINATORS), Kind("coordinator-freeze", 2.5, 6.0, COORDINATORS),
        Kind("coordinator-term", 0.0, 1.0, COORDINATORS), Kind("coordinator-term-twice", 0.0, 0.5, COORDINATORS),
        Kind("coordinators-all-killed", 0.0, 2.0)]),
    "database": (3.0, 7.0, [
        Kind("backends-terminated", 0.0, 0.0), Kind("backends-cancelled", 0.0, 0.0), Kind("one-backend-killed", 0.0, 0.0, settles=1.0),
        Kind("postgres-restart-fast", 0.0, 1.5), Kind("postgres-restart-immediate", 0.0, 1.5),
        Kind("standby-stopped", 0.5, 5.0), Kind("failover-rewind", 0.0, 0.5, settles=4.0),
        Kind("failover-basebackup", 0.0, 0.5, settles=4.0)]),
    "custodians": (0.3, 1.5, [
        Kind("custodian-kill", 0.0, 2.0, REAL), Kind("custodian-freeze", 0.2, 3.0, REAL), Kind("custodian-term", 0.0, 1.0, REAL),
        Kind("node-misbehaves", 0.5, 3.0, ODD), Kind("node-misbehaves", 0.5, 3.0, ODD), Kind("node-dark", 0.5, 3.0, ODD)]),
    "network": (0.5, 2.5, [
        Kind("custodian-refuses", 0.3, 2.5, REAL), Kind("custodian-hole", 0.3, 2.5, REAL), Kind("custodian-deaf", 0.3, 2.5, REAL),
        Kind("custodian-reset", 0.0, 0.0, REAL), Kind("database-cut", 0.2, 4.0, BEHIND_RELAY), Kind("database-hole", 0.2, 6.0, BEHIND_RELAY),
        Kind("database-deaf", 0.2, 4.0, BEHIND_RELAY), Kind("database-reset", 0.0, 0.0, BEHIND_RELAY)]),
    "clients": (0.5, 2.5, [
        Kind("rounds-locked", 0.2, 2.5), Kind("rounds-locked", 0.2, 1.0), Kind("tables-locked", 0.1, 0.6),
        Kind("dealer-dawdles", 0.3, 2.0), Kind("dealer-rolls-back", 0.3, 2.0)]),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    at: float  # seconds from the start
    lane: str
    kind: str
    target: str
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:7.2f} s  {self.kind}{' ' + self.target if self.target else ''}{f', {self.lasts:.2f} s' if self.lasts else ''}"


def draw(seed: int, seconds: float) -> dict[str, list[Fault]]:
    """The faults of each lane in order; a lane goes through its whole deck before it shuffles it again."""
    lanes = {}
    for lane, (least_gap, most_gap, kinds) in LANES.items():
        dice, deck, faults, at = random.Random(f"{seed} {lane}"), [], [], 1.0
        while True:
            at += dice.uniform(least_gap, most_gap)
            if not deck:
                deck = dice.sample(kinds, len(kinds))
            kind = deck.pop()
            fault = Fault(round(at, 3), lane, kind.name, dice.choice(kind.targets), round(dice.uniform(kind.shortest, kind.longest), 3))
            at += fault.lasts + kind.settles
            if at > seconds:
                break
            faults.append(fault)
        lanes[lane] = faults
    return lanes


def kinds() -> list[str]:
    return list(dict.fromkeys(kind.name for _, _, deck in LANES.values() for kind in deck))
