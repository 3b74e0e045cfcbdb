"""/healthz, /readyz and /metrics: what they say after a known run, and what must never be in them."""

import collections
import http.client
import os
import re
import time

from harness import behaviours as b

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def get(coordinator, path, method="GET"):
    conn = http.client.HTTPConnection("127.0.0.1", coordinator.metrics_port, timeout=5)
    try:
        conn.request(method, path)
        answer = conn.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        conn.close()


def samples(text):
    """{name: {frozenset of labels: value}}; fails on a line that is no Prometheus text."""
    found = collections.defaultdict(dict)
    typed = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif line and not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in typed or family in typed, f"no TYPE line for {name}"
            found[name][frozenset(LABEL.findall(labels or ""))] = float(value)
    return found


def scrape(coordinator):
    status, text, headers = get(coordinator, "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(text), text


def value(found, name, **labels):
    return found[name][frozenset(labels.items())]


def check_histogram(found, name, count):
    buckets = sorted((float(dict(labels)["le"]), v) for labels, v in found[f"{name}_bucket"].items())
    counts = [v for _, v in buckets]
    assert buckets[-1][0] == float("inf") and counts == sorted(counts), f"{name} is not cumulative"
    assert counts[-1] == value(found, f"{name}_count") and value(found, f"{name}_sum") >= 0
    assert value(found, f"{name}_count") == count if isinstance(count, int) else value(found, f"{name}_count") > 0


def test_health_and_readiness(lab):
    lab.node()
    coordinator = lab.coordinator(metrics=True)
    assert get(coordinator, "/healthz")[0] == 200
    assert get(coordinator, "/readyz")[0] == 200
    assert get(coordinator, "/nothing-here")[0] == 404
    assert get(coordinator, "/metrics", "POST")[0] == 405
    assert get(coordinator, "/healthz", "HEAD")[:2] == (200, "")


def test_ready_only_while_the_database_is_there(durable_lab):
    """Alive all the time, ready only when it can work."""
    lab = durable_lab
    coordinator = lab.coordinator(metrics=True)
    lab.cluster.stop()
    deadline = time.monotonic() + 10
    while get(coordinator, "/readyz")[0] != 503:
        assert time.monotonic() < deadline, "still says ready"
    assert get(coordinator, "/healthz")[0] == 200
    lab.cluster.start()
    while get(coordinator, "/readyz")[0] != 200:
        assert time.monotonic() < deadline + 10, "never ready again"
    found, _ = scrape(coordinator)
    assert value(found, "quorate_database_reconnects_total") >= 1


def test_numbers_after_a_known_run(lab):
    one, two, failing = lab.some_nodes(3)
    failing.plan(then=b.status(500))
    with_backup = lab.node(backup=True).plan(then=b.status(503))
    coordinator = lab.coordinator(metrics=True)
    complete = [lab.db.submit(2, [one, two]) for _ in range(4)]
    stalled = lab.db.submit(2, [one, failing], round_deadline="1500 ms")
    escalated = lab.db.submit(1, [with_backup], round_deadline="2 s")
    cancelled = lab.db.submit(1, [failing], retry_budget=40)
    lab.db.wait_attempts(cancelled, failing.node_id, 1)
    lab.db.rows("SELECT quorate.cancel_round(%s, 'test')", cancelled)
    lab.db.wait_all_settled()
    assert {lab.db.round(r)["state"] for r in complete} == {"complete"}
    assert [lab.db.round(r)["state"] for r in (stalled, escalated, cancelled)] == ["stalled", "complete", "cancelled"]

    found, text = scrape(coordinator)
    assert value(found, "quorate_ready") == 1
    assert value(found, "quorate_rounds_claimed_total") >= 7
    assert value(found, "quorate_rounds_closed_total", state="complete") == 5
    assert value(found, "quorate_rounds_closed_total", state="stalled") == 1
    assert value(found, "quorate_escalations_total") == 1
    assert value(found, "quorate_acks_total") == 10
    rows = lab.db.rows("SELECT route, outcome, count(*) FROM quorate.attempts GROUP BY 1, 2")
    for row in rows:
        if row["outcome"] != "unsent":
            assert value(found, "quorate_attempts_total", route=row["route"], outcome=row["outcome"]) == row["count"], row
    for row in lab.db.rows("SELECT state, count(*) FROM quorate.deliveries GROUP BY 1"):
        assert value(found, "quorate_deliveries_total", state=row["state"]) == row["count"], row
    check_histogram(found, "quorate_time_to_quorum_seconds", 5)
    check_histogram(found, "quorate_attempt_seconds", sum(r["count"] for r in rows if r["outcome"] != "unsent"))
    check_histogram(found, "quorate_batch_items", None)
    check_histogram(found, "quorate_batch_seconds", None)
    check_histogram(found, "quorate_loop_lag_seconds", None)
    assert sum(found["quorate_rounds"].values()) == 0, "holds settled rounds"
    assert value(found, "quorate_requests_under_way") == 0

    for row in lab.db.rounds():
        assert row["round_id"] not in text and str(row["nonce"]) not in text
    for payload in lab.db.payloads.values():
        assert payload.hex() not in text


def test_labels_are_few_and_fixed(lab):
    """A hundred rounds make no new time series."""
    nodes = lab.some_nodes(3)
    coordinator = lab.coordinator(metrics=True)
    before = {name: set(series) for name, series in scrape(coordinator)[0].items()}
    for _ in range(100):
        lab.db.submit(2, nodes, per_share_timeout="5 s", round_deadline="30 s")
    lab.db.wait_all_settled()
    after = {name: set(series) for name, series in scrape(coordinator)[0].items()}
    assert after == before
    assert {name for series in after.values() for labels in series for name, _ in labels} <= {"state", "route", "outcome", "le"}


def test_many_scrapes_leave_nothing_behind(lab):
    lab.node()
    coordinator = lab.coordinator(metrics=True)

    def count():
        return len(os.listdir(f"/proc/{coordinator.pid}/fd"))

    get(coordinator, "/metrics")
    before = count()
    for _ in range(50):
        get(coordinator, "/metrics")
    lab.db.wait("connections closed", lambda: count() <= before + 1)
