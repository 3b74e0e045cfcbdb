"""What a process knows stays in it: no core dump, nothing in the lists of processes, keys locked in memory, and no look from outside."""

import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest
from harness import behaviours as b
from harness import build as programs
from harness import leaks, wire
from harness.cli import plain

PASSWORD = "open-sesame-0123456789"  # no characters that a URI would escape
SANITIZED = programs.BUILD.name == "san"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into a process that keeps others out")
not_sanitized = pytest.mark.skipif(SANITIZED, reason="the sanitizers take signals themselves, and lock no memory")


def proc(process, name: str) -> bytes:
    return pathlib.Path(f"/proc/{process.pid}/{name}").read_bytes()


def status(process) -> dict[str, str]:
    return dict(line.split(":", 1) for line in proc(process, "status").decode().splitlines())


@pytest.fixture
def custodian(lab):
    """One of ours, known to the database as node 1; its key is `custodian.pair`."""
    pair = wire.KeyPair()
    started = lab.processes.custodian(1, lab.write_key("node-1.key", pair), lab.key.public_text)
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", started.url, pair.public_text)
    started.pair = pair
    return started


# Core dumps.


def dumping(folder: pathlib.Path, *more: str) -> tuple[str, ...]:
    """The command that lets a program dump core into a folder, were it for the limit and the environment alone."""
    return ("prlimit", "--core=unlimited:unlimited", "env", "-u", "QUORATE_ALLOW_CORE_DUMPS", "-C", str(folder), *more)


def end_in_mid_round(lab, which: str, number: int, folder: pathlib.Path, *more: str):
    """Ends one of the two with a signal while a request is between them; returns it."""
    answer = threading.Event()
    slow = lab.node(2).plan(then=b.after(answer))
    pair = wire.KeyPair()
    custodian = lab.processes.custodian(1, lab.write_key("node-1.key", pair), lab.key.public_text, under=dumping(folder, *more))
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", custodian.url, pair.public_text)
    coordinator = lab.coordinator(under=dumping(folder, *more))
    round_id = lab.db.submit(2, [1, slow], round_deadline="60 s", per_share_timeout="20 s")
    slow.primary.wait_requests(1)
    lab.db.wait("the custodian has its share", lambda: 1 in lab.db.acks(round_id))
    ended = {"coordinator": coordinator, "custodian": custodian}[which]
    ended.may_be_killed = True
    limits = proc(ended, "limits").decode()
    ended.popen.send_signal(number)
    assert ended.popen.wait(20) == -number
    ended.killed_by = -number
    if which == "coordinator":
        lab.coordinator()
    answer.set()
    assert lab.db.wait_settled(round_id)["state"] == "complete"
    return limits


@not_sanitized
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT])
@pytest.mark.parametrize("which", ["coordinator", "custodian"])
def test_a_crash_in_mid_round_leaves_no_core(lab, tmp_path, which, number):
    folder = tmp_path / "cwd"
    folder.mkdir()
    limits = end_in_mid_round(lab, which, number, folder)
    assert re.search(r"^Max core file size +0 +0 ", limits, re.M), limits
    assert leaks.cores(tmp_path) == [] and list(folder.iterdir()) == []


@not_sanitized
@pytest.mark.skipif(not re.fullmatch(r"[\w.%-]+", pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()),
                    reason="core dumps go elsewhere than to the working directory here")
@pytest.mark.parametrize("which", ["coordinator", "custodian"])
def test_a_core_that_is_allowed_is_found(lab, tmp_path, which):
    """The test above can fail; and whoever must look into a crash, can."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    end_in_mid_round(lab, which, signal.SIGABRT, folder, "QUORATE_ALLOW_CORE_DUMPS=1")
    assert len(leaks.cores(folder)) == 1


@as_root
def test_no_process_of_the_same_user_looks_inside(tmp_path):
    """Memory, environment and open files of a process are closed to its own user."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="qr-", dir="/tmp"))
    try:
        pair, ours = wire.KeyPair(), folder / "key"
        ours.write_text(pair.secret_text + "\n")
        for name in ("quorate-custodian",):
            shutil.copy(programs.program(name), folder / name)
        for path in (folder, ours):
            os.chown(path, 65534, 65534)
        ours.chmod(0o600)
        look = ('{ "$@" & } 2> "$0/log"; pid=$!; until [ -s "$0/port" ]; do kill -0 $pid || exit 9; sleep 0.05; done; '
                'for file in mem environ maps fd/0; do head -c 1 /proc/$pid/$file > /dev/null 2>&1 && echo "$file"; done; '
                'kill $pid; wait $pid; echo ended $?')
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", look, str(folder), str(folder / "quorate-custodian"),
             "--node-id", "1", "--listen", "127.0.0.1:0", "--store", str(folder / "db"), "--key", str(ours), "--coordinator-key", pair.public_text,
             "--port-file", str(folder / "port")],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=programs.environment(), timeout=30, check=False)
        assert done.stdout == "ended 0\n", (done, (folder / "log").read_text())
    finally:
        shutil.rmtree(folder)


@as_root
def test_a_log_that_nobody_reads_goes_nowhere_else(lab):
    """Programs that are started without standard descriptors: the next socket must not become one, and be sent what is logged."""
    without = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    pair = wire.KeyPair()
    custodian = lab.processes.custodian(1, lab.write_key("node-1.key", pair), lab.key.public_text, under=without, options=("--log-level", "debug"))
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", custodian.url, pair.public_text)
    coordinator = lab.processes.coordinator(lab.db.conninfo, lab.key_file, under=without, ready=False, options=("--log-level", "debug"))
    assert lab.db.wait_settled(lab.db.submit(1, [1], round_deadline="60 s"))["state"] == "complete"
    for program in (custodian, coordinator):
        assert {os.readlink(f"/proc/{program.pid}/fd/{number}") for number in (0, 1, 2)} <= {"/", "/dev/null"}


# Lists of processes.


@as_root
@pytest.mark.parametrize("conninfo", ["{} password={}", "{} password='{}' options='-c statement_timeout=0'", "postgresql://postgres:{1}@/{2}?host={3}"])
def test_no_password_stands_in_the_lists_of_processes(lab, conninfo):
    """Neither in the command line nor in the environment as it was at the start, both of which go on to work."""
    parts = dict(part.split("=", 1) for part in lab.db.conninfo.split())
    given = conninfo.format(lab.db.conninfo, PASSWORD, lab.db.name, parts["host"])
    shown = lab.processes.coordinator(given, lab.key_file, "c1", options=("--listen-db", given, "--log-level", "debug"), under=(
        "env", f"PGPASSWORD={PASSWORD}", f"QUORATE_DB={given}"))
    for name in ("cmdline", "environ"):
        assert PASSWORD.encode() not in proc(shown, name), proc(shown, name)
        assert PASSWORD[4:].encode() not in proc(shown, name)
    assert b"--listen-db" in proc(shown, "cmdline") and b"--log-level" in proc(shown, "cmdline")
    assert lab.db.wait_settled(lab.db.submit(1, [lab.node()]))["state"] == "complete"
    assert PASSWORD not in lab.processes.logs()


@pytest.mark.parametrize("arguments", [
    ("status", f"postgresql://u:{PASSWORD}@h/d"), ("collect", f"host=h password={PASSWORD}"), ("status", "x", f"postgresql://u:{PASSWORD}@h/d"),
    (f"postgresql://u:{PASSWORD}@h/d",),
    ("run", "--key", wire.KeyPair().secret_text), ("run", "--key", "/dev/null", "--node-secrets", wire.Secret().secret_text),
    ("status", wire.KeyPair().secret_text), ("status", "x", wire.Secret().secret_text), ("node", "add", wire.KeyPair().secret_text),
    ("unseal", "--key", wire.SealPair().secret_text, "--id", "d:r:1:1", "/dev/null"),
    ("node", "add", "1", "--url", "http://h/", "--key", wire.KeyPair().public_text, "--seal-key", wire.SealPair().secret_text)])
def test_what_stands_in_the_wrong_place_is_not_repeated(arguments):
    done = plain(*arguments, "--db", "host=/nonexistent")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    for word in arguments:
        for secret in re.findall(rf"{PASSWORD}|(?<=whsk_).+|(?<=whsec_).+|(?<=qbsk_).+", word):
            assert secret[:16] not in done.stdout + done.stderr, done


def test_a_refused_login_tells_no_password(lab):
    """Neither the coordinator's log nor the server's, nor an error of the command line."""
    with lab.db.connect() as conn:
        verifier = conn.pgconn.encrypt_password(b"another one", b"guest", b"scram-sha-256").decode()
        conn.execute(f"CREATE ROLE guest_{lab.db.name} LOGIN PASSWORD '{verifier}'")
    rules = lab.cluster.data / "pg_hba.conf"
    before = rules.read_text()
    given = f"{lab.db.conninfo} user=guest_{lab.db.name} password={PASSWORD}"
    try:
        rules.write_text(f"local all guest_{lab.db.name} scram-sha-256\n" + before)
        lab.db.rows("SELECT pg_reload_conf()")
        done = lab.processes.command("status", conninfo=given)
        assert done.returncode == 7 and "password authentication failed" in done.stderr and PASSWORD not in done.stderr
        started = lab.processes.coordinator(given, lab.key_file, "c1", ready=False, options=("--log-level", "debug"))
        started.wait_line("event=database_lost .*password authentication failed")
        assert started.stop() == 0
        assert PASSWORD not in started.log and PASSWORD not in lab.cluster.read_log()
    finally:
        rules.write_text(before)
        lab.db.rows("SELECT pg_reload_conf()")
        lab.db.conn.execute(f"DROP ROLE guest_{lab.db.name}")


# Memory.


@as_root
@not_sanitized
def test_keys_are_in_locked_memory_once_and_nowhere_else(lab, custodian):
    """Also after they were used, and after they were read again."""
    shared = wire.Secret()
    symmetric = lab.processes.custodian(2, None, None, options=("--secret", str(lab.write_key("shared", shared))))
    lab.db.rows("SELECT quorate.add_node(2, %s, %s)", symmetric.url, shared.public_text)
    coordinator = lab.coordinator(options=("--node-secrets", str(lab.write_node_secrets({2: [shared]}))))
    for _ in range(2):
        assert lab.db.wait_settled(lab.db.submit(2, [1, 2]))["state"] == "complete"
        for process, secret in ((coordinator, lab.key.seed), (coordinator, shared.seed), (custodian, custodian.pair.seed), (symmetric, shared.seed)):
            (found,) = leaks.occurrences(process.pid, secret)
            assert {"lo", "dd"} <= found[1], (process.name, found)  # locked, and in no dump
            assert int(status(process)["VmLck"].split()[0]) > 0
        for process, text in ((coordinator, lab.key.secret_text), (coordinator, shared.secret_text), (custodian, custodian.pair.secret_text),
                              (symmetric, shared.secret_text)):
            assert leaks.occurrences(process.pid, text.split("_")[1][:20].encode()) == [], process.name
        coordinator.kill(signal.SIGHUP)
        coordinator.wait_line("event=keys_read keys=1 node_secrets=1")
    assert "keys_not_locked" not in lab.processes.logs()


@as_root
@not_sanitized
def test_a_sealing_key_and_what_it_opened(lab):
    """The key as above; of a share, nothing is left once it was seen to be for this round, nor of one that was refused."""
    pair, sealing = wire.KeyPair(), wire.SealPair()
    custodian = lab.processes.custodian(1, lab.write_key("node-1.key", pair), lab.key.public_text,
                                        options=("--seal-key", str(lab.write_key("node-1.key.box", sealing)), "--require-sealed"))
    lab.db.rows("SELECT quorate.add_node(1, %s, %s, NULL, %s)", custodian.url, pair.public_text, sealing.public_text)
    lab.coordinator()
    for number, size in enumerate((60, 5000, 300_000), 1):
        share = secrets.token_bytes(size)
        for nonce, state in ((number, "complete"), (number + 10, "stalled")):
            envelope = sealing.seal(f"{lab.db.deployment()}:r{nonce}:1:{number}", share)
            lab.db.submit(1, [1], round_id=f"r{nonce}", nonce=nonce, payloads={1: envelope}, round_deadline="2 s")
            assert lab.db.wait_settled(f"r{nonce}")["state"] == state
        assert leaks.occurrences(custodian.pid, share[:20]) == leaks.occurrences(custodian.pid, share[-20:]) == []
    (found,) = leaks.occurrences(custodian.pid, sealing.seed)
    assert {"lo", "dd"} <= found[1], found
    assert leaks.occurrences(custodian.pid, sealing.secret_text.split("_")[1][:20].encode()) == []


@as_root
@not_sanitized
def test_a_limit_of_locked_memory_that_is_too_small_is_told_and_bars_nothing(lab):
    without = ("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit", "--memlock=0:0")
    pair = wire.KeyPair()
    custodian = lab.processes.custodian(1, lab.write_key("node-1.key", pair), lab.key.public_text, under=without)
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", custodian.url, pair.public_text)
    coordinator = lab.coordinator(under=without)
    assert lab.db.wait_settled(lab.db.submit(1, [1]))["state"] == "complete"
    for process in (coordinator, custodian):
        assert len([line for line in process.lines if "level=warn" in line and "event=keys_not_locked" in line]) == 1, process.log
