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
        hand.conn.execute("CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC; CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz "
                          "LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() - interval '11 min' $$")
        hand.conn.execute(f"ALTER DATABASE {scene.db.name} SET search_path = evil, pg_catalog")
        assert "signed by none" in scene.found(*pinned), "a clock of the attacker's own makes it no younger"
        hand.conn.execute(f"ALTER DATABASE {scene.db.name} RESET search_path")


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


def test_a_change_that_no_rule_allows_is_found_though_it_got_a_record(scene):
    """Who breaks the rules by hand and notes that as an event of today has it chained like any other: what was recorded before says otherwise."""
    scene.play().wait_chained()
    scene.end()
    scene.fits()
    hand = Tamperer(scene.db.conninfo)
    for table, kind, change in (
            ("node_key", "node_key", "SET revoked_at = NULL WHERE revoked_at IS NOT NULL RETURNING key_no"),
            ("node_key", "node_key", "SET valid_from = valid_from - interval '1 day' RETURNING key_no"),
            ("coordinator", "coordinator", "SET ended_at = NULL, end_reason = NULL WHERE instance_no = 1 RETURNING instance_no"),
            ("deployment", "deployment", "SET created_at = created_at - interval '1 day' RETURNING 0"),
            ("ack", "acked", "SET http_status = 201 WHERE acked_at > (SELECT r.settled_at FROM quorate_store.round r WHERE r.round_no = ack.round_no) "
                             "RETURNING round_no")):
        with hand.undone(table, "history", "history_due"):
            key = hand.all(f"UPDATE quorate_store.{table} {change}")[0][0]
            assert f"quorate_store.{table}, key" in scene.found()
            hand.conn.execute("INSERT INTO quorate_store.history_due (due_no, key, kind) VALUES (1, %s, %s)", [key, kind])
            if change.startswith("SET valid_from"):
                hand.conn.execute("INSERT INTO quorate_store.history_due (due_no, key, kind) SELECT 2, key_no, 'node_key' FROM quorate_store.node_key")
            hand.conn.execute("SELECT * FROM quorate_worker.chain(1000, NULL)")
            told = scene.found()
            assert f"quorate_store.{table}, key {key}: " in told and "no rule" in told, told
    scene.fits()


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


def test_checkpoints_of_years_are_kept_in_one_file(scene):
    """Once a minute makes 10,000 in a week."""
    some_rounds(scene, 1)
    scene.end()
    kept = scene.lab.folder / "kept"
    kept.write_text(scene.lab.processes.command("audit", "checkpoint", conninfo=scene.db.conninfo).stdout * 10_500)
    scene.fits("--checkpoint", str(kept))


def test_nobody_comes_between_the_history_and_who_verifies_it(scene):
    """Functions of the server stand behind an attacker's of the same name: in one that makes records, or in what verify itself asks."""
    some_rounds(scene)
    scene.end()
    told = scene.fits()
    hand = Tamperer(scene.db.conninfo)
    number, seen = hand.all("SELECT round_no, payload_sha256 FROM quorate_store.delivery ORDER BY 1 LIMIT 1")[0]
    head = hand.all("SELECT hash FROM quorate_store.history WHERE seq = 3")[0][0]
    other = hashlib.sha256(b"other").digest()
    hand.conn.execute("CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC")
    hand.conn.execute("CREATE FUNCTION evil.encode(bytea, text) RETURNS text LANGUAGE sql AS $$ SELECT pg_catalog.encode(CASE $1 "
                      f"WHEN '\\x{other.hex()}' THEN '\\x{seen.hex()}' WHEN '\\x{other[::-1].hex()}' THEN '\\x{head.hex()}' ELSE $1 END::bytea, $2) $$")
    with hand.undone("delivery"):
        hand.conn.execute("UPDATE quorate_store.delivery SET payload_sha256 = %s WHERE round_no = %s", [other, number])
        assert "quorate_store.delivery" in scene.found()
        hand.conn.execute("ALTER FUNCTION quorate.history_entries(bigint, int) SET search_path = evil, pg_catalog")
        assert "quorate.history_entries is not this program's" in scene.found()
    hand.conn.execute("ALTER FUNCTION quorate.history_entries(bigint, int) SET search_path = pg_catalog, pg_temp")
    with hand.undone("history"):
        hand.conn.execute("UPDATE quorate_store.history SET hash = %s WHERE seq = 3", [other[::-1]])
        hand.conn.execute(f"ALTER DATABASE {scene.db.name} SET search_path = evil, pg_catalog")
        assert "quorate_store.history, seq 3" in scene.found()
    hand.conn.execute(f"ALTER DATABASE {scene.db.name} RESET search_path")
    assert scene.fits() == told, "all was put back"
    body = hand.all("SELECT prosrc FROM pg_proc WHERE oid = 'quorate_store.is_kept'::regproc")[0][0]  # it stands behind the name of this one in a file
    hand.conn.execute(f"CREATE OR REPLACE FUNCTION quorate_store.is_of_round(p_kind quorate_store.history_kind) RETURNS boolean LANGUAGE sql IMMUTABLE AS $${body}$$")
    assert "quorate_store.is_of_round is not this program's" in scene.found()
