-- The cost of hot calls depends on their batch, not on how much history there is nor on how many rounds are open: counted in rows that
-- the server fetches, with statistics of a quiet time, when almost no round was open, as a flood meets them.

BEGIN;
\ir common/helpers.sql
SELECT plan(46);

SELECT pg_temp.nodes(1, 3, true) \gset
SELECT pg_temp.join_as('one') AS me \gset

-- 10,000 settled rounds of three deliveries each.

CREATE TEMP TABLE old AS SELECT i, NULL::bigint AS round_no FROM generate_series(1, 10000) i;
INSERT INTO quorate_store.ledger (round_id, nonce) SELECT 'h' || i, i FROM old;
UPDATE old SET round_no = l.round_no FROM quorate_store.ledger l WHERE l.nonce = i;
INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, per_share_timeout, base_backoff, max_backoff, owner, after_quorum, quorum, retry_budget,
                                 node_ids, node_versions)
SELECT round_no, t, t + interval '5 s', t + interval '10 s', '1 s', '1 ms', '1 ms', :me, 'continue', 2, 4, '{1,2,3}',
       (SELECT array_agg(current_version ORDER BY node_id) FROM quorate_store.node)
  FROM old CROSS JOIN LATERAL (SELECT now() - interval '1 day' + i * interval '1 s') s (t);
INSERT INTO quorate_store.delivery (round_no, distributed_at, node_id, payload_bytes, payload_sha256)
SELECT round_no, now() - interval '1 day', n, 1, sha256('x') FROM old, generate_series(1, 3) n;
INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at, finished_at, outcome)
SELECT round_no, n, 'primary', 1, :me, now() - interval '1 day', now() - interval '1 day', 'ack' FROM old, generate_series(1, 3) n;
INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt)
SELECT round_no, n, 'primary', 1, now() - interval '1 day', false, pg_temp.receipt(n) FROM old, generate_series(1, 3) n;
UPDATE quorate_store.round SET state = 'complete', closed_at = opened_at + interval '1 s', close_reason = 'quorum', quorum_nodes = '{1,2,3}',
       settled_at = opened_at + interval '1 s' WHERE round_no IN (SELECT round_no FROM old);
ANALYZE quorate_store.ledger, quorate_store.round, quorate_store.delivery, quorate_store.envelope, quorate_store.attempt, quorate_store.ack;
SELECT is(count(*)::int, 10000, 'there is history') FROM quorate_store.round WHERE settled_at IS NOT NULL;

-- Rows fetched so far by this transaction, in each table.
CREATE TEMP TABLE fetched (relname text, n bigint);
CREATE FUNCTION pg_temp.reads() RETURNS TABLE (relname text, n bigint) LANGUAGE sql VOLATILE AS $$
    SELECT s.relname::text, COALESCE(s.seq_tup_read, 0) + COALESCE(s.idx_tup_fetch, 0)
      FROM pg_stat_xact_user_tables s WHERE s.schemaname = 'quorate_store'
$$;
CREATE FUNCTION pg_temp.start() RETURNS void LANGUAGE sql AS $$ DELETE FROM fetched; INSERT INTO fetched SELECT * FROM pg_temp.reads() $$;
-- The largest number of rows that was fetched from one table since the start; and which table.
CREATE FUNCTION pg_temp.cost() RETURNS bigint LANGUAGE sql AS
    $$ SELECT COALESCE(max(r.n - COALESCE(f.n, 0)), 0) FROM pg_temp.reads() r LEFT JOIN fetched f USING (relname) $$;
CREATE FUNCTION pg_temp.where_cost() RETURNS text LANGUAGE sql AS
    $$ SELECT string_agg(r.relname || ' ' || r.n - COALESCE(f.n, 0), ', ') FROM pg_temp.reads() r LEFT JOIN fetched f USING (relname) WHERE r.n > COALESCE(f.n, 0) $$;
CREATE FUNCTION pg_temp.cheap(p_limit bigint, p_what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_cost bigint := pg_temp.cost();
    v_where text := pg_temp.where_cost();
BEGIN
    RETURN NEXT ok(v_cost <= p_limit, format('%s: at most %s rows of any table', p_what, p_limit));
    IF v_cost > p_limit THEN
        RETURN NEXT diag('fetched: ' || v_where);
    END IF;
    PERFORM pg_temp.start();
END $$;
CREATE FUNCTION pg_temp.record_all(p_instance int, p_rounds text, p_outcome text DEFAULT 'ack') RETURNS bigint LANGUAGE sql AS $$
    WITH batch AS (SELECT a.* FROM quorate_store.ledger l JOIN quorate_store.attempt_state a USING (round_no) WHERE l.round_id LIKE p_rounds),
    arrays AS MATERIALIZED (SELECT array_agg(round_no) AS r, array_agg(node_id) AS n, array_agg(route::text) AS o, array_agg(attempt) AS a,
                      array_agg(p_outcome) AS u, array_agg(NULL::smallint) AS s, array_agg(NULL::bigint) AS t,
                      array_agg(CASE WHEN p_outcome = 'ack' THEN pg_temp.receipt(node_id) END) AS k FROM batch)
    SELECT count(*) FROM arrays, quorate_worker.record(p_instance, true, r, n, o, a, u, s, t, k)
$$;

-- Each call is judged three times: nothing else open; 1,500 others open; and those claimed.

CREATE FUNCTION pg_temp.judge(p_me int, p_when text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_p text := p_when || '-';
    v_nos bigint[];
    v_n bigint;
BEGIN
    PERFORM pg_temp.start();
    PERFORM pg_temp.submit(v_p || i, 2, '{1,2,3}') FROM generate_series(1, 10) i;
    RETURN QUERY SELECT pg_temp.cheap(10 * 40, p_when || ': submit_round, 10 times');
    PERFORM quorate.distribute(v_p || i, l.nonce, '{1,2,3}', '{a,b,c}') FROM generate_series(1, 10) i JOIN quorate_store.ledger l ON l.round_id = v_p || i;
    RETURN QUERY SELECT pg_temp.cheap(10 * 40, p_when || ': distribute, 10 times');
    PERFORM quorate.collect(v_p || i) FROM generate_series(1, 10) i;
    RETURN QUERY SELECT pg_temp.cheap(10 * 4, p_when || ': collect while open, 10 times');
    LOOP -- until the ten are among those claimed; each claim is a batch of 64
        PERFORM pg_temp.start();
        SELECT count(DISTINCT round_no) INTO v_n FROM quorate_worker.claim(p_me, 64, 1000000, '{}');
        EXIT WHEN (SELECT bool_and(r.owner = p_me) FROM quorate_store.round r JOIN quorate_store.ledger l USING (round_no) WHERE l.round_id LIKE v_p || '%');
    END LOOP;
    PERFORM pg_temp.start();
    PERFORM quorate_worker.tick(p_me, true, 100, false);
    RETURN QUERY SELECT pg_temp.cheap(100, p_when || ': tick, nothing due');
    v_nos := ARRAY(SELECT l.round_no FROM quorate_store.ledger l WHERE l.round_id LIKE v_p || '%' ORDER BY 1);
    PERFORM pg_temp.start();
    PERFORM quorate_worker.owned(p_me, v_nos[1] - 1, 10);
    RETURN QUERY SELECT pg_temp.cheap(10 * 10, p_when || ': owned, a page of 10');
    PERFORM quorate_worker.envelopes(v_nos, array_fill(1::smallint, ARRAY[10]));
    RETURN QUERY SELECT pg_temp.cheap(10 * 4, p_when || ': envelopes, 10');
    PERFORM quorate_worker.escalate(p_me, v_nos);
    RETURN QUERY SELECT pg_temp.cheap(10 * 10, p_when || ': escalate, 10 rounds');
    PERFORM quorate_worker.record(p_me, true, v_nos, array_fill(1::smallint, ARRAY[10]), array_fill('primary'::text, ARRAY[10]), array_fill(1::smallint, ARRAY[10]),
        array_fill('timeout'::text, ARRAY[10]), array_fill(NULL::smallint, ARRAY[10]), array_fill(1::bigint, ARRAY[10]), array_fill(NULL::bytea, ARRAY[10]));
    RETURN QUERY SELECT pg_temp.cheap(10 * 40, p_when || ': record 10 time-outs');
    PERFORM quorate_worker.reserve(p_me, v_nos, array_fill(1::smallint, ARRAY[10]), array_fill('primary'::text, ARRAY[10]), array_fill(2::smallint, ARRAY[10]));
    RETURN QUERY SELECT pg_temp.cheap(10 * 20, p_when || ': reserve 10 retries');
    PERFORM quorate_worker.record(p_me, true, v_nos || v_nos || v_nos,
        array_fill(1::smallint, ARRAY[10]) || array_fill(2::smallint, ARRAY[10]) || array_fill(3::smallint, ARRAY[10]), array_fill('primary'::text, ARRAY[30]),
        array_fill(2::smallint, ARRAY[10]) || array_fill(1::smallint, ARRAY[20]), array_fill('ack'::text, ARRAY[30]), array_fill(200::smallint, ARRAY[30]),
        array_fill(NULL::bigint, ARRAY[30]), array_fill(pg_temp.receipt(1), ARRAY[30]));
    RETURN QUERY SELECT pg_temp.cheap(10 * 60, p_when || ': record 30 acks that complete and settle 10 rounds');
    PERFORM quorate.collect(v_p || i) FROM generate_series(1, 10) i;
    RETURN QUERY SELECT pg_temp.cheap(10 * 8, p_when || ': collect, 10 times');
    PERFORM pg_temp.submit(v_p || 'x' || i, 2, '{1,2,3}') FROM generate_series(1, 10) i;
    PERFORM quorate.cancel_round(v_p || 'x' || i, 'why') FROM generate_series(1, 10) i;
    PERFORM quorate_worker.claim(p_me, 1000, 1000000, '{}');
    v_nos := ARRAY(SELECT l.round_no FROM quorate_store.ledger l WHERE l.round_id LIKE v_p || 'x%' ORDER BY 1);
    PERFORM pg_temp.start();
    PERFORM quorate_worker.settle(p_me, true, v_nos);
    RETURN QUERY SELECT pg_temp.cheap(10 * 40, p_when || ': settle 10 rounds');
END $$;

SELECT pg_temp.judge(:me, 'quiet');
SELECT pg_temp.start() \gset
SELECT pg_temp.submit('wave-' || i, 2, '{1,2,3}') FROM generate_series(1, 1500) i \g /dev/null
SELECT pg_temp.cheap(1500 * 40, 'a flood of 1,500 submit_rounds');
SELECT count(*) FROM quorate_worker.claim(:me, 64, 1000000, '{}') \g /dev/null
SELECT pg_temp.cheap(64 * 40, 'claim of 64 rounds out of 1,500');
SELECT pg_temp.judge(:me, 'flood');
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.judge(:me, 'claimed');

-- Complete, fresh and not collected: thousands may wait so for hours.

SELECT pg_temp.submit('fresh-' || i, 1, '{1}', p_freshness => '1 day') FROM generate_series(1, 1500) i \g /dev/null
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record_all(:me, 'fresh-%'), 1500::bigint, '1,500 rounds wait to be collected');
SELECT pg_temp.start() \gset
SELECT quorate_worker.tick(:me, true, 100, false) \g /dev/null
SELECT pg_temp.cheap(100, 'tick with 1,500 open and 1,500 fresh rounds');
SELECT quorate.settle_round('fresh-' || i) FROM generate_series(1, 10) i \g /dev/null
SELECT pg_temp.cheap(10 * 4, 'settle_round, 10 times');
SELECT pg_temp.past_round('due-' || i, 1, '{1}', p_owner => :me) FROM generate_series(1, 10) i \g /dev/null
SELECT pg_temp.start() \gset
SELECT quorate_worker.tick(:me, true, 100, false) \g /dev/null
SELECT pg_temp.cheap(200, 'tick that stalls 10 of them');
SELECT is((SELECT count(*)::int FROM quorate.rounds WHERE state = 'stalled'), 10, 'stalled');

-- What an auditor asks about one round reads that round.

SELECT pg_temp.start() \gset
SELECT count(*) FROM quorate.rounds WHERE round_id = 'h777' \g /dev/null
SELECT count(*) FROM quorate.deliveries WHERE round_id = 'h777' \g /dev/null
SELECT count(*) FROM quorate.attempts WHERE round_id = 'h777' \g /dev/null
SELECT count(*) FROM quorate.acks WHERE round_id = 'h777' \g /dev/null
SELECT count(*) FROM quorate.rejections WHERE round_id = 'h777' \g /dev/null
SELECT pg_temp.cheap(100, 'the views of one round');
SELECT count(*) FROM quorate.dead_letters \g /dev/null
SELECT pg_temp.cheap(100, 'dead_letters, of which there are none');

SELECT * FROM finish();
ROLLBACK;
