"""Connections to the database that are dead without anyone saying so: noticed within 15 s, with work under way and without."""

import re
import threading
import time

import pytest
from harness import behaviours as b
from harness.processes import fields

NOTICED_WITHIN_S = 15
SESSIONS = {"beat", "history", "lane1", "lane2", "ring"}


@pytest.fixture
def lab(network_lab):
    return network_lab


def break_connections(lab):
    """From now on nothing passes on the connections that there are, in neither direction; new ones can be made."""
    ports = [row["client_port"] for row in lab.db.rows(
        "SELECT client_port FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'quorate %%' AND client_port > 0")]
    assert len(ports) == len(SESSIONS)
    listed = "{ " + ", ".join(map(str, ports)) + " }"
    lab.network["db"].rule(f"tcp sport {listed}")
    lab.network["c1"].rule(f"tcp dport {listed}")
    return time.monotonic()


def wait_noticed(coordinator, broken_at, sessions):
    """Waits until all those sessions were lost, the lanes' connected again; how long each took. The beat, the ring and the history notice by themselves that
    no answer comes, and begin anew."""
    told = {"beat": r"\bevent=beat_failed\b.*no answer", "ring": r"\bevent=ring_failed\b.*no answer",
            "history": r"\bevent=history_failed\b.*no answer"}
    took = {}
    while set(took) < set(sessions):
        missing = set(sessions) - set(took)
        wanted = "|".join(rf"\bevent=database_lost\b.*session={s}\b" + (f"|{told[s]}" if s in told else "") for s in sorted(missing))
        line = coordinator.wait_line(wanted, timeout=2 * NOTICED_WITHIN_S)
        took[fields(line).get("session") or fields(line)["event"].split("_")[0]] = time.monotonic() - broken_at
    print(took)
    assert max(took.values()) < NOTICED_WITHIN_S, took
    for session in set(sessions) - set(told):
        coordinator.wait_line(rf"\bevent=database_connected\b.*session={session}\b")
    return took


def test_idle(lab):
    """Nothing is sent on the lanes, so that only the keepalives can find out."""
    coordinator = lab.coordinator()
    node = lab.node()
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    wait_noticed(coordinator, break_connections(lab), SESSIONS)
    assert lab.network.lost() > 0
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    assert coordinator.running()


@pytest.mark.parametrize("dead_for_s", [0, 5])
def test_a_batch_goes_into_the_void(lab, dead_for_s):
    """The receipt comes when the connection is dead already: its batch is sent, never acknowledged, and sent again on a new one. What is
    sent just before the keepalives would have given up takes longest."""
    answer_now = threading.Event()
    node = lab.node().plan(then=b.after(answer_now))
    coordinator = lab.coordinator(options=("--lease", "60s"))
    round_id = lab.db.submit(1, [node], per_share_timeout="40 s", round_deadline="60 s", retry_budget=1)
    node.primary.wait_requests(1)
    broken_at = break_connections(lab)
    node.primary.closing.wait(dead_for_s)
    answer_now.set()
    wait_noticed(coordinator, broken_at, SESSIONS)
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"]) == ("complete", [1])
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "ack", 200)]
    assert lab.db.attempts(round_id, 1)[0]["resends"] == 0 and len(node.requests) == 1


def test_the_answer_to_a_batch_goes_into_the_void(lab):
    """The batch has arrived and waits for a lock when the connection dies: it is committed, nobody hears of it, and it is sent again."""
    answer_now = threading.Event()
    node = lab.node().plan(then=b.after(answer_now))
    coordinator = lab.coordinator(options=("--lease", "60s"))
    round_id = lab.db.submit(1, [node], per_share_timeout="40 s", round_deadline="60 s", retry_budget=1)
    node.primary.wait_requests(1)
    with lab.db.connect() as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE quorate_store.ack IN SHARE MODE")
        answer_now.set()
        lab.db.wait("the batch waits for the lock", lambda: lab.db.one(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"))
        broken_at = break_connections(lab)
        holder.execute("COMMIT")
    lab.db.wait("it is committed", lambda: lab.db.round(round_id)["state"] == "complete")
    wait_noticed(coordinator, broken_at, SESSIONS)
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"], row["acked"]) == ("complete", [1], 1)
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "ack", 200)] and len(node.requests) == 1


def test_connecting_into_the_void(lab):
    """A server that takes no packet at all: every try ends, and the first one after the cure succeeds."""
    lab.network.add("c1")
    lab.network.cut("c1", "db")
    coordinator = lab.coordinator("c1", ready=False)
    coordinator.wait_line(r"\bevent=database_(lost|silent)\b.*no answer in time", timeout=15)
    lab.network.heal()
    coordinator.wait_line(r"\bevent=ready\b", timeout=15)


@pytest.mark.parametrize("given, least, most", [("", 0, 3), ("keepalives_idle=45", 3, 45)])
def test_the_connection_string_has_the_last_word(lab, given, least, most):
    """Who knows of a slow network says so."""
    lab.coordinator(conninfo=lab.conninfo(given))

    def next_probes():
        shown = lab.network["c1"].run(["ss", "-tnoH", "state", "established"])
        return [float(number) / (1000 if unit == "ms" else 1) for number, unit in re.findall(r"timer:\(keepalive,([0-9.]+)(ms|sec)", shown)]

    probes = lab.db.wait("two lanes are idle", lambda: (lambda found: found if len(found) >= 2 else None)(next_probes()))
    assert all(least < seconds <= most for seconds in probes), probes
