-- submit_rounds: many rounds in one call, all or nothing, each as submit_round would make it.

BEGIN;
\ir common/helpers.sql
SELECT plan(36);

SELECT pg_temp.nodes(1, 4) \gset
CREATE TEMP TABLE opened AS
SELECT * FROM quorate.submit_rounds('{c,a,b}', 2, '{3,1}', ARRAY['c3', 'c1', 'a3', 'a1', 'b3', 'b1']::bytea[], round_deadline => '1 h');
SELECT results_eq('SELECT round_id FROM opened', $$ VALUES ('c'), ('a'), ('b') $$, 'a row per round, in the order given');
SELECT results_eq('SELECT round_id COLLATE "C", nonce, opened_at, escalate_at, deadline_at, fresh_until FROM opened ORDER BY 1',
    'SELECT round_id COLLATE "C", nonce, opened_at, escalate_at, deadline_at, fresh_until FROM quorate.rounds ORDER BY 1', 'with what the rounds have');
SELECT is(count(DISTINCT nonce)::int, 3, 'each with a nonce of its own') FROM opened;
SELECT is(string_agg(format('%s %s %s', l.round_id, d.node_id, convert_from(e.payload, 'UTF8')), ', ' ORDER BY l.round_id, d.node_id),
          'a 1 a1, a 3 a3, b 1 b1, b 3 b3, c 1 c1, c 3 c3', 'every envelope goes to its node of its round')
  FROM quorate_store.delivery d JOIN quorate_store.envelope e USING (round_no, node_id) JOIN quorate_store.ledger l USING (round_no)
 WHERE d.payload_sha256 = sha256(e.payload) AND d.payload_bytes = 2;
SELECT results_eq(
    $$ SELECT DISTINCT state, quorum, node_ids, per_share_timeout, retry_budget, base_backoff, max_backoff, after_quorum, deadline_at - opened_at FROM quorate.rounds $$,
    $$ VALUES ('open', 2, '{1,3}'::int[], interval '2 s', 4, interval '50 ms', interval '1.5 s', 'continue', interval '1 h') $$, 'one policy for all, with submit_round''s defaults');
SELECT is(count(*)::int, 500, 'five hundred at once')
  FROM quorate.submit_rounds(ARRAY(SELECT 'many-' || i FROM generate_series(1, 500) i), 1, '{1,2,3,4}',
                             ARRAY(SELECT convert_to(i || '/' || k, 'UTF8') FROM generate_series(1, 500) i, generate_series(1, 4) k ORDER BY i, k));
SELECT is(count(*)::int, 2000, 'all envelopes are their rounds'' and nodes'' own')
  FROM quorate_store.envelope e JOIN quorate_store.ledger l USING (round_no) WHERE l.round_id || '/' || e.node_id = 'many-' || convert_from(e.payload, 'UTF8');
CREATE TEMP TABLE shuffled AS
SELECT o.* FROM (SELECT array_agg('turn-' || n ORDER BY md5(n::text)) AS ids FROM generate_series(1, 300) n) s
 CROSS JOIN LATERAL quorate.submit_rounds(s.ids, 1, '{1}', array_fill('x'::bytea, '{300}')) WITH ORDINALITY AS o (round_id, nonce, opened_at, escalate_at, deadline_at, fresh_until, i);
SELECT is(count(*)::int, 300, 'in no order of theirs: they come back as they were given, each with its own nonce')
  FROM (SELECT s.*, row_number() OVER (ORDER BY md5(split_part(s.round_id, '-', 2))) AS place FROM shuffled s) s
  JOIN quorate_store.ledger l USING (round_id, nonce) WHERE s.i = s.place;
SELECT pg_temp.join_as('one') AS me \gset
SELECT is(pg_temp.claim_all(:me), 803::bigint, 'they can be claimed');
SELECT is(count(*)::int, 2306, 'with their first attempts') FROM quorate.attempts WHERE outcome IS NULL AND attempt = 1 AND route = 'primary';

-- All or nothing.

SELECT throws_ok($$ SELECT quorate.submit_rounds('{new,b}', 1, '{1}', '{x,y}') $$, 'QR006', NULL, 'one used round id among them');
SELECT ok(pg_temp.error_of($$ SELECT quorate.submit_rounds('{new,b}', 1, '{1}', '{x,y}') $$, 'MESSAGE') ~ '"b"', 'is named');
SELECT throws_ok($$ SELECT quorate.submit_rounds('{new,new}', 1, '{1}', '{x,y}') $$, 'QR007', NULL, 'a round id twice in one call');
SELECT quorate.set_envelope_limit(5) \gset
SELECT throws_ok($$ SELECT quorate.submit_rounds('{new,newer}', 1, '{1,2}', ARRAY['x', 'y', 'z', 'secret']::bytea[]) $$, 'QR009', NULL, 'one envelope that is too large');
SELECT ok(pg_temp.error_of($$ SELECT quorate.submit_rounds('{new,newer}', 1, '{1,2}', ARRAY['x', 'y', 'z', 'secret']::bytea[]) $$, 'MESSAGE') ~ '"newer"', 'its round is named');
SELECT ok(pg_temp.error_of($$ SELECT quorate.submit_rounds('{new,newer}', 1, '{1,2}', ARRAY['x', 'y', 'z', 'secret']::bytea[]) $$, 'DETAIL') ~ 'node 2.*6 bytes', 'and its node');
SELECT throws_ok($$ SELECT quorate.submit_rounds('{new,newer}', 1, '{1}', ARRAY['', 'y']::bytea[]) $$, 'QR009', NULL, 'an empty envelope');
SELECT quorate.set_envelope_limit(16777216) \gset
SELECT throws_ok($$ SELECT quorate.submit_rounds('{new}', 1, '{1,99}', '{x,y}') $$, 'QR008', NULL, 'an unknown node');
SELECT throws_ok(format('SELECT quorate.submit_rounds(%s)', arguments), 'QR007', NULL, arguments)
  FROM unnest(ARRAY[
    $$NULL, 1, '{1}', '{a}'$$, $$'{}', 1, '{1}', '{}'$$, $$'{new,NULL}', 1, '{1}', '{a,b}'$$, $$'{new,"a b"}', 1, '{1}', '{a,b}'$$,
    $$'{{new,newer}}', 1, '{1}', '{a,b}'$$, $$'[0:1]={new,newer}', 1, '{1}', '{a,b}'$$, $$'{new,newer}', 1, '{1}', '{a}'$$,
    $$'{new,newer}', 1, '{1,2}', '{a,b}'$$, $$'{new,newer}', 1, NULL, '{a,b}'$$, $$'{new,newer}', 1, '{1}', NULL$$, $$'{new,newer}', 1, '{1}', '{a,NULL}'$$,
    $$'{new}', 1, '{1,1}', '{a,b}'$$, $$'{new}', 3, '{1,2}', '{a,b}'$$,
    $$ARRAY(SELECT 'n' || i FROM generate_series(1, 10001) i), 1, '{1}', ARRAY(SELECT 'x'::bytea FROM generate_series(1, 10001))$$]) arguments;
SELECT is(count(*)::int, 0, 'nothing of what was refused is left') FROM quorate_store.ledger WHERE round_id LIKE 'n%';
SELECT lives_ok($$ SELECT quorate.submit_rounds('{new,newer}', 1, '{1}', '{x,y}') $$, 'so the ids can still be used');

-- A drawn nonce that was used before is drawn again.

CREATE TEMP SEQUENCE drawn;
CREATE OR REPLACE FUNCTION quorate_store.nonce_of(p_uuid bytea) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE nextval('pg_temp.drawn') WHEN 2 THEN (SELECT min(l.nonce) FROM quorate_store.ledger l) ELSE 1000000 + currval('pg_temp.drawn') END;
END $$;
SELECT results_eq($$ SELECT round_id, nonce FROM quorate.submit_rounds('{z3,z1,z2}', 1, '{1}', '{a,b,c}') $$,
                  $$ VALUES ('z3', 1000003::bigint), ('z1', 1000001), ('z2', 1000004) $$, 'for that round alone, and all come back in the order given');
SELECT results_eq($$ SELECT l.round_id COLLATE "C", l.nonce FROM quorate_store.ledger l WHERE l.round_id LIKE 'z%' ORDER BY 1 $$,
                  $$ VALUES ('z1' COLLATE "C", 1000001::bigint), ('z2', 1000004), ('z3', 1000003) $$, 'as the ledger has them');

SELECT * FROM finish();
ROLLBACK;
