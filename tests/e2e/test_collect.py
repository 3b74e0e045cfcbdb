"""quorate collect: every end of a round, waiting with and without notifications, and what happens when connections break."""

import time

import pytest
from harness.cli import Cli, ended


@pytest.fixture
def cli(lab):
    return Cli(lab)


def test_collect_of_a_round_that_is_still_open(cli):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2")
    assert '"r" is still open' in cli.fails(8, "collect", "r", "--wait", "0")
    started = time.monotonic()
    cli.fails(8, "collect", "r", "--wait", "400ms")
    assert 0.4 <= time.monotonic() - started < 6
    cli.fails(8, "collect", "r", "--wait", "1ms", "--json")


@pytest.mark.parametrize("wait", [(), ("--wait", "1h")])
def test_collect_fails_closed_at_the_deadline_without_any_coordinator(cli, wait):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "1s", "--retries", "1", "--backoff", "10ms..100ms")
    deadline = cli.lab.db.round("r")["deadline_at"]
    assert "stalled" in cli.fails(3, "collect", "r", *wait)
    row = cli.lab.db.round("r")
    assert row["state"] == "stalled"
    assert 0 <= (row["closed_at"] - deadline).total_seconds() < 1  # it looks at the deadline, not at its next second
    cli.fails(3, "collect", "r")


def test_wrong_collect(cli):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2")
    assert '"nowhere"' in cli.fails(6, "collect", "nowhere")
    assert "3" in cli.fails(2, "collect", "r", "--quorum", "3")
    for wrong in ("5", "0s", "-1s", "", "1 s"):
        assert "--wait" in cli.fails(2, "collect", "r", "--wait", wrong)
    assert "bad id" in cli.fails(2, "collect", "bad id")
    assert '"0"' in cli.fails(2, "collect", "r", "--quorum", "0")


def test_collect_wakes_when_the_round_is_cancelled(cli):
    cli.known_nodes()
    took = []
    for number in range(4):
        cli("open", f"r{number}", "--quorum", "2")
        process = cli.start("collect", f"r{number}")
        cli.await_collector()
        assert cli.lab.db.one("SELECT quorate.cancel_round(%s, 'no more')", f"r{number}")
        started = time.monotonic()
        code, out, err = ended(process)
        took.append(time.monotonic() - started)
        assert code == 9 and out == "" and "cancelled" in err and "no more" in err
    assert min(took) < 0.5  # by the notification; the fallback read comes once a second


def test_collect_without_notifications_reads_once_a_second(cli):
    """As behind a transaction pooler, or when the notification queue is full."""
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "60s")
    process = cli.start("collect", "r")
    cli.await_collector()
    cli.lab.db.conn.execute("UPDATE quorate_store.round SET state = 'cancelled', closed_at = clock_timestamp(), "
                            "close_reason = 'quietly'")
    started = time.monotonic()
    code, _, err = ended(process)
    assert code == 9 and "quietly" in err and time.monotonic() - started < 5


def test_collect_survives_a_lost_connection(cli):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "30s")
    process = cli.start("collect", "r")
    for _ in range(3):
        first = cli.await_collector()
        cli.lab.db.rows("SELECT pg_terminate_backend(%s)", first)
        cli.lab.db.wait("its end", lambda: not cli.lab.db.rows("SELECT 1 FROM pg_stat_activity WHERE pid = %s", first))
    cli.await_collector()
    assert process.poll() is None
    cli.lab.db.rows("SELECT quorate.cancel_round('r', 'at last')")
    code, _, err = ended(process)
    assert code == 9 and "at last" in err


def test_collect_survives_a_restart_of_the_database(durable_lab):
    cli = Cli(durable_lab)
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "60s")
    process = cli.start("collect", "r")
    cli.await_collector()
    durable_lab.cluster.restart("immediate")
    cli.await_collector()
    durable_lab.db.rows("SELECT quorate.cancel_round('r', 'after all')")
    code, _, err = ended(process)
    assert code == 9 and "after all" in err


def test_collect_gives_up_when_the_database_stays_away(durable_lab):
    cli = Cli(durable_lab)
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "60s")
    process = cli.start("collect", "r", "--wait", "2s")
    cli.await_collector()
    durable_lab.cluster.stop("immediate")
    try:
        code, out, err = ended(process)
    finally:
        durable_lab.cluster.start()
    assert code == 7 and out == "" and err.count("\n") == 1


def test_collect_of_a_complete_round(cli):
    one, two, _ = cli.lab.some_nodes(3)
    cli.lab.coordinator()
    nonce = int(cli("open", "r", "--quorum", "2"))
    process = cli.start("collect", "r", "--quorum", "2")
    assert cli.distribute(0, "r", nonce, cli.share(1), cli.share(2)) == {1: "accepted", 2: "accepted"}
    assert ended(process) == (0, "1\n2\n", "")
    collected = cli.json("collect", "r")
    assert collected["round_id"] == "r" and collected["quorum_nodes"] == [1, 2]
    acks, deliveries = cli.lab.db.acks("r"), cli.lab.db.deliveries("r")
    assert collected["shares"] == [{"node_id": node.node_id, "route": "primary", "url": node.primary.url, "in_quorum": True,
                                    "receipt": acks[node.node_id]["receipt"], "nonce": str(nonce), "quorum": 2,
                                    "deployment_id": cli.lab.db.one("SELECT deployment_id FROM quorate.deployment"),
                                    "payload_sha256": deliveries[node.node_id]["payload_sha256"].hex()} for node in (one, two)]
    cli.fails(2, "collect", "r", "--quorum", "3")
    cli.fails(5, "cancel", "r", "--reason", "too late")


def test_collect_of_what_is_no_longer_fresh(cli):
    cli.lab.some_nodes(2)
    cli.lab.coordinator()
    nonce = int(cli("open", "r", "--quorum", "2", "--fresh-for", "3s", "--retries", "2", "--backoff", "10ms..100ms",
                    "--timeout", "300ms"))
    cli.distribute(0, "r", nonce, cli.share(1), cli.share(2))
    cli.lab.db.wait_state("r", "dead_lettered")
    error = cli.fails(4, "collect", "r")
    assert '"r"' in error
