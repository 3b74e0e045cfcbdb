-- Several keys of a node: windows and their boundaries, which of them a round keeps, revocation, and what the database lets nobody change.

BEGIN;
\ir common/helpers.sql
SELECT plan(119);

-- Keys of nobody, each another one.
CREATE FUNCTION pg_temp.k(p_i int) RETURNS text LANGUAGE sql AS
    $$ SELECT 'whpk_' || encode(sha256(p_i::text::bytea), 'base64') $$;
CREATE FUNCTION pg_temp.q(p_i int) RETURNS text LANGUAGE sql AS
    $$ SELECT 'qbox_' || encode(sha256(p_i::text::bytea), 'base64') $$;
-- The receipt keys that a round has of a node, newest first, and what is sealed to, by their numbers.
CREATE FUNCTION pg_temp.numbers(p_keys text[]) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(COALESCE((SELECT i::text FROM generate_series(1, 30) i WHERE pg_temp.k(i) = u.key OR pg_temp.q(i) = u.key), u.key), ' ' ORDER BY u.place)
      FROM unnest(p_keys) WITH ORDINALITY AS u (key, place) $$;
CREATE FUNCTION pg_temp.kept(p_round_id text, p_node int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
    SELECT pg_temp.numbers(v.receipt_key || v.other_keys) || COALESCE(' / ' || pg_temp.numbers(ARRAY[v.seal_key]), '')
      FROM quorate_store.round r JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, p_node::smallint)]
     WHERE r.round_no = pg_temp.no(p_round_id) $$;
-- What a round that is opened now would keep.
CREATE SEQUENCE pg_temp.names;
CREATE FUNCTION pg_temp.now_kept(p_node int DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_name text := 'probe-' || nextval('pg_temp.names');
BEGIN
    PERFORM pg_temp.submit(v_name, 1, ARRAY[p_node]);
    RETURN pg_temp.kept(v_name, p_node);
END $$;
CREATE FUNCTION pg_temp.states(p_node int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(pg_temp.numbers(ARRAY[key]) || ' ' || state, ', ' ORDER BY valid_from, key) FROM quorate.node_keys WHERE node_id = p_node $$;
-- Everything about the node that is stored, to see that nothing changed.
CREATE FUNCTION pg_temp.stored(p_node int) RETURNS text LANGUAGE sql AS $$
    SELECT (SELECT string_agg(k::text, ';' ORDER BY k.key_no) FROM quorate_store.node_key k WHERE k.node_id = p_node)
           || (SELECT n::text || n.xmin FROM quorate_store.node n WHERE n.node_id = p_node)
           || (SELECT count(*) FROM quorate_store.node_version) || (SELECT count(*) FROM quorate_store.history_due) $$;
CREATE FUNCTION pg_temp.beat() RETURNS void LANGUAGE sql AS $$ SELECT quorate_worker.tick(instance_no, false, 10, false) FROM quorate_store.coordinator $$;
CREATE FUNCTION pg_temp.ack_by(p_round_id text, p_key_nos smallint[], p_node int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
    SELECT state FROM quorate_worker.record((SELECT max(instance_no) FROM quorate_store.coordinator), true, ARRAY[pg_temp.no(p_round_id)],
        ARRAY[p_node]::smallint[], '{primary}', '{1}', '{ack}', '{200}', ARRAY[NULL::bigint], ARRAY[pg_temp.receipt(p_node)], p_key_nos) $$;

-- Two keys at one time.

SELECT pg_temp.join_as('one') AS me \gset
SELECT quorate.add_node(1, 'http://n1.test/', pg_temp.k(1)) \g /dev/null
SELECT is(pg_temp.states(), '1 valid', 'a node is added with a key that is valid without end');
SELECT pg_temp.submit('before', 1, '{1}') \g /dev/null
SELECT lives_ok('SELECT quorate.add_node_key(1, pg_temp.k(2))', 'it gets another one');
SELECT is(pg_temp.kept('before'), '1', 'a round that is open keeps what it was opened with');
SELECT is(pg_temp.now_kept(), '2 1', 'a new one takes both, the newest first');
SELECT results_eq('SELECT receipt_key, receipt_keys FROM quorate.nodes', $$ VALUES (pg_temp.k(2), ARRAY[pg_temp.k(2), pg_temp.k(1)]) $$, 'the view of nodes has both');
SELECT is(receipt_key, pg_temp.k(2) || ' ' || pg_temp.k(1), 'coordinators get both')
  FROM quorate_worker.node_versions(ARRAY(SELECT current_version FROM quorate_store.node));
SELECT results_eq('SELECT key, use, valid_until, revoked_at, state FROM quorate.node_keys ORDER BY valid_from',
    $$ VALUES (pg_temp.k(1), 'receipt', NULL::timestamptz, NULL::timestamptz, 'valid'), (pg_temp.k(2), 'receipt', NULL, NULL, 'valid') $$, 'the view of keys');
SELECT pg_temp.stored(1) AS was \gset
SELECT lives_ok('SELECT quorate.add_node_key(1, pg_temp.k(2))', 'the same again');
SELECT is(pg_temp.stored(1), :'was', 'changes nothing');

-- Which key signed.

SELECT pg_temp.submit('two', 1, '{1}') \g /dev/null
SELECT pg_temp.submit('old-coordinator', 1, '{1}') \g /dev/null
SELECT pg_temp.submit('none', 1, '{1}') \g /dev/null
SELECT pg_temp.claim_all(:me) \g /dev/null
SELECT throws_ok(format($$ SELECT pg_temp.ack_by('two', ARRAY[%s]::smallint[]) $$, i), '23000', NULL, 'no ack by key ' || i) FROM unnest('{0,3,-1,8}'::int[]) i;
SELECT throws_ok($$ SELECT pg_temp.ack_by('before', '{2}') $$, '23000', NULL, 'nor by a key that came after the round was opened');
SELECT is(pg_temp.ack_by('two', '{2}'), 'complete', 'one by the second');
SELECT is(pg_temp.ack_by('before', '{1}'), 'complete', 'one by the only key of an older round');
SELECT is(pg_temp.ack_by('none', '{NULL}'), 'complete', 'a number that is NULL means the first');
SELECT is(pg_temp.record(:me, 'old-coordinator', 1, 'ack'), 'complete settled', 'so does a call without numbers, as older coordinators make it');
SELECT is(pg_temp.numbers(ARRAY[receipt_key]), k, 'the ack of ' || a.round_id || ' shows the key that signed it')
  FROM quorate.acks a JOIN (VALUES ('two', '1'), ('before', '1'), ('none', '2'), ('old-coordinator', '2')) AS e (round_id, k) ON e.round_id = a.round_id ORDER BY a.round_id;
SELECT throws_ok($$ UPDATE quorate_store.ack SET key_no = 2 WHERE round_no = pg_temp.no('none') $$, '23000', NULL, 'and it stays so');

-- Boundaries: dealers need no coordinator for them, and nobody waits for one.

SELECT quorate.add_node(2, 'http://n2.test/', pg_temp.k(1)) \g /dev/null
SELECT clock_timestamp() + interval '300 ms' AS begins, clock_timestamp() + interval '600 ms' AS ends \gset
SELECT quorate.add_node_key(2, pg_temp.k(3), :'begins', :'ends') \g /dev/null
SELECT current_version AS was FROM quorate_store.node WHERE node_id = 2 \gset
SELECT is(pg_temp.states(2), '1 valid, 3 future', 'a key that begins later');
SELECT is(keys_until, :'begins', 'is noted with its node') FROM quorate_store.node WHERE node_id = 2;
SELECT is(pg_temp.now_kept(2), '1', 'is not in a round that is opened before');
SELECT pg_temp.pass(:'begins') \g /dev/null
SELECT is(pg_temp.now_kept(2), '3 1', 'it is in one that is opened after it began');
SELECT is(pg_temp.now_kept(2), '3 1', 'and in the next one');
SELECT is(current_version, :was, 'without a change to the node') FROM quorate_store.node WHERE node_id = 2;
SELECT is(count(*)::int, 2, 'and by one version for both rounds') FROM quorate_store.node_version WHERE node_id = 2;
SELECT pg_temp.beat() \g /dev/null
SELECT is(keys_until, :'ends', 'a coordinator brings the node up to date') FROM quorate_store.node WHERE node_id = 2;
SELECT is(pg_temp.numbers(receipt_keys), '3 1', 'with the version that is there') FROM quorate.nodes WHERE node_id = 2;
SELECT pg_temp.pass(:'ends') \g /dev/null
SELECT is(pg_temp.now_kept(2), '1', 'a key that has ended is in no new round');
SELECT is(pg_temp.states(2), '1 valid, 3 expired', 'and is shown so');
SELECT pg_temp.beat() \g /dev/null
SELECT results_eq('SELECT current_version, keys_until FROM quorate_store.node WHERE node_id = 2', format('VALUES (%s, NULL::timestamptz)', :was),
                  'the node has its first version again, and nothing is to come');
SELECT pg_temp.stored(2) AS was \gset
SELECT pg_temp.beat() \g /dev/null
SELECT is(pg_temp.stored(2), :'was', 'another beat changes nothing');
SELECT lives_ok(format('SELECT quorate.add_node_key(2, pg_temp.k(3), %L, %L)', :'begins', :'ends'), 'the same call again, after its window');
SELECT is(pg_temp.stored(2), :'was', 'changes nothing');
SELECT quorate.add_node_key(2, pg_temp.k(3)) \g /dev/null
SELECT is(pg_temp.now_kept(2), '3 1', 'a key may have another window later');

-- Even if looking at the nodes takes its time: many of them have changed, and meanwhile a key of the first one ends.
SELECT quorate.add_node(n, format('http://n%s.test/', n), pg_temp.k(1)) FROM generate_series(100, 354) n \g /dev/null
SELECT clock_timestamp() + interval '1 s' AS begins \gset
SELECT quorate.add_node_key(n, pg_temp.k(2), :'begins') FROM generate_series(101, 354) n \g /dev/null
SELECT pg_temp.pass(:'begins') \g /dev/null
CREATE FUNCTION pg_temp.opened_with_a_key_that_had_ended(p_try int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_ends timestamptz := clock_timestamp() + p_try * interval '3 ms';
BEGIN
    PERFORM quorate.add_node_key(100, pg_temp.k(100 + p_try), valid_until => v_ends);
    PERFORM quorate.open_round('crowd-' || p_try, 1, ARRAY(SELECT generate_series(100, 354)));
    RETURN (SELECT count(*) FROM quorate_store.round r JOIN quorate_store.node_version v ON v.version = r.node_versions[1]
             WHERE r.round_no = pg_temp.no('crowd-' || p_try) AND r.opened_at >= v_ends AND pg_temp.k(100 + p_try) IN (v.receipt_key, v.other_keys[1]));
EXCEPTION WHEN SQLSTATE 'QR007' THEN
    RETURN 0; -- the machine was slow, and the end had passed before it was set
END $$;
SELECT is(sum(pg_temp.opened_with_a_key_that_had_ended(i))::int, 0, 'no round that is opened after the end of a key has it') FROM generate_series(1, 8) i;
SELECT quorate.set_node_enabled(n, false) FROM generate_series(100, 354) n \g /dev/null

-- The last key ends.

SELECT quorate.add_node(3, 'http://n3.test/', pg_temp.k(1)) \g /dev/null
SELECT clock_timestamp() + interval '200 ms' AS ends \gset
SELECT quorate.add_node_key(3, pg_temp.k(1), valid_until => :'ends') \g /dev/null
SELECT is(pg_temp.now_kept(3), '1', 'the only key, until it ends');
SELECT pg_temp.submit('goes-on', 1, '{3}') \g /dev/null
SELECT pg_temp.pass(:'ends') \g /dev/null
SELECT throws_ok('SELECT pg_temp.now_kept(3)', 'QR008', 'node 3 has no valid signing key', 'no round without a valid key');
SELECT throws_ok('SELECT quorate.open_round(''all'', 1)', 'QR008', 'node 3 has no valid signing key', 'nor one of all nodes: it is not left out quietly');
SELECT is(pg_temp.error_of('SELECT pg_temp.now_kept(3)', 'DETAIL'), format('The last one ended at %s.', :'ends'::timestamptz), 'the error says since when');
SELECT matches(pg_temp.error_of('SELECT pg_temp.now_kept(3)', 'HINT'), 'add_node_key.*set_node_enabled\(3, false\)', 'and what to do');
SELECT pg_temp.beat() \g /dev/null
SELECT is(keys_until, '-infinity', 'a coordinator notes it') FROM quorate_store.node WHERE node_id = 3;
SELECT throws_ok('SELECT pg_temp.now_kept(3)', 'QR008', 'node 3 has no valid signing key', 'which changes nothing');
SELECT pg_temp.claim_all(:me) \g /dev/null
SELECT is(pg_temp.record(:me, 'goes-on', 3, 'ack'), 'complete settled', 'a round that was open goes on with it');
SELECT clock_timestamp() + interval '200 ms' AS begins \gset
SELECT quorate.add_node_key(3, pg_temp.k(4), :'begins') \g /dev/null
SELECT throws_ok('SELECT pg_temp.now_kept(3)', 'QR008', NULL, 'another one that is to begin does not help yet');
SELECT pg_temp.pass(:'begins') \g /dev/null
SELECT is(pg_temp.now_kept(3), '4', 'then it does');
SELECT quorate.set_node_enabled(3, false) \g /dev/null

-- Revocation.

SELECT quorate.add_node(4, 'http://n4.test/', pg_temp.k(1)) \g /dev/null
SELECT quorate.add_node_key(4, pg_temp.k(2)) \g /dev/null
SELECT pg_temp.submit('snapshot', 1, '{4}') \g /dev/null
SELECT lives_ok('SELECT quorate.revoke_node_key(4, pg_temp.k(2))', 'a key is revoked');
SELECT is(pg_temp.now_kept(4), '1', 'no new round takes its receipts');
SELECT is(pg_temp.kept('snapshot', 4), '2 1', 'an open round keeps its snapshot');
SELECT pg_temp.claim_all(:me) \g /dev/null
SELECT is(pg_temp.ack_by('snapshot', '{1}', 4), 'complete', 'and completes with it');
SELECT is(pg_temp.numbers(ARRAY[receipt_key]), '2', 'its ack goes on to show it') FROM quorate.acks WHERE round_id = 'snapshot';
SELECT is(pg_temp.states(4), '1 valid, 2 revoked', 'the view says so');
SELECT pg_temp.stored(4) AS was \gset
SELECT lives_ok('SELECT quorate.revoke_node_key(4, pg_temp.k(2))', 'the same again');
SELECT is(pg_temp.stored(4), :'was', 'changes nothing');
SELECT throws_ok('SELECT quorate.add_node_key(4, pg_temp.k(2))', 'QR007', NULL, 'a revoked key never comes back');
SELECT throws_ok($$ SELECT quorate.add_node(4, 'http://n4.test/', pg_temp.k(2)) $$, 'QR007', NULL, 'nor by add_node');
SELECT matches(pg_temp.error_of('SELECT quorate.add_node_key(4, pg_temp.k(2))', 'MESSAGE'), 'was revoked at 20', 'the error says when it was revoked');
SELECT lives_ok('SELECT quorate.revoke_node_key(4, pg_temp.k(1))', 'the last one may be revoked, too');
SELECT throws_ok('SELECT pg_temp.now_kept(4)', 'QR008', 'node 4 has no valid signing key', 'new rounds are refused then');
SELECT quorate.add_node(4, 'http://n4.test/', pg_temp.k(3)) \g /dev/null
SELECT is(pg_temp.now_kept(4), '3', 'until the node has another one');

-- Sealing keys.

SELECT quorate.add_node(5, 'http://n5.test/', pg_temp.k(1), NULL, pg_temp.q(1)) \g /dev/null
SELECT is(pg_temp.now_kept(5), '1 / 1', 'a node with a sealing key');
SELECT quorate.add_node_key(5, pg_temp.q(2)) \g /dev/null
SELECT is(pg_temp.now_kept(5), '1 / 2', 'dealers seal to the newest');
SELECT is(use, 'seal', 'its use is shown') FROM quorate.node_keys WHERE key = pg_temp.q(2);
SELECT quorate.revoke_node_key(5, pg_temp.q(2)) \g /dev/null
SELECT is(pg_temp.now_kept(5), '1 / 1', 'and to the one before when it is revoked');
SELECT quorate.revoke_node_key(5, pg_temp.q(1)) \g /dev/null
SELECT throws_ok('SELECT pg_temp.now_kept(5)', 'QR008', 'node 5 has no valid sealing key', 'none is left: nothing is sent in the clear for that');
SELECT matches(pg_temp.error_of('SELECT pg_temp.now_kept(5)', 'HINT'), 'add_node without a sealing key', 'but if an admin says so');
SELECT quorate.add_node(5, 'http://n5.test/', pg_temp.k(1)) \g /dev/null
SELECT is(pg_temp.now_kept(5), '1', 'by adding the node without one');

SELECT quorate.add_node(n, format('http://n%s.test/', n), pg_temp.k(1)) FROM unnest('{8,9}'::int[]) n \g /dev/null
SELECT clock_timestamp() + interval '150 ms' AS begins, clock_timestamp() + interval '300 ms' AS ends \gset
SELECT quorate.add_node_key(8, pg_temp.q(3), :'begins', :'ends') \g /dev/null
SELECT quorate.add_node_key(9, pg_temp.q(3), :'begins') \g /dev/null
SELECT pg_temp.pass(:'ends') \g /dev/null
SELECT quorate.revoke_node_key(9, pg_temp.q(3)) \g /dev/null
SELECT throws_ok('SELECT pg_temp.now_kept(8)', 'QR008', 'node 8 has no valid sealing key', 'a first sealing key that began and ended while no coordinator ran is not forgotten');
SELECT throws_ok('SELECT pg_temp.now_kept(9)', 'QR008', 'node 9 has no valid sealing key', 'nor one that began so and was revoked');
SELECT pg_temp.beat() \g /dev/null
SELECT throws_ok(format('SELECT pg_temp.now_kept(%s)', n), 'QR008', format('node %s has no valid sealing key', n), 'not by a coordinator either')
  FROM unnest('{8,9}'::int[]) n;

-- add_node goes on to replace.

SELECT quorate.add_node(6, 'http://n6.test/', pg_temp.k(1)) \g /dev/null
SELECT quorate.add_node_key(6, pg_temp.k(2)) \g /dev/null
SELECT quorate.add_node_key(6, pg_temp.k(3), clock_timestamp() + interval '1 h') \g /dev/null
SELECT quorate.add_node(6, 'http://n6.test/', pg_temp.k(2)) \g /dev/null
SELECT is(pg_temp.states(6), '1 expired, 2 valid, 3 expired', 'add_node ends all keys but those that it names');
SELECT is(pg_temp.now_kept(6), '2', 'so rounds have that one alone');
SELECT quorate.add_node(6, 'http://n6.test/', pg_temp.k(1)) \g /dev/null
SELECT is(pg_temp.now_kept(6), '1', 'and back');
SELECT is(pg_temp.states(6), '1 expired, 2 expired, 1 valid, 3 expired', 'with a window of its own');
SELECT pg_temp.stored(6) AS was \gset
SELECT quorate.add_node(6, 'http://n6.test/', pg_temp.k(1)) \g /dev/null
SELECT is(pg_temp.stored(6), :'was', 'the same again changes nothing');
SELECT quorate.add_node_key(6, pg_temp.k(1), valid_until => clock_timestamp() + interval '1 h') \g /dev/null
SELECT quorate.add_node(6, 'http://n6.test/', pg_temp.k(1)) \g /dev/null
SELECT results_eq('SELECT valid_until, (SELECT keys_until FROM quorate_store.node WHERE node_id = 6) FROM quorate.node_keys WHERE node_id = 6 AND state = ''valid''',
                  'VALUES (NULL::timestamptz, NULL::timestamptz)', 'an end that was set is taken away');

-- Windows are changed as far as they have not passed.

SELECT quorate.add_node_key(6, pg_temp.k(4), clock_timestamp() + interval '1 h', clock_timestamp() + interval '2 h') \g /dev/null
SELECT quorate.add_node_key(6, pg_temp.k(4), clock_timestamp() + interval '3 h') \g /dev/null
SELECT is(count(*)::int, 1, 'a key that has not begun has one window') FROM quorate.node_keys WHERE key = pg_temp.k(4) AND state = 'future' AND valid_until IS NULL;
SELECT quorate.add_node_key(6, pg_temp.k(4)) \g /dev/null
SELECT is(pg_temp.now_kept(6), '4 1', 'and may begin at once instead');
SELECT lives_ok('SELECT quorate.add_node_key(6, pg_temp.k(4), valid_until => clock_timestamp())', 'or end at once');
SELECT is(pg_temp.now_kept(6), '1', 'which it does');
SELECT throws_ok('SELECT quorate.add_node_key(6, pg_temp.k(1), clock_timestamp() + interval ''1 h'')', 'QR007', NULL, 'what is valid cannot begin later');
SELECT throws_ok('SELECT quorate.add_node_key(6, pg_temp.k(5), now() - interval ''1 s'')', 'QR007', NULL, 'nothing begins in the past');
SELECT throws_ok('SELECT quorate.add_node_key(6, pg_temp.k(5), NULL, now() - interval ''1 s'')', 'QR007', NULL, 'or ends there');
SELECT throws_ok('SELECT quorate.add_node_key(6, pg_temp.k(5), now() + interval ''2 h'', now() + interval ''2 h'')', 'QR007', NULL, 'or is empty');
SELECT throws_ok(format('SELECT quorate.add_node_key(6, pg_temp.k(5), %s)', w), 'QR007', NULL, 'a window of ' || w)
  FROM unnest(ARRAY['''infinity''', '''-infinity''', 'NULL, ''infinity''', 'NULL, ''20000-01-01''']) w;

-- Eight at one time, and no more; one after the other as many as you like.

SELECT quorate.add_node_key(6, pg_temp.k(10 + i)) FROM generate_series(1, 7) i \g /dev/null
SELECT is(pg_temp.now_kept(6), '17 16 15 14 13 12 11 1', 'eight keys');
SELECT throws_ok('SELECT quorate.add_node_key(6, pg_temp.k(18))', 'QR007', 'node 6 would have 9 signing keys valid at one time', 'not nine');
SELECT throws_ok('SELECT quorate.add_node_key(6, pg_temp.k(18), now() + interval ''1 day'')', 'QR007', NULL, 'nor tomorrow');
SELECT lives_ok('SELECT quorate.add_node_key(6, pg_temp.q(18))', 'sealing keys do not count');
SELECT quorate.add_node_key(6, pg_temp.k(11), valid_until => now() + interval '1 day') \g /dev/null
SELECT lives_ok('SELECT quorate.add_node_key(6, pg_temp.k(18), now() + interval ''1 day'')', 'the ninth begins when another one ends');

-- What is refused.

SELECT quorate.add_node(7, 'http://n7.test/', 'whid_0123456789abcdef') \g /dev/null
SELECT throws_ok('SELECT quorate.add_node_key(7, ''whid_fedcba9876543210'')', 'QR007', NULL, 'a second secret');
SELECT throws_ok('SELECT quorate.add_node_key(7, pg_temp.k(1))', 'QR007', NULL, 'a key beside a secret');
SELECT throws_ok('SELECT quorate.add_node_key(1, ''whid_fedcba9876543210'')', 'QR007', NULL, 'a secret beside a key');
SELECT throws_ok(format('SELECT quorate.add_node_key(1, %L)', key), 'QR007', NULL, 'key ' || COALESCE(left(key, 20), 'NULL'))
  FROM unnest(ARRAY[NULL, '', 'whpk_', 'qbox_' || repeat('A', 42) || 'B=', 'whsk_secretsecret']) key;
SELECT ok(pg_temp.error_of(format('SELECT quorate.%s(1, ''whsk_secretsecret'')', f), 'MESSAGE') !~ 'secretsecret', f || ' repeats nothing that may be secret')
  FROM unnest('{add_node_key,revoke_node_key}'::text[]) f;
SELECT throws_ok(format('SELECT quorate.%s(%L, pg_temp.k(1))', f, id), CASE WHEN id IS NULL THEN 'QR007' ELSE 'QR008' END, NULL, format('%s of node %L', f, id))
  FROM unnest('{add_node_key,revoke_node_key}'::text[]) f, unnest('{NULL,99,0,-2147483648,2147483647}'::text[]) id;
SELECT throws_ok('SELECT quorate.revoke_node_key(1, pg_temp.k(9))', 'QR007', NULL, 'a key that the node never had is not revoked');

SELECT * FROM finish();
ROLLBACK;
