-- Claiming: who gets which rounds, the first attempts that come with it, and what a coordinator reads back.

BEGIN;
\ir common/helpers.sql
SELECT plan(64);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.nodes(4, 4, true) \gset

-- Joining.

SELECT instance_no AS a, deployment_id AS d, schema_version AS v
  FROM quorate_worker.join_deployment('11111111-1111-4111-8111-111111111111', 'a', '1 h') \gset
SELECT is(:'d', deployment_id, 'join: the deployment''s id') FROM quorate.deployment;
SELECT is(:v, (SELECT max(number) FROM quorate_store.migration), 'and the schema''s version');
SELECT is(instance_no, :a, 'joining again under the same instance id is the same instance')
  FROM quorate_worker.join_deployment('11111111-1111-4111-8111-111111111111', 'a', '1 h');
SELECT instance_no AS b FROM quorate_worker.join_deployment('22222222-2222-4222-8222-222222222222', 'a', '1 h') \gset
SELECT isnt(:b, :a, 'another start under the same name is another instance');
SELECT ok(quorate_worker.is_joined(:a, '11111111-1111-4111-8111-111111111111'), 'whoever has joined knows it on any connection');
SELECT ok(NOT quorate_worker.is_joined(:b, '11111111-1111-4111-8111-111111111111'), 'its number alone is not enough: that may be another''s');
SELECT ok(NOT quorate_worker.is_joined(:a, '33333333-3333-4333-8333-333333333333'), 'nor is it in a database where its start is unknown');
SELECT throws_ok($$ SELECT quorate_worker.join_deployment(gen_random_uuid(), '', '1 h') $$, '23514', NULL, 'a coordinator has a name');
SELECT throws_ok($$ SELECT quorate_worker.join_deployment(gen_random_uuid(), 'a', '0 s') $$, '23514', NULL, 'and a lease');
SELECT throws_ok($$ SELECT quorate_worker.join_deployment(NULL, 'a', '1 h') $$, '23502', NULL, 'and an instance id');

-- Claims.

SELECT is(pg_temp.claim_all(:a), 0::bigint, 'nothing to claim');
SELECT pg_temp.submit('r', 2, '{1,2,4}', p_freshness => '2 h') AS nonce \gset
CREATE TEMP TABLE claimed AS SELECT * FROM quorate_worker.claim(:a, 10, 1000000, '{}');
SELECT results_eq(
    $$ SELECT round_no, round_id, nonce, state, stop, escalated, retry_budget, node_id::int, payload_bytes, payload_sha256, acked FROM claimed ORDER BY node_id $$,
    format($$ SELECT pg_temp.no('r'), 'r', %s::bigint, 'open', false, false, 4::smallint, n, 7, sha256(convert_to('share ' || n, 'UTF8')), false
                FROM unnest('{1,2,4}'::int[]) n $$, :nonce), 'a claim gives a row per delivery');
SELECT results_eq('SELECT DISTINCT timeout_us, base_us, max_us FROM claimed', 'VALUES (2000000::bigint, 50000::bigint, 1500000::bigint)',
                  'durations in microseconds');
SELECT ok(bool_and(deadline_us BETWEEN 3590000000 AND 3600000000 AND escalate_us BETWEEN 1790000000 AND 1800000000), 'times as what is left')
  FROM claimed;
SELECT ok(bool_and(abs(now_us - extract(epoch FROM clock_timestamp()) * 1000000) < 10000000), 'and the database''s clock') FROM claimed;
SELECT results_eq('SELECT DISTINCT primary_used::int, primary_refused, primary_open::int, primary_mine, primary_wait_us, backup_used::int, backup_open::int FROM claimed',
    'VALUES (1, false, 1, true, NULL::bigint, 0, 0)', 'the first attempt of each is reserved, on the primary route');
SELECT results_eq($$ SELECT node_id, route, attempt, coordinator, outcome, resends FROM quorate.attempts WHERE round_id = 'r' ORDER BY 1 $$,
    $$ SELECT n, 'primary', 1, 'a', NULL::text, 0 FROM unnest('{1,2,4}'::int[]) n $$, 'and shows in attempts');
SELECT is(coordinator, 'a', 'the round shows its coordinator') FROM quorate.rounds WHERE round_id = 'r';
SELECT is(open_rounds, CASE instance_id WHEN '11111111-1111-4111-8111-111111111111' THEN 1 ELSE 0 END, 'and the coordinator its open rounds')
  FROM quorate.coordinators ORDER BY instance_id;
SELECT is(pg_temp.claim_all(:b), 0::bigint, 'nobody else claims it');
SELECT is(pg_temp.claim_all(:a), 0::bigint, 'nor does its owner again');
SELECT results_eq(format($$ SELECT e.node_id::int, e.payload FROM quorate_worker.envelopes(array_fill(pg_temp.no('r'), ARRAY[3]), '{1,3,4}') e $$),
    $$ VALUES (1, 'share 1'::bytea), (4, 'share 4') $$, 'envelopes: the payloads named, but for those that are not there');

SELECT results_eq('SELECT node_id::int, payload FROM claimed ORDER BY 1', $$ VALUES (1, 'share 1'::bytea), (2, 'share 2'), (4, 'share 4') $$,
                  'small envelopes come with the claim');
SELECT bag_eq(format($$ SELECT c.node_id::int, octet_length(c.payload) FROM quorate.submit_round('sizes', 1, '{1,2,3}',
           ARRAY[convert_to(repeat('x', 512), 'UTF8'), convert_to(repeat('x', 513), 'UTF8'), 'x'::bytea], round_deadline => '1 h') s,
           LATERAL (SELECT * FROM quorate_worker.claim(%s, 10, 1000000, ARRAY(SELECT version FROM quorate_store.node_version WHERE node_id = 3)) OFFSET 0) c $$, :a),
    'VALUES (1, 512), (2, NULL), (3, NULL)', 'larger ones do not, nor those whose attempt was not reserved');
SELECT quorate.cancel_round('sizes', 'done') \gset
SELECT pg_temp.record(:a, 'sizes', n, 'timeout') FROM unnest('{1,2}'::int[]) n \g /dev/null
SELECT pg_temp.settle(:a, 'sizes') \gset

-- Envelopes that come later.

SELECT nonce AS nonce2 FROM quorate.open_round('later', 1, '{1,2,3}', round_deadline => '1 h') \gset
SELECT results_eq(format('SELECT round_id, node_id::int, primary_used::int, primary_open::int FROM quorate_worker.claim(%s, 10, 1000000, ''{}'')', :a),
    $$ VALUES ('later', NULL::int, 0, 0) $$, 'a round without envelopes is claimed as well: one row without a node');
SELECT verdict FROM quorate.distribute('later', :nonce2, '{2}', '{two}') \g /dev/null
SELECT is(pg_temp.claim_all(:b), 0::bigint, 'its new envelope is none of others'' business');
SELECT results_eq(format('SELECT round_id, node_id::int, primary_open::int FROM quorate_worker.claim(%s, 10, 1000000, ''{}'')', :a),
    $$ VALUES ('later', 2, 1) $$, 'its owner takes it with the next claim');
SELECT is(pg_temp.claim_all(:a), 0::bigint, 'once');
SELECT verdict FROM quorate.distribute('later', :nonce2, '{2}', '{two}') \g /dev/null
SELECT is(pg_temp.claim_all(:a), 0::bigint, 'a duplicate is no news');
SELECT verdict FROM quorate.distribute('later', :nonce2, '{1,3}', '{one,three}') \g /dev/null
SELECT pg_temp.record(:a, 'later', 2, 'ack') \gset
SELECT is(pg_temp.state('later'), 'complete', 'a round completes before its owner took the newer envelopes');
SELECT is(count(*)::int, 3, 'they are taken all the same') FROM quorate_worker.claim(:a, 10, 1000000, '{}');
SELECT is(pg_temp.reserve(:a, 'later', 1, 1), 'granted complete', 'and delivered as surplus');

-- No free slot: the delivery is claimed, its attempt is not reserved.

SELECT pg_temp.submit('busy', 1, '{1,2}') \gset
SELECT version AS version FROM quorate_store.node_version WHERE node_id = 1 \gset
SELECT results_eq(format('SELECT node_id::int, node_version, primary_used::int, primary_open::int FROM quorate_worker.claim(%s, 10, 1000000, ARRAY[%s]) ORDER BY 1', :a, :version),
    format('VALUES (1, %s, 0, 0), (2, %s, 1, 1)', :version, (SELECT version FROM quorate_store.node_version WHERE node_id = 2)),
    'no attempt is reserved at a busy endpoint');
SELECT is(pg_temp.reserve(:a, 'busy', 1, 1), 'granted open', 'but later, when there is a slot');

-- At most so many.

SELECT pg_temp.submit('m' || i, 1, '{1}') FROM generate_series(1, 5) i \g /dev/null
SELECT is((SELECT count(DISTINCT round_no)::int FROM quorate_worker.claim(:a, 2, 1000000, '{}')), 2, 'two of five');
SELECT is((SELECT count(DISTINCT round_no)::int FROM quorate_worker.claim(:b, 2, 1000000, '{}')), 2, 'two more for another');
SELECT is((SELECT count(DISTINCT round_no)::int FROM quorate_worker.claim(:a, 2, 1000000, '{}')), 1, 'the last one');

-- Rounds that ended before anybody claimed them are claimed too: somebody has to settle them.

SELECT pg_temp.submit('cancelled', 1, '{1}') \gset
SELECT quorate.cancel_round('cancelled', 'why') \gset
SELECT pg_temp.past_round('due', 1, '{1}') \gset
SELECT results_eq(format($$ SELECT round_id, state, primary_used::int, deadline_us < 0 FROM quorate_worker.claim(%s, 10, 1000000, '{}') ORDER BY 1 $$, :a),
    $$ VALUES ('cancelled', 'cancelled', 0, false), ('due', 'open', 0, true) $$, 'an ended and a due round are claimed, without an attempt');
SELECT is(pg_temp.settle(:a, 'cancelled'), 'cancelled settled', 'and settled');
SELECT is(pg_temp.settle(:a, 'due'), 'stalled settled', 'the due one is stalled first');
SELECT is(pg_temp.claim_all(:b), 0::bigint, 'settled rounds are claimed by nobody');

-- What is owned, in pages.

SELECT results_eq(format('SELECT DISTINCT round_no FROM quorate_worker.owned(%s, 0, 1000) ORDER BY 1', :a),
    format('SELECT round_no FROM quorate_store.round WHERE owner = %s AND settled_at IS NULL ORDER BY 1', :a), 'owned: all unsettled ones');
SELECT results_eq(format('SELECT DISTINCT round_id FROM quorate_worker.owned(%s, pg_temp.no(''r''), 1)', :a), $$ VALUES ('later') $$,
                  'owned: the first one after a round');
SELECT is_empty(format('SELECT * FROM quorate_worker.owned(%s, 9223372036854775807, 10)', :a), 'owned: none after the last');
SELECT pg_temp.record(:a, 'r', 1, 'http_error', p_status => 503, p_retry_us => 5000000) \gset
SELECT results_eq(format($$ SELECT node_id::int, acked, primary_used::int, primary_open::int, primary_wait_us BETWEEN 3000000 AND 5000000
                              FROM quorate_worker.owned(%s, 0, 1000) WHERE round_id = 'r' ORDER BY 1 $$, :a),
    'VALUES (1, false, 1, 0, true), (2, false, 1, 1, NULL), (4, false, 1, 1, NULL)', 'owned: how far each delivery is');

-- A successor.

SELECT is(pg_temp.claim_all(:b), 0::bigint, 'nothing to take over while its owner lives');
SELECT quorate_worker.leave(:a) \gset
SELECT is(alive, false, 'a leaves') FROM quorate.coordinators WHERE instance_id = '11111111-1111-4111-8111-111111111111';
SELECT is(pg_temp.claim_all(:a), 0::bigint, 'and claims nothing any more');
SELECT lives_ok(format('SELECT quorate_worker.leave(%s)', :a), 'it may say so twice');
SELECT pg_temp.submit('new', 1, '{1}') \gset
CREATE TEMP TABLE taken AS SELECT * FROM quorate_worker.claim(:b, 1000, 1000000, '{}');
SELECT ok(bool_and(owner = :b), 'b takes over all that is not settled, and what is new') FROM quorate_store.round WHERE settled_at IS NULL;
SELECT results_eq($$ SELECT node_id::int, primary_used::int, primary_open::int FROM taken WHERE round_id = 'r' ORDER BY 1 $$,
    'VALUES (1, 1, 0), (2, 1, 1), (4, 1, 1)', 'a predecessor''s attempts are seen as they are');
SELECT is(coordinator, 'a', 'they still show who reserved them') FROM quorate.attempts WHERE round_id = 'r' AND node_id = 2;
SELECT is((SELECT count(*)::int FROM quorate.attempts WHERE round_id = 'r'), 3, 'and no attempt was added');

-- What is its own and has news is not taken over, although somebody has left: what was sent may not look as if it had been reserved just now.

SELECT is(cleared_at, NULL, 'a is still looked after') FROM quorate_store.coordinator WHERE instance_no = :a;
SELECT pg_temp.submit('own', 1, '{1,2,3}') \gset
SELECT version AS busy FROM quorate_store.node_version WHERE node_id = 3 \gset
SELECT bag_eq(format($$ SELECT node_id::int, primary_mine FROM quorate_worker.claim(%s, 10, 1000000, '{%s}') $$, :b, :busy),
              'VALUES (1, true), (2, true), (3, false)', 'a claim reserves attempts');
SELECT is(pg_temp.record(:a, 'own', 2, 'ack'), 'fenced', 'the end of a round by a receipt that came to the one that has left is news');
SELECT bag_eq(format($$ SELECT node_id::int, acked, primary_open::int, primary_mine, payload IS NULL FROM quorate_worker.claim(%s, 10, 1000000, '{%s}') $$, :b, :busy),
              'VALUES (1, false, 1, false, true), (2, true, 0, false, true), (3, false, 0, false, true)', 'the next one does not say that it reserves them');
SELECT is_empty('SELECT FROM quorate_store.attempt WHERE round_no = pg_temp.no(''own'')', 'nor gives it a row');

-- Rounds of the past are due for claims as for anyone: budgets and state as they are.

SELECT pg_temp.submit('stop', 1, '{1,2,3}', 'stop') \gset
SELECT is(bool_and(stop), true, 'a round that stops at its quorum says so') FROM quorate_worker.claim(:b, 10, 1000000, '{}');
SELECT pg_temp.submit('closed', 2, '{1,2}') \gset
SELECT is(count(*)::int, 2, 'p_busy of NULL: no attempt is reserved, no error') FROM quorate_worker.claim(:b, 10, 1000000, NULL);
SELECT is((SELECT count(*)::int FROM quorate.attempts WHERE round_id = 'closed'), 0, 'none');
SELECT is_empty('SELECT * FROM quorate_worker.claim(NULL, 10, 1000000, ''{}'')', 'no instance claims nothing');
SELECT is_empty('SELECT * FROM quorate_worker.claim(2147483647, 10, 1000000, ''{}'')', 'nor does one that never joined');

SELECT * FROM finish();
ROLLBACK;
