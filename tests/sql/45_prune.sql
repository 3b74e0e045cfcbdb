-- prune_rounds: settled rounds go whole, the ledger stays, and what was used is never accepted again.

BEGIN;
\ir common/helpers.sql
SELECT plan(33);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT throws_ok(format('SELECT quorate.prune_rounds(%s)', a), 'QR007', NULL, 'prune_rounds(' || a || ')')
  FROM unnest(ARRAY['NULL', 'now(), NULL', 'now(), 0', 'now(), -1', 'NULL, 10']) a;
SELECT is(quorate.prune_rounds('infinity'), 0::bigint, 'nothing to prune');

-- done: settled; open; waiting: ended, not settled.
SELECT pg_temp.submit('done', 2, '{1,2}') AS nonce \gset
SELECT verdict FROM quorate.distribute('done', :nonce, '{1}', '{other}') \g /dev/null
SELECT verdict FROM quorate.distribute('never', 1, '{1}', '{other}') \g /dev/null
SELECT pg_temp.submit('open', 2, '{1,2}') AS nonce2 \gset
SELECT verdict FROM quorate.distribute('open', :nonce2, '{1}', '{other}') \g /dev/null
SELECT pg_temp.submit('waiting', 2, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'done', n, 'ack') FROM unnest('{1,2}'::int[]) n \g /dev/null
SELECT quorate.cancel_round('waiting', 'why') \gset
SELECT closed_at AS closed FROM quorate.rounds WHERE round_id = 'done' \gset

SELECT is(quorate.prune_rounds(:'closed'), 0::bigint, 'a round that ended at that time did not end before it');
SELECT is(quorate.prune_rounds('-infinity'), 0::bigint, 'nor at the beginning of time');
SELECT is(count(*)::int, 2, 'of the rejections only an old one of a round that never was went') FROM quorate.rejections;
SELECT is(quorate.prune_rounds('infinity'), 1::bigint, 'only the settled one goes');
SELECT bag_eq('SELECT round_id FROM quorate.rounds', $$ VALUES ('open'), ('waiting') $$, 'the others stay');
SELECT is((SELECT count(*)::int FROM quorate_store.delivery WHERE round_no = pg_temp.no('done')), 0, 'no delivery of it is left');
SELECT is((SELECT count(*)::int FROM quorate_store.attempt WHERE round_no = pg_temp.no('done')), 0, 'no attempt');
SELECT is((SELECT count(*)::int FROM quorate_store.ack WHERE round_no = pg_temp.no('done')), 0, 'no ack');
SELECT is((SELECT count(*)::int FROM quorate_store.envelope WHERE round_no = pg_temp.no('done')), 0, 'no envelope');
SELECT results_eq('SELECT round_id FROM quorate.rejections', $$ VALUES ('open'::text COLLATE "C") $$,
                  'its rejections and those of rounds that never were go, those of others stay');
SELECT is((SELECT count(*)::int FROM quorate_store.delivery WHERE round_no = pg_temp.no('open')), 2, 'deliveries of others stay');

-- Used once, for ever.

SELECT is(nonce, :nonce::bigint, 'the ledger keeps its id and its nonce') FROM quorate_store.ledger WHERE round_id = 'done';
SELECT throws_ok($$ SELECT quorate.open_round('done', 1, '{1}') $$, 'QR006', NULL, 'its id is never accepted again');
SELECT throws_ok(format($$ SELECT quorate.open_round('other', 1, '{1}', %s) $$, :nonce), 'QR005', NULL, 'nor is its nonce');
SELECT throws_ok($$ SELECT quorate.submit_round('done', 1, '{1}', '{a}') $$, 'QR006', NULL, 'by submit_round neither');
SELECT ok(pg_temp.error_of($$ SELECT quorate.open_round('done', 1, '{1}') $$, 'DETAIL') ~ ('\m' || :nonce || '\M.*pruned'), 'DETAIL says that it was pruned');
SELECT throws_ok($$ SELECT quorate.collect('done') $$, 'QR003', NULL, 'collect: unknown');
SELECT throws_ok($$ SELECT quorate.settle_round('done') $$, 'QR003', NULL, 'settle_round: unknown');
SELECT throws_ok($$ SELECT quorate.cancel_round('done', 'why') $$, 'QR003', NULL, 'cancel_round: unknown');
SELECT is(verdict, 'unknown_round', 'distribute: unknown') FROM quorate.distribute('done', :nonce, '{1}', ARRAY['share 1'::bytea]);
SELECT is(pg_temp.record(:me, 'done', 1, 'ack'), 'gone', 'a coordinator is told that it has gone');

-- At most so many at once.

SELECT pg_temp.submit('p' || i, 1, '{1}') FROM generate_series(1, 7) i \g /dev/null
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'p' || i, 1, 'ack') FROM generate_series(1, 7) i \g /dev/null
SELECT is(quorate.prune_rounds('infinity', 3), 3::bigint, 'three of seven');
SELECT is(quorate.prune_rounds('infinity', 3), 3::bigint, 'three more');
SELECT is(quorate.prune_rounds('infinity', 3), 1::bigint, 'the last one');
SELECT is(quorate.prune_rounds('infinity', 3), 0::bigint, 'none is left');

-- Rejections of rounds that never were: all old ones go by the time that no round is left, however many there are.

SELECT verdict FROM quorate.distribute('never', 1, array_fill(1, '{20}'), array_fill('a'::bytea, '{20}')) LIMIT 1 \g /dev/null
SELECT is(quorate.prune_rounds('infinity', 3), 0::bigint, 'no round is left');
SELECT is(count(*)::int, 0, 'and no rejection of unknown rounds') FROM quorate.rejections WHERE verdict = 'unknown_round';

SELECT * FROM finish();
ROLLBACK;
