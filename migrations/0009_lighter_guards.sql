-- The guards as they were, for less: what a batch of rounds costs grows with the batch, and not with its square.

-- The functions of the coordinators switch hash and merge joins off for what they read themselves, and the triggers that they fire inherit that. With
-- the nested loops that these two switch off no join was left, and the planner took those all the same.
ALTER FUNCTION quorate_store.round_ends() SET enable_hashjoin = on;
ALTER FUNCTION quorate_store.history_round() SET enable_hashjoin = on;

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
