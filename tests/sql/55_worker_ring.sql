-- The ring and the handover as SQL sees them: hold, watch, release. What needs several sessions is in tests/e2e/test_takeover.py.

BEGIN;
\ir common/helpers.sql
SELECT plan(31);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.join_as('one') AS one \gset
SELECT results_eq(format('SELECT * FROM quorate_worker.watch(%s, 0)', :one), 'VALUES (NULL::int, false, false, false)', 'who is alone watches nobody');
SELECT pg_temp.join_as('two') AS two \gset
SELECT results_eq(format('SELECT * FROM quorate_worker.watch(%s, 0)', :one), 'VALUES (NULL::int, false, false, false)', 'nor whoever never held its life lock');
SELECT ok(quorate_worker.hold(:two), 'it is taken');
SELECT ok(quorate_worker.hold(:two), 'and taken again: idempotent');
SELECT is(count(*)::int, 1, 'by this session') FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = quorate_store.life_class() AND objid = :two
   AND pid = pg_backend_pid();
SELECT ok(holds_life, 'which the book says') FROM quorate_store.coordinator WHERE instance_no = :two;
SELECT ok(NOT holds_life, 'and of nobody else') FROM quorate_store.coordinator WHERE instance_no = :one;

-- A session's own lock looks free to itself: no death was seen, so nobody is fenced.

SELECT results_eq(format('SELECT * FROM quorate_worker.watch(%s, 0)', :one), format('VALUES (%s, false, true, false)', :two), 'a lock that this session never saw held proves nothing');
SELECT is(end_reason, NULL, 'it is not fenced') FROM quorate_store.coordinator WHERE instance_no = :two;
SELECT results_eq(format('SELECT * FROM quorate_worker.watch(%s, %s)', :one, :one), format('VALUES (%s, false, true, false)', :two), 'nor one that it saw held by another');
SELECT pg_temp.join_as('three') AS three \gset
SELECT ok(quorate_worker.hold(:three), 'a third one');
SELECT is((SELECT peer FROM quorate_worker.watch(:one, 0)), :two, 'the ring goes up');
SELECT is((SELECT peer FROM quorate_worker.watch(:two, 0)), :three, 'and up');
SELECT is((SELECT peer FROM quorate_worker.watch(:three, 0)), :two, 'and from the top to the bottom of those that hold');
SELECT results_eq(format('SELECT * FROM quorate_worker.watch(%s, %s)', :one, :two), format('VALUES (%s, true, true, true)', :two),
                  'a lock that was seen held and is free, with no session left: dead');
SELECT is(end_reason, 'fenced', 'and fenced') FROM quorate_store.coordinator WHERE instance_no = :two;
SELECT is((SELECT peer FROM quorate_worker.watch(:one, :two)), :three, 'the next one is watched now');
-- (A transaction sees the sessions as they were when it first looked.)
SELECT pg_stat_clear_snapshot() \g /dev/null
SELECT set_config('application_name', 'quorate ' || instance_id, true) FROM quorate_store.coordinator WHERE instance_no = :three \g /dev/null
SELECT results_eq(format('SELECT * FROM quorate_worker.watch(%s, %s)', :one, :three), format('VALUES (%s, true, true, false)', :three),
                  'while a session of it is there, it may live');
SELECT pg_stat_clear_snapshot() \g /dev/null
SELECT set_config('application_name', 'quorate ' || instance_id || ' ring', true) FROM quorate_store.coordinator WHERE instance_no = :three \g /dev/null
SELECT ok((SELECT fenced FROM quorate_worker.watch(:one, :three)), 'but its own watch is no sign of life');
SELECT set_config('application_name', 'test', true) \g /dev/null

-- Release.

SELECT pg_temp.join_as('goes') AS goes \gset
SELECT pg_temp.join_as('comes') AS comes \gset
SELECT pg_temp.submit('r', 2, '{1,2,3}') \g /dev/null
SELECT pg_temp.submit('s', 1, '{1,2}') \g /dev/null
SELECT pg_temp.claim_all(:goes) \gset
SELECT pg_temp.record(:goes, 'r', 1, 'ack') \g /dev/null
SELECT pg_temp.record(:goes, 'r', 2, 'timeout', p_retry_us => 10000000) \g /dev/null
SELECT results_eq(format('SELECT * FROM quorate_worker.release(%s, true, ARRAY[%s, 4711]::bigint[])', :comes, pg_temp.no('r')),
                  format($$ VALUES (%s::bigint, 'fenced'), (4711, 'fenced') $$, pg_temp.no('r')), 'only the owner gives a round back');
SELECT is(owner, :goes, 'so it keeps it') FROM quorate_store.round WHERE round_no = pg_temp.no('r');
SELECT results_eq(format('SELECT * FROM quorate_worker.release(%s, true, ARRAY[%s]::bigint[])', :goes, pg_temp.no('r')), format($$ VALUES (%s::bigint, 'fenced') $$, pg_temp.no('r')),
                  'released: it is not the instance''s any more');
SELECT results_eq(format('SELECT round_no, owner, news FROM quorate_store.round WHERE round_no = %s', pg_temp.no('r')), format('VALUES (%s::bigint, 0, true)', pg_temp.no('r')), 'nobody''s, and news');
SELECT is(pg_temp.reserve(:goes, 'r', 2, 2), 'not granted fenced', 'its last owner makes no attempt of it any more');
SELECT is(count(DISTINCT w.round_no)::int, 1, 'a peer claims it at once, and only it')
  FROM quorate_worker.claim(:comes, 100, 100, '{}') w WHERE w.round_no = pg_temp.no('r');
SELECT results_eq($$ SELECT node_id, attempt, outcome, resends FROM quorate.attempts WHERE round_id = 'r' ORDER BY 1, 2 $$,
                  $$ VALUES (1, 1, 'ack', 0), (2, 1, 'timeout', 0), (3, 1, NULL, 0) $$, 'its past is what it was');
SELECT is(pg_temp.reserve(:comes, 'r', 3, 1), 'granted open', 'what was under way is sent again under its number');
SELECT is(resends, 1, 'by the peer') FROM quorate.attempts WHERE round_id = 'r' AND node_id = 3;
SELECT is(pg_temp.record(:comes, 'r', 3, 'ack'), 'complete', 'and completes it');
SELECT is(pg_temp.record(:goes, 's', 1, 'ack'), 'complete', 'the other round stays with its owner');
SELECT is((SELECT count(*)::int FROM quorate_worker.release(NULL, true, '{}')), 0, 'nothing to release');

SELECT * FROM finish();
ROLLBACK;
