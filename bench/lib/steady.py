"""Minutes of steady load: whether memory, indexes and dead rows stay what they are when history is pruned as it would be."""

import threading
import time

from . import contenders, loads, plot, watch

PRUNES = 180  # so often in all
PRUNES_A_SAMPLE = 3
KEPT = 0.1  # of the time: how long ended rounds are kept
SHARE = 0.5  # of the flood's rate

# The ledger and the history are permanent, and grow with every round; all other tables are pruned.
SIZES = """SELECT sum(pg_table_size(t.oid)) FILTER (WHERE NOT t.permanent), sum(pg_indexes_size(t.oid)) FILTER (WHERE NOT t.permanent),
                  sum(pg_total_relation_size(t.oid)) FILTER (WHERE t.permanent), sum(t.n_dead_tup), sum(t.n_live_tup)
             FROM (SELECT s.relid AS oid, s.relname IN ('ledger', 'history', 'checkpoint') AS permanent, s.n_dead_tup, s.n_live_tup
                     FROM pg_stat_user_tables s WHERE s.schemaname = 'quorate_store') t"""
MIB = 2**20
COLUMNS = {"coordinator MiB": MIB, "tables MiB": MIB, "indexes MiB": MIB, "permanent MiB": MIB, "dead rows": 1, "live rows": 1}
# The highest of the last third against the highest of the second: the first one fills the window of what is kept.
FLAT = {"coordinator MiB": "memory", "tables MiB": "tables", "indexes MiB": "indexes", "dead rows": "dead rows"}


class Sampler:
    """Looks at everything at regular intervals, and prunes between."""

    def __init__(self, here, coordinator, seconds: float):
        self.here, self.coordinator, self.seconds = here, coordinator, seconds
        self.samples: list[list[float]] = []  # the seconds, then COLUMNS
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        began, ticks = time.monotonic(), 0
        with self.here.connect() as conn:
            while not self._over.wait(max(0.0, began + ticks * self.seconds / PRUNES - time.monotonic())):
                if ticks % PRUNES_A_SAMPLE == 0:
                    values = [watch.rss(self.coordinator), *conn.execute(SIZES).fetchone()]
                    self.samples.append([time.monotonic() - began, *(float(value or 0) / unit for value, unit in zip(values, COLUMNS.values()))])
                conn.execute("SELECT quorate.prune_rounds(clock_timestamp() - %s * interval '1 s')", [self.seconds * KEPT])
                ticks += 1

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()


def growth(samples: list[list[float]], column: int) -> float:
    """The highest of the last third by the highest of the second."""
    third = len(samples) // 3
    earlier, later = (max(sample[column] for sample in part) for part in (samples[third:-third], samples[-third:]))
    return later / earlier if earlier else float(later > 0) + 1


def steady(here, scale) -> dict[str, float]:
    coordinator, *_ = here.quorate()
    contender = contenders.quorate()
    rate = SHARE * loads.flood(here, contender, scale.rounds // 2, name="before")
    with Sampler(here, coordinator, scale.steady) as sampler:
        waits, _ = loads.fixed_rate(here, contender, rate, scale.steady)
    samples, names = sampler.samples, ["seconds", *COLUMNS]
    here.files["steady.csv"] = "\n".join([",".join(names), *(",".join(f"{value:.2f}" for value in sample) for sample in samples)]) + "\n"
    here.files["steady.svg"] = plot.lines("steady load: each by its highest", "seconds", {
        f"{name}, highest {max(sample[number] for sample in samples):,.0f}":
        [(sample[0], sample[number] / (max(other[number] for other in samples) or 1)) for sample in samples]
        for number, name in enumerate(names) if number})
    return {"rounds/s": rate, **loads.waits_ms(waits),
            **{f"growth of {what}": growth(samples, names.index(name)) for name, what in FLAT.items()},
            **{f"{name} at the end": samples[-1][number] for number, name in enumerate(names) if number}}
