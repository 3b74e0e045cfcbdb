"""Whoever can name a node's URL cannot send coordinators where they have no business: neither by a number, however it is written, nor by a
name. In a network of its own, where somebody listens at each of these addresses."""

import socket

import pytest
from harness import wire
from harness.certificates import Authority
from harness.nodes import Endpoint
from test_node_tls import assert_delivered, assert_not_reached

METADATA = "169.254.169.254"
# Listened at in the coordinator's own host, so that nothing but the coordinator stands between.
ADDRESSES = (METADATA, "169.254.7.7", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "10.7.0.1", "fd12::7")


@pytest.fixture
def lab(network_lab):
    return network_lab


@pytest.fixture
def host(lab):
    """The party that the coordinator of a test is."""
    party = lab.network.add("c1")
    party.run(["ip", "-batch", "-"], "".join(f"address add {address}/{128 if ':' in address else 32} dev lo{' nodad' * (':' in address)}\n"
                                             for address in ADDRESSES) + "link set lo up\n")
    return party


class Everywhere(Endpoint):
    """A node's endpoint on every address of its host."""

    def _bind(self, port):
        sock = socket.socket(socket.AF_INET6)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
        return sock


@pytest.fixture
def node(lab, host):
    """Node 1, at every address of the coordinator's host."""
    made = lab.node(1)
    made.primary.close()
    with host.entered():
        made.primary = Everywhere(made)
    return made


def start(lab, host, *options, hosts=""):
    """A coordinator with no option but these; hosts: what its /etc/hosts says."""
    path = lab.folder / "hosts"
    path.write_text("127.0.0.1 localhost\n::1 localhost\n" + hosts)
    under = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(path))
    with host.entered():
        return lab.processes.coordinator(lab.conninfo(), lab.key_file, "c1", options=options, under=under)


def at(lab, node, name, scheme="http"):
    lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", node.node_id, f"{scheme}://{name}:{node.primary.port}/", node.key.public_text)
    return node


def test_numbers(lab, host, node):
    """Refused when the coordinator first hears of them: no look-up, no socket. The addresses themselves do answer."""
    spelled = [METADATA, "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518", "169.16689662", f"[::ffff:{METADATA}]",
               "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fd00:ec2::254]", "[fe80::1]", "100.100.100.200",
               "0.0.0.0", "0", "[::]", "224.0.0.1", "255.255.255.255"]
    with host.entered():
        for address in ADDRESSES:
            socket.create_connection((address, node.primary.port), 20).close()
    lab.db.wait("the addresses to answer", lambda: node.primary.connections == len(ADDRESSES))
    coordinator = start(lab, host, "--allow-plain-http", "--allow-network", "0.0.0.0/0", "--allow-network", "::/0")
    for number, text in enumerate(spelled):
        at(lab, node, text)
        assert_not_reached(lab, coordinator, node, "no node may be there" if "64:ff9b" not in text and "2002:" not in text else "leads to")
        assert len([line for line in coordinator.lines if "event=url_refused" in line]) == number + 1
    assert node.primary.connections == len(ADDRESSES) and not node.requests
    at(lab, node, "10.7.0.1")
    assert_delivered(lab, node)
    at(lab, node, "[fd12::7]")
    assert_delivered(lab, node)


NAMES = {
    "link-local": f"{METADATA} metadata.example\n",
    "another": "169.254.7.7 metadata.example\n",
    "mapped": f"::ffff:{METADATA} metadata.example\n",
    "nat64": "64:ff9b::a9fe:a9fe metadata.example\n",
    "two": f"{METADATA} metadata.example\nfd00:ec2::254 metadata.example\n",
    "unspecified": "0.0.0.0 metadata.example\n",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("what", NAMES)
def test_names(lab, host, node, what, scheme):
    """Only the look-up shows where they lead."""
    coordinator = start(lab, host, "--allow-plain-http", hosts=NAMES[what])
    at(lab, node, "metadata.example", scheme)
    assert_not_reached(lab, coordinator, node, "leads to" if what == "nat64" else "no node may be there")
    assert node.primary.connections == 0
    assert "event=url_refused" not in coordinator.log  # nothing was wrong with the URL itself


def test_a_name_with_a_good_address_beside_a_bad_one(lab, host, node):
    coordinator = start(lab, host, "--allow-plain-http", hosts=f"{METADATA} node.example\n10.7.0.1 node.example\n")
    at(lab, node, "node.example")
    assert_delivered(lab, node)
    assert {request.peer for request in node.requests} == {"::ffff:10.7.0.1"}
    assert "outcome=connect_error" not in coordinator.log


def test_plain_http_stays_on_this_machine(lab, host, node):
    """By the address that the name leads to: localhost may be anywhere, and any name may be here."""
    coordinator = start(lab, host, hosts="10.7.0.1 node.example\n127.0.0.7 here.example\n")
    for name in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "here.example"):
        assert_delivered(lab, at(lab, node, name))
    connections = node.primary.connections
    for name in ("10.7.0.1", "node.example", "[fd12::7]"):
        assert_not_reached(lab, coordinator, at(lab, node, name), "plain http to", "use https, or --allow-plain-http")
    assert node.primary.connections == connections
    coordinator.stop()
    start(lab, host, "--allow-plain-http", hosts="10.7.0.1 node.example\n")
    assert_delivered(lab, node)
    assert_delivered(lab, at(lab, node, "node.example"))


def test_https_needs_no_leave(lab, host, tmp_path):
    ca = Authority(tmp_path)
    node = lab.node(1)  # on a host of its own
    node.primary.close()
    with lab.network["n1"].entered():
        node.primary = Endpoint(node, host=lab.network["n1"].address, tls=ca.issue(names=f"IP:{lab.network['n1'].address}").server_context())
    lab.db.add_node(node)
    start(lab, host, "--ca", str(ca.certificate))
    assert_delivered(lab, node)


def test_only_networks_that_are_allowed(lab, host, node):
    hosts = "10.7.0.1 inside.example\nfd12::7 six.example\n127.0.0.1 outside.example\n"
    coordinator = start(lab, host, "--allow-plain-http", "--allow-network", "10.7.0.0/16", "--allow-network", "fd12::/64", hosts=hosts)
    for name in ("10.7.0.1", "inside.example", "[::ffff:10.7.0.1]", "[fd12::7]", "six.example"):
        assert_delivered(lab, at(lab, node, name))
    connections = node.primary.connections
    for name in ("127.0.0.1", "outside.example", "[::1]"):
        assert_not_reached(lab, coordinator, at(lab, node, name), "is in no network of --allow-network")
    assert node.primary.connections == connections


def test_a_refused_primary_does_not_bar_the_backup(lab, host, node):
    start(lab, host)
    lab.db.rows("SELECT quorate.add_node(1, %s, %s, %s)", f"http://10.7.0.1:{node.primary.port}/", node.key.public_text,
                f"http://127.0.0.1:{node.primary.port}/")
    round_id = lab.db.submit(1, [node], retry_budget=2, round_deadline="4 s")
    assert lab.db.wait_settled(round_id)["state"] == "complete"
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "connect_error", None), ("primary", 2, "connect_error", None),
                                                ("backup", 1, "ack", 200)]
    lab.punctual = False


def test_node_add_refuses_what_every_coordinator_would(lab):
    key = wire.KeyPair().public_text
    for option, more in (("--url", ()), ("--backup-url", ("--url", "https://node.example/"))):
        for url in (f"http://{METADATA}/latest", "https://2852039166/", "https://[::ffff:a9fe:a9fe]/", "http://[fe80::1]/", "https://0/"):
            done = lab.processes.command("node", "add", "1", *more, option, url, "--key", key, conninfo=lab.db.conninfo)
            assert done.returncode == 2 and option in done.stderr and url in done.stderr and "no node may be there" in done.stderr, done
    assert lab.db.rows("SELECT * FROM quorate.nodes") == []
    lab.processes.command("node", "add", "1", "--url", "http://10.0.0.1/", "--key", key, conninfo=lab.db.conninfo)
    assert len(lab.db.rows("SELECT * FROM quorate.nodes")) == 1
