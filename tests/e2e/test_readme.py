"""The README and the documents keep their word: every block is run, every output compared, every name looked up."""

import base64
import contextlib
import csv
import doctest
import io
import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import psycopg
import pytest
from harness import build as programs
from harness import markdown, wire
from harness.build import BUILD, ROOT
from harness.cluster import Cluster
from harness.lab import Lab
from harness.shell import Shell

README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
ONLY_TARGETS = re.compile(r"make\b[^\n]*")  # not run from inside a test that they run: they must exist

# What the audit queries ask for must have happened: a stall, a stale nonce, a fresh collection, a change of coordinators.
SEED = r"""
quorate node add 9 --url http://127.0.0.1:{silent}/ --key "$(cat node-3.pub)"
nonce=$(quorate open stalls --quorum 4 --deadline 3s --timeout 300ms --retries 2 --backoff 20ms..50ms)
quorate distribute stalls --nonce $nonce --share 1=share-1 --share 2=share-2 --share 3=share-3 --share 9=share-1
quorate distribute stalls --nonce 1 --share 1=share-1 || test $? = 5
quorate collect stalls || test $? = 3
nonce=$(quorate open fresh --quorum 1 --nodes 1 --fresh-for 60s)
quorate distribute fresh --nonce $nonce --share 1=share-1
quorate collect fresh
nonce=$(quorate open resumed --quorum 2 --nodes 1,9 --deadline 60s --timeout 30s --retries 1)
quorate distribute resumed --nonce $nonce --share 1=share-1 --share 9=share-1
until [ "$(psql -Atc "SELECT count(outcome) || '/' || count(*) FROM quorate.attempts WHERE round_id = 'resumed'")" = 1/2 ]; do sleep 0.05; done
kill -KILL {north}; wait {north} || true
quorate run --key coordinator.key --name south 2> south.log &
until [ "$(psql -Atc "SELECT sum(resends) FROM quorate.attempts WHERE round_id = 'resumed'")" = 1 ]; do sleep 0.05; done
quorate cancel resumed --reason 'seen enough'
"""


# A running custodian whose store, node-1.db, holds one share.
STORE = r"""
quorate keygen node-1.key > node-1.pub
quorate-custodian --node-id 1 --listen 127.0.0.1:0 --store node-1.db --key node-1.key \
    --coordinator-key "$(cat node-1.pub)" --port-file port 2> node-1.log &
until [ -s port ]; do sleep 0.02; done
python3 - <<'PYTHON'
import hashlib, sqlite3
share = b"the share"
with sqlite3.connect("node-1.db") as store:
    store.execute("INSERT INTO share VALUES ('demo', 'first', 1, 1, ?, ?, 1)", (share, hashlib.sha256(share).digest()))
PYTHON
"""


@pytest.fixture
def ports():
    """All but the last digit of ports that are free at 1, 2, 3 and 4; below those that the kernel gives to clients. The port at 0
    is held as long as the test runs: nobody else who asks for ports gets these."""
    while True:
        prefix = str(1100 + secrets.randbelow(2000))
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            held.enter_context(socket.create_server(("127.0.0.1", int(prefix + "0"))))
            for last in "1234":
                with socket.create_server(("127.0.0.1", int(prefix + last))):
                    pass
            yield prefix
            return


def await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.02)


class Reader:
    """Somebody who follows a document block by block, in a folder of their own that looks like the repository."""

    def __init__(self, folder: pathlib.Path, env: dict, ports: str = ""):
        self.ports = ports
        self.here = folder / "repository"
        (self.here / "bin").mkdir(parents=True)
        (self.here / "build").symlink_to(BUILD)
        (self.here / "scripts").symlink_to(ROOT / "scripts")
        (self.here / "bin" / "python3").symlink_to(sys.executable)  # not one without the cryptography package
        self.shell = Shell(self.here, {**env, "PATH": f"{self.here / 'bin'}:{os.environ['PATH']}"})
        self.shell.run("true")
        self.output = ""

    def typed(self, text: str) -> str:
        """The text with ports that are surely free, and without the make that has been run already."""
        text = re.sub(r"127\.0\.0\.1[:/]810|(?<=\.py 3 )810", lambda m: m[0].replace("810", self.ports), text)
        return re.sub(r"^make$", "true", text, flags=re.M).replace("127.0.0.1:9090", "127.0.0.1:0")

    def sh(self, block: markdown.Block) -> None:
        self.output = self.shell.run(self.typed(block.text))
        for what, ports in (("quorate-custodian --node-id", "12"),):
            if what in block.text:
                for last in ports:  # a reader is slower than a program's start
                    await_port(int(self.ports + last))

    def sql(self, statement: str) -> list[dict]:
        text = self.shell.run(f"psql --no-psqlrc --csv --quiet -v ON_ERROR_STOP=1 <<'SQL'\n{statement}\nSQL")
        return list(csv.DictReader(io.StringIO(text)))

    def python(self, block: markdown.Block) -> None:
        self.shell.run(f"cat > custodian.py <<'PYTHON'\n{block.text}PYTHON")

    def compare(self, block: markdown.Block) -> None:
        """... stands for whatever comes there; blanks count as one."""
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(block.text, self.output, flags), \
            f"line {block.line} says\n{block.text}\nbut this was printed:\n{self.output}"


@pytest.fixture
def silent():
    """A node that takes connections and never says a word, until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def public_folder():
    """One that the user of the database server can enter, unlike tmp_path; logs in it are shown if the test fails."""
    with tempfile.TemporaryDirectory(prefix="qr-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        yield folder
        for log in folder.rglob("*.log"):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")


@pytest.fixture
def own_cluster():
    """Roles belong to a whole cluster: not the one that other tests share."""
    with Cluster() as own:
        own.create_template()
        yield own


def ends_everything(block: markdown.Block) -> bool:
    return block.text.rstrip().endswith("exit")


def check_audits(reader: Reader, block: markdown.Block) -> None:
    stalled, acks, rejections, days, resumed, stale = [s.strip() for s in block.text.split("\n\n")]
    (row,) = reader.sql(stalled)
    assert (row["round_id"], row["quorum"], row["acked"], row["silent"]) == ("stalls", "4", "3", "{9}")
    rows = reader.sql(acks)
    assert sorted(row["node_id"] for row in rows) == ["1", "2"]
    for row in rows:
        assert row["in_quorum"] == "t" and wire.verify(row["receipt_key"], row["receipt"], row["signed_text"].encode())
        assert not wire.verify(row["receipt_key"], row["receipt"], row["signed_text"].encode() + b"0")
    (row,) = reader.sql(rejections)
    assert (row["round_id"], row["node_id"], row["nonce"], row["verdict"]) == ("stalls", "1", "1", "stale_nonce") and row["rejected_for"]
    assert sum(int(row["rounds"]) for row in reader.sql(days)) == 4 and all(row["median"] <= row["slowest"] for row in reader.sql(days))
    (row,) = reader.sql(resumed)
    assert row == {"round_id": "resumed", "coordinators": "{north,south}", "resends": "1"}
    assert reader.sql(stale) == []
    assert [row["round_id"] for row in reader.sql(stale.replace("collected_at > fresh_until", "collected_at <= fresh_until"))] == ["fresh"]


def test_every_block_of_the_readme_does_what_it_says(public_folder, silent, ports):
    """From nothing to the last exit, with a database that the README itself makes."""
    database_port = int(ports + "4")  # pg_virtualenv takes it, so that two runs do not meet
    env = programs.environment(PGPORT=str(database_port), TMPDIR=str(public_folder))
    reader = Reader(public_folder, env, ports)
    ran = []
    try:
        for block in markdown.blocks(README):
            ran.append(block.language)
            if all(ONLY_TARGETS.fullmatch(line) for line in block.text.splitlines()):
                continue  # test_every_make_target_exists
            if block.language == "sh" and ends_everything(block):
                silent.close()  # or its requests would be awaited
                reader.shell.end(block.text)
            elif block.language == "sh":
                reader.sh(block)
            elif block.language == "python":
                reader.python(block)
            elif block.language == "sql" and block.text.startswith("-- Which rounds stalled"):
                north = reader.shell.run("jobs -p").split()[2]
                reader.shell.run(SEED.format(silent=silent.getsockname()[1], north=north))
                check_audits(reader, block)
            elif block.language == "sql":
                rows = reader.sql(block.text)
                assert int(rows[0]["nonce"]) > 0 and reader.shell.run("quorate collect second").split() == ["1", "2"]
            elif block.language == "text" and "──" not in block.text:  # a picture is no output
                reader.compare(block)
            else:
                assert block.language == "text", f"line {block.line}: nobody runs a block of {block.language!r}"
    finally:
        reader.shell.close()
    assert reader.shell.process.returncode == 0
    logs = "".join(log.read_text(errors="replace") for log in public_folder.rglob("*.log"))
    assert logs.count("event=ready") == 2 and not any(mark in logs for mark in programs.SANITIZER_MARKS)
    assert ran.count("python") == 1 and ran.count("sql") == 2 and ran.count("sh") >= 7
    with socket.create_server(("127.0.0.1", database_port)):  # the throwaway database is gone
        pass


def test_the_custodian_of_the_readme_refuses_what_it_should(lab, tmp_path, ports):
    """All its answers, not only the good one; and the coordinator's view of a round with it."""
    (block,) = [b for b in markdown.blocks(README) if b.language == "python"]
    program, port = tmp_path / "custodian.py", ports + "1"
    program.write_text(block.text)
    key = wire.KeyPair()
    key_file = lab.write_key("node.key", key)
    process = subprocess.Popen([sys.executable, program, "1", port, key_file, lab.key.public_text], cwd=tmp_path,
                               stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_port(int(port))

        def post(name, body, sent_at=None, signer=lab.key):
            stamp = str(sent_at or int(time.time()))
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=body, method="POST", headers={
                "webhook-id": name, "webhook-timestamp": stamp,
                "webhook-signature": signer.sign(wire.request_message(name, stamp, body))})
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return answer.status, answer.headers["quorate-receipt"]
            except urllib.error.HTTPError as refusal:
                return refusal.code, refusal.headers["quorate-receipt"]

        status, receipt = post("d:r:1:7", b"share")
        assert status == 204
        assert wire.verify(key.public_text, receipt, wire.receipt_message(wire.EnvelopeKey("d", "r", 1, 7), wire.sha256(b"share")))
        assert post("d:r:1:7", b"share") == (204, receipt)
        assert post("d:r:1:8", b"share") == (409, None) and post("d:r:1:7", b"other") == (409, None)
        assert post("d:r:1:7", b"share", signer=wire.KeyPair()) == (401, None)
        assert post("d:r:2:7", b"share") == (404, None)
        assert post("d:r:1:7", b"share", sent_at=int(time.time()) - 400) == (425, None)
    finally:
        process.terminate()
        process.wait(20)


def test_every_make_target_exists():
    """Of every `make ...` in a block or in the prose."""
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"^make (\S+)", listed, flags=re.M))
    named = set()
    for path in DOCUMENTS:
        text = "\n".join([b.text for b in markdown.blocks(path) if b.language == "sh"] + markdown.code_spans(path))
        named |= set(re.findall(r"^make ([a-z-]+)", text, flags=re.M))
    assert {"demo", "check"} <= named <= targets


def help_of(*words: str) -> str:
    return subprocess.run([BUILD / words[0], *words[1:], "--help"], capture_output=True, text=True, check=True).stdout


def commands_in(path: pathlib.Path) -> list[str]:
    """Commands of ours, from blocks and from the prose, a continued line as one."""
    text = "\n".join([b.text for b in markdown.blocks(path) if b.language in ("sh", "text", "ini")] + markdown.code_spans(path))
    return re.findall(r"\bquorate(?:-custodian)? +[a-z-][^\n|>#;)&]*", text.replace("\\\n", " "))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_and_option_named_exists(path):
    known = {name for name, _ in re.findall(r"^  ([a-z]+) +(\S.*)$", help_of("quorate"), flags=re.M)}
    for command in commands_in(path):
        program, *words = command.split()
        names = [word for word in words[:3] if re.fullmatch(r"[a-z]+", word)] if program == "quorate" else []
        if program == "quorate" and words[0] != "--help":
            assert names and names[0] in known, f"{path.name}: there is no `{command}`"
        text = help_of(program, *names[:3 if names[:2] == ["node", "key"] else 2 if names[:1] in (["node"], ["audit"]) else 1])
        for option in re.findall(r"(?<!\S)--[a-z-]+", command):
            assert f"{option} " in text or f"{option}\n" in text, f"{path.name}: `{command}`: {option} is unknown"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for link in markdown.links(path):
        assert link.startswith("https://") or (path.parent / link).exists(), f"{path.name}: {link} is not there"
    if path == README:
        for folder in re.findall(r"`([a-z]+/)`", markdown.prose(path).split("Where things live")[1]):
            assert any((ROOT / below / folder).is_dir() for below in ("", "coordinator", "tests")), f"{folder} is not there"


NAMES_TESTS = ["threat-model.md", "guarantees.md"]


@pytest.mark.parametrize("name", NAMES_TESTS)
def test_every_test_named_exists(name):
    """Files by their path, or by their name alone where it says enough; functions behind ::."""
    named = re.findall(r"((?:tests/[\w/]*)?[\w.]*)(?:::(\w+))?", "\n".join(
        span for span in markdown.code_spans(ROOT / "docs" / name) if re.match(r"tests/|(unit/)?test_", span)))
    named = [(path, function) for path, function in named if path]
    assert len(named) > 10
    for path, function in named:
        found = [there for folder in ("", "tests/e2e", "tests/unit") if (there := ROOT / folder / path).exists()]
        assert found, f"{name}: there is no {path}"
        if function:
            text = found[0].read_text()
            assert re.search(rf"^(def|static void) {function}\(", text, flags=re.M), f"{name}: {path} has no {function}"


@pytest.mark.parametrize("picture", ["parts.svg", "round.svg", "trust.svg"])
def test_the_pictures_are_well_formed(picture):
    import xml.etree.ElementTree as tree
    root = tree.parse(ROOT / "docs" / picture).getroot()
    assert root.tag.endswith("}svg") and root.find("{http://www.w3.org/2000/svg}title").text


def test_the_manual_pages_are_those_of_the_programs(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts" / "man", BUILD, tmp_path], check=True)
    for page in ("quorate.1", "quorate-custodian.1"):
        assert (ROOT / "docs" / page).read_text() == (tmp_path / page).read_text(), f"docs/{page} lags: run make man"


def test_every_block_of_the_operations_manual_works(own_cluster, tmp_path):
    """In a database with one finished round; the alerts are held against the metrics of a running coordinator."""
    path = ROOT / "docs" / "operations.md"
    lab = Lab(own_cluster, tmp_path)
    try:
        lab.some_nodes(3)
        coordinator = lab.coordinator(metrics=True)
        round_id = lab.db.submit(2, lab.nodes)
        lab.db.wait_settled(round_id)
        with urllib.request.urlopen(f"http://127.0.0.1:{coordinator.metrics_port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        env = programs.environment(QUORATE_DB=lab.db.conninfo, PGHOST=str(own_cluster.socket_dir), PGUSER="postgres",
                                   PGDATABASE=lab.db.name, PGPORT=str(own_cluster.port))
        reader = Reader(tmp_path, env)
        try:
            reader.shell.run("PATH=$PWD/build:$PATH; mkdir work; cd work")
            reader.shell.run(STORE)
            for block in markdown.blocks(path):
                if block.language == "sh":
                    reader.sh(block)
                elif block.language == "sql":
                    reader.sql(block.text)
                elif block.language == "text":
                    reader.compare(block)
                else:
                    assert block.language == "yaml", f"line {block.line}: nobody runs a block of {block.language!r}"
                    check_alerts(block.text, metrics)
            assert (reader.here / "work" / "share").read_bytes() == b"the share"
            check_restored(lab)
            coordinator.stop()
            check_roles(lab, reader)
            reader.shell.end("kill %1; wait")
        finally:
            reader.shell.close()
    finally:
        lab.close()


def check_alerts(rules: str, metrics: str) -> None:
    """Every metric and label that a rule asks for is really served; the layout is that of Prometheus rules."""
    assert rules.count("- alert: ") == rules.count("expr: ") == rules.count("summary: ") > 5
    asked = re.findall(r"\b(quorate_\w+)(?:\{([^}]*)\})?", rules)
    assert len(asked) >= rules.count("- alert: ")
    for name, labels in asked:
        lines = [line for line in metrics.splitlines() if re.match(rf"{name}[ {{]", line)]
        assert lines, f"no metric {name}"
        for label in re.findall(r'\w+="[^"]*"', labels):
            assert any(label in line for line in lines), f"{name} has no {label}"


def check_restored(lab: Lab) -> None:
    """The copy of the manual's dump and restore holds the same rounds, and the same rules."""
    with lab.cluster.connect("quorate_restored") as restored:
        for view in ("rounds", "attempts", "acks", "nodes", "deployment"):
            query = f"SELECT t::text FROM quorate.{view} t ORDER BY 1"
            assert restored.execute(query).fetchall() == [tuple(row.values()) for row in lab.db.rows(query)] != []
        for attack in ("DELETE FROM quorate_store.ledger", "UPDATE quorate_store.ledger SET nonce = 1", "TRUNCATE quorate_store.ack"):
            with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
                restored.execute(attack)


def check_roles(lab: Lab, reader: Reader) -> None:
    """Each role of the manual can do its part and no more."""
    def as_role(role, statement):
        return reader.shell.run(f"psql --no-psqlrc -AtqX 'user={role}' -c \"{statement}\" 2>&1 || true")

    def run_as(role, *words):
        return lab.processes.command(*words, conninfo=lab.db.conninfo.replace("user=postgres", f"user={role}"))

    limited = lab.processes.coordinator(lab.db.conninfo.replace("user=postgres", "user=coordinator_1"), lab.key_file, "limited")
    assert as_role("dealer_1", "SELECT nonce > 0 FROM quorate.open_round('empty', 2)") == "t\n"
    assert run_as("collector_1", "collect", "empty", "--wait", "0").returncode == 8
    envelopes = "'{1,2,3}', array['a', 'b', 'c']::bytea[]"
    assert as_role("dealer_1", f"SELECT nonce > 0 FROM quorate.submit_round('full', 2, {envelopes})") == "t\n"
    assert len(run_as("collector_1", "collect", "full").stdout.split()) >= 2
    assert as_role("auditor_1", "SELECT state, coordinator FROM quorate.rounds WHERE round_id = 'full'") == "complete|limited\n"
    assert run_as("dealer_1", "cancel", "empty", "--reason", "done").returncode == 0
    for role in ("dealer_1", "auditor_1", "coordinator_1", "collector_1"):
        assert "permission denied" in as_role(role, "SELECT * FROM quorate_store.envelope")
        assert "permission denied" in as_role(role, "SELECT quorate.prune_rounds(now())")
    assert "permission denied" in as_role("auditor_1", "SELECT quorate.collect('full')")
    lab.db.wait_all_settled()
    assert limited.running()


def test_the_protocol_document_has_the_right_vectors(tmp_path):
    """Its Python block runs, and its vectors are what an implementation of ours computes from the seeds alone."""
    path = ROOT / "docs" / "protocol.md"
    for block in markdown.blocks(path):
        assert block.language in ("python", "http", "text"), f"line {block.line}: nobody checks a block of {block.language!r}"
        if block.language == "python":
            subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, check=True)
    text = path.read_text()
    coordinator, node = wire.KeyPair(bytes(range(0x00, 0x20))), wire.KeyPair(bytes(range(0x20, 0x40)))
    secret = wire.Secret(bytes(range(0x40, 0x60)))
    sealing = wire.SealPair(bytes(range(0x60, 0x80)))
    body = bytes.fromhex("00112233445566778899aabbccddeeff")
    key = wire.EnvelopeKey("demo", "rnd-1", 1, 1001)
    for vector in (coordinator.secret_text, coordinator.public_text, node.secret_text, node.public_text, body.hex(), str(key),
                   coordinator.sign(wire.request_message(str(key), "1700000000", body)),
                   node.sign(wire.receipt_message(key, wire.sha256(body))), secret.secret_text, secret.public_text,
                   secret.sign(wire.request_message(str(key), "1700000000", body)),
                   secret.sign(wire.receipt_message(key, wire.sha256(body))), sealing.secret_text, sealing.public_text):
        assert vector in text, f"{vector} is missing"
    for envelope in re.findall(r"717365616c6564[0-9a-f\s\"]+", text):
        assert sealing.unseal(key, bytes.fromhex(re.sub(r"[^0-9a-f]", "", envelope))) == body
    stray = set(re.findall(r"\b(?:v1a,|v1,|whsk_|whpk_|whsec_)[A-Za-z0-9+/=]{40,}", text))
    assert all(base64.b64decode(re.split("[,_]", vector, maxsplit=1)[1]) for vector in stray) and len(stray) == 9
