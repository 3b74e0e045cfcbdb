"""The invariants, true at every moment and under any fault, checked from the views (and, for erased payloads, from every table).

I1   `complete` or `dead_lettered` implies at least a quorum of distinct acks on time, each with a receipt that verifies offline.
I2   One ack per round and node; the nodes that acked are nodes of the round.
I3   Terminal states never change, but from `complete` to `dead_lettered`.
I4   A nonce or a round id is never accepted twice, not even after its round was pruned.
I5   No attempt number passes `retry_budget` on its route; no request leaves before its attempt is committed.
I6   While a coordinator runs and commits succeed, no round stays `open` more than 1 s past its deadline; without one, `collect`
     refuses all the same.
I7   At most one escalation per round, and only to backups of nodes that had not acked.
I8   No payload byte of a settled round is visible to SQL, and none is ever in a log, a notification or a view.
I9   Nonce, quorum, nodes and policy of a round never change.
I10  Every open round makes progress while a coordinator and the database are up: none is orphaned. (Tests that wait for ends show it.)
"""

import base64
import datetime
import hashlib

from . import wire
from .rounds import Database

CLOSING_SLACK = datetime.timedelta(seconds=1)
ANSWERED = ("ack", "http_error", "bad_receipt", "refused")


def check_invariants(db: Database, nodes=(), punctual: bool | datetime.datetime = True) -> None:
    """Checks I1..I9 for all rounds. `nodes`: the Python custodians, whose requests are compared with the attempts.
    `punctual`: a coordinator was up all the time, or from that time on, so that deadlines were kept to the second."""
    rounds = {row["round_id"]: row for row in db.rounds()}  # I3 and I9 are checked by looking again
    acks, deliveries, attempts = ({} for _ in range(3))
    for into, view in ((acks, "acks"), (deliveries, "deliveries"), (attempts, "attempts")):
        for row in db.rows(f"SELECT * FROM quorate.{view}"):
            into.setdefault(row["round_id"], []).append(row)
    nonces = [row["nonce"] for row in rounds.values()]
    assert len(nonces) == len(set(nonces)), "I4: a nonce stands twice"
    for round_id, row in rounds.items():
        check_round(db.deployment(), row, acks.get(round_id, []), deliveries.get(round_id, []), attempts.get(round_id, []), punctual)
    _check_requests(attempts, nodes)
    _check_erased(db, rounds)


def check_round(deployment: str, row: dict, acks: list, deliveries: list, attempts: list,
                punctual: bool | datetime.datetime = True) -> None:
    """What one round's rows must say by themselves: I1, I2, I5, I6, I7 and I8."""
    _check_acks(deployment, row, acks, deliveries, attempts)
    _check_attempts(row, acks, deliveries, attempts)
    _check_times(row, punctual)
    _check_settled(row, acks, deliveries, attempts)


def _hex(digest) -> str:
    return bytes(digest).hex() if isinstance(digest, (bytes, memoryview)) else digest


def _check_acks(deployment: str, row: dict, acks: list, deliveries: list, attempts: list) -> None:
    name = row["round_id"]
    by_node = {ack["node_id"]: ack for ack in acks}
    assert len(by_node) == len(acks), f"I2: {name}: a node acked twice: {acks}"
    assert set(by_node) <= set(row["node_ids"]), f"I2: {name}: an ack of a node that is not in the round"
    on_time = [ack for ack in acks if not ack["late"]]
    assert row["acked"] == len(on_time), f"{name}: says {row['acked']} acked, there are {len(on_time)}"
    in_quorum = sorted(ack["node_id"] for ack in acks if ack["in_quorum"])
    if row["state"] in ("complete", "dead_lettered"):
        assert len(in_quorum) >= row["quorum"], f"I1: {name} is {row['state']} with {in_quorum}"
        assert in_quorum == row["quorum_nodes"], f"I1: {name}: {in_quorum} is not {row['quorum_nodes']}"
        assert all(ack["acked_at"] <= row["deadline_at"] for ack in on_time), f"I1: {name}: an ack after the deadline"
    else:
        assert row["quorum_nodes"] is None and not in_quorum, f"{name} is {row['state']} with a quorum"
        assert len(on_time) < row["quorum"], f"I1: {name} is {row['state']} with {len(on_time)} acks on time"
    digests = {d["node_id"]: _hex(d["payload_sha256"]) for d in deliveries}
    outcomes = {(a["node_id"], a["route"], a["attempt"]): a["outcome"] for a in attempts}
    for ack in acks:
        key = wire.EnvelopeKey(deployment, name, ack["node_id"], row["nonce"])
        assert wire.verify(ack["receipt_key"], ack["receipt"], wire.receipt_message(key, digests[ack["node_id"]])), \
            f"I1: {name}: the receipt of node {ack['node_id']} does not verify"
        assert ack["third_party"] == ack["receipt_key"].startswith("whpk_") == ack["receipt"].startswith("v1a,"), \
            f"{name}: an ack whose receipt is not of its key's kind: {ack}"
        assert (ack["node_id"], ack["route"], ack["attempt"]) in outcomes, f"{name}: an ack without its attempt: {ack}"


def _check_attempts(row: dict, acks: list, _deliveries: list, attempts: list) -> None:
    name, acked_at = row["round_id"], {ack["node_id"]: ack["acked_at"] for ack in acks}
    numbers: dict[tuple, list] = {}
    for attempt in attempts:
        numbers.setdefault((attempt["node_id"], attempt["route"]), []).append(attempt["attempt"])
        assert attempt["node_id"] in row["node_ids"], f"{name}: an attempt at a node that is not in the round"
        assert attempt["reserved_at"] <= row["deadline_at"], f"{name}: an attempt after the deadline: {attempt}"
        if attempt["route"] == "backup":
            assert row["escalated_at"] is not None, f"I7: {name}: a backup attempt without an escalation"
            assert attempt["reserved_at"] >= row["escalated_at"], f"I7: {name}: a backup attempt before the escalation"
            assert acked_at.get(attempt["node_id"], row["escalated_at"]) >= row["escalated_at"], \
                f"I7: {name}: the backup of node {attempt['node_id']}, which had acked"
    for (node_id, route), found in numbers.items():
        assert sorted(found) == list(range(1, len(found) + 1)), f"{name}: node {node_id}, {route}: attempts {found}"
        assert len(found) <= row["retry_budget"], f"I5: {name}: node {node_id}, {route}: {len(found)} attempts"


def _check_times(row: dict, punctual: bool | datetime.datetime) -> None:
    name = row["round_id"]
    if row["escalated_at"] is not None:
        assert row["escalate_at"] <= row["escalated_at"] <= row["deadline_at"], f"I7: {name}: escalated at a wrong time"
    if row["state"] in ("complete", "dead_lettered"):
        assert row["closed_at"] <= row["deadline_at"], f"{name} became complete after its deadline"
    if row["state"] == "stalled":
        assert row["closed_at"] >= row["deadline_at"], f"{name} stalled before its deadline"
        due = row["deadline_at"] if isinstance(punctual, bool) else max(row["deadline_at"], punctual)
        assert punctual is False or row["closed_at"] <= due + CLOSING_SLACK, \
            f"I6: {name} stalled {row['closed_at'] - row['deadline_at']} after its deadline"
    if row["state"] == "dead_lettered":
        assert row["collected_at"] is None and row["dead_lettered_at"] >= row["fresh_until"], f"{name}: {row}"


def _check_settled(row: dict, acks: list, deliveries: list, attempts: list) -> None:
    name, acked = row["round_id"], {ack["node_id"] for ack in acks}
    for delivery in deliveries:
        where = f"{name}, node {delivery['node_id']}: {delivery['state']}"
        assert (delivery["state"] == "acked") == (delivery["node_id"] in acked), where
        assert delivery["attempts"] == sum(a["node_id"] == delivery["node_id"] for a in attempts), f"{where}: {delivery}"
        if row["settled_at"] is not None:
            assert delivery["state"] != "pending", f"{where} although settled"
            assert delivery["payload_erased_at"] is not None, f"I8: {where}: settled and not erased"
    if row["settled_at"] is not None:
        assert row["state"] != "open", f"{name} is settled and open"
        unfinished = [a for a in attempts if a["finished_at"] is None or a["outcome"] is None]
        assert not unfinished, f"{name} is settled with attempts under way: {unfinished}"


def _check_requests(attempts: dict[str, list], nodes) -> None:
    """No request without a committed attempt, and none more than was attempted or repeated; no answer invented."""
    for node in nodes:
        seen: dict[tuple, int] = {}
        for route, request in node.all_requests():
            assert request.signature_ok, f"node {node.node_id}: a request with a wrong signature: {request}"
            assert request.key.node_id == node.node_id, f"node {node.node_id}: another node's envelope: {request.key}"
            seen[request.key.round_id, route] = seen.get((request.key.round_id, route), 0) + 1
        for (round_id, route), count in seen.items():
            mine = [a for a in attempts.get(round_id, []) if a["node_id"] == node.node_id and a["route"] == route]
            most = sum(1 + a["resends"] for a in mine)
            least = sum(a["outcome"] in ANSWERED for a in mine)
            assert least <= count <= most, \
                f"I5: {round_id}: node {node.node_id}, {route}: {count} requests, attempts say {least}..{most}: {mine}"


def _check_erased(db: Database, rounds: dict) -> None:
    """I8: looks for the payloads of settled rounds in every bytea column of every table."""
    gone = [hashlib.sha256(payload).digest() for (round_id, _), payload in db.payloads.items()
            if rounds.get(round_id, {}).get("settled_at")]
    if not gone:
        return
    columns = db.rows("""SELECT table_schema AS s, table_name AS t, column_name AS c FROM information_schema.columns
                         JOIN information_schema.tables USING (table_schema, table_name)
                         WHERE table_type = 'BASE TABLE' AND table_schema LIKE 'quorate%%' AND data_type = 'bytea'""")
    assert columns, "no bytea column at all: this check looks in the wrong place"
    for column in columns:
        where = f'"{column["s"]}"."{column["t"]}"'
        found = db.rows(f'SELECT 1 FROM {where} WHERE sha256("{column["c"]}") = ANY(%s::bytea[]) LIMIT 1', gone)
        assert not found, f"I8: a payload of a settled round stands in {where}.{column['c']}"


def check_logs(db: Database, text: str, keys=()) -> None:
    """I8: no payload and no secret key in a log, whichever way it may be written."""
    for key in keys:
        for form in (key.secret_text.split("_", 1)[1][:40], key.seed.hex()):
            assert form not in text, f"I8: a secret key stands in a log, that of {key.public_text}"
    for payload in db.payloads.values():
        for part in {payload[:15], payload[-15:]} if len(payload) >= 15 else ():
            for form in (part.hex(), base64.b64encode(part).decode(), part.decode("latin-1")):
                assert form not in text, "I8: an envelope stands in a log"
