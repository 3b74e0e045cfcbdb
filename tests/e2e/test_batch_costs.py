"""What a call costs grows with its batch, and not with its square: no statement of a flood, of a trigger or of the history joins each
row of a batch with each other one."""

import json
import os
import random
import re

import pytest

ROUNDS = 300
NODES = (1, 2, 3)
LONGEST = 4 * ROUNDS * len(NODES)  # rows that a step of a plan may see; a nested loop over two lists of the batch sees ROUNDS * ROUNDS at least
EXPLAIN = {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_nested_statements": "on",
           "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off", "auto_explain.log_format": "json"}
RECORD = """SELECT * FROM quorate_worker.record(%s, true, %b::bigint[], %b::smallint[], %b::text[], %b::smallint[], %b::text[], %b::smallint[],
                                                %b::bigint[], %b::bytea[])"""


@pytest.fixture
def explained(cluster):
    """A database whose sessions log the plan of every statement, with what each step of it saw; and a function that reads them."""
    database = cluster.create_database()
    with cluster.connect(database) as conn:
        for name, value in EXPLAIN.items():
            conn.execute(f'ALTER DATABASE "{database}" SET {name} = {value}')
    begun = cluster.log.stat().st_size

    def plans() -> list[dict]:
        with open(cluster.log, encoding="utf-8") as log:
            log.seek(begun)
            entries = re.split(r"^(?=\d{4}-\d\d-\d\d )", log.read(), flags=re.MULTILINE)
        return [json.loads(entry.partition("plan:")[2]) for entry in entries if " plan:" in entry.partition("\n")[0]]

    yield database, plans
    cluster.drop_database(database)


def steps(plan: dict):
    yield plan
    for below in plan.get("Plans", []):
        yield from steps(below)


def seen(step: dict) -> int:
    """The rows that it gave or dropped, all its loops together."""
    each = step["Actual Rows"] + sum(value for name, value in step.items() if name.startswith("Rows Removed by"))
    return each * step["Actual Loops"]


def flood(conn, ids: list[str]) -> None:
    """A batch through all that happens to it, as a dealer, a coordinator and an auditor's clean-up do it."""
    envelopes = [os.urandom(64) for _ in ids for _ in NODES]
    conn.execute("SELECT * FROM quorate.submit_rounds(%b::text[], 2, %b::int[], %b::bytea[])", (ids, list(NODES), envelopes))
    instance = conn.execute("SELECT (quorate_worker.join_deployment(gen_random_uuid(), 'c', '1 min')).instance_no").fetchone()[0]
    work = conn.execute("SELECT round_no, node_id FROM quorate_worker.claim(%s, %s, %s, '{}')", (instance, len(ids), len(ids))).fetchall()
    assert len(work) == len(envelopes)
    # Two acks of each round complete it; the third, in a batch of its own, settles it.
    for part in ([row for row in work if row[1] != 3], [row for row in work if row[1] == 3]):
        count = len(part)
        told = conn.execute(RECORD, (instance, [r for r, _ in part], [n for _, n in part], ["primary"] * count, [1] * count, ["ack"] * count,
                                     [200] * count, [None] * count, [os.urandom(32) for _ in part])).fetchall()
        assert [state for _, state, _, _ in told] == ["complete"] * len(ids)
    assert all(settled for _, _, settled, _ in told)
    conn.execute("SELECT * FROM quorate_worker.chain(10000, NULL)")
    assert conn.execute("SELECT quorate.prune_rounds('infinity')").fetchone()[0] == len(ids)
    conn.execute("SELECT * FROM quorate_worker.chain(10000, NULL)")


def test_no_step_of_a_plan_sees_the_square_of_a_batch(cluster, explained):
    database, plans = explained
    with cluster.connect(database) as conn:
        for node in NODES:
            conn.execute("SELECT quorate.add_node(%s, 'http://127.0.0.1:1/', %s)", (node, f"whid_000000000000000{node}"))
        ids = [f"round-{number}" for number in range(ROUNDS)]
        random.Random(1).shuffle(ids)  # in no order of theirs: they are given back in this one
        flood(conn, ids)
    found = [(seen(step), step["Node Type"], plan["Query Text"]) for plan in plans() for step in steps(plan["Plan"])]
    assert max(rows for rows, _, _ in found) >= ROUNDS, "the plans are not those of the batch"
    assert not [one for one in found if one[0] > LONGEST]
