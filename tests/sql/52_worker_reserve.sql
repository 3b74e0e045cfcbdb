-- Reserving: who may start which attempt, when, and under which number.

BEGIN;
\ir common/helpers.sql
SELECT plan(46);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.nodes(4, 4, true) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.join_as('two') AS other \gset

SELECT pg_temp.submit('r', 2, '{1,2,4}', p_budget => 3) \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.reserve(:me, 'r', 1, 1), 'granted open', 'reserving again what was reserved, in case the answer was lost');
SELECT results_eq($$ SELECT attempt, resends, coordinator FROM quorate.attempts WHERE round_id = 'r' AND node_id = 1 $$, $$ VALUES (1, 0, 'one') $$,
                  'is the same attempt');
SELECT pg_temp.record(:me, 'r', 1, 'timeout') \gset
SELECT is(pg_temp.reserve(:me, 'r', 1, 1), 'not granted open', 'a finished attempt is not reserved again');
SELECT is(pg_temp.reserve(:me, 'r', 1, 2), 'granted open', 'the next one is');
SELECT results_eq($$ SELECT attempt, outcome, coordinator, reserved_at <= clock_timestamp() FROM quorate.attempts WHERE round_id = 'r' AND node_id = 1 ORDER BY 1 $$,
    $$ VALUES (1, 'timeout', 'one', true), (2, NULL, 'one', true) $$, 'it shows in attempts');
SELECT pg_temp.record(:me, 'r', 1, 'timeout', 2) \gset
SELECT is(pg_temp.reserve(:me, 'r', 1, 3), 'granted open', 'the last one of the budget');
SELECT pg_temp.record(:me, 'r', 1, 'timeout', 3) \gset
SELECT is(pg_temp.reserve(:me, 'r', 1, 4), 'not granted open', 'none past the budget');
SELECT is(pg_temp.reserve(:me, 'r', 1, 32767), 'not granted open', 'none far past it');
SELECT is((SELECT max(attempt) FROM quorate.attempts WHERE round_id = 'r'), 3, 'numbers never pass the budget');

-- Several in one call, each with its answer.

SELECT results_eq(format($$ SELECT node_id::int, attempt::int, granted, state FROM quorate_worker.reserve(%s,
           ARRAY[pg_temp.no('r'), pg_temp.no('r'), pg_temp.no('r'), 0], '{2,4,1,1}', '{primary,primary,primary,primary}', '{2,1,4,1}') ORDER BY 3 DESC, 1, 2 $$, :me),
    $$ VALUES (2, 2, true, 'open'), (4, 1, true, 'open'), (1, 1, false, 'gone'), (1, 4, false, 'open') $$, 'one row per attempt asked for');
SELECT is_empty(format($$ SELECT * FROM quorate_worker.reserve(%s, '{}', '{}', '{}', '{}') $$, :me), 'an empty batch');
SELECT ok(abs(now_us - extract(epoch FROM clock_timestamp()) * 1000000) < 10000000, 'with the database''s clock')
  FROM quorate_worker.reserve(:me, ARRAY[pg_temp.no('r')], '{4}', '{primary}', '{1}');

-- Not by others.

SELECT is(pg_temp.reserve(:other, 'r', 2, 3), 'not granted fenced', 'not by an instance that does not own the round');
SELECT is(pg_temp.reserve(NULL, 'r', 2, 3), 'not granted fenced', 'not by nobody');
SELECT is((SELECT count(*)::int FROM quorate.attempts WHERE round_id = 'r' AND node_id = 2), 2, 'nothing was written');

-- Acked: no more attempts.

SELECT is(pg_temp.record(:me, 'r', 4, 'ack'), 'open', 'node 4 acks');
SELECT is(pg_temp.reserve(:me, 'r', 4, 2), 'not granted open', 'no attempt at a node that has acked');

-- The backup, only after the escalation.

SELECT throws_ok(format($$ SELECT pg_temp.reserve(%s, 'r', 2, 1, 'backup') $$, :me), '23000', NULL, 'no backup before the escalation');
SELECT pg_temp.past_round('e', 2, '{1,4}', p_ago => '6 min', p_deadline => '10 min', p_owner => :me) \gset
SELECT is(escalated, true, 'escalated') FROM quorate_worker.escalate(:me, ARRAY[pg_temp.no('e')]);
SELECT is(pg_temp.reserve(:me, 'e', 4, 1, 'backup'), 'granted open', 'the backup after it');
SELECT is(pg_temp.reserve(:me, 'e', 4, 1), 'granted open', 'and the primary goes on');
SELECT is(pg_temp.record(:me, 'e', 4, 'timeout', 1, 'backup'), 'open', 'the backup has a budget of its own');
SELECT is(pg_temp.reserve(:me, 'e', 4, n, 'backup'), 'granted open', 'backup attempt ' || n) FROM generate_series(2, 4) n;
SELECT is(pg_temp.reserve(:me, 'e', 4, 5, 'backup'), 'not granted open', 'and no more');
SELECT throws_ok(format($$ SELECT pg_temp.reserve(%s, 'e', 4, 1, 'third') $$, :me), '22P02', NULL, 'there is no third route');

-- The round's end.

SELECT pg_temp.past_round('due', 1, '{1}', p_owner => :me) \gset
SELECT is(pg_temp.reserve(:me, 'due', 1, 1), 'not granted open', 'none past the deadline, though the round still looks open');
SELECT quorate.settle_round('due') \gset
SELECT is(pg_temp.reserve(:me, 'due', 1, 1), 'not granted stalled', 'none for a stalled round');
SELECT pg_temp.submit('x', 1, '{1}') \gset
SELECT pg_temp.claim_all(:me, (SELECT array_agg(version) FROM quorate_store.node_version)) \gset
SELECT quorate.cancel_round('x', 'why') \gset
SELECT is(pg_temp.reserve(:me, 'x', 1, 1), 'not granted cancelled', 'none for a cancelled round');
SELECT pg_temp.submit('go-on', 1, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'go-on', 1, 'ack') \gset
SELECT pg_temp.record(:me, 'go-on', 2, 'timeout') \gset
SELECT is(pg_temp.reserve(:me, 'go-on', 2, 2), 'granted complete', 'after_quorum continue: deliveries of a complete round go on');
SELECT pg_temp.submit('stop', 1, '{1,2}', 'stop') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'stop', 1, 'ack') \gset
SELECT pg_temp.record(:me, 'stop', 2, 'timeout') \gset
SELECT is(pg_temp.reserve(:me, 'stop', 2, 2), 'not granted complete', 'after_quorum stop: they do not');
SELECT pg_temp.past_round('over', 1, '{1,2}', p_owner => :me) \gset
SELECT pg_temp.past_acks('over', '{1}', true) \gset
SELECT is(pg_temp.reserve(:me, 'over', 2, 1), 'not granted complete', 'a complete round past its deadline: none');

-- A predecessor's attempt is sent again under its own number, and counted as sent again.

SELECT pg_temp.submit('p', 2, '{1,2,3}', p_budget => 2) \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'p', 1, 'timeout') \gset
SELECT pg_temp.reserve(:me, 'p', 1, 2) \gset
SELECT quorate_worker.leave(:me) \gset
SELECT is(pg_temp.reserve(:me, 'p', 2, 2), 'not granted fenced', 'an instance that has left reserves nothing, even of rounds that nobody took over');
SELECT pg_temp.claim_all(:other) \gset
SELECT is(pg_temp.reserve(:me, 'p', 2, 2), 'not granted fenced', 'nor after somebody did');
SELECT is(pg_temp.reserve(:other, 'p', 1, 2), 'granted open', 'its successor takes over the attempt under way');
SELECT results_eq($$ SELECT attempt, coordinator, resends, outcome FROM quorate.attempts WHERE round_id = 'p' AND node_id = 1 ORDER BY 1 $$,
    $$ VALUES (1, 'one', 0, 'timeout'), (2, 'two', 1, NULL) $$, 'under the same number: sent again once');
SELECT is(pg_temp.reserve(:other, 'p', 1, 2), 'granted open', 'if the answer was lost, again');
SELECT is(resends, 1, 'is no further sending') FROM quorate.attempts WHERE round_id = 'p' AND node_id = 1 AND attempt = 2;
SELECT is(pg_temp.reserve(:other, 'p', 1, 3), 'not granted open', 'the budget is one for both coordinators');
SELECT is(pg_temp.record(:other, 'p', 1, 'timeout', 2), 'open', 'and the outcome is the successor''s to write');
SELECT is(outcome, 'timeout', 'written') FROM quorate.attempts WHERE round_id = 'p' AND node_id = 1 AND attempt = 2;

-- Settled: the end.

SELECT pg_temp.submit('s', 1, '{1}') \gset
SELECT pg_temp.claim_all(:other) \gset
SELECT is(pg_temp.record(:other, 's', 1, 'ack'), 'complete settled', 'a settled round');
SELECT is(pg_temp.reserve(:other, 's', 1, 2), 'not granted complete', 'takes no attempt');
SELECT throws_ok(format($$ SELECT pg_temp.reserve(%s, 'p', 2, 0) $$, :other), '23514', NULL, 'attempts count from 1');
SELECT throws_ok(format($$ SELECT pg_temp.reserve(%s, 'p', 4, 1) $$, :other), '23000', NULL, 'no attempt without a delivery');

SELECT * FROM finish();
ROLLBACK;
