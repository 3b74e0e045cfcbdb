-- Members of the roles try to get more than their part: other identities, other settings, objects with the names that functions use,
-- functions that look at what views read, and everything else that PostgreSQL offers to whoever may connect.

BEGIN;
\ir common/helpers.sql
SELECT plan(256);

SELECT pg_temp.nodes(1, 2, true) \gset
SELECT pg_temp.join_as('one') AS me \gset
SELECT quorate.submit_round('theirs', 1, '{1,2}', ARRAY['secret-1', 'secret-2']::bytea[], round_deadline => '1 h') \gset
SELECT pg_temp.past_round('dead', 1, '{1}', '1 min', '10 s', '20 s') \gset
SELECT pg_temp.past_acks('dead', '{1}', true) \gset
SELECT quorate.settle_round('dead') \gset
SELECT pg_temp.past_round('stalled', 1, '{1}') \gset
SELECT quorate.settle_round('stalled') \gset
SELECT count(*) FROM quorate_worker.claim(:me, 10, 10, '{}') \gset

-- A user in each role, with a schema of its own and temporary objects: more than they need be given.
CREATE ROLE quorate_test_owner;
DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY '{dealer,collector,coordinator,auditor,admin}'::text[] LOOP
        EXECUTE format('CREATE ROLE quorate_test_%1$s LOGIN IN ROLE quorate_%1$s', v_role);
        EXECUTE format('CREATE SCHEMA quorate_test_%1$s AUTHORIZATION quorate_test_%1$s', v_role);
        EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO quorate_test_%s', current_database(), v_role);
    END LOOP;
END $$;
GRANT USAGE ON SCHEMA public TO PUBLIC;

-- Statements that no role may run, each with the SQLSTATE that refuses it.
CREATE TEMP TABLE attack (state text, sql text);
INSERT INTO attack VALUES
    ('42501', 'SELECT * FROM quorate_store.envelope'),
    ('42501', 'SELECT count(*) FROM quorate_store.ack'),
    ('42501', 'INSERT INTO quorate_store.ledger (round_id, nonce) VALUES (''x'', 1)'),
    ('42501', 'UPDATE quorate_store.round SET quorum = 1'),
    ('42501', 'DELETE FROM quorate_store.repeatable'),
    ('42501', 'TRUNCATE quorate_store.envelope'),
    ('42501', 'LOCK TABLE quorate_store.round'),
    ('42501', 'SELECT nextval(''quorate_store.ledger_round_no_seq'')'),
    ('42501', 'EXPLAIN (ANALYZE, VERBOSE) SELECT payload FROM quorate_store.envelope'),
    ('42501', 'DO $x$ BEGIN PERFORM payload FROM quorate_store.envelope; END $x$'),
    ('42501', 'COPY quorate_store.envelope TO ''/tmp/quorate-stolen'''),
    ('42501', 'COPY (SELECT 1) TO PROGRAM ''cat'''),
    ('42501', 'SELECT pg_read_binary_file(''postgresql.conf'')'),
    ('42501', 'SELECT lo_import(''/etc/passwd'')'),
    ('42501', 'SELECT pg_ls_dir(''base'')'),
    ('42501', 'CREATE EXTENSION pageinspect'),
    ('42501', 'SELECT quorate_store.nonce_of(uuid_send(gen_random_uuid()))'),
    ('42501', 'SELECT quorate_store.end_due(1)'),
    ('42501', 'SET ROLE quorate_test_owner'),
    ('42501', 'SET session_replication_role = replica'),
    ('42501', 'SET plpgsql.variable_conflict = use_column'),
    ('42501', 'ALTER ROLE quorate_admin LOGIN'),
    ('42501', 'GRANT quorate_admin TO CURRENT_USER'),
    ('42501', 'GRANT quorate_coordinator TO CURRENT_USER'),
    ('42501', 'CREATE FUNCTION quorate.extra() RETURNS int LANGUAGE sql AS ''SELECT 1'''),
    ('42501', 'CREATE TABLE quorate_store.extra (x int)'),
    ('42501', 'CREATE OPERATOR CLASS quorate_store.extra FOR TYPE int USING btree AS FUNCTION 1 btint4cmp(int, int)'),
    ('42501', 'DROP FUNCTION quorate.collect(text, int)'),
    ('42501', 'CREATE OR REPLACE VIEW quorate.nodes AS SELECT 1 AS node_id'),
    ('42501', 'ALTER VIEW quorate.rounds SET (security_invoker = true)'),
    ('42501', 'CREATE RULE spy AS ON INSERT TO quorate_store.envelope DO ALSO SELECT 1'),
    ('42501', 'CREATE TRIGGER spy BEFORE INSERT ON quorate_store.envelope FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()'),
    ('42501', 'ALTER TABLE quorate_store.envelope DISABLE TRIGGER ALL'),
    ('42501', 'CREATE POLICY spy ON quorate_store.envelope'),
    ('42501', 'CREATE STATISTICS quorate_store.spy ON round_no, node_id FROM quorate_store.envelope'),
    ('42501', 'CREATE TABLE pg_temp.spy (LIKE quorate_store.envelope)'),
    ('42501', 'CREATE TABLE pg_temp.child () INHERITS (quorate_store.envelope)'),
    ('42501', 'CREATE EVENT TRIGGER spy ON ddl_command_end EXECUTE FUNCTION suppress_redundant_updates_trigger()'),
    ('42501', 'CREATE PUBLICATION spy FOR TABLE quorate_store.envelope');
GRANT SELECT ON attack TO PUBLIC;

-- Names that functions use, each with another meaning: in the schema of temporary objects, and in one that stands first in search_path.
CREATE FUNCTION pg_temp.shadow(p_schema text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I.round (round_no bigint, state text)', p_schema);
    EXECUTE format('CREATE TABLE %I.envelope (round_no bigint, node_id smallint, payload bytea)', p_schema);
    EXECUTE format('CREATE TYPE %I.interval AS (x int)', p_schema);
    EXECUTE format('CREATE DOMAIN %I.bigint AS int CHECK (false)', p_schema);
    EXECUTE format('CREATE FUNCTION %I.sha256(bytea) RETURNS bytea LANGUAGE sql AS $x$ SELECT ''stolen''::bytea $x$', p_schema);
    EXECUTE format('CREATE FUNCTION %I.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $x$ SELECT ''infinity''::timestamptz $x$', p_schema);
    EXECUTE format('CREATE FUNCTION %I.cardinality(anyarray) RETURNS int LANGUAGE sql AS $x$ SELECT 0 $x$', p_schema);
    EXECUTE format('CREATE FUNCTION %I.pg_notify(text, text) RETURNS void LANGUAGE sql AS $x$ SELECT 1 / 0 $x$', p_schema);
    EXECUTE format('CREATE FUNCTION %I.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS $x$ SELECT false $x$', p_schema);
    EXECUTE format('CREATE OPERATOR %1$I.<> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = %1$I.never)', p_schema);
    EXECUTE format('CREATE OPERATOR %1$I.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = %1$I.never)', p_schema);
    EXECUTE format('CREATE FUNCTION %I.never(text, text) RETURNS boolean LANGUAGE sql AS $x$ SELECT false $x$', p_schema);
    EXECUTE format('CREATE OPERATOR %1$I.!~ (LEFTARG = text, RIGHTARG = text, FUNCTION = %1$I.never)', p_schema);
    EXECUTE format('CREATE AGGREGATE %I.count(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = 100)', p_schema);
END $$;
CREATE FUNCTION pg_temp.attacks(p_role text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_attack record;
BEGIN
    FOR v_attack IN SELECT * FROM attack LOOP
        RETURN NEXT throws_ok(v_attack.sql, v_attack.state, NULL, p_role || ': ' || v_attack.sql);
    END LOOP;
    RETURN NEXT is_empty($q$ SELECT s.* FROM (SELECT tablename, attname FROM pg_stats WHERE schemaname LIKE 'quorate\_store') s $q$, p_role || ': no statistics');
    RETURN NEXT is_empty($q$ SELECT column_name FROM information_schema.columns WHERE table_schema IN ('quorate_store', 'quorate_worker')
                             UNION SELECT routine_name FROM information_schema.routines WHERE routine_schema LIKE 'quorate%' AND routine_name NOT LIKE 'quorate%'
                               AND routine_schema <> 'quorate' AND routine_schema <> 'quorate_worker' $q$,
                         p_role || ': information_schema shows nothing of the store');
    RETURN NEXT is_empty($q$ SELECT 1 FROM pg_largeobject_metadata $q$, p_role || ': there is no large object to read');
END $$;
CREATE FUNCTION pg_temp.strange() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL standard_conforming_strings = off;
    SET LOCAL escape_string_warning = off;
    SET LOCAL backslash_quote = on;
    SET LOCAL transform_null_equals = on;
    SET LOCAL array_nulls = off;
    SET LOCAL datestyle = 'SQL, DMY';
    SET LOCAL intervalstyle = 'sql_standard';
    SET LOCAL bytea_output = 'escape';
    SET LOCAL timezone = 'Pacific/Kiritimati';
    SET LOCAL plan_cache_mode = force_custom_plan;
    SET LOCAL enable_indexscan = off;
    SET LOCAL quote_all_identifiers = on;
    SET LOCAL xmloption = document;
    SET LOCAL row_security = off;
    SET LOCAL check_function_bodies = off;
    SET LOCAL quorate.drop_functions = on;
END $$;

SAVEPOINT untouched;

-- The dealer.
SET SESSION AUTHORIZATION quorate_test_dealer;
SELECT pg_temp.attacks('dealer');
SELECT pg_temp.shadow('quorate_test_dealer') \gset
SELECT pg_temp.shadow((SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema())) \gset
CREATE COLLATION pg_temp.nocase (provider = icu, deterministic = false, locale = 'und-u-ks-level2');
SELECT pg_temp.strange() \gset
SET LOCAL search_path = pg_temp, quorate_test_dealer, pg_catalog, public;
SELECT nonce FROM quorate.submit_round('mine', 2, '{1,2}', ARRAY['one', 'two']::bytea[], round_deadline => pg_catalog.interval '1 h') \gset
SELECT is((SELECT string_agg(verdict, ' ') FROM quorate.distribute('mine', :nonce, '{1,2}', '{one,other}')), 'duplicate conflict',
          'digests are compared as ever');
SELECT is((SELECT verdict FROM quorate.distribute('mine', (:nonce - 1)::int8, '{1}', '{one}')), 'stale_nonce', 'and nonces');
SELECT is(quorate.settle_round('mine'), 'open', 'the clock is the server''s');
SELECT throws_ok($$ SELECT quorate.open_round('no good', 1) $$, 'QR007', NULL, 'a malformed id is refused as ever');
SELECT throws_ok($$ SELECT quorate.open_round('x', NULL) $$, 'QR007', NULL, 'and NULL');
SELECT throws_ok($$ SELECT quorate.settle_round('MINE' COLLATE pg_temp.nocase) $$, '42P22', NULL, 'no collation makes one id of two');
SELECT throws_ok($$ SELECT quorate.cancel_round('THEIRS' COLLATE pg_temp.nocase, 'x') $$, '42P22', NULL, 'nor for cancel');
SELECT throws_ok($$ SELECT quorate.open_round('MINE' COLLATE pg_temp.nocase, 1) $$, '0A000', NULL, 'nor opens one');
SELECT throws_ok($$ SELECT quorate.submit_rounds(ARRAY['a', 'A'] COLLATE pg_temp.nocase, 1, '{1}', '{x,y}') $$, '0A000', NULL, 'nor many');
SELECT throws_ok($$ SELECT url FROM quorate.nodes $$, '42501', NULL, 'a dealer sees which nodes there are, not where');
SELECT throws_ok($$ SELECT n FROM quorate.nodes n $$, '42501', NULL, 'nor the whole row');
SELECT throws_ok($$ SELECT quorate.collect('mine') $$, '42501', NULL, 'a dealer does not collect');
SELECT throws_ok($$ SELECT quorate_worker.claim(1, 1, 1, '{}') $$, '42501', NULL, 'nor deliver');
SELECT throws_ok($$ SELECT quorate.add_node(3, 'http://x/', 'y') $$, '42501', NULL, 'nor add a node');
PREPARE as_dealer AS SELECT quorate.open_round('prepared', 1);
SET SESSION AUTHORIZATION DEFAULT;
SET SESSION AUTHORIZATION quorate_test_auditor;
SELECT throws_ok('EXECUTE as_dealer', '42501', NULL, 'a plan that was made for another role is of no use');
SET SESSION AUTHORIZATION DEFAULT;
RESET search_path;
SELECT is((SELECT count(*)::int FROM quorate_store.envelope WHERE payload IN ('one', 'two')), 2, 'all that went into the true tables');
ROLLBACK TO untouched;

-- The collector: what a function in WHERE is given.
SET SESSION AUTHORIZATION quorate_test_collector;
SELECT pg_temp.attacks('collector');
CREATE TEMP TABLE seen (what text);
CREATE FUNCTION quorate_test_collector.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
    $$ BEGIN INSERT INTO seen VALUES ($1); RETURN true; END $$;
SET LOCAL search_path = quorate_test_collector, pg_catalog, public;
SELECT count(*) FROM quorate.rounds WHERE quorate_test_collector.leak(round_id) \gset
SELECT set_eq('SELECT what FROM pg_temp.seen', 'SELECT round_id FROM quorate.rounds', 'a function in WHERE sees the rows and columns that are shown');
SELECT throws_ok($$ SELECT count(*) FROM quorate.rounds WHERE quorate_test_collector.leak(nonce::text) $$, '42501', NULL, 'and no other');
SELECT throws_ok($$ SELECT count(*) FROM quorate.rounds r WHERE quorate_test_collector.leak(r::text) $$, '42501', NULL, 'nor the row');
SELECT throws_ok($$ SELECT count(*) FROM quorate.rounds ORDER BY max(nonce) $$, '42501', NULL, 'nor in ORDER BY');
SELECT throws_ok($$ SELECT count(*) FROM quorate.rounds GROUP BY nonce $$, '42501', NULL, 'nor in GROUP BY');
SELECT throws_ok($$ SELECT quorate.distribute('theirs', 1, '{1}', '{x}') $$, '42501', NULL, 'a collector does not deal');
SELECT throws_ok($$ SELECT quorate.cancel_round('theirs', 'x') $$, '42501', NULL, 'nor cancel');
SELECT throws_ok($$ SELECT quorate_worker.envelopes('{1}', '{1}') $$, '42501', NULL, 'nor read envelopes');
SET SESSION AUTHORIZATION DEFAULT;
ROLLBACK TO untouched;

-- The auditor and the admin see everything but payloads.
SET SESSION AUTHORIZATION quorate_test_auditor;
SELECT pg_temp.attacks('auditor');
CREATE TEMP TABLE seen (what text);
CREATE FUNCTION quorate_test_auditor.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
    $$ BEGIN INSERT INTO seen VALUES ($1); RETURN true; END $$;
DO $$
DECLARE
    v_view text;
BEGIN
    FOREACH v_view IN ARRAY '{acks,attempts,coordinators,dead_letters,deliveries,deployment,nodes,rejections,rounds}'::text[] LOOP
        EXECUTE format('SELECT count(*) FROM quorate.%I v WHERE quorate_test_auditor.leak(v::text)', v_view);
    END LOOP;
    PERFORM count(*) FROM quorate.dead_letters WHERE quorate_test_auditor.leak(round_id);
END $$;
SELECT ok((SELECT count(*) FROM pg_temp.seen) > 8, 'functions in WHERE see the rows of all views');
SELECT is_empty($$ SELECT what FROM pg_temp.seen WHERE what ~ 'secret|736563726574' $$, 'and no payload');
SELECT is_empty($$ SELECT what FROM pg_temp.seen WHERE what ~ '^[a-z]+$' EXCEPT SELECT round_id FROM quorate.rounds $$,
                'what they see of dead letters is in rounds as well');
SELECT throws_ok(format('SELECT quorate.%s', call), '42501', NULL, 'an auditor calls nothing: ' || call)
  FROM unnest('{"collect(''dead'')","settle_round(''theirs'')","cancel_round(''theirs'', ''x'')","prune_rounds(now())"}'::text[]) call;
SELECT throws_ok(format('%s', sql), '42501', NULL, 'nor writes a view: ' || sql)
  FROM unnest('{"DELETE FROM quorate.rejections","UPDATE quorate.rejections SET nonce = 1","INSERT INTO quorate.rejections (nonce) VALUES (9)"}'::text[]) sql;
SET SESSION AUTHORIZATION DEFAULT;
ROLLBACK TO untouched;

SET SESSION AUTHORIZATION quorate_test_admin;
SELECT pg_temp.attacks('admin');
SELECT pg_temp.shadow('quorate_test_admin') \gset
SELECT pg_temp.strange() \gset
SET LOCAL search_path = quorate_test_admin, pg_catalog, public;
SELECT lives_ok($$ SELECT quorate.add_node(7, 'https://[::1]:8/x?y', 'whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=') $$, 'a URL is good as ever');
SELECT throws_ok(format('SELECT quorate.add_node(7, %L, ''whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg='')', url), 'QR007', NULL, 'and bad as ever: ' || url)
  FROM unnest('{http://u:p@x/,http://x[::1]/,file:///x,http://[::1/}'::text[]) url;
SELECT throws_ok($$ SELECT quorate.open_round('x', 1) $$, '42501', NULL, 'an admin does not deal');
SELECT throws_ok($$ SELECT quorate_worker.owned(1, 0, 1) $$, '42501', NULL, 'nor deliver');
SET SESSION AUTHORIZATION DEFAULT;
ROLLBACK TO untouched;

-- The coordinator.
SET SESSION AUTHORIZATION quorate_test_coordinator;
SELECT pg_temp.attacks('coordinator');
SELECT throws_ok(format('SELECT quorate.%s', call), '42501', NULL, 'a coordinator does no other''s part: ' || call)
  FROM unnest('{"collect(''dead'')","open_round(''x'', 1)","prune_rounds(now())","add_node(3, ''http://x/'', ''y'')"}'::text[]) call;
SELECT throws_ok($$ SELECT * FROM quorate.rounds $$, '42501', NULL, 'nor reads the views');
SET SESSION AUTHORIZATION DEFAULT;

SELECT * FROM finish();
ROLLBACK;
