"""The history shows tampering: whatever a superuser changes, deletes, reorders or inserts by hand is found, and nothing else is."""

import base64
import json
import re
import signal
import threading

import psycopg
import pytest
from harness import behaviours as b
from harness import wire
from harness.tamper import NOT_COVERED, Tamperer

SIGNING = ("--checkpoint-every", "50ms")


class Scene:
    """Rounds of every end, with late acks, retries, backups, rejections, a pruned round, a changed node: something in every table and column."""

    def __init__(self, lab):
        self.lab, self.db = lab, lab.db
        lab.punctual = False
        self.audit_key = wire.KeyPair()
        self.options = ("--audit-key", str(lab.write_key("audit.key", self.audit_key)), *SIGNING)

    def play(self):
        lab, db = self.lab, self.db
        plain = [lab.node(), lab.node(symmetric=True)]
        retried = lab.node().plan(b.status(500), b.status(503))
        dark = lab.node(dark=True, backup=True)
        gone = lab.node(dark=True)
        lab.coordinator("c1", options=self.options).stop()
        lab.coordinator("c2", options=self.options)
        done = db.submit(2, [*plain, retried], "done")
        fresh = db.submit(2, plain, "fresh", round_deadline="4 s", freshness="4 s")
        old = db.submit(1, plain[:1], "old")
        db.submit(2, [plain[0], dark], "escalated", round_deadline="4 s")
        db.submit(2, [plain[0], gone], "stalled", round_deadline="2 s", max_backoff="30 ms")
        db.open(1, "cancelled", node_ids=[gone.node_id])
        assert db.one("SELECT quorate.cancel_round('cancelled', 'a reason, \"quoted\" and näive')")
        db.distribute(done, 1, {1: b"stale"})
        db.distribute("never", 1, {1: b"unknown"})
        db.distribute(old, 1, {1: b"stale"})
        for round_id in ("done", "old", "escalated"):
            db.wait_settled(round_id)
        assert db.collect(done) == [1, 2] or db.collect(done)
        db.wait_state(fresh, "dead_lettered")
        db.wait_all_settled()
        db.rows("SELECT quorate.set_node_enabled(%s, false)", gone.node_id)
        db.rows("SELECT quorate.set_envelope_limit(1000000)")
        # Keys with windows: one that ends, one that was revoked, one that signed beside another.
        db.rows("SELECT quorate.add_node_key(%s, %s, NULL, '2100-01-01')", gone.node_id, wire.KeyPair().public_text)
        revoked = wire.KeyPair().public_text
        db.rows("SELECT quorate.add_node_key(%s, %s)", gone.node_id, revoked)
        db.rows("SELECT quorate.revoke_node_key(%s, %s)", gone.node_id, revoked)
        db.rows("SELECT quorate.add_node_key(%s, %s)", retried.node_id, wire.KeyPair().public_text)
        db.wait_settled(db.submit(1, [retried], "rotated"))
        # A receipt that comes after its round has settled.
        self.record_late("stalled", gone)
        self.prune("old")
        return self

    def record_late(self, round_id, node):
        db = self.db
        (number, nonce), = [row.values() for row in db.rows("SELECT round_no, nonce FROM quorate_store.ledger WHERE round_id = %s", round_id)]
        digest = db.deliveries(round_id)[node.node_id]["payload_sha256"].hex()
        receipt = node.key.sign(f"quorate-receipt-v1.{db.deployment()}.{round_id}.{node.node_id}.{nonce}.{digest}".encode())
        (row,) = db.rows("SELECT state, settled FROM quorate_worker.record(1, false, ARRAY[%s]::bigint[], ARRAY[%s]::smallint[], '{primary}', '{1}', '{ack}', "
                         "'{200}', '{NULL}', ARRAY[%s]::bytea[])", number, node.node_id, base64.b64decode(receipt[4:]))
        assert row["settled"] and db.acks(round_id)[node.node_id]["late"]

    def prune(self, round_id):
        """As prune_rounds does, but one."""
        with self.db.connect() as conn, conn.transaction():
            conn.execute("DELETE FROM quorate_store.round WHERE round_no = (SELECT round_no FROM quorate_store.ledger WHERE round_id = %s)", [round_id])
            conn.execute("DELETE FROM quorate_store.rejection WHERE round_id = %s", [round_id])
        for node in self.lab.nodes:  # requests of a round that no row tells of any more
            for endpoint in filter(None, (node.primary, node.backup)):
                endpoint.requests[:] = [r for r in endpoint.requests if f":{round_id}:" not in r.header("webhook-id")]

    def wait_chained(self):
        self.db.wait("all that happened is in the chain", lambda: self.db.one("SELECT count(*) FROM quorate_store.history_due") == 0, 30)

    def wait_signed(self):
        self.wait_chained()
        self.db.wait("the chain is signed", lambda: self.db.one(
            "SELECT NOT EXISTS (SELECT FROM quorate_store.history h WHERE h.kind <> 'checkpoint' "
            "AND h.seq > (SELECT COALESCE(max(seq), 0) FROM quorate_store.checkpoint))"), 30)

    def end(self):
        """All coordinators gone, all of it chained and signed."""
        self.wait_signed()
        for process in self.lab.processes.all:
            if process.running():
                process.stop()
        while self.db.rows("SELECT chained FROM quorate_worker.chain(1000, NULL)")[0]["chained"] > 0:
            pass
        return self

    def verify(self, *arguments):
        return self.lab.processes.command("audit", "verify", *arguments, conninfo=self.db.conninfo)

    def fits(self, *arguments):
        done = self.verify(*arguments)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout

    def found(self, *arguments):
        """What verify says of a history that does not fit."""
        done = self.verify(*arguments)
        assert done.returncode == 1 and done.stdout == "", f"nothing was found: {done.stdout}"
        assert re.fullmatch(r"quorate audit verify: [^\n]+\n", done.stderr), done.stderr
        return done.stderr


@pytest.fixture
def scene(lab):
    return Scene(lab)


@pytest.mark.timeout(900)
def test_every_change_of_every_column_is_found(scene):
    """Generated from the catalog: a column that is added is changed here, or stands among the exceptions with its reason."""
    scene.play().end()
    told = scene.fits("--audit-key", scene.audit_key.public_text)
    assert "entries fit" in told and scene.audit_key.public_text in told
    assert scene.db.one("SELECT count(*) FROM quorate_store.ack WHERE key_no > 1") > 0
    hand = Tamperer(scene.db.conninfo)
    assert scene.fits() == told
    missed, never, seen = [], [], set()
    for table in hand.tables():
        for column, kind in hand.columns(table):
            seen.add((table, column))
            tried = 0
            for value, where in hand.changes(table, column, kind):
                with hand.undone(table):
                    if not hand.change_one(table, column, value, where):
                        continue
                    tried += 1
                    verified = scene.verify()
                    if verified.returncode != 1:
                        missed.append((table, column, value))
                    elif (table, column) not in NOT_COVERED:
                        assert re.search(r"quorate_store\.[a-z_]+|the checkpoint", verified.stderr), verified.stderr
            if tried == 0:
                never.append((table, column))
    assert {(table, column) for table, column, _ in missed} == set(NOT_COVERED), missed
    assert never == [], "the scene has no row for these"
    assert seen >= set(NOT_COVERED)
    assert scene.fits() == told, "all was put back"


@pytest.mark.timeout(900)
def test_every_deleted_and_every_inserted_row_is_found(scene):
    scene.play().end()
    told = scene.fits()
    hand = Tamperer(scene.db.conninfo)
    missed = []
    for table in hand.tables():
        if table == "history_import":
            continue  # one row, whose columns are compared
        count = hand.all(f'SELECT count(*) FROM quorate_store."{table}"')[0][0]
        for place in sorted({*range(min(count, 6)), *range(max(0, count - 6), count)}):
            with hand.undone(table):
                done = hand.run("DELETE FROM {}", table, more=f' WHERE ctid = (SELECT ctid FROM quorate_store."{table}" ORDER BY ctid OFFSET {place} LIMIT 1)')
                assert done.rowcount == 1
                if scene.verify().returncode != 1:
                    missed.append((table, "deleted", place))
        if table == "deployment":
            continue
        key, kind = next((c, k) for c, k in hand.columns(table) if c in ("round_no", "rejection_no", "version", "key_no", "node_id", "instance_no", "seq", "checkpoint_no"))
        names = [c for c, _ in hand.columns(table)]
        others = {"instance_id": "gen_random_uuid()", "nonce": "nonce + 1", "round_id": "round_id || 'x'",
                  "valid_from": "valid_from + interval '1 microsecond'"} if table != "rejection" else {}
        values = ", ".join(f'(SELECT max("{key}") + 1 FROM quorate_store."{table}")' if c == key else others.get(c, f'"{c}"') for c in names)
        with hand.undone(table):
            hand.run("INSERT INTO {} ", table, more=f'SELECT {values} FROM quorate_store."{table}" ORDER BY "{key}" DESC LIMIT 1')
            if scene.verify().returncode != 1:
                missed.append((table, "inserted"))
    assert missed == []
    assert scene.fits() == told


def test_reordered_rows_and_forged_rounds_are_found(scene):
    scene.play().end()
    hand = Tamperer(scene.db.conninfo)
    with hand.undone("history"):
        last = hand.all("SELECT max(seq) FROM quorate_store.history")[0][0]
        hand.conn.execute("UPDATE quorate_store.history SET seq = -seq WHERE seq IN (%s, %s)", [last, last - 1])
        hand.conn.execute("UPDATE quorate_store.history SET seq = CASE seq WHEN %s THEN %s ELSE %s END WHERE seq < 0", [-last, last - 1, last])
        assert "quorate_store.history" in scene.found()
    with hand.undone("ack"):  # the receipts of two nodes, exchanged
        hand.conn.execute("UPDATE quorate_store.ack a SET receipt = o.receipt FROM quorate_store.ack o WHERE a.round_no = o.round_no AND a.node_id <> o.node_id "
                          "AND a.round_no = (SELECT round_no FROM quorate_store.ledger WHERE round_id = 'done') AND a.node_id IN (1, 3) AND o.node_id IN (1, 3)")
        assert "quorate_store.ack" in scene.found()
    with hand.undone("round", "ledger"):  # a round that ended, and that nobody opened
        hand.conn.execute("INSERT INTO quorate_store.ledger SELECT round_no + 1000, nonce + 1, NULL, 'forged' FROM quorate_store.ledger WHERE round_id = 'done'")
        names = [c for c, _ in hand.columns("round")]
        hand.conn.execute(f"INSERT INTO quorate_store.round SELECT {', '.join('round_no + 1000' if c == 'round_no' else c for c in names)} FROM quorate_store.round "
                          "WHERE round_no = (SELECT round_no FROM quorate_store.ledger WHERE round_id = 'done')")
        assert "quorate_store.round" in scene.found()
    with hand.undone("round", "delivery", "attempt", "ack", "ledger"):  # a round taken away as if it had been pruned, by hand
        number = hand.all("SELECT round_no FROM quorate_store.ledger WHERE round_id = 'done'")[0][0]
        for table in ("round", "delivery", "attempt", "ack"):
            hand.run("DELETE FROM {}", table, more=f" WHERE round_no = {number}")
        hand.conn.execute("UPDATE quorate_store.ledger SET pruned_at = now() WHERE round_no = %s", [number])
        assert "no rule let it go" in scene.found()


def test_a_round_that_was_changed_before_it_was_pruned_is_found(scene):
    scene.play().end()
    with psycopg.connect(scene.db.conninfo, autocommit=True) as conn:
        conn.execute("ALTER TABLE quorate_store.ack DISABLE TRIGGER ALL")
        conn.execute("UPDATE quorate_store.ack SET acked_at = acked_at - interval '1 s' WHERE round_no = (SELECT round_no FROM quorate_store.ledger WHERE round_id = 'done')")
        conn.execute("ALTER TABLE quorate_store.ack ENABLE TRIGGER ALL")
    scene.prune("done")
    scene.db.rows("SELECT * FROM quorate_worker.chain(1000, NULL)")
    assert "quorate_store.ledger" in scene.found()


def test_what_was_noted_and_taken_away_is_found(scene):
    """Between its event and the chain a round is only noted."""
    lab = scene.lab
    lab.coordinator(options=scene.options)
    node = lab.node()
    first = scene.db.submit(1, [node])
    scene.db.wait_settled(first)
    scene.end()
    scene.db.rows("SELECT quorate.collect(%s)", first)
    assert "1 events are not in the chain yet" in scene.fits()
    with psycopg.connect(scene.db.conninfo, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            conn.execute("DELETE FROM quorate_store.history_due")
        conn.execute("ALTER TABLE quorate_store.history_due DISABLE TRIGGER ALL")
        conn.execute("DELETE FROM quorate_store.history_due")
    assert "there is no record that round_no" in scene.found()


@pytest.mark.timeout(300)
def test_rows_that_were_cut_off_and_a_chain_that_was_made_anew_are_found_by_a_checkpoint_kept_elsewhere(scene):
    scene.play().end()
    kept = scene.lab.folder / "kept"
    kept.write_text(scene.lab.processes.command("audit", "checkpoint", conninfo=scene.db.conninfo).stdout)
    assert kept.read_text().count("\n") == 1
    pinned = ("--checkpoint", str(kept), "--audit-key", scene.audit_key.public_text)
    scene.fits(*pinned)
    hand = Tamperer(scene.db.conninfo)
    with hand.undone("history", "checkpoint"):
        hand.conn.execute("DELETE FROM quorate_store.checkpoint")
        hand.conn.execute("DELETE FROM quorate_store.history WHERE seq > (SELECT max(seq) / 2 FROM quorate_store.history)")
        assert re.search("cut off|newest record", scene.found(*pinned))
    with hand.undone("history", "checkpoint", "rejection", "history_due", "history_import"):
        # A refusal never happened, and all the rest is taken over again, as after a migration.
        hand.conn.execute("DELETE FROM quorate_store.rejection WHERE round_id = 'never'")
        hand.conn.execute("DELETE FROM quorate_store.checkpoint")
        hand.conn.execute("DELETE FROM quorate_store.history")
        hand.conn.execute("UPDATE quorate_store.history_import SET next_round = 1, next_rejection = 1, rounds = (SELECT max(round_no) FROM quorate_store.ledger), "
                          "rejections = (SELECT max(rejection_no) FROM quorate_store.rejection)")
        hand.conn.execute("INSERT INTO quorate_store.history_due (due_no, key, kind) SELECT row_number() OVER (), x.key, x.kind FROM ("
                          "SELECT 0 AS key, 'deployment'::quorate_store.history_kind AS kind UNION ALL SELECT version, 'node_version' FROM quorate_store.node_version UNION ALL "
                          "SELECT node_id, 'node' FROM quorate_store.node UNION ALL SELECT key_no, 'node_key' FROM quorate_store.node_key UNION ALL "
                          "SELECT instance_no, 'coordinator' FROM quorate_store.coordinator) x")
        while hand.all("SELECT chained FROM quorate_worker.chain(1000, NULL)")[0][0] > 0:
            pass
        scene.fits()  # nothing in the database tells any more
        assert re.search("rewritten|cut off", scene.found(*pinned))
    other = wire.KeyPair()
    assert "none of the keys" in scene.found("--audit-key", other.public_text)
    forged = scene.lab.folder / "forged"
    text, key, _ = kept.read_text().split()
    forged.write_text(f"{text} {key} {other.sign(text.encode())}\n")
    assert "not signed by its key" in scene.found("--checkpoint", str(forged))


def test_functions_that_were_replaced_are_found(scene):
    scene.play().end()
    with psycopg.connect(scene.db.conninfo, autocommit=True) as conn:
        conn.execute("CREATE OR REPLACE FUNCTION quorate_store.is_due(p_key bigint, p_kinds quorate_store.history_kind[]) RETURNS boolean LANGUAGE plpgsql STABLE AS "
                     "$$ BEGIN RETURN true; END $$")
    assert "quorate_store.is_due is not this program's" in scene.found()


@pytest.mark.timeout(400)
def test_no_false_alarm_while_rounds_run_and_two_coordinators_chain(scene):
    """Floods, prunings, collections, a coordinator killed again and again; verify all the while."""
    lab, db = scene.lab, scene.db
    nodes = lab.some_nodes(3)
    over = threading.Event()
    other = wire.KeyPair()
    second = ("--audit-key", str(lab.write_key("audit2.key", other)), *SIGNING)
    lab.coordinator("a", options=scene.options)
    ids = []

    def deal():
        with db.connect() as conn:
            while not over.is_set():
                batch = [db.new_round_id() for _ in range(20)]
                conn.execute("SELECT count(*) FROM quorate.submit_rounds(%s, 2, %s, %s, round_deadline => '60 s')",
                             [batch, [n.node_id for n in nodes], [r.encode() for r in batch for _ in nodes]])
                db.payloads.update({(r, n.node_id): r.encode() for r in batch for n in nodes})
                ids.extend(batch)
                db.distribute(batch[0], 1, {1: b"stale"})
                for round_id in ids[:-200:40]:
                    try:
                        conn.execute("SELECT quorate.collect(%s)", [round_id])
                    except psycopg.Error:
                        pass
                over.wait(0.05)

    def kill():
        while not over.is_set():
            victim = lab.coordinator("b", options=(*second, "--lease", "1s"))
            over.wait(0.7)
            victim.kill()

    threads = [threading.Thread(target=f) for f in (deal, kill)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            scene.fits()
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    db.wait_all_settled()
    scene.end()
    scene.fits("--audit-key", other.public_text, "--audit-key", scene.audit_key.public_text)
    assert db.one("SELECT count(*) FROM quorate_store.history h WHERE kind = 'settled'") == len(ids)


@pytest.mark.parametrize("point", ["chain_sent:2", "chain_committed:2", "checkpoint_sent", "checkpoint_sent:2"])
def test_a_coordinator_killed_while_it_chains(scene, point):
    lab, db = scene.lab, scene.db
    node = lab.node()
    doomed = lab.coordinator("doomed", options=scene.options, crash_at=point)
    number = 0
    while doomed.running():
        db.submit(1, [node])
        number += 1
        assert number < 400
        threading.Event().wait(0.05)
    lab.coordinator("heir", options=scene.options)
    db.wait_all_settled()
    scene.end()
    scene.fits("--audit-key", scene.audit_key.public_text)
    assert db.one("SELECT count(*) FROM quorate_store.history h WHERE kind = 'settled'") == number


@pytest.mark.timeout(400)
def test_rounds_of_before_the_history_are_taken_over(scene):
    """As if the migration had found them: nothing chained, nothing due, and some that go on, are pruned or collected meanwhile."""
    scene.play().end()
    db = scene.db
    with psycopg.connect(db.conninfo, autocommit=True) as conn:
        for table in ("history", "history_due", "checkpoint", "history_import"):
            conn.execute(f"ALTER TABLE quorate_store.{table} DISABLE TRIGGER ALL")
            if table != "history_import":
                conn.execute(f"DELETE FROM quorate_store.{table}")
            conn.execute(f"ALTER TABLE quorate_store.{table} ENABLE TRIGGER ALL")
        conn.execute("UPDATE quorate_store.history_import SET next_round = 1, next_rejection = 1, rounds = (SELECT max(round_no) FROM quorate_store.ledger), "
                     "rejections = (SELECT max(rejection_no) FROM quorate_store.rejection)")
        conn.execute("INSERT INTO quorate_store.history_due (key, kind) SELECT 0, 'deployment'::quorate_store.history_kind UNION ALL SELECT version, 'node_version' FROM quorate_store.node_version "
                     "UNION ALL SELECT node_id, 'node' FROM quorate_store.node UNION ALL SELECT key_no, 'node_key' FROM quorate_store.node_key "
                     "UNION ALL SELECT instance_no, 'coordinator' FROM quorate_store.coordinator")
    scene.fits()
    db.collect("escalated")
    scene.prune("stalled")
    db.rows("DELETE FROM quorate_store.rejection WHERE round_id = 'never' RETURNING 1")
    for most in [3] * 40 + [1000] * 5:
        db.rows("SELECT * FROM quorate_worker.chain(%s, NULL)", most)
        scene.fits()
    assert "importing" not in scene.fits()
    assert db.one("SELECT importing FROM quorate.history_status()") is False
    assert "not in the chain" not in scene.fits()
    hand = Tamperer(db.conninfo)
    with hand.undone("ack"):
        hand.conn.execute("UPDATE quorate_store.ack SET http_status = 999 WHERE round_no = (SELECT round_no FROM quorate_store.ledger WHERE round_id = 'done')")
        assert "quorate_store.ack" in scene.found()


@pytest.mark.timeout(400)
def test_an_exported_round_is_verified_offline(scene):
    lab = scene.lab
    scene.play().end()
    path = lab.folder / "done.json"
    lab.processes.command("audit", "export", "done", "--output", str(path), conninfo=scene.db.conninfo)
    offline = lambda name, *more: lab.processes.command("audit", "verify", str(name), *more)  # noqa: E731
    done = offline(path, "--audit-key", scene.audit_key.public_text)
    assert done.returncode == 0, done.stderr
    told = json.loads(offline(path, "--json").stdout)
    assert told["receipts"] >= 2 and told["not_verifiable_by_third_parties"] >= 1 and told["checkpoints"] >= 1
    assert offline(path, "--audit-key", wire.KeyPair().public_text).returncode == 1
    text = path.read_bytes()
    for place in range(0, len(text), max(1, len(text) // 30)):  # (tests/unit/test_audit.c changes every byte)
        changed = lab.folder / "changed.json"
        changed.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1:])
        assert offline(changed).returncode == 1, (place, text[place - 20:place + 20])
    for round_id in ("old", "stalled", "cancelled", "fresh", "escalated", "rotated"):
        out = lab.processes.command("audit", "export", round_id, conninfo=scene.db.conninfo)
        assert out.returncode == 0 and "\n" not in out.stdout[:-1]
        (lab.folder / "any.json").write_text(out.stdout)
        assert offline(lab.folder / "any.json").returncode == 0, round_id
    assert lab.processes.command("audit", "export", "nobody", conninfo=scene.db.conninfo).returncode == 6


def test_the_audit_key_is_another_one(lab):
    """At the start, and when keys are read again."""
    done = lab.processes.command("run", "--key", str(lab.key_file), "--audit-key", str(lab.key_file), conninfo=lab.db.conninfo)
    assert done.returncode == 2 and "--audit-key" in done.stderr
    audit_key = wire.KeyPair()
    coordinator = lab.coordinator(options=("--audit-key", str(lab.write_key("audit.key", audit_key))))
    lab.key_file.write_text(audit_key.secret_text + "\n")
    coordinator.kill(signal.SIGHUP)
    assert "--audit-key" in coordinator.wait_line("event=keys_(kept|read)")
    assert lab.processes.command("audit", "checkpoint", conninfo=lab.db.conninfo).returncode == 6
