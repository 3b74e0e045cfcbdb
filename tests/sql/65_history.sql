-- The history: what is noted, what the chain holds, that it is independent of settings, and that nobody changes it by the rules.

BEGIN;
\ir common/helpers.sql
SELECT plan(68);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT chained FROM quorate_worker.chain(1000, NULL) \gset
SELECT results_eq('SELECT kind::text, key FROM quorate_store.history ORDER BY seq',
    $$ VALUES ('began', 0::bigint), ('deployment', 0), ('node_version', 1), ('node', 1), ('node_key', 1), ('node_version', 2), ('node', 2), ('node_key', 2),
              ('node_version', 3), ('node', 3), ('node_key', 3), ('coordinator', 1), ('imported', 0) $$, 'the chain begins with what is there before any round');
CREATE FUNCTION pg_temp.due() RETURNS text LANGUAGE sql AS
    $$ SELECT COALESCE(string_agg(format('%s %s', kind, key), ', ' ORDER BY due_no), '') FROM quorate_store.history_due $$;
CREATE FUNCTION pg_temp.chain(p_max int DEFAULT 1000) RETURNS text LANGUAGE sql AS $$
    SELECT c.chained || CASE WHEN c.more THEN ' and more' ELSE '' END FROM quorate_worker.chain(p_max, NULL) c $$;
CREATE FUNCTION pg_temp.kinds(p_key bigint) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(h.kind::text, ', ' ORDER BY h.seq) FROM quorate_store.history h WHERE h.key = p_key
       AND h.kind IN ('ended', 'settled', 'acked', 'collected', 'dead_lettered', 'pruned') $$;

-- What is noted.

SELECT pg_temp.submit('done', 2, '{1,2,3}') AS nonce \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'done', 1, 'ack') \g /dev/null
SELECT is(pg_temp.due(), '', 'an open round notes nothing');
SELECT pg_temp.record(:me, 'done', 2, 'ack') \g /dev/null
SELECT is(pg_temp.due(), 'ended 1', 'its end is noted');
SELECT is(pg_temp.chain(), '1', 'and chained');
SELECT is(pg_temp.chain(), '0', 'once');
SELECT pg_temp.record(:me, 'done', 3, 'ack') \g /dev/null
SELECT quorate.collect('done') \g /dev/null
SELECT quorate.collect('done') \g /dev/null
SELECT is(pg_temp.due(), 'settled 1, collected 1', 'its settling, and the first collection');
SELECT is(pg_temp.chain(1), '1 and more', 'no more at once than asked for');
SELECT is(pg_temp.chain(), '1', 'then the rest');
SELECT is(pg_temp.kinds(1), 'ended, settled, collected', 'a record of each');
SELECT pg_temp.submit('both', 1, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'both', n, 'ack') FROM unnest('{1,2}'::int[]) n \g /dev/null
SELECT is(pg_temp.due(), 'ended 2, settled 2', 'both are noted');
SELECT is(pg_temp.chain(), '1', 'who settles before the end is in the chain leaves one record for both');
SELECT pg_temp.submit('gone', 1, '{1}') \gset
SELECT quorate.cancel_round('gone', 'why') \g /dev/null
SELECT verdict FROM quorate.distribute('gone', 1, '{1}', '{other}') \g /dev/null
SELECT pg_temp.past_round('late', 1, '{1}', p_freshness => '10 s') \gset
SELECT pg_temp.past_acks('late', '{1}', true) \g /dev/null
SELECT quorate.settle_round('late') \g /dev/null
SELECT is(pg_temp.due(), 'ended 3, rejected 1, ended 4, dead_lettered 4', 'a cancelled round, a refusal, a round that nobody collected');
SELECT quorate.add_node(1, 'http://n1.test/', pg_temp.key()) \g /dev/null
SELECT quorate.set_node_enabled(3, false) \g /dev/null
SELECT quorate_worker.tick(:me, true, 10, true) \g /dev/null
SELECT quorate_worker.leave(:me) \g /dev/null
SELECT is(pg_temp.due(), 'ended 3, rejected 1, ended 4, dead_lettered 4, node 3, coordinator 1', 'a node and a coordinator that change; not a node that does not, nor a beat');
SELECT is(pg_temp.chain(), '6', 'all of it is chained');
SELECT is(quorate.prune_rounds('infinity'), 2::bigint, 'two rounds are settled');
SELECT is(pg_temp.due(), 'pruned 1, pruned 2', 'those are noted');
SELECT is(pg_temp.chain(), '2', 'and chained');
SELECT is(pg_temp.kinds(1), 'ended, settled, collected, pruned', 'the records of a pruned round stay');

-- A round that is pruned before it is chained leaves its records all the same.

SELECT pg_temp.join_as('two') AS me \gset
SELECT pg_temp.submit('quick', 1, '{1}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT pg_temp.record(:me, 'quick', 1, 'ack') \g /dev/null
SELECT quorate.prune_rounds('infinity') \g /dev/null
SELECT pg_temp.chain() \g /dev/null
SELECT is(pg_temp.kinds(5), 'settled, pruned', 'from the digests that its deletion noted');

-- Keys: each change of a window is a record that the chain keeps; what has none of the new columns looks as it did before they came.

SELECT pg_temp.chain() \g /dev/null
CREATE FUNCTION pg_temp.k(p_i int) RETURNS text LANGUAGE sql AS $$ SELECT 'whpk_' || encode(sha256(p_i::text::bytea), 'base64') $$;
CREATE FUNCTION pg_temp.newest(p_kind text, p_key bigint) RETURNS text LANGUAGE sql AS
    $$ SELECT h.record FROM quorate.history_entries(0, 1000) h WHERE h.kind = p_kind AND h.key = p_key ORDER BY h.seq DESC LIMIT 1 $$;
SELECT is(pg_temp.newest('node', 2), '{"kind" : "node", "node_id" : 2, "current_version" : 2, "enabled" : true}', 'a node without windows');
SELECT is(pg_temp.newest('node_version', 2), format('{"kind" : "node_version", "version" : 2, "node_id" : 2, "url" : "http://n2.test/", "backup_url" : null, '
    '"receipt_key" : "%s", "seal_key" : null, "created_at" : %s}', pg_temp.key(), quorate_store.us(created_at)), 'a version with one key')
  FROM quorate_store.node_version WHERE version = 2;
SELECT quorate.add_node_key(2, pg_temp.k(1), valid_until => '2100-01-01 00:00:00+00') \g /dev/null
SELECT max(key_no) AS key_no FROM quorate_store.node_key \gset
SELECT is(pg_temp.due(), format('node_key %s, node_version 4, node 2', :key_no), 'another key: its window, a version, the node');
SELECT pg_temp.chain() \g /dev/null
SELECT is(pg_temp.newest('node', 2), '{"kind" : "node", "node_id" : 2, "current_version" : 4, "enabled" : true, "keys_until" : 4102444800000000}',
          'the node with the end of its version');
SELECT matches(pg_temp.newest('node_version', 4), format('"receipt_key" : "%s", .*, "other_keys" : \["%s"\]}$', replace(pg_temp.k(1), '+', '\+'), pg_temp.key()),
               'the version with both keys');
SELECT matches(pg_temp.newest('node_key', :key_no), '"valid_until" : 4102444800000000, "revoked_at" : null', 'the key with its window');
SELECT pg_temp.submit('signed', 2, '{1,2}') \g /dev/null
SELECT pg_temp.claim_all(:me) \g /dev/null
SELECT pg_temp.record(:me, 'signed', 1, 'ack') \g /dev/null
SELECT is(state, 'complete', 'a receipt by the older key') FROM quorate_worker.record(:me, true, ARRAY[pg_temp.no('signed')], '{2}', '{primary}', '{1}', '{ack}', '{200}',
    ARRAY[NULL::bigint], ARRAY[pg_temp.receipt(2)], '{2}');
SELECT quorate.revoke_node_key(2, pg_temp.key()) \g /dev/null
SELECT quorate.revoke_node_key(2, pg_temp.k(1)) \g /dev/null
SELECT pg_temp.chain() \g /dev/null
SELECT matches(pg_temp.newest('node', 2), '"keys_until" : "-infinity"}$', 'a node without a valid key');
SELECT doesnt_match(pg_temp.newest('node_key', :key_no), '"revoked_at" : null', 'a key that was revoked');
SELECT is((h.record::json -> 'acks' -> 1 ->> 'receipt_key'), pg_temp.key(), 'the record of the round names the key that signed')
  FROM quorate.history_of('signed') h WHERE h.kind = 'settled';
SELECT is_empty('SELECT * FROM quorate.history_entries(0, 1000) WHERE verdict NOT IN (''row'', ''kept'', ''gone'')', 'it fits');
SELECT is_empty('SELECT * FROM quorate.history_gaps(0, 1000) WHERE source IS NOT NULL', 'and nothing is missing');
SELECT quorate.add_node(2, 'http://n2.test/', pg_temp.k(2)) \g /dev/null

-- The records and the chain.

SELECT is_empty('SELECT * FROM quorate.history_entries(0, 1000) WHERE verdict NOT IN (''row'', ''kept'', ''gone'') OR digest <> sha256(convert_to(record, ''UTF8'')) OR verdict = ''row'' AND parts <> row_parts',
                'every record is what its rows make');
SELECT is_empty('SELECT * FROM quorate.history_gaps(0, 1000) WHERE source IS NOT NULL', 'and every row has its record');
SELECT is_empty($$ SELECT h.seq FROM quorate_store.history h
                     LEFT JOIN quorate_store.history b ON b.seq = h.seq - 1
                    WHERE h.hash <> sha256(COALESCE(b.hash, sha256('quorate-history-v1.test')) ||
                          sha256(convert_to(format('quorate-entry-v1.%s.%s.%s.%s.%s.%s', h.seq, h.kind, h.key, (extract(epoch FROM h.at) * 1000000)::bigint,
                                                   encode(h.digest, 'hex'), encode(h.parts, 'hex')), 'UTF8'))) $$, 'hashes as docs/history.md says');
CREATE TEMP TABLE before AS SELECT * FROM quorate.history_entries(0, 1000);
SET LOCAL timezone = 'Pacific/Chatham'; SET LOCAL datestyle = 'German, DMY'; SET LOCAL intervalstyle = 'sql_standard';
SET LOCAL bytea_output = 'escape'; SET LOCAL extra_float_digits = -10; SET LOCAL lc_numeric = 'C'; SET LOCAL quote_all_identifiers = on;
SELECT is_empty('SELECT record FROM quorate.history_entries(0, 1000) EXCEPT SELECT record FROM before', 'no setting changes a record');
RESET timezone;

-- A clock that is set back neither hides an ack from the history nor puts one into the wrong record.

CREATE FUNCTION pg_temp.problems() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('%s %s: %s', kind, key, verdict) FROM quorate.history_entries(0, 1000)
     WHERE verdict NOT IN ('row', 'kept', 'gone') OR record IS NOT NULL AND digest <> sha256(convert_to(record, 'UTF8'))
    UNION ALL SELECT format('%s %s: %s', source, key, problem) FROM quorate.history_gaps(0, 1000) WHERE source IS NOT NULL $$;
CREATE FUNCTION pg_temp.acks_of(p_round_id text, p_kind text) RETURNS text LANGUAGE sql AS $$
    SELECT (SELECT string_agg(a ->> 'node_id', ',') FROM json_array_elements(e.record::json -> 'acks') a) FROM quorate.history_entries(0, 1000) e
     WHERE e.key = pg_temp.no(p_round_id) AND e.kind = p_kind ORDER BY e.seq DESC LIMIT 1 $$;
SELECT pg_temp.submit('back', 1, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt)
VALUES (pg_temp.no('back'), 1, 'primary', 1, clock_timestamp() + interval '10 min', false, pg_temp.receipt(1)); -- before the clock was set back
SELECT is(pg_temp.record(:me, 'back', 2, 'ack'), 'complete settled', 'settled by a clock that was set back after an ack');
SELECT pg_temp.chain() \g /dev/null
SELECT is(pg_temp.acks_of('back', 'settled'), '1,2', 'the record of the settling has that ack');
SELECT pg_temp.submit('stopped', 1, '{1,2}', p_after => 'stop') \gset
SELECT pg_temp.claim_all(:me) \gset
INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt)
VALUES (pg_temp.no('stopped'), 1, 'primary', 1, clock_timestamp() + interval '10 min', false, pg_temp.receipt(1));
SELECT is(pg_temp.record(:me, 'stopped', 2, 'timeout'), 'complete', 'not settled by who records');
SELECT is(pg_temp.settle(:me, 'stopped'), 'complete settled', 'but by who settles');
SELECT is(pg_temp.record(:me, 'stopped', 2, 'ack'), 'complete settled', 'and then a receipt comes before the time of the settling');
SELECT quorate.set_node_enabled(3, true) \g /dev/null
SELECT pg_temp.submit('beyond', 1, '{1,2,3}', p_after => 'stop') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record(:me, 'beyond', 1, 'ack'), 'complete', 'another one');
INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt)
VALUES (pg_temp.no('beyond'), 3, 'primary', 1, clock_timestamp() + interval '2 h', true, pg_temp.receipt(3)); -- after its deadline
SELECT is(pg_temp.record(:me, 'beyond', 2, 'timeout'), 'complete', 'had a late ack before the clock was set back');
SELECT is(pg_temp.settle(:me, 'beyond'), 'complete settled', 'and is settled, after its deadline');
SELECT is(pg_temp.record(:me, 'beyond', 2, 'ack'), 'complete settled', 'a receipt that comes then, before the deadline again, is stored');
SELECT is(late, true, 'as one that is late: it comes after the settling') FROM quorate.acks WHERE round_id = 'beyond' AND node_id = 2;
SELECT pg_temp.chain() \g /dev/null
SELECT is(pg_temp.acks_of('stopped', 'settled') || ' ' || pg_temp.acks_of('stopped', 'acked'), '1 2', 'each ack is in one record');
SELECT is_empty('SELECT pg_temp.problems()', 'and all of it fits');

-- No time that a coordinator can write is too large for a record: one record that cannot be made would hold all others up for ever.

SELECT throws_ok($$ SELECT quorate_worker.join_deployment(gen_random_uuid(), 'a', '178000000 years') $$, 'QR007', NULL, 'no lease of ages');
SELECT pg_temp.submit('patient', 1, '{1}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.record(:me, 'patient', 1, 'http_error', p_retry_us => 9222000000000000000), 'open', 'a wait of ages');
SELECT quorate.cancel_round('patient', 'why') \g /dev/null
SELECT is(pg_temp.settle(:me, 'patient'), 'cancelled settled', 'ends with its round');
SELECT is(pg_temp.chain(), '1', 'and is chained');
SELECT is_empty('SELECT pg_temp.problems()', 'and fits');

-- Nobody changes it by the rules.

SELECT throws_ok('UPDATE quorate_store.history SET at = now()', '23000', NULL, 'no entry is changed');
SELECT throws_ok('DELETE FROM quorate_store.history', '23000', NULL, 'none deleted');
SELECT throws_ok('TRUNCATE quorate_store.history', '23000', NULL, 'none truncated');
SELECT quorate.set_node_enabled(3, true) \g /dev/null
SELECT quorate.cancel_round(round_id, 'why') FROM (SELECT nonce, 'left' AS round_id FROM quorate.open_round('left', 1, '{1}')) x \g /dev/null
SELECT throws_ok('UPDATE quorate_store.history_due SET key = 7', '23000', NULL, 'nor what is noted');
SELECT throws_ok('DELETE FROM quorate_store.history_due WHERE kind = ''ended''', '23000', NULL, 'which stays until it is chained');
SELECT throws_ok('DELETE FROM quorate_store.history_import', '23000', NULL, 'nor what was there before');

-- Checkpoints.

SELECT pg_temp.chain() \g /dev/null
SELECT seq, hash, now_us, unsigned FROM quorate_worker.chain(1000, pg_temp.key()) \gset
SELECT is(:unsigned::bigint, :seq::bigint, 'nothing is signed yet');
SELECT is(quorate_worker.checkpoint(:seq + 1, :'hash', :now_us, pg_temp.key(), sha512('x')), false, 'none of an entry that is not there');
SELECT is(quorate_worker.checkpoint(:seq, sha256('other'), :now_us, pg_temp.key(), sha512('x')), false, 'or has another hash');
SELECT is(quorate_worker.checkpoint(:seq, :'hash', :now_us, pg_temp.key(), sha512('x')), true, 'one of the head');
SELECT is(quorate_worker.checkpoint(:seq, :'hash', :now_us, pg_temp.key(), sha512('x')), false, 'once for a key');
SELECT is((SELECT s.seq FROM quorate_worker.signed(pg_temp.key()) s), :seq::bigint, 'from where its key goes on signing');
SELECT is((SELECT s.seq FROM quorate_worker.signed(pg_temp.other_key()) s), NULL::bigint, 'another key begins');
SELECT is(quorate_worker.links(:seq - 2, :seq), (SELECT string_agg(l.link, '' ORDER BY place) FROM quorate.history_links(:seq - 2, :seq) WITH ORDINALITY l (link, place)), 'and what leads there');
SELECT is((SELECT c.unsigned FROM quorate_worker.chain(1000, pg_temp.key()) c), NULL::bigint, 'a record of a checkpoint alone asks for no other one');
SELECT throws_ok('DELETE FROM quorate_store.checkpoint', '23000', NULL, 'checkpoints stay');

SELECT * FROM finish();
ROLLBACK;
