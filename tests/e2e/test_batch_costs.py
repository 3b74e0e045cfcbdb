"""What a call costs grows with its batch, and not with its square: no statement of a flood, of a trigger or of the history joins each
row of a batch with each other one. (What happens inside of a step, such as a search in an array, no plan shows.)"""

import json
import os
import random
import re

import pytest
from harness.cluster import Cluster

ROUNDS = 300
NODES = (1, 2, 3)
LONGEST = 4 * ROUNDS * len(NODES)  # rows that a step of a plan may see; a nested loop over two lists of the batch sees ROUNDS * ROUNDS at least
EXPLAIN = {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_nested_statements": "on",
           "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off", "auto_explain.log_format": "json"}
# Statements that see a whole batch, each in a function or trigger of its own: the test is blind unless it sees them.
OF_A_BATCH = ("INSERT INTO quorate_store.ledger", "INSERT INTO quorate_store.envelope", "WITH picked AS", "WITH counted AS", "WITH asked AS",
              "FROM added n GROUP BY n.round_no", "INSERT INTO quorate_store.ack", "FROM before b JOIN after n ON n.round_no = b.round_no) x",
              "INSERT INTO quorate_store.history_due", "INSERT INTO quorate_store.history (", "DELETE FROM quorate_store.delivery")
RECORD = """SELECT * FROM quorate_worker.record(%s, true, %b::bigint[], %b::smallint[], %b::text[], %b::smallint[], %b::text[], %b::smallint[],
                                                %b::bigint[], %b::bytea[])"""


@pytest.fixture
def cluster():
    """One of its own: nobody else's log is to hold these plans."""
    with Cluster() as own:
        own.create_template()
        yield own


@pytest.fixture
def database(cluster):
    """Its sessions log the plan of every statement, with what each step of it saw."""
    name = cluster.create_database()
    with cluster.connect() as conn:
        for setting, value in EXPLAIN.items():
            conn.execute(f'ALTER DATABASE "{name}" SET {setting} = {value}')
    return name


def plans(cluster) -> list[dict]:
    entries = re.split(r"^(?=\d{4}-\d\d-\d\d )", cluster.read_log(), flags=re.MULTILINE)
    return [json.loads(entry.partition("plan:")[2]) for entry in entries if " plan:" in entry.partition("\n")[0]]


def steps(plan: dict):
    yield plan
    for below in plan.get("Plans", []):
        yield from steps(below)


def seen(step: dict) -> int:
    """The rows that it gave or dropped, all its loops together."""
    each = step["Actual Rows"] + sum(value for name, value in step.items() if name.startswith("Rows Removed by"))
    return each * step["Actual Loops"]


def record(conn, instance: int, work: list[tuple], attempt: int, outcome: str) -> list[tuple]:
    acked, count = outcome == "ack", len(work)
    return conn.execute(RECORD, (instance, [r for r, _ in work], [n for _, n in work], ["primary"] * count, [attempt] * count, [outcome] * count,
                                 [200 if acked else None] * count, [None if acked else 0] * count,
                                 [os.urandom(32) if acked else None for _ in work])).fetchall()


def flood(conn, ids: list[str]) -> None:
    """A batch through all that happens to it: dealt, claimed, tried twice, complete, settled, chained and pruned."""
    envelopes = [os.urandom(64) for _ in ids for _ in NODES]
    opened = conn.execute("SELECT round_id, nonce FROM quorate.submit_rounds(%b::text[], 2, %b::int[], %b::bytea[], round_deadline => '1 h')",
                          (ids, list(NODES), envelopes)).fetchall()
    assert [round_id for round_id, _ in opened] == ids
    instance = conn.execute("SELECT (quorate_worker.join_deployment(gen_random_uuid(), 'c', '1 min')).instance_no").fetchone()[0]
    work = conn.execute("SELECT round_no, node_id FROM quorate_worker.claim(%s, %s, %s, '{}')", (instance, len(ids), len(ids))).fetchall()
    assert len(work) == len(envelopes)
    first, last = [row for row in work if row[1] != 3], [row for row in work if row[1] == 3]
    record(conn, instance, first, 1, "timeout")
    granted = conn.execute("SELECT granted FROM quorate_worker.reserve(%s, %b::bigint[], %b::smallint[], %b::text[], %b::smallint[])",
                           (instance, [r for r, _ in first], [n for _, n in first], ["primary"] * len(first), [2] * len(first))).fetchall()
    assert granted == [(True,)] * len(first)
    assert [state for _, state, _, _ in record(conn, instance, first, 2, "ack")] == ["complete"] * len(ids)
    assert all(settled for _, _, settled, _ in record(conn, instance, last, 1, "ack"))
    conn.execute("SELECT * FROM quorate_worker.chain(10000, NULL)")
    assert conn.execute("SELECT quorate.prune_rounds('infinity')").fetchone()[0] == len(ids)
    conn.execute("SELECT * FROM quorate_worker.chain(10000, NULL)")


def test_no_step_of_a_plan_sees_the_square_of_a_batch(cluster, database):
    with cluster.connect(database) as conn:
        for node in NODES:
            conn.execute("SELECT quorate.add_node(%s, 'http://127.0.0.1:1/', %s)", (node, f"whid_000000000000000{node}"))
        ids = [f"round-{number}" for number in range(ROUNDS)]
        random.Random(1).shuffle(ids)  # in no order of theirs
        flood(conn, ids)
    explained_plans = [(re.sub(r"\s+", " ", plan["Query Text"]), plan["Plan"]) for plan in plans(cluster)]
    for text in OF_A_BATCH:
        assert max((seen(step) for query, plan in explained_plans if text in query for step in steps(plan)), default=0) >= ROUNDS, text
    assert not [(seen(step), step["Node Type"], query) for query, plan in explained_plans for step in steps(plan) if seen(step) > LONGEST]
