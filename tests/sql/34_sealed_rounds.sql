-- Sealing keys of nodes, what a dealer is told to seal with, and rounds that take only sealed envelopes.

BEGIN;
\ir common/helpers.sql
SELECT plan(54);

CREATE FUNCTION pg_temp.box() RETURNS text LANGUAGE sql AS $$ SELECT 'qbox_Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS8=' $$;
CREATE FUNCTION pg_temp.other_box() RETURNS text LANGUAGE sql AS $$ SELECT 'qbox_NYBy1vZYgmvOpeDeDWtxDmWnH/8/Z/0eFJ1y8EnoGU8=' $$;

-- Nodes.

SELECT pg_temp.nodes(1, 3) \gset
SELECT lives_ok($$ SELECT quorate.add_node(1, 'http://n1.test/', pg_temp.key(), NULL, pg_temp.box()) $$, 'a sealing key is the last argument');
SELECT lives_ok($$ SELECT quorate.add_node(2, 'http://n2.test/', pg_temp.key(), seal_key => pg_temp.box()) $$, 'or is named');
SELECT results_eq('SELECT node_id, seal_key FROM quorate.nodes ORDER BY 1', $$ VALUES (1, pg_temp.box()), (2, pg_temp.box()), (3, NULL) $$, 'the view shows them');
SELECT is(count(*)::int, 2, 'another key is another version') FROM quorate_store.node_version WHERE node_id = 1;
SELECT quorate.add_node(1, 'http://n1.test/', pg_temp.key(), NULL, pg_temp.box()) \gset
SELECT is(count(*)::int, 2, 'the same again is none') FROM quorate_store.node_version WHERE node_id = 1;
SELECT throws_ok(format('SELECT quorate.add_node(9, ''http://n/'', pg_temp.key(), NULL, %L)', key), 'QR007', NULL, 'key ' || replace(left(key, 60), E'\n', '\n'))
  FROM unnest(ARRAY['', 'qbox_', pg_temp.key(), 'qbsk_YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=', pg_temp.box() || E'\n', 'qbox_' || repeat('A', 42) || '==',
                    'qbox_' || repeat('A', 42) || 'B=']) key;
SELECT ok(pg_temp.error_of($$ SELECT quorate.add_node(9, 'http://n/', pg_temp.key(), NULL, 'qbsk_secretsecret') $$, 'MESSAGE') !~ 'secretsecret',
          'a key that was refused is not repeated: it may be a secret one');
SELECT throws_ok($$ INSERT INTO quorate_store.node_version (node_id, url, receipt_key, seal_key) VALUES (1, 'http://n/', pg_temp.key(), 'qbsk_x') $$, '23514', NULL,
                 'nor does the table take one');

-- What a dealer seals with: the keys of the round's opening.

SELECT quorate.open_round('r', 2, '{1,2,3}', nonce => 1001, round_deadline => '1 h', require_sealed => true) \g /dev/null
SELECT quorate.open_round('any', 1, '{1,3}', nonce => 1002, round_deadline => '1 h') \g /dev/null
SELECT quorate.add_node(1, 'http://n1.test/', pg_temp.key(), NULL, pg_temp.other_box()) \gset
SELECT quorate.add_node(2, 'http://n2.test/', pg_temp.key()) \gset
SELECT results_eq($$ SELECT node_id, seal_key, require_sealed, deployment_id COLLATE "C" FROM quorate.seal_keys('r') $$,
    $$ SELECT v.*, p.deployment_id COLLATE "C" FROM (VALUES (1, pg_temp.box(), true), (2, pg_temp.box(), true), (3, NULL, true)) v, quorate.deployment p $$,
    'the keys that the nodes had when the round was opened');
SELECT results_eq($$ SELECT node_id, seal_key, require_sealed FROM quorate.seal_keys('any') $$, $$ VALUES (1, pg_temp.box(), false), (3, NULL, false) $$,
                  'a round that takes anything');
SELECT is(seal_key, NULL, 'a node that is added without a key has none any more') FROM quorate.nodes WHERE node_id = 2;
SELECT throws_ok($$ SELECT * FROM quorate.seal_keys('none') $$, 'QR003', NULL, 'no such round');
SELECT throws_ok($$ SELECT * FROM quorate.seal_keys(NULL) $$, 'QR003', NULL, 'nor NULL');
SELECT results_eq('SELECT round_id COLLATE "default", require_sealed FROM quorate.rounds ORDER BY nonce', $$ VALUES ('r', true), ('any', false) $$, 'auditors see which rounds take only sealed ones');

-- Verdicts, in their order.

CREATE FUNCTION pg_temp.sealed(p_text text) RETURNS bytea LANGUAGE sql AS $$ SELECT 'qsealed'::bytea || '\x01' || p_text::bytea $$;
CREATE FUNCTION pg_temp.verdict(p_round_id text, p_nonce bigint, p_node int, p_payload bytea) RETURNS text LANGUAGE sql AS
    $$ SELECT verdict FROM quorate.distribute(p_round_id, p_nonce, ARRAY[p_node], ARRAY[p_payload]) $$;
SELECT is(pg_temp.verdict('r', 1001, 1, 'plain'), 'unsealed', 'unsealed');
SELECT is(pg_temp.verdict('r', 1001, 1, 'qseale'), 'unsealed', 'a beginning of the mark is not it');
SELECT is(pg_temp.verdict('r', 1001, 1, '\x20' || pg_temp.sealed('x')), 'unsealed', 'nor is one that stands further back');
SELECT is(pg_temp.verdict('r', 1001, 1, ''), 'invalid_payload', 'an empty one is invalid first');
SELECT is(pg_temp.verdict('r', 1001, 9, 'plain'), 'unknown_node', 'the node comes before');
SELECT is(pg_temp.verdict('r', 9, 1, 'plain'), 'stale_nonce', 'and so does the nonce');
SELECT is(pg_temp.verdict('r', 1001, 1, pg_temp.sealed('x')), 'accepted', 'a sealed one is accepted');
SELECT is(pg_temp.verdict('r', 1001, 1, pg_temp.sealed('x')), 'duplicate', 'twice');
SELECT is(pg_temp.verdict('r', 1001, 1, pg_temp.sealed('y')), 'conflict', 'other bytes are not');
SELECT is(pg_temp.verdict('r', 1001, 1, 'plain'), 'unsealed', 'plain bytes are unsealed before they are a conflict');
SELECT is(pg_temp.verdict('any', 1002, 1, 'plain'), 'accepted', 'other rounds take anything');
SELECT is(pg_temp.verdict('any', 1002, 3, pg_temp.sealed('x')), 'accepted', 'sealed ones as well');
SELECT is(count(*)::int, 4, 'each refusal is a rejection') FROM quorate.rejections WHERE round_id = 'r' AND verdict = 'unsealed';
SELECT results_eq($$ SELECT string_agg(node_id || ' ' || verdict, ', ') FROM quorate.distribute('r', 1001, '{2,3}', ARRAY['plain', pg_temp.sealed('3')]) $$,
                  $$ VALUES ('2 unsealed, 3 accepted') $$, 'one that is refused does not hold up the others');
SELECT quorate.cancel_round('r', 'done') \gset
SELECT is(pg_temp.verdict('r', 1001, 2, 'plain'), 'unsealed', 'in a round that has ended, too');
SELECT is(pg_temp.verdict('r', 1001, 2, pg_temp.sealed('2')), 'round_closed', 'where a sealed one comes too late');

-- submit_round and submit_rounds: all or nothing.

SELECT lives_ok($$ SELECT quorate.submit_round('s1', 1, '{1,2}', ARRAY[pg_temp.sealed('1'), pg_temp.sealed('2')], require_sealed => true) $$, 'submit_round takes sealed ones');
SELECT throws_ok($$ SELECT quorate.submit_round('s2', 1, '{1,2}', ARRAY[pg_temp.sealed('1'), 'secret'], require_sealed => true) $$, 'QR009', NULL, 'and nothing else');
SELECT is(pg_temp.error_of($$ SELECT quorate.submit_round('s2', 1, '{1,2}', ARRAY[pg_temp.sealed('1'), 'secret'], require_sealed => true) $$, 'DETAIL'),
          'node 2: unsealed, 6 bytes', 'DETAIL names the node and says why, not what');
SELECT matches(pg_temp.error_of($$ SELECT quorate.submit_round('s2', 1, '{1,2}', ARRAY[pg_temp.sealed('1'), 'secret'], require_sealed => true) $$, 'HINT'),
               '1 to 16777216 bytes, and in this round it is sealed', 'HINT says what would be right');
SELECT is(pg_temp.error_of($$ SELECT quorate.submit_round('s2', 1, '{1,2}', ARRAY[''::bytea, 'secret'], require_sealed => true) $$, 'DETAIL'),
          'node 1: invalid_payload, 0 bytes; node 2: unsealed, 6 bytes', 'both reasons');
SELECT is(pg_temp.error_of($$ SELECT quorate.submit_round('s2', 1, '{1,2}', ARRAY[''::bytea, 'secret']) $$, 'DETAIL'), 'node 1: invalid_payload, 0 bytes',
          'only one where anything is taken');
SELECT lives_ok($$ SELECT quorate.submit_round('s2', 1, '{1}', '{plain}') $$, 'which is the default');
SELECT lives_ok($$ SELECT quorate.submit_rounds('{m1,m2}', 1, '{1}', ARRAY[pg_temp.sealed('1'), pg_temp.sealed('2')], require_sealed => true) $$, 'submit_rounds takes sealed ones');
SELECT throws_ok($$ SELECT quorate.submit_rounds('{m3,m4}', 1, '{1}', ARRAY[pg_temp.sealed('1'), 'secret'], require_sealed => true) $$, 'QR009', NULL, 'and nothing else');
SELECT matches(pg_temp.error_of($$ SELECT quorate.submit_rounds('{m3,m4}', 1, '{1}', ARRAY[pg_temp.sealed('1'), 'secret'], require_sealed => true) $$, 'MESSAGE'), '"m4"',
               'it names the round');
SELECT results_eq($$ SELECT round_id COLLATE "default" FROM quorate.rounds WHERE require_sealed ORDER BY round_id COLLATE "C" $$, $$ VALUES ('m1'), ('m2'), ('r'), ('s1') $$, 'they are marked so');
SELECT throws_ok(sql, 'QR007', NULL, sql)
  FROM unnest(ARRAY[$$ SELECT quorate.open_round('n', 1, require_sealed => NULL) $$, $$ SELECT quorate.submit_round('n', 1, '{1}', '{a}', require_sealed => NULL) $$,
                    $$ SELECT quorate.submit_rounds('{n}', 1, '{1}', '{a}', require_sealed => NULL) $$]) sql;

-- For ever.

SELECT throws_ok($$ UPDATE quorate_store.round SET require_sealed = false WHERE require_sealed $$, '23000', NULL, 'nobody lifts it');
SELECT throws_ok($$ UPDATE quorate_store.round SET require_sealed = true, news = true WHERE NOT require_sealed $$, '23000', NULL, 'nor sets it later');
SET LOCAL session_replication_role = replica;
SELECT throws_ok($$ UPDATE quorate_store.round SET require_sealed = false WHERE require_sealed $$, '23000', NULL, 'not as a replica either');
SET LOCAL session_replication_role = origin;
SELECT throws_ok($$ UPDATE quorate_store.node_version SET seal_key = NULL WHERE node_id = 1 $$, '23000', NULL, 'and a key that was is not changed');

SELECT * FROM finish();
ROLLBACK;
