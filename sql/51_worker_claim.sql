-- Claiming rounds, with the first attempt of each of their deliveries, and reading back what a coordinator owns.

CREATE TYPE quorate_store.work_wanted AS (
    round_no bigint, round_id text, nonce bigint, state text, stop boolean, escalated boolean, escalate_us bigint,
    deadline_us bigint, timeout_us bigint, base_us bigint, max_us bigint, retry_budget smallint, node_id smallint,
    node_version int, payload_bytes int, payload_sha256 bytea, acked boolean, primary_used smallint,
    primary_refused boolean, primary_open smallint, primary_mine boolean, primary_wait_us bigint, backup_used smallint,
    backup_refused boolean, backup_open smallint, backup_mine boolean, backup_wait_us bigint, now_us bigint,
    payload bytea, quorum smallint);
DO $$
DECLARE
    v_fields text := 'SELECT array_agg((a.attname, a.atttypid)::text ORDER BY a.attnum) FROM pg_type t
                      JOIN pg_attribute a ON a.attrelid = t.typrelid WHERE t.oid = to_regtype($1)';
    v_wanted text[];
    v_there text[];
BEGIN
    EXECUTE v_fields INTO v_wanted USING 'quorate_store.work_wanted';
    EXECUTE v_fields INTO v_there USING 'quorate_store.work';
    IF v_there IS NULL THEN
        ALTER TYPE quorate_store.work_wanted RENAME TO work;
    ELSIF v_there = v_wanted THEN
        DROP TYPE quorate_store.work_wanted; -- it is as it should be, and functions depend on it
    ELSE
        RAISE EXCEPTION 'the fields of quorate_store.work have changed' USING ERRCODE = 'invalid_function_definition';
    END IF;
END $$;
COMMENT ON TYPE quorate_store.work IS
'All that a coordinator needs to go on with a delivery and its round; node_id NULL: a round without any. Times are microseconds left (negative: past).
used: attempts reserved on the route; open: the number of the one without an outcome, 0 for none; mine: it was reserved by this very transaction, so that it
cannot have been sent yet. payload: only where an attempt is mine and the envelope is small; else it is read by quorate_worker.envelopes.';

CREATE OR REPLACE FUNCTION quorate_store.round_work(p_round_nos bigint[])
RETURNS SETOF quorate_store.work
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_this xid := pg_current_xact_id_if_assigned()::xid;
BEGIN
    RETURN QUERY
    SELECT r.round_no, l.round_id, l.nonce, r.state::text, r.after_quorum = 'stop', r.escalated_at IS NOT NULL,
           (extract(epoch FROM r.escalate_at - v_now) * 1000000)::bigint, (extract(epoch FROM r.deadline_at - v_now) * 1000000)::bigint,
           (extract(epoch FROM r.per_share_timeout) * 1000000)::bigint, (extract(epoch FROM r.base_backoff) * 1000000)::bigint,
           (extract(epoch FROM r.max_backoff) * 1000000)::bigint, r.retry_budget,
           d.node_id, r.node_versions[array_position(r.node_ids, d.node_id)], d.payload_bytes, d.payload_sha256,
           k.round_no IS NOT NULL,
           p.used, p.refused, p.open, p.mine, (extract(epoch FROM p.retry_at - v_now) * 1000000)::bigint,
           b.used, b.refused, b.open, b.mine, (extract(epoch FROM b.retry_at - v_now) * 1000000)::bigint,
           (extract(epoch FROM v_now) * 1000000)::bigint,
           CASE WHEN (p.mine OR b.mine) AND d.payload_bytes <= 512 AND k.round_no IS NULL THEN
               (SELECT e.payload FROM quorate_store.envelope e WHERE e.round_no = d.round_no AND e.node_id = d.node_id) END, r.quorum
      FROM unnest(p_round_nos) AS u (round_no)
      JOIN quorate_store.round r ON r.round_no = u.round_no
      JOIN quorate_store.ledger l ON l.round_no = r.round_no
      LEFT JOIN quorate_store.delivery d ON d.round_no = r.round_no
      LEFT JOIN quorate_store.ack k ON k.round_no = d.round_no AND k.node_id = d.node_id
     CROSS JOIN LATERAL (
           SELECT count(*)::smallint AS used, COALESCE(bool_or(a.outcome = 'refused'), false) AS refused,
                  COALESCE(max(a.attempt) FILTER (WHERE a.outcome IS NULL), 0)::smallint AS open,
                  COALESCE(bool_or(a.reserved_in = v_this AND a.owner = r.owner) FILTER (WHERE a.outcome IS NULL), false) AS mine, max(a.retry_at) AS retry_at
             FROM quorate_store.attempt_state a
            WHERE a.round_no = d.round_no AND a.node_id = d.node_id AND a.route = 'primary') p
     CROSS JOIN LATERAL (
           SELECT count(*)::smallint AS used, COALESCE(bool_or(a.outcome = 'refused'), false) AS refused,
                  COALESCE(max(a.attempt) FILTER (WHERE a.outcome IS NULL), 0)::smallint AS open,
                  COALESCE(bool_or(a.reserved_in = v_this AND a.owner = r.owner) FILTER (WHERE a.outcome IS NULL), false) AS mine, max(a.retry_at) AS retry_at
             FROM quorate_store.attempt_state a
            WHERE r.escalated_at IS NOT NULL
              AND a.round_no = d.round_no AND a.node_id = d.node_id AND a.route = 'backup') b;
END $$;
COMMENT ON FUNCTION quorate_store.round_work(bigint[]) IS
'A row of work per delivery of the rounds named, or one for a round without any.';

CREATE OR REPLACE FUNCTION quorate_store.write_out(p_round_nos bigint[], p_node_ids smallint[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at)
    SELECT r.round_no, n.node_id, 'primary', 1, r.claimed_by, r.claimed_at
      FROM unnest(p_round_nos, p_node_ids) AS u (round_no, node_id)
      JOIN quorate_store.round r ON r.round_no = u.round_no AND r.settled_at IS NULL
     CROSS JOIN unnest(r.claimed_nodes) AS n (node_id)
     WHERE (p_node_ids IS NULL OR n.node_id = u.node_id)
       AND (SELECT true FROM quorate_store.ack k
             WHERE k.round_no = r.round_no AND k.node_id = n.node_id AND k.route = 'primary' AND k.attempt = 1) IS NULL
    ON CONFLICT DO NOTHING
$$;
COMMENT ON FUNCTION quorate_store.write_out(bigint[], smallint[]) IS
'Gives attempts that a claim stands for a row of their own, as whoever claimed them reserved them, unless they brought the ack: those of the
deliveries named, or, with p_node_ids NULL, all of the rounds named.';

CREATE OR REPLACE FUNCTION quorate_store.take_over(p_instance int, p_round_nos bigint[], p_busy int[], p_left boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    IF p_left THEN
        -- A predecessor may have left an attempt whose outcome was on its way when the next one began: only the newest is sent again.
        PERFORM quorate_store.write_out(p_round_nos, NULL);
        UPDATE quorate_store.attempt a SET outcome = 'in_doubt', finished_at = v_now
          FROM unnest(p_round_nos) AS u (round_no)
         WHERE a.round_no = u.round_no AND a.outcome IS NULL
           AND a.attempt < (SELECT max(n.attempt) FROM quorate_store.attempt n
                             WHERE n.round_no = a.round_no AND n.node_id = a.node_id AND n.route = a.route);
    END IF;
    INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at)
    SELECT r.round_no, d.node_id, 'primary', 1, p_instance, v_now
      FROM unnest(p_round_nos) AS u (round_no)
      JOIN quorate_store.round r ON r.round_no = u.round_no AND r.state = 'open' AND v_now <= r.deadline_at
      JOIN quorate_store.delivery d ON d.round_no = r.round_no AND d.node_id <> ALL (COALESCE(r.claimed_nodes, '{}'))
     WHERE r.node_versions[array_position(r.node_ids, d.node_id)] <> ALL (p_busy)
    ON CONFLICT DO NOTHING;
END $$;
COMMENT ON FUNCTION quorate_store.take_over(int, bigint[], int[], boolean) IS
'Goes on with rounds just claimed whose deliveries have a past, or came late: reserves first attempts where there is none, but for busy nodes. p_left: a
predecessor may have left attempts under way.';

CREATE OR REPLACE FUNCTION quorate_worker.claim(p_instance int, p_max int, p_slots int, p_busy int[])
RETURNS SETOF quorate_store.work
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_now_us bigint;
    v_left int[];
    v_more bigint[];
    v_orphans bigint[] := '{}'; -- of those that have left
BEGIN
    IF NOT quorate_store.enter_batch(p_instance) THEN
        RETURN;
    END IF;
    v_left := ARRAY(SELECT c.instance_no FROM quorate_store.coordinator c WHERE c.cleared_at IS NULL AND c.ended_at IS NOT NULL);
    v_now := clock_timestamp();
    v_now_us := extract(epoch FROM v_now) * 1000000;
    v_more := ARRAY(SELECT r.round_no FROM quorate_store.round r
                     WHERE r.settled_at IS NULL AND r.news AND r.round_no > 0
                       AND r.owner = ANY (CASE WHEN p_max > 0 THEN ARRAY[p_instance, 0] ELSE ARRAY[p_instance] END)
                     LIMIT CASE WHEN p_max > 0 THEN least(p_max, p_slots) ELSE p_slots END FOR UPDATE SKIP LOCKED);
    IF cardinality(v_left) > 0 THEN
        v_orphans := ARRAY(SELECT r.round_no FROM quorate_store.round r
                            WHERE r.settled_at IS NULL AND r.owner = ANY (v_left) AND r.round_no > 0
                            LIMIT greatest(0, least(p_max, p_slots) - cardinality(v_more)) FOR UPDATE SKIP LOCKED);
    END IF;
    -- Rounds that came with their envelopes: committed together, so this statement sees these if it sees the round. (A round whose envelopes
    -- came later is news; its lock, had too late for this snapshot, shows that, and it is left to the next call.)
    RETURN QUERY
    WITH picked AS MATERIALIZED (
        SELECT r.round_no, r.state, r.deadline_at, r.node_ids, r.node_versions FROM quorate_store.round r
         WHERE r.settled_at IS NULL AND r.owner = 0 AND NOT r.news AND r.round_no > 0
         LIMIT greatest(0, least(p_max, p_slots) - cardinality(v_more) - cardinality(v_orphans)) FOR UPDATE SKIP LOCKED),
    claimed AS (
        UPDATE quorate_store.round r
           SET owner = p_instance, claimed_nodes = f.node_ids, claimed_at = CASE WHEN f.node_ids IS NOT NULL THEN v_now END,
               claimed_by = CASE WHEN f.node_ids IS NOT NULL THEN p_instance END
          FROM (SELECT p.round_no, (SELECT array_agg(d.node_id) FROM quorate_store.delivery d
                                     WHERE d.round_no = p.round_no AND p.state = 'open' AND v_now <= p.deadline_at
                                       AND p.node_versions[array_position(p.node_ids, d.node_id)] <> ALL (p_busy)) AS node_ids
                  FROM picked p OFFSET 0) f -- a fence: else the nodes are looked for at each of the three places that name them
         WHERE r.round_no = f.round_no
        RETURNING r.round_no, r.state, r.after_quorum, r.escalated_at, r.retry_budget, r.quorum, r.node_ids, r.node_versions, r.claimed_nodes,
                  -- Once a round, and not once a delivery: this arithmetic is numeric's.
                  (extract(epoch FROM r.escalate_at - v_now) * 1000000)::bigint AS escalate_us,
                  (extract(epoch FROM r.deadline_at - v_now) * 1000000)::bigint AS deadline_us,
                  (extract(epoch FROM r.per_share_timeout) * 1000000)::bigint AS timeout_us,
                  (extract(epoch FROM r.base_backoff) * 1000000)::bigint AS base_us,
                  (extract(epoch FROM r.max_backoff) * 1000000)::bigint AS max_us)
    SELECT r.round_no, l.round_id, l.nonce, r.state::text, r.after_quorum = 'stop', r.escalated_at IS NOT NULL,
           r.escalate_us, r.deadline_us, r.timeout_us, r.base_us, r.max_us, r.retry_budget,
           d.node_id, r.node_versions[array_position(r.node_ids, d.node_id)], d.payload_bytes, d.payload_sha256, false,
           t.taken::int::smallint, false, t.taken::int::smallint, t.taken, NULL::bigint,
           0::smallint, false, 0::smallint, false, NULL::bigint, v_now_us,
           CASE WHEN t.taken AND d.payload_bytes <= 512 THEN
               (SELECT e.payload FROM quorate_store.envelope e WHERE e.round_no = d.round_no AND e.node_id = d.node_id) END, r.quorum
      FROM claimed r
      JOIN quorate_store.ledger l ON l.round_no = r.round_no
      LEFT JOIN quorate_store.delivery d ON d.round_no = r.round_no
     CROSS JOIN LATERAL (SELECT COALESCE(d.node_id = ANY (r.claimed_nodes), false)) AS t (taken);
    IF cardinality(v_more || v_orphans) > 0 THEN
        UPDATE quorate_store.round r SET owner = p_instance, news = false FROM unnest(v_more || v_orphans) AS u (round_no) WHERE r.round_no = u.round_no;
        -- Its own have no predecessor who left something; nor may what it has sent long ago look as if it were reserved just now.
        PERFORM quorate_store.take_over(p_instance, v_more, p_busy, false);
        PERFORM quorate_store.take_over(p_instance, v_orphans, p_busy, true);
        RETURN QUERY SELECT * FROM quorate_store.round_work(v_more || v_orphans);
    END IF;
END $$;
COMMENT ON FUNCTION quorate_worker.claim(int, int, int, int[]) IS
'Claims up to p_max (0: none) unsettled rounds that nobody owns (or whose owner was fenced or has left), and takes those of the instance''s own that got new
envelopes; at most p_slots in all, the free slots of the endpoint that has the fewest of those not in p_busy.
Reserves the first attempt, on the primary route, of every delivery that has none, but for nodes in p_busy (node versions whose endpoint has no free slot).
Result: as quorate_store.round_work. Nothing when the instance is fenced. Skips locked rounds, waits for none.';

CREATE OR REPLACE FUNCTION quorate_worker.owned(p_instance int, p_after bigint, p_max int)
RETURNS SETOF quorate_store.work
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT * FROM quorate_store.round_work(
        ARRAY(SELECT r.round_no FROM quorate_store.round r
               WHERE r.settled_at IS NULL AND r.owner = p_instance AND r.round_no > 0 AND r.round_no > p_after
               ORDER BY r.round_no LIMIT p_max));
END $$;
COMMENT ON FUNCTION quorate_worker.owned(int, bigint, int) IS
'The instance''s own unsettled rounds after round_no p_after, ascending, at most p_max: how a coordinator reads its whole state again after it lost a
connection. Result: as quorate_store.round_work.';

CREATE OR REPLACE FUNCTION quorate_worker.envelopes(p_round_nos bigint[], p_node_ids smallint[])
RETURNS TABLE (round_no bigint, node_id smallint, payload bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT x.* FROM (SELECT u.round_no, u.node_id,
                            (SELECT e.payload FROM quorate_store.envelope e
                              WHERE e.round_no = u.round_no AND e.node_id = u.node_id) AS payload
                       FROM unnest(p_round_nos, p_node_ids) AS u (round_no, node_id) OFFSET 0) x
     WHERE x.payload IS NOT NULL;
END $$;
COMMENT ON FUNCTION quorate_worker.envelopes(bigint[], smallint[]) IS
'The payloads of the deliveries named; those erased meanwhile are left out. A read in a transaction of its own: a slow reader holds no lock.';
