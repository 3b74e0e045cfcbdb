"""Sealed envelopes, from the keys to the share that the MPC kernel opens: what is sealed, kept and repeated, and what a custodian refuses."""

import base64
import json
import pathlib
import re
import secrets
import signal
import stat
import subprocess

import nacl.exceptions
import pytest
from custodian_client import BODY, KEY, Client, post, rows
from custodian_client import key_file, processes, start  # noqa: F401  (fixtures)
from harness import build as programs
from harness import wire
from harness.cli import Cli, ended, plain
from harness.wire import EnvelopeKey, SealPair
from test_custodian_start import assert_refused, run_with

SHARE = b"the share that nobody else may read"
SEAL = SealPair(bytes(range(0x60, 0x80)))


@pytest.fixture
def cli(lab):
    return Cli(lab)


@pytest.fixture
def pair(lab):
    made = SealPair()
    lab.write_key("node-1.key.box", made)
    return made


def add_node(cli, node_id, *options, url="http://127.0.0.1:9/"):
    cli("node", "add", str(node_id), "--url", url, "--key", wire.KeyPair().public_text, *options)


def open_round(cli, *options, round_id="r"):
    nonce = cli("open", round_id, "--quorum", "1", "--deadline", "60s", *options).strip()
    return EnvelopeKey(cli.lab.db.deployment(), round_id, 1, int(nonce))


def kept(share: str, key: EnvelopeKey) -> pathlib.Path:
    return pathlib.Path(f"{share.split('=', 1)[1]}.{key.round_id}.{key.node_id}.{key.nonce}.sealed")


def envelope_in(cli, round_id="r", node_id=1) -> bytes:
    """What a coordinator would be given."""
    return cli.lab.db.one("SELECT e.payload FROM quorate_store.envelope e JOIN quorate_store.ledger l USING (round_no) "
                          "WHERE l.round_id = %s AND e.node_id = %s", round_id, node_id)


def distribute(cli, code, key, share, *options):
    return cli.ends(code, "distribute", key.round_id, "--nonce", str(key.nonce), "--share", share, *options)


# Keys.


def test_keygen_makes_both(tmp_path):
    """One line on stdout, as ever; the sealing key's is there for the asking."""
    path = tmp_path / "node.key"
    made = plain("keygen", str(path))
    assert made.returncode == 0 and re.fullmatch(r"whpk_\S{44}\n", made.stdout) and made.stderr == ""
    box = tmp_path / "node.key.box"
    assert stat.S_IMODE(box.stat().st_mode) == 0o600 and re.fullmatch(r"qbsk_[A-Za-z0-9+/]{43}=\n", box.read_text())
    sealing = SealPair.parse(box.read_text())
    assert plain("keygen", "--public", str(box)).stdout == sealing.public_text + "\n"
    assert plain("keygen", "--public", str(path)).stdout == made.stdout
    assert json.loads(plain("keygen", "--public", str(box), "--json").stdout) == {"seal_key": sealing.public_text}
    other = json.loads(plain("keygen", str(tmp_path / "other"), "--json").stdout)
    assert other["seal_key"] == SealPair.parse((tmp_path / "other.box").read_text()).public_text


def test_keygen_of_a_sealing_key_for_a_node_that_has_a_signing_key(tmp_path):
    path = tmp_path / "box"
    made = plain("keygen", "--sealing", str(path))
    assert made.stdout == SealPair.parse(path.read_text()).public_text + "\n" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["box"]
    assert plain("keygen", "--sealing", str(path)).returncode == 5
    assert plain("keygen", "--sealing", "--symmetric", str(tmp_path / "x")).returncode == 2
    assert plain("keygen", "--public", str(tmp_path / "missing")).returncode == 2


@pytest.mark.parametrize("there", ["node.key", "node.key.box"])
def test_keygen_overwrites_neither_and_leaves_no_half(tmp_path, there):
    (tmp_path / there).write_text("precious")
    done = plain("keygen", str(tmp_path / "node.key"))
    assert done.returncode == 5 and done.stdout == "" and f'{there}"' in done.stderr
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {there: "precious"}


def test_a_node_with_a_sealing_key(cli):
    add_node(cli, 1, "--seal-key", SEAL.public_text)
    add_node(cli, 2)
    assert [node["seal_key"] for node in cli.json("node", "list")] == [SEAL.public_text, None]
    assert SEAL.public_text in cli("node", "list")
    small = "qbox_" + base64.b64encode(bytes(32)).decode()  # of small order: whatever is sealed to it, anybody opens
    for wrong in ("nonsense", SEAL.secret_text, wire.KeyPair().public_text, small):
        said = cli.fails(2, "node", "add", "3", "--url", "http://a/", "--key", wire.KeyPair().public_text, "--seal-key", wrong)
        assert "--seal-key" in said and SEAL.secret_text[5:20] not in said


# distribute.


def test_shares_are_sealed_by_default(cli, pair):
    """Beside a node without a key. What stands in the database opens with the node's key alone, and for this round alone."""
    add_node(cli, 1, "--seal-key", pair.public_text)
    add_node(cli, 2)
    key = open_round(cli)
    one, two = cli.share(1, SHARE), cli.share(2, b"sent as it is")
    out = distribute(cli, 0, key, one, "--share", two).stdout
    assert [line.split() for line in out.splitlines()] == [["NODE", "VERDICT", "SEALED"], ["1", "accepted", "yes"], ["2", "accepted", "no"]]
    envelope = envelope_in(cli)
    assert pair.unseal(key, envelope) == SHARE and SHARE not in envelope
    with pytest.raises(nacl.exceptions.CryptoError):
        SealPair().unseal(key, envelope)
    assert envelope_in(cli, node_id=2) == b"sent as it is"
    file = kept(one, key)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_bytes().endswith(envelope) and SHARE not in file.read_bytes()
    assert sorted(path.name for path in cli.lab.folder.glob("*.sealed*")) == [file.name]

    row = json.loads(distribute(cli, 0, key, one, "--json").stdout)
    assert row == [{"node_id": 1, "verdict": "duplicate", "sealed": True}]
    assert json.loads(distribute(cli, 0, key, two, "--json").stdout) == [{"node_id": 2, "verdict": "duplicate", "sealed": False}]


def test_without_any_sealing_key_all_is_as_before(cli):
    add_node(cli, 1)
    key = open_round(cli)
    share = cli.share(1)
    assert distribute(cli, 0, key, share).stdout.split() == ["NODE", "VERDICT", "1", "accepted"]
    assert not list(cli.lab.folder.glob("*.sealed*"))


def test_the_key_is_that_of_the_rounds_opening(cli, pair):
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    add_node(cli, 1, "--seal-key", SealPair().public_text)
    distribute(cli, 0, key, cli.share(1, SHARE))
    assert pair.unseal(key, envelope_in(cli)) == SHARE


def test_unsealed_must_be_said(cli, pair):
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    share = cli.share(1, SHARE)
    assert distribute(cli, 0, key, share, "--unsealed").stdout.split() == ["NODE", "VERDICT", "1", "accepted"]
    assert envelope_in(cli) == SHARE
    assert json.loads(distribute(cli, 5, key, share, "--json").stdout) == [{"node_id": 1, "verdict": "conflict", "sealed": True}]


def test_a_share_without_a_place_beside_it(cli, pair):
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    for path, said in (("/dev/stdin", "--unsealed"), (f"{cli.lab.folder}/nobody/share", "No such file")):
        assert said in cli.fails(2, "distribute", "r", "--nonce", str(key.nonce), "--share", f"1={path}") or path == "/dev/stdin"
    done = subprocess.run([programs.program("quorate"), "distribute", "r", "--nonce", str(key.nonce), "--share", "1=/dev/stdin", "--db",
                           cli.lab.db.conninfo], input=SHARE, capture_output=True, env=programs.environment(), check=False)
    assert done.returncode == 2 and b"--unsealed" in done.stderr and SHARE not in done.stderr
    assert cli.lab.db.one("SELECT count(*) FROM quorate_store.envelope") == 0


def test_the_largest_share_that_can_be_sealed(cli, pair):
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    most = (16 << 20) - 65 - len(str(key))
    said = cli.fails(2, "distribute", "r", "--nonce", str(key.nonce), "--share", cli.share(1, bytes(most + 1)))
    assert str(most) in said and str(most + 1) in said
    distribute(cli, 0, key, cli.share(1, bytes(most)))
    assert len(envelope_in(cli)) == 16 << 20


# What is kept.


def test_killed_between_keeping_and_sending(cli, pair):
    """The repeated call sends the bytes that were kept."""
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    share = cli.share(1, SHARE)
    command = ["distribute", "r", "--nonce", str(key.nonce), "--share", share, "--db", cli.lab.db.conninfo]
    done = subprocess.run([programs.program("quorate", programs.CRASH_BUILD), *command], stdin=subprocess.DEVNULL, capture_output=True,
                          env=programs.environment(QUORATE_CRASH_AT="sealed_kept"), check=False)
    assert done.returncode == -signal.SIGKILL
    before = kept(share, key).read_bytes()
    assert cli.lab.db.one("SELECT count(*) FROM quorate_store.envelope") == 0
    assert json.loads(distribute(cli, 0, key, share, "--json").stdout)[0]["verdict"] == "accepted"
    assert before.endswith(envelope_in(cli)) and kept(share, key).read_bytes() == before


def test_many_at_once_send_the_same_bytes(cli, pair):
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    share = cli.share(1, SHARE)
    calls = [cli.start("distribute", "r", "--nonce", str(key.nonce), "--share", share, "--json") for _ in range(12)]
    verdicts = sorted(json.loads(ended(call)[1])[0]["verdict"] for call in calls)
    assert verdicts == ["accepted"] + ["duplicate"] * 11
    assert [path.name for path in cli.lab.folder.glob("*.sealed*")] == [kept(share, key).name]


def test_a_kept_file_that_belongs_elsewhere_is_not_sent(cli, pair):
    for node_id in (1, 2):
        add_node(cli, node_id, "--seal-key", pair.public_text)
    first, second = open_round(cli), open_round(cli, round_id="s")
    share = cli.share(1, SHARE)
    distribute(cli, 0, first, share)
    good = kept(share, first).read_bytes()

    def refused(key, node_id, said, contents=good, size=None):
        wanted = EnvelopeKey(key.deployment, key.round_id, node_id, key.nonce)
        file = kept(share, wanted)
        file.write_bytes(contents)
        found = cli.fails(5, "distribute", key.round_id, "--nonce", str(key.nonce), "--share", f"{node_id}={share[2:]}")
        assert said in found and str(file) in found and file.read_bytes() == contents

    refused(second, 1, "another round")
    refused(first, 2, "another round, node")
    refused(EnvelopeKey(first.deployment, "r", 1, first.nonce + 1), 1, "nonce")
    line, envelope = good.split(b"\n", 1)
    for contents, said in ((good[:-1], "damaged"), (good + b"x", "damaged"), (line, "damaged"), (line + b"\n", "damaged"), (b"", "another format"),
                           (b"\n" * 400, "another format"), (envelope, "another format"), (b"\0" * 1000, "another format"),
                           (good.replace(pair.public_text.encode(), SealPair().public_text.encode()), "another key"),
                           (line + b"\n" + envelope[:60] + bytes([envelope[60] ^ 1]) + envelope[61:], "damaged")):
        refused(first, 1, said, contents)
    kept(share, first).write_bytes(good)
    pathlib.Path(share[2:]).write_bytes(b"another share")
    refused(first, 1, "of another share")
    pathlib.Path(share[2:]).write_bytes(SHARE)
    assert json.loads(distribute(cli, 0, first, share, "--json").stdout)[0]["verdict"] == "duplicate"
    assert cli.lab.db.one("SELECT count(*) FROM quorate_store.envelope") == 1


def test_a_link_in_the_place_of_the_kept_file(cli, pair):
    """One that leads nowhere is told at once; a file that was moved away for room, and is linked to, is as good as in its place."""
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    share = cli.share(1, SHARE)
    place, moved = kept(share, key), cli.lab.folder / "moved"
    place.symlink_to(moved)
    assert f'"{place}"' in (said := cli.fails(2, "distribute", "r", "--nonce", str(key.nonce), "--share", share)) and "link" in said
    assert not moved.exists() and sorted(cli.lab.folder.glob("*.sealed*")) == [place]
    place.unlink()
    distribute(cli, 0, key, share)
    place.rename(moved)
    place.symlink_to(moved)
    assert json.loads(distribute(cli, 0, key, share, "--json").stdout)[0]["verdict"] == "duplicate"


def test_a_folder_that_cannot_be_written(cli, pair):
    """Nothing is sent that was not kept."""
    add_node(cli, 1, "--seal-key", pair.public_text)
    key = open_round(cli)
    share = "1=/proc/self/comm"
    assert "cannot be" in cli.fails(2, "distribute", "r", "--nonce", str(key.nonce), "--share", share)
    assert cli.lab.db.one("SELECT count(*) FROM quorate_store.envelope") == 0


# Rounds that take nothing else.


def test_a_round_that_requires_sealing(cli, pair):
    """A share that would be refused for it never reaches the database, whatever that logs."""
    add_node(cli, 1, "--seal-key", pair.public_text)
    add_node(cli, 2)
    with cli.lab.db.connect() as conn:
        conn.execute(f'ALTER DATABASE "{cli.lab.db.name}" SET log_statement = \'all\'')
    key = open_round(cli, "--require-sealed")
    assert "sealed only" in cli("status", "r") and cli.json("status", "r")["round"]["require_sealed"] is True
    one, two = cli.share(1, SHARE), cli.share(2, SHARE)
    done = distribute(cli, 5, key, one, "--share", two, "--json")
    assert [(row["verdict"], row["sealed"]) for row in json.loads(done.stdout)] == [("accepted", True), ("unsealed", False)]
    assert json.loads(distribute(cli, 5, key, one, "--unsealed", "--json").stdout) == [{"node_id": 1, "verdict": "unsealed", "sealed": False}]
    own = cli.share(2, pair.seal(EnvelopeKey(key.deployment, "r", 2, key.nonce), SHARE))
    assert json.loads(distribute(cli, 0, key, own, "--json").stdout)[0]["verdict"] == "accepted", "who seals by himself needs no key in the database"
    nine = cli.share(9, SHARE)
    assert json.loads(distribute(cli, 6, key, nine, "--json").stdout)[0]["verdict"] == "unknown_node"
    assert "unknown_round" in cli.ends(6, "distribute", "none", "--nonce", "7", "--share", one).stdout
    rejected = [(row["node_id"], row["verdict"]) for row in cli.lab.db.rows("SELECT * FROM quorate.rejections ORDER BY rejected_at")]
    assert rejected == [(2, "unsealed"), (1, "unsealed"), (9, "unknown_node"), (1, "unknown_round")]
    log = cli.lab.cluster.read_log()
    assert SealPair.mark.hex() in log and SHARE.hex() not in log  # the parameters are there, and it is not among them


def test_submit_round_requires_sealing(lab):
    lab.punctual = False
    node = lab.node()
    with pytest.raises(Exception, match="was refused") as raised:
        lab.db.submit(1, [node], round_id="r", require_sealed=True)
    assert raised.value.sqlstate == "QR009" and raised.value.diag.message_detail == "node 1: unsealed, 48 bytes"
    lab.db.submit(1, [node], round_id="r", require_sealed=True, payloads={1: SealPair.mark + b"and more"})


# Custodians.


@pytest.fixture
def box_file(tmp_path):
    path = tmp_path / "node.key.box"
    path.touch(mode=0o600)
    path.write_text(SEAL.secret_text + "\n")
    return path


def test_a_share_from_the_dealer_to_the_kernel(lab, cli):
    """As docs/operations.md says; what the custodian stores is opened by `quorate unseal` and by PyNaCl."""
    files = [lab.folder / f"node-{node_id}.key" for node_id in (1, 2)]
    for node_id, file in enumerate(files, 1):
        public = cli.lab.processes.command("keygen", str(file)).stdout.strip()
        custodian = lab.processes.custodian(node_id, file, lab.key.public_text, lab.folder / f"store-{node_id}.db",
                                            ("--seal-key", f"{file}.box", "--require-sealed", "--log-level", "debug"))
        seal_key = lab.processes.command("keygen", "--public", f"{file}.box").stdout.strip()
        cli("node", "add", str(node_id), "--url", custodian.url, "--key", public, "--seal-key", seal_key)
    lab.coordinator(options=("--log-level", "debug"))
    nonce = cli("open", "r", "--quorum", "2", "--require-sealed").strip()
    shares = {node_id: secrets.token_bytes(100) for node_id in (1, 2)}
    cli.distribute(0, "r", nonce, *(cli.share(node_id, share) for node_id, share in shares.items()))
    assert cli("collect", "r") == "1\n2\n"
    for node_id, file in enumerate(files, 1):
        ((deployment, round_id, _, stored_nonce, envelope),) = rows(lab.folder / f"store-{node_id}.db")
        key = EnvelopeKey(deployment, round_id, node_id, stored_nonce)
        assert str(key) == f"{lab.db.deployment()}:r:{node_id}:{nonce}"
        box = SealPair.parse(pathlib.Path(f"{file}.box").read_text())
        assert box.unseal(key, envelope) == shares[node_id]
        (lab.folder / "envelope").write_bytes(envelope)
        done = subprocess.run([programs.program("quorate"), "unseal", "--key", f"{file}.box", "--id", str(key), lab.folder / "envelope"],
                              capture_output=True, env=programs.environment(), check=True)
        assert done.stdout == shares[node_id] and done.stderr == b""
        for share in shares.values():
            assert share.hex() not in lab.processes.logs() and share not in envelope
        lab.written_keys.append(box)


def test_a_share_that_was_moved_is_refused(start, box_file, tmp_path):  # noqa: F811
    custodian = start("--seal-key", str(box_file))
    envelope = SEAL.seal(KEY, SHARE)
    elsewhere = [EnvelopeKey("other", "rnd-1", 1, 1001), EnvelopeKey("demo", "rnd-2", 1, 1001), EnvelopeKey("demo", "rnd-1", 1, 1002)]
    for key in elsewhere:
        answer = post(custodian.url, key, envelope)
        assert (answer.status, answer.receipt) == (422, None), key
    foreign = SealPair().seal(KEY, SHARE)  # another node's, brought here
    cut, version = envelope[:-1], b"qsealed\x02" + envelope[8:]
    for body in (foreign, cut, version, SealPair.mark, envelope[:7], SEAL.seal(KEY, b""), SealPair.mark + bytes(48)):
        answer = post(custodian.url, KEY, body)
        assert (answer.status, answer.receipt) == (422, None), body
    assert rows(tmp_path / "store.db") == []
    assert post(custodian.url, KEY, envelope).status == 200
    assert rows(tmp_path / "store.db") == [("demo", "rnd-1", 1, 1001, envelope)]
    assert post(custodian.url, KEY, envelope).status == 200
    assert post(custodian.url, KEY, SEAL.seal(KEY, SHARE)).status == 409  # sealed anew: other bytes
    assert post(custodian.url, "demo:rnd-1:2:1001", envelope).status == 404
    assert SHARE.decode() not in custodian.log


def test_what_is_not_sealed(start, box_file, tmp_path):  # noqa: F811
    opens = start("--seal-key", str(box_file))
    assert post(opens.url, KEY, BODY).status == 200
    strict = start("--seal-key", str(box_file), "--require-sealed")
    answer = post(strict.url, EnvelopeKey("demo", "rnd-2", 1, 1), BODY)
    assert (answer.status, answer.receipt) == (422, None) and b"sealed" in answer.body
    assert post(strict.url, KEY, BODY).status == 422  # also what is held from before
    assert len(rows(tmp_path / "store.db")) == 1


def test_without_a_sealing_key_sealed_envelopes_are_stored_as_they_come(start, tmp_path):  # noqa: F811
    custodian = start()
    envelope = SealPair().seal(EnvelopeKey("x", "y", 2, 2), SHARE)
    assert post(custodian.url, KEY, envelope).status == 200
    assert rows(tmp_path / "store.db", "payload") == [(envelope,)]


def test_while_a_sealing_key_changes_both_open(start, box_file, tmp_path):  # noqa: F811
    new = SealPair()
    (tmp_path / "new.box").touch(mode=0o600)
    (tmp_path / "new.box").write_text(new.secret_text)
    custodian = start("--seal-key", str(box_file), "--seal-key", str(tmp_path / "new.box"), "--require-sealed")
    for number, pair in enumerate((SEAL, new, SEAL)):
        key = EnvelopeKey("demo", f"r{number}", 1, 1)
        assert post(custodian.url, key, pair.seal(key, SHARE)).status == 200


def test_sealed_envelopes_of_any_size(start, box_file):  # noqa: F811
    custodian = start("--seal-key", str(box_file), "--require-sealed")
    with Client(custodian.url) as client:
        for number, size in enumerate((1, 100, 4096, 100_000, (16 << 20) - 300)):
            key = EnvelopeKey("demo", f"r{number}", 1, 1)
            assert client.send(key, SEAL.seal(key, bytes(size))).status == 200


def test_how_it_must_be_started(tmp_path, key_file, box_file):  # noqa: F811
    assert_refused(run_with(tmp_path, {}, "--require-sealed"), 2, "--seal-key")
    assert_refused(run_with(tmp_path, {}, *["--seal-key", str(box_file)] * 9), 2, "--seal-key", "at most 8")
    assert_refused(run_with(tmp_path, {}, "--seal-key", str(tmp_path / "missing")), 2, "--seal-key", "missing")
    assert_refused(run_with(tmp_path, {}, "--seal-key", str(tmp_path / "node.key")), 2, "--seal-key", "qbsk_")
    box_file.chmod(0o640)
    assert_refused(run_with(tmp_path, {}, "--seal-key", str(box_file)), 2, "--seal-key", "chmod 600")
    box_file.chmod(0o600)
    box_file.write_text(SEAL.secret_text[:-3] + "\n")
    done = run_with(tmp_path, {}, "--seal-key", str(box_file))
    assert_refused(done, 2, "--seal-key", str(box_file))
    assert SEAL.secret_text[5:20] not in done.stderr and not (tmp_path / "store.db").exists()


def test_a_moved_share_ends_its_delivery(lab, pair):
    """Somebody who may write into the database gives node 1's share of one round to another round."""
    custodian = lab.processes.custodian(1, lab.write_key("node-1.key", wire.KeyPair()), lab.key.public_text,
                                        options=("--seal-key", str(lab.folder / "node-1.key.box")))
    lab.db.rows("SELECT quorate.add_node(1, %s, %s, NULL, %s)", custodian.url, lab.written_keys[-1].public_text, pair.public_text)
    lab.coordinator()
    moved = pair.seal(EnvelopeKey(lab.db.deployment(), "first", 1, 1), SHARE)
    round_id = lab.db.submit(1, [1], round_id="second", nonce=2, payloads={1: moved}, round_deadline="1 s")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and lab.db.attempt_list(round_id, 1) == [("primary", 1, "refused", 422)]
    assert rows(lab.folder / "custodian-1.db") == []
    lab.db.submit(1, [1], round_id="first", nonce=1, payloads={1: moved})
    assert lab.db.wait_settled("first")["state"] == "complete"


# unseal.


def test_unseal(tmp_path, box_file):
    envelope = tmp_path / "envelope"

    def unseal(*options, key=KEY, contents=None, file=box_file):
        envelope.write_bytes(SEAL.seal(KEY, SHARE) if contents is None else contents)
        return plain("unseal", "--key", str(file), "--id", str(key), str(envelope), *options)

    assert unseal().stdout.encode() == SHARE
    assert base64.b64decode(json.loads(unseal("--json").stdout)["share"]) == SHARE
    for key in ("other:rnd-1:1:1001", "demo:rnd-2:1:1001", "demo:rnd-1:2:1001", "demo:rnd-1:1:1002"):
        done = unseal(key=key)
        assert done.returncode == 5 and done.stdout == "" and key in done.stderr
    for contents, said in ((b"plain", "not sealed"), (b"", "not sealed"), (SealPair().seal(KEY, SHARE), "does not open"),
                           (SEAL.seal(KEY, SHARE)[:-1], "does not open")):
        done = unseal(contents=contents)
        assert done.returncode == 5 and done.stdout == "" and said in done.stderr
    assert unseal(key="demo:rnd-1:01:1001").returncode == 2
    (tmp_path / "other.box").touch(mode=0o600)
    (tmp_path / "other.box").write_text(SealPair().secret_text)
    assert unseal(file=tmp_path / "other.box").returncode == 5
    assert unseal("--key", str(box_file), file=tmp_path / "other.box").stdout.encode() == SHARE
    assert plain("unseal", "--key", str(box_file), "--id", str(KEY), str(tmp_path / "missing")).returncode == 2
