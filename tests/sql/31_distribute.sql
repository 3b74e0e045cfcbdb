-- distribute: every verdict, the order in which they are judged, rejections, limits, and what is no envelope at all.

BEGIN;
\ir common/helpers.sql
SELECT plan(73);

SELECT pg_temp.nodes(1, 4) \gset
SELECT nonce FROM quorate.open_round('r', 2, '{1,2,3}', round_deadline => '1 h') \gset
SELECT :nonce % 1000000 + 1 AS stale \gset
CREATE FUNCTION pg_temp.distribute(p_round_id text, p_nonce bigint, p_nodes int[], p_payloads bytea[]) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(d.node_id || ' ' || d.verdict, ', ' ORDER BY d.i)
      FROM ROWS FROM (quorate.distribute(p_round_id, p_nonce, p_nodes, p_payloads)) WITH ORDINALITY d (node_id, verdict, i)
$$;
-- The rejections since the last look.
CREATE TEMP TABLE seen (rejection_no bigint);
CREATE FUNCTION pg_temp.rejected() RETURNS text LANGUAGE sql AS $$
    WITH new AS (INSERT INTO seen SELECT j.rejection_no FROM quorate_store.rejection j
                  WHERE NOT EXISTS (SELECT FROM seen s WHERE s.rejection_no = j.rejection_no) RETURNING rejection_no)
    SELECT string_agg(concat_ws(' ', j.round_id, j.node_id, j.verdict), ', ' ORDER BY j.rejection_no)
      FROM quorate_store.rejection j JOIN new USING (rejection_no)
$$;

-- One of each.

SELECT is(pg_temp.distribute('r', :nonce, '{1}', '{aa}'), '1 accepted', 'accepted');
SELECT is(pg_temp.rejected(), NULL, 'leaves no rejection');
SELECT results_eq(
    $$ SELECT node_id, state, attempts, last_outcome, next_attempt_at, payload_sha256, payload_bytes, payload_erased_at
         FROM quorate.deliveries WHERE round_id = 'r' $$,
    $$ VALUES (1, 'pending', 0, NULL::text, NULL::timestamptz, sha256('aa'), 2, NULL::timestamptz) $$, 'and is a pending delivery');
SELECT is(pg_temp.distribute('r', :nonce, '{1}', '{aa}'), '1 duplicate', 'the same bytes again: duplicate');
SELECT is(pg_temp.rejected(), NULL, 'is harmless and leaves no rejection');
SELECT is(pg_temp.distribute('r', :nonce, '{1}', '{ab}'), '1 conflict', 'other bytes for the same node: conflict');
SELECT is(pg_temp.rejected(), 'r 1 conflict', 'and a rejection');
SELECT is(pg_temp.distribute('r', :stale, '{2}', '{aa}'), '2 stale_nonce', 'another nonce: stale_nonce');
SELECT is(pg_temp.rejected(), 'r 2 stale_nonce', 'and a rejection');
SELECT is(pg_temp.distribute('r', :nonce, '{4}', '{aa}'), '4 unknown_node', 'a node of no concern to this round: unknown_node');
SELECT is(pg_temp.rejected(), 'r 4 unknown_node', 'and a rejection');
SELECT is(pg_temp.distribute('r', :nonce, '{2}', '{""}'), '2 invalid_payload', 'an empty envelope: invalid_payload');
SELECT is(pg_temp.rejected(), 'r 2 invalid_payload', 'and a rejection');
SELECT is(pg_temp.distribute('none', :nonce, '{1}', '{aa}'), '1 unknown_round', 'unknown_round');
SELECT is(pg_temp.rejected(), 'none 1 unknown_round', 'and a rejection');
SELECT results_eq('SELECT round_id, node_id, nonce, verdict, rejected_for FROM quorate.rejections ORDER BY rejected_at DESC LIMIT 1',
    format('VALUES (''none''::text COLLATE "C", 1, %s::bigint, ''unknown_round''::text, session_user::name)', :nonce),
    'a rejection shows the round, the node, the nonce, the verdict and for whom');
SELECT ok(bool_and(rejected_at BETWEEN now() AND clock_timestamp()), 'and when') FROM quorate.rejections;

-- Several in one call, each with its verdict, in the order given, none lost for the others.

SELECT is(pg_temp.distribute('r', :nonce, '{4,3,1,1,2,-7,2}', ARRAY['x', 'three', 'aa', 'ab', '', 'x', 'two']::bytea[]),
    '4 unknown_node, 3 accepted, 1 duplicate, 1 conflict, 2 invalid_payload, -7 unknown_node, 2 accepted', 'verdicts in the order given');
SELECT is(pg_temp.rejected(), 'r 4 unknown_node, r 1 conflict, r 2 invalid_payload, r -7 unknown_node', 'a rejection for each refusal');
SELECT results_eq($$ SELECT node_id FROM quorate.deliveries WHERE round_id = 'r' ORDER BY 1 $$, 'VALUES (1), (2), (3)',
                  'the accepted ones are deliveries');
SELECT nonce AS nonce2 FROM quorate.open_round('twice', 2, '{1,2,3}', round_deadline => '1 h') \gset
SELECT is(pg_temp.distribute('twice', :nonce2, '{1,1,1,1}', ARRAY['', 'p', 'p', 'q']::bytea[]),
    '1 invalid_payload, 1 accepted, 1 duplicate, 1 conflict', 'the same node again in one call is judged in order');
SELECT is(payload, 'p'::bytea, 'the first one accepted stays') FROM quorate_store.envelope WHERE round_no = pg_temp.no('twice');
SELECT is(pg_temp.rejected(), 'twice 1 invalid_payload, twice 1 conflict', 'two rejections');

-- First match wins.

SELECT is(pg_temp.distribute('none', 1, '{99}', '{""}'), '99 unknown_round', 'unknown_round before everything');
SELECT is(pg_temp.distribute('r', :stale, '{99}', '{""}'), '99 stale_nonce', 'stale_nonce before unknown_node');
SELECT is(pg_temp.distribute('r', :nonce, '{99}', '{""}'), '99 unknown_node', 'unknown_node before invalid_payload');
SELECT is(pg_temp.distribute('r', :stale, '{1}', '{aa}'), '1 stale_nonce', 'stale_nonce before duplicate: never an ack for an old nonce');
SELECT quorate.set_envelope_limit(1) \gset
SELECT is(pg_temp.distribute('r', :nonce, '{1}', '{aa}'), '1 invalid_payload', 'invalid_payload before duplicate');
SELECT is(pg_temp.distribute('r', :nonce, '{1}', '{bbb}'), '1 invalid_payload', 'invalid_payload before conflict');
SELECT quorate.set_envelope_limit(16777216) \gset

-- After the end.

SELECT quorate.cancel_round('r', 'test') \gset
SELECT is(pg_temp.distribute('r', :nonce, '{1,1}', '{aa,ab}'), '1 duplicate, 1 conflict', 'duplicate and conflict after closing as before');
SELECT nonce AS nonce3 FROM quorate.open_round('empty', 1, '{1}') \gset
SELECT quorate.cancel_round('empty', 'test') \gset
SELECT is(pg_temp.distribute('empty', :nonce3, '{1,1}', '{aa,aa}'), '1 round_closed, 1 round_closed', 'a new envelope: round_closed');
SELECT is(pg_temp.distribute('empty', :nonce3, '{1}', '{""}'), '1 invalid_payload', 'invalid_payload before round_closed');
SELECT is(pg_temp.distribute('empty', :nonce3, '{2}', '{aa}'), '2 unknown_node', 'unknown_node before round_closed');
SELECT is(pg_temp.distribute('empty', :stale, '{1}', '{aa}'), '1 stale_nonce', 'stale_nonce before round_closed');
SELECT pg_temp.rejected() \g /dev/null
SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.submit('done', 2, '{1,2}') AS nonce4 \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'done', n, 'ack') FROM unnest('{1,2}'::int[]) n \g /dev/null
SELECT ok(settled_at IS NOT NULL, 'a round is complete and settled') FROM quorate.rounds WHERE round_id = 'done';
SELECT is(pg_temp.distribute('done', :nonce4, '{1,2,1}', ARRAY['share 1', 'share 3', 'share 2']::bytea[]),
    '1 duplicate, 2 conflict, 1 conflict', 'after erasure duplicates are known by their SHA-256');
SELECT is(pg_temp.rejected(), 'done 2 conflict, done 1 conflict', 'the conflicts are rejections');
SELECT is(count(*)::int, 0, 'nothing is stored again') FROM quorate_store.envelope WHERE round_no = pg_temp.no('done');
SELECT quorate.prune_rounds('infinity') \gset
SELECT is(pg_temp.distribute('done', :nonce4, '{1}', ARRAY['share 1']::bytea[]), '1 unknown_round', 'a pruned round is unknown');
SELECT pg_temp.past_round('due', 1, '{1,2}') \gset
SELECT nonce AS nonce5 FROM quorate.rounds WHERE round_id = 'due' \gset
SELECT is(pg_temp.distribute('due', :nonce5, '{1,2,1}', ARRAY['share 1', 'x', 'x']::bytea[]), '1 duplicate, 2 conflict, 1 conflict',
          'past the deadline duplicate and conflict as before');
SELECT quorate.open_round('brief', 1, '{1}', 12345, '1 s', 1, '1 ms', '1 ms', '20 ms') \g /dev/null
SELECT pg_temp.pass(deadline_at) FROM quorate.rounds WHERE round_id = 'brief' \gset
SELECT is(pg_temp.distribute('brief', 12345, '{1}', '{x}'), '1 round_closed', 'past the deadline: round_closed, though nobody has stalled the round yet');
SELECT is(pg_temp.state('brief'), 'open', 'distribute itself ends no round');

-- Sizes.

SELECT nonce AS nonce6 FROM quorate.open_round('sizes', 1, '{1,2,3,4}', round_deadline => '1 h') \gset
SELECT quorate.set_envelope_limit(10) \gset
SELECT is(pg_temp.distribute('sizes', :nonce6, '{1,2,3}', ARRAY['1', '1234567890', '12345678901']::bytea[]),
    '1 accepted, 2 accepted, 3 invalid_payload', 'the limit is part of what is allowed');
SELECT throws_ok(format('SELECT quorate.set_envelope_limit(%L)', bytes), 'QR007', NULL, 'limit ' || COALESCE(bytes::text, 'NULL'))
  FROM unnest(ARRAY[NULL, 0, -1, 16777217]) bytes;
SELECT quorate.set_envelope_limit(16777216) \gset
SELECT is(pg_temp.distribute('sizes', :nonce6, '{3,4}', ARRAY[convert_to(repeat('x', 16777216), 'UTF8'), convert_to(repeat('x', 16777217), 'UTF8')]),
    '3 accepted, 4 invalid_payload', '16 MiB, and a byte more');
SELECT is(pg_temp.distribute('sizes', :nonce6, '{4}', ARRAY[decode('00ff0a5c27', 'hex')]), '4 accepted', 'any byte may be in an envelope');
SELECT throws_ok($$ SELECT quorate.distribute('sizes', 1, array_fill(1, ARRAY[17]), array_fill(convert_to(repeat('x', 16777216), 'UTF8'), ARRAY[17])) $$,
    'QR007', NULL, 'more than 256 MiB in one call');
SELECT is(payload_bytes, 16777216, 'the view shows the size') FROM quorate.deliveries WHERE round_id = 'sizes' AND node_id = 3;

-- No envelopes at all.

SELECT throws_ok($$ SELECT quorate.distribute('none', 1, array_fill(1, '{32768}'), array_fill('a'::bytea, '{32768}')) $$,
    'QR007', NULL, 'more envelopes in one call than there can be nodes');
SELECT is(count(*)::int, 0, 'none of them is a rejection') FROM quorate.rejections WHERE round_id = 'none';
SELECT is(count(*)::int, 32767, 'so many are judged') FROM quorate.distribute('none', 1, array_fill(1, '{32767}'), array_fill('a'::bytea, '{32767}'));
SELECT throws_ok(format('SELECT quorate.distribute(%s)', arguments), 'QR007', NULL, arguments)
  FROM unnest(ARRAY[
    $$NULL, 1, '{1}', '{a}'$$, $$'r', NULL, '{1}', '{a}'$$, $$'r', 1, NULL, '{a}'$$, $$'r', 1, '{1}', NULL$$,
    $$'r', 1, '{NULL}', '{a}'$$, $$'r', 1, '{1,NULL}', '{a,b}'$$, $$'r', 1, '{1}', '{NULL}'$$, $$'r', 1, '{1,2}', '{a,NULL}'$$,
    $$'r', 1, '{1,2}', '{a}'$$, $$'r', 1, '{1}', '{a,b}'$$, $$'r', 1, '{}', '{a}'$$, $$'r', 1, '{1}', '{}'$$,
    $$'r', 1, '{{1,2}}', '{{a,b}}'$$, $$'r', 1, '{1,2}', '{{a,b}}'$$, $$'r', 1, '[5:6]={1,2}', '{a,b}'$$, $$'r', 1, '{1,2}', '[0:1]={a,b}'$$,
    $$'none', 1, '[5:6]={1,2}', '[5:6]={a,b}'$$]) arguments;
SELECT is_empty($$ SELECT quorate.distribute('r', 1, '{}', '{}') $$, 'no envelopes, no verdicts');

SELECT ok(pg_temp.error_of($$ SELECT quorate.distribute('r', 1, '{1}', '{secretbytes,secretbytes}') $$, 'MESSAGE') !~ 'secret',
          'no error repeats an envelope');

SELECT * FROM finish();
ROLLBACK;
