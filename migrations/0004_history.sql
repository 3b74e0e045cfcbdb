-- History that shows tampering: what happened is noted in a queue by the transaction in which it happens, and a coordinator turns
-- the queue into a chain of hashes, which it signs now and then. See docs/history.md; sql/60_history.sql makes the records.

-- All locks at once, and acks before rounds, as record() takes them: nobody who writes meets this half-way and deadlocks.
LOCK TABLE quorate_store.ack, quorate_store.rejection, quorate_store.round, quorate_store.node_version, quorate_store.node,
           quorate_store.deployment, quorate_store.coordinator IN SHARE ROW EXCLUSIVE MODE;

CREATE TYPE quorate_store.history_kind AS ENUM
    ('began', 'imported', 'deployment', 'coordinator', 'node', 'node_version', 'ended', 'settled', 'acked', 'collected', 'dead_lettered',
     'pruned', 'rejected', 'forgotten', 'checkpoint');

-- What has happened and is not in the chain yet. In the order of due_no as far as one key goes: whoever notes holds that key's row lock.
CREATE TABLE quorate_store.history_due (
    due_no bigint GENERATED ALWAYS AS IDENTITY,
    key    bigint NOT NULL,
    kind   quorate_store.history_kind NOT NULL,
    note   json -- of pruned and forgotten: {kind: [digest, parts]} of the records whose rows have gone
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- Not unique: a sequence that gives a number twice, as one does after a crash of a database that was copied from a used one, must keep
-- no round from its end.
CREATE INDEX history_due_order ON quorate_store.history_due (due_no);
CREATE INDEX history_due_gone ON quorate_store.history_due (key) WHERE kind IN ('pruned', 'forgotten');

-- The chain. The records themselves are not here: they are made anew from the rows that they are about, but for those of rows that
-- change and keep no past.
CREATE TABLE quorate_store.history (
    seq    bigint PRIMARY KEY CHECK (seq > 0),
    at     timestamptz NOT NULL,
    key    bigint NOT NULL, -- round_no, rejection_no, version, node_id, instance_no, checkpoint_no; 0 where there is only one
    kind   quorate_store.history_kind NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32), -- SHA-256 of the record
    hash   bytea NOT NULL CHECK (octet_length(hash) = 32),   -- SHA-256 of the hash before and this entry
    parts  bytea NOT NULL,  -- four bytes for each part of the record, so that the one that does not fit can be named
    record text
);
CREATE INDEX history_key ON quorate_store.history (key, kind);

-- Signatures over the head of the chain.
CREATE TABLE quorate_store.checkpoint (
    checkpoint_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq           bigint NOT NULL,
    at            timestamptz NOT NULL,
    hash          bytea NOT NULL CHECK (octet_length(hash) = 32),
    signature     bytea NOT NULL CHECK (octet_length(signature) = 64),
    key           text NOT NULL CHECK (key ~ '^whpk_[A-Za-z0-9+/]{43}=$'),
    UNIQUE (key, seq)
);

-- What was there before the history began, and how much of it has been taken over into the chain.
CREATE TABLE quorate_store.history_import (
    singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    rounds         bigint NOT NULL, -- the last round_no of before
    rejections     bigint NOT NULL, -- the last rejection_no of before
    next_round     bigint NOT NULL DEFAULT 1,
    next_rejection bigint NOT NULL DEFAULT 1
);

-- Noting. One statement for a whole batch, nothing is looked up but what the statement itself changed, and nothing is computed.

CREATE FUNCTION quorate_store.history_round() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM after n WHERE n.closed_at IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    INSERT INTO quorate_store.history_due (key, kind)
    SELECT n.round_no, e.kind
      FROM before b JOIN after n ON n.round_no = b.round_no
     CROSS JOIN LATERAL (VALUES ('ended'::quorate_store.history_kind, b.closed_at IS NULL AND n.closed_at IS NOT NULL),
                                ('settled', b.settled_at IS NULL AND n.settled_at IS NOT NULL),
                                ('collected', b.collected_at IS NULL AND n.collected_at IS NOT NULL),
                                ('dead_lettered', b.dead_lettered_at IS NULL AND n.dead_lettered_at IS NOT NULL)) AS e (kind, happened)
     WHERE e.happened;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.history_round() IS 'Notes which rounds ended, settled, were collected or dead-lettered.';

CREATE FUNCTION quorate_store.history_acked() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorate_store.history_due (key, kind)
    SELECT n.round_no, 'acked' FROM added n
     WHERE (SELECT r.settled_at FROM quorate_store.round r WHERE r.round_no = n.round_no) IS NOT NULL;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.history_acked() IS 'Notes acks of rounds that are settled already: the record of the settling lacks them.';

CREATE FUNCTION quorate_store.history_pruned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorate_store.history_due (key, kind, note)
    SELECT (x.r).round_no, 'pruned', json_object_agg(x.kind, json_build_array(encode(x.digest, 'hex'), encode(x.parts, 'hex')))
      FROM (SELECT w.rounds[q.i] AS r, w.kinds[q.i] AS kind, q.digest, q.parts
              FROM (SELECT array_agg(ROW(g.*)::quorate_store.round) AS rounds, array_agg(e.kind) AS kinds
                      FROM gone g
                     CROSS JOIN LATERAL (VALUES ('ended'::quorate_store.history_kind, true), ('settled', true),
                                                ('collected', g.collected_at IS NOT NULL),
                                                ('dead_lettered', g.dead_lettered_at IS NOT NULL)) AS e (kind, happened)
                     WHERE e.happened) w
             CROSS JOIN LATERAL quorate_store.round_records(w.rounds, w.kinds) q) x
     GROUP BY (x.r).round_no ORDER BY (x.r).round_no;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.history_pruned() IS
    'Notes which rounds were deleted, with the digests of their records, made a last time. By its name it comes before round_deleted.';

CREATE FUNCTION quorate_store.history_rejected() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorate_store.history_due (key, kind) SELECT n.rejection_no, 'rejected' FROM added n;
    RETURN NULL;
END $$;

CREATE FUNCTION quorate_store.history_forgotten() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorate_store.history_due (key, kind, note)
    SELECT g.rejection_no, 'forgotten',
           json_build_object('rejected', json_build_array(encode(sha256(convert_to(quorate_store.rejection_record(ROW(g.*)::quorate_store.rejection), 'UTF8')), 'hex'), ''))
      FROM gone g;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.history_forgotten() IS 'Notes which rejections were deleted, with the digests of their records.';

CREATE FUNCTION quorate_store.history_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorate_store.history_due (key, kind)
    VALUES (CASE TG_TABLE_NAME WHEN 'deployment' THEN 0 ELSE (to_jsonb(NEW) ->> TG_ARGV[0])::bigint END, TG_TABLE_NAME::quorate_store.history_kind);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.history_changed() IS 'Notes a row of a small table as it is now; the argument is its key''s column.';

CREATE TRIGGER history_round AFTER UPDATE ON quorate_store.round
    REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_round();
CREATE TRIGGER history_pruned AFTER DELETE ON quorate_store.round
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_pruned();
CREATE TRIGGER history_acked AFTER INSERT ON quorate_store.ack
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_acked();
CREATE TRIGGER history_rejected AFTER INSERT ON quorate_store.rejection
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_rejected();
CREATE TRIGGER history_forgotten AFTER DELETE ON quorate_store.rejection
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_forgotten();
CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.node
    FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('node_id');
CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.node_version
    FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('version');
CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.deployment
    FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed();
CREATE TRIGGER history_changed AFTER INSERT ON quorate_store.coordinator
    FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('instance_no');
CREATE TRIGGER history_ended AFTER UPDATE ON quorate_store.coordinator
    FOR EACH ROW WHEN (OLD.ended_at IS DISTINCT FROM NEW.ended_at) EXECUTE FUNCTION quorate_store.history_changed('instance_no');
CREATE TRIGGER history_changed AFTER INSERT ON quorate_store.checkpoint
    FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('checkpoint_no');

-- Guards.

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.history
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.history_due
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.history_import
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.checkpoint
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER history_permanent BEFORE UPDATE OR DELETE ON quorate_store.history
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('the chain only grows');
CREATE TRIGGER checkpoint_permanent BEFORE UPDATE OR DELETE ON quorate_store.checkpoint
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('checkpoints are permanent');
CREATE TRIGGER history_due_frozen BEFORE UPDATE ON quorate_store.history_due
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('what has happened never changes');
CREATE TRIGGER history_import_kept BEFORE DELETE ON quorate_store.history_import
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('it says what was there before the history');

CREATE FUNCTION quorate_store.history_chained() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gone g WHERE (SELECT h.seq FROM quorate_store.history h
                                          WHERE h.key = g.key AND (h.kind = g.kind OR g.kind = 'ended' AND h.kind = 'settled') LIMIT 1) IS NULL) THEN
        RAISE EXCEPTION 'what has happened stays noted until it is in the chain' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER history_chained AFTER DELETE ON quorate_store.history_due
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_chained();

DO $$
DECLARE
    v_trigger record;
BEGIN
    FOR v_trigger IN
        SELECT t.tgrelid::regclass AS relation, t.tgname AS name
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'quorate_store'::regnamespace AND NOT t.tgisinternal AND t.tgenabled <> 'A'
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', v_trigger.relation, v_trigger.name);
    END LOOP;
END $$;

-- What is there already. The triggers are here, and with them the locks that keep writers away until the end of this transaction.

INSERT INTO quorate_store.history_import (rounds, rejections)
SELECT COALESCE((SELECT max(l.round_no) FROM quorate_store.ledger l), 0), COALESCE((SELECT max(j.rejection_no) FROM quorate_store.rejection j), 0);
INSERT INTO quorate_store.history_due (key, kind)
SELECT x.key, x.kind
  FROM (SELECT 1 AS place, 0::bigint AS key, 'deployment'::quorate_store.history_kind AS kind FROM quorate_store.deployment
        UNION ALL SELECT 2, v.version, 'node_version' FROM quorate_store.node_version v
        UNION ALL SELECT 3, n.node_id, 'node' FROM quorate_store.node n
        UNION ALL SELECT 4, c.instance_no, 'coordinator' FROM quorate_store.coordinator c) x
 ORDER BY x.place, x.key;
