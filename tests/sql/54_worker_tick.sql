-- One beat of a coordinator: its heartbeat, what is due, who has fallen silent, and what there is to do.

BEGIN;
\ir common/helpers.sql
SELECT plan(51);

SELECT pg_temp.nodes(1, 2) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.join_as('two') AS other \gset
CREATE FUNCTION pg_temp.tick(p_instance int, p_max int DEFAULT 100) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', CASE WHEN alive THEN 'alive' ELSE 'dead' END, stalled, dead_lettered, fenced, CASE WHEN work THEN 'work' END)
      FROM quorate_worker.tick(p_instance, true, p_max, false)
$$;

-- Heartbeat.

SELECT heartbeat_at AS before FROM quorate_store.coordinator WHERE instance_no = :me \gset
SELECT is(pg_temp.tick(:me), 'alive 0 0 0', 'nothing is due');
SELECT ok(heartbeat_at > :'before', 'a heartbeat') FROM quorate_store.coordinator WHERE instance_no = :me;
SELECT is(next_due_us, NULL, 'no open round: nothing will be due') FROM quorate_worker.tick(:me, true, 100, false);
SELECT ok(abs(now_us - extract(epoch FROM clock_timestamp()) * 1000000) < 10000000, 'the database''s clock') FROM quorate_worker.tick(:me, true, 100, false);
SELECT is(pg_temp.tick(2147483647), 'dead 0 0 0', 'an instance that never joined');

-- Work.

SELECT pg_temp.submit('w', 1, '{1,2}', p_deadline => '30 min') \gset
SELECT is(pg_temp.tick(:me), 'alive 0 0 0 work', 'a round that nobody owns is work');
SELECT ok(next_due_us BETWEEN 1790000000 AND 1800000000, 'and will be due at its deadline') FROM quorate_worker.tick(:me, true, 100, false);
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.tick(:me), 'alive 0 0 0', 'once it is claimed it is not');
SELECT nonce AS nonce FROM quorate.open_round('n', 1, '{1,2}', round_deadline => '1 h') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT verdict FROM quorate.distribute('n', :nonce, '{1}', '{one}') \g /dev/null
SELECT is(pg_temp.tick(:me), 'alive 0 0 0 work', 'new envelopes of an own round are');
SELECT is(pg_temp.tick(:other), 'alive 0 0 0', 'but not of another''s');
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.tick(:me), 'alive 0 0 0', 'until they are taken');

SELECT results_eq(format('SELECT owned FROM quorate_worker.tick(%s, true, 100, true)', i), format('VALUES (%s::bigint)', n), 'counted if asked for: owned ' || n)
  FROM (VALUES (:me, 2), (:other, 0)) v (i, n);
SELECT is(owned, NULL, 'and not otherwise') FROM quorate_worker.tick(:me, true, 100, false);

-- What is due, whoever owns it.

SELECT pg_temp.past_round('mine', 2, '{1,2}', p_owner => :me) \gset
SELECT pg_temp.past_round('theirs', 2, '{1,2}', p_owner => :other) \gset
SELECT pg_temp.past_round('nobodys', 2, '{1,2}') \gset
SELECT pg_temp.past_acks('mine', '{1}') \gset
SELECT is(pg_temp.tick(:me), 'alive 3 0 0 work', 'three rounds are past their deadline');
SELECT bag_eq($$ SELECT round_id, state, close_reason, closed_at > deadline_at, quorum_nodes, settled_at FROM quorate.rounds WHERE round_id IN ('mine', 'theirs', 'nobodys') $$,
    $$ VALUES ('mine', 'stalled', 'deadline', true, NULL::int[], NULL::timestamptz), ('theirs', 'stalled', 'deadline', true, NULL, NULL),
              ('nobodys', 'stalled', 'deadline', true, NULL, NULL) $$, 'and stall, in whosever hands they are');
SELECT is(pg_temp.state('w'), 'open', 'others stay open');
SELECT is(failed_rounds, ARRAY[pg_temp.no('mine')], 'own failed rounds are told until they are settled') FROM quorate_worker.tick(:me, true, 100, false);
SELECT is(failed_rounds, ARRAY[pg_temp.no('theirs')], 'to each its own') FROM quorate_worker.tick(:other, true, 100, false);
SELECT is(pg_temp.tick(:me), 'alive 0 0 0 work', 'once');
SELECT is(pg_temp.settle(:me, 'mine'), 'stalled settled', 'settled');
SELECT is(failed_rounds, NULL, 'then they are not told any more') FROM quorate_worker.tick(:me, true, 100, false);
SELECT quorate.cancel_round('n', 'why') \gset
SELECT is(failed_rounds, ARRAY[pg_temp.no('n')], 'a cancelled one is told as well') FROM quorate_worker.tick(:me, true, 100, false);

SELECT pg_temp.past_round('old', 1, '{1}', p_freshness => '20 s', p_owner => :other) \gset
SELECT pg_temp.past_acks('old', '{1}', true) \gset
SELECT pg_temp.past_round('kept', 1, '{1}', p_freshness => '20 s', p_owner => :other) \gset
SELECT pg_temp.past_acks('kept', '{1}', true) \gset
UPDATE quorate_store.round SET collected_at = opened_at + interval '1 s' WHERE round_no = pg_temp.no('kept');
SELECT pg_temp.past_round('fresh', 1, '{1}', p_freshness => '10 min', p_owner => :other) \gset
SELECT pg_temp.past_acks('fresh', '{1}', true) \gset
SELECT pg_temp.past_round('free', 1, '{1}', p_owner => :other) \gset
SELECT pg_temp.past_acks('free', '{1}', true) \gset
SELECT is(pg_temp.tick(:me), 'alive 0 1 0 work', 'one complete round is past its freshness and was not collected');
SELECT bag_eq($$ SELECT round_id, state FROM quorate.rounds WHERE round_id IN ('old', 'kept', 'fresh', 'free') $$,
    $$ VALUES ('old', 'dead_lettered'), ('kept', 'complete'), ('fresh', 'complete'), ('free', 'complete') $$, 'that one is dead-lettered');
SELECT ok(dead_lettered_at > fresh_until AND quorum_nodes = '{1}', 'and keeps its quorum_nodes') FROM quorate.rounds WHERE round_id = 'old';
SELECT ok(next_due_us BETWEEN 500000000 AND 541000000, 'the next to be due is the one that is fresh for ten minutes') FROM quorate_worker.tick(:me, true, 100, false);

-- At most so many of each.

SELECT pg_temp.past_round('due' || i, 1, '{1}', p_owner => :me) FROM generate_series(1, 5) i \g /dev/null
SELECT is(pg_temp.tick(:me, 2), 'alive 2 0 0 work', 'two of five');
SELECT is(next_due_us, 0::bigint, 'the next is due already') FROM quorate_worker.tick(:me, true, 1, false);
SELECT is(pg_temp.tick(:me, 10), 'alive 2 0 0 work', 'the rest');
SELECT is(stalled, 0, 'without notifications it does the same') FROM quorate_worker.tick(:me, false, 100, false);
SELECT pg_temp.past_round('quiet', 1, '{1}') \gset
SELECT is(stalled, 1, 'it stalls') FROM quorate_worker.tick(:me, false, 100, false);

-- Silent ones are fenced.

SELECT pg_temp.join_as('silent', '1 us') AS silent \gset
SELECT pg_temp.submit('s', 2, '{1,2}') \gset
SELECT is(pg_temp.claim_all(:silent) > 0, true, 'a coordinator claims a round');
SELECT pg_sleep(0.001) \g /dev/null
SELECT is(alive, false, 'and falls silent') FROM quorate.coordinators WHERE coordinator = 'silent';
SELECT is(pg_temp.claim_all(:me), 0::bigint, 'its rounds stay with it until it is fenced');
SELECT is(pg_temp.tick(:me), 'alive 0 0 1 work', 'the next tick of another fences it');
SELECT results_eq($$ SELECT end_reason, ended_at IS NOT NULL, cleared_at IS NULL FROM quorate_store.coordinator WHERE name = 'silent' $$, $$ VALUES ('fenced', true, true) $$,
                  'and keeps it in mind until its rounds have another owner');
SELECT is(pg_temp.tick(:silent), 'dead 0 0 0 work', 'it learns so with its own next tick');
SELECT is(pg_temp.tick(:silent), 'dead 0 0 0 work', 'a heartbeat does not bring it back');
SELECT is(pg_temp.reserve(:silent, 's', 1, 1), 'not granted fenced', 'it reserves nothing');
SELECT is(pg_temp.claim_all(:silent), 0::bigint, 'and claims nothing');
SELECT is(pg_temp.record(:silent, 's', 1, 'timeout'), 'fenced', 'its outcomes');
SELECT is(outcome, NULL, 'are not written') FROM quorate.attempts WHERE round_id = 's' AND node_id = 1;
SELECT is(pg_temp.claim_all(:me) > 0, true, 'another one takes its rounds over');
SELECT is((SELECT count(*)::int FROM quorate_store.round WHERE owner = :silent AND settled_at IS NULL), 0, 'all of them');
SELECT is(pg_temp.tick(:me), 'alive 0 0 0', 'and then it is forgotten');
SELECT ok(cleared_at IS NOT NULL, 'cleared') FROM quorate_store.coordinator WHERE name = 'silent';
SELECT is(j.instance_no, :silent, 'joining again under the old instance id') FROM quorate_store.coordinator c,
    LATERAL quorate_worker.join_deployment(c.instance_id, c.name, '1 h') j WHERE c.name = 'silent' AND c.instance_no = :silent;
SELECT is(pg_temp.tick(:silent), 'dead 0 0 0', 'does not bring it back either');
SELECT quorate_worker.leave(:other) \gset
SELECT is(pg_temp.tick(:me), 'alive 0 0 0 work', 'rounds of one that has left are work at once');
SELECT is(pg_temp.claim_all(:me) > 0, true, 'and can be claimed');

SELECT * FROM finish();
ROLLBACK;
