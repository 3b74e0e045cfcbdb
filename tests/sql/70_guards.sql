-- Hostile statements by the tables' owner, a superuser: the database itself keeps the rules, also with triggers "switched off" for replication.

BEGIN;
\ir common/helpers.sql
SELECT plan(269);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.nodes(4, 4, true) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.join_as('gone') AS gone \gset
SELECT quorate_worker.leave(:gone) \gset

-- Keys of node 3: one that has ended, one that was revoked, one that is to begin.
CREATE FUNCTION pg_temp.k(p_i int) RETURNS text LANGUAGE sql AS $$ SELECT 'whpk_' || encode(sha256(p_i::text::bytea), 'base64') $$;
INSERT INTO quorate_store.node_key (node_id, key, valid_from, valid_until) VALUES (3, pg_temp.k(1), now() - interval '2 h', now() - interval '1 h');
INSERT INTO quorate_store.node_key (node_id, key, valid_from) VALUES (3, pg_temp.k(2), now() - interval '2 h');
SELECT quorate.revoke_node_key(3, pg_temp.k(2)) \g /dev/null
SELECT quorate.add_node_key(3, pg_temp.k(3), now() + interval '1 h') \g /dev/null

-- One round of each kind.

SELECT array_agg(version) AS all_versions FROM quorate_store.node_version \gset
SELECT pg_temp.submit('open', 2, '{1,2,4}') AS nonce \gset
SELECT pg_temp.claim_all(:me, :'all_versions') \gset
SELECT pg_temp.reserve(:me, 'open', n, 1) FROM unnest('{1,2,4}'::int[]) n \g /dev/null
SELECT pg_temp.record(:me, 'open', 1, 'ack') \gset
SELECT pg_temp.past_round('stalled', 2, '{1,2}') \gset
SELECT pg_temp.past_acks('stalled', '{1}') \gset
SELECT quorate.settle_round('stalled') \gset
SELECT pg_temp.past_round('complete', 2, '{1,2,3}', p_freshness => '1 day', p_owner => :me) \gset
SELECT pg_temp.past_acks('complete', '{1,2}', true) \gset
SELECT pg_temp.past_round('dead', 1, '{1,2}', p_freshness => '20 s') \gset
SELECT pg_temp.past_acks('dead', '{1}', true) \gset
SELECT quorate.settle_round('dead') \gset
SELECT pg_temp.submit('cancelled', 1, '{1}') \gset
SELECT quorate.cancel_round('cancelled', 'why') \gset
SELECT pg_temp.submit('settled', 2, '{1,2}') \gset
SELECT pg_temp.claim_all(:me, :'all_versions') \gset
SELECT pg_temp.reserve(:me, 'settled', n, 1) FROM unnest('{1,2}'::int[]) n \g /dev/null
SELECT pg_temp.record(:me, 'settled', n, 'ack') FROM unnest('{1,2}'::int[]) n \g /dev/null
SELECT nonce AS nonce2 FROM quorate.open_round('half', 1, '{1,2}', round_deadline => '1 h') \gset
SELECT verdict FROM quorate.distribute('half', :nonce2, '{1}', '{one}') \g /dev/null
SELECT pg_temp.claim_all(:me) \gset
SELECT quorate.cancel_round('half', 'why') \gset
SELECT quorate.open_round('bare', 1, '{1,2}', round_deadline => '1 h') \g /dev/null
SELECT pg_temp.submit('claimed', 2, '{1,2,3}') \gset
SELECT pg_temp.submit('halted', 2, '{1,2}') \gset
SELECT pg_temp.claim_all(:me, ARRAY(SELECT version FROM quorate_store.node_version WHERE node_id = 3)) \gset
SELECT quorate.cancel_round('halted', 'why') \gset
SELECT pg_temp.past_round('overdue', 2, '{1,2}') \gset
SELECT pg_temp.past_acks('overdue', '{1,2}') \gset
SELECT verdict FROM quorate.distribute('open', :nonce, '{1,9}', '{other,x}') \g /dev/null
SELECT is(count(*)::int, 11, 'eleven rounds') FROM quorate.rounds;

-- Statements that must be refused with SQLSTATE 23xxx. Names of rounds in braces stand for their numbers.

CREATE TEMP TABLE hostile (i serial, sql text);
INSERT INTO hostile (sql)
SELECT format('TRUNCATE quorate_store.%I CASCADE', t)
  FROM unnest(ARRAY['deployment', 'node_version', 'node', 'ledger', 'coordinator', 'round', 'delivery', 'envelope', 'attempt', 'ack', 'rejection', 'node_key']) t;
INSERT INTO hostile (sql) VALUES
    ('TRUNCATE quorate_store.rejection RESTART IDENTITY'),
    -- What is permanent.
    ($$DELETE FROM quorate_store.ledger$$),
    ($$DELETE FROM quorate_store.ledger WHERE round_id = 'settled'$$),
    ($$UPDATE quorate_store.ledger SET nonce = nonce + 1 WHERE round_id = 'open'$$),
    ($$UPDATE quorate_store.ledger SET round_id = 'renamed' WHERE round_id = 'open'$$),
    ($$UPDATE quorate_store.ledger SET round_no = DEFAULT WHERE round_id = 'open'$$),
    ($$INSERT INTO quorate_store.ledger (round_id, nonce) VALUES ('open', 5)$$),
    ($$INSERT INTO quorate_store.ledger (round_id, nonce) SELECT 'copy', nonce FROM quorate_store.ledger WHERE round_id = 'open'$$),
    ($$INSERT INTO quorate_store.ledger (round_id, nonce) VALUES ('a b', 5)$$),
    ($$INSERT INTO quorate_store.ledger (round_id, nonce) VALUES ('zero', 0)$$),
    ($$INSERT INTO quorate_store.ledger (round_id, nonce) VALUES ('open', 5) ON CONFLICT (round_id) DO UPDATE SET nonce = 5$$),
    ($$DELETE FROM quorate_store.deployment$$),
    ($$UPDATE quorate_store.deployment SET deployment_id = 'other'$$),
    ($$INSERT INTO quorate_store.deployment (deployment_id) VALUES ('other')$$),
    ($$INSERT INTO quorate_store.deployment (singleton, deployment_id) VALUES (false, 'other')$$),
    ($$UPDATE quorate_store.deployment SET max_envelope_bytes = 16777217$$),
    ($$DELETE FROM quorate_store.node_version$$),
    ($$UPDATE quorate_store.node_version SET url = 'http://evil.test/'$$),
    ($$UPDATE quorate_store.node_version SET receipt_key = pg_temp.other_key() WHERE node_id = 1$$),
    ($$DELETE FROM quorate_store.node$$),
    ($$DELETE FROM quorate_store.coordinator$$),
    ($$UPDATE quorate_store.coordinator SET instance_id = gen_random_uuid() WHERE name = 'one'$$),
    ($$UPDATE quorate_store.coordinator SET name = 'other' WHERE name = 'one'$$),
    ($$UPDATE quorate_store.coordinator SET ended_at = NULL, end_reason = NULL, cleared_at = NULL WHERE name = 'gone'$$),
    ($$UPDATE quorate_store.coordinator SET ended_at = clock_timestamp() WHERE name = 'gone'$$),
    ($$UPDATE quorate_store.coordinator SET cleared_at = clock_timestamp() WHERE name = 'one'$$),
    ($$UPDATE quorate_store.coordinator SET ended_at = clock_timestamp() WHERE name = 'one'$$),
    ($$UPDATE quorate_store.coordinator SET ended_at = clock_timestamp(), end_reason = 'bored' WHERE name = 'one'$$),
    ($$INSERT INTO quorate_store.ledger (round_no, round_id, nonce) OVERRIDING SYSTEM VALUE VALUES (-1, 'negative', 5)$$),
    ($$INSERT INTO quorate_store.node_version (node_id, url, receipt_key) VALUES (0, 'http://n/', pg_temp.key())$$),
    ($$INSERT INTO quorate_store.node_version (node_id, url, receipt_key) VALUES (1, 'http://n/', 'whsk_secret')$$),
    -- Rounds: fixed at opening.
    ($$UPDATE quorate_store.round SET quorum = 1 WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET quorum = 3 WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET quorum = 1 WHERE round_no = {stalled}$$),
    ($$UPDATE quorate_store.round SET node_ids = '{1,2}', node_versions = node_versions[1:2] WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET node_ids = '{1,2,3}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET node_ids = '[0:2]={1,2,4}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET node_versions = node_versions[3:3] || node_versions[1:2] WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET retry_budget = 100 WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET after_quorum = 'stop' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET per_share_timeout = '1 h' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET base_backoff = '1 us' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET max_backoff = '1 h' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET opened_at = opened_at - interval '1 s' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET escalate_at = opened_at WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET deadline_at = deadline_at + interval '1 s' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET deadline_at = 'infinity' WHERE round_no = {stalled}$$),
    ($$UPDATE quorate_store.round SET fresh_until = NULL WHERE round_no = {complete}$$),
    ($$UPDATE quorate_store.round SET fresh_until = 'infinity' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET round_no = 4711 WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET round_no = {open} + 0, quorum = 1 WHERE round_no = {settled}$$),
    -- Rounds: no complete below quorum.
    ($$UPDATE quorate_store.round SET state = 'complete' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp() WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1,2}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1,1}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1,3}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1,NULL}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = deadline_at + interval '1 s', quorum_nodes = '{1,2}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'dead_lettered', closed_at = clock_timestamp(), dead_lettered_at = clock_timestamp(), quorum_nodes = '{1,2}'
        WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1,2}' WHERE round_no = {overdue}$$),
    ($$UPDATE quorate_store.round SET quorum_nodes = '{1,2}' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET closed_at = clock_timestamp() WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET collected_at = clock_timestamp() WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET settled_at = clock_timestamp() WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET dead_lettered_at = clock_timestamp() WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET escalated_at = escalate_at - interval '1 s' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET escalated_at = deadline_at + interval '1 s' WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.round SET state = 'stalled', closed_at = clock_timestamp() WHERE round_no = {open}$$),
    -- Rounds: the first claim stands for attempts, and is written once.
    ($$UPDATE quorate_store.round SET claimed_nodes = '{1}' WHERE round_no = {claimed}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = '{1,2,3}' WHERE round_no = {claimed}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = NULL, claimed_at = NULL, claimed_by = NULL WHERE round_no = {claimed}$$),
    ($$UPDATE quorate_store.round SET claimed_at = clock_timestamp() WHERE round_no = {claimed}$$),
    ($$UPDATE quorate_store.round SET claimed_by = 99 WHERE round_no = {claimed}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = '{1}' WHERE round_no = {bare}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = '{3}', claimed_at = clock_timestamp(), claimed_by = 1 WHERE round_no = {bare}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = '{1,NULL}', claimed_at = clock_timestamp(), claimed_by = 1 WHERE round_no = {bare}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = '{1}', claimed_at = 'infinity', claimed_by = 1 WHERE round_no = {bare}$$),
    ($$UPDATE quorate_store.round SET claimed_nodes = '{1}', claimed_at = opened_at, claimed_by = 1 WHERE round_no = {complete}$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({claimed}, 1, 'primary', 1, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({claimed}, 3, 'primary', 1, clock_timestamp(), false, pg_temp.receipt(3))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({claimed}, 1, 'primary', 2, clock_timestamp(), false, pg_temp.receipt(1))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, http_status, receipt) VALUES ({claimed}, 1, 'primary', 1, clock_timestamp(), false, 99, pg_temp.receipt(1))$$),
    ($$DO $x$ BEGIN
           DELETE FROM quorate_store.envelope WHERE round_no = {halted};
           UPDATE quorate_store.round SET settled_at = clock_timestamp() WHERE round_no = {halted};
       END $x$ $$),
    -- Rounds: no way out of a terminal state but complete to dead_lettered.
    ($$UPDATE quorate_store.round SET state = 'dead_lettered', dead_lettered_at = clock_timestamp() WHERE round_no = {complete}$$),
    ($$UPDATE quorate_store.round SET quorum_nodes = '{1,2,3}' WHERE round_no = {complete}$$),
    ($$UPDATE quorate_store.round SET quorum_nodes = '{2,1}' WHERE round_no = {complete}$$),
    ($$UPDATE quorate_store.round SET quorum_nodes = '{2}' WHERE round_no = {dead}$$),
    ($$UPDATE quorate_store.round SET close_reason = 'other' WHERE round_no = {cancelled}$$),
    ($$UPDATE quorate_store.round SET close_reason = NULL WHERE round_no = {stalled}$$),
    ($$UPDATE quorate_store.round SET closed_at = closed_at + interval '1 s' WHERE round_no = {stalled}$$),
    ($$UPDATE quorate_store.round SET escalated_at = escalate_at WHERE round_no = {complete}$$),
    ($$UPDATE quorate_store.round SET dead_lettered_at = clock_timestamp() WHERE round_no = {dead}$$),
    ($$UPDATE quorate_store.round SET collected_at = fresh_until WHERE round_no = {dead}$$),
    ($$UPDATE quorate_store.round SET collected_at = clock_timestamp() WHERE round_no = {stalled}$$),
    ($$UPDATE quorate_store.round SET settled_at = NULL WHERE round_no = {settled}$$),
    ($$UPDATE quorate_store.round SET settled_at = clock_timestamp() WHERE round_no = {settled}$$),
    -- Settling: no payload and no attempt under way.
    ($$UPDATE quorate_store.round SET settled_at = clock_timestamp() WHERE round_no = {complete}$$),
    ($$UPDATE quorate_store.round SET settled_at = clock_timestamp() WHERE round_no = {cancelled}$$),
    ($$DO $x$ BEGIN
           DELETE FROM quorate_store.envelope WHERE round_no = {half};
           UPDATE quorate_store.round SET settled_at = clock_timestamp() WHERE round_no = {half};
       END $x$ $$),
    ($$DO $x$ BEGIN
           DELETE FROM quorate_store.envelope WHERE round_no = {complete};
           INSERT INTO quorate_store.envelope (round_no, node_id, payload) VALUES ({complete}, 3, 'share 3');
       END $x$ $$),
    ($$DO $x$ BEGIN
           DELETE FROM quorate_store.round WHERE round_no = {settled};
           INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, per_share_timeout, base_backoff, max_backoff, after_quorum, quorum, retry_budget,
                                            node_ids, node_versions)
           VALUES ({settled}, now(), now(), now() + interval '1 h', '1 s', '1 ms', '1 ms', 'continue', 1, 1, '{1}', '{1}');
       END $x$ $$),
    ($$WITH gone AS (DELETE FROM quorate_store.round WHERE round_no = {settled} RETURNING *)
       INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, per_share_timeout, base_backoff, max_backoff, after_quorum, quorum, retry_budget,
                                        node_ids, node_versions)
       SELECT round_no, now(), now(), now() + interval '1 h', '1 s', '1 ms', '1 ms', 'continue', 1, 1, '{1}', '{1}' FROM gone$$),
    ($$INSERT INTO quorate_store.round SELECT * FROM quorate_store.round WHERE round_no = {open}
       ON CONFLICT (round_no) DO UPDATE SET state = 'complete', closed_at = clock_timestamp(), quorum_nodes = '{1,2}'$$),
    ($$INSERT INTO quorate_store.round SELECT * FROM quorate_store.round WHERE round_no = {open} ON CONFLICT (round_no) DO UPDATE SET quorum = 1$$),
    ($$DO $x$ BEGIN
           DELETE FROM quorate_store.round WHERE round_no = {settled};
           UPDATE quorate_store.ledger SET pruned_at = NULL WHERE round_no = {settled};
       END $x$ $$),
    ($$DO $x$ BEGIN
           DELETE FROM quorate_store.round WHERE round_no = {settled};
           DELETE FROM quorate_store.ledger WHERE round_id = 'settled';
       END $x$ $$),
    -- Rounds: never deleted but settled; nor born in another state.
    ($$DELETE FROM quorate_store.round WHERE round_no = {open}$$),
    ($$DELETE FROM quorate_store.round WHERE round_no = {complete}$$),
    ($$DELETE FROM quorate_store.round WHERE round_no = {stalled}$$),
    ($$DELETE FROM quorate_store.round$$),
    ($$WITH gone AS (DELETE FROM quorate_store.round WHERE round_no = {settled} RETURNING 1) DELETE FROM quorate_store.round WHERE round_no = {open}$$),
    -- Deliveries.
    ($$UPDATE quorate_store.delivery SET payload_sha256 = sha256('x') WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.delivery SET node_id = 3 WHERE round_no = {open} AND node_id = 1$$),
    ($$UPDATE quorate_store.delivery SET payload_bytes = 1 WHERE round_no = {settled}$$),
    ($$DELETE FROM quorate_store.delivery WHERE round_no = {open}$$),
    ($$DELETE FROM quorate_store.delivery WHERE round_no = {settled}$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({open}, 1, 1, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({open}, 1, 1, sha256('x')) ON CONFLICT (round_no, node_id)
        DO UPDATE SET payload_sha256 = EXCLUDED.payload_sha256$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({open}, 3, 1, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({half}, 2, 1, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({open}, 3, 1, sha256('x')), ({half}, 2, 1, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES (4711, 1, 1, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({bare}, 1, 0, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({bare}, 1, 16777217, sha256('x'))$$),
    ($$INSERT INTO quorate_store.delivery (round_no, node_id, payload_bytes, payload_sha256) VALUES ({bare}, 1, 1, 'short')$$),
    -- Envelopes.
    ($$UPDATE quorate_store.envelope SET payload = 'evil' WHERE round_no = {open}$$),
    ($$DELETE FROM quorate_store.envelope WHERE round_no = {open} AND node_id = 2$$),
    ($$DELETE FROM quorate_store.envelope WHERE round_no = {open}$$),
    ($$INSERT INTO quorate_store.envelope (round_no, node_id, payload) VALUES ({open}, 1, 'share 1')$$),
    ($$INSERT INTO quorate_store.envelope (round_no, node_id, payload) VALUES ({open}, 3, 'share 3')$$),
    ($$INSERT INTO quorate_store.envelope (round_no, node_id, payload) VALUES ({settled}, 1, 'share 1')$$),
    ($$INSERT INTO quorate_store.envelope (round_no, node_id, payload) VALUES (4711, 1, 'share 1')$$),
    -- Attempts.
    ($$UPDATE quorate_store.attempt SET outcome = 'timeout' WHERE round_no = {open} AND node_id = 1$$),
    ($$UPDATE quorate_store.attempt SET outcome = NULL, finished_at = NULL WHERE round_no = {open} AND node_id = 1$$),
    ($$UPDATE quorate_store.attempt SET owner = 99 WHERE round_no = {open} AND node_id = 1$$),
    ($$UPDATE quorate_store.attempt SET attempt = 2 WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET node_id = 4 WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET route = 'backup' WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET reserved_at = reserved_at - interval '1 s' WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET resends = resends - 1 WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET http_status = 99 WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET http_status = 1000 WHERE round_no = {open} AND node_id = 2$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at, resends) VALUES ({open}, 2, 'primary', 2, 1, clock_timestamp(), -1)$$),
    ($$UPDATE quorate_store.attempt SET outcome = 'timeout' WHERE round_no = {open} AND node_id = 2$$),
    ($$UPDATE quorate_store.attempt SET finished_at = clock_timestamp() WHERE round_no = {open} AND node_id = 2$$),
    ($$DELETE FROM quorate_store.attempt WHERE round_no = {open}$$),
    ($$DELETE FROM quorate_store.attempt WHERE round_no = {settled}$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({open}, 2, 'primary', 1, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({open}, 2, 'primary', 5, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({open}, 2, 'primary', 0, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({open}, 3, 'primary', 1, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({open}, 4, 'backup', 1, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({open}, 2, 'primary', 2, 1, 'infinity')$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({complete}, 3, 'primary', 1, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({stalled}, 2, 'primary', 1, 1, clock_timestamp() - interval '55 s')$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({cancelled}, 1, 'primary', 1, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES ({settled}, 1, 'primary', 2, 1, clock_timestamp())$$),
    ($$INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES (4711, 1, 'primary', 1, 1, clock_timestamp())$$),
    -- Keys.
    ($$DELETE FROM quorate_store.node_key$$),
    ($$DELETE FROM quorate_store.node_key WHERE key = pg_temp.k(1)$$),
    ($$UPDATE quorate_store.node_key SET key = pg_temp.k(9) WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET node_id = 2 WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET key_no = DEFAULT WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET valid_from = valid_from - interval '1 s' WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET added_at = added_at - interval '1 s' WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET valid_until = valid_from - interval '1 s' WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET valid_until = 'infinity' WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_key SET valid_until = NULL WHERE key = pg_temp.k(1)$$),
    ($$UPDATE quorate_store.node_key SET valid_until = valid_until + interval '2 h' WHERE key = pg_temp.k(1)$$),
    ($$UPDATE quorate_store.node_key SET valid_until = now() - interval '1 s' WHERE key = pg_temp.key() AND node_id = 3$$),
    ($$UPDATE quorate_store.node_key SET revoked_at = NULL WHERE key = pg_temp.k(2)$$),
    ($$UPDATE quorate_store.node_key SET revoked_at = revoked_at + interval '1 h' WHERE key = pg_temp.k(2)$$),
    ($$UPDATE quorate_store.node_key SET valid_until = now() WHERE key = pg_temp.k(2)$$),
    ($$INSERT INTO quorate_store.node_key (node_id, key, valid_from) VALUES (3, pg_temp.k(2), now() + interval '1 h')$$),
    ($$INSERT INTO quorate_store.node_key (node_id, key, valid_from) VALUES (3, 'whsk_' || repeat('A', 43) || '=', now())$$),
    ($$INSERT INTO quorate_store.node_key (node_id, key, valid_from) SELECT node_id, key, valid_from FROM quorate_store.node_key WHERE key = pg_temp.k(3)$$),
    ($$UPDATE quorate_store.node_version SET other_keys = ARRAY[pg_temp.k(9)] WHERE node_id = 1$$),
    ($$INSERT INTO quorate_store.node_version (node_id, url, receipt_key, other_keys) VALUES (1, 'http://n/', 'whid_0123456789abcdef', ARRAY[pg_temp.k(9)])$$),
    ($$INSERT INTO quorate_store.node_version (node_id, url, receipt_key, other_keys) VALUES (1, 'http://n/', pg_temp.key(), ARRAY['whid_0123456789abcdef'])$$),
    ($$INSERT INTO quorate_store.node_version (node_id, url, receipt_key, other_keys) VALUES (1, 'http://n/', pg_temp.key(), ARRAY[pg_temp.k(9), NULL])$$),
    ($$INSERT INTO quorate_store.node_version (node_id, url, receipt_key, other_keys) SELECT 1, 'http://n/', pg_temp.key(), array_agg(pg_temp.k(i)) FROM generate_series(1, 8) i$$),
    ($$UPDATE quorate_store.node SET keys_until = 'infinity'$$),
    -- Acks.
    ($$UPDATE quorate_store.ack SET key_no = 2 WHERE round_no = {open}$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt, key_no) VALUES ({open}, 2, 'primary', 1, clock_timestamp(), false, pg_temp.receipt(2), 2)$$),
    ($$UPDATE quorate_store.ack SET late = true WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.ack SET receipt = pg_temp.receipt(9) WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.ack SET node_id = 2 WHERE round_no = {open}$$),
    ($$UPDATE quorate_store.ack SET acked_at = acked_at WHERE round_no = {open}$$),
    ($$DELETE FROM quorate_store.ack WHERE round_no = {open}$$),
    ($$DELETE FROM quorate_store.ack WHERE round_no = {complete} AND node_id = 1$$),
    ($$DELETE FROM quorate_store.ack WHERE round_no = {settled}$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 1, 'primary', 1, clock_timestamp(), false, pg_temp.receipt(1))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 1, 'primary', 1, clock_timestamp(), false, pg_temp.receipt(1))
        ON CONFLICT (round_no, node_id) DO UPDATE SET receipt = EXCLUDED.receipt$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 2, 'primary', 2, clock_timestamp(), false, pg_temp.receipt(2))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 2, 'backup', 1, clock_timestamp(), false, pg_temp.receipt(2))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 3, 'primary', 1, clock_timestamp(), false, pg_temp.receipt(3))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 2, 'primary', 1, 'infinity', false, pg_temp.receipt(2))$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES ({open}, 2, 'primary', 1, clock_timestamp(), false, 'short')$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) SELECT {stalled}, 2, 'primary', 1, opened_at, false, pg_temp.receipt(2)
        FROM quorate_store.round WHERE round_no = {stalled}$$),
    ($$INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) VALUES (4711, 1, 'primary', 1, clock_timestamp(), true, pg_temp.receipt(1))$$),
    -- Rejections.
    ($$UPDATE quorate_store.rejection SET verdict = 'round_closed'$$),
    ($$UPDATE quorate_store.rejection SET rejected_for = 'somebody'$$),
    ($$DELETE FROM quorate_store.rejection$$),
    ($$INSERT INTO quorate_store.rejection (round_id, node_id, nonce, verdict) VALUES ('open', 1, 1, 'accepted')$$),
    ($$INSERT INTO quorate_store.rejection (round_id, node_id, nonce, verdict) VALUES ('open', 1, 1, 'duplicate')$$);
-- Out of a terminal state, each into every other one that it may not become, with whatever the new state would want.
INSERT INTO hostile (sql)
SELECT format('UPDATE quorate_store.round SET state = %L, closed_at = %s, quorum_nodes = %s, dead_lettered_at = %s, collected_at = NULL WHERE round_no = {%s}', new,
              CASE WHEN new = 'open' THEN 'NULL' ELSE 'closed_at' END,
              CASE WHEN new IN ('complete', 'dead_lettered') THEN $$COALESCE(quorum_nodes, '{1,2}')$$ ELSE 'NULL' END,
              CASE WHEN new = 'dead_lettered' THEN 'clock_timestamp()' ELSE 'NULL' END, old)
  FROM unnest(ARRAY['stalled', 'complete', 'cancelled', 'dead', 'settled']) old, unnest(enum_range(NULL::quorate_store.round_state)) new
 WHERE new::text NOT IN (CASE old WHEN 'dead' THEN 'dead_lettered' WHEN 'settled' THEN 'complete' ELSE old END)
   AND (old, new::text) NOT IN (('complete', 'dead_lettered'), ('settled', 'dead_lettered'));
-- Rounds that would be born wrong, each with a ledger entry of its own.
CREATE FUNCTION pg_temp.birth(p_columns text, p_values text) RETURNS text LANGUAGE sql AS $$
    SELECT format('WITH l AS (INSERT INTO quorate_store.ledger (round_id, nonce) VALUES (''born'', 4711) RETURNING round_no)
        INSERT INTO quorate_store.round (round_no, opened_at, per_share_timeout, after_quorum, %s)
        SELECT round_no, now(), ''1 s'', ''continue'', %s FROM l', p_columns, p_values)
$$;
INSERT INTO hostile (sql)
SELECT pg_temp.birth('escalate_at, deadline_at, base_backoff, max_backoff, quorum, retry_budget, node_ids, node_versions' || columns,
    format('now() + %L::interval, now() + %L::interval, %L, %L, %s, %s, %L, %L', escalate, deadline, base, max, quorum, budget, nodes, versions) || more)
  FROM (VALUES ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', state, closed_at, close_reason', ', ''cancelled'', now(), ''why'''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', state, closed_at, quorum_nodes', ', ''complete'', now(), ''{1}'''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', quorum_nodes', ', ''{1}'''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', settled_at', ', now()'),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', collected_at', ', now()'),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', escalated_at', ', now() + interval ''1 s'''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', ', fresh_until', ', now() + interval ''1 s'''),
               ('1 s', '2 s', '1 ms', '1 ms', 2, 1, '{1}', '{1}', '', ''),
               ('1 s', '2 s', '1 ms', '1 ms', 0, 1, '{1}', '{1}', '', ''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 0, '{1}', '{1}', '', ''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 101, '{1}', '{1}', '', ''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{}', '{}', '', ''),
               ('1 s', '2 s', '1 ms', '1 ms', 1, 1, '{1,2}', '{1}', '', ''),
               ('1 s', '2 s', '2 ms', '1 ms', 1, 1, '{1}', '{1}', '', ''),
               ('1 s', '2 s', '0 s', '1 ms', 1, 1, '{1}', '{1}', '', ''),
               ('1 s', '0 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', '', ''),
               ('3 s', '2 s', '1 ms', '1 ms', 1, 1, '{1}', '{1}', '', ''))
       b (escalate, deadline, base, max, quorum, budget, nodes, versions, columns, more);

DO $$
DECLARE
    v_round record;
BEGIN
    FOR v_round IN SELECT * FROM quorate_store.ledger LOOP
        UPDATE hostile SET sql = replace(sql, '{' || v_round.round_id || '}', v_round.round_no::text);
    END LOOP;
END $$;

CREATE FUNCTION pg_temp.sqlstate_of(p_sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE p_sql;
    RAISE EXCEPTION USING ERRCODE = 'ZZ000'; -- so that what was let through is undone
EXCEPTION WHEN OTHERS THEN
    RETURN CASE SQLSTATE WHEN 'ZZ000' THEN 'accepted' ELSE SQLSTATE END;
END $$;
CREATE FUNCTION pg_temp.facts() RETURNS text LANGUAGE sql AS $$
    SELECT md5(string_agg(f, '|' ORDER BY f)) FROM (
        SELECT 'l' || l::text FROM quorate_store.ledger l UNION ALL SELECT 'r' || r::text FROM quorate_store.round r
        UNION ALL SELECT 'd' || d::text FROM quorate_store.delivery d UNION ALL SELECT 'e' || e::text FROM quorate_store.envelope e
        UNION ALL SELECT 'a' || a::text FROM quorate_store.attempt a UNION ALL SELECT 'k' || k::text FROM quorate_store.ack k
        UNION ALL SELECT 'j' || j::text FROM quorate_store.rejection j UNION ALL SELECT 'v' || v::text FROM quorate_store.node_version v
        UNION ALL SELECT 'y' || y::text FROM quorate_store.node_key y) x (f)
$$;
SELECT pg_temp.facts() AS facts \gset
SELECT ok(state LIKE '23%', format('%s: %s', state, regexp_replace(h.sql, '\s+', ' ', 'g')))
  FROM hostile h CROSS JOIN LATERAL (SELECT pg_temp.sqlstate_of(h.sql) OFFSET 0) s (state) ORDER BY h.i;
SELECT is(pg_temp.facts(), :'facts', 'no fact has changed');

-- session_replication_role = replica switches ordinary triggers off. (Foreign keys are such triggers: what they guard is left out.)

SET LOCAL session_replication_role = replica;
SELECT is((SELECT count(*)::int FROM hostile h WHERE pg_temp.sqlstate_of(h.sql) NOT LIKE '23%'), 0, 'all the same with session_replication_role = replica');
SELECT is(pg_temp.facts(), :'facts', 'no fact has changed');
SET LOCAL session_replication_role = origin;

SELECT throws_ok($$ INSERT INTO quorate_store.deployment (deployment_id) VALUES ('a b') $$, '23514', NULL, 'a deployment id is well-formed');

-- In bulk: COPY goes through the same triggers.

CREATE FUNCTION pg_temp.copy_ack() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('COPY quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt) FROM PROGRAM %L',
        format($x$printf '%s\t3\tprimary\t1\t%s\tf\t\\\\x%s\n'$x$, pg_temp.no('complete'), now(), encode(pg_temp.receipt(3), 'hex')));
END $$;
SELECT throws_ok('SELECT pg_temp.copy_ack()', '23000', NULL, 'COPY of an ack without an attempt');

-- MERGE as well.

SELECT throws_ok(format($$ MERGE INTO quorate_store.ack a USING (SELECT %s AS no) x ON a.round_no = x.no AND a.node_id = 1 WHEN MATCHED THEN DELETE $$, pg_temp.no('open')),
                 '23000', NULL, 'MERGE that deletes an ack');
SELECT throws_ok(format($$ MERGE INTO quorate_store.round r USING (SELECT %s AS no) x ON r.round_no = x.no WHEN MATCHED THEN UPDATE SET quorum = 1 $$, pg_temp.no('open')),
                 '23000', NULL, 'MERGE that lowers a quorum');

-- A pruned round is not born again.

SELECT quorate.prune_rounds('infinity') \gset
SELECT is(pg_temp.state('settled'), NULL, 'a round was pruned');
SELECT isnt(pg_temp.sqlstate_of($$ INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, per_share_timeout, base_backoff, max_backoff,
                                     after_quorum, quorum, retry_budget, node_ids, node_versions)
    SELECT pg_temp.no('settled'), now(), now(), now() + interval '1 h', '1 s', '1 ms', '1 ms', 'continue', 1, 1, '{1}', '{1}' $$), 'accepted',
    'its number is not used again');

-- And what a correct coordinator does still goes.

SELECT is(pg_temp.sqlstate_of(h), 'accepted', regexp_replace(left(h, 100), '\s+', ' ', 'g'))
  FROM unnest(ARRAY[
    format($$ SELECT pg_temp.record(%s, 'open', 2, 'ack') $$, :me),
    format($$ INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at) VALUES (%s, 2, 'primary', 2, %s, clock_timestamp()) $$, pg_temp.no('open'), :me),
    format($$ DELETE FROM quorate_store.envelope WHERE round_no = %s AND node_id = 1 $$, pg_temp.no('open')),
    format($$ DELETE FROM quorate_store.envelope WHERE round_no = %s $$, pg_temp.no('cancelled')),
    format($$ UPDATE quorate_store.round SET collected_at = clock_timestamp() WHERE round_no = %s $$, pg_temp.no('complete'))]) h;

SELECT * FROM finish();
ROLLBACK;
