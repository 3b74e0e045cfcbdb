-- Delivering: retries are reserved, outcomes and acks recorded, rounds escalated and settled; each call takes a whole batch.
--
-- Rows are looked up through correlated scalar subqueries where it matters: they can be neither hashed nor joined in another order, so that a
-- plan made in a quiet hour does not read whole tables later.
--
-- None of these waits for a row lock: a round that someone else holds is reported as locked, and the coordinator brings its
-- rows again in a later batch. So no dealer's open transaction can stop a coordinator, and two batches never deadlock.

CREATE OR REPLACE FUNCTION quorate_worker.reserve(p_instance int, p_round_nos bigint[], p_node_ids smallint[], p_routes text[], p_attempts smallint[])
RETURNS TABLE (round_no bigint, node_id smallint, route text, attempt smallint, granted boolean, state text, now_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_alive boolean := quorate_store.enter_batch(p_instance);
    v_locked bigint[];
    v_now timestamptz;
BEGIN
    v_locked := ARRAY(SELECT r.round_no FROM quorate_store.round r
                       WHERE r.round_no = ANY (p_round_nos) AND r.owner = p_instance AND v_alive
                       ORDER BY r.round_no FOR NO KEY UPDATE SKIP LOCKED);
    v_now := clock_timestamp();
    IF 1 = ANY (p_attempts) THEN -- the claim may have reserved it
        PERFORM quorate_store.write_out(v_locked, NULL);
    END IF;
    RETURN QUERY
    WITH asked AS (
        SELECT u.round_no, u.node_id, u.route::quorate_store.route AS route, u.attempt
          FROM unnest(p_round_nos, p_node_ids, p_routes, p_attempts) AS u (round_no, node_id, route, attempt)),
    reserved AS (
        INSERT INTO quorate_store.attempt AS a (round_no, node_id, route, attempt, owner, reserved_at)
        SELECT q.round_no, q.node_id, q.route, q.attempt, p_instance, v_now
          FROM asked q
          JOIN quorate_store.round r ON r.round_no = q.round_no AND v_now <= r.deadline_at AND q.attempt <= r.retry_budget
                                    AND (r.state = 'open' OR r.state = 'complete' AND r.after_quorum = 'continue')
         WHERE q.round_no = ANY (v_locked)
           AND (SELECT true FROM quorate_store.ack k WHERE k.round_no = q.round_no AND k.node_id = q.node_id) IS NULL
        -- Reserved before and without an outcome: by a predecessor, so it is sent again under the same number; or by this instance in a
        -- batch whose commit it did not hear of, so it has not been sent yet.
        ON CONFLICT ON CONSTRAINT attempt_pkey DO UPDATE
            SET resends = a.resends + (a.owner <> EXCLUDED.owner)::int, owner = EXCLUDED.owner
            WHERE a.outcome IS NULL
        RETURNING a.round_no, a.node_id, a.route, a.attempt)
    SELECT q.round_no, q.node_id, q.route::text, q.attempt, q.granted,
           CASE WHEN NOT v_alive OR r.owner <> p_instance THEN 'fenced'
                WHEN r.round_no IS NULL THEN 'gone'
                WHEN q.round_no <> ALL (v_locked) THEN 'locked'
                ELSE r.state::text END,
           (extract(epoch FROM v_now) * 1000000)::bigint
      FROM (SELECT x.round_no, x.node_id, x.route, x.attempt, bool_or(x.granted) AS granted
              FROM (SELECT a.*, false AS granted FROM asked a UNION ALL SELECT g.*, true FROM reserved g) x
             GROUP BY x.round_no, x.node_id, x.route, x.attempt) q
      LEFT JOIN quorate_store.round r ON r.round_no = q.round_no;
END $$;
COMMENT ON FUNCTION quorate_worker.reserve(int, bigint[], smallint[], text[], smallint[]) IS
'Reserves attempts of rounds that the instance owns: rows that must be committed before their requests are sent. Arrays of one length, no key twice.
Result, a row per attempt asked for: granted, or not because the node has acked, the deadline has passed or the round has ended; state: the round''s, or
locked (ask again), fenced (the instance lost it) or gone (pruned). Idempotent by key.';

CREATE OR REPLACE FUNCTION quorate_store.under_way(p_round_no bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM quorate_store.attempt_state a WHERE a.round_no = p_round_no AND a.outcome IS NULL);
END $$;
COMMENT ON FUNCTION quorate_store.under_way(bigint) IS 'True while an attempt of the round has no outcome. Not inlined: where it is seldom asked, it shall cost nothing else.';

CREATE OR REPLACE FUNCTION quorate_store.record_outcomes(
    p_instance int, p_now timestamptz, p_which bigint[], p_round_nos bigint[], p_node_ids smallint[], p_routes text[],
    p_attempts smallint[], p_outcomes text[], p_statuses smallint[], p_retry_us bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM quorate_store.write_out(array_agg(p_round_nos[i]), array_agg(p_node_ids[i]))
       FROM unnest(p_which) AS i WHERE p_routes[i] = 'primary' AND p_attempts[i] = 1 HAVING count(*) > 0;
    -- Fencing: only whom the attempt belongs to writes its outcome, and only once; the round's owner says in_doubt for a predecessor.
    UPDATE quorate_store.attempt a
       SET outcome = u.outcome::quorate_store.outcome, finished_at = p_now, http_status = u.status,
           -- (At most 100 years: the history counts times in microseconds, and some that a timestamp holds are too many for it.)
           retry_at = p_now + CASE WHEN u.retry_us > 3155760000000000 THEN 3155760000000000 ELSE u.retry_us END * interval '1 microsecond'
      FROM (SELECT p_round_nos[i] AS round_no, p_node_ids[i] AS node_id, p_routes[i] AS route, p_attempts[i] AS attempt,
                   p_outcomes[i] AS outcome, p_statuses[i] AS status, p_retry_us[i] AS retry_us FROM unnest(p_which) AS i) u
      JOIN quorate_store.round r ON r.round_no = u.round_no
     WHERE a.round_no = u.round_no AND a.node_id = u.node_id AND a.route = u.route::quorate_store.route AND a.attempt = u.attempt
       AND a.outcome IS NULL AND (a.owner = p_instance OR u.outcome = 'in_doubt' AND r.owner = p_instance);
END $$;
COMMENT ON FUNCTION quorate_store.record_outcomes(int, timestamptz, bigint[], bigint[], smallint[], text[], smallint[], text[], smallint[], bigint[]) IS
'Writes outcomes that no ack says, those of the subscripts p_which, into the rows of their attempts. The other arguments are those of record.';

CREATE OR REPLACE FUNCTION quorate_store.note_acked(p_round_no bigint, p_now timestamptz) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO quorate_store.history_due (key, kind)
    SELECT r.round_no, 'acked' FROM quorate_store.round r
     WHERE r.round_no = p_round_no
       AND EXISTS (SELECT FROM quorate_store.ack k
                    WHERE k.round_no = r.round_no AND k.acked_at = greatest(p_now, r.settled_at + interval '1 microsecond'))
$$;
COMMENT ON FUNCTION quorate_store.note_acked(bigint, timestamptz) IS
'Notes for the history that a settled round got an ack at p_now, as record has stored it: the record of the settling lacks it.';

CREATE OR REPLACE FUNCTION quorate_worker.record(
    p_instance int, p_notify boolean, p_round_nos bigint[], p_node_ids smallint[], p_routes text[], p_attempts smallint[],
    p_outcomes text[], p_statuses smallint[], p_retry_us bigint[], p_receipts bytea[], p_key_nos smallint[] DEFAULT NULL)
RETURNS TABLE (round_no bigint, state text, settled boolean, completed_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_alive boolean := quorate_store.enter_batch(p_instance);
    v_locked bigint[];
    v_settled bigint[]; -- those of them that were settled already
    v_all boolean; -- every round named is there, and its lock ours
    v_now timestamptz;
    v_rest bigint[];
BEGIN
    SELECT array_agg(x.round_no), array_agg(x.round_no) FILTER (WHERE x.settled), count(*) = (SELECT count(DISTINCT u) FROM unnest(p_round_nos) AS u)
      INTO v_locked, v_settled, v_all
      FROM (SELECT r.round_no, r.settled_at IS NOT NULL AS settled FROM quorate_store.round r WHERE r.round_no = ANY (p_round_nos)
             ORDER BY r.round_no FOR NO KEY UPDATE SKIP LOCKED) x;
    v_now := clock_timestamp(); -- after the locks: on time or late is decided by this one reading
    INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, http_status, receipt, key_no)
    SELECT u.round_no, u.node_id, u.route::quorate_store.route, u.attempt, t.at,
           NOT (r.state IN ('open', 'complete') AND t.at <= r.deadline_at), u.status, u.receipt, COALESCE(u.key_no, 1)
      FROM unnest(p_round_nos, p_node_ids, p_routes, p_attempts, p_statuses, p_receipts, p_key_nos)
           AS u (round_no, node_id, route, attempt, status, receipt, key_no)
      JOIN quorate_store.round r ON r.round_no = u.round_no
           -- The history tells by it whether the record of the settling has this ack, whatever became of the clock meanwhile.
     CROSS JOIN LATERAL (SELECT CASE WHEN r.settled_at IS NULL THEN v_now
                                     ELSE greatest(v_now, r.settled_at + interval '1 microsecond') END AS at) t
     WHERE u.receipt IS NOT NULL AND (v_all OR u.round_no = ANY (v_locked))
    ON CONFLICT DO NOTHING;
    IF v_settled IS NOT NULL THEN
        PERFORM quorate_store.note_acked(u, v_now) FROM unnest(v_settled) AS u;
    END IF;
    IF v_alive THEN
        -- All but those that have no row of their own, because a claim stands for them, and of which their ack says it.
        v_rest := ARRAY(SELECT u.i FROM unnest(p_round_nos, p_node_ids, p_routes, p_attempts)
                                   WITH ORDINALITY AS u (round_no, node_id, route, attempt, i)
                         WHERE ((SELECT u.attempt = 1 AND u.route = 'primary' AND k.attempt = 1 AND k.route = 'primary' FROM quorate_store.ack k
                                  WHERE k.round_no = u.round_no AND k.node_id = u.node_id) IS NOT TRUE
                                OR (SELECT true FROM quorate_store.attempt a WHERE a.round_no = u.round_no AND a.node_id = u.node_id
                                                                               AND a.route = 'primary' AND a.attempt = 1))
                           AND (v_all OR u.round_no = ANY (v_locked)));
        IF cardinality(v_rest) > 0 THEN
            PERFORM quorate_store.record_outcomes(p_instance, v_now, v_rest, p_round_nos, p_node_ids, p_routes, p_attempts, p_outcomes,
                                                  p_statuses, p_retry_us);
        END IF;
    END IF;
    RETURN QUERY
    WITH counted AS MATERIALIZED (
        SELECT r.round_no, r.state, r.owner, r.opened_at, r.settled_at IS NOT NULL AS settled, k.nodes, k.last,
               CASE WHEN r.state <> 'open' THEN r.state
                    WHEN v_now > r.deadline_at THEN 'stalled'
                    WHEN cardinality(k.nodes) >= r.quorum THEN 'complete'
                    ELSE 'open' END AS new_state,
               -- Whoever has all acks and no attempt under way settles in the same breath.
               r.settled_at IS NULL AND (r.state <> 'open' OR v_now <= r.deadline_at) AND k.acks = cardinality(r.node_ids)
               AND (SELECT count(*) FROM quorate_store.attempt a WHERE a.round_no = r.round_no AND a.outcome IS NULL) = 0
               AND (k.firsts = cardinality(r.claimed_nodes) OR NOT quorate_store.under_way(r.round_no)) AS done
          FROM unnest(v_locked) AS u (round_no)
          JOIN quorate_store.round r ON r.round_no = u.round_no
         CROSS JOIN LATERAL (SELECT array_agg(a.node_id ORDER BY a.node_id) FILTER (WHERE NOT a.late) AS nodes, count(*) AS acks, max(a.acked_at) AS last,
                                   count(*) FILTER (WHERE a.node_id = ANY (r.claimed_nodes) AND a.route = 'primary' AND a.attempt = 1) AS firsts
                               FROM quorate_store.ack a WHERE a.round_no = r.round_no) k),
    erased AS (DELETE FROM quorate_store.envelope e USING counted c WHERE c.done AND e.round_no = c.round_no),
    ended AS (
        UPDATE quorate_store.round r
           SET state = c.new_state,
               closed_at = COALESCE(r.closed_at, v_now),
               close_reason = COALESCE(r.close_reason, CASE c.new_state WHEN 'complete' THEN 'quorum' ELSE 'deadline' END),
               quorum_nodes = CASE WHEN c.state = 'open' AND c.new_state = 'complete' THEN c.nodes ELSE r.quorum_nodes END,
               settled_at = CASE WHEN c.done THEN greatest(v_now, c.last) END,
               news = r.news OR r.owner <> p_instance -- a fenced peer's receipt: the owner is to hear of it
          FROM counted c
         WHERE r.round_no = c.round_no AND (c.new_state <> c.state OR c.done)),
    -- (pg_notify is called although nobody reads what it returns: what is volatile stays.)
    told AS MATERIALIZED (
        SELECT c.*, CASE WHEN p_notify AND c.new_state <> c.state THEN pg_notify('quorate_round', l.round_id || ' ' || c.new_state) END
          FROM counted c JOIN quorate_store.ledger l ON l.round_no = c.round_no)
    SELECT t.round_no, CASE WHEN NOT v_alive OR t.owner <> p_instance THEN 'fenced' ELSE t.new_state::text END, t.settled OR t.done,
           CASE WHEN t.new_state <> t.state THEN (extract(epoch FROM v_now - t.opened_at) * 1000000)::bigint END
      FROM told t;
    IF NOT v_all THEN
        RETURN QUERY
        SELECT DISTINCT u.round_no, CASE WHEN (SELECT true FROM quorate_store.round r WHERE r.round_no = u.round_no) THEN 'locked' ELSE 'gone' END,
               false, NULL::bigint
          FROM unnest(p_round_nos) AS u (round_no)
         WHERE u.round_no <> ALL (COALESCE(v_locked, '{}'));
    END IF;
END $$;
COMMENT ON FUNCTION quorate_worker.record(int, boolean, bigint[], smallint[], text[], smallint[], text[], smallint[], bigint[], bytea[], smallint[]) IS
'Records outcomes of attempts and, where p_receipts is not NULL, acks (verified by the caller), and completes every round whose t-th distinct on-time ack this stores,
by the database''s clock read under the rounds'' row locks. A receipt of a fenced instance counts like any other; its outcomes do not.
p_key_nos: by which of the node''s keys each receipt verifies, counted from 1 as node_versions names them; NULL: by the first.
p_retry_us: microseconds until the route''s next attempt may start, NULL for none. p_notify false: without notifications (for when the queue is full).
Result, a row per round: its state, or locked (nothing was written for it: bring it again), fenced (acks were stored, but the instance lost the round) or
gone; whether it is settled; microseconds from opening to its end if this call ended it. Idempotent by key.';

CREATE OR REPLACE FUNCTION quorate_worker.escalate(p_instance int, p_round_nos bigint[])
RETURNS TABLE (round_no bigint, state text, escalated boolean, first boolean, due boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_alive boolean := quorate_store.enter_batch(p_instance);
    v_locked bigint[];
    v_now timestamptz;
    v_escalated bigint[];
BEGIN
    v_locked := ARRAY(SELECT r.round_no FROM quorate_store.round r
                       WHERE r.round_no = ANY (p_round_nos) AND r.owner = p_instance AND v_alive
                       ORDER BY r.round_no FOR NO KEY UPDATE SKIP LOCKED);
    v_now := clock_timestamp();
    WITH escalated AS (
        UPDATE quorate_store.round r SET escalated_at = v_now
          FROM unnest(v_locked) AS u (round_no)
         WHERE r.round_no = u.round_no AND r.state = 'open' AND r.escalated_at IS NULL
           AND v_now >= r.escalate_at AND v_now <= r.deadline_at
           AND EXISTS (SELECT FROM unnest(r.node_ids, r.node_versions) AS n (node_id, version)
                         JOIN quorate_store.node_version v ON v.version = n.version AND v.backup_url IS NOT NULL
                        WHERE (SELECT true FROM quorate_store.ack k WHERE k.round_no = r.round_no AND k.node_id = n.node_id) IS NULL)
        RETURNING r.round_no)
    SELECT array_agg(e.round_no) INTO v_escalated FROM escalated e;
    RETURN QUERY
    SELECT u.round_no,
           CASE WHEN NOT v_alive OR r.owner <> p_instance THEN 'fenced' WHEN r.round_no IS NULL THEN 'gone'
                WHEN u.round_no <> ALL (v_locked) THEN 'locked' ELSE r.state::text END,
           r.escalated_at IS NOT NULL, COALESCE(u.round_no = ANY (v_escalated), false), v_now >= r.escalate_at
      FROM unnest(p_round_nos) AS u (round_no)
      LEFT JOIN quorate_store.round r ON r.round_no = u.round_no;
END $$;
COMMENT ON FUNCTION quorate_worker.escalate(int, bigint[]) IS
'Escalates rounds once each: those at or past escalate_at and before their deadline, still open below t, with an unacked node that has a backup URL.
Result, a row per round: its state (or locked, fenced, gone), whether it has escalated, whether it did so in this call, and whether this was the look that
counts (false: escalate_at has not come yet).';

CREATE OR REPLACE FUNCTION quorate_worker.settle(p_instance int, p_notify boolean, p_round_nos bigint[])
RETURNS TABLE (round_no bigint, state text, settled boolean, ended_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_alive boolean := quorate_store.enter_batch(p_instance);
    v_locked bigint[];
    v_stalled bigint[];
    v_done bigint[];
    v_now timestamptz;
BEGIN
    v_locked := ARRAY(SELECT r.round_no FROM quorate_store.round r
                       WHERE r.round_no = ANY (p_round_nos) AND r.owner = p_instance AND v_alive
                       ORDER BY r.round_no FOR NO KEY UPDATE SKIP LOCKED);
    v_now := clock_timestamp();
    WITH ended AS (UPDATE quorate_store.round r SET state = 'stalled', closed_at = v_now, close_reason = 'deadline'
                     FROM unnest(v_locked) AS u (round_no)
                    WHERE r.round_no = u.round_no AND r.state = 'open' AND v_now > r.deadline_at
                   RETURNING r.round_no)
    SELECT array_agg(e.round_no) INTO v_stalled FROM ended e;
    v_done := ARRAY(
        SELECT r.round_no FROM unnest(v_locked) AS u (round_no) JOIN quorate_store.round r ON r.round_no = u.round_no
         WHERE r.state <> 'open' AND r.settled_at IS NULL
           AND (SELECT count(*) FROM quorate_store.attempt_state a WHERE a.round_no = r.round_no AND a.outcome IS NULL) = 0
           AND (SELECT count(*) FROM quorate_store.delivery_state s WHERE s.round_no = r.round_no AND s.state = 'pending') = 0);
    DELETE FROM quorate_store.envelope e WHERE e.round_no = ANY (v_done);
    UPDATE quorate_store.round r SET settled_at = greatest(v_now, (SELECT max(k.acked_at) FROM quorate_store.ack k WHERE k.round_no = r.round_no))
     WHERE r.round_no = ANY (v_done);
    IF p_notify AND v_stalled IS NOT NULL THEN
        PERFORM pg_notify('quorate_round', l.round_id || ' stalled') FROM quorate_store.ledger l WHERE l.round_no = ANY (v_stalled);
    END IF;
    RETURN QUERY
    SELECT u.round_no,
           CASE WHEN NOT v_alive OR r.owner <> p_instance THEN 'fenced' WHEN r.round_no IS NULL THEN 'gone'
                WHEN u.round_no <> ALL (v_locked) THEN 'locked' ELSE r.state::text END,
           r.settled_at IS NOT NULL,
           CASE WHEN r.round_no = ANY (v_stalled) THEN (extract(epoch FROM r.closed_at - r.opened_at) * 1000000)::bigint END
      FROM unnest(p_round_nos) AS u (round_no)
      LEFT JOIN quorate_store.round r ON r.round_no = u.round_no;
END $$;
COMMENT ON FUNCTION quorate_worker.settle(int, boolean, bigint[]) IS
'Stalls those of the instance''s rounds that are past their deadline, and settles those that have ended and have no attempt left to make or await: erases
their payloads. p_notify: as for record. Result, a row per round: its state (or locked, fenced, gone), whether it is settled, and microseconds
from opening to its end if this call stalled it.';

CREATE OR REPLACE FUNCTION quorate_worker.release(p_instance int, p_notify boolean, p_round_nos bigint[])
RETURNS TABLE (round_no bigint, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_alive boolean := quorate_store.enter_batch(p_instance);
    v_locked bigint[];
BEGIN
    v_locked := ARRAY(SELECT r.round_no FROM quorate_store.round r
                       WHERE r.round_no = ANY (p_round_nos) AND r.owner = p_instance AND v_alive
                       ORDER BY r.round_no FOR NO KEY UPDATE SKIP LOCKED);
    -- As news: whoever claims them reads their past.
    UPDATE quorate_store.round r SET owner = 0, news = true FROM unnest(v_locked) AS u (round_no)
     WHERE r.round_no = u.round_no AND r.settled_at IS NULL;
    IF p_notify AND cardinality(v_locked) > 0 THEN
        PERFORM pg_notify('quorate_work', '');
    END IF;
    RETURN QUERY
    SELECT u.round_no, CASE WHEN r.owner = p_instance AND v_alive AND r.settled_at IS NULL THEN 'locked' ELSE 'fenced' END
      FROM unnest(p_round_nos) AS u (round_no)
      LEFT JOIN quorate_store.round r ON r.round_no = u.round_no;
END $$;
COMMENT ON FUNCTION quorate_worker.release(int, boolean, bigint[]) IS
'Gives rounds of the instance back, so that a peer claims them at once: for a coordinator that is to stop and has no request of them under way and no
outcome unrecorded. p_notify false: without a notification (for when the queue is full; peers look by themselves within a second). Result, a row per round: locked (ask again), or fenced: the instance does not own it any more. Idempotent.';
