"""The coordinator ends, as if killed, at each named point of its write path; another one resumes, and nothing is lost, doubled or sent unrecorded."""

import re
import signal
import threading

import pytest
from harness import behaviours as b
from harness import build

SOURCE = build.ROOT / "coordinator" / "base" / "crash.c"
POINTS = re.findall(r'^ +"([a-z_]+)",', SOURCE.read_text(), re.MULTILINE)
HISTORY = {"chain_sent", "chain_committed", "checkpoint_sent"}  # visited by test_history.py
AT_THE_END = {"draining", "release_sent", "release_committed", "leave_sent", "left"}
SHORT = ("--lease", "1s")
POLICY = {"per_share_timeout": "1 s", "base_backoff": "10 ms", "max_backoff": "100 ms", "retry_budget": 6}


class Scene:
    """Rounds of every kind that the write path knows: plain ones, with retries, escalated, large, one that stalls, one cancelled, one late."""

    def __init__(self, lab):
        self.lab = lab
        self.plain = lab.some_nodes(2)
        self.flaky = lab.node().plan(*[b.status(500), b.silent()] * 2)
        self.dark = lab.node(dark=True, backup=True)
        self.gone = lab.node(dark=True)

    def submit(self) -> dict[str, tuple[str, int]]:
        """{round_id: (the state it must end in, how many acks it must have)}"""
        db, plain = self.lab.db, self.plain
        expected = {}
        for quorum, nodes, options in ((2, plain, {}), (2, plain, {}), (3, [*plain, self.flaky], {}), (1, [self.flaky], {}),
                                       (1, plain, {"payloads": {n.node_id: bytes([n.node_id]) * 5000 for n in plain}})):
            expected[db.submit(quorum, nodes, round_deadline="30 s", **POLICY, **options)] = ("complete", len(nodes))
        expected[db.submit(2, [plain[0], self.dark], round_deadline="8 s", **POLICY)] = ("complete", 2)
        expected[db.submit(2, [plain[0], self.gone], round_deadline="6 s", **POLICY)] = ("stalled", 1)
        opened = db.open(1, node_ids=[plain[0].node_id], round_deadline="30 s", **POLICY)
        db.distribute(opened["round_id"], opened["nonce"], {plain[0].node_id: b"later"})
        expected[opened["round_id"]] = ("complete", 1)
        return expected

    def check(self, expected: dict[str, tuple[str, int]]) -> None:
        """Exact ends; how often a node was asked is bounded by attempts and resends, which the lab's invariants compare with its requests."""
        self.lab.db.wait_all_settled()
        found = {row["round_id"]: (row["state"], row["acked"]) for row in self.lab.db.rounds()}
        assert found == expected


def wait_dead(process) -> None:
    assert process.popen.wait(40) == -signal.SIGKILL, f"it never got there: {process.log}"


def test_there_are_points():
    assert len(POINTS) >= 20 and AT_THE_END | {"peer_fenced", "joined"} < set(POINTS)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", [p for p in POINTS if p not in AT_THE_END | HISTORY | {"peer_fenced", "joined", "nodes_read"}])
def test_killed_at(lab, point, nth):
    scene = Scene(lab)
    scene.dark.backup.plan(b.status(503))
    dying = lab.coordinator(ready=False, crash_at=f"{point}:{nth}", options=SHORT)
    expected = scene.submit()
    if nth == 1:
        wait_dead(dying)
    else:  # some points are visited fewer times when all goes in one batch
        lab.db.wait("it died, or all is done", lambda: not dying.running() or not lab.db.one(
            "SELECT count(*) FROM quorate.rounds WHERE settled_at IS NULL"), timeout=40)
    lab.successor()
    scene.check(expected)


@pytest.mark.parametrize("point", ["joined", "nodes_read"])
def test_killed_on_the_first_visit_at(lab, point):
    scene = Scene(lab)
    expected = scene.submit()
    wait_dead(lab.coordinator(ready=False, crash_at=point, options=SHORT))
    lab.successor()
    scene.check(expected)


@pytest.mark.parametrize("point", sorted(AT_THE_END))
def test_killed_while_it_stops_at(lab, point):
    """One request is under way and one round waits, so that there is something to hand over."""
    answer_now = threading.Event()
    scene = Scene(lab)
    dying = lab.coordinator(crash_at=point, options=SHORT)
    expected = scene.submit()
    busy = lab.node().plan(b.after(answer_now))
    expected[lab.db.submit(1, [busy], per_share_timeout="20 s", round_deadline="40 s")] = ("complete", 1)
    busy.primary.wait_requests(1)
    dying.kill(signal.SIGTERM)
    answer_now.set()
    wait_dead(dying)
    lab.successor()
    scene.check(expected)


def test_killed_when_it_has_fenced_a_peer(lab):
    """Two deaths, one after the other: the third coordinator gets the rounds of both."""
    scene = Scene(lab)
    first = lab.coordinator()
    watcher = lab.coordinator(crash_at="peer_fenced")
    expected = scene.submit()
    lab.db.wait("the first is watched", lambda: lab.db.one(
        "SELECT count(*) FROM pg_locks l JOIN quorate_store.coordinator c ON c.instance_no = l.objid "
        "WHERE l.locktype = 'advisory' AND l.classid = quorate_store.life_class() AND NOT l.granted AND c.name = %s "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())", first.name))
    first.kill()
    wait_dead(watcher)
    lab.successor()
    scene.check(expected)
