"""Coordinators reach nodes over TLS: whom they believe, how they are known themselves, and what they never send anything to."""

import re
import socket
import ssl
import subprocess
import threading

import pytest
from custodian_client import rows
from harness import build as programs
from harness import markdown, wire
from harness.certificates import Authority, openssl

PATIENT = {"retry_budget": 1, "round_deadline": "30 s", "per_share_timeout": "10 s"}
# What OpenSSL would take if nobody asked for more.
LAX_OPENSSL = """openssl_conf = begin
[begin]
ssl_conf = ssl
[ssl]
system_default = lax
[lax]
MinProtocol = TLSv1
CipherString = ALL:@SECLEVEL=0
"""


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path)


def start(lab, ca, *options, **more):
    return lab.coordinator(options=("--ca", str(ca.certificate), *map(str, options)), **more)


def known_by(pair):
    return "--client-cert", pair.certificate, "--client-key", pair.key


def assert_delivered(lab, *nodes):
    round_id = lab.db.submit(len(nodes), nodes, **PATIENT)
    assert lab.db.wait_settled(round_id)["state"] == "complete"


def assert_not_reached(lab, coordinator, node, *said, policy=None):
    """One attempt, which ends without a request; the log says why."""
    node_id, seen = getattr(node, "node_id", node), len(coordinator.lines)
    round_id = lab.db.submit(1, [node], **(policy or PATIENT))
    (attempt,) = lab.db.wait_attempts(round_id, node_id, 1)
    assert (attempt["outcome"], attempt["http_status"]) == ("connect_error", None)
    line = coordinator.wait_line(rf"event=attempt round={round_id} node={node_id} .* outcome=connect_error", since=seen)
    for words in said:
        assert words in line, line
    lab.db.rows("SELECT quorate.cancel_round(%s, 'seen')", round_id)
    lab.db.wait_settled(round_id)


def named(lab, node, name):
    node.primary.name = name
    lab.db.add_node(node)
    return node


def pins_file(lab, *lines):
    path = lab.folder / f"pins-{len(list(lab.folder.iterdir()))}"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_round_over_tls_uses_its_connections_again(lab, ca):
    nodes = [lab.node(tls=ca.issue().server_context()), named(lab, lab.node(tls=ca.issue().server_context()), "localhost")]
    start(lab, ca)
    for _ in range(5):
        assert_delivered(lab, *nodes)
    assert [node.primary.connections for node in nodes] == [1, 1]


BAD = {
    "another CA": lambda ca, other: (other.issue(), "unable to get local issuer certificate"),
    "nobody": lambda ca, other: (other, "self-signed certificate"),
    "expired": lambda ca, other: (ca.issue(valid_until="20200102000000Z"), "certificate has expired"),
    "not yet": lambda ca, other: (ca.issue(valid_from="20980101000000Z"), "certificate is not yet valid"),
    "another host": lambda ca, other: (ca.issue(names="DNS:node.example,IP:127.0.0.2"), "no alternative certificate subject name"),
    "no name": lambda ca, other: (ca.issue(names="", subject="127.0.0.1x"), "certificate subject name"),
    "a client's": lambda ca, other: (ca.issue(usage="clientAuth"), "unsuitable certificate purpose"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_certificate_that_is_not_believed(lab, ca, tmp_path, what):
    pair, said = BAD[what](ca, Authority(tmp_path, "other"))
    node, good = lab.node(tls=pair.server_context()), lab.node(tls=ca.issue().server_context())
    coordinator = start(lab, ca)
    assert_not_reached(lab, coordinator, node, said)
    assert not node.requests and node.primary.connections > 0
    assert_delivered(lab, good)


def with_system_ca(lab, certificate):
    """Run so, a program sees a machine whose administrator trusts this CA, in the file and in the folder of all CAs."""
    folder = lab.folder / "system-cas"
    if not folder.exists():
        folder.mkdir()
        for name in ("ca-certificates.crt", "own.pem"):
            (folder / name).write_text(certificate.read_text())
        openssl("rehash", folder)
    return ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/ssl/certs && exec "$@"', str(folder))


def test_a_ca_file_stands_in_place_of_the_systems(lab, ca, tmp_path):
    system = Authority(tmp_path, "system")
    node = lab.node(tls=system.issue().server_context())
    without = lab.coordinator(under=with_system_ca(lab, system.certificate))
    assert_delivered(lab, node)
    without.stop()
    assert_not_reached(lab, start(lab, ca, under=with_system_ca(lab, system.certificate)), node, "unable to get local issuer certificate")
    assert len(node.requests) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version, reached", [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)])
def test_no_tls_before_1_2(lab, ca, tmp_path, version, reached):
    """Whatever the machine's OpenSSL would allow."""
    context = ca.issue().server_context()
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    node = lab.node(tls=context)
    settings = tmp_path / "openssl.cnf"
    settings.write_text(LAX_OPENSSL)
    anyone = ssl.create_default_context(cafile=ca.certificate)
    anyone.minimum_version = ssl.TLSVersion.TLSv1_1
    anyone.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", node.primary.port), 20) as raw, anyone.wrap_socket(raw, server_hostname="localhost") as found:
        assert found.version() == version.name.replace("_", ".")
    coordinator = start(lab, ca, under=("env", f"OPENSSL_CONF={settings}"))
    if reached:
        assert_delivered(lab, node)
    else:
        assert_not_reached(lab, coordinator, node, "protocol")
        assert not node.requests


# Pins.


def test_a_pin_beside_the_ca(lab, ca):
    """Of two nodes whose certificates the CA signed, the one with another key is not believed."""
    pairs = [ca.issue(), ca.issue(), ca.issue()]
    nodes = [lab.node(tls=pair.server_context()) for pair in pairs]
    coordinator = start(lab, ca, "--node-pins", pins_file(lab, f"1 = {pairs[0].pin}", f"2 = {pairs[0].pin}"))
    assert_delivered(lab, nodes[0], nodes[2])
    assert_not_reached(lab, coordinator, nodes[1], "public key does not match pinned public key")
    assert not nodes[1].requests


def test_a_pin_does_not_take_the_place_of_a_ca(lab, ca, tmp_path):
    pair = Authority(tmp_path, "other").issue()
    node = lab.node(tls=pair.server_context())
    coordinator = start(lab, ca, "--node-pins", pins_file(lab, f"1 = {pair.pin}"))
    assert_not_reached(lab, coordinator, node, "unable to get local issuer certificate")
    assert not node.requests


def test_nodes_at_one_address_share_no_connection_that_only_one_of_them_trusts(lab, ca):
    """The connection is there and idle, and the session could be resumed: neither counts for another pin."""
    pair, other = ca.issue(), ca.issue()
    node = lab.node(1, tls=pair.server_context())
    lab.db.rows("SELECT quorate.add_node(2, %s, %s)", node.primary.url, node.key.public_text)
    coordinator = start(lab, ca, "--node-pins", pins_file(lab, f"1 = {pair.pin}", f"2 = {other.pin}"))
    for _ in range(3):
        assert_delivered(lab, node)
        round_id = lab.db.submit(1, [2], **PATIENT)
        lab.db.wait_attempts(round_id, 2, 1)
        assert lab.db.attempt_list(round_id, 2) == [("primary", 1, "connect_error", None)]
        lab.db.rows("SELECT quorate.cancel_round(%s, 'seen')", round_id)
    coordinator.wait_line("node=2 .*public key does not match pinned public key")
    assert {request.key.node_id for request in node.requests} == {1}


def test_a_pinned_key_changes_without_a_lost_round(lab, ca):
    """As docs/operations.md says: both pins first, then the key, then the old pin goes."""
    old, new = ca.issue(), ca.issue()
    node = lab.node(tls=old.server_context())
    first = start(lab, ca, "--node-pins", pins_file(lab, f"1 = {old.pin}"))
    assert_delivered(lab, node)
    second = start(lab, ca, "--node-pins", pins_file(lab, "# both", f"1 = {new.pin}", f"1 = {old.pin}"))
    first.stop()
    assert_delivered(lab, node)
    node.primary.tls = new.server_context()
    node.primary.darken()
    node.primary.light()
    assert_delivered(lab, node)
    third = start(lab, ca, "--node-pins", pins_file(lab, f"1 = {new.pin}"))
    second.stop()
    assert_delivered(lab, node)
    node.primary.tls = old.server_context()
    node.primary.darken()
    node.primary.light()
    assert_not_reached(lab, third, node, "public key does not match pinned public key")


def test_a_pin_is_not_got_around_by_plain_http(lab, ca):
    """Whoever may change a URL must not be able to make it http."""
    pair = ca.issue()
    node, plain = lab.node(tls=pair.server_context()), lab.node()
    coordinator = start(lab, ca, "--allow-plain-http", "--node-pins", pins_file(lab, f"1 = {pair.pin}", f"2 = {pair.pin}"))
    assert_delivered(lab, node)
    assert_not_reached(lab, coordinator, plain, "the node has a pin: use https")
    assert not plain.requests
    (told,) = [line for line in coordinator.lines if "event=url_refused" in line]
    assert "node=2" in told and plain.primary.url in told


# Certificates of coordinators.


@pytest.fixture
def strict_custodian(lab, ca):
    """One that wants certificates of clients; its node has number 1."""
    pair, key = ca.issue(), wire.KeyPair()
    started = lab.processes.custodian(1, lab.write_key("node-1.key", key), lab.key.public_text, options=(
        "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key), "--tls-client-ca", str(ca.certificate), "--log-level", "debug"))
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", started.url, key.public_text)
    return started


def test_a_coordinator_is_known_by_its_certificate(lab, ca, strict_custodian):
    start(lab, ca, *known_by(ca.client()))
    assert_delivered(lab, 1)
    assert len(rows(lab.folder / "custodian-1.db")) == 1


STRANGERS = {
    "none": lambda ca, other: (),
    "another CA": lambda ca, other: known_by(other.client()),
    "expired": lambda ca, other: known_by(ca.client(valid_until="20200102000000Z")),
    "a node's": lambda ca, other: known_by(ca.issue()),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_no_request_of_a_stranger_is_judged(lab, ca, strict_custodian, tmp_path, what):
    coordinator = start(lab, ca, *STRANGERS[what](ca, Authority(tmp_path, "other")))
    assert_not_reached(lab, coordinator, 1)
    strict_custodian.wait_line("event=client_refused peer=127.0.0.1 reason=")
    assert "event=request" not in strict_custodian.log
    assert rows(lab.folder / "custodian-1.db") == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_stranger_gets_no_further_by_plain_http_or_an_old_tls(lab, strict_custodian):
    port = int(strict_custodian.url.rsplit(":", 1)[1].strip("/"))
    with socket.create_connection(("127.0.0.1", port), 20) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nhost: node\r\ncontent-length: 0\r\n\r\n")
        assert b"HTTP/" not in raw.recv(100)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode, old.minimum_version, old.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", port), 20) as raw, pytest.raises(OSError):
        old.wrap_socket(raw)
    assert "event=request" not in strict_custodian.log


# What the environment says.


class Trap:
    """Listens, and counts who comes."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.visits = self.listener.getsockname()[1], 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.visits += 1
            sock.close()


def test_no_proxy_of_the_environment_and_no_key_log(lab, ca, tmp_path):
    trap = Trap()
    nodes = [lab.node(), lab.node(tls=ca.issue().server_context())]
    names = [part for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
             for part in (f"{name}=http://127.0.0.1:{trap.port}",)]
    key_log = tmp_path / "keys"
    under = ("env", "-u", "no_proxy", "-u", "NO_PROXY", *names, f"SSLKEYLOGFILE={key_log}")
    start(lab, ca, under=under)
    assert_delivered(lab, *nodes)
    assert trap.visits == 0 and not key_log.exists()
    trap.listener.close()


# How it is started.


def refused(lab, *options):
    done = lab.processes.command("run", "--key", str(lab.key_file), *map(str, options), conninfo=lab.db.conninfo)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    return done.stderr


def test_wrong_files(lab, ca, tmp_path):
    client, other = ca.client(), ca.client()
    text = tmp_path / "text"
    text.write_text("nothing of use\n")
    locked = tmp_path / "locked.key"
    openssl("pkey", "-in", client.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    locked.chmod(0o600)
    for path, said in ((tmp_path / "missing", "No such file"), (tmp_path, "no regular file"), (text, "no certificate of a CA"),
                       (ca.key, "no certificate of a CA")):
        assert all(words in refused(lab, "--ca", path) for words in ("--ca", str(path), said))
    assert "--client-key" in refused(lab, "--client-cert", client.certificate)
    assert "--client-cert" in refused(lab, "--client-key", client.key)
    for certificate, key in ((client.certificate, other.key), (client.certificate, locked), (text, client.key), (client.key, client.key)):
        said = refused(lab, "--client-cert", certificate, "--client-key", key)
        assert str(certificate) in said and str(key) in said and "password" in said
    client.key.chmod(0o640)
    assert "chmod 600" in refused(lab, *known_by(client))
    ca.certificate.chmod(0o664)
    assert "others can write it" in refused(lab, "--ca", ca.certificate)


def test_wrong_pins_and_networks(lab):
    good = f"sha256//{'A' * 43}="
    for line, said in ((f"{good}", "no node is named"), (f"0 = {good}", "no node id"), (f"1 = {good}x", "the pin of node 1 is none")):
        path = pins_file(lab, "# pins", f"3 = {good}", line)
        assert all(words in refused(lab, "--node-pins", path) for words in (str(path), "line 3", said))
    path.chmod(0o666)
    assert "others can write it" in refused(lab, "--node-pins", path)
    assert "no pin" in refused(lab, "--node-pins", pins_file(lab, "# none is left")), "whoever gives the file wants nodes to be held to it"
    for network, said in (("10.0.0.0/33", "is no network"), ("10.0.0.1/8", "bits set behind its length"), ("169.254.0.0/16", "is link-local"), ("here", "is no network")):
        assert all(words in refused(lab, "--allow-network", "10.0.0.0/8", "--allow-network", network) for words in ("--allow-network", network, said))


# The manual.


def test_the_recipe_of_the_manual(lab):
    """A CA, a node and a coordinator, made and started as docs/operations.md says."""
    text = "\n".join(block.text for block in markdown.blocks(programs.ROOT / "docs" / "operations.md") if "openssl" in block.text)
    made = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=lab.folder, capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 0, made
    started = [" ".join(span.split()) for span in re.findall(r"`(--[^`]*\.pem[^`]*)`", markdown.prose(programs.ROOT / "docs" / "operations.md"))]
    custodian, coordinator = ([str(lab.folder / part) if "." in part or part == "node-pins" else part for part in text.split()] for text in started)
    key = wire.KeyPair()
    node = lab.processes.custodian(3, lab.write_key("node-3.key", key), lab.key.public_text, options=tuple(custodian))
    lab.db.rows("SELECT quorate.add_node(3, %s, %s)", node.url, key.public_text)
    lab.coordinator(options=tuple(coordinator))
    assert_delivered(lab, 3)
