"""Several keys of a node: a custodian's key changes under traffic, rounds keep the keys they were opened with, and revoked ones count no more."""

import hashlib
import json
import pathlib

import psycopg
import pytest
from harness import build as programs
from harness import wire
from harness.cli import Cli
from harness.traffic import Custodians, Stream, outcomes

ROOT = pathlib.Path(programs.ROOT)
SHORT = {"round_deadline": "2 s", "per_share_timeout": "1 s", "retry_budget": 3, "max_backoff": "50 ms"}


def add_key(lab, node_id: int, key: wire.KeyPair, valid_from=None, valid_until=None) -> None:
    lab.db.rows("SELECT quorate.add_node_key(%s, %s, %s, %s)", node_id, key.public_text, valid_from, valid_until)


def revoke(lab, node_id: int, key: wire.KeyPair) -> None:
    lab.db.rows("SELECT quorate.revoke_node_key(%s, %s)", node_id, key.public_text)


def signer(lab, round_id: str, node_id: int = 1) -> str:
    return lab.db.acks(round_id)[node_id]["receipt_key"]


@pytest.mark.timeout(300)
def test_a_custodians_key_changes_in_mid_traffic_and_no_round_is_lost(lab):
    """The recipe of docs/operations.md, with two coordinators: both keys are valid, the custodian starts again with the new one, the old one is revoked."""
    custodians = Custodians(lab)
    for number in (1, 2, 3):
        custodians.start(number, lab.key)
    for _ in range(2):
        lab.coordinator()
    old, new = custodians.pairs[1], wire.KeyPair()
    stream = Stream(lab, 3, [1, 2, 3])
    stream.flows()
    add_key(lab, 1, new)
    for round_id in list(stream.rounds):
        lab.db.wait_settled(round_id)
    stream.flows()
    custodians.files[1] = lab.write_key("node-1-new.key", new)
    custodians.start(1, lab.key)
    stream.flows()
    revoke(lab, 1, old)
    stream.flows()
    rounds = stream.close()
    assert all(lab.db.round(round_id)["state"] == "complete" for round_id in rounds)
    seen = outcomes(lab, rounds)
    assert ("ack", 200) in seen and seen <= {("ack", 200), ("connect_error", None)}, seen  # the latter while it starts again
    keys = [signer(lab, round_id) for round_id in rounds]
    assert sorted(set(keys)) == sorted({old.public_text, new.public_text})
    assert keys[0] == old.public_text and keys[-1] == new.public_text
    assert {signer(lab, round_id, 2) for round_id in rounds} == {custodians.pairs[2].public_text}
    # A collector who has both keys from the node's owner takes rounds of before and after.
    pins = lab.folder / "pins"
    pins.write_text("".join(f"{number} = {key.public_text}\n" for number, key in [(1, old), *custodians.pairs.items(), (1, new)]))
    pins.chmod(0o644)
    for round_id in (rounds[0], rounds[-1]):
        assert Cli(lab)("collect", round_id, "--node-keys", str(pins), "--quorum", "3").split() == ["1", "2", "3"]


def test_a_round_opened_before_a_key_was_added_refuses_its_receipts(lab):
    """And those opened after it take either key."""
    node, new = lab.node(), wire.KeyPair()
    old = node.key
    before = lab.db.submit(1, [node], **SHORT)
    add_key(lab, 1, new)
    after = lab.db.submit(1, [node])
    node.key = new
    lab.coordinator()
    assert lab.db.wait_settled(before)["state"] == "stalled" and lab.db.wait_settled(after)["state"] == "complete"
    assert lab.db.attempt_list(before, 1) == [("primary", number, "bad_receipt", 200) for number in (1, 2, 3)]
    node.key = old
    again = lab.db.submit(1, [node])
    assert lab.db.wait_settled(again)["state"] == "complete"
    assert (signer(lab, after), signer(lab, again)) == (new.public_text, old.public_text)


def test_receipts_by_a_revoked_key_count_for_no_new_round(lab):
    """A round that is open keeps it, the acks of before go on to show it."""
    nodes, new = [lab.node(), lab.node()], wire.KeyPair()
    old = nodes[0].key
    add_key(lab, 1, new)
    earlier = lab.db.submit(2, nodes)
    revoke(lab, 1, old)
    later = lab.db.submit(2, nodes, **SHORT)
    lab.coordinator()
    assert lab.db.wait_settled(earlier)["state"] == "complete"
    assert lab.db.wait_settled(later)["state"] == "stalled"
    assert {a["outcome"] for a in lab.db.attempts(later, 1)} == {"bad_receipt"}
    assert lab.db.collect(earlier) == [1, 2] and signer(lab, earlier) == old.public_text
    nodes[0].key = new
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"
    revoke(lab, 1, new)
    with pytest.raises(psycopg.Error, match="node 1 has no valid signing key") as refused:
        lab.db.submit(2, nodes)
    assert refused.value.sqlstate == "QR008"


def test_a_key_begins_and_ends_by_the_clock_under_coordinators(lab):
    """Nobody does anything at these moments: rounds before, between and after them take the keys that were valid."""
    node, new = lab.node(), wire.KeyPair()
    old = node.key
    lab.coordinator()
    keys = "SELECT receipt_keys FROM quorate.nodes"

    def change(key, *, begins: bool) -> None:
        """Its window begins or ends soon; returns when a coordinator has seen to it."""
        moment = lab.db.one("SELECT clock_timestamp() + interval '500 ms'")
        add_key(lab, 1, key, *((moment, None) if begins else (None, moment)))
        lab.db.wait("a beat after it", lambda: lab.db.one(
            "SELECT clock_timestamp() > %s AND keys_until IS NULL FROM quorate_store.node", moment))

    assert lab.db.one(keys) == [old.public_text]
    change(new, begins=True)
    assert lab.db.one(keys) == [new.public_text, old.public_text]
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"
    change(old, begins=False)
    assert lab.db.one(keys) == [new.public_text]
    assert lab.db.wait_settled(lab.db.submit(1, [node], **SHORT))["state"] == "stalled"
    node.key = new
    assert lab.db.wait_settled(lab.db.submit(1, [node]))["state"] == "complete"


def test_a_dealer_that_dawdles_at_a_boundary_holds_up_nobody(lab):
    """It found the new version for itself, and has not committed it: other dealers, whoever revokes, and coordinators go on."""
    node, new, spare = lab.node(), wire.KeyPair(), wire.KeyPair()
    begins = lab.db.one("SELECT clock_timestamp() + interval '200 ms'")
    add_key(lab, 1, new, begins)
    add_key(lab, 1, spare)
    lab.db.wait("the key begins", lambda: lab.db.one("SELECT clock_timestamp() > %s", begins))
    submit = "SELECT * FROM quorate.submit_round(%s, 1, '{1}', ARRAY[%s]::bytea[])"
    quick = "-c statement_timeout=5s -c lock_timeout=1s"
    with lab.db.connect() as dawdler, lab.db.connect(options=quick) as other:
        dawdler.execute("BEGIN")
        dawdler.execute(submit, ["slow", b"one"])
        other.execute(submit, ["quick", b"two"])
        other.execute("SELECT quorate.add_node_key(1, %s)", [wire.KeyPair().public_text])
        other.execute("SELECT quorate.revoke_node_key(1, %s)", [spare.public_text])
        assert other.execute("SELECT keys_until FROM quorate_store.node").fetchone()["keys_until"] is None
        lab.coordinator()
        lab.db.wait_settled("quick")
        dawdler.execute("COMMIT")
    lab.db.payloads.update({("slow", 1): b"one", ("quick", 1): b"two"})
    assert lab.db.wait_settled("slow")["state"] == "complete"
    kept = "SELECT v.receipt_key || v.other_keys FROM quorate_store.round r JOIN quorate_store.node_version v ON v.version = r.node_versions[1] " \
           "JOIN quorate_store.ledger l ON l.round_no = r.round_no WHERE l.round_id = %s"
    for round_id in ("slow", "quick"):
        assert set(lab.db.one(kept, round_id)) == {node.key.public_text, new.public_text, spare.public_text}


def test_whoever_revokes_waits_for_no_coordinator_and_is_not_undone_by_one(lab):
    """A beat that comes while the revocation is not committed passes over the node; the one after it changes nothing."""
    lab.node()
    new = wire.KeyPair()
    add_key(lab, 1, new, None, lab.db.one("SELECT clock_timestamp() + interval '300 ms'"))
    instance = lab.db.one("SELECT instance_no FROM quorate_worker.join_deployment(gen_random_uuid(), 'c', '1 h')")
    with lab.db.connect() as admin:
        admin.execute("BEGIN")
        admin.execute("SELECT quorate.revoke_node_key(1, %s)", [new.public_text])
        time_is_up = "SELECT clock_timestamp() > valid_until FROM quorate.node_keys WHERE key = %s"
        lab.db.wait("the key ends", lambda: lab.db.one(time_is_up, new.public_text))
        assert lab.db.one("SELECT alive FROM quorate_worker.tick(%s, true, 10, false)", instance)
        admin.execute("COMMIT")
    assert lab.db.one("SELECT alive FROM quorate_worker.tick(%s, true, 10, false)", instance)
    assert lab.db.one("SELECT receipt_keys FROM quorate.nodes") == [lab.nodes[0].key.public_text]
    assert lab.db.one("SELECT keys_until FROM quorate_store.node") is None
    lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c1")


class Older:
    """A database as it was before nodes had several keys: the migrations of then, and a history that was chained then."""

    NUMBER = 5

    def __init__(self, cluster):
        self.name = cluster.create_database(template="template0")
        self.conninfo = cluster.conninfo(self.name)
        self.conn = psycopg.connect(self.conninfo, autocommit=True)
        for path in sorted((ROOT / "migrations").glob("*.sql")):
            number = int(path.name[:4])
            if number > self.NUMBER:
                break
            self.conn.execute(path.read_text())
            if number > 0:
                self.conn.execute("INSERT INTO quorate_store.migration (number, name, sha256) VALUES (%s, %s, %s)",
                                  [number, path.name, hashlib.sha256(path.read_bytes()).digest()])
        self.hash, self.seq = hashlib.sha256(b"quorate-history-v1.old").digest(), 0

    def micro(self, query: str) -> int:
        return self.conn.execute(f"SELECT (extract(epoch FROM ({query})) * 1000000)::bigint").fetchone()[0]

    def chain(self, kind: str, key: int, kept: bool, **members) -> None:
        """An entry as docs/history.md describes it."""
        record = "{" + ", ".join(f"{json.dumps(name)} : {json.dumps(value)}" for name, value in {"kind": kind, **members}.items()) + "}"
        digest, at = hashlib.sha256(record.encode()).hexdigest(), 1_700_000_000_000_000 + self.seq
        self.seq += 1
        entry = hashlib.sha256(f"quorate-entry-v1.{self.seq}.{kind}.{key}.{at}.{digest}.".encode()).digest()
        self.hash = hashlib.sha256(self.hash + entry).digest()
        self.conn.execute("INSERT INTO quorate_store.history (seq, at, key, kind, digest, hash, parts, record) VALUES (%s, 'epoch'::timestamptz + %s * "
                          "interval '1 microsecond', %s, %s, decode(%s, 'hex'), %s, '', %s)", [self.seq, at, key, kind, digest, self.hash, record if kept else None])


class HalfMigrated(Older):
    """The migrations of now, and the functions of before: as it is when sql/ could not get its locks."""

    NUMBER = 8


def test_a_late_ack_is_noted_in_the_middle_of_a_migration_too(lab):
    """The trigger that notes it stays until there is a function that does."""
    half = HalfMigrated(lab.cluster)
    half.conn.execute("INSERT INTO quorate_store.deployment (deployment_id) VALUES ('old')")
    notes = lambda: half.conn.execute(  # noqa: E731
        "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'history_acked'), to_regproc('quorate_store.note_acked') IS NOT NULL").fetchone()
    assert notes() == (True, False)
    done = lab.processes.command("migrate", conninfo=half.conninfo)
    assert done.returncode == 0, done.stderr
    assert notes() == (False, True)
    half.conn.close()
    lab.cluster.drop_database(half.name)


def test_a_database_with_nodes_and_a_history_is_migrated(lab):
    """Each node's key gets its window, the records of before fit to the byte, and a second migration changes nothing."""
    older = Older(lab.cluster)
    keys = [wire.KeyPair().public_text, wire.KeyPair().public_text, "whid_0123456789abcdef"]
    seal = "qbox_" + keys[0][5:]
    older.conn.execute("INSERT INTO quorate_store.deployment (deployment_id) VALUES ('old')")
    for version, (node_id, key) in enumerate([(1, keys[0]), (1, keys[1]), (2, keys[2])], 1):
        older.conn.execute("INSERT INTO quorate_store.node_version (node_id, url, receipt_key, seal_key) VALUES (%s, 'http://n/', %s, %s)",
                           [node_id, key, seal if node_id == 1 else None])
        older.conn.execute("INSERT INTO quorate_store.node (node_id, current_version) VALUES (%s, %s) ON CONFLICT (node_id) DO UPDATE SET current_version = "
                           "EXCLUDED.current_version", [node_id, version])
    older.chain("began", 0, True, deployment_id="old", rounds=0, rejections=0)
    older.chain("deployment", 0, True, deployment_id="old", max_envelope_bytes=16777216, created_at=older.micro("SELECT created_at FROM quorate_store.deployment"))
    for version, node_id, key in [(1, 1, keys[0]), (2, 1, keys[1]), (3, 2, keys[2])]:
        older.chain("node_version", version, False, version=version, node_id=node_id, url="http://n/", backup_url=None, receipt_key=key,
                    seal_key=seal if node_id == 1 else None, created_at=older.micro(f"SELECT created_at FROM quorate_store.node_version WHERE version = {version}"))
    for node_id, version in [(1, 2), (2, 3)]:
        older.chain("node", node_id, True, node_id=node_id, current_version=version, enabled=True)
    older.chain("imported", 0, True, rounds=0, rejections=0)
    older.conn.execute("DELETE FROM quorate_store.history_due")

    command = lambda *arguments: lab.processes.command(*arguments, conninfo=older.conninfo)  # noqa: E731
    for _ in range(2):
        done = command("migrate")
        assert done.returncode == 0, done.stderr
        told = older.conn.execute("SELECT node_id, key, valid_until, state FROM quorate.node_keys ORDER BY node_id, key").fetchall()
        assert told == [(1, seal, None, "valid"), (1, keys[1], None, "valid"), (2, keys[2], None, "valid")]
        verified = command("audit", "verify")
        assert verified.returncode == 0, verified.stderr
        older.conn.execute("SELECT * FROM quorate_worker.chain(100, NULL)")
    assert "11 entries fit" in verified.stdout, verified.stdout
    older.conn.close()
    lab.cluster.drop_database(older.name)
