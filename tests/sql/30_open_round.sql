-- open_round: defaults, times, the snapshot of nodes, random nonces, and everything it refuses.

BEGIN;
\ir common/helpers.sql
SELECT plan(140);

SELECT pg_temp.nodes(1, 5) \gset
SELECT pg_temp.nodes(6, 7, true) \gset
SELECT quorate.set_node_enabled(5, false) \gset
CREATE TEMP TABLE opened (round_id text, nonce bigint, opened_at timestamptz, escalate_at timestamptz, deadline_at timestamptz,
                          fresh_until timestamptz);

-- Defaults.

INSERT INTO opened SELECT 'defaults', * FROM quorate.open_round('defaults', 3);
SELECT results_eq(
    $$ SELECT state, quorum, total_nodes, node_ids, per_share_timeout, retry_budget, base_backoff, max_backoff, after_quorum, acked
         FROM quorate.rounds WHERE round_id = 'defaults' $$,
    $$ VALUES ('open', 3, 6, '{1,2,3,4,6,7}'::int[], interval '2 s', 4, interval '50 ms', interval '1.5 s', 'continue', 0) $$,
    'defaults: every enabled node, and the policy that quorate(1) names');
SELECT results_eq(
    $$ SELECT nonce, opened_at, escalate_at, deadline_at, fresh_until FROM opened $$,
    $$ SELECT nonce, opened_at, escalate_at, deadline_at, fresh_until FROM quorate.rounds WHERE round_id = 'defaults' $$,
    'what open_round returns is what the view shows');
SELECT is(deadline_at - opened_at, interval '8 s', 'the deadline is 8 s after opening') FROM opened;
SELECT is(escalate_at - opened_at, interval '4 s', 'the escalation is half-way') FROM opened;
SELECT is(fresh_until, NULL, 'no limit of freshness') FROM opened;
SELECT ok(clock_timestamp() - opened_at BETWEEN interval '0' AND interval '5 s', 'opened now, by the database''s clock') FROM opened;
SELECT results_eq(
    $$ SELECT escalated_at, closed_at, collected_at, dead_lettered_at, settled_at, close_reason, coordinator, quorum_nodes
         FROM quorate.rounds WHERE round_id = 'defaults' $$,
    $$ VALUES (NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::text, NULL::int[]) $$,
    'and nothing has happened yet');
SELECT ok(opened_at > now(), 'the clock at the call, not at the start of the transaction') FROM opened;

-- Times.

SELECT results_eq(
    format($$ SELECT deadline_at - opened_at, escalate_at - opened_at, fresh_until - opened_at
                FROM quorate.open_round(%L, 1, '{1}', base_backoff => '1 us', max_backoff => '1 us', round_deadline => %L, freshness => %L) $$,
           't' || i, deadline, freshness),
    format('VALUES (%L::interval, %L::interval, %L::interval)', life, life / 2, freshness),
    format('round_deadline %s, freshness %s', deadline, COALESCE(freshness::text, 'none')))
  FROM (VALUES (1, interval '10 s', NULL::interval, interval '10 s'), (2, '10 s', '30 s', '10 s'), (3, '10 s', '4 s', '4 s'),
               (4, '10 s', '10 s', '10 s'), (5, '100 us', NULL, '100 us'), (6, '3 h', '1 min', '1 min')) t (i, deadline, freshness, life);
SELECT ok(deadline_at > opened_at AND escalate_at BETWEEN opened_at AND deadline_at, 'the shortest round there is')
  FROM quorate.open_round('short', 1, '{1}', base_backoff => '1 us', max_backoff => '1 us', retry_budget => 1, round_deadline => '2 us');
SELECT lives_ok($$ SELECT quorate.open_round('long', 1, '{1}', round_deadline => '100 years', freshness => '100 years') $$, 'a round of 100 years, the longest');
SELECT quorate.open_round('own', 1, '{1}', NULL, '7 s', 100, '1 ms', '79 ms', '8 s', NULL, 'stop') \g /dev/null
SELECT results_eq(
    $$ SELECT per_share_timeout, retry_budget, base_backoff, max_backoff, after_quorum FROM quorate.rounds WHERE round_id = 'own' $$,
    $$ VALUES (interval '7 s', 100, interval '1 ms', interval '79 ms', 'stop') $$,
    'a policy of one''s own, in the order of its arguments');

-- Nodes.

SELECT is(node_ids, '{2,3,7}'::int[], 'node ids are kept in ascending order')
  FROM quorate.open_round('order', 1, '{7,2,3}') o, quorate.rounds r WHERE r.round_id = 'order';
SELECT is(node_ids, '{2,3}'::int[], 'an array may begin anywhere')
  FROM quorate.open_round('bounds', 2, '[7:8]={3,2}') o, quorate.rounds r WHERE r.round_id = 'bounds';
SELECT lives_ok($$ SELECT quorate.open_round('one', 1, '{1}') $$, 'one of one');
SELECT lives_ok($$ SELECT quorate.open_round('all', 6) $$, 'n of n');
SELECT pg_temp.nodes(101, 355) \gset
SELECT lives_ok($$ SELECT quorate.open_round('many', 255, ARRAY(SELECT generate_series(101, 355))) $$, '255 of 255');
SELECT throws_ok($$ SELECT quorate.open_round('bad', 1, ARRAY(SELECT generate_series(100, 355))) $$, 'QR007', NULL, '256 nodes');
SELECT throws_ok($$ SELECT quorate.open_round('bad', 1) $$, 'QR007', NULL, 'more than 255 enabled nodes and none named');
SELECT quorate.set_node_enabled(i, false) FROM generate_series(101, 355) i \g /dev/null

-- A later change to a node never alters a round that is open.

SELECT pg_temp.submit('snapshot', 1, '{6}') \gset
SELECT quorate.add_node(6, 'http://elsewhere.test/', pg_temp.other_key()) \gset
SELECT quorate.set_node_enabled(6, false) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT results_eq(
    $$ SELECT v.url, v.backup_url, v.receipt_key FROM quorate_worker.owned(currval('quorate_store.coordinator_instance_no_seq')::int, 0, 1000) o
         JOIN LATERAL quorate_worker.node_versions(ARRAY[o.node_version]) v ON true WHERE o.round_id = 'snapshot' $$,
    $$ VALUES ('http://n6.test/', 'http://b6.test/', pg_temp.key()) $$, 'an open round keeps the URLs and the key of its opening');
SELECT is(pg_temp.record(:me, 'snapshot', 6, 'ack'), 'complete settled', 'and the disabled node acks');
SELECT results_eq($$ SELECT url FROM quorate.collected('snapshot') $$, $$ VALUES ('http://n6.test/') $$, 'collected from where it was sent to');
SELECT is(receipt_key, pg_temp.key(), 'its receipt is shown with the key of then') FROM quorate.acks WHERE round_id = 'snapshot';
SELECT throws_ok($$ SELECT quorate.open_round('bad', 1, '{6}') $$, 'QR008', NULL, 'a round opened later refuses the disabled node');
SELECT quorate.set_node_enabled(6, true) \gset

-- Nonces.

SELECT is(nonce, 9223372036854775807, 'a nonce of one''s own, the largest') FROM quorate.open_round('largest', 1, '{1}', 9223372036854775807);
SELECT is(nonce, 1::bigint, 'and the smallest') FROM quorate.open_round('smallest', 1, '{1}', 1);
CREATE TEMP TABLE drawn AS SELECT (quorate.open_round('n' || i, 1, '{1}')).nonce FROM generate_series(1, 500) i;
SELECT ok(bool_and(nonce > 0), 'drawn nonces are above 0') FROM drawn;
SELECT is(count(DISTINCT nonce)::int, 500, 'and distinct') FROM drawn;
SELECT ok(bool_and(ones BETWEEN 150 AND 350), 'each of their 63 bits is a fair coin (6 in 10^19 runs it is not)')
  FROM (SELECT bit, sum((nonce >> bit) & 1) AS ones FROM drawn, generate_series(0, 62) bit GROUP BY bit) b;

-- Used ones: QR006 before QR005.

SELECT throws_ok($$ SELECT quorate.open_round('largest', 1, '{1}') $$, 'QR006', NULL, 'a used round id');
SELECT throws_ok($$ SELECT quorate.open_round('fresh', 1, '{1}', 1) $$, 'QR005', NULL, 'a used nonce');
SELECT throws_ok($$ SELECT quorate.open_round('largest', 1, '{1}', 1) $$, 'QR006', NULL, 'both: the round id comes first');
SELECT throws_ok($$ SELECT quorate.open_round('smallest', 1, '{1}', 1) $$, 'QR006', NULL, 'the very same call again');
SELECT throws_ok($$ SELECT quorate.open_round('smallest', 0, '{1}', 1) $$, 'QR007', NULL, 'an invalid argument comes before both');
SELECT throws_ok($$ SELECT quorate.open_round('smallest', 1, '{99}', 1) $$, 'QR008', NULL, 'an unknown node, too');
SELECT ok(pg_temp.error_of($$ SELECT quorate.open_round('smallest', 1, '{1}') $$, 'DETAIL') ~ '\m1\M.*\mopen\M',
          'QR006: DETAIL says the nonce and the state of the existing round');
SELECT quorate.cancel_round('largest', 'test') \gset
SELECT ok(pg_temp.error_of($$ SELECT quorate.open_round('largest', 1, '{1}') $$, 'DETAIL') ~ '\m9223372036854775807\M.*\mcancelled\M',
          'QR006: for an ended round as well');
SELECT is(count(*)::int, 0, 'a refused call leaves no ledger entry') FROM quorate_store.ledger WHERE round_id = 'fresh';

-- Unknown and disabled nodes.

SELECT throws_ok(format($$ SELECT quorate.open_round('bad', 1, %L) $$, ids), 'QR008', NULL, 'nodes ' || ids)
  FROM unnest(ARRAY['{99}', '{1,99}', '{5}', '{1,5}', '{0}', '{-1}', '{1,70000}', '{2147483647}']) ids;
SELECT ok(pg_temp.error_of($$ SELECT quorate.open_round('bad', 1, '{1,5,99}') $$, 'MESSAGE') ~ '\m5, 99\M', 'the message names them');

-- Invalid: QR007.

SELECT throws_ok(format($$ SELECT quorate.open_round('bad', 1, %L::int[]) $$, ids), 'QR007', NULL, 'nodes ' || ids)
  FROM unnest(ARRAY['{}', '{NULL}', '{1,NULL}', '{1,1}', '{1,2,1}', '{{1,2},{3,4}}', '{{1}}']) ids;
SELECT throws_ok(format($$ SELECT quorate.open_round(%L, 1, '{1}') $$, id), 'QR007', NULL,
                 'round id ' || COALESCE(replace(left(id, 20), E'\n', '\n'), 'NULL'))
  FROM unnest(ARRAY[NULL, '', ' ', 'a b', 'a.b', 'a/b', 'a:b', 'é', E'a\n', E'\n', 'a''b', repeat('a', 129)]) id;
SELECT lives_ok(format($$ SELECT quorate.open_round(%L, 1, '{1}') $$, id), 'round id ' || left(id, 20))
  FROM unnest(ARRAY['-', '_', '0', 'Az-09_', 'NULL', repeat('x', 128)]) id;
SELECT throws_ok(format($$ SELECT quorate.open_round('bad', %L, '{1,2,3}') $$, quorum), 'QR007', NULL, 'quorum ' || COALESCE(quorum::text, 'NULL') || ' of 3')
  FROM unnest(ARRAY[NULL, 0, -1, 4, 256, 65537, 2147483647, -2147483648]) quorum;
SELECT throws_ok(format($$ SELECT quorate.open_round('bad', 1, '{1}', %L) $$, nonce), 'QR007', NULL, 'nonce ' || nonce)
  FROM unnest(ARRAY[0, -1, -9223372036854775808]) nonce;
SELECT throws_ok(format($$ SELECT quorate.open_round('bad', 1, '{1}', %s) $$, policy), 'QR007', NULL, policy)
  FROM unnest(ARRAY[
    $$per_share_timeout => NULL$$, $$retry_budget => NULL$$, $$base_backoff => NULL$$, $$max_backoff => NULL$$, $$round_deadline => NULL$$,
    $$after_quorum => NULL$$,
    $$per_share_timeout => '0'$$, $$per_share_timeout => '-1 s'$$, $$base_backoff => '0'$$, $$base_backoff => '-1 us'$$, $$base_backoff => '0.4 us'$$,
    $$max_backoff => '0'$$, $$max_backoff => '-1 h'$$, $$round_deadline => '0'$$, $$round_deadline => '-8 s'$$, $$freshness => '0'$$,
    $$freshness => '-1 s'$$, $$freshness => '-1 month'$$,
    $$round_deadline => '1 day -24 hours'$$, $$round_deadline => '1 day -25 hours'$$, $$per_share_timeout => '1 month -31 days'$$,
    $$retry_budget => 0$$, $$retry_budget => -1$$, $$retry_budget => 101$$, $$retry_budget => 2147483647$$,
    $$base_backoff => '1.6 s'$$, $$base_backoff => '2 s', max_backoff => '1 s'$$,
    $$max_backoff => '2 s'$$, $$retry_budget => 6, max_backoff => '1.5 s'$$, $$retry_budget => 100$$, $$round_deadline => '6 s'$$,
    $$freshness => '6 s'$$, $$freshness => '1 s', round_deadline => '1 h'$$, $$max_backoff => '100 years'$$,
    $$round_deadline => '101 years'$$, $$round_deadline => '178000000 years'$$, $$freshness => '1200 months 6 days'$$,
    $$max_backoff => '178000000 years'$$, $$per_share_timeout => '178000000 years'$$,
    $$after_quorum => ''$$, $$after_quorum => 'Stop'$$, $$after_quorum => 'continue '$$]) policy;
SELECT lives_ok(format($$ SELECT quorate.open_round(%L, 1, '{1}', %s) $$, 'good' || i, policy), policy)
  FROM unnest(ARRAY[
    $$round_deadline => '6.000001 s'$$, $$freshness => '6.000001 s'$$, $$base_backoff => '1.5 s'$$, $$round_deadline => '1 day -23 hours'$$,
    $$retry_budget => 100, base_backoff => '79 ms', max_backoff => '79 ms'$$, $$per_share_timeout => '1 h'$$]) WITH ORDINALITY u (policy, i);

-- A month has no fixed length, nor has a day where clocks are changed: whatever is accepted is what it says, or QR007.

SET LOCAL timezone = 'Europe/Berlin';
SELECT ok(r.escalate_at - r.opened_at = (r.deadline_at - r.opened_at) / 2, format('half-way is half-way for %s', life))
  FROM unnest(ARRAY['1 year', '200 days', '13 months', '366 days']) WITH ORDINALITY u (life, i)
 CROSS JOIN LATERAL quorate.open_round('half' || i, 1, '{1}', round_deadline => life::interval) r;
SELECT is_empty(
    $$ SELECT DISTINCT error FROM (SELECT pg_temp.error_of(format(
           'SELECT quorate.open_round(%L, 1, ''{1}'', round_deadline => ''%s days -%s hours -30 min'')', 'd' || d, d, d * 24 - 1), 'MESSAGE') AS error
         FROM generate_series(1, 366) d) x WHERE error LIKE '%constraint%' $$,
    'days minus hours end in a round or in QR007, not in a constraint');
RESET timezone;

SELECT is(count(*)::int, 0, 'nothing of what was refused is left') FROM quorate_store.ledger WHERE round_id IN ('bad', 'fresh');

SELECT * FROM finish();
ROLLBACK;
