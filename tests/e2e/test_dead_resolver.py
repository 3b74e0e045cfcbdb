"""A resolver that answers nothing: look-ups take their time, and the coordinator neither waits for them nor piles up threads."""

import pathlib
import time

import pytest
from harness import wire

SLOTS = 3


@pytest.fixture
def lab(network_lab):
    return network_lab


def threads(process):
    return len(list(pathlib.Path(f"/proc/{process.pid}/task").iterdir()))


def test_look_ups_that_hang_take_no_more_threads_than_slots(lab, tmp_path):
    """Attempts time out after a tenth of a second, their look-ups after ten: each keeps its slot. Healthy nodes notice nothing."""
    resolver = lab.network.add("resolver")
    lab.network.add("c1")
    lab.network.cut("c1", "resolver")
    settings = tmp_path / "resolv.conf"
    settings.write_text(f"nameserver {resolver.address}\n")
    healthy = lab.some_nodes(2)
    for number in (8, 9):
        lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", number, f"http://node-{number}.example:80/", wire.KeyPair().public_text)
    coordinator = lab.coordinator("c1", options=("--slots", str(SLOTS)), under=(
        "unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(settings)))
    calm = threads(coordinator)
    nodes = [*healthy, 8, 9]
    policy = {"per_share_timeout": "100 ms", "retry_budget": 30, "base_backoff": "20 ms", "max_backoff": "100 ms", "round_deadline": "5 s"}
    most, rounds = 0, [lab.db.submit(2, nodes, **{**policy, "per_share_timeout": "3 s"})]
    rounds += [lab.db.submit(3, nodes, **policy) for _ in range(20)]
    assert lab.db.wait_state(rounds[0])["state"] == "complete"
    until = time.monotonic() + 30
    while any(row["settled_at"] is None for row in lab.db.rounds()):
        assert time.monotonic() < until, "not all have settled"
        most = max(most, threads(coordinator))
        time.sleep(0.02)
    assert calm < most <= calm + 2 * SLOTS, f"{most - calm} threads more"
    for round_id in rounds[1:]:
        row = lab.db.round(round_id)
        assert (row["state"], row["acked"], sorted(lab.db.acks(round_id))) == ("stalled", 2, [1, 2])
        for number in (8, 9):
            assert {a["outcome"] for a in lab.db.attempts(round_id, number)} <= {"timeout", "unsent"}
    assert lab.db.one("SELECT count(*) FROM quorate.attempts WHERE node_id > 7 AND outcome = 'timeout'") >= SLOTS
    began = time.monotonic()
    assert coordinator.stop() == 0
    assert time.monotonic() - began < 4, "it waited for a look-up"
