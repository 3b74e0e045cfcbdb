-- ANALYZE keeps samples of columns, and those outlive the rows: none may be of a payload, nor of what the schema had before.

BEGIN;
\ir common/helpers.sql
SELECT plan(5);

SELECT pg_temp.nodes(1, 1) \gset
SELECT count(s.nonce) AS dealt FROM generate_series(1, 50) i
 CROSS JOIN LATERAL quorate.submit_round('sampled-' || i, 1, '{1}', ARRAY[sha256(i::text::bytea)], round_deadline => '1 h') s \gset
CREATE VIEW pg_temp.sampled AS
SELECT s.stadistinct, s.stavalues1::text FROM pg_statistic s JOIN pg_attribute a ON a.attrelid = s.starelid AND a.attnum = s.staattnum
 WHERE a.attrelid = 'quorate_store.envelope'::regclass AND a.attname = 'payload';

ANALYZE quorate_store.envelope;
SELECT is_empty('SELECT * FROM pg_temp.sampled', 'ANALYZE keeps no byte of a payload');
SELECT is_empty(
    $$ SELECT a.attrelid::regclass, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'quorate_store'::regnamespace AND c.relkind IN ('r', 'p') AND a.atttypid = 'bytea'::regtype
          AND a.attname ~ 'payload$' AND a.attstattarget <> 0 $$, 'and so it is with every column of payloads');

ALTER TABLE quorate_store.envelope ALTER COLUMN payload SET STATISTICS 100; -- as it was
ANALYZE quorate_store.envelope;
SELECT isnt_empty('SELECT * FROM pg_temp.sampled', 'where samples were kept before');
\ir ../../migrations/0005_no_samples.sql
SELECT is_empty('SELECT * FROM pg_temp.sampled', 'the migration erases them');
SELECT is((SELECT a.attstorage::text FROM pg_attribute a WHERE a.attrelid = 'quorate_store.envelope'::regclass AND a.attname = 'payload'), 'e',
          'and payloads are still stored uncompressed');

SELECT * FROM finish();
ROLLBACK;
