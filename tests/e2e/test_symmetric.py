"""Nodes that share a symmetric secret with the coordinators: beside others, with wrong and missing secrets, and while one changes."""

import json

import pytest
from harness import behaviours as b
from harness import wire

PATIENT = {"retry_budget": 50, "base_backoff": "200 ms", "max_backoff": "200 ms", "round_deadline": "20 s"}


def test_a_round_of_nodes_of_both_kinds(lab):
    """Two custodians of ours and two of the harness; the audit tells whose receipts convince a third party."""
    pair = wire.KeyPair()
    secret_file = lab.folder / "shared.secret"
    made = lab.processes.command("keygen", "--symmetric", str(secret_file))
    shared = wire.Secret.parse(secret_file.read_text())
    assert made.stdout == shared.public_text + "\n"
    ours = {1: lab.processes.custodian(1, lab.write_key("node-1.key", pair), lab.key.public_text),
            2: lab.processes.custodian(2, None, None, options=("--secret", str(secret_file), "--log-level", "debug"))}
    for number, key in ((1, pair), (2, shared)):
        lab.db.rows("SELECT quorate.add_node(%s, %s, %s)", number, ours[number].url, key.public_text)
    nodes = [lab.node(3), lab.node(4, symmetric=True)]
    path = lab.write_node_secrets({2: [wire.Secret(), shared], 4: nodes[1].secrets})
    lab.coordinator(options=("--node-secrets", str(path), "--log-level", "debug"))
    round_id = lab.db.submit(4, [1, 2, *nodes])
    row = lab.db.wait_settled(round_id)
    assert (row["state"], row["quorum_nodes"]) == ("complete", [1, 2, 3, 4])
    acks = lab.db.acks(round_id)
    assert {number: ack["third_party"] for number, ack in acks.items()} == {1: True, 2: False, 3: True, 4: False}
    assert acks[2]["receipt_key"] == shared.public_text and acks[2]["receipt"].startswith("v1,")
    assert [len(lab.db.attempts(round_id, number)) for number in (1, 2, 3, 4)] == [1] * 4

    shown = json.loads(lab.processes.command("status", round_id, "--json", conninfo=lab.db.conninfo).stdout)
    assert {ack["node_id"]: ack["third_party"] for ack in shown["acks"]} == {1: True, 2: False, 3: True, 4: False}
    assert "THIRD PARTY" in lab.processes.command("status", round_id, conninfo=lab.db.conninfo).stdout
    collected = json.loads(lab.processes.command("collect", round_id, "--json", conninfo=lab.db.conninfo).stdout)
    assert acks[4]["receipt"] in json.dumps(collected)


def test_a_request_with_a_secret_is_as_the_protocol_says(lab):
    node, payload = lab.node(symmetric=True), bytes(range(256)) * 40
    lab.coordinator()
    round_id = lab.db.submit(1, [node], payloads={1: payload})
    lab.db.wait_settled(round_id)
    (request,) = node.requests
    assert sorted(name for name, _ in request.headers) == [
        "content-length", "content-type", "host", "webhook-id", "webhook-signature", "webhook-timestamp"]
    message = wire.request_message(request.header("webhook-id"), request.header("webhook-timestamp"), payload)
    assert request.header("webhook-signature") == node.key.sign(message)
    (ack,) = lab.db.acks(round_id).values()
    assert ack["receipt_key"] == node.key.public_text and not ack["third_party"]
    assert ack["receipt"] == node.key.sign(wire.receipt_message(request.key, wire.sha256(payload)))


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_receipt_of_the_other_kind_is_none(lab, symmetric):
    """Also not one whose secret is the node's public key, which everyone knows."""
    node = lab.node(symmetric=symmetric)
    others = [wire.Secret(), wire.KeyPair()] + ([] if symmetric else [wire.Secret(node.key.public_bytes)])
    node.plan(*(b.forged_receipt(key=key) for key in others))
    lab.coordinator()
    round_id = lab.db.submit(1, [node], retry_budget=len(others) + 1)
    lab.db.wait_settled(round_id)
    assert [outcome for _, _, outcome, _ in lab.db.attempt_list(round_id, 1)] == ["bad_receipt"] * len(others) + ["ack"]


def test_a_custodian_that_has_another_secret_refuses(lab):
    known, held = wire.Secret(), wire.Secret()
    custodian = lab.processes.custodian(1, None, None, options=("--secret", str(lab.write_key("node.secret", held)), "--log-level", "debug"))
    lab.db.rows("SELECT quorate.add_node(1, %s, %s)", custodian.url, known.public_text)
    lab.coordinator(options=("--node-secrets", str(lab.write_node_secrets({1: [held, known]})), "--log-level", "debug"))
    round_id = lab.db.submit(1, [1], round_deadline="1 s", per_share_timeout="500 ms")
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "stalled" and not lab.db.acks(round_id)
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "refused", 401)]


@pytest.mark.parametrize("others", ["no file", "another secret", "another node"])
def test_a_missing_secret_is_told_once_and_sends_nothing(lab, others):
    """A restart with the right file goes on with the same round."""
    nodes = [lab.node(), lab.node(symmetric=True)]
    key = nodes[1].key
    files = {"no file": {}, "another secret": {2: [wire.Secret()]}, "another node": {1: [key]}}
    options = ("--node-secrets", str(lab.write_node_secrets(files[others], "wrong-secrets")))
    first = lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c0", options=() if others == "no file" else options)
    round_id = lab.db.submit(2, nodes, **PATIENT)
    lab.db.wait("three attempts", lambda: len(lab.db.attempts(round_id, 2)) > 3)
    assert lab.db.round(round_id)["state"] == "open" and not nodes[1].requests and list(lab.db.acks(round_id)) == [1]
    assert {a["outcome"] for a in lab.db.attempts(round_id, 2) if a["finished_at"]} == {"connect_error"}
    first.stop()
    told = [line for line in first.lines if "event=secret_missing" in line]
    assert len(told) == 1 and "node=2" in told[0] and f"key={key.public_text}" in told[0]
    lab.coordinator()
    row = lab.db.wait_settled(round_id)
    assert row["state"] == "complete" and len(nodes[1].requests) == 1


def test_a_secret_changes_and_no_round_is_lost(lab):
    """As docs/operations.md says: the custodian takes both, the coordinators have both, the node's id changes, the old one goes."""
    nodes = [lab.node(1), lab.node(2, symmetric=True)]
    old, new = nodes[1].key, wire.Secret()
    rounds = []

    def submit(count: int = 5):
        rounds.extend(lab.db.submit(2, nodes) for _ in range(count))

    first = lab.coordinator()
    submit()
    nodes[1].secrets = [old, new]
    submit()
    second = lab.coordinator(options=("--node-secrets", str(lab.write_node_secrets({2: [old, new]}, "both"))))
    submit()
    first.stop()
    submit()
    nodes[1].key = new
    lab.db.add_node(nodes[1])
    submit()
    for round_id in list(rounds):
        lab.db.wait_settled(round_id)
    third = lab.coordinator(options=("--node-secrets", str(lab.write_node_secrets({2: [new]}, "new"))))
    second.stop()
    nodes[1].secrets = [new]
    submit()
    for round_id in rounds:
        row = lab.db.wait_settled(round_id)
        assert row["state"] == "complete" and row["quorum_nodes"] == [1, 2]
        assert {a["outcome"] for a in lab.db.attempts(round_id)} == {"ack"}
    keys = [lab.db.acks(round_id)[2]["receipt_key"] for round_id in rounds]
    assert keys == [old.public_text] * 20 + [new.public_text] * 10
    assert not any("secret_missing" in line for each in (first, second, third) for line in each.lines)


@pytest.mark.parametrize("line", ["2 = {secret} x", "{secret}", "0 = {secret}", "two = {secret}", "2 = whsk_{rest}", "2 = whsec_{rest}AAAA"])
def test_a_wrong_line_is_named_and_its_secret_is_not_shown(lab, line):
    secret = wire.Secret().secret_text
    path = lab.write_node_secrets({1: [wire.Secret()]})
    with path.open("a") as file:
        file.write("\n" + line.format(secret=secret, rest=secret[6:]) + "\n")
    done = lab.processes.command("run", "--key", str(lab.key_file), "--node-secrets", str(path), conninfo=lab.db.conninfo)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert str(path) in done.stderr and "line 4" in done.stderr and secret[6:20] not in done.stderr


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_of_secrets_that_others_can_read(lab, mode):
    path = lab.write_node_secrets({1: [wire.Secret()]})
    path.chmod(mode)
    done = lab.processes.command("run", "--key", str(lab.key_file), "--node-secrets", str(path), conninfo=lab.db.conninfo)
    assert done.returncode == 2 and "chmod 600" in done.stderr and str(path) in done.stderr
    done = lab.processes.command("run", "--key", str(lab.key_file), "--node-secrets", str(path) + "x", conninfo=lab.db.conninfo)
    assert done.returncode == 2 and "No such file" in done.stderr
