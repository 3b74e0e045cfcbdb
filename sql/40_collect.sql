-- Ends of rounds as dealers and collectors see them: collect, settle, cancel, prune.

CREATE OR REPLACE FUNCTION quorate_store.end_due(p_round_no bigint) RETURNS quorate_store.round_state
LANGUAGE plpgsql AS $$
DECLARE
    v_round quorate_store.round;
    v_now timestamptz;
    v_state quorate_store.round_state;
BEGIN
    SELECT r.* INTO v_round FROM quorate_store.round r WHERE r.round_no = p_round_no FOR UPDATE;
    v_now := clock_timestamp(); -- after the lock: an ack that was waiting for it has been stored by now
    v_state := CASE
        WHEN v_round.state = 'open' AND v_now > v_round.deadline_at THEN 'stalled'
        WHEN v_round.state = 'complete' AND v_round.collected_at IS NULL AND v_now > v_round.fresh_until THEN 'dead_lettered'
        ELSE v_round.state END;
    IF v_state IS DISTINCT FROM v_round.state THEN
        UPDATE quorate_store.round r
           SET state = v_state,
               closed_at = COALESCE(r.closed_at, v_now),
               close_reason = COALESCE(r.close_reason, 'deadline'),
               dead_lettered_at = CASE WHEN v_state = 'dead_lettered' THEN v_now END
         WHERE r.round_no = p_round_no;
        PERFORM pg_notify('quorate_round', l.round_id || ' ' || v_state::text)
           FROM quorate_store.ledger l WHERE l.round_no = p_round_no;
    END IF;
    RETURN v_state;
END $$;
COMMENT ON FUNCTION quorate_store.end_due(bigint) IS
    'Stalls or dead-letters one round if that is due, under its row lock; the state then, NULL when the round is gone.';

CREATE OR REPLACE FUNCTION quorate.settle_round(round_id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
#variable_conflict use_variable
DECLARE
    v_round_no bigint;
    v_state quorate_store.round_state;
BEGIN
    IF round_id IS NULL THEN
        PERFORM quorate_store.invalid('settle_round needs a round id, not NULL');
    END IF;
    SELECT l.round_no INTO v_round_no FROM quorate_store.ledger l WHERE l.round_id = settle_round.round_id;
    SELECT r.state INTO v_state FROM quorate_store.round r
     WHERE r.round_no = v_round_no
       AND (r.state IN ('stalled', 'cancelled', 'dead_lettered')
            OR r.state = 'open' AND clock_timestamp() <= r.deadline_at
            OR r.state = 'complete' AND (r.collected_at IS NOT NULL OR r.fresh_until IS NULL OR clock_timestamp() <= r.fresh_until));
    IF v_state IS NULL THEN
        v_state := quorate_store.end_due(v_round_no);
    END IF;
    IF v_state IS NULL THEN
        PERFORM quorate_store.unknown_round(round_id);
    END IF;
    RETURN v_state;
END $$;
COMMENT ON FUNCTION quorate.settle_round(text) IS
'Commits the transition of a round that is due by the database''s clock (open past its deadline: stalled; complete, not collected and past
fresh_until: dead_lettered) and returns the state then. Needs no coordinator.
Errors: QR003, QR007; 55P03 if a due round''s row lock cannot be had within a second. Locks: the round''s row, only when a transition is due.';

CREATE OR REPLACE FUNCTION quorate_store.decide(p_round_id text, p_floor int, OUT round_no bigint, OUT quorum_nodes int[])
LANGUAGE plpgsql AS $$
DECLARE
    v_round quorate_store.round;
    v_now timestamptz;
BEGIN
    IF p_round_id IS NULL THEN
        PERFORM quorate_store.invalid('collect needs a round id, not NULL');
    END IF;
    SELECT r.* INTO v_round FROM quorate_store.ledger l JOIN quorate_store.round r ON r.round_no = l.round_no
     WHERE l.round_id = p_round_id;
    IF NOT FOUND THEN
        PERFORM quorate_store.unknown_round(p_round_id);
    END IF;
    IF p_floor > v_round.quorum OR p_floor < 1 THEN
        PERFORM quorate_store.invalid(format('the collector''s floor %s does not fit the quorum of round "%s", %s',
            p_floor, p_round_id, v_round.quorum), 'Use 1 up to the round''s quorum, or NULL.');
    END IF;
    v_now := clock_timestamp();
    -- A decision that the row read above cannot carry is taken under the row's lock, with the clock read after it.
    IF v_round.state = 'open' AND v_now > v_round.deadline_at OR v_round.state = 'complete' AND v_round.collected_at IS NULL THEN
        SELECT r.* INTO v_round FROM quorate_store.round r WHERE r.round_no = v_round.round_no FOR UPDATE;
        IF NOT FOUND THEN
            PERFORM quorate_store.unknown_round(p_round_id);
        END IF;
        v_now := clock_timestamp();
    END IF;
    IF v_round.state = 'stalled' OR v_round.state = 'open' AND v_now > v_round.deadline_at THEN
        RAISE EXCEPTION 'round "%" stalled: below its quorum of % at its deadline', p_round_id, v_round.quorum
            USING ERRCODE = 'QR001', DETAIL = format('The deadline was %s.', v_round.deadline_at);
    ELSIF v_round.state = 'cancelled' THEN
        RAISE EXCEPTION 'round "%" was cancelled', p_round_id USING ERRCODE = 'QR004', DETAIL = format('Reason: %s', v_round.close_reason);
    ELSIF v_round.state = 'dead_lettered' OR v_round.state = 'complete' AND v_now > v_round.fresh_until THEN
        RAISE EXCEPTION 'round "%" is dead-lettered: it was fresh until %', p_round_id, v_round.fresh_until USING ERRCODE = 'QR002';
    ELSIF v_round.state = 'complete' THEN
        IF v_round.collected_at IS NULL THEN
            UPDATE quorate_store.round r SET collected_at = v_now WHERE r.round_no = v_round.round_no;
        END IF;
        round_no := v_round.round_no;
        quorum_nodes := v_round.quorum_nodes;
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.decide(text, int) IS
    'The rule of collect and collected: both columns NULL while the round is open. Errors: QR001, QR002, QR003, QR004, QR007, 55P03.';

CREATE OR REPLACE FUNCTION quorate.collect(round_id text, quorum int DEFAULT NULL) RETURNS int[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
BEGIN
    RETURN (SELECT d.quorum_nodes FROM quorate_store.decide(collect.round_id, collect.quorum) d);
END $$;
COMMENT ON FUNCTION quorate.collect(text, int) IS
'The nodes whose acks made the quorum, ascending; NULL while the round is open. Everyone who asks gets the same answer; the first one sets collected_at.
quorum: the collector''s own floor, 1 up to the round''s quorum; NULL: none.
Fails closed by itself: past the deadline of a round that still looks open it decides under the round''s row lock, even when no coordinator is alive.
Errors: QR001 stalled, QR002 dead-lettered (always past fresh_until, also if collected before), QR003 unknown, QR004 cancelled, QR007;
55P03 if the lock cannot be had within a second. Locks: the round''s row, for the first collection and past the deadline.';

CREATE OR REPLACE FUNCTION quorate.collected(round_id text)
RETURNS TABLE (node_id int, route text, url text, in_quorum boolean, receipt text, deployment_id text, nonce bigint, quorum int, payload_sha256 bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    v_round_no bigint;
BEGIN
    SELECT d.round_no INTO v_round_no FROM quorate_store.decide(collected.round_id, NULL) d;
    RETURN QUERY
    SELECT a.node_id::int, a.route::text, CASE a.route WHEN 'primary' THEN v.url ELSE v.backup_url END,
           a.node_id = ANY (r.quorum_nodes),
           CASE octet_length(a.receipt) WHEN 32 THEN 'v1,' ELSE 'v1a,' END || translate(encode(a.receipt, 'base64'), E'\n', ''),
           (SELECT p.deployment_id FROM quorate_store.deployment p), l.nonce, r.quorum::int, d.payload_sha256
      FROM quorate_store.round r
      JOIN quorate_store.ledger l ON l.round_no = r.round_no
      JOIN quorate_store.ack a ON a.round_no = r.round_no AND NOT a.late
      LEFT JOIN quorate_store.delivery d ON d.round_no = a.round_no AND d.node_id = a.node_id
      JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, a.node_id)]
     WHERE r.round_no = v_round_no
     ORDER BY a.node_id;
END $$;
COMMENT ON FUNCTION quorate.collected(text) IS
'As collect, with what is needed to fetch the shares: every on-time ack, surplus ones with in_quorum false; no row while the round is open.
receipt: v1a, and the base64 of the node''s Ed25519 signature; or v1, and that of the HMAC-SHA256 by its symmetric secret. deployment_id, nonce,
payload_sha256 and, for how many must verify, quorum: with them a collector who has the nodes'' keys verifies it. Errors and locks as for collect.';

CREATE OR REPLACE FUNCTION quorate.cancel_round(round_id text, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    v_round quorate_store.round;
    v_now timestamptz;
BEGIN
    IF round_id IS NULL OR COALESCE(reason, '') = '' OR length(reason) > 1000 THEN
        PERFORM quorate_store.invalid('cancel_round needs a round id and a reason of 1 to 1000 characters');
    END IF;
    SELECT r.* INTO v_round FROM quorate_store.ledger l JOIN quorate_store.round r ON r.round_no = l.round_no
     WHERE l.round_id = cancel_round.round_id FOR UPDATE OF r;
    IF NOT FOUND THEN
        PERFORM quorate_store.unknown_round(round_id);
    END IF;
    v_now := clock_timestamp();
    IF v_round.state <> 'open' OR v_now > v_round.deadline_at THEN
        RETURN false;
    END IF;
    UPDATE quorate_store.round r SET state = 'cancelled', closed_at = v_now, close_reason = reason WHERE r.round_no = v_round.round_no;
    PERFORM pg_notify('quorate_round', round_id || ' cancelled');
    RETURN true;
END $$;
COMMENT ON FUNCTION quorate.cancel_round(text, text) IS
'Cancels an open round: true; false when it has ended or is past its deadline. reason: 1..1000 characters, kept as close_reason.
Errors: QR003, QR007. Locks: the round''s row until the transaction ends.';

CREATE OR REPLACE FUNCTION quorate.prune_rounds(ended_before timestamptz, max_rounds int DEFAULT 10000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    v_pruned text[];
BEGIN
    IF ended_before IS NULL OR COALESCE(max_rounds, 0) < 1 THEN
        PERFORM quorate_store.invalid('prune_rounds needs a time and a number of rounds above 0');
    END IF;
    WITH old AS (
        SELECT r.round_no FROM quorate_store.round r
         WHERE r.opened_at < ended_before AND r.closed_at < ended_before AND r.settled_at IS NOT NULL
         LIMIT max_rounds FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM quorate_store.round r USING old o WHERE r.round_no = o.round_no RETURNING r.round_no)
    SELECT array_agg(l.round_id) INTO v_pruned FROM gone g JOIN quorate_store.ledger l ON l.round_no = g.round_no;
    DELETE FROM quorate_store.rejection j WHERE j.round_id = ANY (v_pruned);
    DELETE FROM quorate_store.rejection j
     WHERE j.rejection_no IN (SELECT x.rejection_no FROM quorate_store.rejection x
                               WHERE x.rejected_at < ended_before AND x.verdict = 'unknown_round'
                                 AND NOT EXISTS (SELECT FROM quorate_store.ledger l JOIN quorate_store.round r ON r.round_no = l.round_no
                                                  WHERE l.round_id = x.round_id)
                               -- All that are left with the last rounds: who repeats until 0 leaves no old one behind.
                               ORDER BY x.rejection_no LIMIT CASE WHEN cardinality(v_pruned) >= max_rounds THEN max_rounds END);
    RETURN COALESCE(cardinality(v_pruned), 0);
END $$;
COMMENT ON FUNCTION quorate.prune_rounds(timestamptz, int) IS
'Deletes up to max_rounds settled rounds that ended before the time given, with their deliveries, attempts, acks and rejections, and rejections
of unknown rounds as old. The ledger stays: their ids and nonces are never accepted again. Result: how many rounds went.
Repeat until it returns 0. Errors: QR007. Locks: the rows it deletes; locked rounds are skipped.';
