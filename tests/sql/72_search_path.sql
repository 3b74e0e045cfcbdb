-- Nothing that a caller puts into his session changes what the functions do: search_path, temporary objects, settings.

BEGIN;
\ir common/helpers.sql
SELECT plan(16);

SELECT pg_temp.nodes(1, 2) \gset
SELECT pg_temp.join_as('one') AS me \gset
CREATE ROLE quorate_test_caller;
GRANT USAGE ON SCHEMA quorate TO quorate_test_caller;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA quorate TO quorate_test_caller;
GRANT SELECT ON ALL TABLES IN SCHEMA quorate TO quorate_test_caller;
DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO quorate_test_caller', current_database()); END $$;

SET SESSION AUTHORIZATION quorate_test_caller;
-- Names that the functions use, each with another meaning.
CREATE TEMP TABLE round (round_no bigint, state text);
CREATE TEMP TABLE ledger (round_id text, nonce bigint, round_no bigint);
CREATE TEMP TABLE deployment (max_envelope_bytes int);
CREATE TYPE pg_temp.interval AS (x int);
CREATE TYPE pg_temp.verdict AS ENUM ('accepted');
CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT 'stolen'::bytea $$;
CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$;
CREATE FUNCTION pg_temp.cardinality(anyarray) RETURNS int LANGUAGE sql AS $$ SELECT 0 $$;
CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT 1 / 0 $$;
CREATE FUNCTION pg_temp.equals(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE OPERATOR pg_temp.<> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = pg_temp.equals);
SET search_path = pg_temp, pg_catalog, public;
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'sql_standard';
SET bytea_output = 'escape';
SET timezone = 'Pacific/Kiritimati';
SET enable_indexscan = off;
SET default_transaction_isolation = 'serializable';

SELECT nonce AS nonce FROM quorate.open_round('r', 1, '{1,2}', round_deadline => '1 h', freshness => '2 h') \gset
SELECT is(state, 'open', 'a round is opened') FROM quorate.rounds WHERE round_id = 'r';
SELECT is(deadline_at - opened_at, pg_catalog.interval '1 h', 'with the deadline asked for') FROM quorate.rounds WHERE round_id = 'r';
SELECT is(verdict, 'accepted', 'an envelope is accepted') FROM quorate.distribute('r', :nonce, '{1}', '{one}');
SELECT is(payload_sha256, pg_catalog.sha256('one'), 'with its true digest') FROM quorate.deliveries WHERE round_id = 'r';
SELECT is(verdict, 'conflict', 'other bytes are a conflict') FROM quorate.distribute('r', :nonce, '{1}', '{two}');
SELECT is(verdict, 'stale_nonce', 'another nonce is stale') FROM quorate.distribute('r', (:nonce - 1)::bigint, '{1}', '{one}');
SELECT is(quorate.collect('r'), NULL, 'it is open, not past its deadline');
SELECT is(quorate.settle_round('r'), 'open', 'nor due');
SELECT throws_ok($$ SELECT quorate.open_round('bad', 1, '{1}', max_backoff => '3 s') $$, 'QR007', NULL, 'a policy is judged as ever');
SELECT is(quorate.cancel_round('r', 'why'), true, 'it is cancelled');
SELECT throws_ok($$ SELECT quorate.collect('r') $$, 'QR004', NULL, 'and so collect says');
SELECT is(rejected_for, 'quorate_test_caller', 'rejections are for the session user') FROM quorate.rejections LIMIT 1;
SELECT throws_ok($$ SELECT quorate_worker.claim(1, 1, 1000000, '{}') $$, '42501', NULL, 'a dealer is no coordinator');
SELECT throws_ok($$ DELETE FROM quorate.rejections $$, '42501', NULL, 'and writes no view');

RESET SESSION AUTHORIZATION;
RESET search_path;
SELECT is((SELECT count(*)::int FROM quorate_store.round), 1, 'the round stands in the real table');
SELECT is((SELECT count(*)::int FROM quorate_store.rejection), 2, 'and so do the rejections');

SELECT * FROM finish();
ROLLBACK;
