"""PgBouncer between the programs and the database: what works through it, what says that it does not, and what strangers notice."""

import contextlib
import json
import re
import secrets
import signal
import threading
import time
import uuid

import psycopg
import pytest
from harness import behaviours as b
from harness import wire
from harness.bouncer import Bouncer
from harness.cli import Cli, ended
from harness.sessions import Sessions

SERVERS = 6
DEAF = r"level=warn .*event=listen_does_not_work\b.*--listen-db"
PATIENT = {"per_share_timeout": "10 s", "retry_budget": 20, "max_backoff": "50 ms", "round_deadline": "60 s"}
STRANGERS = {"statement_timeout": "77s", "lock_timeout": "66s", "default_transaction_isolation": "repeatable read",
             "default_transaction_read_only": "on"}


@pytest.fixture
def make_bouncer(lab):
    """Bouncers that are gone before the lab's database is; each puts every transaction of a client into another session of the server."""
    with contextlib.ExitStack() as stack:
        def make(mode="transaction", **settings):
            bouncer = stack.enter_context(Bouncer(lab.cluster, mode, {"server_round_robin": 1, **settings}))
            bouncer.db = bouncer.conninfo(lab.db.name)
            return bouncer
        yield make
        for node in lab.nodes:
            node.close()
        lab.processes.close()


@pytest.fixture
def bouncer(make_bouncer):
    return make_bouncer()


@pytest.fixture
def cli(lab):
    return Cli(lab)


def warm(bouncer, database, count=SERVERS):
    """Makes the pool keep so many sessions of the server, so that the next transactions go round them."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(bouncer.connect(database)) for _ in range(count)]
        for conn in conns:
            conn.execute("BEGIN")
            conn.execute("SELECT 1")
        for conn in conns:
            conn.execute("COMMIT")


def in_every_session(bouncer, database, sql):
    """What a query finds in each session that the pool keeps."""
    found = {}
    with bouncer.connect(database) as conn:
        for _ in range(4 * SERVERS):
            pid, value = conn.execute(f"SELECT pg_backend_pid(), ({sql})").fetchone()
            found[pid] = value
    return found


def flood(db, nodes, rounds=120, size=48, **policy):
    submitted = []
    for _ in range(rounds // 10):
        with db.conn.transaction():
            submitted += [db.submit(2, nodes, payloads={n.node_id: secrets.token_bytes(size) for n in nodes},
                                    **{**PATIENT, **policy}) for _ in range(10)]
    return submitted


def assert_all_complete(lab, nodes, rounds):
    lab.db.wait_all_settled(90)
    assert {(row["state"], row["acked"]) for row in lab.db.rounds()} == {("complete", len(nodes))}
    assert sorted(row["round_id"] for row in lab.db.rounds()) == sorted(rounds)
    for node in nodes:
        assert {r.key.round_id for r in node.requests} == set(rounds)


# Dealers, collectors, auditors.

def test_two_transactions_of_a_client_run_in_two_sessions(lab, bouncer):
    """Or else these tests would show nothing."""
    warm(bouncer, lab.db.name)
    assert len(in_every_session(bouncer, lab.db.name, "SELECT 1")) >= SERVERS


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_every_command_works_through_it(lab, cli, make_bouncer, mode):
    bouncer = make_bouncer(mode)
    warm(bouncer, lab.db.name)
    for number in (1, 2, 3):
        cli("node", "add", str(number), "--url", "http://127.0.0.1:9/", "--key", wire.KeyPair().public_text, conninfo=bouncer.db)
    cli("node", "disable", "3", conninfo=bouncer.db)
    cli("node", "enable", "3", conninfo=bouncer.db)
    assert len(json.loads(cli("node", "list", "--json", conninfo=bouncer.db))) == 3
    nonce = cli("open", "r", "--quorum", "2", "--deadline", "60s", conninfo=bouncer.db).strip()
    cli("distribute", "r", "--nonce", nonce, "--share", cli.share(1), "--share", cli.share(2), conninfo=bouncer.db)
    cli.fails(5, "open", "r", "--quorum", "2", conninfo=bouncer.db)
    assert "still open" in cli.fails(8, "collect", "r", "--wait", "0", conninfo=bouncer.db)
    assert "still open" in cli.fails(8, "collect", "r", "--wait", "1500ms", conninfo=bouncer.db)
    assert "accepted" not in cli("status", "r", conninfo=bouncer.db)
    assert '"open": 1' in cli("status", "--json", conninfo=bouncer.db).replace('":1', '": 1')
    cli("cancel", "r", "--reason", "enough", conninfo=bouncer.db)
    cli.fails(9, "collect", "r", conninfo=bouncer.db)
    assert cli("prune", "--older-than", "1d", conninfo=bouncer.db) == "0\n"
    cli("migrate", "--status", conninfo=bouncer.db)
    cli("migrate", "--verify", conninfo=bouncer.db)


def test_collect_polls_and_leaves_no_listener_behind(lab, cli, bouncer):
    """A session that listens would be woken by every round, for whoever has it then."""
    warm(bouncer, lab.db.name)
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "60s")
    collector = cli.start_at(bouncer.db, "collect", "r")
    lab.db.wait("it has looked", lambda: lab.db.one(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%%quorate.collect(%%' AND pid <> pg_backend_pid()"))
    time.sleep(1.5)
    assert collector.poll() is None
    lab.db.rows("SELECT quorate.cancel_round('r', 'at last')")
    code, out, err = ended(collector, 10)
    assert (code, out) == (9, "") and "at last" in err
    listening = in_every_session(bouncer, lab.db.name, "SELECT array_agg(c) FROM pg_listening_channels() c")
    assert len(listening) >= SERVERS and set(listening.values()) == {None}


def test_collect_survives_a_restart_of_the_pooler(lab, cli, bouncer):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2", "--deadline", "60s")
    collector = cli.start_at(bouncer.db, "collect", "r")
    lab.db.wait("it has looked", lambda: lab.db.one(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%%quorate.%%' AND pid <> pg_backend_pid()"))
    bouncer.restart()
    lab.db.rows("SELECT quorate.cancel_round('r', 'at last')")
    code, _, err = ended(collector)
    assert code == 9 and "at last" in err


def test_a_dealer_without_prepared_statements_deals_and_collects(lab, bouncer):
    nodes = lab.some_nodes(3)
    lab.coordinator()
    warm(bouncer, lab.db.name)
    with bouncer.connect(lab.db.name) as conn:
        for _ in range(20):
            round_id = lab.db.new_round_id()
            payloads = [secrets.token_bytes(40) for _ in nodes]
            nonce = conn.execute("SELECT nonce FROM quorate.open_round(%s, 2)", [round_id]).fetchone()[0]
            verdicts = conn.execute("SELECT verdict FROM quorate.distribute(%s, %s, %s::int[], %s::bytea[])",
                                    [round_id, nonce, [n.node_id for n in nodes], payloads]).fetchall()
            assert verdicts == [("accepted",)] * 3
            lab.db.payloads.update({(round_id, n.node_id): p for n, p in zip(nodes, payloads)})
            lab.db.wait_state(round_id)
            quorum = conn.execute("SELECT quorate.collect(%s)", [round_id]).fetchone()[0]
            assert len(quorum) >= 2
    lab.db.wait_all_settled()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_migrate_refuses_and_leaves_no_lock_behind(lab, cli, make_bouncer, mode):
    bouncer = make_bouncer(mode)
    said = cli.fails(1, "migrate", conninfo=bouncer.db)
    assert "pooler" in said and "connect to the server itself" in said
    assert lab.db.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    cli("migrate")


# A coordinator whose lanes go through it.

def test_lanes_through_it_with_a_connection_that_listens(lab, bouncer):
    """Work is found at once, large envelopes and retries included; the pool's sessions stay as they were."""
    nodes = lab.some_nodes(3)
    nodes[1].plan(*[b.status(503)] * 40)
    warm(bouncer, lab.db.name)
    coordinator = lab.processes.coordinator(bouncer.db, lab.key_file, options=("--listen-db", lab.db.conninfo))
    rounds = flood(lab.db, nodes, size=2000)
    assert_all_complete(lab, nodes, rounds)
    # (The clusters of tests do without fsync, which is warned of.)
    assert not re.search(r"level=(warn|error) (?!.*event=(attempt|not_durable))", coordinator.log), coordinator.log
    assert lab.db.one("SELECT count(*) FROM quorate_store.coordinator WHERE holds_life") == 1, "its own connection holds it"
    assert [row["database"] for row in bouncer.admin("SHOW CLIENTS")].count(lab.db.name) == 3, "its lanes and its history, and nothing else"


@pytest.mark.parametrize("listen", [True, False])
def test_strangers_settings_neither_stop_it_nor_change(lab, make_bouncer, listen):
    """What it needs it sets for its own transactions only: the next one in that session is somebody else's."""
    with lab.db.connect() as conn:
        for name, value in STRANGERS.items():
            conn.execute(f"ALTER DATABASE {lab.db.name} SET {name} = '{value}'")
    bouncer = make_bouncer()
    warm(bouncer, lab.db.name)
    lab.db.conn.execute("SET default_transaction_read_only = off")
    lab.db.conn.execute("SET default_transaction_isolation = 'read committed'")
    nodes = lab.some_nodes(3)
    options = ("--listen-db", lab.db.conninfo) if listen else ()
    coordinator = lab.processes.coordinator(bouncer.db, lab.key_file, options=options)
    rounds = flood(lab.db, nodes, 30)
    assert_all_complete(lab, nodes, rounds)
    assert "batch_failed" not in coordinator.log and "beat_failed" not in coordinator.log
    for name, value in STRANGERS.items():
        found = in_every_session(bouncer, lab.db.name, f"SELECT current_setting('{name}')")
        assert len(found) > 1 and set(found.values()) == {value}, name
    with lab.db.connect() as conn:
        conn.execute("SET default_transaction_read_only = off")
        for name in STRANGERS:
            conn.execute(f"ALTER DATABASE {lab.db.name} RESET {name}")
    lab.db.conn.close()


def test_two_connection_strings_that_lead_to_two_databases_do_nothing(lab, bouncer):
    """The beat's number may be another coordinator's there."""
    other = lab.cluster.create_database()
    try:
        node = lab.node()
        with psycopg.connect(lab.cluster.conninfo(other), autocommit=True) as conn:
            conn.execute("SELECT quorate_worker.join_deployment(gen_random_uuid(), 'another', '1 h')")
        coordinator = lab.processes.coordinator(bouncer.db, lab.key_file, ready=False,
                                                options=("--listen-db", lab.cluster.conninfo(other), "--log-level", "debug"))
        round_id = lab.db.submit(1, [node], round_deadline="2 s")
        coordinator.wait_line(r"level=error .*event=another_database\b.*--listen-db")
        lab.punctual = False
        time.sleep(1)
        assert "event=ready" not in coordinator.log and coordinator.log.count("event=another_database") <= 2  # one for each lane
        assert lab.db.round(round_id)["coordinator"] is None and node.requests == []
        assert coordinator.stop() == 0
    finally:
        lab.cluster.drop_database(other)


# A coordinator that is wholly behind it.

def test_wholly_behind_it_is_warned_and_works(lab, bouncer):
    """Once, at its start; then by looking twice a second: completion, escalation, stall and settling as ever."""
    nodes, dark = lab.some_nodes(3), lab.node(dark=True)
    warm(bouncer, lab.db.name)
    coordinator = lab.processes.coordinator(bouncer.db, lab.key_file)
    coordinator.wait_line(DEAF)
    stalls = lab.db.submit(1, [dark], round_deadline="2 s")
    rounds = flood(lab.db, nodes, 60, size=900)
    lone = lab.db.submit(2, nodes)
    assert lab.db.wait_state(lone)["state"] == "complete"
    row = lab.db.wait_settled(stalls)
    assert row["state"] == "stalled" and row["acked"] == 0
    lab.db.wait_all_settled()
    assert {lab.db.round(r)["state"] for r in rounds} == {"complete"}
    assert len(re.findall(DEAF, coordinator.log)) == 1
    assert lab.db.one("SELECT count(*) FROM quorate_store.coordinator WHERE holds_life") == 0, "such a lock would not end with it"
    listening = in_every_session(bouncer, lab.db.name, "SELECT array_agg(c) FROM pg_listening_channels() c WHERE c <> 'quorate_test'")
    assert len(listening) >= SERVERS and set(listening.values()) == {None}
    assert coordinator.stop() == 0
    assert not [r for r in lab.db.rows("SELECT * FROM quorate.coordinators") if r["alive"]]


def test_lifo_pool_of_one_session_does_not_deceive_it(lab, make_bouncer):
    """Where every transaction finds the same session, LISTEN stays where it was; nobody reads what it hears, though."""
    bouncer = make_bouncer(default_pool_size=1, server_round_robin=0)
    nodes = lab.some_nodes(2)
    coordinator = lab.processes.coordinator(bouncer.db, lab.key_file)
    coordinator.wait_line(DEAF)
    rounds = flood(lab.db, nodes, 20)
    assert_all_complete(lab, nodes, rounds)


def test_behind_a_pooler_of_sessions_it_listens(lab, make_bouncer):
    bouncer = make_bouncer("session", default_pool_size=50)
    nodes = lab.some_nodes(2)
    coordinator = lab.processes.coordinator(bouncer.db, lab.key_file, options=("--log-level", "debug"))
    coordinator.wait_line("event=listen_works")
    rounds = flood(lab.db, nodes, 20)
    assert_all_complete(lab, nodes, rounds)
    assert "listen_does_not_work" not in coordinator.log


def test_direct_connections_are_not_tested(lab):
    coordinator = lab.coordinator(options=("--log-level", "debug"))
    assert "session=beat" in coordinator.log and "direct=no" not in coordinator.log and "speaker" not in coordinator.log


def test_two_wholly_behind_it_and_one_is_killed(lab, bouncer):
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.02))
    first, second = (lab.processes.coordinator(bouncer.db, lab.key_file, name, options=("--lease", "1s")) for name in ("c1", "c2"))
    rounds = flood(lab.db, nodes, 60)
    nodes[0].primary.wait_requests(30)
    first.kill()
    rounds += flood(lab.db, nodes, 60)
    assert_all_complete(lab, nodes, rounds)
    assert second.running()


def test_frozen_behind_it_and_fenced(lab, bouncer):
    """Its session of the server is found by its name, although the connection is the pooler's."""
    node = lab.node().plan(b.silent())
    frozen = lab.processes.coordinator(bouncer.db, lab.key_file, "c1", options=("--lease", "1s", "--listen-db", lab.db.conninfo))
    round_id = lab.db.submit(1, [node], **{**PATIENT, "per_share_timeout": "2 s"})
    node.primary.wait_requests(1)
    frozen.kill(signal.SIGSTOP)
    lab.processes.coordinator(bouncer.db, lab.key_file, "c2", options=("--lease", "1s"))
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and row["coordinator"] == "c2"
    before = lab.db.attempts(round_id)
    frozen.kill(signal.SIGCONT)
    frozen.wait_line("event=fenced")
    lab.db.wait("joined again", lambda: lab.db.one("SELECT count(*) FROM quorate.coordinators WHERE coordinator = 'c1' AND alive"))
    assert lab.db.attempts(round_id) == before
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


# Fencing by name.

@pytest.mark.parametrize("add_host", [0, 1])
def test_a_frozen_batch_behind_it_is_ended(cluster, add_host):
    db, instance = Sessions(cluster), uuid.uuid4()
    with Bouncer(cluster, settings={"application_name_add_host": add_host}) as bouncer:
        peer = db.session()
        with bouncer.connect(db.name, application_name=f"quorate {instance}") as frozen:
            silent, other = peer.join("frozen", "1 us", instance), peer.join("other")
            peer.submit("r", 1, [1])
            frozen.execute("BEGIN")
            assert frozen.execute("SELECT count(*) FROM quorate_worker.claim(%s, 10, 10, '{}')", [silent]).fetchone() == (1,)
            deadline = time.monotonic() + 10
            while peer.tick(other)[3] == 0:
                assert time.monotonic() < deadline
            with pytest.raises(psycopg.OperationalError):
                frozen.execute("SELECT 1")
            assert peer.claim(other) == ["r"]
    db.close()


def test_a_nameless_client_that_got_the_session_of_a_fenced_one_is_spared(cluster):
    """PgBouncer gives a session the name of its client, but a client without a name leaves the last one's there."""
    db, instance = Sessions(cluster), uuid.uuid4()
    with Bouncer(cluster) as bouncer:
        peer = db.session()
        with bouncer.connect(db.name, application_name=f"quorate {instance}") as gone, bouncer.connect(db.name) as stranger:
            silent, other = peer.join("gone", "1 us", instance), peer.join("other")
            gone.execute("SELECT count(*) FROM quorate_worker.claim(%s, 10, 10, '{}')", [silent])
            stranger.execute("BEGIN")
            assert stranger.execute("SELECT current_setting('application_name')").fetchone() == (f"quorate {instance}",)
            assert peer.tick(other)[3] == 1
            time.sleep(0.2)
            assert stranger.execute("SELECT 'still here'").fetchone() == ("still here",)
            stranger.execute("COMMIT")
    db.close()


# The pooler goes.

@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_restarted_under_load(lab, bouncer, listen, number):
    nodes = lab.some_nodes(3)
    for node in nodes:
        node.plan(then=b.slow(0.01))
    options = ("--listen-db", lab.db.conninfo) if listen else ()
    coordinator = lab.processes.coordinator(bouncer.db, lab.key_file, options=options)
    rounds = []
    submitter = threading.Thread(target=lambda: rounds.extend(flood(lab.db, nodes)))
    submitter.start()
    for part in (1, 2, 3):
        nodes[0].primary.wait_requests(part * 20)
        bouncer.restart(number)
    submitter.join()
    assert_all_complete(lab, nodes, rounds)
    assert coordinator.running()
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"


def test_postgres_restarted_behind_it(durable_lab):
    lab = durable_lab
    with Bouncer(lab.cluster) as bouncer:
        nodes = lab.some_nodes(3)
        coordinator = lab.processes.coordinator(bouncer.conninfo(lab.db.name), lab.key_file)
        rounds = flood(lab.db, nodes, 60)
        lab.cluster.restart("immediate")
        lab.db.rows("SELECT 1")  # its connection is made again
        rounds += flood(lab.db, nodes, 60)
        assert_all_complete(lab, nodes, rounds)
        assert coordinator.running()
        for node in nodes:
            node.close()
        lab.processes.close()
