"""What goes wrong between a coordinator's batches and the database: each test is named after the trouble that it makes."""

import os
import secrets
import signal
import socket
import threading

import pytest
from harness import behaviours as b
from harness import wire

PATIENT = {"per_share_timeout": "20 s", "retry_budget": 3, "round_deadline": "60 s"}
FAILURES = 6


def fail_at_commit(lab, sqlstate: str) -> None:
    """The first commits that complete a round fail, as those do that find the notification queue full."""
    lab.db.conn.execute("CREATE SEQUENCE public.failures")
    lab.db.conn.execute(f"""
        CREATE FUNCTION public.fail_commit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('public.failures') <= {FAILURES} THEN
                RAISE EXCEPTION 'a commit fails' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NULL;
        END $$""")
    lab.db.conn.execute("""
        CREATE CONSTRAINT TRIGGER fail_commit AFTER UPDATE ON quorate_store.round DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (OLD.state = 'open' AND NEW.state = 'complete') EXECUTE FUNCTION public.fail_commit()""")


def slow_reads(lab, seconds: float) -> None:
    """Envelopes take a while to be read, so that they arrive well after the commit before them."""
    text = lab.db.one("SELECT pg_get_functiondef('quorate_worker.envelopes(bigint[], smallint[])'::regprocedure)")
    assert text.count("BEGIN") == 1
    lab.db.conn.execute(text.replace("BEGIN", f"BEGIN PERFORM pg_sleep({seconds});"))


def fill_notification_queue(lab, name: str) -> None:
    """quorate_worker.<name> fails as it does while the queue is full, unless it is called without notifications."""
    columns = lab.db.rows("""
        SELECT a.name, a.mode::text, format_type(a.type, NULL) AS type
          FROM pg_proc p, unnest(p.proargnames, p.proargmodes, p.proallargtypes) AS a (name, mode, type)
         WHERE p.pronamespace = 'quorate_worker'::regnamespace AND p.proname = %s""", name)
    given = [c for c in columns if c["mode"] == "i"]
    results = ", ".join(f"{c['name']} {c['type']}" for c in columns if c["mode"] != "i")
    assert "p_notify" in [c["name"] for c in given]
    lab.db.conn.execute(f"CREATE SEQUENCE public.refused_{name}")
    lab.db.conn.execute(f"ALTER FUNCTION quorate_worker.{name} RENAME TO {name}_real")
    lab.db.conn.execute(f"""
        CREATE FUNCTION quorate_worker.{name}({", ".join(f"{c['name']} {c['type']}" for c in given)})
        RETURNS TABLE ({results}) LANGUAGE plpgsql AS $$
        BEGIN
            IF p_notify THEN
                PERFORM nextval('public.refused_{name}');
                RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
            END IF;
            RETURN QUERY SELECT * FROM quorate_worker.{name}_real({", ".join(c["name"] for c in given)});
        END $$""")


@pytest.mark.parametrize("names", [("record",), ("settle",), ("tick",), ("record", "settle", "tick")], ids="-".join)
def test_rounds_end_while_the_notification_queue_is_full(lab, names):
    """Notifications are hints: a batch that fails for them is repeated without, and beats are too."""
    nodes = lab.some_nodes(2)
    for name in names:
        fill_notification_queue(lab, name)
    coordinator = lab.coordinator()
    stalls = lab.db.open(2, round_deadline="1500 ms")["round_id"]
    lab.db.wait("claimed", lambda: lab.db.round(stalls)["coordinator"])
    completes = lab.db.submit(2, nodes)
    assert lab.db.wait_settled(completes)["state"] == "complete"
    assert lab.db.wait_settled(stalls)["state"] == "stalled"
    assert [len(node.requests) for node in nodes] == [1, 1] and coordinator.running()
    refused = {name for name in names if lab.db.one(f"SELECT is_called FROM public.refused_{name}")}
    # A lane is quiet from its first refusal on: where record's came first, settle is not refused any more.
    assert refused | ({"settle"} & set(names) if "record" in names else set()) == set(names)


@pytest.mark.parametrize("slots", ["1", "10000"])
def test_rounds_are_claimed_however_many_slots_there_are(lab, slots):
    """A claim waits until it is worth it, but never for more slots than one claim takes."""
    nodes = lab.some_nodes(2)
    lab.coordinator(options=("--slots", slots))
    rounds = [lab.db.submit(2, nodes) for _ in range(5)]
    assert {lab.db.wait_settled(round_id)["state"] for round_id in rounds} == {"complete"}


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.mark.parametrize("slots", ["8", "64"])
def test_rounds_are_claimed_however_many_nodes_share_a_url(lab, slots):
    """Few rounds, or less than one, fit the slots of such an endpoint: they are claimed all the same, also once it is known."""
    url, nodes = f"http://127.0.0.1:{closed_port()}/", list(range(1, 13))
    for node_id in nodes:
        lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", node_id, url, wire.KeyPair().public_text)
    lab.coordinator(options=("--slots", slots))
    for _ in range(3):  # the first claim knows no endpoint yet
        round_id = lab.db.submit(1, nodes, retry_budget=2, round_deadline="2 s", per_share_timeout="100 ms")
        assert lab.db.wait_settled(round_id)["state"] == "stalled"
        assert {a["node_id"] for a in lab.db.attempts(round_id)} == set(nodes)


def test_a_node_whose_key_is_no_key_strands_no_round(lab):
    """The database cannot tell a point of the curve from other bytes: nothing is sent to such a node, and its rounds end as with a dark one."""
    (good,), bad = lab.some_nodes(1), 2
    lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", bad, f"http://127.0.0.1:{closed_port()}/", "whpk_" + 43 * "A" + "=")
    coordinator = lab.coordinator()
    both, alone = lab.db.submit(1, [good, bad]), lab.db.submit(1, [bad], round_deadline="4 s")
    assert lab.db.wait_settled(both)["quorum_nodes"] == [good.node_id]
    assert lab.db.wait_settled(alone)["state"] == "stalled"
    assert {a["outcome"] for a in lab.db.attempts(alone)} == {"connect_error"}
    assert len([line for line in coordinator.lines if "event=key_unusable" in line and "node=2" in line]) == 1
    assert not [line for line in coordinator.lines if "level=error" in line]


def test_a_receipt_that_comes_while_a_coordinator_goes_and_the_notification_queue_is_full(lab):
    """Rounds are given back without notifications then, and no ack is rolled back with them."""
    answer_now = threading.Event()
    slow, waiting = lab.some_nodes(2)
    slow.plan(then=b.after(answer_now))
    fill_notification_queue(lab, "release")
    coordinator = lab.coordinator()
    acked = lab.db.submit(1, [slow], **PATIENT)
    slow.primary.wait_requests(1)
    idle = lab.db.open(1, node_ids=[waiting.node_id], **PATIENT)["round_id"]
    lab.db.wait("both are claimed", lambda: all(row["coordinator"] for row in lab.db.rounds()))
    coordinator.tell_to_stop()
    lab.db.wait("release was refused", lambda: lab.db.one("SELECT is_called FROM public.refused_release"))
    lab.db.wait("the idle one is given back", lambda: lab.db.round(idle)["coordinator"] is None)
    answer_now.set()
    assert coordinator.stop() == 0
    assert lab.db.round(acked)["state"] == "complete" and list(lab.db.acks(acked)) == [slow.node_id]
    assert not [line for line in coordinator.lines if "drain_incomplete" in line]


def test_sessions_that_hang_while_the_heartbeat_is_answered(lab):
    """Nobody fences a coordinator that beats: it notices by itself that its batches get no answer, and begins their sessions anew."""
    node = lab.node()
    coordinator = lab.coordinator()
    first = lab.db.submit(1, [node])
    lab.db.wait_settled(first)
    lanes = [row["pid"] for row in lab.db.rows("""
        SELECT s.pid FROM pg_stat_activity s
         WHERE s.datname = current_database() AND s.application_name LIKE 'quorate %%' AND s.application_name NOT LIKE ALL ('{%% ring,%% history}')
           AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = s.pid AND l.locktype = 'advisory' AND l.classid = quorate_store.life_class())""")]
    assert len(lanes) == 2
    for pid in lanes:
        os.kill(pid, signal.SIGSTOP)
    try:
        hung = lab.db.submit(1, [node], per_share_timeout="1 s", round_deadline="2 min")
        # Twice 20 s where the second session gets a batch only after the first one was begun anew.
        assert lab.db.wait_settled(hung, timeout=90)["state"] == "complete"
    finally:
        for pid in lanes:
            os.kill(pid, signal.SIGCONT)
    assert [line for line in coordinator.lines if "event=batch_failed" in line and "though the heartbeat is answered" in line]
    assert lab.db.one("SELECT count(*) FROM quorate.coordinators") == 1


def test_attempts_never_exceed_the_slots_of_an_endpoint(lab):
    """Forty rounds that are owned already get their envelopes at once: two are attempted, the others wait for a slot."""
    slots, lock = 2, threading.Lock()
    at_once, seen, reserved = 0, [], []

    def busy(exchange):
        nonlocal at_once
        with lock:
            at_once += 1
            seen.append(at_once)
        exchange.endpoint.closing.wait(0.05)
        with lock:
            at_once -= 1  # before the answer, whereupon another request may come
        b.ok()(exchange)

    node = lab.node().plan(then=b.named("busy", busy))
    node.witness = lambda *_: reserved.append(lab.db.one("SELECT count(*) FROM quorate.attempts WHERE outcome IS NULL"))
    lab.coordinator(options=("--slots", str(slots)))
    opened = [lab.db.open(1, **PATIENT) for _ in range(40)]
    lab.db.wait("all are claimed", lambda: all(row["coordinator"] for row in lab.db.rounds()))
    with lab.db.conn.transaction():
        for one in opened:
            lab.db.distribute(one["round_id"], one["nonce"], {1: secrets.token_bytes(48)})

    def settled():
        reserved.append(lab.db.one("SELECT count(*) FROM quorate.attempts WHERE outcome IS NULL"))
        return lab.db.one("SELECT count(*) FROM quorate.rounds WHERE settled_at IS NULL") == 0

    lab.db.wait("all settled", settled)
    assert {row["state"] for row in lab.db.rounds()} == {"complete"}
    assert len(seen) == len(opened) and max(seen) == slots
    assert max(reserved) == slots


def test_an_error_at_commit_with_envelopes_being_read_behind_it(lab):
    """The answers of the read that follows in the same batch belong to no other: nothing is lost, and nothing is believed that
    was not committed."""
    nodes = lab.some_nodes(3)
    fail_at_commit(lab, "54000")
    slow_reads(lab, 0.1)
    lab.coordinator()
    # Envelopes too large to come with the claim: each batch that records and completes reads others.
    rounds = [lab.db.submit(2, nodes, payloads={n.node_id: secrets.token_bytes(4000) for n in nodes}, **PATIENT)
              for _ in range(100)]
    lab.db.wait_all_settled()
    assert lab.db.one("SELECT last_value FROM public.failures") > FAILURES
    assert {row["state"] for row in lab.db.rounds()} == {"complete"}
    for node in nodes:
        assert sorted(request.key.round_id for request in node.requests) == sorted(rounds), "each envelope once"


def test_inherited_attempts_wait_for_a_slot_when_their_rounds_end(lab):
    """A dead coordinator's attempts that its heir has not sent again are closed in doubt, and do not keep a round from settling."""
    silent, other = lab.some_nodes(2)
    silent.plan(then=b.silent())
    first = lab.coordinator()
    rounds = [lab.db.submit(2, [silent, other], **PATIENT) for _ in range(5)]
    silent.primary.wait_requests(5)
    lab.db.wait("the other node acked", lambda: all(lab.db.acks(round_id) for round_id in rounds))
    first.kill()
    heir = lab.coordinator(options=("--slots", "1"))
    silent.primary.wait_requests(6)
    lab.db.wait("all are taken over", lambda: {row["coordinator"] for row in lab.db.rounds()} == {heir.name})
    for round_id in rounds:
        assert lab.db.one("SELECT quorate.cancel_round(%s, 'test')", round_id)
    lab.db.wait("all but the one under way settle",
                lambda: sum(row["settled_at"] is not None for row in lab.db.rounds()) >= 4, timeout=10)
    waiting = [lab.db.attempt_list(row["round_id"], silent.node_id) for row in lab.db.rounds() if row["settled_at"]]
    assert waiting == [[("primary", 1, "in_doubt", None)]] * 4
    assert len(silent.requests) == 6


def test_envelopes_come_later_to_a_coordinator_that_is_full(lab):
    """--max-rounds bounds what is claimed, not what its own rounds need to go on."""
    nodes = lab.some_nodes(2)
    full = lab.coordinator(options=("--max-rounds", "1"))
    opened = lab.db.open(2, node_ids=[node.node_id for node in nodes])
    lab.db.wait("it is claimed", lambda: lab.db.round(opened["round_id"])["coordinator"] == full.name)
    waiting = lab.db.submit(2, nodes)
    lab.db.distribute(opened["round_id"], opened["nonce"], {node.node_id: secrets.token_bytes(64) for node in nodes})
    assert lab.db.wait_settled(opened["round_id"])["state"] == "complete"
    assert lab.db.wait_settled(waiting)["state"] == "complete"


def test_a_claim_at_the_last_moment(lab):
    """Rounds whose deadline goes by while they are being claimed stall, and stop nobody."""
    nodes = [lab.node(backup=True) for _ in range(2)]
    lab.coordinator()
    rounds = [lab.db.submit(2, nodes, round_deadline=f"{milliseconds} ms", max_backoff="1 ms", base_backoff="1 ms", retry_budget=1)
              for milliseconds in range(2, 42)]
    lab.db.wait_all_settled()
    assert {row["state"] for row in lab.db.rounds()} <= {"complete", "stalled"}
    assert len(lab.db.rounds()) == len(rounds)
    healthy = lab.db.submit(2, nodes)
    assert lab.db.wait_settled(healthy)["state"] == "complete"


def test_the_defaults_of_a_database_do_not_reach_a_coordinator(lab):
    """Time-outs that cancel every batch, snapshots older than the locks, a read-only session: none of them is inherited."""
    nodes = lab.some_nodes(3)
    for setting in ("statement_timeout = '1ms'", "lock_timeout = '1ms'", "default_transaction_isolation = 'serializable'",
                    "default_transaction_read_only = on"):
        lab.db.conn.execute(f'ALTER DATABASE "{lab.db.name}" SET {setting}')  # for sessions that begin after this
    lab.coordinator()
    rounds = [lab.db.submit(2, nodes, **PATIENT) for _ in range(20)]
    lab.db.wait_all_settled()
    assert [lab.db.round(one)["state"] for one in rounds] == ["complete"] * 20
    for setting in ("statement_timeout", "lock_timeout", "default_transaction_isolation", "default_transaction_read_only"):
        lab.db.conn.execute(f'ALTER DATABASE "{lab.db.name}" RESET {setting}')
