-- submit_round: open_round and distribute in one, all or nothing.

BEGIN;
\ir common/helpers.sql
SELECT plan(34);

SELECT pg_temp.nodes(1, 4) \gset
CREATE TEMP TABLE opened AS SELECT * FROM quorate.submit_round('r', 2, '{3,1,2}', ARRAY['three', 'one', 'two']::bytea[]);
SELECT results_eq('SELECT nonce, opened_at, escalate_at, deadline_at, fresh_until FROM opened',
    $$ SELECT nonce, opened_at, escalate_at, deadline_at, fresh_until FROM quorate.rounds WHERE round_id = 'r' $$, 'returns open_round''s columns');
SELECT results_eq(
    $$ SELECT state, quorum, node_ids, per_share_timeout, retry_budget, base_backoff, max_backoff, after_quorum, deadline_at - opened_at, fresh_until
         FROM quorate.rounds WHERE round_id = 'r' $$,
    $$ VALUES ('open', 2, '{1,2,3}'::int[], interval '2 s', 4, interval '50 ms', interval '1.5 s', 'continue', interval '8 s', NULL::timestamptz) $$,
    'with open_round''s defaults');
SELECT results_eq(
    $$ SELECT d.node_id, d.state, d.payload_sha256, d.payload_bytes, e.payload
         FROM quorate.deliveries d JOIN quorate_store.envelope e ON e.round_no = pg_temp.no('r') AND e.node_id = d.node_id
        WHERE round_id = 'r' ORDER BY d.node_id $$,
    $$ VALUES (1, 'pending', sha256('one'), 3, 'one'::bytea), (2, 'pending', sha256('two'), 3, 'two'), (3, 'pending', sha256('three'), 5, 'three') $$,
    'every node has its own envelope');
SELECT results_eq(
    $$ SELECT nonce, per_share_timeout, retry_budget, base_backoff, max_backoff, deadline_at - opened_at, fresh_until - opened_at, after_quorum
         FROM quorate.rounds WHERE round_id = 'own' $$,
    $$ VALUES (77::bigint, interval '1 s', 5, interval '1 ms', interval '1 s', interval '20 s', interval '30 s', 'stop') $$,
    'a policy of one''s own')
  FROM (SELECT quorate.submit_round('own', 1, '{1}', '{a}', 77, '1 s', 5, '1 ms', '1 s', '20 s', '30 s', 'stop') OFFSET 0) s;
SELECT is(verdict, 'duplicate', 'what was submitted is known to distribute')
  FROM quorate.distribute('r', (SELECT nonce FROM opened), '{1}', '{one}');

-- An envelope refused: QR009, and nothing is left.

SELECT quorate.set_envelope_limit(5) \gset
SELECT throws_ok($$ SELECT quorate.submit_round('bad', 1, '{1,2,3}', ARRAY['ok', '', '123456']::bytea[], 4711) $$, 'QR009', NULL,
                 'an empty envelope and one over the limit');
SELECT ok(pg_temp.error_of($$ SELECT quorate.submit_round('bad', 1, '{3,1,2}', ARRAY['123456', 'ok', '']::bytea[]) $$, 'DETAIL')
              ~ '2.*invalid_payload.*3.*invalid_payload', 'DETAIL says which and why');
SELECT ok(pg_temp.error_of($$ SELECT quorate.submit_round('bad', 1, '{1,2}', ARRAY['ok', 'secret']::bytea[]) $$, w) !~ 'secret',
          w || ' does not repeat an envelope') FROM unnest(ARRAY['MESSAGE', 'DETAIL', 'HINT']) w;
SELECT lives_ok($$ SELECT quorate.submit_round('limit', 1, '{1}', '{12345}') $$, 'the limit itself is allowed');
SELECT quorate.set_envelope_limit(16777216) \gset
SELECT is(count(*)::int, 0, 'no ledger entry is left') FROM quorate_store.ledger WHERE round_id = 'bad' OR nonce = 4711;
SELECT is(count(*)::int, 0, 'and no rejection: nothing was stored') FROM quorate.rejections;
SELECT lives_ok($$ SELECT quorate.submit_round('bad', 1, '{1}', '{a}', 4711) $$, 'so id and nonce can still be used');

-- What open_round refuses.

SELECT throws_ok($$ SELECT quorate.submit_round('r', 1, '{1}', '{a}') $$, 'QR006', NULL, 'a used round id, even with the same arguments');
SELECT throws_ok($$ SELECT quorate.submit_round('r', 2, '{1}', '{a}', 4711) $$, 'QR007', NULL, 'an invalid policy comes first');
SELECT throws_ok($$ SELECT quorate.submit_round('r', 1, '{1}', '{a}', 4711) $$, 'QR006', NULL, 'QR006 before QR005');
SELECT throws_ok($$ SELECT quorate.submit_round('new', 1, '{1}', '{a}', 4711) $$, 'QR005', NULL, 'a used nonce');
SELECT throws_ok($$ SELECT quorate.submit_round('new', 1, '{1,99}', '{a,b}') $$, 'QR008', NULL, 'an unknown node');
SELECT throws_ok(format('SELECT quorate.submit_round(%s)', arguments), 'QR007', NULL, arguments)
  FROM unnest(ARRAY[
    $$'new', 1, NULL, '{a}'$$, $$'new', 1, '{1}', NULL$$, $$'new', 1, '{}', '{}'$$, $$'new', 1, '{1}', '{a,b}'$$, $$'new', 1, '{1,2}', '{a}'$$,
    $$'new', 1, '{1,1}', '{a,b}'$$, $$'new', 1, '{1,NULL}', '{a,b}'$$, $$'new', 1, '{1,2}', '{a,NULL}'$$, $$'new', 3, '{1,2}', '{a,b}'$$,
    $$'new', 1, '{{1,2}}', '{{a,b}}'$$, $$'new', 1, '{1}', '{a}', 0$$, $$'new', 1, '[5:6]={1,2}', '[0:1]={a,b}'$$, $$NULL, 1, '{1}', '{a}'$$, $$'new', NULL, '{1}', '{a}'$$]) arguments;
SELECT is(count(*)::int, 0, 'nothing of what was refused is left') FROM quorate_store.ledger WHERE round_id = 'new';

SELECT * FROM finish();
ROLLBACK;
