-- The guards as they were, for less: what a batch of rounds costs grows with the batch, and not with its square.

-- As 0002_guards.sql has it; but the functions of the coordinators switch hash and merge joins off for what they read themselves. With the nested
-- loops that this one switches off no join was left, and the planner took those all the same.
CREATE OR REPLACE FUNCTION quorate_store.round_ends() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_nestloop = off SET enable_hashjoin = on AS $$
DECLARE
    v_wrong record;
BEGIN
    IF NOT EXISTS (SELECT FROM after n WHERE n.closed_at IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    SELECT x.round_no, x.fault INTO v_wrong
      FROM (SELECT n.round_no, CASE
              WHEN b.state = 'open' AND n.state = 'complete' AND n.quorum_nodes IS DISTINCT FROM
                   (SELECT array_agg(a.node_id ORDER BY a.node_id) FROM quorate_store.ack a WHERE a.round_no = n.round_no AND NOT a.late)
                  THEN format('it cannot complete with quorum_nodes %s: they are not those of its on-time acks', n.quorum_nodes)
              WHEN b.settled_at IS NULL AND n.settled_at IS NOT NULL AND (
                   (SELECT count(*) FROM quorate_store.envelope e WHERE e.round_no = n.round_no) > 0
                   OR (SELECT count(*) FROM quorate_store.attempt a WHERE a.round_no = n.round_no AND a.outcome IS NULL) > 0
                   OR (SELECT count(*) FROM unnest(n.claimed_nodes) AS c (node_id)
                        WHERE (SELECT k.attempt = 1 AND k.route = 'primary' FROM quorate_store.ack k
                                WHERE k.round_no = n.round_no AND k.node_id = c.node_id) IS NOT TRUE
                          AND (SELECT true FROM quorate_store.attempt a WHERE a.round_no = n.round_no AND a.node_id = c.node_id
                                                                          AND a.route = 'primary' AND a.attempt = 1) IS NULL) > 0)
                  THEN 'it cannot settle: it still holds envelopes, or an attempt has no outcome yet'
              END AS fault
              FROM before b JOIN after n ON n.round_no = b.round_no) x
     WHERE x.fault IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'round_no %: %', v_wrong.round_no, v_wrong.fault USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

-- As 0008_lighter_notes.sql has it; hash joins as above.
CREATE OR REPLACE FUNCTION quorate_store.history_round() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_nestloop = off SET enable_hashjoin = on AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM after n WHERE n.closed_at IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    INSERT INTO quorate_store.history_due (key, kind)
    SELECT n.round_no, e.kind
      FROM before b JOIN after n ON n.round_no = b.round_no
     CROSS JOIN LATERAL (VALUES ('ended'::quorate_store.history_kind, b.closed_at IS NULL AND n.closed_at IS NOT NULL AND n.settled_at IS NULL),
                                ('settled', b.settled_at IS NULL AND n.settled_at IS NOT NULL),
                                ('collected', b.collected_at IS NULL AND n.collected_at IS NOT NULL),
                                ('dead_lettered', b.dead_lettered_at IS NULL AND n.dead_lettered_at IS NOT NULL)) AS e (kind, happened)
     WHERE e.happened;
    RETURN NULL;
END $$;

-- As 0002_guards.sql has them; but a round is looked up and locked once, not once for each of its rows.
CREATE OR REPLACE FUNCTION quorate_store.delivery_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM (SELECT n.round_no, array_agg(n.node_id) AS node_ids,
                                   bool_or(n.payload_bytes NOT BETWEEN 1 AND 16777216 OR octet_length(n.payload_sha256) <> 32) AS misfit
                              FROM added n GROUP BY n.round_no) x
                WHERE x.misfit OR (SELECT r.state = 'open' AND x.node_ids <@ r.node_ids
                                     FROM quorate_store.round r WHERE r.round_no = x.round_no FOR SHARE) IS NOT TRUE) THEN
        RAISE EXCEPTION 'a delivery belongs to a node of an open round, and has a size of 1 byte to 16 MiB and a SHA-256'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION quorate_store.envelope_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM (SELECT n.round_no FROM added n GROUP BY n.round_no) x
                WHERE (SELECT r.state FROM quorate_store.round r WHERE r.round_no = x.round_no FOR SHARE) IS DISTINCT FROM 'open')
       OR EXISTS (SELECT FROM added n
                   WHERE (SELECT d.payload_bytes FROM quorate_store.delivery d WHERE d.round_no = n.round_no AND d.node_id = n.node_id)
                         IS DISTINCT FROM octet_length(n.payload)) THEN
        RAISE EXCEPTION 'an envelope belongs to its delivery in an open round, and has its size'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
