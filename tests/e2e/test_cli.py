"""The command line: every command, its exit codes, its one-line errors, its JSON, and what it does when things break."""

import base64
import json
import os
import pathlib
import re
import stat
import subprocess

import pytest
from harness import build as programs
from harness import wire
from harness.cli import Cli, plain

COMMANDS = ["migrate", "keygen", "node add", "node list", "node enable", "node disable", "open", "distribute", "collect",
            "cancel", "status", "prune", "unseal", "run"]


@pytest.fixture
def cli(lab):
    return Cli(lab)


# Help and dispatch: no database.

@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(command):
    done = plain(*command.split(), "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"Usage: quorate {command} ")
    for option in ("--db", "--json", "--help"):
        assert f"\n  {option}" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


@pytest.mark.parametrize("arguments,mentioned", [(("--help",), COMMANDS), (("node", "--help"), ["add", "disable"])])
def test_list_of_commands(arguments, mentioned):
    done = plain(*arguments)
    assert done.returncode == 0
    assert all(f"\n  {command.split()[0]} " in done.stdout for command in mentioned)


def test_help_of_a_command_in_either_order():
    assert plain("help", "run").stdout == plain("run", "--help").stdout != plain("--help").stdout
    assert plain("-h").stdout == plain("help").stdout == plain("--help").stdout
    assert plain("help", "rum").returncode == 2


def test_version():
    done = plain("--version")
    assert done.returncode == 0 and re.fullmatch(r"quorate \d+\.\d+\.\d+\n", done.stdout)
    assert "--version" in plain("--help").stdout


@pytest.mark.parametrize("arguments,suggested", [
    (("opne",), "open"), (("colect",), "collect"), (("stat",), "status"), (("nodes",), "node"),
    (("node", "lst"), "list"), (("frobnicate",), None), ((), None), (("node",), None), (("--frobnicate",), None)])
def test_unknown_command_names_the_nearest(arguments, suggested):
    done = plain(*arguments)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "--help" in done.stderr
    assert ("did you mean" in done.stderr) == (suggested is not None)
    assert suggested is None or suggested in done.stderr


def test_defaults_in_the_help_are_those_of_the_database(lab):
    text = " ".join(plain("open", "--help").stdout.split())
    found = {name: re.search(rf"--{name} .*?\(default: ([^)]+)\)", text)[1]
             for name in ("deadline", "timeout", "retries", "backoff", "after-quorum")}
    base, most = found["backoff"].split("..")
    arguments = lab.db.one("SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = 'open_round' "
                           "AND pronamespace = 'quorate'::regnamespace")
    defaults = {name: quoted or bare for name, quoted, bare in
                re.findall(r"(\w+) [a-z ]+ DEFAULT (?:'([^']*)'|(\w+))", arguments)}
    for name, value in (("round_deadline", found["deadline"]), ("per_share_timeout", found["timeout"]),
                        ("base_backoff", base), ("max_backoff", most)):
        assert lab.db.one("SELECT %s::interval = %s::interval", defaults[name], value), name
    assert defaults["retry_budget"] == found["retries"] and defaults["after_quorum"] == found["after-quorum"]


def test_a_result_that_cannot_be_written_is_a_failure(lab):
    with open("/dev/full", "w") as full:
        done = subprocess.run([programs.program("quorate"), "status", "--db", lab.db.conninfo], stdout=full,
                              stderr=subprocess.PIPE, text=True, env=programs.environment(), timeout=30, check=False)
    assert done.returncode == 1 and "could not be written" in done.stderr


# The connection.

@pytest.mark.parametrize("command", [("status",), ("node", "list"), ("open", "r", "--quorum", "1"), ("collect", "r"),
                                     ("cancel", "r", "--reason", "x"), ("prune", "--older-than", "1d"), ("migrate",)])
def test_unreachable_database(tmp_path, command):
    done = plain(*command, "--db", f"host={tmp_path} dbname=x password=SECRETWORD")
    assert done.returncode == 7 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "cannot reach the database" in done.stderr and "No such file" in done.stderr
    assert "SECRETWORD" not in done.stderr


@pytest.mark.parametrize("conninfo", [
    "host=x SECRETWORD", "host=x passwort=SECRETWORD", "password='SECRETWORD", "postgresql://u:SECRETWORD%zz@h/d",
    "postgresql://u:SECRETWORD@h:port:x/d?y", "postgresql://u:a@SECRETWORD@h/d"])
def test_unreadable_connection_string(conninfo):
    done = plain("status", "--db", conninfo)
    assert done.returncode in (2, 7) and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.returncode == 2 or "h:port" in conninfo
    assert "SECRETWORD" not in done.stderr


@pytest.mark.parametrize("conninfo", [
    "host=x SECRETWORD", "host=x passwort=SECRETWORD", "password='SECRETWORD", "postgresql://u:SECRETWORD%zz@h/d",
    "postgresql://u:a@SECRETWORD@h/d?y"])
def test_run_refuses_an_unreadable_connection_string_at_once(tmp_path, conninfo):
    """It would try for ever to reach what cannot even be named."""
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_text(wire.KeyPair().secret_text + "\n")
    done = plain("run", "--key", str(tmp_path / "key"), "--db", conninfo)
    assert done.returncode == 2 and done.stdout == "" and "connection string" in done.stderr
    assert not re.search("SECRETWORD|passwort|a@", done.stdout + done.stderr)


def test_unknown_database_and_user(cli):
    assert "nowhere" in cli.fails(7, "status", conninfo=cli.lab.db.conninfo + " dbname=nowhere")
    assert "nobody" in cli.fails(7, "status", conninfo=cli.lab.db.conninfo + " user=nobody")


def test_database_from_the_environment(lab):
    assert plain("status", env=programs.environment(QUORATE_DB=lab.db.conninfo)).returncode == 0
    parts = dict(part.split("=", 1) for part in lab.db.conninfo.split())
    libpq = {"PGHOST": parts["host"], "PGPORT": parts["port"], "PGUSER": parts["user"], "PGDATABASE": parts["dbname"]}
    assert plain("status", env=programs.environment(**libpq)).returncode == 0
    assert plain("status", env=programs.environment(**libpq, QUORATE_DB="")).returncode == 0
    assert plain("status", env=programs.environment(**{**libpq, "PGDATABASE": "no"}, QUORATE_DB=lab.db.conninfo)
                 ).returncode == 0
    assert plain("status", "--db", parts["dbname"], env=programs.environment(**{**libpq, "PGDATABASE": "no"})
                 ).returncode == 0


def test_database_without_the_schema(lab):
    name = lab.cluster.create_database(template="template0")
    try:
        for command in (("status",), ("collect", "r"), ("open", "r", "--quorum", "1"), ("prune", "--older-than", "1d")):
            done = plain(*command, "--db", lab.cluster.conninfo(name))
            assert done.returncode == 1 and "run `quorate migrate` first" in done.stderr and done.stderr.count("\n") == 1
    finally:
        lab.cluster.drop_database(name)


# keygen.

def test_keygen(tmp_path):
    path = tmp_path / "key"
    done = plain("keygen", str(path))
    assert done.returncode == 0 and done.stderr == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_text()
    assert re.fullmatch(r"whsk_[A-Za-z0-9+/]{86}==\n", secret)
    pair = wire.KeyPair(base64.b64decode(secret.strip()[5:])[:32])
    assert done.stdout == pair.public_text + "\n" and secret == pair.secret_text + "\n"

    again = plain("keygen", str(path))
    assert again.returncode == 5 and again.stdout == "" and again.stderr.count("\n") == 1 and path.read_text() == secret

    done = plain("keygen", str(tmp_path / "other"), "--json")
    assert json.loads(done.stdout).keys() == {"public_key", "seal_key"} and pair.public_text not in done.stdout
    assert plain("keygen").returncode == 2
    assert plain("keygen", str(tmp_path / "no" / "where")).returncode not in (0, 5)


def test_keygen_of_a_secret(tmp_path):
    path = tmp_path / "secret"
    done = plain("keygen", "--symmetric", str(path))
    assert done.returncode == 0 and done.stderr == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=\n", path.read_text())
    secret = wire.Secret.parse(path.read_text())
    assert len(secret.seed) == 32 and done.stdout == secret.public_text + "\n"

    again = plain("keygen", "--symmetric", str(path))
    assert again.returncode == 5 and again.stdout == "" and again.stderr.count("\n") == 1
    assert path.read_text() == secret.secret_text + "\n"

    done = plain("keygen", str(tmp_path / "other"), "--symmetric", "--json")
    assert json.loads(done.stdout) == {"secret_id": wire.Secret.parse((tmp_path / "other").read_text()).public_text}


def test_keygen_says_the_id_of_a_secret_again(tmp_path):
    path = tmp_path / "secret"
    for size in (24, 32, 64):
        secret = wire.Secret(os.urandom(size))
        path.write_text(secret.secret_text + "\n")
        path.chmod(0o600)
        assert plain("keygen", "--public", str(path)).stdout == secret.public_text + "\n"
        assert json.loads(plain("keygen", "--public", "--json", str(path)).stdout) == {"secret_id": secret.public_text}
    for text in ("whsec_", secret.secret_text[:-3], secret.secret_text + "\n" + secret.secret_text, "7 = " + secret.secret_text):
        path.write_text(text + "\n")
        done = plain("keygen", "--public", str(path))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), text
        assert secret.secret_text[6:20] not in done.stderr


# node.

def test_a_node_with_a_secret(cli):
    secret = wire.Secret()
    cli("node", "add", "7", "--url", "http://a.example/", "--key", secret.public_text)
    assert cli.json("node", "list")[0]["receipt_key"] == secret.public_text
    said = cli.fails(2, "node", "add", "7", "--url", "http://a.example/", "--key", secret.secret_text)
    assert "whid_" in said and secret.secret_text[6:20] not in said


def test_node(cli):
    key, other = wire.KeyPair().public_text, wire.KeyPair().public_text
    assert cli.json("node", "list") == []
    assert cli("node", "add", "7", "--url", "http://a.example:81/x", "--key", key) == ""
    assert cli.json("node", "add", "32767", "--url", "https://b.example/", "--key", key, "--backup-url",
                    "http://c.example/") == {"node_id": 32767}
    assert cli.json("node", "list") == [
        {"node_id": 7, "url": "http://a.example:81/x", "backup_url": None, "receipt_key": key, "receipt_keys": [key],
         "seal_key": None, "enabled": True, "receipt_key_valid": True, "seal_key_valid": None},
        {"node_id": 32767, "url": "https://b.example/", "backup_url": "http://c.example/", "receipt_key": key,
         "receipt_keys": [key], "seal_key": None, "enabled": True, "receipt_key_valid": True, "seal_key_valid": None}]

    cli("node", "disable", "7")
    cli("node", "add", "7", "--url", "http://d.example/", "--key", other)
    (seven, _) = cli.json("node", "list")
    assert (seven["url"], seven["receipt_key"]) == ("http://d.example/", other)
    cli("node", "enable", "7")
    lines = cli("node", "list").splitlines()
    assert lines[0].split() == ["NODE", "ENABLED", "URL", "BACKUP", "URL", "RECEIPT", "KEY", "SEAL", "KEY"]
    assert lines[1].split() == ["7", "yes", "http://d.example/", "-", other, "-"]
    assert len({line.index("http") for line in lines[1:]}) == 1  # aligned


def test_node_keys(cli):
    first, second, later = (wire.KeyPair().public_text for _ in range(3))
    seal = "qbox_" + second[5:]
    cli("node", "add", "7", "--url", "http://a.example/", "--key", first)
    assert cli("node", "key", "add", "7", second) == ""
    assert cli.json("node", "key", "add", "7", later, "--from", "2100-01-01T00:00:00Z", "--until", "2101-01-01T00:00:00Z") == {
        "node_id": 7, "key": later}
    cli("node", "key", "add", "7", seal)
    listed = cli.json("node", "key", "list", "7")
    assert listed == cli.json("node", "key", "list")
    assert [(k["node_id"], k["key"], k["use"], k["state"]) for k in listed] == [
        (7, first, "receipt", "valid"), (7, second, "receipt", "valid"), (7, seal, "seal", "valid"), (7, later, "receipt", "future")]
    assert listed[3]["valid_from"].startswith("2100-01-01") and listed[3]["valid_until"].startswith("2101-01-01")
    (node,) = cli.json("node", "list")
    assert (node["receipt_key"], node["receipt_keys"], node["seal_key"]) == (second, [second, first], seal)
    assert f" {second} and 1 more " in cli("node", "list")
    cli("node", "key", "add", "7", second, "--until", "now")
    assert cli.json("node", "key", "revoke", "7", first) == {"node_id": 7, "key": first}
    lines = cli("node", "key", "list").splitlines()
    assert lines[0].split() == ["NODE", "STATE", "USE", "VALID", "FROM", "VALID", "UNTIL", "REVOKED", "AT", "KEY"]
    assert [line.split()[1] for line in lines[1:]] == ["revoked", "expired", "valid", "future"]
    assert cli("node", "list").splitlines()[1].split()[4:] == ["none", "is", "valid", seal], "a key that no new round uses looks like none"
    cli("node", "key", "revoke", "7", seal)
    assert cli("node", "list").splitlines()[1].split()[4:] == ["none", "is", "valid"] * 2
    assert "no valid signing key" in cli.fails(6, "open", "r", "--quorum", "1")


@pytest.mark.parametrize("code,arguments,mentioned", [
    (6, ("add", "8", "KEY"), "unknown node 8"),
    (6, ("revoke", "8", "KEY"), "unknown node 8"),
    (6, ("list", "8"), "no node 8"),
    (2, ("list", "0"), '"0"'),
    (2, ("revoke", "7", "KEY"), "has no key"),
    (2, ("add", "7"), "KEY"),
    (2, ("add", "7", "whpk_short"), "whpk_"),
    (2, ("add", "7", "qbox_short"), "qbox_"),
    (2, ("add", "7", "node-7.pub"), "whpk_ (for receipts) or qbox_"),
    (2, ("add", "7", "qbsk_short"), "secret"),
    (2, ("add", "7", "whid_0123456789abcdef"), "add_node"),
    (2, ("add", "7", "KEY", "--until", "now"), "has no key"),
    (2, ("add", "7", "KEY", "--until", "2001-01-01T00:00:00Z"), "has passed"),
    (2, ("add", "7", "KEY", "--from", "2001-01-01T00:00:00Z"), "has passed"),
    (2, ("add", "7", "KEY", "--from", "soon"), '"soon"; write a time such as'),
    (2, ("add", "7", "KEY", "--until", "infinity"), "out of range"),
])
def test_node_key_refuses(cli, code, arguments, mentioned):
    cli("node", "add", "7", "--url", "http://a.example/", "--key", wire.KeyPair().public_text)
    key = wire.KeyPair().public_text
    assert mentioned in cli.fails(code, "node", "key", *(key if word == "KEY" else word for word in arguments))


def test_node_key_shows_no_secret(cli):
    for secret in (wire.KeyPair().secret_text, wire.Secret().secret_text):
        for command in ("add", "revoke"):
            assert secret[8:30] not in cli.fails(2, "node", "key", command, "7", secret)


@pytest.mark.parametrize("code,arguments,mentioned", [
    (2, ("add", "0", "--url", "http://x/", "--key", "KEY"), '"0"'),
    (2, ("add", "32768", "--url", "http://x/", "--key", "KEY"), "32768"),
    (2, ("add", "-1", "--url", "http://x/", "--key", "KEY"), "-1"),
    (2, ("add", "1", "--key", "KEY"), "--url"),
    (2, ("add", "1", "--url", "http://x/"), "--key"),
    (2, ("add", "1", "--url", "ftp://x/", "--key", "KEY"), "ftp://x/"),
    (2, ("add", "1", "--url", "http://x/", "--backup-url", "nonsense", "--key", "KEY"), "nonsense"),
    (2, ("add", "1", "--url", "http://x/", "--key", "whpk_short"), "whpk_"),
    (2, ("add", "1", "--url", "http://x/", "--key", "whid_short"), "whid_"),
    (2, ("add", "1", "--url", "http://x/", "--key", "nonsense"), "whpk_"),
    (2, ("add", "1", "--url", "http://x/", "--key", "whid_0123456789ABCDEF"), "lower-case"),
    (2, ("add",), "ID"), (2, ("list", "1"), '"1"'), (2, ("enable", "x"), '"x"'),
    (6, ("enable", "9"), "9"), (6, ("disable", "9"), "9")])
def test_wrong_node(cli, code, arguments, mentioned):
    key = wire.KeyPair().public_text
    assert mentioned in cli.fails(code, "node", *(key if part == "KEY" else part for part in arguments))
    assert cli.json("node", "list") == []


def test_a_secret_key_is_no_public_key_and_is_not_printed(cli):
    secret = wire.KeyPair().secret_text
    assert secret[5:20] not in cli.fails(2, "node", "add", "1", "--url", "http://x/", "--key", secret)


# open.

def test_open(cli):
    cli.known_nodes()
    nonce = cli("open", "r1", "--quorum", "2").strip()
    row = cli.lab.db.round("r1")
    assert str(row["nonce"]) == nonce and (row["quorum"], row["node_ids"]) == (2, [1, 2, 3])

    opened = cli.json("open", "r2", "--quorum", "1", "--nodes", "3,1", "--nonce", str(2**63 - 1), "--deadline", "20s",
                      "--fresh-for", "1m", "--timeout", "700ms", "--retries", "3", "--backoff", "10ms..1.25s",
                      "--after-quorum", "stop")
    row = cli.lab.db.round("r2")
    assert opened["nonce"] == str(2**63 - 1) and row["nonce"] == 2**63 - 1 and opened["round_id"] == "r2"
    assert opened.keys() == {"round_id", "nonce", "opened_at", "escalate_at", "deadline_at", "fresh_until"}
    for name in ("opened_at", "escalate_at", "deadline_at", "fresh_until"):
        assert cli.lab.db.one("SELECT %s::timestamptz", opened[name]) == row[name]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d", opened[name])
    assert [str(row[name]) for name in ("per_share_timeout", "base_backoff", "max_backoff")] == \
        ["0:00:00.700000", "0:00:00.010000", "0:00:01.250000"]
    assert (row["retry_budget"], row["after_quorum"], row["node_ids"]) == (3, "stop", [1, 3])
    assert (row["deadline_at"] - row["opened_at"]).total_seconds() == 20
    assert (row["fresh_until"] - row["opened_at"]).total_seconds() == 60


@pytest.mark.parametrize("arguments,mentioned", [
    (("r",), "--quorum"), (("r", "--quorum", "0"), '"0"'), (("r", "--quorum", "4"), "4"), (("r", "--quorum", "256"), "256"),
    (("r", "--quorum", "two"), "two"), (("bad id", "--quorum", "1"), "bad id"), (("x" * 129, "--quorum", "1"), "no round id"),
    (("", "--quorum", "1"), "ROUND"), (("r", "--quorum", "1", "--nodes", "1,1"), "twice"),
    (("r", "--quorum", "1", "--nodes", "1,"), '""'), (("r", "--quorum", "1", "--nodes", "0"), '"0"'),
    (("r", "--quorum", "1", "--nodes", "1;2"), "1;2"), (("r", "--quorum", "1", "--nonce", "0"), '"0"'),
    (("r", "--quorum", "1", "--nonce", "9223372036854775808"), "9223372036854775808"),
    (("r", "--quorum", "1", "--deadline", "8"), '"8"'), (("r", "--quorum", "1", "--deadline", "0s"), "0s"),
    (("r", "--quorum", "1", "--retries", "101"), "101"), (("r", "--quorum", "1", "--backoff", "50ms"), "50ms"),
    (("r", "--quorum", "1", "--backoff", "2s..1s"), "2s..1s"), (("r", "--quorum", "1", "--backoff", "..1s"), "..1s"),
    (("r", "--quorum", "1", "--after-quorum", "pause"), "pause"),
    (("r", "--quorum", "1", "--retries", "10", "--backoff", "1s..1s"), "max_backoff"),
    (("r", "--quorum", "1", "--quo", "1"), "--quo"), (("r", "s", "--quorum", "1"), '"s"')])
def test_wrong_open(cli, arguments, mentioned):
    cli.known_nodes()
    assert mentioned in cli.fails(2, "open", *arguments)
    assert cli.lab.db.rounds() == []


def test_open_what_is_used_or_unknown(cli):
    cli.known_nodes(2)
    nonce = cli("open", "r1", "--quorum", "1").strip()
    error = cli.fails(5, "open", "r1", "--quorum", "1")
    assert '"r1"' in error and nonce in error and "open" in error
    assert nonce in cli.fails(5, "open", "r2", "--quorum", "1", "--nonce", nonce)
    assert "7" in cli.fails(6, "open", "r2", "--quorum", "1", "--nodes", "1,7")
    cli("node", "disable", "2")
    assert "2" in cli.fails(6, "open", "r2", "--quorum", "1", "--nodes", "1,2")


# distribute.

def test_distribute(cli):
    cli.known_nodes()
    nonce = int(cli("open", "r", "--quorum", "2"))
    one, two, three = (cli.share(node_id) for node_id in (1, 2, 3))
    assert cli("distribute", "r", "--nonce", str(nonce), "--share", two, "--share", one) == \
        "NODE  VERDICT\n   2  accepted\n   1  accepted\n"
    assert cli.distribute(0, "r", nonce, one, three) == {1: "duplicate", 3: "accepted"}
    stored = {node_id: d["payload_sha256"] for node_id, d in cli.lab.db.deliveries("r").items()}
    assert {node_id: bytes(digest).hex() for node_id, digest in stored.items()} == \
        {int(share[0]): wire.sha256(pathlib.Path(share[2:]).read_bytes()) for share in (one, two, three)}

    assert cli.distribute(5, "r", nonce, cli.share(1), two) == {1: "conflict", 2: "duplicate"}
    assert cli.distribute(5, "r", nonce % 1000 + 1, one) == {1: "stale_nonce"}
    assert cli.distribute(6, "r", nonce, cli.share(9), one) == {9: "unknown_node", 1: "duplicate"}
    assert cli.distribute(6, "nowhere", nonce, one) == {1: "unknown_round"}
    cli("cancel", "r", "--reason", "enough")
    assert cli.distribute(0, "r", nonce, one) == {1: "duplicate"}
    nonce = int(cli("open", "r2", "--quorum", "1"))
    cli("cancel", "r2", "--reason", "enough")
    assert cli.distribute(5, "r2", nonce, one) == {1: "round_closed"}
    assert len(cli.lab.db.rows("SELECT * FROM quorate.rejections")) == 5


def test_distribute_says_how_many_were_refused_and_no_byte_of_any(cli):
    cli.known_nodes()
    nonce = cli("open", "r", "--quorum", "2").strip()
    done = cli.ends(6, "distribute", "r", "--nonce", nonce, "--share", cli.share(1, b"SECRETENVELOPE"), "--share",
                    cli.share(9, b"SECRETENVELOPE"))
    assert "1 of 2 envelopes refused" in done.stderr and "SECRET" not in done.stdout + done.stderr


def test_envelopes_of_every_size(cli):
    cli.known_nodes()
    nonce = int(cli("open", "r", "--quorum", "2"))
    shares = [cli.share(1, b"\0"), cli.share(2, bytes(range(256)) * 65536)]
    assert cli.distribute(0, "r", nonce, *shares) == {1: "accepted", 2: "accepted"}
    assert [d["payload_bytes"] for d in cli.lab.db.deliveries("r").values()] == [1, 16 << 20]
    assert bytes(cli.lab.db.deliveries("r")[2]["payload_sha256"]).hex() == wire.sha256(bytes(range(256)) * 65536)


def test_a_pipe_is_as_good_as_a_file(cli):
    cli.known_nodes()
    nonce = cli("open", "r", "--quorum", "2").strip()
    reader, writer = os.pipe()
    os.write(writer, b"through a pipe")
    os.close(writer)
    done = subprocess.run([programs.program("quorate"), "distribute", "r", "--nonce", nonce, "--share", f"1=/dev/fd/{reader}",
                           "--db", cli.lab.db.conninfo], pass_fds=[reader], env=programs.environment(), timeout=30,
                          capture_output=True, check=False)
    os.close(reader)
    assert done.returncode == 0, done
    assert cli.lab.db.deliveries("r")[1]["payload_bytes"] == len(b"through a pipe")


def test_wrong_distribute(cli, tmp_path):
    cli.known_nodes()
    nonce = cli("open", "r", "--quorum", "2").strip()
    one = cli.share(1)
    for arguments, mentioned in [
            ((), "--share"), (("--share", one[2:]), "ID=FILE"), (("--share", "=" + one[2:]), "ID=FILE"),
            (("--share", "1="), "ID=FILE"), (("--share", "0=" + one[2:]), '"0"'), (("--share", "x=" + one[2:]), '"x"'),
            (("--share", "32768=" + one[2:]), "32768"), (("--share", one, "--share", cli.share(1)), "node 1 is given twice"),
            (("--share", cli.share(2, b"")), "empty"), (("--share", cli.share(2, bytes((16 << 20) + 1))), "16 MiB"),
            (("--share", f"2={tmp_path}/missing"), "No such file"), (("--share", f"2={tmp_path}"), "directory")]:
        assert mentioned in cli.fails(2, "distribute", "r", "--nonce", nonce, *arguments)
    for wrong in ("0", "-1", "x", "9223372036854775808", "1.5", " 1"):
        assert f'"{wrong}"' in cli.fails(2, "distribute", "r", "--nonce", wrong, "--share", one)
    assert "--nonce" in cli.fails(2, "distribute", "r", "--share", one)
    assert "bad id" in cli.fails(2, "distribute", "bad id", "--nonce", nonce, "--share", one)
    assert cli.lab.db.deliveries("r") == {}


# cancel, status, prune.

def test_cancel(cli):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2")
    assert cli.json("cancel", "r", "--reason", "not needed") == {"round_id": "r", "cancelled": True, "state": "cancelled"}
    assert cli.lab.db.round("r")["close_reason"] == "not needed"
    assert "it is cancelled" in cli.fails(5, "cancel", "r", "--reason", "again")
    assert '"nowhere"' in cli.fails(6, "cancel", "nowhere", "--reason", "x")
    assert "--reason" in cli.fails(2, "cancel", "r")
    assert "--reason" in cli.fails(2, "cancel", "r", "--reason", "")


def test_status_of_the_deployment(cli):
    assert cli("status").startswith("deployment test, schema version ")
    cli.known_nodes()
    for number in range(25):
        cli("open", f"r{number}", "--quorum", "1", "--deadline", "10m")
    cli("cancel", "r3", "--reason", "x")
    status = cli.json("status")
    assert status["deployment_id"] == "test" and status["coordinators"] == []
    assert status["rounds_by_state"] == {"open": 24, "cancelled": 1}
    assert [row["round_id"] for row in status["newest_rounds"]] == [f"r{number}" for number in range(24, 4, -1)]
    assert all(isinstance(row["nonce"], str) for row in status["newest_rounds"])
    text = cli("status")
    assert "cancelled 1" in text and "open 24" in text and "r24" in text and "r4 " not in text


def test_status_of_one_round(cli):
    cli.lab.some_nodes(3)
    cli.lab.coordinator("first")
    nonce = int(cli("open", "r", "--quorum", "2"))
    cli.distribute(6, "r", nonce, cli.share(1), cli.share(2), cli.share(3), cli.share(9))
    cli.lab.db.wait_settled("r")
    status = cli.json("status", "r")
    assert status["round"]["nonce"] == str(nonce) and status["round"]["state"] == "complete"
    assert [d["state"] for d in status["deliveries"]] == ["acked"] * 3
    assert [(a["node_id"], a["route"], a["attempt"], a["outcome"]) for a in status["attempts"]] == \
        [(node_id, "primary", 1, "ack") for node_id in (1, 2, 3)]
    assert len(status["acks"]) == 3 and sum(a["in_quorum"] for a in status["acks"]) >= 2  # one batch may bring all
    assert [(j["node_id"], j["verdict"], j["nonce"]) for j in status["rejections"]] == [(9, "unknown_node", str(nonce))]
    text = cli("status", "r")
    for word in ("complete", str(nonce), "2 of 3 nodes: 1,2,3", "deliveries: 3", "attempts: 3", "acks: 3", "rejections: 1",
                 "first"):
        assert word in text
    assert '"nowhere"' in cli.fails(6, "status", "nowhere")
    assert "bad id" in cli.fails(2, "status", "bad id")


def test_text_from_the_database_cannot_command_the_terminal(cli):
    cli.known_nodes()
    cli("open", "r", "--quorum", "2")
    cli("cancel", "r", "--reason", "\x1b[31mred\nline")
    out = cli("status", "r")
    assert "\x1b" not in out and "?[31mred?line" in out
    assert "\x1b" not in cli.fails(9, "collect", "r")
    assert cli.json("status", "r")["round"]["close_reason"] == "\x1b[31mred\nline"


def test_prune(cli):
    cli.known_nodes()
    cli.lab.coordinator()
    for number in range(5):
        cli("open", f"r{number}", "--quorum", "2")
        cli("cancel", f"r{number}", "--reason", "x")
    cli("open", "alive", "--quorum", "2")
    cli.lab.db.wait("five settled", lambda: cli.lab.db.one(
        "SELECT count(*) FROM quorate.rounds WHERE settled_at IS NOT NULL") == 5)
    assert cli("prune", "--older-than", "1d") == "0\n"
    assert cli.json("prune", "--older-than", "1ms") == {"pruned": 5}
    assert [row["round_id"] for row in cli.lab.db.rounds()] == ["alive"]
    assert '"r1"' in cli.fails(5, "open", "r1", "--quorum", "1")  # the ledger stays
    cli("cancel", "alive", "--reason", "x")


@pytest.mark.parametrize("arguments,mentioned", [((), "--older-than"), (("--older-than", "30"), '"30"'),
                                                 (("--older-than", "0d"), "0d"), (("now",), '"now"')])
def test_wrong_prune(cli, arguments, mentioned):
    assert mentioned in cli.fails(2, "prune", *arguments)
