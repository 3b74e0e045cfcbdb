-- settle_round commits what is due and needs no coordinator; cancel_round ends an open round.

BEGIN;
\ir common/helpers.sql
SELECT plan(43);

SELECT pg_temp.nodes(1, 3) \gset

SELECT throws_ok($$ SELECT quorate.settle_round('none') $$, 'QR003', NULL, 'settle_round: an unknown round');
SELECT throws_ok($$ SELECT quorate.settle_round(NULL) $$, 'QR007', NULL, 'settle_round: NULL');

SELECT pg_temp.submit('open', 1, '{1}') \gset
SELECT is(quorate.settle_round('open'), 'open', 'nothing is due: open');

SELECT pg_temp.past_round('due', 2, '{1,2}') \gset
SELECT pg_temp.past_acks('due', '{1}') \gset
SELECT is(quorate.settle_round('due'), 'stalled', 'past its deadline below quorum: stalled');
SELECT results_eq($$ SELECT state, quorum_nodes, close_reason, acked, dead_lettered_at, settled_at FROM quorate.rounds WHERE round_id = 'due' $$,
    $$ VALUES ('stalled', NULL::int[], 'deadline', 1, NULL::timestamptz, NULL::timestamptz) $$, 'and so it is written');
SELECT ok(closed_at > deadline_at AND closed_at <= clock_timestamp(), 'closed now') FROM quorate.rounds WHERE round_id = 'due';
SELECT closed_at AS closed FROM quorate.rounds WHERE round_id = 'due' \gset
SELECT is(quorate.settle_round('due'), 'stalled', 'the same again');
SELECT is(closed_at, :'closed'::timestamptz, 'changes nothing') FROM quorate.rounds WHERE round_id = 'due';
SELECT pg_temp.past_round('enough', 1, '{1,2}') \gset
SELECT pg_temp.past_acks('enough', '{1}') \gset
SELECT is(quorate.settle_round('enough'), 'stalled', 'no round completes past its deadline');

SELECT pg_temp.past_round('fresh', 1, '{1}', p_freshness => '1 day') \gset
SELECT pg_temp.past_acks('fresh', '{1}', true) \gset
SELECT is(quorate.settle_round('fresh'), 'complete', 'complete and fresh: complete');
SELECT pg_temp.past_round('free', 1, '{1}', p_ago => '90 years') \gset
SELECT pg_temp.past_acks('free', '{1}', true) \gset
SELECT is(quorate.settle_round('free'), 'complete', 'complete without a limit of freshness: for ever');
SELECT pg_temp.past_round('old', 1, '{1}', p_freshness => '20 s') \gset
SELECT pg_temp.past_acks('old', '{1}', true) \gset
SELECT is(quorate.settle_round('old'), 'dead_lettered', 'not collected and past fresh_until: dead_lettered');
SELECT results_eq($$ SELECT state, quorum_nodes, close_reason, collected_at, dead_lettered_at > fresh_until FROM quorate.rounds WHERE round_id = 'old' $$,
    $$ VALUES ('dead_lettered', '{1}'::int[], 'quorum', NULL::timestamptz, true) $$, 'its quorum_nodes and close_reason stay');
SELECT is(quorate.settle_round('old'), 'dead_lettered', 'the same again');
SELECT pg_temp.past_round('kept', 1, '{1}', p_freshness => '20 s') \gset
SELECT pg_temp.past_acks('kept', '{1}', true) \gset
UPDATE quorate_store.round SET collected_at = opened_at + interval '1 s' WHERE round_no = pg_temp.no('kept');
SELECT is(quorate.settle_round('kept'), 'complete', 'collected in time: never dead-lettered');

-- Cancel.

SELECT throws_ok($$ SELECT quorate.cancel_round('none', 'why') $$, 'QR003', NULL, 'cancel_round: an unknown round');
SELECT throws_ok(format('SELECT quorate.cancel_round(%s)', a), 'QR007', NULL, 'cancel_round ' || left(a, 30))
  FROM unnest(ARRAY[$$NULL, 'why'$$, $$'open', NULL$$, $$'open', ''$$, $$'open', repeat('x', 1001)$$]) a;
SELECT is(pg_temp.state('open'), 'open', 'none of these cancels');
SELECT is(quorate.cancel_round('open', E'no "reason"\n, é \\ %s'), true, 'an open round is cancelled');
SELECT results_eq($$ SELECT state, close_reason, quorum_nodes, settled_at FROM quorate.rounds WHERE round_id = 'open' $$,
    $$ VALUES ('cancelled', E'no "reason"\n, é \\ %s', NULL::int[], NULL::timestamptz) $$, 'the reason is kept as it is');
SELECT ok(closed_at BETWEEN opened_at AND clock_timestamp(), 'closed now') FROM quorate.rounds WHERE round_id = 'open';
SELECT is(quorate.cancel_round('open', 'again'), false, 'again: false');
SELECT is(close_reason, E'no "reason"\n, é \\ %s', 'the first reason stays') FROM quorate.rounds WHERE round_id = 'open';
SELECT is(quorate.cancel_round(id, 'why'), false, id || ' has ended: false') FROM unnest(ARRAY['due', 'fresh', 'old', 'kept']) id;
SELECT pg_temp.past_round('late', 1, '{1}') \gset
SELECT is(quorate.cancel_round('late', 'why'), false, 'open, but past its deadline: false');
SELECT is(pg_temp.state('late'), 'open', 'and it stays for the deadline to end it');
SELECT is(quorate.settle_round('late'), 'stalled', 'as stalled');
SELECT pg_temp.submit('long', 1, '{1}') \gset
SELECT is(quorate.cancel_round('long', repeat('é', 1000)), true, 'a reason of 1000 characters');
SELECT is(quorate.settle_round('long'), 'cancelled', 'settle_round of a cancelled round');

-- A cancelled round settles: its envelopes go.

SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.submit('c', 2, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'c', 1, 'ack') \gset
SELECT quorate.cancel_round('c', 'why') \gset
SELECT is(pg_temp.settle(:me, 'c'), 'cancelled', 'an attempt is under way: not settled yet');
SELECT is(count(*)::int, 2, 'envelopes are still there') FROM quorate_store.envelope WHERE round_no = pg_temp.no('c');
SELECT is(pg_temp.record(:me, 'c', 2, 'timeout'), 'cancelled', 'its outcome is recorded');
SELECT is(pg_temp.settle(:me, 'c'), 'cancelled settled', 'then it settles');
SELECT is(count(*)::int, 0, 'and its envelopes are gone') FROM quorate_store.envelope WHERE round_no = pg_temp.no('c');
SELECT results_eq($$ SELECT node_id, state, payload_sha256, payload_bytes FROM quorate.deliveries WHERE round_id = 'c' AND payload_erased_at IS NOT NULL ORDER BY 1 $$,
    $$ VALUES (1, 'acked', sha256('share 1'), 7), (2, 'abandoned', sha256('share 2'), 7) $$, 'only digests and sizes stay');
SELECT results_eq($$ SELECT node_id, in_quorum, late FROM quorate.acks WHERE round_id = 'c' $$, 'VALUES (1, false, false)', 'and the ack that it had');
SELECT is(acked, 1, 'which the round counts as on time') FROM quorate.rounds WHERE round_id = 'c';

SELECT * FROM finish();
ROLLBACK;
