-- Recording: outcomes and acks, completion by the t-th distinct ack in time, surplus and late acks, fences, repetition.

BEGIN;
\ir common/helpers.sql
SELECT plan(73);

SELECT pg_temp.nodes(1, 5) \gset
SELECT pg_temp.join_as('one') AS me \gset

-- The t-th distinct ack completes.

SELECT pg_temp.submit('r', 2, '{1,2,3}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record(:me, 'r', 2, 'ack', p_status => 200), 'open', 'the first ack of two: open');
SELECT results_eq($$ SELECT node_id, route, attempt, in_quorum, late, receipt, receipt_key FROM quorate.acks WHERE round_id = 'r' $$,
    $$ VALUES (2, 'primary', 1, false, false, 'v1a,' || translate(encode(pg_temp.receipt(2), 'base64'), E'\n', ''), pg_temp.key()) $$,
    'the ack is stored with its receipt and the key that it verifies under');
SELECT results_eq($$ SELECT outcome, http_status, finished_at IS NOT NULL FROM quorate.attempts WHERE round_id = 'r' AND node_id = 2 $$,
    $$ VALUES ('ack', 200, true) $$, 'and its attempt''s outcome');
SELECT acked_at AS acked_at FROM quorate.acks WHERE round_id = 'r' \gset
SELECT is(pg_temp.record(:me, 'r', 2, 'ack', p_status => 200), 'open', 'the same again counts once');
SELECT is(acked_at, :'acked_at'::timestamptz, 'and changes nothing') FROM quorate.acks WHERE round_id = 'r';
SELECT results_eq($$ SELECT acked, quorum_nodes FROM quorate.rounds WHERE round_id = 'r' $$, 'VALUES (1, NULL::int[])', 'one node has acked');
CREATE TEMP TABLE recorded AS
SELECT * FROM quorate_worker.record(:me, true, ARRAY[pg_temp.no('r')], '{1}', '{primary}', '{1}', '{ack}', '{204}', ARRAY[NULL::bigint], ARRAY[pg_temp.receipt(1)]);
SELECT results_eq('SELECT round_no, state, settled FROM recorded', $$ SELECT pg_temp.no('r'), 'complete', false $$, 'the second node: complete');
SELECT is(completed_us, (extract(epoch FROM closed_at - opened_at) * 1000000)::bigint, 'with the time from opening to quorum')
  FROM recorded, quorate.rounds WHERE round_id = 'r';
SELECT results_eq($$ SELECT state, acked, quorum_nodes, close_reason, settled_at FROM quorate.rounds WHERE round_id = 'r' $$,
    $$ VALUES ('complete', 2, '{1,2}'::int[], 'quorum', NULL::timestamptz) $$, 'the view says so');
SELECT ok(closed_at <= deadline_at AND closed_at >= (SELECT max(acked_at) FROM quorate.acks WHERE round_id = 'r'), 'closed with the last ack')
  FROM quorate.rounds WHERE round_id = 'r';
SELECT is(bool_and(in_quorum), true, 'both acks are in the quorum') FROM quorate.acks WHERE round_id = 'r';
SELECT is((SELECT completed_us FROM quorate_worker.record(:me, true, ARRAY[pg_temp.no('r')], '{1}', '{primary}', '{1}', '{ack}', '{204}', ARRAY[NULL::bigint],
                                                          ARRAY[pg_temp.receipt(1)])), NULL, 'the same batch again did not complete it');
SELECT is(pg_temp.record(:me, 'r', 3, 'ack'), 'complete settled', 'the third ack is surplus, and the last: the round settles in the same breath');
SELECT results_eq($$ SELECT node_id, in_quorum, late FROM quorate.acks WHERE round_id = 'r' ORDER BY 1 $$,
    'VALUES (1, true, false), (2, true, false), (3, false, false)', 'surplus: on time, and not in the quorum');
SELECT results_eq($$ SELECT acked, quorum_nodes, settled_at IS NOT NULL FROM quorate.rounds WHERE round_id = 'r' $$, $$ VALUES (3, '{1,2}'::int[], true) $$,
                  'quorum_nodes stay as they were');
SELECT is(count(*)::int, 0, 'no envelope is left') FROM quorate_store.envelope WHERE round_no = pg_temp.no('r');
SELECT is(pg_temp.record(:me, 'r', 3, 'ack'), 'complete settled', 'again after settling');

-- All at once: every ack of the completing transaction is in the quorum.

SELECT pg_temp.submit('at-once', 2, '{1,2,3,4}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(state, 'complete', 'three acks in one batch')
  FROM quorate_worker.record(:me, true, array_fill(pg_temp.no('at-once'), ARRAY[4]), '{4,1,3,2}', '{primary,primary,primary,primary}', '{1,1,1,1}',
                             '{ack,ack,ack,timeout}', '{200,200,200,NULL}', '{NULL,NULL,NULL,1000}',
                             ARRAY[pg_temp.receipt(4), pg_temp.receipt(1), pg_temp.receipt(3), NULL]);
SELECT is(quorum_nodes, '{1,3,4}'::int[], 'are all in quorum_nodes') FROM quorate.rounds WHERE round_id = 'at-once';
SELECT is(outcome, 'timeout', 'and the fourth outcome is recorded too') FROM quorate.attempts WHERE round_id = 'at-once' AND node_id = 2;

-- The same node twice in one batch, by both routes and with different receipts.

SELECT pg_temp.submit('twice', 2, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(state, 'open', 'two acks of one node in one batch: still open')
  FROM quorate_worker.record(:me, true, array_fill(pg_temp.no('twice'), ARRAY[2]), '{1,1}', '{primary,primary}', '{1,1}', '{ack,ack}', '{200,200}',
                             '{NULL,NULL}', ARRAY[pg_temp.receipt(1), pg_temp.receipt(99)]);
SELECT is(acked, 1, 'count once') FROM quorate.rounds WHERE round_id = 'twice';

-- Several rounds in one batch, in any order.

SELECT pg_temp.submit('b' || i, 1, '{1}') FROM generate_series(1, 3) i \g /dev/null
SELECT pg_temp.claim_all(:me) \gset
SELECT results_eq(format($$ SELECT l.round_id, c.state, c.settled FROM quorate_worker.record(%s, true,
           ARRAY[pg_temp.no('b3'), pg_temp.no('b1'), pg_temp.no('b2')], '{1,1,1}', '{primary,primary,primary}', '{1,1,1}', '{ack,refused,ack}', '{200,409,200}',
           '{NULL,NULL,NULL}', ARRAY[pg_temp.receipt(1), NULL, pg_temp.receipt(1)]) c JOIN quorate_store.ledger l USING (round_no) ORDER BY 1 $$, :me),
    $$ VALUES ('b1'::text COLLATE "C", 'open', false), ('b2', 'complete', true), ('b3', 'complete', true) $$, 'one row per round');
SELECT is_empty(format($$ SELECT * FROM quorate_worker.record(%s, true, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}') $$, :me), 'an empty batch');

-- Outcomes.

SELECT pg_temp.submit('o', 1, '{1,2,3,4,5}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record(:me, 'o', 1, 'http_error', p_status => 503, p_retry_us => 60000000), 'open', 'an outcome to be retried');
SELECT results_eq($$ SELECT outcome, http_status, finished_at - reserved_at < interval '1 min' FROM quorate.attempts WHERE round_id = 'o' AND node_id = 1 $$,
                  $$ VALUES ('http_error', 503, true) $$, 'shows in attempts');
SELECT results_eq(
    $$ SELECT d.state, d.attempts, d.last_outcome, d.next_attempt_at = a.finished_at + interval '60 s' FROM quorate.deliveries d JOIN quorate.attempts a USING (round_id, node_id)
        WHERE d.round_id = 'o' AND d.node_id = 1 $$, $$ VALUES ('pending', 1, 'http_error', true) $$, 'and when the next may start');
SELECT is(pg_temp.record(:me, 'o', 1, 'timeout'), 'open', 'another outcome for the same attempt');
SELECT is(outcome, 'http_error', 'is written once') FROM quorate.attempts WHERE round_id = 'o' AND node_id = 1;
SELECT is(pg_temp.record(:me, 'o', n, o), 'open', o) FROM (VALUES (2, 'connect_error'), (3, 'bad_receipt'), (4, 'refused'), (5, 'in_doubt')) v (n, o);
SELECT results_eq($$ SELECT outcome FROM quorate.attempts WHERE round_id = 'o' ORDER BY node_id $$,
    $$ VALUES ('http_error'), ('connect_error'), ('bad_receipt'), ('refused'), ('in_doubt') $$, 'all are recorded');
SELECT throws_ok(format($$ SELECT pg_temp.record(%s, 'twice', 2, 'maybe') $$, :me), '22P02', NULL, 'no other outcome exists');
SELECT throws_ok(format($$ SELECT pg_temp.record(%s, 'o', 1, 'ack', 2) $$, :me), '23000', NULL, 'no ack without a committed attempt');
SELECT throws_ok(format($$ SELECT pg_temp.record(%s, 'o', 1, 'ack', 1, 'backup') $$, :me), '23000', NULL, 'on the route it names');
SELECT throws_ok(format($$ SELECT * FROM quorate_worker.record(%s, true, ARRAY[pg_temp.no('o')], '{1}', '{primary}', '{1}', '{ack}', '{200}', '{NULL}', '{abc}') $$, :me),
                 '23000', NULL, 'a receipt by a key has 64 bytes');
SELECT is(acked, 0, 'nothing of this counted') FROM quorate.rounds WHERE round_id = 'o';

-- An ack by an attempt that was already given up counts: what counts is the receipt.

SELECT is(pg_temp.record(:me, 'o', 3, 'ack'), 'complete', 'a receipt for an attempt whose outcome was bad_receipt');
SELECT results_eq($$ SELECT outcome, acked FROM quorate.attempts, quorate.rounds r WHERE r.round_id = 'o' AND attempts.round_id = 'o' AND node_id = 3 $$,
                  $$ VALUES ('bad_receipt', 1) $$, 'counts, and the outcome stays');

-- On time and late. The clock is read under the round's lock.

SELECT pg_temp.past_round('late', 2, '{1,2,3}', p_owner => :me) \gset
SELECT pg_temp.past_attempts('late', '{1,2,3}', NULL, :me) \gset
CREATE TEMP TABLE late AS
SELECT * FROM quorate_worker.record(:me, true, array_fill(pg_temp.no('late'), ARRAY[2]), '{1,2}', '{primary,primary}', '{1,1}', '{ack,ack}', '{200,200}',
                                    '{NULL,NULL}', ARRAY[pg_temp.receipt(1), pg_temp.receipt(2)]);
SELECT is(state, 'stalled', 'enough acks past the deadline of a round that still looks open: it stalls') FROM late;
SELECT is(completed_us > 0, true, 'by this call') FROM late;
SELECT results_eq($$ SELECT node_id, late, in_quorum FROM quorate.acks WHERE round_id = 'late' ORDER BY 1 $$, 'VALUES (1, true, false), (2, true, false)',
                  'its acks are kept, marked late');
SELECT results_eq($$ SELECT state, acked, quorum_nodes, close_reason FROM quorate.rounds WHERE round_id = 'late' $$,
    $$ VALUES ('stalled', 0, NULL::int[], 'deadline') $$, 'and change nothing');
SELECT is(pg_temp.record(:me, 'late', 3, 'ack'), 'stalled settled', 'the last late ack: settled');
SELECT is(late, true, 'late as well') FROM quorate.acks WHERE round_id = 'late' AND node_id = 3;
SELECT results_eq($$ SELECT reason, acked, quorum FROM quorate.dead_letters WHERE round_id = 'late' $$, $$ VALUES ('late_quorum', 3, 2) $$,
                  'a stalled round that reaches t with late acks is a dead letter');

SELECT pg_temp.past_round('below', 2, '{1,2,3}', p_owner => :me) \gset
SELECT pg_temp.past_acks('below', '{1}') \gset
SELECT pg_temp.past_attempts('below', '{2}', NULL, :me) \gset
SELECT is(pg_temp.record(:me, 'below', 2, 'timeout'), 'stalled', 'any outcome past the deadline stalls a round that still looks open');
SELECT is(pg_temp.record(:me, 'below', 2, 'ack'), 'stalled', 'one ack in time, one late');
SELECT results_eq($$ SELECT acked FROM quorate.rounds WHERE round_id = 'below' $$, 'VALUES (1)', 'only the one in time counts as acked');

SELECT pg_temp.submit('x', 1, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT quorate.cancel_round('x', 'why') \gset
SELECT is(pg_temp.record(:me, 'x', 1, 'ack'), 'cancelled', 'an ack after the cancellation');
SELECT is(late, true, 'is kept and late, though the deadline is far') FROM quorate.acks WHERE round_id = 'x';

SELECT pg_temp.past_round('surplus', 1, '{1,2}', p_owner => :me) \gset
SELECT pg_temp.past_acks('surplus', '{1}', true) \gset
SELECT pg_temp.past_attempts('surplus', '{2}', NULL, :me) \gset
SELECT is(pg_temp.record(:me, 'surplus', 2, 'ack'), 'complete settled', 'a surplus ack past the deadline of a complete round');
SELECT results_eq($$ SELECT node_id, late, in_quorum FROM quorate.acks WHERE round_id = 'surplus' ORDER BY 1 $$, 'VALUES (1, false, true), (2, true, false)',
                  'is late; the quorum stays');
SELECT is_empty($$ SELECT * FROM quorate.dead_letters WHERE round_id = 'surplus' $$, 'and no dead letter');

-- Fenced: receipts count, outcomes do not.

SELECT pg_temp.join_as('two') AS old \gset
SELECT pg_temp.submit('f', 2, '{1,2,3}') \gset
SELECT pg_temp.claim_all(:old) \gset
SELECT quorate_worker.leave(:old) \gset
SELECT is(pg_temp.record(:old, 'f', 1, 'ack'), 'fenced', 'a receipt of an instance that is gone, before anybody took over');
SELECT results_eq($$ SELECT r.acked, a.outcome FROM quorate.rounds r JOIN quorate.attempts a USING (round_id) WHERE round_id = 'f' AND node_id = 1 $$,
                  $$ VALUES (1, 'ack') $$, 'counts, and says how its attempt ended');
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record(:old, 'f', 3, 'timeout'), 'fenced', 'an outcome of a fenced instance');
SELECT is(outcome, NULL, 'is not written') FROM quorate.attempts WHERE round_id = 'f' AND node_id = 3;
SELECT is(pg_temp.reserve(:me, 'f', 3, 1), 'granted open', 'its successor sends it again under the same number');
SELECT is(pg_temp.record(:old, 'f', 3, 'refused'), 'fenced', 'its predecessor''s outcome');
SELECT is(outcome, NULL, 'does not overwrite it') FROM quorate.attempts WHERE round_id = 'f' AND node_id = 3;
SELECT is(pg_temp.record(:old, 'f', 3, 'ack'), 'fenced', 'its predecessor''s receipt');
SELECT results_eq($$ SELECT state, quorum_nodes FROM quorate.rounds WHERE round_id = 'f' $$, $$ VALUES ('complete', '{1,3}'::int[]) $$, 'completes the round');
SELECT is(pg_temp.record(:me, 'f', 3, 'ack'), 'complete', 'the successor''s receipt of the same node');
SELECT is((SELECT count(*)::int FROM quorate.acks WHERE round_id = 'f'), 2, 'counts once');

-- A successor ends what its predecessor left under way, as in doubt; nothing else.

SELECT is(pg_temp.record(:me, 'f', 2, 'refused'), 'complete', 'an outcome for an attempt that another one reserved');
SELECT is(outcome, NULL, 'is not written') FROM quorate.attempts WHERE round_id = 'f' AND node_id = 2;
SELECT is(pg_temp.record(:me, 'f', 2, 'in_doubt'), 'complete', 'in_doubt by the round''s owner');
SELECT is(outcome, 'in_doubt', 'is') FROM quorate.attempts WHERE round_id = 'f' AND node_id = 2;
SELECT is(pg_temp.record(NULL, 'f', 2, 'ack'), 'fenced settled', 'a receipt brought by nobody in particular');
SELECT is(acked, 3, 'counts like any other') FROM quorate.rounds WHERE round_id = 'f';

SELECT * FROM finish();
ROLLBACK;
