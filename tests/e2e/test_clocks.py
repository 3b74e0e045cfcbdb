"""Clocks: hosts of coordinators that are an hour off or jump, and sessions in any time zone, change nothing; the database's clock decides."""

import datetime
import email.utils
import itertools
import pathlib
import threading
import time

import pytest
from harness import behaviours as b
from harness.processes import fields

HOUR = datetime.timedelta(hours=1)
JUMPS = ("+1h", "-1h", "+0", "+30d", "-3650d", "+10s")
# Both are fourteen hours from UTC; POSIX counts westwards.
ZONES = {"east": "<+14>-14", "west": "<-14>14"}
SLACK = datetime.timedelta(seconds=1.5)  # a second is promised; the machine is busy


class Clock:
    """Programs that are run under it see another time of day; their monotonic clock is the true one."""

    def __init__(self, folder: pathlib.Path):
        (self.library,) = pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        self.folder, self.stop = folder, threading.Event()

    def off_by(self, offset: str) -> tuple[str, ...]:
        return self._under(f"FAKETIME={offset}")

    def jumping(self) -> tuple[str, ...]:
        """A few times a second to another of JUMPS."""
        file = self.folder / f"clock-{threading.get_ident()}-{time.monotonic_ns()}"

        def jump():
            for offset in itertools.cycle(JUMPS):
                (new := file.with_suffix(".new")).write_text(offset)
                new.rename(file)
                if self.stop.wait(0.15):
                    return

        file.write_text("+0")
        threading.Thread(target=jump, daemon=True).start()
        return self._under(f"FAKETIME_TIMESTAMP_FILE={file}", "FAKETIME_NO_CACHE=1")

    def _under(self, *variables: str) -> tuple[str, ...]:
        # The address sanitizer, in a build that has it, wants to be the first library, which it need not be.
        return ("env", f"LD_PRELOAD={self.library}", "FAKETIME_DONT_FAKE_MONOTONIC=1", *variables,
                "ASAN_OPTIONS=detect_leaks=1:exitcode=99:verify_asan_link_order=0")


@pytest.fixture
def clock(tmp_path):
    made = Clock(tmp_path)
    yield made
    made.stop.set()


def shown_offset(coordinator) -> datetime.timedelta:
    """How far the time in its log is from ours."""
    shown = fields(coordinator.lines[-1])["time"]
    return datetime.datetime.fromisoformat(shown.replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)


def check_all_times(lab):
    """A round of every kind: each point in time is where the policy puts it, on the database's clock."""
    good, slow, needy = lab.node(), lab.node(), lab.node(backup=True)
    let_late_ones_go = threading.Event()
    slow.plan(then=b.after(let_late_ones_go))
    needy.plan(then=b.status(503))
    quick = {"per_share_timeout": "20 s", "retry_budget": 4, "round_deadline": "4 s"}
    complete = lab.db.submit(1, [good], **quick, freshness="5 s")
    late = lab.db.submit(2, [good, slow], **quick)
    escalated = lab.db.submit(1, [needy], **{**quick, "retry_budget": 10})

    for round_id in (complete, late, escalated):
        row = lab.db.round(round_id)
        assert row["deadline_at"] - row["opened_at"] == datetime.timedelta(seconds=4)
        assert row["escalate_at"] - row["opened_at"] == datetime.timedelta(seconds=2)
        assert abs(row["opened_at"] - lab.db.one("SELECT clock_timestamp()")) < datetime.timedelta(seconds=30)

    row = lab.db.wait_state(escalated)
    assert row["state"] == "complete" and lab.db.acks(escalated)[needy.node_id]["route"] == "backup"
    assert row["escalate_at"] <= row["escalated_at"] <= row["escalate_at"] + SLACK

    row = lab.db.wait_state(late)
    assert row["state"] == "stalled" and row["deadline_at"] <= row["closed_at"] <= row["deadline_at"] + SLACK
    assert row["escalated_at"] is None
    let_late_ones_go.set()
    acks = lab.db.wait("the late ack", lambda: (lambda found: found if len(found) == 2 else None)(lab.db.acks(late)))
    assert {n: a["late"] for n, a in acks.items()} == {good.node_id: False, slow.node_id: True}
    assert acks[slow.node_id]["acked_at"] > row["deadline_at"]

    row = lab.db.wait_state(complete, "dead_lettered")
    assert row["fresh_until"] <= row["dead_lettered_at"] <= row["fresh_until"] + SLACK
    for node in lab.nodes:
        for _, request in node.all_requests():
            assert abs(int(request.header("webhook-timestamp")) - request.wall) < 3, "the time is not the database's"


@pytest.mark.parametrize("offset, hours", [("+1h", 1), ("-1h", -1)])
def test_a_coordinators_clock_is_an_hour_off(lab, clock, offset, hours):
    coordinator = lab.coordinator(under=clock.off_by(offset))
    assert abs(shown_offset(coordinator) - hours * HOUR) < datetime.timedelta(minutes=1), "its clock is right"
    check_all_times(lab)


def test_a_coordinators_clock_jumps(lab, clock):
    coordinator = lab.coordinator(under=clock.jumping(), options=("--log-level", "debug"))
    check_all_times(lab)
    shown = {fields(line)["time"][:13] for line in coordinator.lines if "time=" in line}
    assert len(shown) > 2, f"its clock has not jumped: {shown}"  # by the hour


def test_coordinators_that_disagree_about_the_time_work_together(lab, clock):
    """None takes another for dead, no envelope is sent twice, and what one leaves behind the others resume."""
    nodes = lab.some_nodes(3)
    coordinators = [lab.coordinator(under=under) for under in (clock.off_by("+1h"), clock.off_by("-1h"), clock.jumping())]
    rounds = []
    for _ in range(10):
        with lab.db.conn.transaction():
            rounds += [lab.db.submit(2, nodes, per_share_timeout="10 s", round_deadline="40 s") for _ in range(10)]
    lab.db.wait_all_settled()
    assert {(row["state"], row["acked"]) for row in lab.db.rounds()} == {("complete", 3)}
    assert [len(node.requests) for node in nodes] == [len(rounds)] * 3
    assert not any("event=peer_fenced" in line or "event=fenced" in line for c in coordinators for line in c.lines)

    nodes[0].plan(b.silent())
    round_id = lab.db.submit(3, nodes, per_share_timeout="30 s", round_deadline="60 s", retry_budget=1)
    nodes[0].primary.wait_requests(len(rounds) + 1)
    owner = lab.db.round(round_id)["coordinator"]
    next(c for c in coordinators if c.name == owner).kill()
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["coordinator"] != owner
    assert lab.db.attempts(round_id, 1)[0]["resends"] == 1


@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_a_retry_after_date_is_read_by_the_databases_clock(lab, clock, offset):
    """Unless the answer says what the node takes the time for."""
    node = lab.node()
    lab.coordinator(under=clock.off_by(offset))
    until = int(time.time()) + 4
    node.plan(b.status(503, ("retry-after", email.utils.formatdate(until, usegmt=True))))
    round_id = lab.db.submit(1, [node], round_deadline="20 s")
    assert lab.db.wait_settled(round_id, timeout=30)["state"] == "complete"
    first, second = node.requests
    assert first.wall < until - 1 <= second.wall < until + 4, f"{second.wall - until:+.1f} s"


# Time zones.

@pytest.mark.parametrize("where", ["database", "role", "PGTZ", "connection string"])
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_coordinators_in_another_time_zone(lab, where, zone):
    conninfo, under, database = lab.db.conninfo, (), f'"{lab.db.name}"'
    if where == "database":
        lab.db.conn.execute(f"ALTER DATABASE {database} SET timezone = '{zone}'")
    elif where == "role":
        lab.db.conn.execute(f"ALTER ROLE postgres IN DATABASE {database} SET timezone = '{zone}'")
    elif where == "PGTZ":
        under = ("env", f"PGTZ={zone}")
    else:
        conninfo += f" options='-c TimeZone={zone}'"
    lab.processes.coordinator(conninfo, lab.key_file, under=under)
    lab.db.conn.close()  # the test's own next connection is in that zone, too, where it can be
    check_all_times(lab)
    if where in ("database", "role"):
        assert lab.db.one("SHOW timezone") == zone


def test_a_dealers_time_zone_moves_no_deadline(lab):
    """Not even where the days between have 23 or 25 hours."""
    lab.node()
    for zone in ("UTC", "Europe/Berlin", "America/New_York", *ZONES.values()):
        lab.db.conn.execute(f"SET timezone = '{zone}'")
        for days in (30, 90, 180, 270, 360):
            opened = lab.db.open(1, freshness=f"{days} days", round_deadline=f"{days} days")
            since = {name: opened[name].timestamp() - opened["opened_at"].timestamp() for name in ("escalate_at", "deadline_at", "fresh_until")}
            expected = {"escalate_at": days * 43200, "deadline_at": days * 86400, "fresh_until": days * 86400}
            assert since == pytest.approx(expected, abs=0.001), zone
