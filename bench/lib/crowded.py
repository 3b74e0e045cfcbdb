"""100,000 rounds open at once, and a million finished ones: what they cost in memory and time, and that no statement reads a whole table."""

import re
import signal
import statistics
import time

from . import contenders, history, loads, watch
from .ground import ground

LONGEST_FILL_S = 600
TAKEOVER_S = 60  # no longer is watched how the heir takes the rest
EXPLAIN = {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_nested_statements": "on"}
# The tables that grow with rounds; the others have a row for each node or coordinator.
BIG = ("round", "ledger", "delivery", "envelope", "attempt", "ack")
SCANS = """SELECT relname, seq_scan, seq_tup_read, COALESCE(idx_scan, 0) FROM pg_stat_user_tables
            WHERE schemaname = 'quorate_store' AND relname = ANY (%s)"""
# Whether anybody waits for the life lock of that coordinator, so as to hear of its death.
WATCHED = """SELECT EXISTS (SELECT FROM pg_locks l JOIN quorate_store.coordinator c ON c.instance_no = l.objid
                             WHERE l.locktype = 'advisory' AND NOT l.granted AND l.classid = quorate_store.life_class() AND c.name = %s
                               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""
# When autovacuum summarizes a range of pages for a BRIN index, that range counts as a full scan of its table. Of a range that is larger than
# any table here, only a part exists, which it leaves alone.
NO_RANGES = """DO $$
DECLARE
    v_index regclass;
BEGIN
    FOR v_index IN SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam
                    WHERE a.amname = 'brin' AND c.relnamespace = 'quorate_store'::regnamespace LOOP
        EXECUTE format('ALTER INDEX %s SET (autosummarize = off, pages_per_range = 131072)', v_index);
        EXECUTE format('REINDEX INDEX %s', v_index);
    END LOOP;
END $$"""


def wait(what: str, condition, seconds: float, pause: float = 0.05) -> float:
    """The seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"not within {seconds} s: {what}"
        time.sleep(pause)
    return time.monotonic() - began


def million(here, scale) -> dict[str, float]:
    """Floods of a database full of finished rounds and of an empty one in turn: E F F E and so on, so that what else the machine does meets both."""
    with ground(here.cluster) as empty:
        empty.quorate()
        here.nodes()
        began = time.monotonic()
        history.fill(here, scale.history)
        filled = scale.history / (time.monotonic() - began)
        here.coordinator()
        rates: dict[str, list[float]] = {"full": [], "empty": []}
        for number in range(scale.pairs):
            for which in ("empty", "full") if number % 2 == 0 else ("full", "empty"):
                rates[which].append(loads.flood(here if which == "full" else empty, contenders.quorate(), scale.rounds, name=f"flood{number}"))
    return {"rounds/s": statistics.median(rates["full"]), "rounds/s empty": statistics.median(rates["empty"]),
            "of the empty rate": statistics.median(full / none for full, none in zip(rates["full"], rates["empty"])),
            "rounds/s written before": filled}


def read_plans(log: str) -> dict[str, set[str]]:
    """What auto_explain told: the plans without their costs, by statement."""
    found: dict[str, set[str]] = {}
    for entry in re.split(r"^(?=\d{4}-\d\d-\d\d )", log, flags=re.MULTILINE):
        head, _, told = entry.partition("Query Text:")
        if " plan:" not in head:
            continue
        lines = [line.removeprefix("\t") for line in told.splitlines()]
        start = next(number for number, line in enumerate(lines) if re.search(r"\(cost=\S+ rows=\d+ width=\d+\)$", line))
        text = re.sub(r"\s+", " ", " ".join(lines[:start])).strip()
        plan = re.sub(r"  \(cost=.*?\)$", "", "\n".join(lines[start:]).rstrip(), flags=re.MULTILINE)
        found.setdefault(text, set()).add(plan)
    return found


def full_scans(plans: dict[str, set[str]]) -> list[str]:
    """Statements that read a big table from its beginning to its end."""
    pattern = re.compile(rf"Seq Scan on (?:quorate_store\.)?(?:{'|'.join(BIG)})\b")
    return [text for text, variants in plans.items() if any(pattern.search(plan) for plan in variants)]


def show_plans(plans: dict[str, set[str]], scans: list[tuple]) -> str:
    parts = ["Full scans of each big table (seq_scan), the rows that they read, and scans of its indexes, while rounds stood open:"]
    parts += [f"  {name:<10} {full:>8} full, {rows:>8} rows, {by_index:>12} by index" for name, full, rows, by_index in scans]
    parts += ["", "The plans of every statement that auto_explain saw meanwhile, without their costs:"]
    for text, variants in sorted(plans.items()):
        parts += ["", "--- " + text, *(plan for plan in sorted(variants))]
    return "\n".join(parts) + "\n"


def explain(here, share: float = 0.05) -> None:
    """From now on auto_explain logs that share of the plans of new sessions."""
    with here.connect() as conn:
        for name, value in (EXPLAIN | {"auto_explain.sample_rate": str(share)}).items():
            conn.execute(f'ALTER DATABASE "{here.database}" SET {name} = {value}')


def scans_so_far(here) -> dict[str, tuple]:
    with here.connect() as conn:
        return {name: counts for name, *counts in conn.execute(SCANS, [list(BIG)]).fetchall()}


def fill(dealer, first, nodes, rounds: int, contender) -> dict[str, float]:
    """Opens them while the first coordinator takes them; the nodes have stopped answering."""
    for node in nodes:
        node.kill(signal.SIGSTOP)
    before, per_call, tenth = watch.rss(first), 500, -(-rounds // 10)
    marks = [time.monotonic()]
    for start in range(1, rounds + 1, tenth):
        last = min(start + tenth - 1, rounds)
        for number in range(start, last + 1, per_call):
            contender.submit(dealer, "open-", number, min(number + per_call - 1, last))
        marks.append(time.monotonic())
    wait("one coordinator holds all", lambda: watch.rounds_held(first) >= rounds, LONGEST_FILL_S, 0.5)
    return {"bytes a waiting delivery": (watch.rss(first) - before) / (rounds * 3),
            "rounds/s submitted, first tenth": tenth / (marks[1] - marks[0]), "rounds/s submitted, last tenth": tenth / (marks[-1] - marks[-2])}


def rest(process, seconds: float) -> dict[str, float]:
    """What it costs to wait: slots time out and are taken by the next in the queues, nothing else happens."""
    with watch.Watch(process) as seen:
        cpu, began = process.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        used = (process.cpu_seconds() - cpu) / (time.monotonic() - began)
    return {"% of a core while waiting": used * 100, "longest loop turn ms": seen.lag * 1e3}


def take_over(here, first, rounds: int) -> tuple[object, dict[str, float]]:
    heir = here.coordinator("c2", metrics=True)
    with here.connect() as conn:
        wait("the heir watches", lambda: conn.execute(WATCHED, [first.name]).fetchone()[0], 60)
    first.kill()
    began = time.monotonic()
    begun = wait("the heir holds a round", lambda: watch.rounds_held(heir) > 0, TAKEOVER_S, 0.005)
    wait("the heir holds most rounds", lambda: time.monotonic() > began + TAKEOVER_S or watch.rounds_held(heir) >= rounds, 2 * TAKEOVER_S)
    return heir, {"ms to the first round taken over": begun * 1e3, "rounds/s taken over": watch.rounds_held(heir) / (time.monotonic() - began)}


def drain(heir, nodes, rounds: int, seconds: float) -> float:
    """Rounds/s that complete once the nodes answer again."""
    for node in nodes:
        node.kill(signal.SIGCONT)
    complete = 'quorate_rounds_closed_total{state="complete"}'
    wait("a round completes", lambda: watch.metrics(heir)[complete] > 0, 60)
    done, began = watch.metrics(heir)[complete], time.monotonic()
    wait("most rounds are complete", lambda: time.monotonic() > began + seconds or watch.rounds_held(heir) < rounds / 10, 60 + seconds, 0.2)
    return (watch.metrics(heir)[complete] - done) / (time.monotonic() - began)


def open_rounds(here, scale) -> dict[str, float]:
    with here.connect() as conn:
        conn.execute(NO_RANGES)
    here.wait_alone()  # making an index anew is a scan as well
    before, log_begins = scans_so_far(here), len(here.cluster.read_log())
    explain(here)
    here.nodes()
    nodes, contender = list(here.programs.all), contenders.quorate(deadline="1 hour")
    first = here.coordinator("c1", metrics=True)
    with here.connect() as conn:  # whatever is prepared or cached while a table is empty has its say
        contender.submit(conn, "warm-", 1, loads.WARM)
        wait("the first rounds are settled", lambda: watch.metrics(first)['quorate_rounds_closed_total{state="complete"}'] == loads.WARM, 60)
        figures = fill(conn, first, nodes, scale.open, contender)
        figures |= rest(first, scale.seconds)
    heir, taken = take_over(here, first, scale.open)
    figures |= taken
    with here.connect() as dealer:
        for number in range(1, int(scale.seconds * 10)):
            contender.submit(dealer, "more-", number * 10, number * 10 + 9)
            time.sleep(0.1)
    figures["rounds/s when they answer"] = drain(heir, nodes, scale.open, scale.seconds)
    heir.kill()
    here.wait_alone()
    after = scans_so_far(here)
    plans = read_plans(here.cluster.read_log()[log_begins:])
    scans = [(name, *(now - then for now, then in zip(after[name], before[name]))) for name in BIG]
    figures["full scans of big tables"] = sum(full for _, full, _, _ in scans)
    figures["plans seen"], figures["plans with a full scan"] = len(plans), len(full_scans(plans))
    here.files["plans.txt"] = show_plans(plans, scans)
    return figures
