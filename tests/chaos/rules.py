"""Every invariant, checked from what is known when all is over. Each rule is a function that yields what breaks it."""

import base64
import re

from facts import Facts
from harness import invariants
from record import longest_calm, merge

SLACK_S = 1.0  # on top of the contract's second, for a slow machine
ANSWERED = ("ack", "http_error", "bad_receipt", "refused")
ENDS = {"QR001": {"stalled"}, "QR002": {"dead_lettered", "complete"}, "QR004": {"cancelled"}, "nodes": {"complete"}}

AFTER_ITS_END = """SELECT l.round_id, c.name, c.end_reason, a.node_id, a.attempt, a.reserved_at - c.ended_at AS late
                     FROM quorate_store.attempt_state a JOIN quorate_store.coordinator c ON c.instance_no = a.owner
                     JOIN quorate_store.ledger l USING (round_no) WHERE a.reserved_at > c.ended_at"""


class Audit:
    """`judged` counts what each rule looked at, `excused` what it let pass because of an outage."""

    def __init__(self, facts: Facts):
        self.facts = facts
        self.judged: dict[str, int] = {}
        self.excused: dict[str, int] = {}
        self.broken: list[tuple[str, str, str]] = []  # (rule, round_id, what)

    def run(self) -> None:
        for name, rule in RULES.items():
            self.judged[name] = 0
            self.excused[name] = 0
            for round_id, what in rule(self, self.facts, name):
                self.broken.append((name, round_id, what))
        self.broken += self.facts.book.broken

    def look(self, name: str, count: int = 1) -> None:
        self.judged[name] += count


def own_rows(audit: Audit, facts: Facts, name: str):
    """I1, I2, I5, I7: quorums of verified receipts, one ack a node, attempts within their budget, backups after the escalation only."""
    for round_id, row in facts.rounds.items():
        audit.look(name)
        try:
            invariants.check_round(facts.deployment, row, facts.acks.get(round_id, []), facts.deliveries.get(round_id, []),
                                   facts.attempts.get(round_id, []), punctual=False)
        except AssertionError as problem:
            yield round_id, str(problem)


def receipts(audit: Audit, facts: Facts, name: str):
    """I1: how many receipts were verified (by own_rows); whoever acked holds the envelope, and no ack is lost."""
    for round_id, acks in facts.acks.items():
        for ack in acks:
            audit.look(name)
            route = ack["route"] if str(ack["node_id"]) in facts.stage.custodians else "any"
            if not facts.stored.get((round_id, ack["node_id"], route)):
                yield round_id, f"node {ack['node_id']} acked on its {ack['route']} route, and does not hold the envelope"
    for round_id, attempts in facts.attempts.items():
        acked = {ack["node_id"] for ack in facts.acks.get(round_id, [])}
        for attempt in attempts:
            if attempt["outcome"] == "ack" and attempt["node_id"] not in acked:
                yield round_id, f"an attempt of node {attempt['node_id']} says that it brought an ack, and there is none"


def terminal(audit: Audit, facts: Facts, name: str):
    """I3: every round has ended; notifications and looks during the run agree with the end."""
    for round_id, row in facts.rounds.items():
        audit.look(name)
        if row["state"] not in ("complete", "stalled", "cancelled", "dead_lettered"):
            yield round_id, f"it is {row['state']} although everything is over"
        facts.collectors.look(row)  # once more: breaches go to the book
    for round_id, state in facts.collectors.notices:
        audit.look(name)
        final = facts.rounds.get(round_id, {}).get("state")
        if final != state and (state, final) != ("complete", "dead_lettered"):
            yield round_id, f"it was notified as {state} and is {final}"


def answers(audit: Audit, facts: Facts, name: str):
    """I3: once an answer, always that answer, and it is what the round became."""
    for round_id, entry in facts.book.entries.items():
        told = sorted(entry.answers, key=lambda answer: answer.asked)
        audit.look(name, len(told))
        row = facts.rounds.get(round_id)
        ends = [answer for answer in told if answer.text not in ("open", "QR003")]
        first = min((answer.told for answer in told if answer.text != "QR003"), default=None)
        first_end = min((answer.told for answer in ends), default=None)
        texts = [answer.text for answer in ends]
        for answer in told:
            if first_end is not None and answer.asked > first_end and answer.text == "open":
                yield round_id, f"collect said open after {texts}"
            if first is not None and answer.asked > first and answer.text == "QR003":
                yield round_id, "collect said that it is unknown after it had known it"
            if answer.text == "nodes" and any(other.text == "QR002" and other.told < answer.asked for other in ends):
                yield round_id, "collect gave the nodes after it had refused them as no longer fresh"
            if row is not None and answer.text in ENDS:
                if row["state"] not in ENDS[answer.text]:
                    yield round_id, f"collect said {answer.text} and it is {row['state']}"
                if answer.text == "nodes" and list(answer.nodes) != row["quorum_nodes"]:
                    yield round_id, f"collect said {answer.nodes} and its quorum is {row['quorum_nodes']}"
        if len(set(texts)) > 1 and set(texts) != {"nodes", "QR002"}:
            yield round_id, f"collect contradicted itself: {texts}"
        if "nodes" in texts and row is not None and row["collected_at"] is None:
            yield round_id, "it was collected, and does not know"


def promises(audit: Audit, facts: Facts, name: str):
    """What a client was told to be done is done, through every crash and failover; what was refused is not."""
    for round_id, entry in facts.book.entries.items():
        audit.look(name)
        row, digests = facts.rounds.get(round_id), facts.digests(round_id)
        if entry.known == "committed" and row is None:
            yield round_id, "its dealer was told that it is open, and it does not exist"
        if entry.known == "refused" and row is not None:
            yield round_id, "its dealer was told that it was not opened, and it exists"
        if row is None:
            continue
        if entry.nonce is not None and row["nonce"] != entry.nonce:
            yield round_id, f"its nonce was {entry.nonce} and is {row['nonce']}"
        for node, digest in entry.accepted.items():
            if digests.get(node) != digest:
                yield round_id, f"the envelope for node {node} was accepted, and it is not there"
        for node, digest in digests.items():
            if entry.accepted.get(node) != digest and digest not in entry.maybe.get(node, set()):
                yield round_id, f"node {node} was sent an envelope that nobody distributed"
        if entry.cancelled is not None and entry.cancelled != (row["state"] == "cancelled"):
            yield round_id, f"cancel_round said {entry.cancelled} and it is {row['state']}"
        if facts.rejections[round_id] < entry.refusals:
            yield round_id, f"{entry.refusals} envelopes were refused and {facts.rejections[round_id]} of them noted"
    for round_id in facts.rounds.keys() - facts.book.entries.keys():
        yield round_id, "nobody opened it"


def nonces(audit: Audit, facts: Facts, name: str):
    """I4: the ledger holds each id and each nonce once, and no round without its entry."""
    rows = facts.stage.db.rows("SELECT round_id, nonce FROM quorate_store.ledger")
    audit.look(name, len(rows))
    if len({row["nonce"] for row in rows}) != len(rows) or len({row["round_id"] for row in rows}) != len(rows):
        yield "", "a round id or a nonce stands in the ledger twice"
    if not facts.rounds.keys() <= {row["round_id"] for row in rows}:
        yield "", "a round is missing from the ledger"


def requests(audit: Audit, facts: Facts, name: str):
    """I5: what reached the custodians was committed as attempts before, and not more often than those say."""
    for (round_id, node_id, route), seen in facts.requests.items():
        audit.look(name, len(seen))
        mine = [a for a in facts.attempts.get(round_id, []) if a["node_id"] == node_id and a["route"] == route]
        if not mine:
            yield round_id, f"node {node_id}, {route}: {len(seen)} requests without a committed attempt"
            continue
        most = sum(1 + a["resends"] for a in mine)
        if len(seen) > most:
            yield round_id, f"node {node_id}, {route}: {len(seen)} requests, attempts say at most {most}"
        for number, (wall, _) in enumerate(sorted(seen)):
            begun = sum(1 + a["resends"] for a in mine if a["reserved_at"].timestamp() <= wall + 0.002)
            if begun <= number:
                yield round_id, f"node {node_id}, {route}: request {number + 1} came before its attempt was reserved"
        if str(node_id) in facts.stage.nodes:  # these remember everything; a real one may be killed before it has written its line
            least = sum(a["outcome"] in ANSWERED for a in mine)
            if len(seen) < least:
                yield round_id, f"node {node_id}, {route}: {len(seen)} requests, attempts say at least {least}"
    for what in facts.foreign:
        yield "", what


def fencing(audit: Audit, facts: Facts, name: str):
    """Who was fenced, or has left, reserves nothing from then on."""
    db = facts.stage.db
    audit.look(name, db.one("SELECT count(*) FROM quorate_store.coordinator WHERE ended_at IS NOT NULL"))
    for row in db.rows(AFTER_ITS_END):
        yield row["round_id"], f"{row['name']}, {row['end_reason']}, reserved an attempt {row['late']} later: node {row['node_id']}, {row['attempt']}"


def attested(audit: Audit, facts: Facts, name: str):
    """I5: when a request reached a node of the harness, its attempt could be seen in the database."""
    audit.look(name, facts.stage.attested)
    for round_id, node_id, route, wall in facts.stage.unattested:
        yield round_id, f"node {node_id}, {route}: a request came at {wall:.3f} and no attempt was committed yet"


def stores(audit: Audit, facts: Facts, name: str):
    """Custodians hold one envelope per key, and the one that was distributed."""
    for (round_id, node_id, route), held in facts.stored.items():
        audit.look(name)
        row = facts.rounds.get(round_id)
        if len(held) != 1:
            yield round_id, f"node {node_id}, {route}, holds {len(held)} envelopes"
        if row is None or held[0] != (row["nonce"], facts.digests(round_id).get(node_id)):
            yield round_id, f"node {node_id}, {route}, holds {held}, which is not what was distributed"


def punctual(audit: Audit, facts: Facts, name: str):
    """I6: rounds close, and turn dead-lettered, within a second while commits succeed and a coordinator runs."""
    for round_id, row in facts.rounds.items():
        for state, due, done in (("stalled", row["deadline_at"], row["closed_at"]), ("dead_lettered", row["fresh_until"], row["dead_lettered_at"])):
            if row["state"] != state or done is None:
                continue
            late = (done - due).total_seconds()
            calm = longest_calm(due.timestamp(), done.timestamp(), merge(facts.trouble + facts.record.held(round_id)))
            if calm > 1.0 + SLACK_S:
                yield round_id, f"it became {state} {late:.3f} s late, of which {calm:.3f} s nothing was wrong"
            if late > 1.0 and calm <= 1.0:
                audit.excused[name] += 1
            else:
                audit.look(name)


def progress(audit: Audit, facts: Facts, name: str):
    """I10: everything settled, soon after its end; and no envelope was left untried while nothing was wrong."""
    for round_id, row in facts.rounds.items():
        audit.look(name)
        if row["settled_at"] is None:
            yield round_id, "it never settled"
            continue
        trouble = merge(facts.trouble + facts.record.held(round_id))
        ended = max(row["closed_at"], row["deadline_at"] if row["state"] in ("complete", "dead_lettered") else row["closed_at"]).timestamp()
        waiting = longest_calm(ended + row["per_share_timeout"].total_seconds(), row["settled_at"].timestamp(), trouble)
        if waiting > 2.0 + SLACK_S:
            yield round_id, f"it settled only {row['settled_at'].timestamp() - ended:.3f} s after its end, {waiting:.3f} s without a reason"
        for delivery in facts.deliveries.get(round_id, []) if row["state"] == "stalled" else []:
            node, since, until = delivery["node_id"], facts.distributed[round_id, delivery["node_id"]], row["deadline_at"].timestamp()
            if delivery["attempts"] == 0 and str(node) not in facts.stage.nodes and longest_calm(since, until, trouble) > 1.0 + SLACK_S:
                if not any(w.fault.target == str(node) for w in facts.record.touching(since - 2, until)):
                    yield round_id, f"the envelope for node {node} was never tried, though nothing was wrong"


def erased(audit: Audit, facts: Facts, name: str):
    """I8: no byte of an envelope is left in any table."""
    for table in payload_tables(facts.stage.db):
        audit.look(name)
        count = marked_rows(facts.stage.db, table, facts.mark)
        if count:
            yield "", f"{count} rows of {table} hold bytes of envelopes although everything has settled"


def silent_logs(audit: Audit, facts: Facts, name: str):
    """I8: no byte of an envelope and no secret key in a log or a notification."""
    forbidden = forms(facts.mark)
    for key in facts.stage.secrets:
        forbidden |= {key.secret_text.removeprefix("whsk_")[:40], key.seed.hex()}
    pattern = re.compile("|".join(re.escape(form) for form in forbidden), re.IGNORECASE)
    for program, text in facts.all_logs():
        audit.look(name, text.count("\n") + 1)
        if pattern.search(text):
            yield "", f"the log of {program} holds bytes of an envelope or of a key"
    for notice in facts.collectors.odd_notices:
        yield "", f"a notification said {notice!r}"


def no_errors(audit: Audit, facts: Facts, name: str):
    """No program meets what it calls an error: each says that something happened that must not."""
    for program in facts.stage.processes.all:
        audit.look(name, len(program.lines))
        for line in program.lines:
            if " level=error " in line:
                yield "", f"{program.name} says {line}"


def reused_after_pruning(audit: Audit, facts: Facts, name: str):
    """I4: nothing is accepted a second time, not even after it was pruned. Comes last: it deletes the evidence."""
    db = facts.stage.db
    some = list(facts.rounds.values())[:200]
    while db.one("SELECT quorate.prune_rounds(clock_timestamp())"):
        pass
    if db.one("SELECT count(*) FROM quorate.rounds"):
        yield "", "rounds were left although all have settled and were pruned"
    for row in some:
        for round_id, nonce, wanted in ((row["round_id"], None, "QR006"), (f"{row['round_id']}-again", row["nonce"], "QR005")):
            audit.look(name)
            try:
                db.rows("SELECT nonce FROM quorate.open_round(%s, 1, '{1}'::int[], nonce => %s)", round_id, nonce)
                yield row["round_id"], "its id or nonce was accepted again after it had been pruned"
            except Exception as error:  # pylint: disable=broad-except
                if getattr(error, "sqlstate", None) != wanted:
                    yield row["round_id"], f"reuse after pruning failed with {error}, not with {wanted}"


def payload_tables(db) -> list[str]:
    found = [row["name"] for row in db.rows("""SELECT format('%%I.%%I', table_schema, table_name) AS name FROM information_schema.tables
                                               WHERE table_type = 'BASE TABLE' AND table_schema LIKE 'quorate%%'""")]
    assert "quorate_store.envelope" in found, "this looks in the wrong place"
    return found


def marked_rows(db, table: str, mark: bytes) -> int:
    return db.one(f"SELECT count(*) FROM {table} t WHERE position(%s IN t::text) > 0", mark.hex())


def forms(mark: bytes) -> set[str]:
    """How the mark may look in a text: as it is, in hex, and in base64 at each of its three alignments."""
    found = {mark.decode("latin-1"), mark.hex()}
    for shift in range(3):
        found.add(base64.b64encode(bytes(shift) + mark)[4 if shift else 0:16].decode())
    return found


RULES = {
    "I1 I2 I5 I7 rows": own_rows, "I1 receipts": receipts, "I3 terminal": terminal, "I3 answers": answers, "I4 nonces": nonces,
    "I5 requests": requests, "fencing": fencing,
    "I5 attested": attested, "I6 punctual": punctual, "I8 erased": erased, "I8 logs": silent_logs, "no errors logged": no_errors,
    "I10 progress": progress, "promises kept": promises, "custodians' stores": stores, "I4 pruned": reused_after_pruning}
# What is noticed while it happens goes by these names.
LIVE = {"I3": "looks at states", "I4": "reuses", "I6": "collect fails closed", "I7": "looks at escalations", "I9": "looks at policies",
        "verdicts": "verdicts of distribute", "client": "errors that no client should see", "faults": "faults done, programs ended well"}
