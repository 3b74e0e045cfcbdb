-- What the history notes costs every round, so it notes no more than it needs.

-- As 0004_history.sql has it, but for rounds that settle as they end: the record of the settling says both.
CREATE OR REPLACE FUNCTION quorate_store.history_round() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
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
