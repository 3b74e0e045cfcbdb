"""Nodes that swallow what they are sent cost what their slots cost, and no more: deadlines, the other nodes, memory and the loop are spared."""

import contextlib
import itertools
import os
import re
import secrets
import socket
import threading
import types

import pytest
from harness import wire
from harness.lab import Lab
from test_metrics import scrape

SLOTS = 32
MIB = 1 << 20


def add_node(lab: Lab, node_id: int, key: wire.KeyPair, url: str) -> int:
    lab.db.add_node(types.SimpleNamespace(node_id=node_id, key=key, primary=types.SimpleNamespace(url=url), backup=None))
    return node_id


def healthy_node(lab: Lab, node_id: int) -> int:
    """The reference custodian, which is quick."""
    key = wire.KeyPair()
    return add_node(lab, node_id, key, lab.processes.custodian(node_id, lab.write_key(f"node-{node_id}.key", key), lab.key.public_text).url)


class Holes:
    """Nodes whose ports take connections and never read from them."""

    def __init__(self, lab: Lab):
        self.lab, self.sockets = lab, []

    def node(self, node_id: int) -> int:
        hole = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.sockets.append(hole)
        return add_node(self.lab, node_id, wire.KeyPair(), f"http://127.0.0.1:{hole.getsockname()[1]}/")

    def close(self) -> None:
        """Breaks all connections, so that no coordinator waits for them when it ends."""
        for hole in self.sockets:
            hole.close()


@pytest.fixture
def holes(lab):
    made = Holes(lab)
    yield made
    made.close()


@contextlib.contextmanager
def descriptors_of(process):
    """Looks ten times a second at how many a process has open; the list given holds what was seen."""
    seen, over = [], threading.Event()

    def look() -> None:
        while process.running() and not over.wait(0.1):
            seen.append(len(os.listdir(f"/proc/{process.pid}/fd")))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def submit_many(lab, rounds: int, quorum: int, node_ids: list[int], **policy) -> list[str]:
    """In one commit."""
    names = [lab.db.new_round_id() for _ in range(rounds)]
    payloads = [secrets.token_bytes(48) for _ in range(rounds * len(node_ids))]
    given = "".join(f", {name} => %s" for name in policy)
    lab.db.rows(f"SELECT count(*) FROM quorate.submit_rounds(%s, %s, %s::int[], %s::bytea[]{given})", names, quorum, node_ids, payloads,
                *policy.values())
    keys = itertools.product(names, node_ids)
    lab.db.payloads.update(itertools.islice(zip(keys, payloads, strict=True), 100))  # to look for them all would take longer than the test
    return names


def open_rounds(lab) -> int:
    return lab.db.one("SELECT count(*) FROM quorate_store.round WHERE state = 'open'")


def peak_memory(process) -> int:
    """In bytes; 0 for a build with sanitizers, whose shadow memory would count as well."""
    with open(f"/proc/{process.pid}/maps", encoding="ascii") as maps:
        if re.search("lib[at]san", maps.read()):
            return 0
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) * 1024


def turns_above(found: dict, seconds: str) -> int:
    """How many turns of the loop took longer."""
    buckets = {dict(labels)["le"]: value for labels, value in found["quorate_loop_lag_seconds_bucket"].items()}
    assert buckets["+Inf"] > 100
    return int(buckets["+Inf"] - buckets[seconds])


def test_with_every_node_dark_all_rounds_stall_in_time_and_nothing_grows(lab, holes):
    """Far more rounds than slots: most envelopes never get a turn, and their rounds end in time all the same."""
    lab.punctual = False  # to two seconds here, since other tests run beside this one
    nodes = [holes.node(node_id) for node_id in (1, 2, 3)]
    coordinator = lab.coordinator(metrics=True, options=("--slots", str(SLOTS)))
    with descriptors_of(coordinator) as descriptors:
        for _ in range(3):
            submit_many(lab, 500, 2, nodes, per_share_timeout="500 ms", max_backoff="500 ms", round_deadline="6 s")
        lab.db.wait("all have ended", lambda: open_rounds(lab) == 0, 30)
        lab.db.wait_all_settled()
    ends = lab.db.rows("SELECT state, count(*), extract(epoch FROM max(closed_at - deadline_at)) AS late FROM quorate.rounds GROUP BY 1")
    memory, (found, _) = peak_memory(coordinator), scrape(coordinator)
    print(ends, max(descriptors), memory / MIB, found["quorate_loop_lag_seconds_bucket"])
    assert [(row["state"], row["count"]) for row in ends] == [("stalled", 1500)] and ends[0]["late"] < 2
    assert SLOTS < max(descriptors) < SLOTS * len(nodes) + 64
    assert memory < 64 * MIB
    assert turns_above(found, "0.25") <= 1 and turns_above(found, "1") == 0  # once the machine itself may have stood still
    assert lab.db.one("SELECT array_agg(DISTINCT node_id ORDER BY node_id) FROM quorate.attempts WHERE outcome = 'timeout'") == nodes


@pytest.mark.parametrize("timeout", ["10 s", "100 ms"])
def test_a_dark_node_does_not_hold_up_the_others(lab, holes, timeout):
    """With the short time-out a healthy node on a busy machine misses it now and then, and is asked again."""
    healthy, dark = [healthy_node(lab, node_id) for node_id in (1, 2)], holes.node(3)
    lab.coordinator(options=("--slots", str(SLOTS)))
    submitted = submit_many(lab, 300, 2, [dark, *healthy], per_share_timeout=timeout, retry_budget=20,
                            max_backoff="1 s", round_deadline="60 s")
    lab.db.wait("all have ended", lambda: open_rounds(lab) == 0, 60)
    rows = [row for row in lab.db.rounds() if row["round_id"] in submitted]
    slowest = max(row["closed_at"] - row["opened_at"] for row in rows)
    print(slowest)
    assert [(row["state"], row["quorum_nodes"]) for row in rows] == [("complete", healthy)] * 300
    assert slowest.total_seconds() < 20
    assert lab.db.one("SELECT count(*) FROM quorate.attempts WHERE node_id = %s", dark) >= SLOTS
    assert dark not in {row["node_id"] for row in lab.db.rows("SELECT node_id FROM quorate.acks")}
