-- Nodes with a symmetric secret: the database knows its id only, keeps receipts of the kind that belongs to it, and shows which they are.

BEGIN;
\ir common/helpers.sql
SELECT plan(29);

-- 32 bytes that stand for a receipt by a secret.
CREATE FUNCTION pg_temp.mac(p_node int) RETURNS bytea LANGUAGE sql AS
    $$ SELECT sha256(p_node::text::bytea) $$;
-- Records an ack with this receipt.
CREATE FUNCTION pg_temp.ack_with(p_instance int, p_round_id text, p_node int, p_receipt bytea) RETURNS text LANGUAGE sql AS $$
    SELECT state FROM quorate_worker.record(p_instance, true, ARRAY[pg_temp.no(p_round_id)], ARRAY[p_node]::smallint[], '{primary}', '{1}', '{ack}',
                                            '{200}', ARRAY[NULL::bigint], ARRAY[p_receipt])
$$;

-- Either form is taken, and nothing near it.

SELECT pg_temp.nodes(1, 1) \gset
SELECT lives_ok($$ SELECT quorate.add_node(2, 'http://n2.test/', 'whid_0123456789abcdef') $$, 'the id of a secret in place of a key');
SELECT is(receipt_key, 'whid_0123456789abcdef', 'it stands where the key stands') FROM quorate.nodes WHERE node_id = 2;
SELECT throws_ok(format('SELECT quorate.add_node(9, ''http://n/'', %L)', key), 'QR007', NULL, 'key ' || replace(left(key, 60), E'\n', '\n'))
  FROM unnest(ARRAY['whid_', 'whid_0123456789abcde', 'whid_0123456789abcdef0', 'whid_0123456789ABCDEF', 'whid_0123456789abcdeg', ' whid_0123456789abcdef',
                    E'whid_0123456789abcdef\n', 'whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=']) key;
SELECT ok(pg_temp.error_of($$ SELECT quorate.add_node(9, 'http://n/', 'whsec_0123456789') $$, 'MESSAGE') !~ '0123',
          'a key that was refused is not repeated: it may be the secret');
SELECT ok(pg_temp.error_of($$ SELECT quorate.add_node(9, 'http://n/', 'whid_') $$, 'HINT') ~ 'whpk_.*whid_', 'the hint names both forms');
SELECT throws_ok($$ INSERT INTO quorate_store.node_version (node_id, url, receipt_key) VALUES (2, 'http://n/', 'whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=') $$,
                 '23514', NULL, 'the table takes no secret either');
SELECT throws_ok($$ INSERT INTO quorate_store.node_version (node_id, url, receipt_key) VALUES (2, 'http://n/', 'whid_0123456789abcdeF') $$,
                 '23514', NULL, 'nor an id in other digits');

-- Receipts are of the kind of their node's key.

SELECT pg_temp.join_as('one') AS me \gset
SELECT pg_temp.submit('r', 2, '{1,2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT throws_ok(format($$ SELECT pg_temp.ack_with(%s, 'r', 2, pg_temp.receipt(2)) $$, :me), '23000', NULL, 'no 64 bytes from a node with a secret');
SELECT throws_ok(format($$ SELECT pg_temp.ack_with(%s, 'r', 1, pg_temp.mac(1)) $$, :me), '23000', NULL, 'no 32 bytes from a node with a key');
SELECT throws_ok(format($$ SELECT pg_temp.ack_with(%s, 'r', 2, substr(pg_temp.mac(2), 2)) $$, :me), '23000', NULL, 'nor 31 from one with a secret');
SELECT throws_ok(format($$ SELECT pg_temp.ack_with(%s, 'r', 2, '') $$, :me), '23000', NULL, 'nor none');
SELECT is(acked, 0, 'nothing of this counted') FROM quorate.rounds WHERE round_id = 'r';
-- A round keeps the kind of key that its node had when it was opened.
SELECT quorate.add_node(2, 'http://n2.test/', pg_temp.other_key()) \gset
SELECT throws_ok(format($$ SELECT pg_temp.ack_with(%s, 'r', 2, pg_temp.receipt(2)) $$, :me), '23000', NULL, 'a later key does not change an open round');
SELECT is(pg_temp.ack_with(:me, 'r', 2, pg_temp.mac(2)), 'open', '32 bytes from a node with a secret');
SELECT is(pg_temp.ack_with(:me, 'r', 1, pg_temp.receipt(1)), 'complete', '64 bytes from one with a key');

-- What auditors and collectors see.

SELECT results_eq($$ SELECT node_id, receipt, receipt_key, third_party FROM quorate.acks WHERE round_id = 'r' ORDER BY node_id $$,
    $$ VALUES (1, 'v1a,' || translate(encode(pg_temp.receipt(1), 'base64'), E'\n', ''), pg_temp.key(), true),
              (2, 'v1,' || encode(pg_temp.mac(2), 'base64'), 'whid_0123456789abcdef', false) $$,
    'acks: each receipt as its node sent it, and whether it convinces a third party');
SELECT results_eq($$ SELECT node_id, receipt FROM quorate.collected('r') $$, $$ SELECT node_id, receipt FROM quorate.acks WHERE round_id = 'r' ORDER BY node_id $$,
                  'collected shows the same receipts');
SELECT matches(obj_description('quorate.acks'::regclass), 'third_party: whether it convinces a third party', 'the view''s comment says what the column means');
SELECT results_eq($$ SELECT receipt_key FROM quorate_worker.node_versions(ARRAY(SELECT version FROM quorate_store.node_version WHERE node_id = 2 ORDER BY version)) ORDER BY version $$,
                  $$ VALUES ('whid_0123456789abcdef'), (pg_temp.other_key()) $$, 'coordinators are told the id with the version');
-- Back to a secret, another one: a version of its own.
SELECT quorate.add_node(2, 'http://n2.test/', 'whid_fedcba9876543210') \gset
SELECT pg_temp.submit('s', 1, '{2}') \gset
SELECT pg_temp.claim_all(:me) \gset
SELECT is(pg_temp.ack_with(:me, 's', 2, pg_temp.mac(3)), 'complete', 'the next round has the new secret');
SELECT is(receipt_key, 'whid_fedcba9876543210', 'and its receipt is shown with its id') FROM quorate.acks WHERE round_id = 's';
SELECT is(receipt_key, 'whid_0123456789abcdef', 'the former receipt with the former one') FROM quorate.acks WHERE round_id = 'r' AND node_id = 2;

SELECT * FROM finish();
ROLLBACK;
