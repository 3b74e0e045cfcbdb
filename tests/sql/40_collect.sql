-- collect and collected: every outcome, the collector's floor, and failing closed without any coordinator.

BEGIN;
\ir common/helpers.sql
SELECT plan(57);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.nodes(4, 5, true) \gset
SELECT pg_temp.join_as('one') AS me \gset

-- Unknown, NULL.

SELECT throws_ok($$ SELECT quorate.collect('none') $$, 'QR003', NULL, 'collect: an unknown round');
SELECT throws_ok($$ SELECT quorate.collect('none', 99) $$, 'QR003', NULL, 'before its floor is looked at');
SELECT throws_ok($$ SELECT * FROM quorate.collected('none') $$, 'QR003', NULL, 'collected: an unknown round');
SELECT throws_ok($$ SELECT quorate.collect(NULL) $$, 'QR007', NULL, 'collect: NULL');
SELECT throws_ok($$ SELECT * FROM quorate.collected(NULL) $$, 'QR007', NULL, 'collected: NULL');

-- Open.

SELECT pg_temp.submit('r', 2, '{3,1,4}', p_freshness => '1 day') \gset
SELECT is(quorate.collect('r'), NULL, 'NULL while open');
SELECT is_empty($$ SELECT * FROM quorate.collected('r') $$, 'and collected is empty');
SELECT is(quorate.collect('r', 2), NULL, 'a floor that the quorum reaches');
SELECT throws_ok(format($$ SELECT quorate.collect('r', %s) $$, floor), 'QR007', NULL, 'floor ' || floor) FROM unnest(ARRAY[3, 4, 0, -1, 2147483647]) floor;
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record(:me, 'r', 4, 'ack'), 'open', 'one ack of two');
SELECT is(quorate.collect('r'), NULL, 'NULL below quorum');
SELECT is_empty($$ SELECT * FROM quorate.collected('r') $$, 'and collected is still empty');
SELECT is(collected_at, NULL, 'nothing was collected yet') FROM quorate.rounds WHERE round_id = 'r';

-- Complete.

SELECT is(pg_temp.record(:me, 'r', 1, 'ack'), 'complete', 'the second ack');
SELECT is(collected_at, NULL, 'a complete round is not collected by itself') FROM quorate.rounds WHERE round_id = 'r';
SELECT is(quorate.collect('r', 1), '{1,4}'::int[], 'the quorum_nodes, ascending');
SELECT collected_at AS first FROM quorate.rounds WHERE round_id = 'r' \gset
SELECT ok(:'first'::timestamptz BETWEEN closed_at AND clock_timestamp(), 'collected_at is set') FROM quorate.rounds WHERE round_id = 'r';
SELECT is(quorate.collect('r', 2), '{1,4}'::int[], 'the same answer again');
SELECT is(collected_at, :'first'::timestamptz, 'collected_at is the first one') FROM quorate.rounds WHERE round_id = 'r';
SELECT throws_ok($$ SELECT quorate.collect('r', 3) $$, 'QR007', NULL, 'a floor above the quorum, of a complete round as well');
SELECT results_eq($$ SELECT node_id, route, url, in_quorum, receipt FROM quorate.collected('r') $$,
    $$ VALUES (1, 'primary', 'http://n1.test/', true, 'v1a,' || translate(encode(pg_temp.receipt(1), 'base64'), E'\n', '')),
              (4, 'primary', 'http://n4.test/', true, 'v1a,' || translate(encode(pg_temp.receipt(4), 'base64'), E'\n', '')) $$,
    'collected: nodes, routes, URLs, receipts');
SELECT results_eq($$ SELECT c.node_id, c.deployment_id, c.nonce, c.quorum, c.payload_sha256 FROM quorate.collected('r') c $$,
    $$ SELECT d.node_id, p.deployment_id COLLATE "default", r.nonce, r.quorum, d.payload_sha256
         FROM quorate.rounds r JOIN quorate.deliveries d USING (round_id) CROSS JOIN quorate.deployment p
        WHERE r.round_id = 'r' AND d.node_id IN (1, 4) ORDER BY 1 $$,
    'and what the receipts were made for');
SELECT is(pg_temp.record(:me, 'r', 3, 'ack'), 'complete settled', 'a surplus ack');
SELECT is(quorate.collect('r'), '{1,4}'::int[], 'does not change the answer');
SELECT results_eq($$ SELECT node_id, in_quorum FROM quorate.collected('r') $$, 'VALUES (1, true), (3, false), (4, true)',
                  'collected lists it, in_quorum false');

SELECT pg_temp.submit('c', 1, '{2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'c', 2, 'ack') \gset
SELECT is(count(*)::int, 1, 'collected alone collects') FROM quorate.collected('c');
SELECT ok(collected_at IS NOT NULL, 'and sets collected_at') FROM quorate.rounds WHERE round_id = 'c';

-- A share that came by the backup is fetched there.

SELECT pg_temp.past_round('b', 1, '{4,5}', p_ago => '6 s', p_deadline => '10 s', p_owner => :me) \gset
SELECT escalated AS b_escalated FROM quorate_worker.escalate(:me, ARRAY[pg_temp.no('b')]) \gset
SELECT is(:'b_escalated', true, 'a round has escalated');
SELECT is(pg_temp.reserve(:me, 'b', 5, 1, 'backup'), 'granted open', 'its backup is tried');
SELECT is(pg_temp.record(:me, 'b', 5, 'ack', 1, 'backup'), 'complete', 'and acks');
SELECT results_eq($$ SELECT node_id, route, url FROM quorate.collected('b') $$, $$ VALUES (5, 'backup', 'http://b5.test/') $$,
                  'collected: the backup''s URL');

-- Stalled: by itself at the deadline.

SELECT quorate.open_round('due', 1, '{1}', NULL, '1 s', 1, '1 ms', '1 ms', '400 ms') \g /dev/null
SELECT is(quorate.collect('due'), NULL, 'just opened: NULL');
SELECT pg_temp.pass(deadline_at) FROM quorate.rounds WHERE round_id = 'due' \gset
SELECT throws_ok($$ SELECT quorate.collect('due') $$, 'QR001', NULL, 'past the deadline, without any coordinator: QR001');
SELECT throws_ok($$ SELECT * FROM quorate.collected('due') $$, 'QR001', NULL, 'collected as well');
SELECT is(pg_temp.state('due'), 'open', 'collect reads: it commits no transition');
SELECT throws_ok($$ SELECT quorate.collect('due', 2) $$, 'QR007', NULL, 'an impossible floor comes first');
SELECT is(quorate.settle_round('due'), 'stalled', 'settle_round does');
SELECT throws_ok($$ SELECT quorate.collect('due') $$, 'QR001', NULL, 'stalled: QR001');
SELECT pg_temp.past_round('enough', 1, '{1,2}') \gset
SELECT pg_temp.past_acks('enough', '{1}') \gset
SELECT throws_ok($$ SELECT quorate.collect('enough') $$, 'QR001', NULL,
                 'an open round past its deadline is QR001 even if enough acks are there: only their transaction could complete it');
SELECT pg_temp.past_round('stale', 2, '{1,2}', p_freshness => '10 s') \gset
SELECT quorate.settle_round('stale') \gset
SELECT throws_ok($$ SELECT quorate.collect('stale') $$, 'QR001', NULL, 'a stalled round is QR001 also past its freshness');

-- Cancelled.

SELECT pg_temp.submit('x', 1, '{1}') \gset
SELECT quorate.cancel_round('x', 'the dealer went home') \gset
SELECT throws_ok($$ SELECT quorate.collect('x') $$, 'QR004', NULL, 'cancelled: QR004');
SELECT throws_ok($$ SELECT * FROM quorate.collected('x') $$, 'QR004', NULL, 'collected as well');
SELECT ok(pg_temp.error_of($$ SELECT quorate.collect('x') $$, 'DETAIL') ~ 'the dealer went home', 'DETAIL says why');

-- Freshness.

SELECT pg_temp.past_round('old', 1, '{1,2}', p_freshness => '30 s') \gset
SELECT pg_temp.past_acks('old', '{1}', true) \gset
SELECT is(pg_temp.state('old'), 'complete', 'a complete round past its freshness that nobody closed yet');
SELECT throws_ok($$ SELECT quorate.collect('old') $$, 'QR002', NULL, 'is QR002');
SELECT throws_ok($$ SELECT * FROM quorate.collected('old') $$, 'QR002', NULL, 'collected as well');
SELECT is(collected_at, NULL, 'and was not collected by asking') FROM quorate.rounds WHERE round_id = 'old';
SELECT is(quorate.settle_round('old'), 'dead_lettered', 'it is dead-lettered');
SELECT throws_ok($$ SELECT quorate.collect('old') $$, 'QR002', NULL, 'and stays QR002');
SELECT pg_temp.past_round('was', 1, '{1,2}', p_freshness => '30 s') \gset
SELECT pg_temp.past_acks('was', '{1}', true) \gset
UPDATE quorate_store.round SET collected_at = fresh_until - interval '1 s' WHERE round_no = pg_temp.no('was');
SELECT throws_ok($$ SELECT quorate.collect('was') $$, 'QR002', NULL, 'past fresh_until: QR002 also for one that was collected before');
SELECT is(quorate.settle_round('was'), 'complete', 'though that one stays complete');
SELECT submit AS _ FROM pg_temp.submit('soon', 1, '{1}', p_budget => 1, p_freshness => '1.6 s', p_deadline => '1.6 s') submit \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'soon', 1, 'ack') \gset
SELECT is(quorate.collect('soon'), '{1}'::int[], 'fresh: collected');
SELECT pg_temp.pass(fresh_until) FROM quorate.rounds WHERE round_id = 'soon' \gset
SELECT throws_ok($$ SELECT quorate.collect('soon') $$, 'QR002', NULL, 'the same in the same transaction, past fresh_until: QR002');

SELECT * FROM finish();
ROLLBACK;
