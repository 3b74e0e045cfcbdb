-- What auditors see: every state of a delivery, dead letters of both kinds, coordinators and the deployment.

BEGIN;
\ir common/helpers.sql
SELECT plan(60);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.nodes(4, 6, true) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT array_agg(version) AS everyone FROM quorate_store.node_version \gset

-- Deliveries. A table of cases: how a delivery got where it is, and what must be shown. All are to node 4, which has a backup,
-- but for those named 'plain', which are to node 1. 'half': past half-time, deadline ahead; 'over': past the deadline.

CREATE FUNCTION pg_temp.attempt(p_round_id text, p_node int, p_attempt int, p_outcome text, p_route text DEFAULT 'primary', p_retry interval DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at, finished_at, outcome, retry_at)
    SELECT r.round_no, p_node, p_route::quorate_store.route, p_attempt, r.owner, r.opened_at + p_attempt * interval '1 ms',
           CASE WHEN p_outcome IS NOT NULL THEN r.opened_at + p_attempt * CASE p_route WHEN 'backup' THEN interval '1 s' ELSE interval '2 ms' END END, p_outcome::quorate_store.outcome, r.opened_at + p_retry
      FROM quorate_store.round r WHERE r.round_no = pg_temp.no(p_round_id)
$$;
CREATE FUNCTION pg_temp.escalated(p_round_id text) RETURNS void LANGUAGE sql AS
    $$ UPDATE quorate_store.round SET escalated_at = escalate_at WHERE round_no = pg_temp.no(p_round_id) $$;
CREATE FUNCTION pg_temp.delivery(p_round_id text, p_node int DEFAULT 4) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', state, attempts, last_outcome) FROM quorate.deliveries WHERE round_id = p_round_id AND node_id = p_node
$$;
CREATE FUNCTION pg_temp.half(p_round_id text, p_after text DEFAULT 'continue') RETURNS void LANGUAGE sql AS
    $$ SELECT pg_temp.past_round(p_round_id, 1, '{1,2,4}', '6 min', '10 min', NULL, p_after) $$;

SELECT pg_temp.half('new') \gset
SELECT is(pg_temp.delivery('new'), 'pending 0', 'pending: never attempted');
SELECT is(next_attempt_at, NULL, 'no wait') FROM quorate.deliveries WHERE round_id = 'new' AND node_id = 4;
SELECT pg_temp.attempt('new', 4, 1, NULL) \gset
SELECT is(pg_temp.delivery('new'), 'pending 1', 'pending: under way');
SELECT is(next_attempt_at, NULL, 'no next attempt while one is under way') FROM quorate.deliveries WHERE round_id = 'new' AND node_id = 4;

SELECT pg_temp.half('wait') \gset
SELECT pg_temp.attempt('wait', 4, 1, 'timeout', p_retry => '1 s') \gset
SELECT pg_temp.attempt('wait', 4, 2, 'http_error', p_retry => '3 s') \gset
SELECT is(pg_temp.delivery('wait'), 'pending 2 http_error', 'pending: waiting; the last outcome shows');
SELECT is(next_attempt_at, r.opened_at + interval '3 s', 'until the latest wait is over') FROM quorate.deliveries d JOIN quorate.rounds r USING (round_id)
 WHERE round_id = 'wait' AND node_id = 4;

SELECT pg_temp.half('spent') \gset
SELECT pg_temp.attempt('spent', n, a, 'timeout') FROM unnest('{1,4}'::int[]) n, generate_series(1, 4) a \g /dev/null
SELECT is(pg_temp.delivery('spent', 1), 'exhausted 4 timeout', 'plain: exhausted once its only route has no attempt left');
SELECT is(pg_temp.delivery('spent'), 'pending 4 timeout', 'with a backup it is pending: the escalation may come');
SELECT pg_temp.escalated('spent') \gset
SELECT is(pg_temp.delivery('spent'), 'pending 4 timeout', 'pending: the backup is next');
SELECT pg_temp.attempt('spent', 4, a, 'connect_error', 'backup') FROM generate_series(1, 3) a \g /dev/null
SELECT is(pg_temp.delivery('spent'), 'pending 7 connect_error', 'pending: the backup has one left');
SELECT pg_temp.attempt('spent', 4, 4, NULL, 'backup') \gset
SELECT is(pg_temp.delivery('spent'), 'pending 8 connect_error', 'pending: the last one is under way');
UPDATE quorate_store.attempt SET outcome = 'bad_receipt', finished_at = reserved_at + interval '10 s' WHERE round_no = pg_temp.no('spent') AND outcome IS NULL;
SELECT is(pg_temp.delivery('spent'), 'exhausted 8 bad_receipt', 'exhausted: both budgets are used up');

SELECT pg_temp.half('no') \gset
SELECT pg_temp.attempt('no', n, 1, 'refused') FROM unnest('{1,4}'::int[]) n \g /dev/null
SELECT is(pg_temp.delivery('no', 1), 'refused 1 refused', 'plain: refused by its only route');
SELECT is(pg_temp.delivery('no'), 'pending 1 refused', 'a primary that refused does not bar the backup');
SELECT pg_temp.escalated('no') \gset
SELECT pg_temp.attempt('no', 4, 1, 'refused', 'backup') \gset
SELECT is(pg_temp.delivery('no'), 'refused 2 refused', 'refused by both');
SELECT pg_temp.half('mixed') \gset
SELECT pg_temp.escalated('mixed') \gset
SELECT pg_temp.attempt('mixed', 4, a, 'timeout') FROM generate_series(1, 4) a \g /dev/null
SELECT pg_temp.attempt('mixed', 4, 1, 'refused', 'backup') \gset
SELECT is(pg_temp.delivery('mixed'), 'refused 5 refused', 'exhausted by one route, refused by the other');

SELECT pg_temp.half('acked') \gset
SELECT pg_temp.attempt('acked', 4, 1, 'timeout') \gset
SELECT pg_temp.past_acks('acked', '{1}', true) \gset
SELECT is(pg_temp.delivery('acked', 1), 'acked 1 ack', 'acked');
SELECT is(pg_temp.delivery('acked'), 'pending 1 timeout', 'continue: after the quorum the others are still pending');
SELECT is(pg_temp.delivery('acked', 2), 'pending 0', 'also those that were never tried');
SELECT pg_temp.attempt('acked', 4, a, 'timeout') FROM generate_series(2, 4) a \g /dev/null
SELECT is(pg_temp.delivery('acked'), 'exhausted 4 timeout', 'a complete round escalates no more: the backup is no route any more');
SELECT pg_temp.half('stop', 'stop') \gset
SELECT pg_temp.attempt('stop', 2, 1, NULL) \gset
SELECT pg_temp.past_acks('stop', '{1}', true) \gset
SELECT is(pg_temp.delivery('stop'), 'abandoned 0', 'stop: after the quorum the others are abandoned');
SELECT is(pg_temp.delivery('stop', 2), 'abandoned 1', 'also with an attempt under way: it is awaited, and nothing follows');

SELECT pg_temp.past_round('over', 1, '{1,2,3,4,5}') \gset
SELECT pg_temp.attempt('over', 2, a, 'timeout') FROM generate_series(1, 4) a \g /dev/null
SELECT pg_temp.attempt('over', 3, 1, 'refused') \gset
SELECT pg_temp.attempt('over', 4, 1, 'timeout') \gset
SELECT pg_temp.attempt('over', 5, 1, NULL) \gset
SELECT is(pg_temp.delivery('over', 1), 'pending 0', 'past the deadline, but nobody has stalled the round: pending');
SELECT quorate.settle_round('over') \gset
SELECT is(pg_temp.delivery('over', 1), 'abandoned 0', 'abandoned: its round ended first');
SELECT is(pg_temp.delivery('over', 2), 'exhausted 4 timeout', 'exhausted before that');
SELECT is(pg_temp.delivery('over', 3), 'refused 1 refused', 'refused before that');
SELECT is(pg_temp.delivery('over', 4), 'abandoned 1 timeout', 'abandoned: attempts were left');
SELECT is(pg_temp.record(0, 'over', 5, 'ack'), 'fenced', 'a late ack');
SELECT is(pg_temp.delivery('over', 5), 'acked 1', 'acked, though late');
SELECT ok(bool_and(next_attempt_at IS NULL), 'nothing is next after the end') FROM quorate.deliveries WHERE round_id = 'over';
SELECT pg_temp.half('x') \gset
SELECT quorate.cancel_round('x', 'why') \gset
SELECT is(pg_temp.delivery('x'), 'abandoned 0', 'abandoned: its round was cancelled');
SELECT pg_temp.past_round('done-over', 1, '{1,2}') \gset
SELECT pg_temp.past_acks('done-over', '{1}', true) \gset
SELECT is(pg_temp.delivery('done-over', 2), 'abandoned 0', 'abandoned: complete, and past the deadline');
SELECT ok(bool_and(state IN ('pending', 'acked', 'exhausted', 'refused', 'abandoned')), 'there are five states') FROM quorate.deliveries;
SELECT ok(bool_and(payload_erased_at IS NULL), 'nothing of this is erased: no round has settled') FROM quorate.deliveries;

-- Dead letters.

SELECT is_empty('SELECT * FROM quorate.dead_letters WHERE round_id <> ''over''', 'none so far');
SELECT results_eq($$ SELECT round_id, reason, acked, quorum FROM quorate.dead_letters $$, $$ VALUES ('over'::text COLLATE "C", 'late_quorum', 1, 1) $$,
                  'but the stalled one that reached its quorum of 1 late');
SELECT pg_temp.past_round('some-late', 3, '{1,2,3}') \gset
SELECT pg_temp.past_acks('some-late', '{1}') \gset
SELECT pg_temp.past_attempts('some-late', '{2,3}') \gset
SELECT pg_temp.record(0, 'some-late', 2, 'ack') \gset
SELECT is_empty($$ SELECT * FROM quorate.dead_letters WHERE round_id = 'some-late' $$, 'stalled, late acks, still below t: none');
SELECT pg_temp.record(0, 'some-late', 3, 'ack') \gset
SELECT results_eq($$ SELECT reason, d.closed_at = r.closed_at, d.acked, r.acked FROM quorate.dead_letters d JOIN quorate.rounds r USING (round_id) WHERE round_id = 'some-late' $$,
    $$ VALUES ('late_quorum', true, 3, 1) $$, 'late_quorum: acked counts the late ones, the round''s own number does not');
SELECT pg_temp.half('x2') \gset
SELECT pg_temp.past_attempts('x2', '{1}') \gset
SELECT quorate.cancel_round('x2', 'why') \gset
SELECT pg_temp.record(0, 'x2', 1, 'ack') \gset
SELECT is_empty($$ SELECT * FROM quorate.dead_letters WHERE round_id = 'x2' $$, 'a cancelled round with late acks is no dead letter');
SELECT pg_temp.past_round('old', 1, '{1,2}', p_freshness => '20 s') \gset
SELECT pg_temp.past_acks('old', '{1,2}', true) \gset
SELECT is_empty($$ SELECT * FROM quorate.dead_letters WHERE round_id = 'old' $$, 'not before it is closed as such');
SELECT quorate.settle_round('old') \gset
SELECT results_eq($$ SELECT reason, d.closed_at = r.closed_at, d.acked, d.quorum FROM quorate.dead_letters d JOIN quorate.rounds r USING (round_id) WHERE round_id = 'old' $$,
    $$ VALUES ('not_collected', true, 2, 1) $$, 'not_collected');

-- Rounds.

SELECT results_eq($$ SELECT state, acked, quorum_nodes FROM quorate.rounds WHERE round_id = 'old' $$, $$ VALUES ('dead_lettered', 2, '{1,2}'::int[]) $$,
                  'a dead-lettered round keeps its quorum_nodes');
SELECT ok(bool_and((quorum_nodes IS NOT NULL) = (state IN ('complete', 'dead_lettered'))), 'quorum_nodes are null unless complete or dead_lettered') FROM quorate.rounds;
SELECT is((SELECT coordinator FROM quorate.rounds WHERE round_id = 'x2'), NULL, 'a round that nobody claimed has no coordinator');
SELECT is((SELECT count(*) FROM quorate.rounds), (SELECT count(*) FROM quorate_store.round), 'every round is shown, once');
SELECT is((SELECT count(*) FROM quorate.deliveries), (SELECT count(*) FROM quorate_store.delivery), 'every delivery is shown, once');
SELECT is((SELECT count(*) FROM quorate.attempts), (SELECT count(*) FROM quorate_store.attempt), 'every attempt is shown, once');
SELECT is((SELECT count(*) FROM quorate.acks), (SELECT count(*) FROM quorate_store.ack), 'every ack is shown, once');

-- Receipts are shown as the header's value: v1a, and 88 characters of base64 in one line.

SELECT ok(bool_and(receipt ~ '^v1a,[A-Za-z0-9+/]{86}==$'), 'receipts are v1a,<base64>, without line breaks') FROM quorate.acks;
SELECT is(decode(substr(receipt, 5), 'base64'), pg_temp.receipt(node_id), 'and decode to the 64 bytes') FROM quorate.acks WHERE round_id = 'old' AND node_id = 1;

-- Coordinators.

SELECT results_eq($$ SELECT coordinator, alive, open_rounds, started_at <= heartbeat_at FROM quorate.coordinators $$, $$ VALUES ('one', true, 0, true) $$, 'a coordinator');
SELECT pg_temp.submit('mine' || i, 1, '{1}') FROM generate_series(1, 3) i \g /dev/null
SELECT pg_temp.claim_all(:me) \gset
SELECT quorate.cancel_round('mine1', 'why') \gset
SELECT is(open_rounds, (SELECT count(*)::int FROM quorate_store.round WHERE owner = :me AND state = 'open'), 'counts the open rounds that it owns') FROM quorate.coordinators;
SELECT is(coordinator, 'one', 'and they name it') FROM quorate.rounds WHERE round_id = 'mine2';
SELECT pg_temp.join_as('short', '1 us') \gset
SELECT pg_sleep(0.001) \g /dev/null
SELECT is(alive, false, 'one that was not heard from within its lease is not alive') FROM quorate.coordinators WHERE coordinator = 'short';
SELECT quorate_worker.leave(:me) \gset
SELECT is(alive, false, 'nor is one that has left') FROM quorate.coordinators WHERE coordinator = 'one';

-- Deployment, nodes.

SELECT results_eq('SELECT deployment_id, schema_version FROM quorate.deployment',
    'SELECT (SELECT deployment_id FROM quorate_store.deployment), (SELECT max(number) FROM quorate_store.migration)', 'the deployment');
SELECT results_eq('SELECT node_id FROM quorate.nodes ORDER BY 1', 'SELECT generate_series(1, 6)', 'the nodes');

-- Rejections are shown for whom they were.

CREATE ROLE quorate_test_dealer;
GRANT USAGE ON SCHEMA quorate TO quorate_test_dealer;
GRANT EXECUTE ON FUNCTION quorate.distribute(text, bigint, int[], bytea[]) TO quorate_test_dealer;
SET SESSION AUTHORIZATION quorate_test_dealer;
SELECT verdict FROM quorate.distribute('none', 1, '{1}', '{a}') \g /dev/null
SELECT throws_ok('SELECT * FROM quorate_store.envelope', '42501', NULL, 'a dealer reads no envelope');
SELECT throws_ok($$ SELECT quorate.collect('none') $$, '42501', NULL, 'and calls only what was granted');
RESET SESSION AUTHORIZATION;
SELECT is(rejected_for, 'quorate_test_dealer', 'rejected_for is the session user, not the function''s owner') FROM quorate.rejections;

SELECT * FROM finish();
ROLLBACK;
