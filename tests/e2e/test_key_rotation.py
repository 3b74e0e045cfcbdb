"""Keys and secrets change while rounds flow: the recipes of docs/operations.md, and what reading the files again does."""

import os
import pathlib
import signal

import pytest
from harness import wire
from harness.traffic import PATIENT, Custodians, Stream, outcomes


def write(path: pathlib.Path, text: str) -> None:
    """As a careful administrator would: the new file takes the place of the old one at once."""
    new = path.with_name(path.name + ".new")
    new.touch(mode=0o600)
    new.write_text(text)
    os.rename(new, path)


def test_the_coordinators_key_changes_and_no_attempt_is_refused(lab):
    """Two coordinators sign with both keys while three custodians change one by one, each from the old one straight to the new one."""
    old, new = lab.key, wire.KeyPair()
    new_file = lab.write_key("coordinator-new.key", new)
    custodians = Custodians(lab)
    for number in (1, 2, 3):
        custodians.start(number, old)
    coordinators = [lab.coordinator() for _ in range(2)]
    stream = Stream(lab, 3, [1, 2, 3])
    stream.flows()

    def restart(*options: str) -> None:
        for i in range(2):
            assert coordinators[i].stop() == 0
            coordinators[i] = lab.processes.coordinator(lab.db.conninfo, None, f"c-{len(lab.processes.all)}", options=options)
            stream.flows()

    restart("--key", str(lab.key_file), "--key", str(new_file))
    for number in (1, 2, 3):
        custodians.start(number, new)
        stream.flows()
    restart("--key", str(new_file))
    rounds = stream.close()
    for round_id in rounds:
        assert lab.db.round(round_id)["state"] == "complete" and len(lab.db.acks(round_id)) == 3
    seen = outcomes(lab, rounds)
    assert ("ack", 200) in seen and seen <= {("ack", 200), ("connect_error", None)}, seen  # the latter while one starts again
    assert not any("bad_signature" in process.log for process in lab.processes.all)


def test_a_custodian_that_knows_neither_key_refuses(lab):
    """So the test above would notice."""
    node = lab.node()
    node.coordinator_key = wire.KeyPair().public_text
    more = lab.write_key("more.key", wire.KeyPair())
    lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c1", options=("--key", str(more)))
    round_id = lab.db.submit(1, [node])
    assert lab.db.wait_settled(round_id)["state"] == "stalled"
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "refused", 401)]
    node.coordinator_key = lab.key.public_text  # what the checks at the end look at
    node.primary.requests.clear()


def test_one_header_holds_a_signature_of_each_key(lab):
    """In the order of the options, separated by single blanks, as Standard Webhooks says; a node needs to know only one of them."""
    pairs = [lab.key, *(wire.KeyPair() for _ in range(3))]
    files = [lab.write_key(f"key-{i}", pair) for i, pair in enumerate(pairs)]
    nodes = lab.some_nodes(4)
    for node, pair in zip(nodes, pairs, strict=True):
        node.coordinator_key = pair.public_text
    options = [part for file in files[1:] for part in ("--key", str(file))]
    lab.processes.coordinator(lab.db.conninfo, files[0], "c1", options=tuple(options))
    payloads = {node.node_id: os.urandom(5000) for node in nodes}
    round_id = lab.db.submit(4, nodes, payloads=payloads)
    assert lab.db.wait_settled(round_id)["state"] == "complete"
    for node in nodes:
        (request,) = node.requests
        message = wire.request_message(request.header("webhook-id"), request.header("webhook-timestamp"), payloads[node.node_id])
        assert request.header("webhook-signature") == " ".join(pair.sign(message) for pair in pairs)


def test_a_node_with_a_secret_gets_one_signature_whatever_the_keys(lab):
    """Its receipt is made with the secret that signed: there is nothing to choose."""
    shared, other = wire.Secret(), wire.Secret()
    node = lab.node(symmetric=True)
    node.key, node.secrets = shared, [other, shared]
    lab.db.add_node(node)
    secrets = lab.write_node_secrets({1: [other, shared]})
    lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c1", options=(
        "--key", str(lab.write_key("more.key", wire.KeyPair())), "--node-secrets", str(secrets)))
    round_id = lab.db.submit(1, [node])
    assert lab.db.wait_settled(round_id)["state"] == "complete"
    (request,) = node.requests
    assert request.header("webhook-signature").startswith("v1,") and " " not in request.header("webhook-signature")
    assert lab.db.attempt_list(round_id, 1) == [("primary", 1, "ack", 200)]


@pytest.mark.parametrize("count, said", [(5, "given 5 times; at most 4"), (2, "hold the same key")])
def test_wrong_sets_of_keys(lab, count, said):
    files = [lab.key_file] * 2 if count == 2 else [lab.write_key(f"key-{i}", wire.KeyPair()) for i in range(count)]
    done = lab.processes.command("run", *(part for file in files for part in ("--key", str(file))), conninfo=lab.db.conninfo)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and said in done.stderr


# Reading the files again.


def read_again(coordinator, event: str = "keys_read") -> str:
    since = len(coordinator.lines)
    coordinator.kill(signal.SIGHUP)
    return coordinator.wait_line(rf"\bevent={event}\b", since=since)


def test_keys_and_secrets_are_read_again_while_rounds_flow(lab):
    """From the old key to the new one, and from no secret to another, without a restart: nobody is taken over, and no attempt is refused."""
    old, new = lab.key, wire.KeyPair()
    more = lab.write_key("more.key", wire.KeyPair())
    secrets = [wire.Secret(), wire.Secret()]
    nodes = [lab.node(1), lab.node(2, symmetric=True)]
    nodes[1].key, nodes[1].secrets = secrets[0], [secrets[0]]
    lab.db.add_node(nodes[1])
    path = lab.write_node_secrets({2: [secrets[0]]})
    coordinator = lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c1", options=(
        "--key", str(more), "--node-secrets", str(path), "--log-level", "debug"))
    stream = Stream(lab, 2, nodes)
    stream.flows()
    # The key: the second file gets the new one, the node changes, and then the first file gets it, too, and the second one any other.
    write(more, new.secret_text + "\n")
    assert "keys=2 node_secrets=1" in read_again(coordinator)
    nodes[0].coordinator_key = new.public_text
    stream.flows()
    lab.key = new
    write(lab.key_file, new.secret_text + "\n")
    assert "hold the same key" in read_again(coordinator, "keys_kept")
    stream.flows()
    write(more, wire.KeyPair().secret_text + "\n")
    assert "keys=2 node_secrets=1" in read_again(coordinator)
    stream.flows()
    # The secret.
    nodes[1].secrets = secrets
    write(path, "".join(f"2 = {secret.secret_text}\n" for secret in secrets))
    assert "keys=2 node_secrets=2" in read_again(coordinator)
    stream.flows()
    nodes[1].key = secrets[1]
    lab.db.add_node(nodes[1])
    stream.flows()
    rounds = stream.close()
    assert outcomes(lab, rounds) == {("ack", 200)}
    write(path, f"2 = {secrets[1].secret_text}\n")
    assert "keys=2 node_secrets=1" in read_again(coordinator)
    nodes[1].secrets = [secrets[1]]
    assert lab.db.wait_settled(lab.db.submit(2, nodes))["state"] == "complete"
    assert lab.db.one("SELECT count(*) FROM quorate_store.coordinator") == 1
    for secret in (old, new, *secrets):
        assert secret.secret_text[8:40] not in coordinator.log


def test_a_secret_that_was_missing_is_there_after_reading_again(lab):
    """The round that had no secret for its node goes on with it."""
    node = lab.node(symmetric=True)
    path = lab.write_node_secrets({2: [wire.Secret()]})
    coordinator = lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c1", options=("--node-secrets", str(path)))
    round_id = lab.db.submit(1, [node], **{**PATIENT, "retry_budget": 50, "base_backoff": "100 ms", "max_backoff": "200 ms"})
    coordinator.wait_line("event=secret_missing node=1")
    write(path, f"1 = {node.key.secret_text}\n")
    read_again(coordinator)
    assert lab.db.wait_settled(round_id)["state"] == "complete"


@pytest.mark.parametrize("fault", ["gone", "open to others", "another text", "secrets gone", "secrets wrong", "secrets cut", "secrets cut to a comment"])
def test_a_file_that_cannot_be_read_again_changes_nothing(lab, fault):
    """All stays as it was, and the log says why."""
    node = lab.node(symmetric=True)
    path = lab.write_node_secrets({1: [node.key]})
    coordinator = lab.processes.coordinator(lab.db.conninfo, lab.key_file, "c1", options=("--node-secrets", str(path)))
    other = wire.KeyPair()
    if fault == "gone":
        lab.key_file.unlink()
    elif fault == "open to others":
        lab.key_file.chmod(0o644)
    elif fault == "another text":
        write(lab.key_file, other.secret_text[:-3] + "\n")
    elif fault == "secrets gone":
        path.unlink()
    elif fault == "secrets cut":
        path.write_text("")  # in place, as an editor may
    elif fault == "secrets cut to a comment":
        path.write_text("# node = secret\n")
    else:
        write(path, f"1 = {node.key.secret_text}x\n")
    line = read_again(coordinator, "keys_kept")
    assert ("node-secrets" if "secrets" in fault else "coordinator.key") in line and "level=error" in line
    assert other.secret_text[8:40] not in coordinator.log
    ids = [lab.db.submit(2, [node, lab.node()]) for _ in range(3)]
    for round_id in ids:
        assert lab.db.wait_settled(round_id)["state"] == "complete"
