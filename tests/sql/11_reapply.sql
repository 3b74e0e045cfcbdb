-- Applying sql/ again: functions are replaced in place, grants stay, overloads go, facts and views are untouched.

BEGIN;
\ir common/helpers.sql
SELECT plan(18);

SELECT pg_temp.nodes(1, 3) \gset
SELECT pg_temp.submit('kept', 2, '{1,2,3}') \gset

CREATE ROLE "Quorate Test-dealer";
CREATE ROLE quorate_test_auditor;
CREATE ROLE quorate_test_sender;
GRANT USAGE ON SCHEMA quorate TO "Quorate Test-dealer";
GRANT EXECUTE ON FUNCTION quorate.collect(text, int) TO "Quorate Test-dealer";
GRANT EXECUTE ON FUNCTION quorate.settle_round(text) TO "Quorate Test-dealer" WITH GRANT OPTION;
GRANT SELECT ON quorate.rounds TO quorate_test_auditor;
-- Signatures of an older version, which knew no sealing keys.
GRANT EXECUTE ON FUNCTION quorate.distribute(text, bigint, int[], bytea[]) TO quorate_test_sender;
DROP FUNCTION quorate.seal_keys(text);
DROP FUNCTION quorate.cancel_round(text, text);
CREATE FUNCTION quorate.cancel_round(round_id text, reason text, hard int) RETURNS int LANGUAGE sql AS 'SELECT 1';
GRANT EXECUTE ON FUNCTION quorate.cancel_round(text, text, int) TO "Quorate Test-dealer";
GRANT EXECUTE ON FUNCTION quorate.cancel_round(text, text, int) TO PUBLIC;

-- What quorate's own roles may do is not for others to decide.
GRANT EXECUTE ON FUNCTION quorate.prune_rounds(timestamptz, int) TO quorate_dealer WITH GRANT OPTION;
SET ROLE quorate_dealer;
GRANT EXECUTE ON FUNCTION quorate.prune_rounds(timestamptz, int) TO "Quorate Test-dealer";
RESET ROLE;
GRANT SELECT ON quorate_store.envelope TO quorate_auditor;
GRANT SELECT (nonce) ON quorate.rounds TO quorate_collector;
GRANT USAGE ON SCHEMA quorate_store TO quorate_auditor, PUBLIC;
GRANT USAGE ON TYPE quorate_store.work TO PUBLIC;
GRANT SELECT ON quorate_store.ack, quorate.acks TO PUBLIC;
GRANT SELECT ON quorate_store.ack TO quorate_test_auditor;
REVOKE EXECUTE ON FUNCTION quorate.open_round FROM quorate_dealer;
REVOKE SELECT ON quorate.rounds FROM quorate_auditor;
REVOKE USAGE ON SCHEMA quorate_worker FROM quorate_coordinator;
ALTER ROLE quorate_admin RENAME TO quorate_test_gone;

CREATE TEMP TABLE before AS SELECT p.oid, p.proname FROM pg_proc p WHERE p.pronamespace = 'quorate'::regnamespace;

\ir ../../sql/00_begin.sql
\ir ../../sql/10_internal.sql
\ir ../../sql/15_views.sql
\ir ../../sql/20_nodes.sql
\ir ../../sql/21_node_keys.sql
\ir ../../sql/30_open.sql
\ir ../../sql/31_distribute.sql
\ir ../../sql/32_submit.sql
\ir ../../sql/40_collect.sql
\ir ../../sql/50_worker_life.sql
\ir ../../sql/51_worker_claim.sql
\ir ../../sql/52_worker_deliver.sql
\ir ../../sql/53_worker_durability.sql
\ir ../../sql/60_history.sql
\ir ../../sql/61_audit.sql
\ir ../../sql/90_grants.sql
\ir ../../sql/95_roles.sql
\ir ../../sql/99_end.sql

SELECT is_empty($$ SELECT b.proname FROM before b WHERE b.proname <> 'cancel_round' AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.oid = b.oid) $$,
                'functions that are there are replaced in place: calls under way go on');
SELECT results_eq(
    $$ SELECT pg_get_function_identity_arguments(p.oid) FROM pg_proc p
        WHERE p.pronamespace = 'quorate'::regnamespace AND p.proname = 'cancel_round' $$,
    $$ VALUES ('round_id text, reason text') $$, 'the older signature is gone: no overload');
SELECT ok(has_function_privilege('Quorate Test-dealer', 'quorate.collect(text, int)', 'EXECUTE'), 'a grant is still there');
SELECT ok(has_function_privilege('Quorate Test-dealer', 'quorate.settle_round(text)', 'EXECUTE WITH GRANT OPTION'),
          'a grant option is still there');
SELECT ok(has_function_privilege('Quorate Test-dealer', 'quorate.cancel_round(text, text)', 'EXECUTE'),
          'a grant goes over to the new signature');
SELECT ok(has_function_privilege('quorate_test_sender', 'quorate.seal_keys(text)', 'EXECUTE')
          AND NOT has_function_privilege('Quorate Test-dealer', 'quorate.seal_keys(text)', 'EXECUTE'),
          'whoever could distribute may ask for the keys to seal with, and nobody else');
SELECT ok(NOT has_function_privilege('Quorate Test-dealer', 'quorate.distribute(text, bigint, int[], bytea[])', 'EXECUTE'),
          'nothing else is granted');
SELECT ok(NOT has_function_privilege('quorate_test_auditor', 'quorate.cancel_round(text, text)', 'EXECUTE'),
          'what PUBLIC had is not given back');
SELECT ok(has_table_privilege('quorate_test_auditor', 'quorate.rounds', 'SELECT'), 'the auditor still reads the view');
SELECT is_empty(
    $$ VALUES (has_function_privilege('quorate_dealer', 'quorate.prune_rounds(timestamptz, int)', 'EXECUTE'), 'function'),
              (has_table_privilege('quorate_auditor', 'quorate_store.envelope', 'SELECT'), 'table'),
              (has_column_privilege('quorate_collector', 'quorate.rounds', 'nonce', 'SELECT'), 'column'),
              (has_schema_privilege('quorate_auditor', 'quorate_store', 'USAGE'), 'schema')
       EXCEPT VALUES (false, 'function'), (false, 'table'), (false, 'column'), (false, 'schema') $$,
    'what quorate''s roles got beyond their part is gone');
SELECT is_empty(
    $$ SELECT 'schema' FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a WHERE n.nspname LIKE 'quorate%' AND a.grantee = 0
       UNION ALL SELECT 'type' FROM pg_type t CROSS JOIN LATERAL aclexplode(t.typacl) a WHERE t.oid = 'quorate_store.work'::regtype AND a.grantee = 0
       UNION ALL SELECT 'table' FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.oid IN ('quorate_store.ack'::regclass, 'quorate.acks'::regclass) AND a.grantee = 0 $$, 'and so is what PUBLIC got');
SELECT ok(has_function_privilege('quorate_dealer', 'quorate.open_round'::regproc, 'EXECUTE')
          AND has_table_privilege('quorate_auditor', 'quorate.rounds', 'SELECT') AND has_schema_privilege('quorate_coordinator', 'quorate_worker', 'USAGE'),
          'what they lost is given back');
SELECT ok(has_function_privilege('quorate_admin', 'quorate.prune_rounds(timestamptz, int)', 'EXECUTE'), 'a role that is missing is made');
SELECT ok(has_table_privilege('quorate_test_auditor', 'quorate_store.ack', 'SELECT'), 'another role keeps even what it got on a table');
SELECT ok(has_function_privilege('Quorate Test-dealer', 'quorate.prune_rounds(timestamptz, int)', 'EXECUTE'),
          'and what it got from one of quorate''s roles');
SELECT is(pg_temp.state('kept'), 'open', 'rounds are as they were');
SELECT is(quorate.cancel_round('kept', 'done'), true, 'the new functions work');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure FROM pg_proc p
        CROSS JOIN LATERAL aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
        WHERE p.pronamespace::regnamespace::text LIKE 'quorate%' AND a.grantee = 0 $$,
    'PUBLIC executes nothing');

SELECT * FROM finish();
ROLLBACK;
