"""The benchmark measures what it says: its node does a custodian's work, a slow answer is in the waits, and a missed target is told."""

import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from harness import wire
from harness.build import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))

from lib import ceilings, contenders, crowded, history, loads, measures, plot, report, steady, targets  # noqa: E402
from lib.collectors import Crowd  # noqa: E402
from lib.ground import ground  # noqa: E402

BODY = bytes(range(64))


@pytest.fixture
def here(cluster):
    with ground(cluster) as fresh:
        yield fresh


def post(url: str, body: bytes, headers: dict[str, str]):
    """(status, receipt)"""
    connection = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=20)
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.getheader("quorate-receipt")


def test_bench_node_verifies_keeps_and_signs(here, tmp_path):
    coordinator, own = wire.KeyPair(), wire.KeyPair()
    key_file = tmp_path / "node.key"
    key_file.touch(mode=0o600)
    key_file.write_text(own.secret_text + "\n")
    url = here.bench_node(1, "--key", str(key_file), "--coordinator-key", coordinator.public_text)

    def send(body: bytes, signer: wire.KeyPair, node: int = 1):
        webhook_id, timestamp = f"test:r-1:{node}:7", str(int(time.time()))
        return post(url, body, {"webhook-id": webhook_id, "webhook-timestamp": timestamp,
                                "webhook-signature": signer.sign(wire.request_message(webhook_id, timestamp, body))})

    status, receipt = send(BODY, coordinator)
    assert status == 200
    assert wire.verify(own.public_text, receipt, wire.receipt_message(wire.EnvelopeKey("test", "r-1", 1, 7), wire.sha256(BODY)))
    assert send(BODY, coordinator) == (200, receipt)
    assert send(BODY + b"x", coordinator)[0] == 409
    assert send(BODY, wire.KeyPair()) == (401, None)
    assert send(BODY, coordinator, node=2) == (404, None)


def test_bench_node_with_a_secret(here, tmp_path):
    shared = wire.Secret()
    file = tmp_path / "node.secret"
    file.touch(mode=0o600)
    file.write_text(shared.secret_text + "\n")
    url = here.bench_node(1, "--secret", str(file))

    def send(signer):
        webhook_id, timestamp = "test:r-1:1:7", str(int(time.time()))
        return post(url, BODY, {"webhook-id": webhook_id, "webhook-timestamp": timestamp,
                                "webhook-signature": signer.sign(wire.request_message(webhook_id, timestamp, BODY))})

    receipt = shared.sign(wire.receipt_message(wire.EnvelopeKey("test", "r-1", 1, 7), wire.sha256(BODY)))
    assert receipt.startswith("v1,") and send(shared) == (200, receipt)
    assert send(wire.Secret()) == (401, None)
    assert send(wire.KeyPair()) == (401, None)


def test_unsigned_bench_node_takes_any_envelope_once(here):
    (url,) = here.unsigned_nodes(1)
    assert post(url, BODY, {"webhook-id": "bench:r-1:1:1"}) == (200, None)
    assert post(url, BODY, {"webhook-id": "bench:r-1:1:1"}) == (200, None)
    assert post(url, BODY + b"x", {"webhook-id": "bench:r-1:1:1"})[0] == 409
    assert post(url, BODY, {})[0] == 400


def test_lone_rounds_alternate_with_a_commit(here):
    """On one ground with a second node 1: it is not taken for the first."""
    here.quorate()
    first, second = here.unsigned_nodes(1) + here.unsigned_nodes(1)
    assert first != second
    waits = loads.lone(here, [contenders.quorate()], 20)
    assert {name: len(values) for name, values in waits.items()} == {"commit": 18, "quorate": 18}


def test_both_kinds_of_nodes_on_one_ground(here):
    """As idle rounds compare them: the second contender's nodes share secrets."""
    here.nodes()
    here.nodes(first=4, symmetric=True)
    here.coordinator()
    waits = loads.lone(here, [contenders.quorate(), contenders.quorate("HMAC", first_node=4)], 10)
    assert {name: len(values) for name, values in waits.items()} == {"commit": 9, "quorate": 9, "HMAC": 9}
    with here.connect() as conn:
        rows = conn.execute("SELECT node_id, third_party, count(*) FROM quorate.acks GROUP BY 1, 2 ORDER BY 1").fetchall()
    assert rows == [(node, node < 4, 10) for node in range(1, 7)]


def test_flood_of_quorate_is_timed_to_the_last_completion(here):
    here.quorate()
    assert loads.flood(here, contenders.quorate(), 50, warm=10) > 0
    with here.connect() as conn:
        assert conn.execute("SELECT state::text, count(*) FROM quorate.rounds GROUP BY 1").fetchall() == [("complete", 60)]


def test_rounds_due_while_a_submission_hangs_have_waited(here):
    """No coordinated omission: 100 rounds/s, and the first submission takes half a second, in which 50 more are due."""
    slow = """SELECT pg_sleep(CASE WHEN %(prefix)s = 'rate-' AND %(first)s::int = 1 THEN 0.5 ELSE 0 END),
                     (SELECT count(pg_notify('bench_test', %(prefix)s || i || ' complete'))
                        FROM generate_series(%(first)s::int, %(last)s::int) i)"""
    waits, _ = loads.fixed_rate(here, contenders.Contender("slow", slow, "bench_test"), 100, 1)
    assert len(waits) == 100
    assert sum(wait > 0.1 for wait in waits) >= 35
    assert waits[0] >= 0.5


@pytest.mark.parametrize("batch", [False, True])
def test_ceiling_writes_whole_rounds(here, batch):
    assert ceilings.rate(here, batch, 3) > 0


SMALL = measures.Scale(rounds=100, lone=20, seconds=1, dark=50, history=1201, open=600, steady=3, pairs=1)


def test_each_collector_of_a_crowd_is_woken_by_its_round(here, monkeypatch):
    """More rounds than collectors: each waits for its next one, also where that has ended already."""
    monkeypatch.setattr(Crowd, "SIZE", 100)
    figures = measures.crowd(here, SMALL)
    assert figures["waited at once"] > Crowd.SIZE * 0.9
    assert 0 < figures["after the quorum p50 ms"] < figures["p99 ms"]
    with here.connect() as conn:
        assert conn.execute("SELECT count(*) FROM quorate.rounds WHERE round_id LIKE 'rate-%' AND state = 'complete'").fetchone()[0] > 1.9 * Crowd.SIZE


def test_collectors_of_a_crowd_do_without_notifications(here):
    """They read the states as well, once a second."""
    here.quorate()
    with here.connect() as conn:
        waits, crowd = loads.fixed_rate(here, contenders.quorate(), 100, 1, DeafCrowd)
        assert len(waits) == 100 == len(crowd.ended)
        assert conn.execute("SELECT count(*) FROM quorate.rounds WHERE state = 'complete'").fetchone()[0] == 100 + loads.WARM


class DeafCrowd(Crowd):
    def _tell(self, ended):
        if not isinstance(ended, Notified):
            super()._tell(ended)

    def read(self):
        return Notified(super().read())


class Notified(list):
    """What came by notification."""


def test_the_price_of_the_history_is_that_of_floods_that_leave_one(here):
    figures = measures.history_price(here, SMALL)
    assert figures["of the rate without"] == pytest.approx(figures["rounds/s"] / figures["rounds/s without"])
    with here.connect() as conn:
        chained = dict(conn.execute("""SELECT split_part(l.round_id, '-', 1), count(h.key) FROM quorate_store.ledger l
                                        LEFT JOIN quorate_store.history h ON h.key = l.round_no AND h.kind = 'settled' GROUP BY 1""").fetchall())
    assert chained == {"with0": 400, "without0": 0}  # 200 of them to warm up


def test_history_is_what_the_product_leaves(here):
    here.nodes()
    history.fill(here, 1201)
    with here.connect() as conn:
        assert conn.execute("SELECT count(*), sum(acked), bool_and(quorum_nodes = '{1,2,3}') FROM quorate.rounds").fetchone() == (1201, 3603, True)
        assert conn.execute("SELECT count(*) FROM quorate.coordinators WHERE alive").fetchone() == (0,)
    here.coordinator()
    assert loads.flood(here, contenders.quorate(), 20, warm=0) > 0


def test_open_rounds_are_counted_and_their_plans_are_shown(here):
    figures = crowded.open_rounds(here, SMALL)
    assert figures["full scans of big tables"] == figures["plans with a full scan"] == 0
    assert figures["plans seen"] > 10 and figures["bytes a waiting delivery"] > 0 and figures["rounds/s when they answer"] > 0
    assert "Index Scan using round_pkey on round r" in here.files["plans.txt"]


def test_a_full_scan_is_told(here):
    crowded.explain(here, share=1)
    before = crowded.scans_so_far(here)
    with here.connect() as conn:
        conn.execute("SELECT count(*)\n  FROM quorate_store.ack WHERE attempt = 7")
        conn.execute("SELECT count(*) FROM quorate_store.node")
        conn.execute("SELECT pg_stat_force_next_flush()")
    plans = crowded.read_plans(here.cluster.read_log())
    assert crowded.full_scans(plans) == ["SELECT count(*) FROM quorate_store.ack WHERE attempt = 7"]
    assert crowded.scans_so_far(here)["ack"][0] == before["ack"][0] + 1


def test_all_dark_rounds_stall(here):
    figures = measures.all_dark(here, SMALL)
    assert 0 <= figures["s after its deadline the last one stalled"] <= figures["s until it was settled"]
    assert figures["MiB at most"] > 1 and figures.get("descriptors", 4) > 3


def test_steady_load_is_sampled_and_pruned(here):
    figures = steady.steady(here, SMALL)
    assert figures["coordinator MiB at the end"] > 1 and figures["indexes MiB at the end"] > 0
    assert len(here.files["steady.csv"].splitlines()) > 20
    with here.connect() as conn:
        assert conn.execute("SELECT count(*) FROM quorate_store.ledger WHERE pruned_at IS NOT NULL").fetchone()[0] > 0


@pytest.mark.parametrize("values, expected", [([1, 9, 2, 2, 2, 2], 1), ([1, 1, 2, 2, 3, 4], 2), ([0, 0, 0, 0, 0, 0], 1), ([0, 0, 0, 0, 0, 5], 2)])
def test_growth_is_that_of_the_last_third(values, expected):
    assert steady.growth([[number, value] for number, value in enumerate(values)], 1) == expected


def measured(flood: float, peer: float, turn: int = 1) -> list[dict]:
    figures = {"quorate flood": flood, "graphile-worker flood, as documented": peer, "pg-boss flood": peer / 2}
    return [{"turn": turn, "name": name, "figures": {"rounds/s": rate}, "stolen": 0.25} for name, rate in figures.items()]


@pytest.mark.parametrize("flood, met, near", [(2000, True, True), (1999, False, True), (1000, False, True), (999, False, False)])
def test_ratio_is_judged_against_the_best_peer(flood, met, near):
    (ratio,) = targets.ratios(measured(flood, 1000))
    assert (ratio.met(), ratio.met(2)) == (met, near)


def test_what_should_be_small_is_judged_the_other_way_round():
    ratio = targets.Ratio("wait", 16.1, 8, at_least=False)
    assert (ratio.met(), ratio.met(2)) == (False, False)
    assert targets.Ratio("wait", 16, 8, at_least=False).met(2)


def test_a_busy_turn_meets_both_sides_of_its_ratio():
    """The median is one of ratios: the ratio of the medians would be 3.33 here."""
    runs = measured(2200, 1000, 1) + measured(230, 100, 2) + measured(1000, 300, 3)
    (ratio,) = targets.ratios(runs)
    assert ratio.value == pytest.approx(2.3)
    best = targets.ratio(targets.TARGETS[0], runs, best=True)
    assert best.value == pytest.approx(10 / 3)


def test_every_target_names_what_is_measured():
    names = {measurement.name for measurement in measures.ALL}
    smoke = {measurement.name for measurement in measures.ALL if measurement.smoke}
    for target in targets.TARGETS:
        assert target.names() <= names, target.what
        assert not target.smoke or target.names() & smoke, target.what


def test_report_has_medians_and_what_was_missed(tmp_path):
    runs = [run for turn, rate in enumerate((900, 1000, 5000)) for run in measured(rate, 1000, turn)]
    machine = {"cpu": "a cpu", "cores": 2, "memory_mib": 1, "kernel": "k", "postgresql": "p", "load_before": 0, "fsync": "on", "synchronous_commit": "on"}
    report.write(tmp_path, machine, runs, targets.ratios(runs), {"plans.txt": "a plan"})
    text = (tmp_path / "results.md").read_text()
    assert "| quorate flood | 1,000 rounds/s (900–5,000) | 3 | 25% |" in text
    assert "**missed**" in text
    assert (tmp_path / "results.svg").read_text().count("<rect") == 4  # the paper and three bars
    assert (tmp_path / "plans.txt").read_text() == "a plan"


def test_lines_are_drawn_from_their_lowest_to_their_highest():
    text = plot.lines("waits", "rate", {"p50": [(0, 1), (10, 100)]}, logarithmic=True)
    assert 'points="70.0,334.0 590.0,34.0"' in text


@pytest.mark.parametrize("options", [
    ("--only", "("), ("--only", "no such measurement"), ("--smoke", "--only", "no such measurement"), ("--repeats", "0"), ("--rounds", "-1"),
    ("--steady", "0"), ("--results", "/proc/nowhere"), ("--results", "/dev/null")])
def test_what_could_measure_or_keep_nothing_is_refused_at_once(options, tmp_path):
    """The results of a run before stay, and no hour is spent on figures that nobody gets."""
    kept = tmp_path / "results.md"
    kept.write_text("of yesterday")
    where = () if "--results" in options else ("--results", str(tmp_path))
    done = subprocess.run([ROOT / "bench" / "run", *options, *where], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and f"error: argument {options[-2]}: " in done.stderr and "Traceback" not in done.stderr, done
    assert kept.read_text() == "of yesterday"


def command_line(pid: str) -> str:
    """Of a process that may have ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_run_leaves_nothing_behind(tmp_path, number):
    build = tmp_path / "build"
    build.mkdir()
    for program in BUILD.glob("*"):
        (build / program.name).symlink_to(program)
    (build / "peers").unlink(missing_ok=True)
    (build / "peers").mkdir()  # as if they were installed: none of them is measured
    shutil.copy(ROOT / "bench" / "peers" / "package.json", build / "peers")
    (build / "peers" / ".installed").touch()
    command = [ROOT / "bench" / "run", "--only", "^quorate flood$", "--rounds", "9999999", "--results", str(tmp_path / "results")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "QUORATE_BUILD": str(build)}) as run:
        try:
            assert any("turn 1" in line for line in run.stderr), "it never began"
            children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            folders = [pathlib.Path(found[1]) for child in children if (found := re.search(r"\0-D\0(/[^\0]*)/data\0", command_line(child)))]
            assert len(folders) == 1 and folders[0].is_dir()
            run.send_signal(number)
            run.stderr.read()
            assert run.wait(60) != 0
        finally:
            run.terminate()  # of a run that has ended nothing comes of it
    assert not folders[0].exists() and not any(pathlib.Path(f"/proc/{child}").exists() for child in children)
