"""The ceilings: what PostgreSQL itself allows when pgbench writes the rows of a round, with no coordinator, no checks and no requests."""

import re
import subprocess

BIN = "/usr/lib/postgresql/15/bin"
TABLES = ("ledger", "round", "delivery", "envelope", "ack")
PER_TRANSACTION = 64

# Tables of the same columns, constraints, indexes and storage parameters, without the triggers.
COPY = f"""
CREATE SCHEMA ceiling;
DO $$
DECLARE
    v_table text;
    v_options text;
BEGIN
    FOREACH v_table IN ARRAY '{{{",".join(TABLES)}}}'::text[] LOOP
        EXECUTE format('CREATE TABLE ceiling.%1$I (LIKE quorate_store.%1$I INCLUDING ALL)', v_table);
        SELECT array_to_string(reloptions, ', ') INTO v_options FROM pg_class WHERE oid = ('quorate_store.' || v_table)::regclass;
        IF v_options IS NOT NULL THEN
            EXECUTE format('ALTER TABLE ceiling.%I SET (%s)', v_table, v_options);
        END IF;
    END LOOP;
END $$;
"""

# A round's statements in the order in which they are due; rounds :first to :last.
OPEN = """WITH l AS (INSERT INTO ceiling.ledger (round_no, nonce, round_id) OVERRIDING SYSTEM VALUE
             SELECT i, i * 2 + 1, 'r-' || i FROM generate_series(:first::bigint, :last::bigint) i RETURNING round_no)
INSERT INTO ceiling.round (round_no, opened_at, escalate_at, deadline_at, per_share_timeout, base_backoff, max_backoff, after_quorum,
                           quorum, retry_budget, node_ids, node_versions)
SELECT round_no, now(), now() + '4 s', now() + '8 s', '2 s', '50 ms', '1.5 s', 'continue', 2, 4, '{1,2,3}', '{1,2,3}' FROM l"""
DELIVERIES = """WITH d AS (INSERT INTO ceiling.delivery (round_no, payload_bytes, node_id, payload_sha256)
    SELECT i, 64, k, sha256((i || '/' || k)::bytea) FROM generate_series(:first::bigint, :last::bigint) i, generate_series(1, 3) k)
INSERT INTO ceiling.envelope (round_no, node_id, payload)
SELECT i, k, sha512((i || '/' || k)::bytea) FROM generate_series(:first::bigint, :last::bigint) i, generate_series(1, 3) k"""
CLAIM = """UPDATE ceiling.round SET owner = 1, claimed_by = 1, claimed_at = now(), claimed_nodes = node_ids
 WHERE round_no BETWEEN :first::bigint AND :last::bigint"""
ACKS = """WITH a AS (INSERT INTO ceiling.ack (round_no, acked_at, route, node_id, attempt, http_status, late, receipt)
    SELECT i, now(), 'primary', k, 1, 200, false, sha512((i || k::text)::bytea)
      FROM generate_series(:first::bigint, :last::bigint) i, generate_series(1, 3) k)
UPDATE ceiling.round SET state = 'complete', closed_at = now(), quorum_nodes = '{1,2}' WHERE round_no BETWEEN :first::bigint AND :last::bigint"""
ERASE = """WITH e AS (DELETE FROM ceiling.envelope WHERE round_no BETWEEN :first::bigint AND :last::bigint)
UPDATE ceiling.round SET settled_at = now() WHERE round_no BETWEEN :first::bigint AND :last::bigint"""

FIRST = "SELECT nextval('ceiling.block') * {count} AS first \\gset\n\\set last :first + {count} - 1\n"


def single_script() -> str:
    """(a) Five commits a round."""
    return FIRST.format(count=1) + "".join(statement + ";\n" for statement in (OPEN, DELIVERIES, CLAIM, ACKS, ERASE))


def batch_script() -> str:
    """(b) The same for 64 rounds at once; three transactions, since a claim must be committed before its requests leave, and a
    submission before anybody can claim it."""
    parts = ((OPEN, DELIVERIES), (CLAIM,), (ACKS, ERASE))
    return FIRST.format(count=PER_TRANSACTION) + "".join(
        "BEGIN;\n" + "".join(statement + ";\n" for statement in part) + "COMMIT;\n" for part in parts)


def rate(here, batch: bool, seconds: float) -> float:
    """Rounds/s."""
    with here.connect() as conn:
        conn.execute(COPY)
        conn.execute("CREATE SEQUENCE ceiling.block CACHE 100")
    script = here.folder / "ceiling.sql"
    script.write_text(batch_script() if batch else single_script())
    done = subprocess.run([f"{BIN}/pgbench", "-n", "-M", "prepared", "-f", str(script), "-T", str(max(1, round(seconds))),
                           "-c", "2" if batch else "16", "-j", "2", here.conninfo],
                          capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert done.returncode == 0 and found, f"pgbench failed: {done.stdout}{done.stderr}"
    rounds = float(found[1]) * (PER_TRANSACTION if batch else 1)
    with here.connect() as conn:  # it wrote what it should have written
        open_rounds, acks, total = conn.execute(
            "SELECT count(*) FILTER (WHERE settled_at IS NULL), (SELECT count(*) FROM ceiling.ack), count(*) FROM ceiling.round").fetchone()
    assert total > 0 and acks == 3 * (total - open_rounds), (open_rounds, acks, total)
    return rounds
