"""What a coordinator believes of a route and what the database derives must agree: the outcomes that are retried, and, for every
history of a delivery in every kind of round, whether an attempt is left, is granted, and lets the round settle.

The coordinator's side is told by two unit test programs: `test_judge outcomes`, and `test_round owned|claim CONNINFO INSTANCE`,
which reads an instance's rounds, or claims its news, as a coordinator does and prints what it makes of them."""

import csv
import io
import itertools
import subprocess
import uuid

import pytest
from harness import build, wire

BUDGET = 2
# Outcomes of a route's attempts, oldest first. Without one yet: MINE was reserved by this instance, which has forgotten it since, OTHERS
# by one that is gone; both may have been sent.
MINE, OTHERS = "mine", "others"
PRIMARY = [(), ("timeout",), ("http_error", "bad_receipt"), ("refused",), ("connect_error", "refused"), (MINE,), (OTHERS,),
           ("timeout", MINE), ("timeout", OTHERS), ("in_doubt",), ("unsent",), ("in_doubt", MINE)]
BACKUP = [(), ("timeout",), ("timeout", "timeout"), ("refused",), (MINE,), (OTHERS,), ("timeout", OTHERS)]
# name: state, after_quorum, escalated, opened before. Escalation is due after 5 min, the deadline after 10, freshness after 20.
ROUNDS = {
    "young": ("open", "continue", False, "1 min"),
    "escalated": ("open", "continue", True, "6 min"),
    "escalation due": ("open", "continue", False, "6 min"),
    "complete": ("complete", "continue", False, "6 min"),
    "complete and escalated": ("complete", "continue", True, "6 min"),
    "complete and stopped": ("complete", "stop", True, "6 min"),
    "complete, past the deadline": ("complete", "continue", True, "11 min"),
    "stalled": ("stalled", "continue", True, "11 min"),
    "stalled without escalation": ("stalled", "continue", False, "11 min"),
    "cancelled": ("cancelled", "continue", True, "6 min"),
    "dead-lettered": ("dead_lettered", "continue", True, "21 min"),
}
ENDS = {
    "open": "",
    "complete": "state = 'complete', closed_at = opened_at + interval '3 min', close_reason = 'quorum', quorum_nodes = %(acked)s",
    "stalled": "state = 'stalled', closed_at = deadline_at + interval '1 ms', close_reason = 'deadline'",
    "cancelled": "state = 'cancelled', closed_at = clock_timestamp(), close_reason = 'test'",
}


def unit_test(name: str, *arguments: str) -> list[dict]:
    """The rows that a unit test program prints."""
    done = subprocess.run([build.program(f"tests/unit/{name}"), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          env=build.environment(), timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert rows
    return rows


class Book:
    """A database filled by its owner with rounds of the past, one delivery for each history; the guards look on."""

    def __init__(self, cluster):
        self.cluster, self.name = cluster, cluster.create_database()
        self.conn = cluster.connect(self.name)
        for table in ("me", "other"):
            setattr(self, table, self.value("SELECT instance_no FROM quorate_worker.join_deployment(%s, %s, '1 h')",
                                            uuid.uuid4(), table))
        key = wire.KeyPair().public_text
        # Nodes from 201 on have no backup.
        self.conn.execute("""SELECT quorate.add_node(i, format('http://n%%s.test/', i), %s,
                                                     CASE WHEN i <= 200 THEN format('http://b%%s.test/', i) END)
                               FROM generate_series(1, 255) i""", [key])

    def close(self) -> None:
        self.conn.close()
        self.cluster.drop_database(self.name)

    def value(self, sql: str, *parameters):
        (row,) = self.conn.execute(sql, parameters).fetchall()
        return row[0]

    def add_round(self, name: str, state: str, after_quorum: str, escalated: bool, ago: str, histories: dict) -> int:
        """histories: {node_id: (primary, backup, acked)}; acked is what the first attempt of the primary route brought."""
        nodes = sorted(histories)
        acked = [n for n in nodes if histories[n][2]]
        past = "complete" if state == "dead_lettered" else state
        with self.conn.transaction():
            number = self.value("""INSERT INTO quorate_store.ledger (round_id, nonce) VALUES (%s, quorate_store.nonce_of(uuid_send(gen_random_uuid())))
                                   RETURNING round_no""", name.replace(" ", "-").replace(",", ""))
            known = {"no": number, "ago": ago, "after": after_quorum, "nodes": nodes, "acked": acked, "me": self.me,
                     "quorum": 1 if past == "complete" else len(nodes), "budget": BUDGET}
            self.conn.execute("""
                INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, fresh_until, per_share_timeout,
                    base_backoff, max_backoff, owner, news, after_quorum, quorum, retry_budget, node_ids, node_versions)
                SELECT %(no)s, o, o + interval '5 min', o + interval '10 min', o + interval '20 min', '1 s', '1 ms', '2 ms', %(me)s, true,
                       %(after)s::quorate_store.after_quorum, %(quorum)s, %(budget)s, %(nodes)s::smallint[],
                       ARRAY(SELECT n.current_version FROM unnest(%(nodes)s::int[]) WITH ORDINALITY u (id, i)
                               JOIN quorate_store.node n ON n.node_id = u.id ORDER BY u.i)
                  FROM (SELECT clock_timestamp() - %(ago)s::interval AS o) x""", known)
            self.conn.execute("""INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256)
                                 SELECT %(no)s, n, 5, sha256('share') FROM unnest(%(nodes)s::int[]) n""", known)
            self.conn.execute("""INSERT INTO quorate_store.envelope (round_no, node_id, payload)
                                 SELECT %(no)s, n, 'share' FROM unnest(%(nodes)s::int[]) n""", known)
            if escalated:
                self.conn.execute("UPDATE quorate_store.round SET escalated_at = escalate_at WHERE round_no = %s", [number])
            self._add_attempts(number, histories)
            self.conn.execute("""INSERT INTO quorate_store.ack (round_no, acked_at, route, node_id, attempt, late, receipt)
                                 SELECT %(no)s, opened_at + interval '2 min', 'primary', n, 1, false, sha512('receipt')
                                   FROM quorate_store.round, unnest(%(acked)s::int[]) n WHERE round_no = %(no)s""", known)
            if ENDS[past]:
                self.conn.execute(f"UPDATE quorate_store.round SET {ENDS[past]} WHERE round_no = %(no)s", known)
        if state == "dead_lettered":
            self.conn.execute("UPDATE quorate_store.round SET state = 'dead_lettered', dead_lettered_at = clock_timestamp() "
                              "WHERE round_no = %s", [number])
        return number

    def _add_attempts(self, number: int, histories: dict) -> None:
        owners = {MINE: self.me, OTHERS: self.other}
        with self.conn.cursor() as cursor:
            cursor.executemany("""
                INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at, finished_at, outcome)
                SELECT r.round_no, %s, %s, %s, %s, r.opened_at, CASE WHEN x.o IS NOT NULL THEN r.opened_at + interval '1 s' END, x.o
                  FROM quorate_store.round r, (SELECT %s::quorate_store.outcome AS o) x WHERE r.round_no = %s""",
                [(node, route, i + 1, owners.get(outcome, self.other), None if outcome in owners else outcome, number)
                 for node, (primary, backup, _) in histories.items()
                 for route, outcomes in (("primary", primary), ("backup", backup)) for i, outcome in enumerate(outcomes)])

    def states(self, number: int) -> dict[int, str]:
        return dict(self.conn.execute("SELECT node_id, state FROM quorate_store.delivery_state WHERE round_no = %s",
                                      [number]).fetchall())


@pytest.fixture
def book(cluster):
    with_rounds = Book(cluster)
    yield with_rounds
    with_rounds.close()


def test_both_sides_retry_the_same_outcomes(book):
    told = {row["outcome"]: row["retried"] == "1" for row in unit_test("test_judge", "outcomes") if row["judged"] == "1"}
    names = [row[0] for row in book.conn.execute("SELECT unnest(enum_range(NULL::quorate_store.outcome))::text").fetchall()]
    assert set(names) - set(told) == {"in_doubt", "unsent"}, "no request ends with these"
    outcomes = [name for name in names if name in told]
    # Two nodes for each outcome: one by the primary route, without a backup; one by the backup, its primary used up.
    histories = {201 + i: ((outcome,), (), outcome == "ack") for i, outcome in enumerate(outcomes)}
    number = book.add_round("young", *ROUNDS["young"], histories)
    assert {outcome: book.states(number)[201 + i] == "pending" for i, outcome in enumerate(outcomes)} == told
    assert book.states(number)[201 + outcomes.index("ack")] == "acked"
    assert book.states(number)[201 + outcomes.index("refused")] == "refused"

    used_up = ("timeout",) * BUDGET
    histories = {1 + i: (used_up, (outcome,), outcome == "ack") for i, outcome in enumerate(outcomes)}
    number = book.add_round("escalated", *ROUNDS["escalated"], histories)
    assert {outcome: book.states(number)[1 + i] == "pending" for i, outcome in enumerate(outcomes)} == told


def all_histories(escalated: bool) -> dict:
    """Every pair of histories, acked and not: for nodes with a backup and for nodes without."""
    with_backup = itertools.product(PRIMARY, BACKUP if escalated else [()], (False, True))
    plain = itertools.product(PRIMARY, [()], (False, True))
    possible = lambda history: history[0] or not history[2]  # noqa: E731  (no ack without an attempt)
    histories = {1 + i: history for i, history in enumerate(filter(possible, with_backup))}
    histories.update({201 + i: history for i, history in enumerate(filter(possible, plain))})
    return histories


def left_by_route(told: list[dict], number: int, round_open: bool) -> dict:
    """{(node, route): the attempt that is next or under way} of the routes on which the coordinator goes on."""
    going_on = {"waiting", "queued", "reserving", "loading"} | ({"closed"} if round_open else set())
    return {(int(row["node_id"]), row["route"]): (row["state"], int(row["attempt"])) for row in told
            if row["what"] == "route" and int(row["round_no"]) == number and row["state"] in going_on}


def arrays(keys: list[tuple]) -> list[list]:
    """(node, route, attempt, ...) as parallel arrays."""
    return [list(column) for column in zip(*keys)]


@pytest.mark.parametrize("how", ["owned", "claim"])
def test_both_sides_see_the_same_attempts_left(book, how):
    """For each round: pending in the view exactly where the coordinator goes on; what it asks for is granted; what it closes lets
    the round settle, unless an attempt is left."""
    numbers = {name: book.add_round(name, *kind, all_histories(kind[2])) for name, kind in ROUNDS.items()}
    told = unit_test("test_round", how, book.cluster.conninfo(book.name), str(book.me))
    assert {int(row["round_no"]) for row in told} == set(numbers.values())
    for name, (state, _, escalated, _) in ROUNDS.items():
        number, histories = numbers[name], all_histories(escalated)
        left = left_by_route(told, number, state == "open")
        views = book.states(number)
        assert set(views) == set(histories)
        for node, history in histories.items():
            believed = sorted(route for n, route in left if n == node)
            assert bool(believed) == (views[node] == "pending"), f"{name}: {history}: {views[node]}, but left are {believed}"
            assert (views[node] == "acked") == history[2], f"{name}: {history}: {views[node]}"

        # The claim has reserved the first attempts, which can be sent at once; the rest is asked for.
        first = {left[node, "primary"] for node, (primary, _, acked) in histories.items()
                 if not primary and not acked and (node, "primary") in left}
        if first:
            assert first == {("loading" if how == "claim" and state == "open" else "reserving", 1)}, name

        # What the coordinator would ask for is granted; past the budget, or for who has acked, nothing is.
        wanted = sorted((node, route, attempt) for (node, route), (route_state, attempt) in left.items()
                        if route_state in ("reserving", "loading"))
        assert len(wanted) == len(left) - sum(route_state == "closed" for route_state, _ in left.values())
        too_much = [(node, "primary", BUDGET + 1 if not acked else 1) for node, (_, _, acked) in sorted(histories.items())]
        for keys, granted in ((wanted, True), (too_much, False)):
            if keys:
                nodes, routes, attempts = arrays(keys)
                answers = book.conn.execute(
                    "SELECT node_id, route, attempt, granted "
                    "FROM quorate_worker.reserve(%s, %s::bigint[], %s::smallint[], %s, %s::smallint[])",
                    [book.me, [number] * len(keys), nodes, routes, attempts]).fetchall()
                assert sorted(answers) == [(*key, granted) for key in keys], name


@pytest.mark.parametrize("how", ["owned", "claim"])
def test_what_a_coordinator_closes_lets_the_round_settle(book, how):
    """Its records of open attempts are committed, and the round settles at once if nothing is left on its side."""
    numbers = {name: book.add_round(name, *kind, all_histories(kind[2])) for name, kind in ROUNDS.items()}
    told = unit_test("test_round", how, book.cluster.conninfo(book.name), str(book.me))
    for name, (state, _, _, _) in ROUNDS.items():
        number = numbers[name]
        records = [(int(r["node_id"]), r["route"], int(r["attempt"]), r["outcome"]) for r in told
                   if r["what"] == "record" and int(r["round_no"]) == number]
        assert {outcome for *_, outcome in records} <= {"in_doubt"}, "none of them is known not to have been sent"
        if records:
            nodes, routes, attempts, outcomes = arrays(records)
            nothing = [None] * len(records)
            book.conn.execute("""SELECT * FROM quorate_worker.record(%s, false, %s::bigint[], %s::smallint[], %s, %s::smallint[], %s,
                                                                     %s::smallint[], %s::bigint[], %s::bytea[])""",
                              [book.me, [number] * len(records), nodes, routes, attempts, outcomes, nothing, nothing, nothing])
        (settled,) = book.conn.execute("SELECT settled FROM quorate_worker.settle(%s, false, %s::bigint[])",
                                       [book.me, [number]]).fetchall()
        left = left_by_route(told, number, state == "open")
        assert settled[0] == (not left), f"{name}: settled {settled[0]}, left {sorted(left)[:5]}"
    settled = {name for name, number in numbers.items()
               if book.value("SELECT settled_at IS NOT NULL FROM quorate_store.round WHERE round_no = %s", number)}
    assert settled == set(ROUNDS) - {"young", "escalated", "escalation due", "complete", "complete and escalated"}
