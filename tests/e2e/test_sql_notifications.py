"""Notifications of the SQL functions: hints when there is work and when a round ends, never more than its id and state."""

import psycopg
import pytest
from harness.sessions import BRIEF, LONG, Sessions


@pytest.fixture
def db(cluster):
    sessions = Sessions(cluster)
    yield sessions
    sessions.close()


@pytest.fixture
def a(db):
    return db.session()


def heard(listener):
    """What has arrived by the time a mark sent by the same way does."""
    listener.db.admin.conn.execute("NOTIFY quorate_round, 'mark'")
    found = []
    for notification in listener.conn.notifies():
        if notification.payload == "mark":
            return found
        found.append((notification.channel, notification.payload))
    raise AssertionError("the connection ended")


@pytest.fixture
def ear(db):
    listener = db.session()
    listener.conn.execute("LISTEN quorate_round")
    listener.conn.execute("LISTEN quorate_work")
    return listener


def test_work_is_announced_once_per_transaction(a, ear):
    nonce = a.open("r", 2, [1, 2], **LONG)
    assert heard(ear) == [], "a round without envelopes is no work"
    a.distribute("r", nonce, {1: b"x", 2: b"y"})
    assert heard(ear) == [("quorate_work", "")]
    a.distribute("r", nonce, {1: b"x", 2: b"other"})
    assert heard(ear) == [], "duplicates and refusals are no work"
    a.begin()
    for i in range(5):
        a.submit(f"s{i}")
    a.commit()
    assert heard(ear) == [("quorate_work", "")]


def test_ends_are_announced_with_id_and_state_and_acks_are_not(a, ear):
    me = a.join()
    a.submit("c", 2, [1, 2, 3])
    a.claim(me)
    heard(ear)
    a.record(me, ("c", 1))
    assert heard(ear) == []
    a.record(me, ("c", 2))
    assert heard(ear) == [("quorate_round", "c complete")]
    a.record(me, ("c", 3))
    assert heard(ear) == []
    a.submit("x")
    a.one("SELECT quorate.cancel_round('x', 'why')")
    assert heard(ear) == [("quorate_work", ""), ("quorate_round", "x cancelled")]
    a.one("SELECT quorate.cancel_round('x', 'why')")
    a.one("SELECT quorate.settle_round('x')")
    assert heard(ear) == []


@pytest.mark.parametrize("by", ["tick", "settle_round", "record", "settle"])
def test_a_stall_is_announced_by_whoever_commits_it(a, ear, by):
    me = a.join()
    a.submit("r", 1, [1], round_deadline="150 ms", **BRIEF)
    a.claim(me)
    a.pass_deadline("r")
    heard(ear)
    with pytest.raises(psycopg.Error):
        a.collect("r")
    assert heard(ear) == [], "collect commits nothing"
    {"tick": lambda: a.tick(me), "settle_round": lambda: a.one("SELECT quorate.settle_round('r')"),
     "record": lambda: a.record(me, ("r", 1), outcome="timeout"), "settle": lambda: a.settle(me, "r")}[by]()
    assert heard(ear) == [("quorate_round", "r stalled")]
    a.tick(me)
    a.one("SELECT quorate.settle_round('r')")
    assert heard(ear) == [], "once"


@pytest.mark.parametrize("by", ["tick", "settle_round"])
def test_a_dead_letter_is_announced(a, ear, by):
    me = a.join()
    a.submit("r", 1, [1], freshness="1200 ms", **BRIEF)
    a.claim(me)
    a.record(me, ("r", 1))
    a.one("SELECT pg_sleep_until(fresh_until + interval '2 ms') IS NULL FROM quorate.rounds")
    heard(ear)
    _ = a.tick(me) if by == "tick" else a.one("SELECT quorate.settle_round('r')")
    assert heard(ear) == [("quorate_round", "r dead_lettered")]


def test_without_notifications_the_same_is_done(a, ear):
    me = a.join()
    a.submit("c", 1, [1])
    a.submit("r", 1, [1], round_deadline="300 ms", **BRIEF)
    a.claim(me)
    a.pass_deadline("r")
    heard(ear)
    assert a.record(me, ("c", 1), notify=False) == {"c": "complete"}
    assert a.tick(me, notify=False)[1] == 1
    assert heard(ear) == []


def test_a_rolled_back_round_is_not_announced(a, ear):
    a.begin()
    a.submit("r")
    a.rollback()
    assert heard(ear) == []
