"""How rounds are submitted to each contender, and how the end of one is told: the loads know nothing else of them."""

import dataclasses

ENVELOPES = """ARRAY(SELECT sha512((i || '/' || k)::bytea) || %(filler)s FROM generate_series(%(first)s::int, %(last)s::int) i,
                     generate_series(1, %(nodes)s) k ORDER BY i, k)"""
QUORATE = f"""SELECT count(*) FROM quorate.submit_rounds(ARRAY(SELECT %(prefix)s || i FROM generate_series(%(first)s::int, %(last)s::int) i),
                  %(quorum)s, ARRAY(SELECT generate_series(%(first_node)s, %(first_node)s + %(nodes)s - 1)), {ENVELOPES},
                  round_deadline => %(deadline)s)"""

# The peers: a table of rounds, and a job for each envelope, written by one transaction.
ROUNDS = """INSERT INTO bench.round (round_id, quorum)
            SELECT %(prefix)s || i, %(quorum)s FROM generate_series(%(first)s::int, %(last)s::int) i"""
GRAPHILE = f"""WITH rounds AS ({ROUNDS})
    SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
        SELECT ('deliver', json_build_object('round', %(prefix)s || i, 'node', k,
                                             'envelope', encode(sha512((i || '/' || k)::bytea) || %(filler)s, 'base64')),
                NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
          FROM generate_series(%(first)s::int, %(last)s::int) i, generate_series(1, %(nodes)s) k))"""

PEER_TABLES = """
CREATE SCHEMA bench;
CREATE TABLE bench.round (round_id text PRIMARY KEY, quorum int NOT NULL, acked int NOT NULL DEFAULT 0, closed_at timestamptz)
    WITH (fillfactor = 60);
CREATE TABLE bench.ack (round_id text NOT NULL, node_id int NOT NULL, acked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
                        PRIMARY KEY (round_id, node_id));
-- Idempotent; the round is closed by whoever brings it to its quorum, and its collector is woken then.
CREATE FUNCTION bench.record_ack(p_round_id text, p_node_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_closes boolean;
BEGIN
    INSERT INTO bench.ack (round_id, node_id) VALUES (p_round_id, p_node_id) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE bench.round SET acked = acked + 1, closed_at = CASE WHEN acked + 1 = quorum THEN clock_timestamp() ELSE closed_at END
     WHERE round_id = p_round_id RETURNING acked = quorum INTO v_closes;
    IF v_closes THEN
        PERFORM pg_notify('bench_round', p_round_id || ' complete');
    END IF;
END $$;
"""


@dataclasses.dataclass
class Contender:
    name: str
    sql: str
    channel: str
    nodes: int = 3
    quorum: int = 2
    envelope: int = 64  # bytes, 64 at least
    first_node: int = 1  # of quorate's; they are numbered on from it
    deadline: str = "5 min"  # of quorate's rounds

    def submit(self, conn, prefix: str, first: int, last: int) -> None:
        """Rounds <prefix><first> to <prefix><last>, in one commit."""
        conn.execute(self.sql, {"prefix": prefix, "first": first, "last": last, "nodes": self.nodes, "quorum": self.quorum,
                                "first_node": self.first_node, "deadline": self.deadline, "filler": bytes(self.envelope - 64)})


def quorate(name: str = "quorate", **options) -> Contender:
    return Contender(name, QUORATE, "quorate_round", **options)


def graphile(**options) -> Contender:
    return Contender("graphile-worker", GRAPHILE, "bench_round", **options)
