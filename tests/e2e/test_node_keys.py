"""quorate collect --node-keys: whoever pins the nodes' keys notices acks that no node has made."""

import dataclasses
import secrets

import pytest
from harness import wire
from harness.cli import Cli


@pytest.fixture
def cli(lab):
    return Cli(lab)


def key_file(lab, keys, name="node-keys"):
    """Lines for (node_id, key)."""
    path = lab.folder / name
    path.write_text("# from the nodes themselves\n" + "".join(f"{node_id} = {key.public_text}\n" for node_id, key in keys))
    path.chmod(0o644)
    return str(path)


class Rogue:
    """A coordinator's login without a coordinator: it says what it likes to the functions that it may call."""

    def __init__(self, lab):
        self.lab, self.name = lab, f"rogue_{lab.db.name}"
        lab.db.conn.execute(f'CREATE ROLE "{self.name}" LOGIN IN ROLE quorate_coordinator')
        self.conn = lab.db.connect(user=self.name)
        self.instance = self.conn.execute("SELECT instance_no FROM quorate_worker.join_deployment(gen_random_uuid(), 'rogue', '1 h')").fetchone()["instance_no"]

    def store(self, round_id, receipts):
        """Acks with receipts of its own making; the round's state then."""
        self.conn.execute("SELECT count(*) FROM quorate_worker.claim(%s, 10, 1000000, '{}')", [self.instance])
        count = len(receipts)
        number = self.lab.db.one("SELECT round_no FROM quorate_store.ledger WHERE round_id = %s", round_id)
        return self.conn.execute(
            "SELECT state FROM quorate_worker.record(%s, true, %s::bigint[], %s::smallint[], %s, %s::smallint[], %s, %s::smallint[], %s::bigint[], %s)",
            [self.instance, [number] * count, list(receipts), ["primary"] * count, [1] * count, ["ack"] * count, [204] * count, [None] * count,
             list(receipts.values())]).fetchone()["state"]

    def close(self):
        self.conn.close()
        self.lab.db.conn.execute(f'DROP ROLE "{self.name}"')


@pytest.fixture
def forged(cli):
    """Rounds that a rogue coordinator completes by itself: nobody is sent anything."""
    lab, keys = cli.lab, {number: wire.KeyPair() for number in (1, 2, 3, 4)}
    for number, key in keys.items():
        cli("node", "add", str(number), "--url", f"http://127.0.0.1:9/{number}", "--key", key.public_text)
    rogue = Rogue(lab)

    def complete(round_id, honest=(), said_of=None):
        """With receipts of nodes 1 to 3: made by their own keys where they are honest, for this round or for the one that is said."""
        lab.db.submit(3, list(keys), round_id)
        about = wire.EnvelopeKey(lab.db.deployment(), said_of or round_id, 0, lab.db.round(round_id)["nonce"])
        assert rogue.store(round_id, {
            number: keys[number].private.sign(wire.receipt_message(
                dataclasses.replace(about, node_id=number), wire.sha256(lab.db.payloads[round_id, number])))
            if number in honest else secrets.token_bytes(64) for number in (1, 2, 3)}) == "complete"

    complete.keys = keys
    yield complete
    with pytest.raises(AssertionError, match="I1: .* does not verify"):
        lab.check()
    lab.check = lambda: None  # it would say the same at the end
    rogue.close()


def test_acks_that_a_coordinator_forged_are_refused_by_who_has_the_nodes_keys(cli, forged):
    keys = key_file(cli.lab, forged.keys.items())
    forged("all")
    assert cli("collect", "all") == "1\n2\n3\n", "the database believes its coordinators"
    error = cli.fails(1, "collect", "all", "--node-keys", keys)
    assert "0 receipts verify and its quorum is 3" in error, error
    assert all(f"node {number} has a receipt that does not verify" in error for number in (1, 2, 3)), error
    cli.fails(1, "collect", "all", "--node-keys", keys, "--json")
    forged("one", honest=(1, 3))
    error = cli.fails(1, "collect", "one", "--node-keys", keys)
    assert "2 receipts verify and its quorum is 3: node 2 has" in error and "node 1" not in error, error
    forged("moved", honest=(1, 2, 3), said_of="one")
    assert "0 receipts verify" in cli.fails(1, "collect", "moved", "--node-keys", keys)
    forged("none", honest=(1, 2, 3))
    assert cli("collect", "none", "--node-keys", keys) == "1\n2\n3\n"


def test_a_database_that_lies_to_collectors_gains_nothing(cli, forged):
    """Its owner has replaced the functions: each answer would have been believed without the receipts."""
    keys = key_file(cli.lab, forged.keys.items())
    forged("true", honest=(1, 2, 3))
    forged("false")
    cli.lab.db.conn.execute("CREATE TABLE public.truth AS SELECT r.id, c.* FROM unnest('{true,false}'::text[]) AS r (id), quorate.collected(r.id) c")

    def lie(nodes, columns, source="true"):
        cli.lab.db.conn.execute(f"CREATE OR REPLACE FUNCTION quorate.collect(round_id text, quorum int DEFAULT NULL) RETURNS int[] LANGUAGE sql "
                                f"AS $$ SELECT '{nodes}'::int[] $$")
        cli.lab.db.conn.execute("CREATE OR REPLACE FUNCTION quorate.collected(round_id text) RETURNS TABLE (node_id int, route text, url text, in_quorum boolean, "
                                "receipt text, deployment_id text, nonce bigint, quorum int, payload_sha256 bytea) LANGUAGE sql AS $$ "
                                f"SELECT {columns} FROM public.truth WHERE id = '{source}' $$")

    def refused(*options):
        return cli.fails(1, "collect", "false", "--node-keys", keys, *options)

    whole = "node_id, route, url, in_quorum, receipt, deployment_id, nonce, {}, payload_sha256"
    lie("{1,2,3}", whole.format(3))
    assert "0 receipts verify" in refused(), "another round's receipts"
    lie("{1,2,3}", whole.format(0), source="false")
    assert "its quorum is 0" in refused()
    lie("{}", whole.format(0))
    refused()
    lie("{1}", whole.format(1), source="true")
    assert cli("collect", "true", "--node-keys", keys) == "1\n", "what the quorum is only the collector's own floor can say"
    assert "its quorum is 3" in cli.fails(1, "collect", "true", "--node-keys", keys, "--quorum", "3")
    lie("{1,1,1}", whole.format(3))
    assert "node 1 is named twice" in cli.fails(1, "collect", "true", "--node-keys", keys)
    lie("{1,2,3}", "node_id, route, url, in_quorum, 'v1a,' || repeat('A', 5000), repeat('d', 5000), 0::bigint, 3, 'x'::bytea")
    assert "no well-formed receipt" in cli.fails(1, "collect", "true", "--node-keys", keys)
    lie("{1,2,3}", "NULL::int, NULL::text, NULL::text, true, NULL::text, NULL::text, NULL::bigint, 3, NULL::bytea")
    assert "node 3 has no receipt" in cli.fails(1, "collect", "true", "--node-keys", keys)
    lie("{1,2,3}", whole.format(3))
    assert cli("collect", "true", "--node-keys", keys) == "1\n2\n3\n", "the test's own lies are well made"


def test_a_lie_makes_no_two_nodes_of_one_and_no_quorum_of_two_rounds(cli):
    """One receipt under numbers that a C int would cut to the node's own; and receipts of two rounds of one id, as deployments that share nodes may
    have, each of them real and each round short of its quorum."""
    keys = {number: wire.KeyPair() for number in (1, 2)}
    file = key_file(cli.lab, keys.items())
    conn = cli.lab.db.conn
    conn.execute("DROP FUNCTION quorate.collect(text, int), quorate.collected(text)")

    def receipt(number, deployment, nonce):
        key = wire.EnvelopeKey(deployment, "r", number, nonce)
        return keys[number].sign(wire.receipt_message(key, wire.sha256(b"share")))

    def lie(*rows):
        """Rows of the number that is said, the node that signed, its deployment and its nonce."""
        said = ", ".join(str(row[0]) for row in rows)
        table = ", ".join(f"({shown}::bigint, 'primary', 'http://a/', true, '{receipt(number, deployment, nonce)}', '{deployment}', {nonce}::bigint, 2, "
                          f"'\\x{wire.sha256(b'share')}'::bytea)" for shown, number, deployment, nonce in rows)
        conn.execute("DROP FUNCTION IF EXISTS quorate.collect(text, int), quorate.collected(text)")
        conn.execute(f"CREATE FUNCTION quorate.collect(round_id text, quorum int DEFAULT NULL) RETURNS bigint[] LANGUAGE sql AS $$ SELECT ARRAY[{said}]::bigint[] $$")
        conn.execute("CREATE FUNCTION quorate.collected(round_id text) RETURNS TABLE (node_id bigint, route text, url text, in_quorum boolean, receipt text, "
                     f"deployment_id text, nonce bigint, quorum int, payload_sha256 bytea) LANGUAGE sql AS $$ VALUES {table} $$")
        conn.execute("CREATE OR REPLACE FUNCTION quorate.settle_round(round_id text) RETURNS text LANGUAGE sql AS $$ SELECT 'complete' $$")

    def refused():
        return cli.fails(1, "collect", "r", "--node-keys", file, "--quorum", "2")

    lie((1, 1, "demo", 7), (1 + 2**32, 1, "demo", 7))
    assert "1 receipts verify" in refused()
    lie((1, 1, "demo", 7), (2, 2, "demo", 8))
    assert "node 2 has a receipt of another nonce" in refused()
    lie((1, 1, "demo", 7), (2, 2, "other", 7))
    assert "1 receipts verify" in refused()
    lie((1, 1, "demo", 7), (2, 2, "demo", 7))
    assert cli("collect", "r", "--node-keys", file, "--quorum", "2") == "1\n2\n", "the test's own lies are well made"


def test_what_real_nodes_have_signed_verifies_with_any_of_their_keys(cli):
    """While a node's key changes its old and its new one stand in the file; a node of the file that is not in the round does no harm."""
    nodes = cli.lab.some_nodes(2)
    cli.lab.coordinator()
    round_id = cli.lab.db.submit(2, nodes)
    others = [(node.node_id, wire.KeyPair()) for node in nodes]
    real = [(node.node_id, node.key) for node in nodes]
    keys = key_file(cli.lab, [*others, *real, (32767, wire.KeyPair())])
    assert cli("collect", round_id, "--node-keys", keys) == "1\n2\n"
    collected = cli.json("collect", round_id, "--node-keys", keys)
    assert collected["quorum_nodes"] == [1, 2] and [share["verified"] for share in collected["shares"]] == [True, True]
    cli.fails(1, "collect", round_id, "--node-keys", key_file(cli.lab, others, "others"))
    cli.fails(1, "collect", round_id, "--node-keys", key_file(cli.lab, [(1, nodes[1].key), (2, nodes[0].key)], "swapped"))
    assert "node 2 has no key in the file" in cli.fails(1, "collect", round_id, "--node-keys", key_file(cli.lab, real[:1], "short"))


def test_a_symmetric_node_does_not_count_and_is_named(cli):
    nodes = [*cli.lab.some_nodes(2), cli.lab.node(symmetric=True)]
    cli.lab.coordinator()
    keys = key_file(cli.lab, [(node.node_id, node.key) for node in nodes[:2]] + [(3, wire.KeyPair())])
    round_id = cli.lab.db.submit(3, nodes)
    error = cli.fails(1, "collect", round_id, "--node-keys", keys)
    assert "2 receipts verify and its quorum is 3: node 3 has a symmetric secret" in error, error
    assert "whpk_" in cli.fails(2, "collect", round_id, "--node-keys", key_file(cli.lab, [(3, nodes[2].key)], "symmetric"))


def test_wrong_files_of_keys(cli):
    cli.known_nodes(2)
    cli("open", "r", "--quorum", "2")
    good, path = f"1 = {wire.KeyPair().public_text}\n", cli.lab.folder / "wrong"
    for text, told in ((good + "2 whpk_x\n", "line 2: no node is named"), ("0 = whpk_\n", "line 1: what stands before the = is no node id"),
                       (good + "\n# x\n2 = whpk_AAAA\n", "line 4: "), (good + "2 = whsk_AAAA\n", "line 2: "), ("\0\n", "line 1: it is no text")):
        path.write_text(text)
        path.chmod(0o644)
        error = cli.fails(2, "collect", "r", "--node-keys", str(path))
        assert told in error and "--node-keys" in error, error
    path.write_text(good)
    path.chmod(0o664)
    assert "others can write it" in cli.fails(2, "collect", "r", "--node-keys", str(path))
    assert "cannot be opened" in cli.fails(2, "collect", "r", "--node-keys", str(path) + "-none")
    assert "no regular file" in cli.fails(2, "collect", "r", "--node-keys", "/dev/null")
    path.chmod(0o644)
    assert "still open" in cli.fails(8, "collect", "r", "--wait", "0", "--node-keys", str(path)), "a good one"
