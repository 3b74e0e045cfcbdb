"""Attacks on the history by who knows how it is made: a chain without signatures, or one that a coordinator is to sign; files put together by hand."""

import hashlib
import json

import psycopg
import pytest
from harness.tamper import Tamperer
from test_history import Scene


@pytest.fixture
def scene(lab):
    return Scene(lab)


def some_rounds(scene, count=3):
    node = scene.lab.node()
    scene.lab.coordinator("c1", options=scene.options)
    for number in range(count):
        scene.db.submit(1, [node], f"r{number}")
    scene.db.wait_all_settled()


def chain_anew(conn, since, kept="kind <> 'checkpoint'"):
    """Entries after `since` numbered and hashed anew, by who has no audit key: without those of checkpoints."""
    rows = lambda query, *parameters: conn.execute(query, parameters).fetchall()  # noqa: E731
    at = rows("SELECT hash FROM quorate_store.history WHERE seq = %s", since)[0][0] if since else hashlib.sha256(
        f"quorate-history-v1.{rows('SELECT deployment_id FROM quorate_store.deployment')[0][0]}".encode()).digest()
    entries = rows("SELECT seq, kind::text, key, (extract(epoch FROM at) * 1000000)::bigint, digest, parts, record, at FROM quorate_store.history "
                   f"WHERE seq > %s AND ({kept}) ORDER BY seq", since)
    conn.execute("DELETE FROM quorate_store.history WHERE seq > %s", [since])
    conn.execute("DELETE FROM quorate_store.checkpoint WHERE seq > %s", [since])
    for number, (_, kind, key, us, digest, parts, record, when) in enumerate(entries, since + 1):
        link = ".".join(map(str, ("quorate-entry-v1", number, kind, key, us, digest.hex(), parts.hex())))
        at = hashlib.sha256(at + hashlib.sha256(link.encode()).digest()).digest()
        conn.execute("INSERT INTO quorate_store.history (seq, at, key, kind, digest, hash, parts, record) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                     [number, when, key, kind, digest, at, parts, record])


def test_a_chain_without_a_signature_is_not_believed_by_who_gives_a_key(scene):
    some_rounds(scene)
    scene.end()
    pinned = ("--audit-key", scene.audit_key.public_text)
    scene.fits(*pinned)
    hand = Tamperer(scene.db.conninfo)
    with hand.undone("history", "checkpoint"):
        chain_anew(hand.conn, 0)
        assert "there is no checkpoint" in scene.fits()
        assert "none of the keys given has signed" in scene.found(*pinned)
    with hand.undone("history", "checkpoint"):
        first = hand.all("SELECT min(seq) FROM quorate_store.checkpoint")[0][0]
        chain_anew(hand.conn, first, "kind <> 'checkpoint' OR key = 1")
        told = scene.fits(*pinned)
        assert "not signed" in told
        hand.conn.execute("UPDATE quorate_store.history SET at = at - interval '11 min' WHERE seq > %s", [first])
        chain_anew(hand.conn, first, "true")
        assert "signed by none" in scene.found(*pinned)


def test_a_coordinator_does_not_sign_a_history_that_was_made_anew_under_it(scene):
    some_rounds(scene)
    scene.wait_signed()
    db, coordinator = scene.db, scene.lab.processes.all[-1]
    with psycopg.connect(db.conninfo) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(quorate_store.chain_lock())")
        for table in ("history", "checkpoint"):
            conn.execute(f"ALTER TABLE quorate_store.{table} DISABLE TRIGGER ALL")
        chain_anew(conn, 0, "kind <> 'checkpoint' AND (kind, key) <> ('settled', 2)")  # a round that never was
        for table in ("history", "checkpoint"):
            conn.execute(f"ALTER TABLE quorate_store.{table} ENABLE TRIGGER ALL")
    db.submit(1, scene.lab.nodes, "later")
    db.wait_settled("later")
    coordinator.wait_line("event=history_rewritten")
    scene.wait_chained()
    assert db.one("SELECT count(*) FROM quorate_store.checkpoint") == 0


def test_a_record_that_is_kept_of_a_pruned_round_is_compared(scene):
    scene.play().wait_chained()
    scene.prune("stalled")
    scene.end()
    scene.fits()
    hand = Tamperer(scene.db.conninfo)
    for value in ("replace(record, 'primary', 'backup')", "NULL"):
        with hand.undone("history"):
            done = hand.conn.execute(f"UPDATE quorate_store.history SET record = {value} WHERE kind = 'acked'")
            assert done.rowcount == 1
            assert "quorate_store.ack" in scene.found()


def offline(scene, file):
    path = scene.lab.folder / "file.json"
    path.write_text(json.dumps(file, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")
    return scene.lab.processes.command("audit", "verify", str(path), "--audit-key", scene.audit_key.public_text)


def test_a_file_without_records_shows_nothing(scene):
    some_rounds(scene)
    scene.wait_signed()
    scene.db.collect("r0")
    scene.wait_signed()
    export = lambda name: json.loads(scene.lab.processes.command("audit", "export", name, conninfo=scene.db.conninfo).stdout)  # noqa: E731
    living = export("r1")
    scene.prune("r0")
    scene.wait_signed()
    scene.end()
    pruned = export("r0")
    assert offline(scene, living).returncode == 0
    assert offline(scene, pruned).returncode == 0
    for name, file in (("of another round", {**pruned, "round_id": "r2"}), ("that never was", {**pruned, "round_id": "never"})):
        assert offline(scene, file).returncode == 1, name
    entries = lambda file: [s for p in file["pieces"] for s in p["steps"] if isinstance(s, dict)]  # noqa: E731
    for entry in entries(living):
        entry["record"] = None
    assert "pruned" in offline(scene, living).stderr, "no record, and nothing that says why"
    # The records of a pruned round's entry, and entries of another one beside it.
    borrowed = json.loads(json.dumps(pruned))
    other = export("r2")
    for entry in entries(other):
        entry["record"] = None
    borrowed["pieces"] += other["pieces"]
    assert offline(scene, borrowed).returncode == 1
