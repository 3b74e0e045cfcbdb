-- Nodes: added, changed, switched off; what is refused; versions are kept.

BEGIN;
\ir common/helpers.sql
SELECT plan(59);

SELECT lives_ok($$ SELECT quorate.add_node(1, 'http://n1.test/', pg_temp.key()) $$, 'a node without backup');
SELECT lives_ok($$ SELECT quorate.add_node(node_id => 2, url => 'https://n2.test:8443/v1/a?b=c%20d&e=(f)', receipt_key => pg_temp.key(),
                                           backup_url => 'http://[2001:db8::2]:80/') $$, 'a node with backup, by argument names');
SELECT lives_ok($$ SELECT quorate.add_node(32767, 'http://n/', pg_temp.key()) $$, 'the highest id');
SELECT results_eq(
    'SELECT * FROM quorate.nodes ORDER BY node_id',
    $$ VALUES (1, 'http://n1.test/', NULL, pg_temp.key(), true, NULL, ARRAY[pg_temp.key()]),
              (2, 'https://n2.test:8443/v1/a?b=c%20d&e=(f)', 'http://[2001:db8::2]:80/', pg_temp.key(), true, NULL, ARRAY[pg_temp.key()]),
              (32767, 'http://n/', NULL, pg_temp.key(), true, NULL, ARRAY[pg_temp.key()]) $$, 'the view shows them, enabled');

-- An existing id: replaces its URLs and makes this its current key.

SELECT lives_ok($$ SELECT quorate.add_node(2, 'http://new.test', pg_temp.other_key()) $$, 'an existing node is added again');
SELECT results_eq('SELECT url, backup_url, receipt_key, enabled FROM quorate.nodes WHERE node_id = 2',
    $$ VALUES ('http://new.test', NULL::text, pg_temp.other_key(), true) $$, 'its URLs and its key are replaced, the backup is gone');
SELECT is(count(*)::int, 2, 'its former version is kept') FROM quorate_store.node_version WHERE node_id = 2;
SELECT lives_ok($$ SELECT quorate.add_node(2, 'http://new.test', pg_temp.other_key()) $$, 'the same again');
SELECT is(count(*)::int, 2, 'makes no new version') FROM quorate_store.node_version WHERE node_id = 2;
SELECT lives_ok($$ SELECT quorate.add_node(2, 'http://new.test', pg_temp.other_key(), 'http://back.test') $$, 'only the backup changes');
SELECT is(backup_url, 'http://back.test', 'and is seen') FROM quorate.nodes WHERE node_id = 2;

-- Enabled and disabled.

SELECT lives_ok('SELECT quorate.set_node_enabled(2, false)', 'a node is disabled');
SELECT is(enabled, false, 'and the view says so') FROM quorate.nodes WHERE node_id = 2;
SELECT lives_ok($$ SELECT quorate.add_node(2, 'http://again.test', pg_temp.key()) $$, 'a disabled node gets another URL');
SELECT is(enabled, false, 'and stays disabled') FROM quorate.nodes WHERE node_id = 2;
SELECT lives_ok('SELECT quorate.set_node_enabled(2, true)', 'it is enabled again');
SELECT is(enabled, true, 'and the view says so') FROM quorate.nodes WHERE node_id = 2;
SELECT throws_ok(format('SELECT quorate.set_node_enabled(%s, true)', id), 'QR008', NULL, 'no node ' || id)
  FROM unnest(ARRAY[3, 0, -1, 32768, 2147483647]) id;
SELECT throws_ok('SELECT quorate.set_node_enabled(NULL, true)', 'QR007', NULL, 'a NULL id');
SELECT throws_ok('SELECT quorate.set_node_enabled(1, NULL)', 'QR007', NULL, 'neither on nor off');

-- Refused.

SELECT throws_ok(format('SELECT quorate.add_node(%L, ''http://n/'', pg_temp.key())', id), 'QR007', NULL, 'node id ' || COALESCE(id::text, 'NULL'))
  FROM unnest(ARRAY[NULL, 0, -1, 32768, -2147483648]) id;
SELECT throws_ok(format('SELECT quorate.add_node(9, %L, pg_temp.key())', url), 'QR007', NULL, 'url ' || COALESCE(replace(left(url, 40), E'\n', '\n'), 'NULL'))
  FROM unnest(ARRAY[NULL, '', 'n.test', 'ftp://n/', 'http://', 'http:///path', 'http://user:pw@n/', 'http://n/#part', 'http://n/a b', E'http://n/\n',
                    E'http://n\n', 'http://n:0/', 'http://n:65536/', 'http://n:99999999999999999999/', 'http://n:/', 'http://é/', 'http://n/é',
                    'http://[::1', 'http://n/' || repeat('a', 2040)]) url;
SELECT throws_ok($$ SELECT quorate.add_node(9, 'http://n/', pg_temp.key(), 'file:///etc/passwd') $$, 'QR007', NULL, 'a malformed backup URL');
SELECT throws_ok($$ SELECT quorate.add_node(9, 'http://n/', pg_temp.key(), '') $$, 'QR007', NULL, 'an empty backup URL: NULL says none');
SELECT lives_ok($$ SELECT quorate.add_node(9, 'http://n/' || repeat('a', 2039), pg_temp.key()) $$, 'a URL of 2048 characters');
SELECT throws_ok(format('SELECT quorate.add_node(9, ''http://n/'', %L)', key), 'QR007', NULL, 'key ' || COALESCE(replace(left(key, 60), E'\n', '\n'), 'NULL'))
  FROM unnest(ARRAY[NULL, '', 'whpk_', 'whsk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=', pg_temp.key() || E'\n', 'whpk_' || repeat('A', 42) || '==',
                    'whpk_' || repeat('A', 42) || 'B=']) key;
SELECT ok(pg_temp.error_of($$ SELECT quorate.add_node(9, 'http://n/', 'whsk_secretsecret') $$, 'MESSAGE') !~ 'secretsecret',
          'a key that was refused is not repeated: it may be a secret one');

SELECT * FROM finish();
ROLLBACK;
