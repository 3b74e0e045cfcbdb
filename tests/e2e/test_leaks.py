"""A run with faults, all logs at their most talkative: no plaintext share and no key in whatever it leaves behind."""

import contextlib
import os
import re
import signal
import threading

import psycopg
import pytest
from harness import behaviours as b
from harness import build as programs
from harness import leaks, wire
from harness.cluster import Cluster
from harness.lab import Lab

# What docs/operations.md advises, and beside it all that a server can be told to log.
ADVISED = {"log_parameter_max_length": 0, "log_parameter_max_length_on_error": 0}
TALKATIVE = {"log_statement": "all", "log_min_duration_statement": 0, "log_min_messages": "debug2", "log_min_error_statement": "debug5",
             "log_error_verbosity": "verbose", "log_lock_waits": "on", "deadlock_timeout": "100ms", "log_connections": "on", "log_disconnections": "on",
             "log_replication_commands": "on", "log_temp_files": 0, "log_autovacuum_min_duration": 0, "track_activities": "on"}
PATIENT = {"per_share_timeout": "10 s", "retry_budget": 6, "base_backoff": "300 ms", "max_backoff": "600 ms", "round_deadline": "40 s"}


@pytest.fixture
def talkative_lab(tmp_path, request):
    with Cluster(durable=True, settings={**TALKATIVE, **ADVISED}) as own:
        own.create_template()
        lab = Lab(own, tmp_path)
        request.node.lab = lab
        yield lab
        lab.close()


class Run:
    """Custodians of both kinds, coordinators with two keys, a dealer, and what must not be found."""

    def __init__(self, lab, folder):
        self.lab, self.folder, self.needles = lab, folder, leaks.Needles()
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self.under = ("prlimit", "--core=unlimited:unlimited", "env", "-u", "QUORATE_ALLOW_CORE_DUMPS", "-C", str(self.cwd))
        self.answer = threading.Event()
        self.answer.set()
        self.shared, self.pair, self.next = wire.Secret(), wire.KeyPair(), wire.KeyPair()
        self.options = ("--key", str(lab.write_key("next.key", self.next)), "--log-level", "debug",
                        "--node-secrets", str(lab.write_node_secrets({2: [wire.Secret(), self.shared]})))
        self.files = (lab.write_key("node-1.key", self.pair), lab.write_key("node-2.secret", self.shared))
        self.custodians = {}
        self.start_custodian(1)
        self.start_custodian(2)
        self.slow = lab.node(3).plan(then=b.after(self.answer))
        for number, key in ((1, self.pair), (2, self.shared)):
            lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", number, self.custodians[number].url, key.public_text)
        for key in lab.written_keys:
            self.needles.add(f"key {key.public_text}", key.seed)

    def start_custodian(self, number: int) -> None:
        before = self.custodians.get(number)
        arguments = (self.files[0], self.lab.key.public_text) if number == 1 else (None, None)
        options = ("--log-level", "debug", *(("--secret", str(self.files[1])) if number == 2 else ()))
        self.custodians[number] = self.lab.processes.custodian(
            number, *arguments, store=self.folder / f"node-{number}.db", options=options, under=self.under,
            listen=before.url[7:-1] if before else "127.0.0.1:0")

    def coordinator(self):
        return self.lab.coordinator(options=self.options, under=self.under)

    def share(self, *sizes: int) -> list[bytes]:
        made = [os.urandom(size) for size in sizes]
        self.needles.add("share", *made)
        return made

    def submit(self, quorum: int, nodes, **policy) -> str:
        return self.lab.db.submit(quorum, nodes, payloads=dict(zip([getattr(n, "node_id", n) for n in nodes], self.share(*[40] * len(nodes)), strict=True)),
                                  **{**PATIENT, **policy})

    def crash(self, process, number: int) -> None:
        process.may_be_killed, process.killed_by = True, -number
        process.popen.send_signal(number)
        process.popen.wait(20)


def wrong_calls(run: Run) -> None:
    """Every refusal and error that a dealer's call can end with, its envelopes as parameters."""
    db = run.lab.db
    opened = db.open(1, node_ids=[1, 2], **PATIENT)
    round_id, nonce = opened["round_id"], opened["nonce"]
    call = "SELECT * FROM quorate.distribute(%s, %s, %s::int[], %s::bytea[])"
    submit = "SELECT * FROM quorate.submit_round(%s, %s, %s::int[], %s::bytea[])"
    one, other = run.share(30, 30)
    for arguments in ((round_id, nonce + 1, [1], [one]), ("unknown", 1, [1], [one]), (round_id, nonce, [3, 9], [one, other]),
                      (round_id, nonce, [1, 1], [one, other])):
        assert {row["verdict"] for row in db.rows(call, *arguments)} & {"stale_nonce", "unknown_round", "unknown_node", "conflict"}
    for sql, arguments, state in (
            (call, (round_id, nonce, [1, 2], [one]), "QR007"), (call, (round_id, nonce, [1, 2], [one, None]), None), (call, (round_id, nonce, [1, None], [one, other]), "QR007"),
            (submit, ("new-0", 1, [1, None], [one, other]), "QR007"), (call, (None, nonce, [1], [one]), "QR007"),
            (call, (round_id, nonce, [[1]], [[one]]), "QR007"), (submit, (round_id, 1, [1], [one]), "QR006"), (submit, ("bad id", 1, [1], [one]), "QR007"),
            (submit, ("new-1", 1, [77], [one]), "QR008"), (submit, ("new-2", 1, [1, 2], [one, b""]), "QR009"), (submit, ("new-3", 9, [1, 2], [one, other]), "QR007"),
            # What no function lets through, by the owner's own hand: constraints and guards. (Of a row with a null where none may be
            # the server says in its error what is in it; no function makes such a row.)
            ("INSERT INTO quorate_store.envelope SELECT round_no, 1, %s FROM quorate_store.ledger WHERE round_id = %s", (other, round_id), None),
            ("INSERT INTO quorate_store.envelope VALUES (99999999, 1, %s)", (other,), None),
            ("INSERT INTO quorate_store.envelope VALUES (99999999, 40000, %s)", (other,), None),
            ("UPDATE quorate_store.envelope SET payload = %s", (other,), None)):
        try:
            db.rows(sql, *arguments)
        except psycopg.Error as error:
            assert state in (None, error.sqlstate), (sql, arguments[:-1], error)
            said = f"{error} {error.diag.message_detail} {error.diag.message_hint} {error.diag.context} {error.diag.internal_query}"
            assert not run.needles.in_bytes(said.encode()), said
        else:
            assert state is None, (sql, arguments[:-1])
    assert db.one("SELECT quorate.cancel_round(%s, 'enough')", round_id)


def cut_off_calls(run: Run) -> None:
    """Calls that are cancelled, time out, deadlock and lose their connection while they wait for a lock."""
    db = run.lab.db
    first, second = (db.open(1, node_ids=[1, 2], **PATIENT) for _ in range(2))
    call = "SELECT * FROM quorate.distribute(%s, %s, %s::int[], %s::bytea[])"

    def distribute(conn, opened, share):
        return conn.execute(call, [opened["round_id"], opened["nonce"], [1], [share]]).fetchall()

    lock = "SELECT FROM quorate_store.round JOIN quorate_store.ledger USING (round_no) WHERE round_id = %s FOR UPDATE OF round"
    with db.connect() as holder, holder.transaction():
        holder.execute(lock, [first["round_id"]])
        for setting in ("statement_timeout = '200ms'", "lock_timeout = '200ms'"):
            with db.connect() as conn:
                conn.execute(f"SET {setting}")
                with pytest.raises(psycopg.Error):
                    distribute(conn, first, *run.share(30))
        for end in ("pg_cancel_backend", "pg_terminate_backend"):
            with contextlib.suppress(psycopg.Error), db.connect() as conn:
                waiting = threading.Thread(target=lambda c=conn: pytest.raises(psycopg.Error, distribute, c, first, *run.share(30)), daemon=True)
                waiting.start()
                db.wait("it waits", lambda c=conn: db.one("SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", c.info.backend_pid))
                seen = db.rows("SELECT query, wait_event FROM pg_stat_activity")
                assert any("quorate.distribute" in row["query"] for row in seen)
                assert not run.needles.in_bytes(repr(seen).encode())
                db.rows(f"SELECT {end}(%s)", conn.info.backend_pid)
                waiting.join()
    failed = []
    with db.connect() as one, db.connect() as two:  # each holds what the other wants

        def go(conn, opened, share):
            try:
                distribute(conn, opened, share)
            except psycopg.errors.DeadlockDetected as error:
                failed.append(error)
                conn.rollback()

        for conn in (one, two):
            conn.autocommit = False
        one.execute(lock, [first["round_id"]])
        two.execute(lock, [second["round_id"]])
        thread = threading.Thread(target=go, args=(two, first, *run.share(30)))
        thread.start()
        go(one, second, *run.share(30))
        thread.join()
        one.rollback()
        two.rollback()
    assert len(failed) == 1 and not run.needles.in_bytes(f"{failed[0]} {failed[0].diag.message_detail}".encode())
    for opened in (first, second):
        assert db.one("SELECT quorate.cancel_round(%s, 'enough')", opened["round_id"])


def command_line(run: Run) -> None:
    """Shares as files, through `quorate distribute`."""
    db, said = run.lab.db, []
    opened = db.open(1, node_ids=[1], **PATIENT)
    one, other = run.share(64, 64)
    for name, share in (("one", one), ("other", other)):
        (run.folder / name).write_bytes(share)
    for node, name, code in ((1, "one", 0), (1, "one", 0), (1, "other", 5), (2, "other", 6)):
        done = run.lab.processes.command("distribute", opened["round_id"], "--nonce", str(opened["nonce"]), "--share", f"{node}={run.folder / name}",
                                         conninfo=db.conninfo)
        assert done.returncode == code, done
        said += [done.stdout, done.stderr]
    for name in ("one", "other"):
        (run.folder / name).unlink()  # the dealer's own affair
    said.append(run.lab.processes.command("status", opened["round_id"], "--json", conninfo=db.conninfo).stdout)
    assert not run.needles.in_bytes("\n".join(said).encode())
    db.payloads[opened["round_id"], 1] = one
    db.wait_settled(opened["round_id"])


def crashes(run: Run) -> None:
    """The coordinator, then a custodian, in the middle of a round; then the server; each by what would leave a core."""
    db = run.lab.db
    for number in (signal.SIGABRT,) if programs.BUILD.name == "san" else (signal.SIGSEGV, signal.SIGABRT):
        run.answer.clear()
        coordinator = run.coordinator()
        seen = len(run.slow.requests)
        round_id = run.submit(3, [1, 2, run.slow])
        run.slow.primary.wait_requests(seen + 1)
        for where in ("cmdline", "environ"):
            with contextlib.suppress(PermissionError), open(f"/proc/{coordinator.pid}/{where}", "rb") as file:  # of our own user
                assert not run.needles.in_bytes(file.read())
        run.crash(coordinator, number)
        run.crash(run.custodians[1], number)
        run.start_custodian(1)
        peer = run.coordinator()
        run.answer.set()
        assert db.wait_settled(round_id, timeout=40)["state"] == "complete"
        run.answer.clear()
        round_id = run.submit(3, [1, 2, run.slow])
        run.slow.primary.wait_requests(seen + 3)
        run.lab.cluster.restart("immediate")
        run.answer.set()
        assert db.wait_settled(round_id, timeout=40)["state"] == "complete"
        assert peer.stop() == 0


def test_a_run_with_faults_leaves_no_share_and_no_key_in_logs_and_cores(talkative_lab, tmp_path):
    """With the advised settings of the server; all there is to log is logged: the test looks for what must be there, too."""
    run = Run(talkative_lab, tmp_path)
    talkative_lab.punctual = False  # nobody is there to close rounds for a while
    wrong_calls(run)
    cut_off_calls(run)
    coordinator = run.coordinator()
    command_line(run)
    run.slow.plan(b.status(500), b.no_receipt(), b.hang_up(), b.forged_receipt(key=wire.KeyPair()))
    round_id = run.submit(2, [1, 2, run.slow])
    talkative_lab.db.wait_settled(round_id)
    assert coordinator.stop() == 0
    crashes(run)
    server, programs_said = talkative_lab.cluster.read_log(), talkative_lab.processes.logs()
    for words in ("quorate.distribute", "quorate.submit_round", "quorate_worker.record", "STATEMENT:  INSERT INTO quorate_store.envelope", "deadlock detected",
                  "canceling statement due to user request", "canceling statement due to lock timeout", "terminating connection due to administrator"):
        assert words in server, words
    assert re.search(r"event=attempt .*outcome=ack", programs_said) and "event=request webhook_id" in programs_said
    assert not run.needles.in_bytes(server.encode() + programs_said.encode())
    assert leaks.cores(tmp_path) == [] and list(run.cwd.iterdir()) == []
    found = run.needles.in_files(tmp_path)
    own = {str(path) for path in (*run.files, tmp_path / "coordinator.key", tmp_path / "next.key", tmp_path / "node-secrets")}
    stores = {path for path in found if re.search(r"/node-[12]\.db(-wal|-shm)?$", path)}
    assert stores and set(found) <= own | stores, found  # where they belong, and nowhere else


def test_without_the_advised_settings_the_server_logs_shares(tmp_path, request):
    """Why the advice is given, and that the test above would find one."""
    with Cluster(settings=TALKATIVE) as own:
        own.create_template()
        lab = Lab(own, tmp_path)
        lab.punctual = False
        request.node.lab = lab
        needles = leaks.Needles()
        try:
            lab.node()
            payload = os.urandom(40)
            needles.add("share", payload)
            round_id = lab.db.submit(1, [1], payloads={1: payload})
            assert needles.in_bytes(own.read_log().encode()) == {"share"}
            assert lab.db.one("SELECT quorate.cancel_round(%s, 'enough')", round_id)
        finally:
            lab.close()


@pytest.mark.parametrize("form", [lambda s: s, lambda s: s[7:23], lambda s: s.hex().encode(), lambda s: s.hex().upper().encode()[3:60],
                                  lambda s: wire.base64.b64encode(s), lambda s: wire.base64.b64encode(b"x" + s), lambda s: wire.base64.b64encode(b"xy" + s)[5:],
                                  lambda s: "".join(f"\\{byte:03o}" if not 32 <= byte < 127 or byte == 92 else chr(byte) for byte in s).replace("\\134", "\\\\").encode()])
def test_a_leak_is_found_however_it_is_written(form):
    secret, needles = os.urandom(32), leaks.Needles()
    needles.add("it", secret)
    assert needles.in_bytes(b"some \0 text" + form(secret) + b"more") == {"it"}
    assert needles.in_bytes(bytes((1 << 20) - 13) + form(secret)) == {"it"}  # over the end of a piece
    assert needles.in_bytes(os.urandom(4096)) == set()


def test_sealed_shares_stand_in_plain_nowhere(talkative_lab, tmp_path):
    """Neither in the database's files, WAL and log included, nor in the custodian's store, whose process is the only one that could open them."""
    lab, needles = talkative_lab, leaks.Needles()
    key_file, cwd = tmp_path / "node.key", tmp_path / "cwd"
    cwd.mkdir()
    signing = lab.processes.command("keygen", str(key_file)).stdout.split()[0]
    sealing = lab.processes.command("keygen", "--public", f"{key_file}.box").stdout.strip()
    secret = wire.base64.b64decode((tmp_path / "node.key.box").read_text().strip().removeprefix("qbsk_"))
    needles.add("the sealing key", secret)
    under = ("prlimit", "--core=unlimited:unlimited", "env", "-u", "QUORATE_ALLOW_CORE_DUMPS", "-C", str(cwd))
    arguments = {"store": tmp_path / "store.db", "options": ("--log-level", "debug", "--seal-key", f"{key_file}.box", "--require-sealed"), "under": under}
    custodian = lab.processes.custodian(1, key_file, lab.key.public_text, **arguments)
    lab.db.rows("SELECT quorate.add_node(1, %s, %s, NULL, %s)", custodian.url, signing, sealing)
    slow, answer = lab.node(2), threading.Event()
    coordinator = lab.coordinator(options=("--log-level", "debug"), under=under)

    def distribute(number: int, nodes: list[int]) -> str:
        opened = lab.db.open(len(nodes), node_ids=nodes, **PATIENT)
        given = []
        for node in nodes:
            share, path = os.urandom(64), tmp_path / f"share-{number}-{node}"
            path.write_bytes(share)
            if node == 1:  # the other one has no sealing key: what it gets is not sealed
                needles.add("share", share)
            given += ["--share", f"{node}={path}"]
        for _ in range(2):
            done = lab.processes.command("distribute", opened["round_id"], "--nonce", str(opened["nonce"]), *given, conninfo=lab.db.conninfo)
            assert done.returncode == 0, done
        for node in nodes:
            (tmp_path / f"share-{number}-{node}").unlink()
        return opened["round_id"]

    for number in range(3):
        assert lab.db.wait_settled(distribute(number, [1]))["state"] == "complete"
    slow.plan(then=b.after(answer))
    round_id = distribute(3, [1, 2])
    slow.primary.wait_requests(1)
    lab.db.wait("the share is held", lambda: 1 in lab.db.acks(round_id))
    for process, number in ((coordinator, signal.SIGABRT), (custodian, signal.SIGABRT)):
        process.may_be_killed, process.killed_by = True, -number
        process.popen.send_signal(number)
        process.popen.wait(20)
    lab.cluster.restart("immediate")
    answer.set()
    lab.processes.custodian(1, key_file, lab.key.public_text, listen=custodian.url[7:-1], **arguments)
    lab.coordinator(options=("--log-level", "debug"), under=under)
    assert lab.db.wait_settled(round_id, timeout=40)["state"] == "complete"
    lab.db.rows("SELECT * FROM pg_switch_wal()")
    lab.db.conn.execute("CHECKPOINT")
    assert (tmp_path / "store.db").stat().st_size > 0 and len(list(tmp_path.glob("share-*.sealed"))) == 4
    found = needles.in_files(lab.cluster.folder, tmp_path)
    assert set(found) == {f"{key_file}.box"}, found
    assert not needles.in_bytes(lab.processes.logs().encode()) and leaks.cores(tmp_path) == []
