"""What strangers can make grow, and where it ends: claims by notifications, connections for metrics, lines in the log."""

import itertools
import socket
import time

from harness import behaviours as b
from harness.cli import Cli, ended
from test_metrics import get

HINTS_AT_ONCE, HINTS_A_SECOND = 50, 50  # coordinator/round/hints.h


def calls(lab, schema: str, function: str) -> int:
    """How often sessions have called it, as far as the server has counted; those under way report after a second."""
    time.sleep(1.5)
    return lab.db.one("SELECT coalesce(sum(calls), 0)::int FROM pg_stat_user_functions WHERE schemaname = %s AND funcname = %s", schema, function)


def storm(lab, seconds: float, channel: str = "quorate_work", prefix: str = "") -> int:
    """Notifies as fast as it can, as anyone may who may connect; how many notifications that were."""
    sent, until = 0, time.monotonic() + seconds
    with lab.db.connect() as conn:
        while time.monotonic() < until:
            conn.execute("SELECT pg_notify(%s, %s || (%s + i)) FROM generate_series(1, 20) i", (channel, prefix, sent))
            sent += 20
    return sent


def test_a_storm_of_notifications_is_no_storm_of_claims(lab):
    lab.db.conn.execute(f"ALTER DATABASE {lab.db.name} SET track_functions = 'all'")
    node = lab.node()
    coordinator = lab.coordinator()
    lab.db.wait_settled(lab.db.submit(1, [node]))
    before, began, seconds = calls(lab, "quorate_worker", "claim"), time.monotonic(), 3
    sent = storm(lab, seconds)
    ended = time.monotonic()
    round_id = lab.db.submit(1, [node])
    assert lab.db.wait_settled(round_id)["state"] == "complete"
    row = lab.db.round(round_id)
    assert (row["closed_at"] - row["opened_at"]).total_seconds() < 2
    done = calls(lab, "quorate_worker", "claim") - before
    elapsed = time.monotonic() - began
    assert sent > 4 * (HINTS_AT_ONCE + HINTS_A_SECOND * seconds), f"no storm: {sent} in {ended - began:.1f} s"
    most = HINTS_AT_ONCE + HINTS_A_SECOND * (ended - began + 1) + 10 * elapsed  # it looks by itself, too
    assert done <= most, f"{done} claims in {elapsed:.1f} s"
    assert coordinator.running()


def test_a_storm_of_notifications_does_not_make_a_collector_look_all_the_time(lab):
    lab.db.conn.execute(f"ALTER DATABASE {lab.db.name} SET track_functions = 'all'")
    cli = Cli(lab)
    cli.known_nodes()
    cli("open", "r", "--quorum", "2")
    began = time.monotonic()
    process = cli.start("collect", "r")
    cli.await_collector()
    sent = storm(lab, 3, "quorate_round", "r ")
    assert lab.db.one("SELECT quorate.cancel_round('r', 'enough')")
    assert ended(process)[0] == 9
    elapsed = time.monotonic() - began
    done = calls(lab, "quorate", "collect")
    assert sent > 4 * (HINTS_AT_ONCE + HINTS_A_SECOND * 3)
    assert 1 < done <= HINTS_AT_ONCE + (HINTS_A_SECOND + 10) * elapsed, f"{done} looks in {elapsed:.1f} s"


def drip(sock: socket.socket, every: float, limit: float) -> float:
    """Sends a head that never ends, byte by byte, until it is cut off; after how long that was."""
    sock.settimeout(every)
    began = time.monotonic()
    sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: ")
    while time.monotonic() - began < limit:
        try:
            sock.sendall(b"a")
            if sock.recv(1) == b"":
                break
        except socket.timeout:
            continue
        except OSError:
            break
    return time.monotonic() - began


def test_a_slow_client_of_the_metrics_is_cut_off(lab):
    lab.node()
    coordinator = lab.coordinator(metrics=True)
    with socket.create_connection(("127.0.0.1", coordinator.metrics_port)) as sock:
        assert 8 < drip(sock, 0.2, 30) < 25
    assert get(coordinator, "/healthz")[0] == 200


def test_one_address_cannot_keep_others_from_the_metrics(lab):
    lab.node()
    coordinator = lab.coordinator(metrics=True)
    holders = [socket.create_connection(("127.0.0.1", coordinator.metrics_port), source_address=("127.0.0.2", 0)) for _ in range(40)]
    try:
        for path in ("/healthz", "/metrics", "/readyz"):
            assert get(coordinator, path)[0] == 200
    finally:
        for holder in holders:
            holder.close()


def test_a_request_for_the_metrics_is_bounded(lab):
    lab.node()
    coordinator = lab.coordinator(metrics=True)
    with socket.create_connection(("127.0.0.1", coordinator.metrics_port), timeout=20) as sock:
        try:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 100_000 + b"\r\n\r\n")
            answer = sock.recv(100)
        except OSError:
            answer = b""
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 413"))
    assert get(coordinator, "/healthz")[0] == 200


def test_a_node_that_fails_in_turn_in_every_way_is_told_of_a_few_times(lab):
    """Each answer is another than the one before; none of them may be a line of its own."""
    node, other = lab.some_nodes(2)
    ways = [b.status(500), b.no_receipt(), b.ok(), b.status(503), b.hang_up(), b.ok(), b.status(429), b.receipt_text("v1a,x")]
    node.primary.plan(*itertools.islice(itertools.cycle(ways), 400))
    coordinator = lab.coordinator()
    since = len(coordinator.lines)
    for _ in range(8):
        rounds = [lab.db.submit(1, [node, other], base_backoff="5 ms", max_backoff="10 ms") for _ in range(10)]
        for round_id in rounds:
            lab.db.wait_settled(round_id)
    assert len(node.primary.requests) > 80
    told = [line for line in coordinator.lines[since:] if "event=attempt " in line]
    assert 1 <= len(told) <= 16, told


def test_a_database_of_another_kind_is_told_of_once_in_a_while(lab):
    """Rows that are none of ours, again and again: no crash, and no line for each; work goes on when they are right again."""
    node = lab.node()
    coordinator = lab.coordinator()
    lab.db.conn.execute("ALTER FUNCTION quorate_worker.claim RENAME TO honest_claim")
    try:
        lab.db.conn.execute("CREATE FUNCTION quorate_worker.claim(int, int, int, int[]) RETURNS TABLE (what int) LANGUAGE sql AS 'SELECT generate_series(1, 100)'")
        round_id = lab.db.submit(1, [node], round_deadline="30 s")
        storm(lab, 1)
        coordinator.wait_line(r"\bevent=unexpected_rows call=claim\b")
        storm(lab, 1)
        told = [line for line in coordinator.lines if "event=unexpected_rows" in line]
        assert len(told) <= 4, told  # once a lane
        lab.db.conn.execute("DROP FUNCTION quorate_worker.claim")
    finally:
        lab.db.conn.execute("ALTER FUNCTION quorate_worker.honest_claim RENAME TO claim")
    assert lab.db.wait_settled(round_id, timeout=40)["state"] == "complete"
    assert coordinator.running()
