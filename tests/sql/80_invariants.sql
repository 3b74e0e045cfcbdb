-- The invariants (tests/e2e/harness/invariants.py lists them), as far as SQL can show them, during hundreds of random steps by dealers, collectors,
-- three coordinators that come and go, and a pruner. The dice are seeded; the clock still has its say.

BEGIN;
\ir common/helpers.sql
SELECT plan(34);

SELECT pg_temp.nodes(1, 4) \gset
SELECT pg_temp.nodes(5, 8, true) \gset
SELECT setseed(0.42) \g /dev/null

CREATE TEMP TABLE hands (slot int PRIMARY KEY, instance int);
INSERT INTO hands SELECT i, pg_temp.join_as('c' || i) FROM generate_series(1, 3) i;
CREATE TEMP TABLE seen (round_id text PRIMARY KEY, nonce bigint, state text, fixed text, ended text, collected_at timestamptz, acks text);
CREATE TEMP TABLE did (step text, errcode text);
CREATE TEMP TABLE broken (step int, rule text, what text);

CREATE FUNCTION pg_temp.some_round() RETURNS text LANGUAGE sql VOLATILE AS
    $$ SELECT l.round_id FROM quorate_store.ledger l JOIN quorate_store.round r USING (round_no) ORDER BY (r.settled_at IS NULL) DESC, random() LIMIT 1 $$;

-- One attempt of a random unsettled round that has no outcome yet, whoever reserved it.
CREATE FUNCTION pg_temp.finish_some(p_hand int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v record;
    v_outcome text := (ARRAY['ack', 'ack', 'ack', 'timeout', 'refused', 'http_error', 'in_doubt', 'bad_receipt'])[1 + floor(random() * 8)];
BEGIN
    SELECT l.round_id, a.* INTO v FROM quorate_store.attempt_state a JOIN quorate_store.ledger l USING (round_no) WHERE a.outcome IS NULL ORDER BY random() LIMIT 1;
    IF FOUND THEN
        PERFORM pg_temp.record(p_hand, v.round_id, v.node_id, v_outcome, v.attempt, v.route::text);
        IF random() < 0.1 THEN -- and again, as after a commit that nobody heard of
            PERFORM pg_temp.record(p_hand, v.round_id, v.node_id, v_outcome, v.attempt, v.route::text);
        END IF;
    END IF;
END $$;

CREATE FUNCTION pg_temp.step(p_step int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_dice float := random();
    v_slot int := 1 + floor(random() * 3);
    v_hand int := (SELECT instance FROM hands WHERE slot = v_slot);
    v_round text := pg_temp.some_round();
    v_n int := 1 + floor(random() * 5);
    v_nodes int[] := ARRAY(SELECT n FROM generate_series(1, 8) n ORDER BY random() LIMIT v_n);
    v_what text;
    v_error text;
BEGIN
    v_what := CASE WHEN v_dice < 0.14 THEN 'submit' WHEN v_dice < 0.17 THEN 'open' WHEN v_dice < 0.22 THEN 'distribute' WHEN v_dice < 0.32 THEN 'claim'
                   WHEN v_dice < 0.60 THEN 'record' WHEN v_dice < 0.70 THEN 'reserve' WHEN v_dice < 0.75 THEN 'escalate' WHEN v_dice < 0.80 THEN 'settle'
                   WHEN v_dice < 0.85 THEN 'tick' WHEN v_dice < 0.91 THEN 'collect' WHEN v_dice < 0.94 THEN 'settle_round' WHEN v_dice < 0.96 THEN 'cancel'
                   WHEN v_dice < 0.98 THEN 'leave' ELSE 'prune' END;
    BEGIN
        CASE v_what
        WHEN 'submit' THEN
            PERFORM quorate.submit_round('r' || floor(random() * 2000), 1 + floor(random() * v_n)::int, v_nodes, array_fill('x'::bytea, ARRAY[v_n]),
                1 + floor(random() * 5000)::bigint, retry_budget => 2, base_backoff => '1 us', max_backoff => '1 us',
                round_deadline => (ARRAY['30 ms', '300 ms', '1 s', '1 h'])[1 + floor(random() * 4)]::interval,
                freshness => (ARRAY['150 ms', '1 s', NULL, NULL])[1 + floor(random() * 4)]::interval,
                after_quorum => (ARRAY['continue', 'stop'])[1 + floor(random() * 2)]);
        WHEN 'open' THEN
            PERFORM quorate.open_round('o' || p_step, v_n, v_nodes, base_backoff => '1 us', max_backoff => '1 us', round_deadline => '200 ms');
            -- One past its half-time, one past its deadline that nobody has stalled yet, and one complete and no longer fresh.
            v_nodes := ARRAY(SELECT unnest(v_nodes) ORDER BY 1);
            PERFORM pg_temp.past_round('h' || p_step, v_n, v_nodes, '6 min', '10 min');
            PERFORM pg_temp.past_round('l' || p_step, v_n, v_nodes);
            PERFORM pg_temp.past_attempts('l' || p_step, v_nodes);
            PERFORM pg_temp.past_round('d' || p_step, 1, v_nodes, p_freshness => '20 s');
            PERFORM pg_temp.past_acks('d' || p_step, v_nodes[1:1], true);
        WHEN 'distribute' THEN
            PERFORM quorate.distribute(v_round, (SELECT l.nonce + floor(random() * 1.2)::bigint FROM quorate_store.ledger l WHERE l.round_id = v_round), v_nodes,
                array_fill((ARRAY['x', 'y', ''])[1 + floor(random() * 3)]::bytea, ARRAY[v_n]));
        WHEN 'claim' THEN PERFORM quorate_worker.claim(v_hand, v_n * 3, 1000000, '{}');
        WHEN 'record' THEN
            FOR i IN 1 .. 4 LOOP
                PERFORM pg_temp.finish_some(v_hand);
            END LOOP;
        WHEN 'reserve' THEN -- the next attempt, or the one that is under way, of a few deliveries; and now and then a wrong number
            PERFORM quorate_worker.escalate(v_hand, ARRAY(SELECT round_no FROM quorate_store.round WHERE owner = v_hand AND settled_at IS NULL));
            PERFORM pg_temp.reserve(v_hand, x.round_id, x.node_id,
                (SELECT count(*) FILTER (WHERE outcome IS NOT NULL) + CASE WHEN random() < 0.1 THEN 2 ELSE 1 END FROM quorate_store.attempt_state a
                  WHERE a.round_no = x.round_no AND a.node_id = x.node_id AND a.route::text = x.route)::int, x.route)
               FROM (SELECT d.round_no, l.round_id, d.node_id,
                            CASE WHEN r.escalated_at IS NOT NULL AND random() < 0.7 THEN 'backup' ELSE 'primary' END AS route
                       FROM quorate_store.delivery d JOIN quorate_store.round r USING (round_no) JOIN quorate_store.ledger l USING (round_no)
                      WHERE r.owner = v_hand AND r.settled_at IS NULL ORDER BY random() LIMIT 8) x;
        WHEN 'escalate' THEN PERFORM quorate_worker.escalate(v_hand, ARRAY(SELECT round_no FROM quorate_store.round WHERE settled_at IS NULL));
        WHEN 'settle' THEN PERFORM quorate_worker.settle(v_hand, true, ARRAY(SELECT round_no FROM quorate_store.round WHERE settled_at IS NULL));
        WHEN 'tick' THEN PERFORM quorate_worker.tick(v_hand, true, 3, false);
        WHEN 'collect' THEN PERFORM quorate.collect(v_round);
        WHEN 'settle_round' THEN PERFORM quorate.settle_round(v_round);
        WHEN 'cancel' THEN PERFORM quorate.cancel_round(l.round_id, 'by chance') FROM quorate_store.ledger l JOIN quorate_store.round r USING (round_no)
              WHERE r.state = 'open' ORDER BY r.deadline_at DESC, random() LIMIT 1;
        WHEN 'leave' THEN
            PERFORM quorate_worker.leave(v_hand);
            v_hand := pg_temp.join_as('c' || v_slot);
            UPDATE hands SET instance = v_hand WHERE slot = v_slot;
            PERFORM quorate_worker.claim(v_hand, 1000, 1000000, '{}');
            PERFORM pg_temp.reserve(v_hand, l.round_id, a.node_id, a.attempt, a.route::text)
               FROM quorate_store.attempt_state a JOIN quorate_store.round r USING (round_no) JOIN quorate_store.ledger l USING (round_no)
              WHERE r.owner = v_hand AND a.owner <> v_hand AND a.outcome IS NULL;
        WHEN 'prune' THEN PERFORM quorate.prune_rounds('infinity', 3);
        END CASE;
    EXCEPTION WHEN OTHERS THEN
        v_error := SQLSTATE;
        IF v_error NOT LIKE 'QR%' THEN
            INSERT INTO broken VALUES (p_step, v_what || ': ' || v_error, SQLERRM);
        END IF;
    END;
    INSERT INTO did VALUES (v_what, v_error);
END $$;

-- What must never change from one step to the next.
CREATE FUNCTION pg_temp.look(p_step int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMP TABLE now_seen ON COMMIT DROP AS
    SELECT r.round_id, r.nonce, r.state,
           concat_ws('|', r.nonce, r.quorum, r.node_ids, r.per_share_timeout, r.retry_budget, r.base_backoff, r.max_backoff, r.after_quorum, r.opened_at,
                     r.escalate_at, r.deadline_at, r.fresh_until,
                     (SELECT s.node_versions FROM quorate_store.round s JOIN quorate_store.ledger l USING (round_no) WHERE l.round_id = r.round_id)) AS fixed,
           CASE WHEN r.closed_at IS NOT NULL THEN concat_ws('|', r.closed_at, r.close_reason, r.quorum_nodes) END AS ended, r.collected_at,
           (SELECT string_agg(a::text, ';' ORDER BY a.node_id) FROM quorate_store.ack a JOIN quorate_store.ledger l USING (round_no)
             WHERE l.round_id = r.round_id) AS acks
      FROM quorate.rounds r;
    INSERT INTO broken
    SELECT p_step, rule, n.round_id || ': ' || concat_ws(' -> ', s, e)
      FROM seen o JOIN now_seen n USING (round_id)
     CROSS JOIN LATERAL (VALUES
           ('I3', o.state, n.state, NOT (o.state IN ('open', n.state) OR o.state = 'complete' AND n.state = 'dead_lettered')),
           ('I3', o.ended, n.ended, o.ended IS NOT NULL AND n.ended IS DISTINCT FROM o.ended),
           ('I9', o.fixed, n.fixed, n.fixed <> o.fixed),
           ('acks', o.acks, n.acks, o.acks IS NOT NULL AND strpos(n.acks, o.acks) = 0 AND length(n.acks) <= length(o.acks)),
           ('collected', o.collected_at::text, n.collected_at::text, o.collected_at IS NOT NULL AND n.collected_at IS DISTINCT FROM o.collected_at)) c (rule, s, e, bad)
     WHERE bad;
    INSERT INTO broken SELECT p_step, 'gone', o.round_id FROM seen o
     WHERE o.state IS NOT NULL AND NOT EXISTS (SELECT FROM now_seen n WHERE n.round_id = o.round_id)
       AND EXISTS (SELECT FROM quorate_store.round r JOIN quorate_store.ledger l USING (round_no) WHERE l.round_id = o.round_id);
    INSERT INTO broken SELECT p_step, 'I4', o.round_id FROM seen o
     WHERE NOT EXISTS (SELECT FROM quorate_store.ledger l WHERE l.round_id = o.round_id AND l.nonce = o.nonce);
    INSERT INTO seen SELECT * FROM now_seen
    ON CONFLICT (round_id) DO UPDATE SET state = EXCLUDED.state, fixed = EXCLUDED.fixed, ended = EXCLUDED.ended, collected_at = EXCLUDED.collected_at, acks = EXCLUDED.acks;
    DROP TABLE now_seen;
END $$;

DO $$
BEGIN
    FOR i IN 1 .. 500 LOOP
        PERFORM pg_temp.step(i);
        IF i % 10 = 0 THEN
            PERFORM pg_temp.look(i);
        END IF;
    END LOOP;
END $$;

SELECT is_empty('SELECT * FROM broken', 'nothing was broken on the way, and no step failed but with QR errors');
SELECT ok(count(*) > 0, 'enough happened: ' || what) FROM (VALUES ('submit'), ('open'), ('distribute'), ('claim'), ('record'), ('reserve'), ('escalate'), ('settle'), ('tick'),
    ('collect'), ('settle_round'), ('cancel'), ('leave'), ('prune')) v (what) JOIN did ON did.step = what GROUP BY what ORDER BY what;
SELECT cmp_ok((SELECT count(*) FROM seen WHERE state = s), '>', 0::bigint, 'there were rounds ' || s)
  FROM unnest(ARRAY['complete', 'stalled', 'cancelled', 'dead_lettered']) s;

SELECT is_empty($$ SELECT r.round_id FROM quorate.rounds r WHERE r.state IN ('complete', 'dead_lettered')
                      AND (SELECT count(DISTINCT a.node_id) FROM quorate.acks a WHERE a.round_id = r.round_id AND NOT a.late AND a.acked_at <= r.deadline_at
                              AND a.in_quorum) < r.quorum $$, 'I1: complete and dead_lettered have a quorum of distinct acks in time');
SELECT is_empty($$ SELECT r.round_id FROM quorate.rounds r WHERE r.state IN ('stalled', 'cancelled', 'open') AND r.acked >= r.quorum $$,
                'I1: and nothing else has one');
SELECT is_empty($$ SELECT a.round_id, a.node_id FROM quorate.acks a JOIN quorate.rounds r USING (round_id)
                    GROUP BY a.round_id, a.node_id, r.node_ids HAVING count(*) > 1 OR NOT a.node_id = ANY (r.node_ids) $$, 'I2: one ack a node, of the round''s nodes');
SELECT is_empty($$ SELECT r.round_id FROM quorate.rounds r WHERE quorum_nodes IS DISTINCT FROM
                     (SELECT array_agg(a.node_id ORDER BY a.node_id) FROM quorate.acks a WHERE a.round_id = r.round_id AND a.in_quorum) $$,
                'quorum_nodes are the acks in the quorum');
SELECT is_empty($$ SELECT nonce FROM quorate_store.ledger GROUP BY nonce HAVING count(*) > 1 $$, 'I4: a nonce is used once');
SELECT is_empty($$ SELECT a.round_id FROM quorate.attempts a JOIN quorate.rounds r USING (round_id)
                    GROUP BY a.round_id, a.node_id, a.route, r.retry_budget HAVING max(a.attempt) > r.retry_budget OR count(*) > r.retry_budget $$,
                'I5: no attempt number passes the budget');
SELECT is_empty($$ SELECT a.round_id FROM quorate.attempts a JOIN quorate.rounds r USING (round_id) WHERE a.reserved_at > r.deadline_at $$, 'no attempt starts after the deadline');
SELECT is_empty($$ SELECT a.round_id FROM quorate.attempts a JOIN quorate.rounds r USING (round_id)
                     LEFT JOIN quorate.acks k USING (round_id, node_id)
                    WHERE a.route = 'backup' AND (r.escalated_at IS NULL OR a.reserved_at < r.escalated_at OR k.acked_at < a.reserved_at) $$,
                'I7: backups are tried only after the escalation, and only of nodes that had not acked');
SELECT is_empty($$ SELECT round_no FROM quorate_store.envelope JOIN quorate_store.round USING (round_no) WHERE settled_at IS NOT NULL $$,
                'I8: no settled round holds a payload');
SELECT is_empty($$ SELECT round_id FROM quorate.attempts JOIN quorate.rounds USING (round_id) WHERE settled_at IS NOT NULL AND outcome IS NULL $$,
                'nor an attempt under way');
SELECT is_empty($$ SELECT round_id FROM quorate.deliveries WHERE payload_erased_at IS NOT NULL AND state = 'pending' $$, 'nor a pending delivery');

SELECT cmp_ok((SELECT count(*) FROM quorate.attempts WHERE route = 'backup'), '>', 0::bigint, 'backups were tried');
SELECT cmp_ok((SELECT count(*) FROM quorate.acks WHERE late), '>', 0::bigint, 'there were late acks');
SELECT cmp_ok((SELECT sum(resends) FROM quorate.attempts), '>', 0::bigint, 'attempts were taken over');
SELECT cmp_ok((SELECT count(*) FROM quorate.rejections), '>', 0::bigint, 'envelopes were refused');

SELECT * FROM finish();
ROLLBACK;
