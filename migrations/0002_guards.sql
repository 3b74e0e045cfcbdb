-- The rules that the database enforces against everyone, the tables' owner included (not against DDL): what was used stays used,
-- what has ended stays ended, and nothing completes below quorum. Triggers are ENABLE ALWAYS, so that
-- session_replication_role does not switch them off.

CREATE FUNCTION quorate_store.forbid() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% on %.%: %', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
COMMENT ON FUNCTION quorate_store.forbid() IS 'Refuses the statement with SQLSTATE 23000; the argument says which rule it broke.';

-- No TRUNCATE, ever, and nothing permanent is changed or deleted.

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.deployment
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.node_version
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.node
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.ledger
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.coordinator
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.round
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.delivery
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.envelope
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.attempt
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.ack
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.rejection
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

CREATE TRIGGER deployment_kept BEFORE DELETE ON quorate_store.deployment
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('the deployment is never deleted');
CREATE TRIGGER deployment_id_fixed BEFORE UPDATE ON quorate_store.deployment
    FOR EACH ROW WHEN (NEW.deployment_id IS DISTINCT FROM OLD.deployment_id)
    EXECUTE FUNCTION quorate_store.forbid('the deployment id is signed into receipts and never changes');
CREATE TRIGGER ledger_permanent BEFORE DELETE ON quorate_store.ledger
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('used round ids and nonces are permanent');
CREATE TRIGGER ledger_fixed BEFORE UPDATE ON quorate_store.ledger
    FOR EACH ROW WHEN (NEW.round_no <> OLD.round_no OR NEW.nonce <> OLD.nonce OR NEW.round_id <> OLD.round_id
                       OR OLD.pruned_at IS NOT NULL)
    EXECUTE FUNCTION quorate_store.forbid('used round ids and nonces are permanent');
CREATE TRIGGER node_version_permanent BEFORE UPDATE OR DELETE ON quorate_store.node_version
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('rounds refer to it; add a new version instead');
CREATE TRIGGER node_kept BEFORE DELETE ON quorate_store.node
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('a node is disabled, not deleted');
CREATE TRIGGER coordinator_kept BEFORE DELETE ON quorate_store.coordinator
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('attempts refer to it');
CREATE TRIGGER coordinator_fixed BEFORE UPDATE ON quorate_store.coordinator
    FOR EACH ROW WHEN (NEW.instance_no <> OLD.instance_no OR NEW.instance_id <> OLD.instance_id OR NEW.name <> OLD.name
                       OR OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at)
    EXECUTE FUNCTION quorate_store.forbid('a coordinator keeps its identity, and once fenced it stays fenced');

CREATE FUNCTION quorate_store.ledger_pruned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM quorate_store.round r WHERE r.round_no = NEW.round_no) THEN
        RAISE EXCEPTION 'round_no % is not pruned: it is still there', NEW.round_no USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION quorate_store.ledger_pruned() IS 'A ledger entry says pruned only once its round is gone.';
CREATE TRIGGER ledger_pruned BEFORE UPDATE OF pruned_at ON quorate_store.ledger
    FOR EACH ROW EXECUTE FUNCTION quorate_store.ledger_pruned();

-- Rounds.

CREATE FUNCTION quorate_store.round_begins() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wrong record;
BEGIN
    SELECT x.round_no, x.fault INTO v_wrong
      FROM (SELECT n.round_no, CASE
              WHEN n.state <> 'open' OR num_nonnulls(n.claimed_at, n.claimed_by, n.claimed_nodes, n.escalated_at, n.closed_at,
                        n.collected_at, n.dead_lettered_at, n.settled_at, n.quorum_nodes, n.close_reason) > 0
                  THEN 'a round begins open, unclaimed and unescalated'
              -- After the insert, which may have waited for the key of a round that was being pruned.
              WHEN (SELECT l.pruned_at IS NULL FROM quorate_store.ledger l WHERE l.round_no = n.round_no) IS NOT TRUE
                  THEN 'a round has an entry in the ledger, and begins only once, also after it was pruned'
              WHEN cardinality(n.node_ids) NOT BETWEEN 1 AND 255 OR cardinality(n.node_versions) <> cardinality(n.node_ids)
                  THEN 'a round has 1 to 255 nodes, and a version of each'
              WHEN n.quorum NOT BETWEEN 1 AND cardinality(n.node_ids) THEN 'the quorum is 1 up to the number of nodes'
              WHEN n.retry_budget NOT BETWEEN 1 AND 100 OR n.per_share_timeout <= interval '0'
                   OR n.base_backoff <= interval '0' OR n.base_backoff > n.max_backoff
                  THEN 'the policy is a retry_budget of 1 to 100 and durations above 0, base_backoff at most max_backoff'
              WHEN n.opened_at >= n.deadline_at OR n.escalate_at NOT BETWEEN n.opened_at AND n.deadline_at OR n.fresh_until < n.deadline_at
                  THEN 'a round is opened, then escalates, then reaches its deadline, then is fresh no more'
              END AS fault
              FROM added n) x
     WHERE x.fault IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'round_no %: %', v_wrong.round_no, v_wrong.fault USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.round_begins() IS
    'A round begins open, with nodes, a quorum, a policy and times that make sense, and a pruned one never begins again.';
CREATE TRIGGER round_begins AFTER INSERT ON quorate_store.round
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.round_begins();

CREATE FUNCTION quorate_store.round_changes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- The first rule that the row breaks. One expression: it is compiled once a transaction, and a row costs a few microseconds.
    v_fault text := CASE
        WHEN NEW.round_no <> OLD.round_no OR NEW.quorum <> OLD.quorum OR NEW.node_ids <> OLD.node_ids
             OR NEW.node_versions <> OLD.node_versions OR NEW.retry_budget <> OLD.retry_budget OR NEW.after_quorum <> OLD.after_quorum
             OR NEW.per_share_timeout <> OLD.per_share_timeout OR NEW.base_backoff <> OLD.base_backoff OR NEW.max_backoff <> OLD.max_backoff
             OR NEW.opened_at <> OLD.opened_at OR NEW.escalate_at <> OLD.escalate_at OR NEW.deadline_at <> OLD.deadline_at
             OR NEW.fresh_until IS DISTINCT FROM OLD.fresh_until
            THEN 'quorum, nodes, policy and times are fixed when a round is opened'
        WHEN OLD.claimed_at IS NOT NULL AND (NEW.claimed_at IS DISTINCT FROM OLD.claimed_at OR NEW.claimed_by IS DISTINCT FROM OLD.claimed_by
                                             OR NEW.claimed_nodes IS DISTINCT FROM OLD.claimed_nodes)
            THEN 'its first claim is written once'
        WHEN num_nulls(NEW.claimed_at, NEW.claimed_by, NEW.claimed_nodes) NOT IN (0, 3)
             OR OLD.claimed_at IS NULL AND NEW.claimed_at IS NOT NULL AND (OLD.state <> 'open' OR NEW.claimed_at > NEW.deadline_at OR NOT NEW.claimed_nodes <@ NEW.node_ids
                                            OR array_position(NEW.claimed_nodes, NULL) IS NOT NULL)
            THEN 'a first claim reserves attempts to nodes of an open round, before its deadline'
        WHEN OLD.escalated_at IS NOT NULL AND NEW.escalated_at IS DISTINCT FROM OLD.escalated_at
             OR OLD.closed_at IS NOT NULL AND (NEW.closed_at IS DISTINCT FROM OLD.closed_at OR NEW.close_reason IS DISTINCT FROM OLD.close_reason
                                               OR NEW.quorum_nodes IS DISTINCT FROM OLD.quorum_nodes
                                               OR NEW.escalated_at IS DISTINCT FROM OLD.escalated_at)
             OR OLD.collected_at IS NOT NULL AND NEW.collected_at IS DISTINCT FROM OLD.collected_at
             OR OLD.dead_lettered_at IS NOT NULL AND NEW.dead_lettered_at IS DISTINCT FROM OLD.dead_lettered_at
             OR OLD.settled_at IS NOT NULL AND NEW.settled_at IS DISTINCT FROM OLD.settled_at
            THEN 'its escalation and its end are written once'
        WHEN NEW.state <> OLD.state AND NOT (OLD.state = 'open' AND NEW.state <> 'dead_lettered'
                                             OR OLD.state = 'complete' AND NEW.state = 'dead_lettered')
            THEN format('no way leads from %s to %s', OLD.state, NEW.state)
        WHEN NEW.escalated_at < NEW.escalate_at OR NEW.escalated_at > NEW.deadline_at THEN 'a round escalates between half-time and deadline'
        WHEN (NEW.state = 'open') <> (NEW.closed_at IS NULL) THEN 'a round has closed_at once it has ended'
        WHEN (NEW.state IN ('complete', 'dead_lettered')) <> (NEW.quorum_nodes IS NOT NULL)
            THEN 'quorum_nodes are those of a complete or dead-lettered round'
        WHEN cardinality(NEW.quorum_nodes) < NEW.quorum OR NOT NEW.quorum_nodes <@ NEW.node_ids
            THEN format('%s nodes are no quorum of %s', cardinality(NEW.quorum_nodes), NEW.quorum)
        WHEN NEW.quorum_nodes IS NOT NULL AND NEW.closed_at > NEW.deadline_at THEN 'a round completes before its deadline'
        WHEN NEW.state = 'stalled' AND NEW.closed_at <= NEW.deadline_at THEN 'a round stalls after its deadline'
        WHEN (NEW.state = 'dead_lettered') <> (NEW.dead_lettered_at IS NOT NULL) THEN 'dead_lettered_at is that of a dead-lettered round'
        WHEN NEW.dead_lettered_at IS NOT NULL AND (NEW.collected_at IS NOT NULL OR NEW.fresh_until IS NULL OR NEW.dead_lettered_at <= NEW.fresh_until)
            THEN 'a round is dead-lettered when it is fresh no more and nobody has collected it'
        WHEN NEW.collected_at IS NOT NULL AND NEW.quorum_nodes IS NULL THEN 'only a complete round is collected'
        WHEN NEW.settled_at IS NOT NULL AND NEW.closed_at IS NULL THEN 'only a round that has ended settles'
        END;
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'round_no %: %', OLD.round_no, v_fault USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION quorate_store.round_changes() IS
    'What was fixed at opening stays, what was written once stays, and a round changes only as its life allows; see round_ends for what other tables say.';
CREATE TRIGGER round_changes BEFORE UPDATE ON quorate_store.round
    FOR EACH ROW EXECUTE FUNCTION quorate_store.round_changes();

CREATE FUNCTION quorate_store.round_ends() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
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
COMMENT ON FUNCTION quorate_store.round_ends() IS
    'A round completes with exactly its on-time acks (round_changes holds their number against the quorum), and settles with no payload '
    'left and no attempt under way.';
CREATE TRIGGER round_ends AFTER UPDATE ON quorate_store.round
    REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.round_ends();

CREATE TRIGGER round_kept BEFORE DELETE ON quorate_store.round
    FOR EACH ROW WHEN (OLD.settled_at IS NULL)
    EXECUTE FUNCTION quorate_store.forbid('only a settled round can be deleted');

CREATE FUNCTION quorate_store.round_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM quorate_store.delivery d USING gone g WHERE d.round_no = g.round_no;
    DELETE FROM quorate_store.attempt a USING gone g WHERE a.round_no = g.round_no;
    DELETE FROM quorate_store.ack k USING gone g WHERE k.round_no = g.round_no;
    UPDATE quorate_store.ledger l SET pruned_at = clock_timestamp() FROM gone g WHERE l.round_no = g.round_no;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.round_deleted() IS 'A settled round is deleted whole: its deliveries, attempts and acks go with it, and the ledger keeps when.';
CREATE TRIGGER round_deleted AFTER DELETE ON quorate_store.round
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.round_deleted();

-- Rows of a round: inserted only where they belong, never changed, deleted only together with their round. The checks look the
-- round up row by row through correlated scalar subqueries, which the planner can neither hash nor join: whatever it believes, that is
-- one index probe for each. FOR SHARE: a round that is ending meanwhile is waited for, so that no envelope outlives its settling.

CREATE FUNCTION quorate_store.delivery_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM added n
                WHERE n.payload_bytes NOT BETWEEN 1 AND 16777216 OR octet_length(n.payload_sha256) <> 32
                   OR (SELECT r.state = 'open' AND n.node_id = ANY (r.node_ids)
                         FROM quorate_store.round r WHERE r.round_no = n.round_no FOR SHARE) IS NOT TRUE) THEN
        RAISE EXCEPTION 'a delivery belongs to a node of an open round, and has a size of 1 byte to 16 MiB and a SHA-256'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER delivery_belongs AFTER INSERT ON quorate_store.delivery
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.delivery_belongs();

CREATE FUNCTION quorate_store.envelope_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM added n
                WHERE (SELECT r.state FROM quorate_store.round r WHERE r.round_no = n.round_no FOR SHARE) IS DISTINCT FROM 'open'
                   OR (SELECT d.payload_bytes FROM quorate_store.delivery d
                        WHERE d.round_no = n.round_no AND d.node_id = n.node_id)
                      IS DISTINCT FROM octet_length(n.payload)) THEN
        RAISE EXCEPTION 'an envelope belongs to its delivery in an open round, and has its size'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER envelope_belongs AFTER INSERT ON quorate_store.envelope
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.envelope_belongs();

CREATE FUNCTION quorate_store.attempt_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM added n
                WHERE (SELECT CASE WHEN n.route = 'primary' AND n.attempt = 1 AND n.node_id = ANY (r.claimed_nodes)
                                   -- The claim reserved it: this writes it out.
                                   THEN n.reserved_at = r.claimed_at
                                   ELSE (r.state = 'open' OR r.state = 'complete' AND r.after_quorum = 'continue')
                                        AND n.attempt <= r.retry_budget AND n.reserved_at <= r.deadline_at
                                        AND (n.route = 'primary' OR r.escalated_at IS NOT NULL) END
                              AND r.settled_at IS NULL
                         FROM quorate_store.round r WHERE r.round_no = n.round_no) IS NOT TRUE
                   OR (SELECT true FROM quorate_store.delivery d
                        WHERE d.round_no = n.round_no AND d.node_id = n.node_id) IS NULL) THEN
        RAISE EXCEPTION 'an attempt belongs to a delivery, inside its round''s life, budget and deadline, '
                        'and takes the backup only after the escalation' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER attempt_belongs AFTER INSERT ON quorate_store.attempt
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.attempt_belongs();

CREATE FUNCTION quorate_store.ack_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM added n
                WHERE n.http_status NOT BETWEEN 100 AND 999
                   OR (SELECT octet_length(n.receipt) = CASE WHEN starts_with(v.receipt_key, 'whid_') THEN 32 ELSE 64 END
                              AND (n.late OR r.state IN ('open', 'complete') AND n.acked_at <= r.deadline_at)
                              AND (n.route = 'primary' AND n.attempt = 1 AND n.node_id = ANY (r.claimed_nodes)
                                   OR (SELECT true FROM quorate_store.attempt a
                                        WHERE a.round_no = n.round_no AND a.node_id = n.node_id
                                          AND a.route = n.route AND a.attempt = n.attempt))
                         FROM quorate_store.round r
                         JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, n.node_id)]
                        WHERE r.round_no = n.round_no) IS NOT TRUE) THEN
        RAISE EXCEPTION 'an ack has a receipt of its node''s kind (64 bytes by a key, 32 by a secret), belongs to a committed attempt, and is on time only in an open or complete round before its deadline'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ack_belongs AFTER INSERT ON quorate_store.ack
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.ack_belongs();

CREATE TRIGGER delivery_frozen BEFORE UPDATE ON quorate_store.delivery
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('a delivery never changes');
CREATE TRIGGER envelope_frozen BEFORE UPDATE ON quorate_store.envelope
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('an envelope never changes');
CREATE TRIGGER ack_frozen BEFORE UPDATE ON quorate_store.ack
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('an ack never changes');
CREATE TRIGGER rejection_frozen BEFORE UPDATE ON quorate_store.rejection
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('a rejection never changes');
CREATE TRIGGER attempt_frozen BEFORE UPDATE ON quorate_store.attempt
    FOR EACH ROW WHEN (OLD.outcome IS NOT NULL OR NEW.round_no <> OLD.round_no OR NEW.node_id <> OLD.node_id
                       OR NEW.route <> OLD.route OR NEW.attempt <> OLD.attempt OR NEW.reserved_at <> OLD.reserved_at
                       OR NEW.resends < OLD.resends)
    EXECUTE FUNCTION quorate_store.forbid('an attempt keeps its key and time, and its outcome is written once');

CREATE FUNCTION quorate_store.goes_with_round() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gone g WHERE (SELECT true FROM quorate_store.round r WHERE r.round_no = g.round_no)) THEN
        RAISE EXCEPTION 'DELETE on %.%: rows of a round go only together with their settled round', TG_TABLE_SCHEMA, TG_TABLE_NAME
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION quorate_store.goes_with_round() IS 'Refuses a DELETE of rows whose round is still there.';
CREATE TRIGGER delivery_kept AFTER DELETE ON quorate_store.delivery
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.goes_with_round();
CREATE TRIGGER attempt_kept AFTER DELETE ON quorate_store.attempt
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.goes_with_round();
CREATE TRIGGER ack_kept AFTER DELETE ON quorate_store.ack
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.goes_with_round();

CREATE FUNCTION quorate_store.envelope_erased() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gone g
                WHERE (SELECT r.state FROM quorate_store.round r WHERE r.round_no = g.round_no) = 'open'
                  AND (SELECT true FROM quorate_store.ack k
                        WHERE k.round_no = g.round_no AND k.node_id = g.node_id) IS NULL) THEN
        RAISE EXCEPTION 'an envelope of an open round is erased only once its node has acked it'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER envelope_erased AFTER DELETE ON quorate_store.envelope
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.envelope_erased();

CREATE FUNCTION quorate_store.rejection_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM gone g JOIN quorate_store.ledger l ON l.round_id = g.round_id
                 JOIN quorate_store.round r ON r.round_no = l.round_no) THEN
        RAISE EXCEPTION 'rejections of a round go only after their round' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER rejection_kept AFTER DELETE ON quorate_store.rejection
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.rejection_kept();

DO $$
DECLARE
    v_trigger record;
BEGIN
    FOR v_trigger IN
        SELECT t.tgrelid::regclass AS relation, t.tgname AS name
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'quorate_store'::regnamespace AND NOT t.tgisinternal
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', v_trigger.relation, v_trigger.name);
    END LOOP;
END $$;
