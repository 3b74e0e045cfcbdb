"""How the reference custodian is started: options, keys and stores, and what it says when one of them is wrong."""

import re
import sqlite3
import subprocess

import pytest

from custodian_client import BODY, COORDINATOR, KEY, NODE_1, VECTOR_RECEIPT, KeyPair, post
from custodian_client import custodian, key_file, processes, start  # noqa: F401  (fixtures)
from harness.build import environment, program


def good_options(tmp_path) -> dict:
    return {"--node-id": "1", "--listen": "127.0.0.1:0", "--store": str(tmp_path / "store.db"),
            "--key": str(tmp_path / "node.key"), "--coordinator-key": COORDINATOR.public_text}


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([program("quorate-custodian"), *arguments], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, env=environment(), timeout=20, check=False)


def run_with(tmp_path, changes: dict, *more: str) -> subprocess.CompletedProcess:
    options = {**good_options(tmp_path), **changes}
    return run(*[part for name, value in options.items() if value is not None for part in (name, value)], *more)


def assert_refused(done: subprocess.CompletedProcess, status: int, *said: str) -> None:
    assert done.returncode == status, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("quorate-custodian: "), done.stderr
    for words in said:
        assert words in done.stderr, done.stderr


def test_version():
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r"quorate-custodian \d+\.\d+\.\d+\n", done.stdout)
    assert "--version" in run("--help").stdout


def test_help_names_every_option():
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("--node-id ID", "--listen HOST:PORT", "--store FILE", "--key FILE", "--coordinator-key WHPK",
                   "--max-body", "--max-connections", "--max-connections-per-peer", "--request-timeout",
                   "--idle-timeout", "--port-file", "--log-level", "--help"):
        assert option in done.stdout


@pytest.mark.parametrize("missing", ("--node-id", "--listen", "--store", "--key", "--coordinator-key"))
def test_a_missing_option(tmp_path, key_file, missing):
    assert_refused(run_with(tmp_path, {missing: None}), 2, missing)


@pytest.mark.parametrize("option, value", (
    ("--node-id", "0"), ("--node-id", "32768"), ("--node-id", "-1"), ("--node-id", "one"), ("--node-id", ""),
    ("--listen", "127.0.0.1"), ("--listen", ":8080"), ("--listen", "127.0.0.1:65536"), ("--listen", "127.0.0.1:"),
    ("--listen", "::1:8080"), ("--listen", "[::1]"), ("--listen", "[::1:8080"), ("--listen", "[]:1"),
    ("--listen", "host.invalid:0"), ("--coordinator-key", "whpk_"), ("--coordinator-key", "nonsense"),
    ("--max-body", "0"), ("--max-body", "16777217"), ("--max-body", "1M"), ("--max-connections", "0"),
    ("--max-connections", "x"), ("--max-connections-per-peer", "0"), ("--request-timeout", "0s"),
    ("--request-timeout", "10"), ("--idle-timeout", "soon"), ("--log-level", "loud"), ("--log-level", ""),
    ("--port-file", ""), ("--store", ""), ("--key", "")))
def test_a_wrong_option(tmp_path, key_file, option, value):
    said = [value] if value and option != "--coordinator-key" else []  # it may be a secret key by mistake
    assert_refused(run_with(tmp_path, {option: value}), 2, option, *said)
    assert not (tmp_path / "store.db").exists() or option == "--listen"


def test_unknown_and_surplus_arguments(tmp_path, key_file):
    assert_refused(run_with(tmp_path, {}, "--nonsense"), 2, "--nonsense")
    assert_refused(run_with(tmp_path, {}, "surplus"), 2, "surplus")
    assert_refused(run_with(tmp_path, {}, "--node-id", "2"), 2, "--node-id")


def test_more_than_eight_coordinators(tmp_path, key_file):
    more = [part for _ in range(8) for part in ("--coordinator-key", KeyPair().public_text)]
    assert_refused(run_with(tmp_path, {}, *more), 2, "--coordinator-key", "9", "8")


def test_a_secret_key_given_as_coordinator_key_is_not_repeated(tmp_path, key_file):
    done = run_with(tmp_path, {"--coordinator-key": COORDINATOR.secret_text})
    assert_refused(done, 2, "--coordinator-key")
    assert COORDINATOR.secret_text[5:] not in done.stderr


@pytest.mark.parametrize("mode", (0o644, 0o640, 0o604, 0o660))
def test_a_key_file_that_others_can_read(tmp_path, key_file, mode):
    key_file.chmod(mode)
    assert_refused(run_with(tmp_path, {}), 2, str(key_file))
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize("text", (
    "", "\n", "nonsense\n", COORDINATOR.public_text + "\n", NODE_1.secret_text + "\nmore\n",
    NODE_1.secret_text[:-8] + "AAAAAAA=\n"))
def test_a_key_file_without_a_key(tmp_path, key_file, text):
    key_file.write_text(text)
    done = run_with(tmp_path, {})
    assert_refused(done, 2, str(key_file))
    assert NODE_1.secret_text[5:40] not in done.stderr


def test_no_key_file(tmp_path):
    assert_refused(run_with(tmp_path, {}), 2, str(tmp_path / "node.key"))


def test_a_store_of_another_node(tmp_path, start):
    first = start()
    post(first.url, KEY, BODY)
    first.stop()
    assert_refused(run_with(tmp_path, {"--node-id": "2"}), 2, "node 1", "node 2", "store.db")
    assert post(start().url, KEY, BODY).receipt == VECTOR_RECEIPT


@pytest.mark.parametrize("mode", (0o644, 0o660))
def test_a_store_that_others_can_read(tmp_path, key_file, mode):
    (tmp_path / "store.db").touch()
    (tmp_path / "store.db").chmod(mode)
    assert_refused(run_with(tmp_path, {}), 2, "store.db", f"{mode:04o}", "0600")


def test_a_file_that_is_no_store_is_left_alone(tmp_path, key_file):
    store = tmp_path / "store.db"
    store.write_bytes(b"Dear diary, today I wrote more than sixteen bytes.\n" * 100)
    store.chmod(0o600)
    before = store.read_bytes()
    assert_refused(run_with(tmp_path, {}), 2, "store.db", "not a database")
    assert store.read_bytes() == before


def test_another_sqlite_file_is_left_alone(tmp_path, key_file):
    store = tmp_path / "store.db"
    connection = sqlite3.connect(store)
    connection.execute("CREATE TABLE share (something TEXT)")
    connection.close()
    store.chmod(0o600)
    before = store.read_bytes()
    assert_refused(run_with(tmp_path, {}), 2, "store.db", "not a custodian's store")
    assert store.read_bytes() == before


def test_a_store_of_a_newer_format(tmp_path, start):
    start().stop()
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert_refused(run_with(tmp_path, {}), 2, "format 2")


def test_a_store_that_is_a_folder_or_has_none(tmp_path, key_file):
    assert_refused(run_with(tmp_path, {"--store": str(tmp_path)}), 1, str(tmp_path))
    assert_refused(run_with(tmp_path, {"--store": str(tmp_path / "none" / "x.db")}), 1, "none/x.db")


def test_a_port_that_is_taken(tmp_path, custodian):
    address = custodian.url.removeprefix("http://").rstrip("/")
    assert_refused(run_with(tmp_path, {"--listen": address, "--store": str(tmp_path / "two.db")}), 1, address)


def test_a_port_file_that_cannot_be_written(tmp_path, key_file):
    done = run_with(tmp_path, {"--port-file": str(tmp_path / "none" / "port")})
    assert done.returncode == 1 and "none/port" in done.stderr


def test_the_log_says_where_it_listens(custodian):
    line = custodian.wait_line("event=listening")
    port = custodian.url.removesuffix("/").rpartition(":")[2]
    assert f"address=127.0.0.1:{port}" in line and f"port={port}" in line and "node_id=1" in line


def test_ipv6(processes, key_file, tmp_path):
    process = processes.start("ipv6", [program("quorate-custodian"), "--node-id", "1", "--listen", "[::1]:0", "--store",
                                       str(tmp_path / "six.db"), "--key", str(key_file), "--coordinator-key",
                                       COORDINATOR.public_text])
    address = process.wait_line("event=listening").split("address=")[1].split()[0].strip('"')
    assert post(f"http://{address}/", KEY, BODY).receipt == VECTOR_RECEIPT
