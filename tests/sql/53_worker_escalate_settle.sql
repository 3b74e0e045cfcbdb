-- Escalating once at half time, and settling: payloads go once no attempt is left to make or await.

BEGIN;
\ir common/helpers.sql
SELECT plan(54);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.nodes(4, 6, true) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.join_as('two') AS other \gset
CREATE FUNCTION pg_temp.escalate(p_instance int, p_round_id text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', state, CASE WHEN escalated THEN 'escalated' END, CASE WHEN first THEN 'now' END)
      FROM quorate_worker.escalate(p_instance, ARRAY[pg_temp.no(p_round_id)])
$$;
-- An open round whose half-time has passed, and whose deadline is minutes away.
CREATE FUNCTION pg_temp.half(p_round_id text, p_quorum int, p_nodes int[], p_owner int, p_after text DEFAULT 'continue') RETURNS bigint LANGUAGE sql AS
    $$ SELECT pg_temp.past_round(p_round_id, p_quorum, p_nodes, '6 min', '10 min', NULL, p_after, p_owner) $$;

-- Escalation.

SELECT pg_temp.submit('early', 1, '{4,5}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.escalate(:me, 'early'), 'open', 'not before half-time');
SELECT pg_temp.half('h', 2, '{1,4,5}', :me) \gset
SELECT is(pg_temp.escalate(:other, 'h'), 'fenced', 'not by others');
SELECT is(escalated_at, NULL, 'nothing has happened') FROM quorate.rounds WHERE round_id = 'h';
SELECT is(pg_temp.escalate(:me, 'h'), 'open escalated now', 'at half-time');
SELECT escalated_at AS at FROM quorate.rounds WHERE round_id = 'h' \gset
SELECT ok(escalated_at BETWEEN escalate_at AND deadline_at AND escalated_at <= clock_timestamp(), 'the view shows when') FROM quorate.rounds WHERE round_id = 'h';
SELECT is(pg_temp.escalate(:me, 'h'), 'open escalated', 'once');
SELECT is(escalated_at, :'at'::timestamptz, 'at one time') FROM quorate.rounds WHERE round_id = 'h';
SELECT is(bool_and(escalated), true, 'owned tells it') FROM quorate_worker.owned(:me, 0, 1000) WHERE round_id = 'h';
SELECT pg_temp.half('none', 1, '{1,2,3}', :me) \gset
SELECT is(pg_temp.escalate(:me, 'none'), 'open', 'not without any backup');
SELECT pg_temp.half('only-acked', 2, '{1,2,4}', :me) \gset
SELECT pg_temp.past_acks('only-acked', '{4}') \gset
SELECT is(pg_temp.escalate(:me, 'only-acked'), 'open', 'not if all nodes with a backup have acked');
SELECT pg_temp.half('one-left', 3, '{1,4,5}', :me) \gset
SELECT pg_temp.past_acks('one-left', '{4}') \gset
SELECT is(pg_temp.escalate(:me, 'one-left'), 'open escalated now', 'if one of them has not');
SELECT pg_temp.half('complete', 1, '{4,5}', :me) \gset
SELECT pg_temp.past_acks('complete', '{4}', true) \gset
SELECT is(pg_temp.escalate(:me, 'complete'), 'complete', 'not a complete round');
SELECT pg_temp.past_round('due', 1, '{4,5}', p_owner => :me) \gset
SELECT is(pg_temp.escalate(:me, 'due'), 'open', 'not past the deadline');
SELECT pg_temp.half('x', 1, '{4,5}', :me) \gset
SELECT quorate.cancel_round('x', 'why') \gset
SELECT is(pg_temp.escalate(:me, 'x'), 'cancelled', 'not a cancelled round');
SELECT is(state, 'gone', 'one that was pruned') FROM quorate_worker.escalate(:me, '{9000000000}');
SELECT bag_eq(format($$ SELECT l.round_id, e.escalated, e.first FROM quorate_worker.escalate(%s, ARRAY[pg_temp.no('h'), pg_temp.no('early'), pg_temp.no('none')]) e
                          JOIN quorate_store.ledger l USING (round_no) $$, :me),
    $$ VALUES ('h'::text COLLATE "C", true, false), ('early', false, false), ('none', false, false) $$, 'a row per round');
SELECT pg_temp.half('no-envelope', 1, '{1,4}', :me) \gset
SELECT is(pg_temp.escalate(:me, 'no-envelope'), 'open escalated now', 'it depends on nodes, not on which envelopes are there');

-- A round that escalated tells so to a successor, with what was used on each route.

SELECT pg_temp.reserve(:me, 'h', 4, 1, 'backup') \gset
SELECT pg_temp.record(:me, 'h', 4, 'refused', 1, 'backup', 409) \gset
SELECT results_eq(format($$ SELECT node_id::int, primary_used::int, backup_used::int, backup_refused, backup_open::int
                              FROM quorate_worker.owned(%s, 0, 1000) WHERE round_id = 'h' ORDER BY 1 $$, :me),
    'VALUES (1, 0, 0, false, 0), (4, 0, 1, true, 0), (5, 0, 0, false, 0)', 'per route');

-- Settling.

SELECT is(pg_temp.settle(:me, 'early'), 'open', 'an open round does not settle');
SELECT is(pg_temp.settle(:other, 'early'), 'fenced', 'nor by others');
SELECT is(state, 'gone', 'nor one that was pruned') FROM quorate_worker.settle(:me, true, '{9000000000}');
SELECT is_empty(format('SELECT * FROM quorate_worker.settle(%s, true, ''{}'')', :me), 'an empty batch');

SELECT pg_temp.past_round('s', 2, '{1,2}', p_owner => :me) \gset
SELECT pg_temp.past_attempts('s', '{1}', NULL, :me) \gset
CREATE TEMP TABLE settled AS SELECT * FROM quorate_worker.settle(:me, true, ARRAY[pg_temp.no('s')]);
SELECT results_eq('SELECT state, settled FROM settled', $$ VALUES ('stalled', false) $$, 'a due round is stalled; an attempt is under way, so it is not settled');
SELECT is(ended_us, (extract(epoch FROM closed_at - opened_at) * 1000000)::bigint, 'with the time from opening to its end') FROM settled, quorate.rounds WHERE round_id = 's';
SELECT is(count(*)::int, 2, 'its envelopes are still there') FROM quorate_store.envelope WHERE round_no = pg_temp.no('s');
SELECT is(pg_temp.record(:me, 's', 1, 'timeout'), 'stalled', 'the attempt ends');
SELECT is(pg_temp.settle(:me, 's'), 'stalled settled', 'then it settles');
SELECT is(count(*)::int, 0, 'and its envelopes are gone') FROM quorate_store.envelope WHERE round_no = pg_temp.no('s');
SELECT settled_at AS at FROM quorate.rounds WHERE round_id = 's' \gset
SELECT is(pg_temp.settle(:me, 's'), 'stalled settled', 'again');
SELECT is(settled_at, :'at'::timestamptz, 'changes nothing') FROM quorate.rounds WHERE round_id = 's';
SELECT results_eq($$ SELECT node_id, state, payload_erased_at IS NOT NULL FROM quorate.deliveries WHERE round_id = 's' ORDER BY 1 $$,
    $$ VALUES (1, 'abandoned', true), (2, 'abandoned', true) $$, 'its deliveries are abandoned and erased');

-- Complete: settled when all that after_quorum allows is done.

SELECT pg_temp.submit('c', 1, '{1,2}', p_budget => 2) \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'c', 1, 'ack') \gset
SELECT is(pg_temp.settle(:me, 'c'), 'complete', 'continue: an attempt is under way');
SELECT pg_temp.record(:me, 'c', 2, 'timeout') \gset
SELECT is(pg_temp.settle(:me, 'c'), 'complete', 'continue: an attempt is left in the budget');
SELECT pg_temp.reserve(:me, 'c', 2, 2) \gset
SELECT pg_temp.record(:me, 'c', 2, 'timeout', 2) \gset
SELECT is(pg_temp.settle(:me, 'c'), 'complete settled', 'continue: the budget is used up');
SELECT is(state, 'exhausted', 'the delivery is exhausted') FROM quorate.deliveries WHERE round_id = 'c' AND node_id = 2;
SELECT pg_temp.submit('r', 1, '{1,4}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'r', 1, 'ack') \gset
SELECT pg_temp.record(:me, 'r', 4, 'refused') \gset
SELECT is(pg_temp.settle(:me, 'r'), 'complete settled', 'continue: refused, and the round was complete before it escalated, so the backup is not tried');
SELECT is(state, 'refused', 'the delivery is refused') FROM quorate.deliveries WHERE round_id = 'r' AND node_id = 4;
SELECT pg_temp.submit('stop', 1, '{1,2,3}', 'stop') \gset
SELECT pg_temp.claim_all(:me, ARRAY(SELECT version FROM quorate_store.node_version WHERE node_id = 3)) \gset
SELECT pg_temp.record(:me, 'stop', 1, 'ack') \gset
SELECT is(pg_temp.settle(:me, 'stop'), 'complete', 'stop: an attempt is under way, and awaited');
SELECT pg_temp.record(:me, 'stop', 2, 'timeout') \gset
SELECT is(pg_temp.settle(:me, 'stop'), 'complete settled', 'stop: no attempt is under way');
SELECT bag_eq($$ SELECT node_id, state, attempts FROM quorate.deliveries WHERE round_id = 'stop' $$, $$ VALUES (1, 'acked', 1), (2, 'abandoned', 1), (3, 'abandoned', 0) $$,
              'the deliveries that it stopped are abandoned');
SELECT pg_temp.past_round('over', 1, '{1,2}', p_owner => :me) \gset
SELECT pg_temp.past_acks('over', '{1}', true) \gset
SELECT is(pg_temp.settle(:me, 'over'), 'complete settled', 'continue: past the deadline nothing is left to do');
SELECT is(state, 'abandoned', 'the delivery is abandoned') FROM quorate.deliveries WHERE round_id = 'over' AND node_id = 2;

-- With an escalation both routes are awaited.

SELECT pg_temp.half('both', 1, '{4,5}', :me) \gset
SELECT pg_temp.escalate(:me, 'both') \gset
SELECT pg_temp.past_acks('both', '{5}', true) \gset
SELECT pg_temp.past_attempts('both', '{4}', 'refused', :me) \gset
SELECT is(pg_temp.settle(:me, 'both'), 'complete', 'the primary refused; the backup may still be tried');
SELECT is(pg_temp.reserve(:me, 'both', 4, 1, 'backup'), 'granted complete', 'and is');
SELECT is(pg_temp.settle(:me, 'both'), 'complete', 'it is awaited');
SELECT is(pg_temp.record(:me, 'both', 4, 'refused', 1, 'backup'), 'complete', 'it refuses as well');
SELECT is(pg_temp.settle(:me, 'both'), 'complete settled', 'then the round settles');

-- Nothing to deliver at all.

SELECT quorate.open_round('empty', 1, '{1}', round_deadline => '1 h') \g /dev/null
SELECT quorate.cancel_round('empty', 'why') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.settle(:me, 'empty'), 'cancelled settled', 'a round without envelopes settles at its end');

-- A round that was left with attempts under way is settled by its successor.

SELECT pg_temp.submit('left', 1, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT quorate.cancel_round('left', 'why') \gset
SELECT quorate_worker.leave(:me) \gset
SELECT is(pg_temp.settle(:me, 'left'), 'fenced', 'an instance that has left settles nothing');
SELECT pg_temp.claim_all(:other) \gset
SELECT is(pg_temp.settle(:other, 'left'), 'cancelled', 'its successor finds attempts whose outcome nobody knows');
SELECT is(pg_temp.record(:other, 'left', n, 'in_doubt'), 'cancelled', 'says so') FROM unnest('{1,2}'::int[]) n;
SELECT is(pg_temp.settle(:other, 'left'), 'cancelled settled', 'and settles');
SELECT is((SELECT count(*)::int FROM quorate_store.envelope e JOIN quorate_store.round r USING (round_no) WHERE r.settled_at IS NOT NULL), 0,
          'no settled round holds an envelope');

SELECT * FROM finish();
ROLLBACK;
