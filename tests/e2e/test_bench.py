"""The benchmark measures what it says: its node does a custodian's work, a slow answer is in the waits, and a missed target is told."""

import http.client
import sys
import time

import pytest
from harness import wire
from harness.build import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from lib import ceilings, contenders, loads, report, targets  # noqa: E402
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
    waits = loads.fixed_rate(here, contenders.Contender("slow", slow, "bench_test"), 100, 1)
    assert len(waits) == 100
    assert sum(wait > 0.1 for wait in waits) >= 35
    assert waits[0] >= 0.5


@pytest.mark.parametrize("batch", [False, True])
def test_ceiling_writes_whole_rounds(here, batch):
    assert ceilings.rate(here, batch, 1) > 0


def measured(flood: float, peer: float) -> dict:
    return {"quorate flood": {"rounds/s": flood}, "graphile-worker flood, as documented": {"rounds/s": peer},
            "pg-boss flood": {"rounds/s": peer / 2}}


@pytest.mark.parametrize("flood, met, near", [(2000, True, True), (1999, False, True), (1000, False, True), (999, False, False)])
def test_ratio_is_judged_against_the_best_peer(flood, met, near):
    (ratio,) = targets.ratios(measured(flood, 1000))
    assert (ratio.met(), ratio.met(2)) == (met, near)


def test_what_should_be_small_is_judged_the_other_way_round():
    ratio = targets.Ratio("wait", 16.1, 8, at_least=False)
    assert (ratio.met(), ratio.met(2)) == (False, False)
    assert targets.Ratio("wait", 16, 8, at_least=False).met(2)


def test_report_has_medians_and_what_was_missed(tmp_path):
    runs = [{"name": name, "figures": figures, "stolen": 0.25}
            for rate in (900, 1000, 5000) for name, figures in measured(rate, 1000).items()]
    machine = {"cpu": "a cpu", "cores": 2, "memory_mib": 1, "kernel": "k", "postgresql": "p", "load_before": 0}
    report.write(tmp_path, machine, runs, targets.ratios(report.medians(runs)))
    text = (tmp_path / "results.md").read_text()
    assert "| quorate flood | 1,000 rounds/s (900–5,000) | 3 | 25% |" in text
    assert "**missed**" in text
    assert (tmp_path / "results.svg").read_text().count("<rect") == 4  # the paper and three bars
