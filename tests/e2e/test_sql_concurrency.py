"""Races between sessions, on the SQL alone: two dealers, collectors and coordinators at once; locks and fences."""

import time
import uuid

import psycopg
import pytest
from harness.sessions import BRIEF, KEY, LONG, Sessions
from psycopg import errors


@pytest.fixture
def db(cluster):
    sessions = Sessions(cluster)
    yield sessions
    sessions.close()


@pytest.fixture
def a(db):
    return db.session()


@pytest.fixture
def b(db):
    return db.session()


def sqlstate(future):
    return future.exception(timeout=10).sqlstate


# Dealers.

@pytest.mark.parametrize("first, second, expected", [
    (("r", 1, None, 7), ("r", 1, None, None), "QR006"),
    (("r", 1, None, 7), ("s", 1, None, 7), "QR005"),
    (("r", 1, None, 7), ("r", 1, None, 7), "QR006")])
def test_the_second_of_two_dealers_waits_and_is_refused(a, b, first, second, expected):
    a.begin()
    a.open(*first)
    opening = b.later(lambda: b.open(*second))
    assert not opening.done()
    a.commit()
    assert sqlstate(opening) == expected
    if expected == "QR006":
        assert "open" in opening.exception().diag.message_detail


def test_a_dealer_who_rolls_back_used_nothing(a, b):
    a.begin()
    a.open("r", nonce=7)
    opening = b.later(lambda: b.open("r", nonce=7))
    a.rollback()
    assert opening.result(10) == 7


def test_of_many_dealers_one_opens_the_round(db):
    dealers = [db.session() for _ in range(12)]

    def attempt(dealer):
        try:
            return dealer.submit("r") > 0
        except psycopg.Error as error:
            return error.sqlstate

    answers = list(db.pool.map(attempt, dealers))
    assert sorted(answers, key=str) == ["QR006"] * 11 + [True]
    assert db.admin.one("SELECT count(*) FROM quorate.rounds") == 1
    assert db.admin.one("SELECT count(*) FROM quorate_store.envelope") == 2


def test_many_dealers_draw_distinct_nonces(db):
    dealers = [db.session() for _ in range(8)]
    nonces = [n for some in db.pool.map(lambda d: [d.submit(f"r{id(d)}-{i}") for i in range(10)], dealers) for n in some]
    assert len(set(nonces)) == 80


@pytest.mark.parametrize("payload, end, expected", [
    (b"same", "commit", "duplicate"), (b"other", "commit", "conflict"), (b"other", "rollback", "accepted")])
def test_two_envelopes_for_one_node_at_once(a, b, payload, end, expected):
    nonce = a.open("r", 1, [1], **LONG)
    a.begin()
    assert a.distribute("r", nonce, {1: b"same"}) == ["accepted"]
    distributing = b.later(lambda: b.distribute("r", nonce, {1: payload}))
    getattr(a, end)()
    assert distributing.result(10) == [expected]


def test_two_envelopes_for_one_node_in_an_old_snapshot(a, b):
    """A repeatable-read dealer is told to try again, or gets the verdict; never a raw constraint violation."""
    nonce = a.open("r", 1, [1], **LONG)
    b.begin("REPEATABLE READ")
    b.state("r")
    a.distribute("r", nonce, {1: b"same"})
    try:
        assert b.distribute("r", nonce, {1: b"same"}) == ["duplicate"]
    except errors.SerializationFailure:
        pass


def test_a_cancellation_waits_for_an_envelope_that_is_being_distributed(a, b):
    nonce = a.open("r", 1, [1], **LONG)
    a.begin()
    a.distribute("r", nonce, {1: b"x"})
    cancelling = b.later(lambda: b.one("SELECT quorate.cancel_round('r', 'why')"))
    assert not cancelling.done()
    a.commit()
    assert cancelling.result(10) is True
    assert a.distribute("r", nonce, {1: b"x"}) == ["duplicate"]


def test_an_envelope_waits_for_a_cancellation_and_is_too_late(a, b):
    nonce = a.open("r", 1, [1], **LONG)
    a.begin()
    assert a.one("SELECT quorate.cancel_round('r', 'why')")
    distributing = b.later(lambda: b.distribute("r", nonce, {1: b"x"}))
    a.commit()
    assert distributing.result(10) == ["round_closed"]


def test_two_cancellations_at_once_one_wins(a, b):
    a.open("r", **LONG)
    a.begin()
    assert a.one("SELECT quorate.cancel_round('r', 'first')") is True
    cancelling = b.later(lambda: b.one("SELECT quorate.cancel_round('r', 'second')"))
    a.commit()
    assert cancelling.result(10) is False
    assert b.one("SELECT close_reason FROM quorate.rounds") == "first"


def test_two_changes_of_one_node_at_once(a, b):
    a.begin()
    a.rows("SELECT quorate.add_node(9, 'http://a.test/', %s)", KEY)
    adding = b.later(lambda: b.rows("SELECT quorate.add_node(9, 'http://b.test/', %s)", KEY))
    a.commit()
    adding.result(10)
    assert b.one("SELECT url FROM quorate.nodes WHERE node_id = 9") == "http://b.test/"


# Collectors.

@pytest.mark.parametrize("call", ["SELECT quorate.collect('r')", "SELECT * FROM quorate.collected('r')", "SELECT quorate.settle_round('r')"])
def test_no_decision_without_the_lock(a, b, call):
    """A dealer sits on the round's lock past its deadline: 55P03 after a second, never QR001."""
    nonce = a.open("r", 1, [1], round_deadline="200 ms", **BRIEF)
    a.begin()
    a.distribute("r", nonce, {1: b"x"})
    b.pass_deadline("r")
    started = time.monotonic()
    with pytest.raises(errors.LockNotAvailable):
        b.rows(call)
    assert 0.9 < time.monotonic() - started < 5
    a.commit()
    if "settle" in call:
        assert b.one(call) == "stalled"
    else:
        with pytest.raises(psycopg.Error) as refused:
            b.rows(call)
        assert refused.value.sqlstate == "QR001"


def test_collect_at_the_deadline_waits_for_the_ack_that_was_in_time(db, a, b):
    me = a.join()
    b.submit("r", 1, [1], round_deadline="1200 ms", **BRIEF)
    a.claim(me)
    a.begin()
    assert a.record(me, ("r", 1)) == {"r": "complete"}
    b.pass_deadline("r")
    collecting = b.later(lambda: b.collect("r"))
    assert not collecting.done(), "it must not decide before the ack is committed or rolled back"
    a.commit()
    assert collecting.result(10) == [1]


def test_collect_at_the_deadline_fails_if_that_ack_is_rolled_back(a, b):
    me = a.join()
    b.submit("r", 1, [1], round_deadline="1200 ms", **BRIEF)
    a.claim(me)
    a.begin()
    a.record(me, ("r", 1))
    b.pass_deadline("r")
    collecting = b.later(lambda: b.collect("r"))
    a.rollback()
    assert sqlstate(collecting) == "QR001"


def test_two_first_collectors_get_the_same(a, b):
    me = a.join()
    a.submit("r", 1, [1])
    a.claim(me)
    a.record(me, ("r", 1))
    a.begin()
    assert a.collect("r") == [1]
    collecting = b.later(lambda: b.collect("r"))
    first = a.one("SELECT collected_at FROM quorate.rounds")
    a.commit()
    assert collecting.result(10) == [1]
    assert b.one("SELECT collected_at FROM quorate.rounds") == first


def test_collecting_and_dead_lettering_exclude_each_other(a, b):
    """Whoever has the row first wins; the other one follows."""
    me = a.join()
    for name in ("x", "y"):
        b.submit(name, 1, [1], round_deadline="1500 ms", freshness="1500 ms", **BRIEF)
    a.claim(me)
    a.record(me, ("x", 1), ("y", 1))
    a.begin()
    assert a.collect("x") == [1]
    b.pass_deadline("x")
    b.pass_deadline("y")
    assert b.tick(me)[2] == 1, "only y: x is locked by its collector"
    a.commit()
    assert b.tick(me)[2] == 0
    assert (b.state("x"), b.state("y")) == ("complete", "dead_lettered")
    for name in ("x", "y"):
        with pytest.raises(psycopg.Error) as refused:
            b.collect(name)
        assert refused.value.sqlstate == "QR002"


def test_collect_in_an_old_snapshot_never_says_stalled(a, b):
    me = a.join()
    a.submit("r", 1, [1], round_deadline="1200 ms", **BRIEF)
    a.claim(me)
    b.begin("REPEATABLE READ")
    assert b.collect("r") is None
    a.record(me, ("r", 1))
    a.pass_deadline("r")
    with pytest.raises(errors.SerializationFailure):
        b.collect("r")
    b.rollback()
    assert b.collect("r") == [1]


def test_a_read_only_session_collects_what_was_collected(a, b):
    me = a.join()
    a.submit("r", 1, [1])
    a.submit("s", 1, [1])
    a.claim(me)
    a.record(me, ("r", 1))
    assert a.collect("r") == [1]
    b.conn.execute("SET default_transaction_read_only = on")
    assert b.collect("r") == [1]
    assert b.collect("s") is None
    assert b.one("SELECT quorate.settle_round('r')") == "complete"
    assert b.one("SELECT count(*) FROM quorate.deliveries") == 2


# Coordinators.

def test_two_coordinators_claim_different_rounds_without_waiting(a, b):
    one, two = a.join(), b.join()
    for i in range(4):
        a.submit(f"r{i}")
    a.begin()
    first = a.claim(one, 2)
    second = b.claim(two)
    a.commit()
    assert len(first) == 2 and sorted(first + second) == ["r0", "r1", "r2", "r3"]
    assert a.claim(one) == b.claim(two) == []


def test_what_was_reserved_before_may_have_been_sent(a, b):
    """`mine`, and the payload that comes with it, say of an attempt that it was reserved by this very call, and so was not sent yet."""
    one, two = a.join(), b.join()
    a.submit("r", 2, [1, 2])
    look = "SELECT node_id, primary_open, primary_mine, payload IS NOT NULL FROM quorate_worker."
    assert sorted(a.rows(look + "claim(%s, 10, 10, '{}')", one)) == [(1, 1, True, True), (2, 1, True, True)]
    assert sorted(a.rows(look + "owned(%s, 0, 10)", one)) == [(1, 1, False, False), (2, 1, False, False)]
    assert a.one("SELECT quorate_worker.leave(%s)", one) is True
    assert sorted(b.rows(look + "claim(%s, 10, 10, '{}')", two)) == [(1, 1, False, False), (2, 1, False, False)]
    assert b.reserve(two, "r", 1, 1) == (True, "open")
    assert b.one("SELECT resends FROM quorate.attempts WHERE node_id = 1") == 1


def test_a_claim_closes_all_but_the_newest_attempt_that_a_predecessor_left(a, b):
    one, two = a.join(), b.join()
    a.submit("r", 1, [1, 2])
    a.claim(one)
    assert a.reserve(one, "r", 1, 2) == (True, "open"), "the outcome of the first one is on its way"
    assert a.one("SELECT quorate_worker.leave(%s)", one) is True
    assert b.claim(two) == ["r"]
    assert b.rows("SELECT node_id, attempt, outcome FROM quorate.attempts ORDER BY 1, 2") == [
        (1, 1, "in_doubt"), (1, 2, None), (2, 1, None)]


def test_nobody_waits_for_a_dealer(a, b):
    """A dealer's open transaction stops no coordinator: his round is left for later, the others go on."""
    me = b.join()
    nonce = a.open("held", 1, [1, 2], **LONG)
    a.submit("free", 1, [1])
    b.conn.execute("SET lock_timeout = '1 ms'")
    a.begin()
    a.distribute("held", nonce, {1: b"x"})
    assert b.claim(me) == ["free"]
    a.commit()
    assert b.claim(me) == ["held"]
    a.begin()
    a.distribute("held", nonce, {2: b"x"})
    assert b.record(me, ("held", 1), ("free", 1)) == {"held": "locked", "free": "complete"}
    assert b.one("SELECT count(*) FROM quorate.acks") == 1, "nothing was written for the locked one"
    assert b.reserve(me, "held", 1, 1) == (False, "locked")
    assert b.settle(me, "held") == ("locked", False)
    assert b.tick(me)[0] is True
    a.commit()
    assert b.record(me, ("held", 1)) == {"held": "complete"}
    assert b.claim(me) == ["held"], "its newer envelope"


def test_a_due_round_that_is_locked_is_stalled_later(a, b):
    me = b.join()
    nonce = a.open("r", 1, [1], round_deadline="200 ms", **BRIEF)
    a.begin()
    a.distribute("r", nonce, {1: b"x"})
    b.pass_deadline("r")
    b.conn.execute("SET lock_timeout = '1 ms'")
    assert b.tick(me)[1] == 0
    a.commit()
    assert b.tick(me)[1] == 1


def test_two_acks_at_once_complete_once(a, b):
    one = a.join()
    a.submit("r", 2, [1, 2, 3])
    a.claim(one)
    a.record(one, ("r", 3))
    a.begin()
    assert a.record(one, ("r", 1)) == {"r": "complete"}
    assert b.record(one, ("r", 2)) == {"r": "locked"}
    a.commit()
    assert b.record(one, ("r", 2)) == {"r": "complete"}
    assert b.one("SELECT quorum_nodes FROM quorate.rounds") == [1, 3]
    assert b.one("SELECT acked FROM quorate.rounds") == 3


def test_one_ack_brought_by_two(a, b):
    one, two = a.join(), b.join()
    a.submit("r", 2, [1, 2])
    a.claim(one)
    a.begin()
    assert a.record(one, ("r", 1)) == {"r": "open"}
    assert b.record(two, ("r", 1)) == {"r": "locked"}
    a.commit()
    assert b.record(two, ("r", 1)) == {"r": "fenced"}
    assert b.one("SELECT acked FROM quorate.rounds") == 1
    assert b.state("r") == "open"


def test_overlapping_batches_never_deadlock(a, b):
    me = a.join()
    for name in ("x", "y"):
        a.submit(name, 1, [1, 2])
    a.claim(me)
    a.begin()
    b.begin()
    assert a.record(me, ("x", 1)) == {"x": "complete"}
    assert b.record(me, ("y", 1), ("x", 2)) == {"y": "complete", "x": "locked"}
    assert a.record(me, ("y", 2)) == {"y": "locked"}
    a.commit()
    b.commit()


def test_an_ack_that_meets_a_cancellation_is_late(a, b):
    me = b.join()
    a.submit("r", 1, [1])
    b.claim(me)
    a.begin()
    a.one("SELECT quorate.cancel_round('r', 'why')")
    assert b.record(me, ("r", 1)) == {"r": "locked"}
    a.commit()
    assert b.record(me, ("r", 1)) == {"r": "cancelled"}
    assert b.one("SELECT late FROM quorate.acks") is True


def test_two_ticks_at_once(a, b):
    one, two = a.join(), b.join()
    for i in range(6):
        a.submit(f"r{i}", 1, [1], round_deadline="100 ms", **BRIEF)
    a.pass_deadline("r5")
    b.conn.execute("SET lock_timeout = '500 ms'")
    a.begin()
    assert a.tick(one) == (True, 6, 0, 0)
    assert b.tick(two) == (True, 0, 0, 0), "the other one neither waits nor does it twice"
    a.commit()
    assert b.one("SELECT count(*) FROM quorate.rounds WHERE state = 'stalled'") == 6


def test_two_that_were_both_silent_do_not_deadlock(a, b):
    one, two = a.join(lease="1 us"), b.join(lease="1 us")
    b.conn.execute("SET lock_timeout = '500 ms'")
    a.begin()
    a.tick(one)
    b.tick(two)
    a.commit()


# Fences.

def test_no_fence_while_a_batch_is_under_way(a, b):
    silent, other = a.join("silent", "1 us"), b.join("other")
    a.submit("r", 1, [1])
    a.begin()
    assert a.claim(silent) == ["r"]
    assert b.tick(other)[3] == 0, "its batch is under way"
    assert b.claim(other) == []
    a.commit()
    assert b.tick(other)[3] == 1
    assert b.claim(other) == ["r"]


def test_a_batch_that_meets_its_fence_sees_it(a, b):
    silent, other = a.join("silent", "1 us"), b.join("other")
    a.submit("r", 2, [1, 2])
    a.claim(silent)
    a.submit("s", 1, [1])
    b.begin()
    assert b.tick(other)[3] == 1
    claiming = a.later(lambda: a.claim(silent))
    assert not claiming.done(), "it waits to learn whether it was fenced"
    b.commit()
    assert claiming.result(10) == []
    assert a.reserve(silent, "r", 1, 2) == (False, "fenced")
    assert a.record(silent, ("r", 1), outcome="timeout") == {"r": "fenced"}
    assert a.one("SELECT outcome FROM quorate.attempts WHERE node_id = 1") is None
    assert a.record(silent, ("r", 1)) == {"r": "fenced"}, "its receipt counts"
    assert b.claim(other) == ["r", "s"]
    assert b.one("SELECT acked FROM quorate.rounds WHERE round_id = 'r'") == 1


def test_a_frozen_coordinator_loses_its_sessions(db, b):
    """It sits on an open transaction with its batch: whoever fences it ends its session first."""
    instance = uuid.uuid4()
    frozen = db.session(application_name=f"quorate {instance}")
    silent, other = frozen.join("frozen", "1 us", instance), b.join("other")
    b.submit("r", 1, [1])
    frozen.begin()
    assert frozen.claim(silent) == ["r"]
    deadline = time.monotonic() + 10
    while b.tick(other)[3] == 0:
        assert time.monotonic() < deadline
    with pytest.raises(psycopg.OperationalError):
        frozen.rows("SELECT 1")
    assert b.claim(other) == ["r"]
    assert b.one("SELECT count(*) FROM quorate.attempts WHERE coordinator = 'frozen'") == 0, "its claim was rolled back"


def test_leaving_with_a_batch_under_way_orphans_no_round(db, a, b):
    """I10: a batch of a broken connection may still run and claim while its coordinator says good-bye on another one."""
    c = db.session()
    leaving, other = a.join("leaving"), b.join("other")
    a.submit("r", 1, [1])
    a.begin()
    assert a.claim(leaving) == ["r"]
    went = c.later(lambda: c.one("SELECT quorate_worker.leave(%s)", leaving))
    b.tick(other)
    a.commit()
    if went.result(10) is False:
        assert c.one("SELECT quorate_worker.leave(%s)", leaving) is True
    b.tick(other)
    assert b.claim(other) == ["r"]


# Pruning.

def test_pruning_meets_dealers_and_collectors(a, b, db):
    me = a.join()
    nonce = a.submit("r", 1, [1])
    a.claim(me)
    a.record(me, ("r", 1))
    a.begin()
    assert a.one("SELECT quorate.prune_rounds('infinity')") == 1
    c = db.session()
    collecting = c.later(lambda: c.collect("r"))
    distributing = b.later(lambda: b.distribute("r", nonce, {1: b"share 1"}))
    a.commit()
    assert sqlstate(collecting) == "QR003"
    assert distributing.result(10) == ["unknown_round"]


def test_pruning_skips_what_is_locked_and_leaves_the_rest_to_the_other(a, b):
    me = a.join()
    for i in range(4):
        a.submit(f"r{i}", 1, [1])
    a.claim(me)
    a.record(me, *((f"r{i}", 1) for i in range(4)))
    a.begin()
    assert a.one("SELECT quorate.prune_rounds('infinity', 3)") == 3
    assert b.one("SELECT quorate.prune_rounds('infinity')") == 1
    a.commit()
    assert b.one("SELECT count(*) FROM quorate_store.delivery") == 0


def test_a_pruned_round_is_not_reborn_by_two_sessions(a, b):
    """The owner deletes a settled round in one session and inserts it again in the other, which waits for the key."""
    me = a.join()
    a.submit("r", 1, [1])
    a.claim(me)
    a.record(me, ("r", 1))
    again = ("INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, per_share_timeout, base_backoff,"
             " max_backoff, after_quorum, quorum, retry_budget, node_ids, node_versions) SELECT round_no, now(), now(),"
             " now() + interval '1 h', '1 s', '1 s', '1 s', 'continue', 1, 1, '{1}', '{1}' FROM quorate_store.ledger")
    a.begin()
    a.conn.execute("DELETE FROM quorate_store.round")
    inserting = b.later(lambda: b.conn.execute(again))
    a.commit()
    assert sqlstate(inserting).startswith("23")
    assert a.one("SELECT count(*) FROM quorate_store.round") == 0
