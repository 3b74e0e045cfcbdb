-- Who may do what: every function, view, table, column, sequence, type and schema against every role, as the catalog has it. Whatever is
-- new must be entered here before it passes.

BEGIN;
\ir common/helpers.sql
SELECT plan(18);

CREATE TEMP TABLE roles AS SELECT r.role, 'quorate_' || r.role AS name
  FROM unnest('{dealer,collector,coordinator,auditor,admin}'::text[]) AS r (role);
CREATE TEMP TABLE schemas AS SELECT n.oid, n.nspname::text AS name FROM pg_namespace n WHERE n.nspname LIKE 'quorate%';

-- A line for each function, overloads included, with the roles that may call it. Those of quorate_store are for no role at all.
CREATE TEMP TABLE expected_function (name text, roles text[]);
INSERT INTO expected_function VALUES
    ('quorate.add_node', '{admin}'),
    ('quorate.add_node_key', '{admin}'),
    ('quorate.revoke_node_key', '{admin}'),
    ('quorate.cancel_round', '{dealer}'),
    ('quorate.collect', '{collector}'),
    ('quorate.collected', '{collector}'),
    ('quorate.distribute', '{dealer}'),
    ('quorate.history_entries', '{auditor}'),
    ('quorate.history_gaps', '{auditor}'),
    ('quorate.history_links', '{auditor}'),
    ('quorate.history_of', '{auditor}'),
    ('quorate.history_status', '{auditor}'),
    ('quorate.open_round', '{dealer}'),
    ('quorate.prune_rounds', '{admin}'),
    ('quorate.seal_keys', '{dealer}'),
    ('quorate.set_envelope_limit', '{admin}'),
    ('quorate.set_node_enabled', '{admin}'),
    ('quorate.settle_round', '{dealer,collector}'),
    ('quorate.submit_round', '{dealer}'),
    ('quorate.submit_rounds', '{dealer}'),
    ('quorate_worker.chain', '{coordinator}'),
    ('quorate_worker.checkpoint', '{coordinator}'),
    ('quorate_worker.claim', '{coordinator}'),
    ('quorate_worker.durability_warnings', '{coordinator}'),
    ('quorate_worker.envelopes', '{coordinator}'),
    ('quorate_worker.escalate', '{coordinator}'),
    ('quorate_worker.hold', '{coordinator}'),
    ('quorate_worker.is_joined', '{coordinator}'),
    ('quorate_worker.join_deployment', '{coordinator}'),
    ('quorate_worker.leave', '{coordinator}'),
    ('quorate_worker.links', '{coordinator}'),
    ('quorate_worker.node_versions', '{coordinator}'),
    ('quorate_worker.owned', '{coordinator}'),
    ('quorate_worker.record', '{coordinator}'),
    ('quorate_worker.release', '{coordinator}'),
    ('quorate_worker.reserve', '{coordinator}'),
    ('quorate_worker.settle', '{coordinator}'),
    ('quorate_worker.signed', '{coordinator}'),
    ('quorate_worker.tick', '{coordinator}'),
    ('quorate_worker.watch', '{coordinator}'),
    ('quorate_store.ack_text', '{}'),
    ('quorate_store.quoted', '{}'),
    ('quorate_store.records_of', '{}'),
    ('quorate_store.append_history', '{}'),
    ('quorate_store.chain_lock', '{}'),
    ('quorate_store.digests_of', '{}'),
    ('quorate_store.entry_digest', '{}'),
    ('quorate_store.has_gone', '{}'),
    ('quorate_store.history_chained', '{}'),
    ('quorate_store.history_changed', '{}'),
    ('quorate_store.history_forgotten', '{}'),
    ('quorate_store.history_pruned', '{}'),
    ('quorate_store.history_rejected', '{}'),
    ('quorate_store.history_round', '{}'),
    ('quorate_store.import_more', '{}'),
    ('quorate_store.is_due', '{}'),
    ('quorate_store.is_kept', '{}'),
    ('quorate_store.is_of_round', '{}'),
    ('quorate_store.part', '{}'),
    ('quorate_store.receipt_text', '{}'),
    ('quorate_store.records_now', '{}'),
    ('quorate_store.rejection_record', '{}'),
    ('quorate_store.round_records', '{}'),
    ('quorate_store.rounds_without_record', '{}'),
    ('quorate_store.single_record', '{}'),
    ('quorate_store.us', '{}'),
    ('quorate_store.ack_belongs', '{}'),
    ('quorate_store.attempt_belongs', '{}'),
    ('quorate_store.check_envelopes', '{}'),
    ('quorate_store.check_policy', '{}'),
    ('quorate_store.choose_nodes', '{}'),
    ('quorate_store.decide', '{}'),
    ('quorate_store.delivery_belongs', '{}'),
    ('quorate_store.end_due', '{}'),
    ('quorate_store.end_due_rounds', '{}'),
    ('quorate_store.enter_batch', '{}'),
    ('quorate_store.enter_ledger', '{}'),
    ('quorate_store.envelope_belongs', '{}'),
    ('quorate_store.envelope_erased', '{}'),
    ('quorate_store.fence', '{}'),
    ('quorate_store.fence_class', '{}'),
    ('quorate_store.forbid', '{}'),
    ('quorate_store.goes_with_round', '{}'),
    ('quorate_store.invalid', '{}'),
    ('quorate_store.ledger_pruned', '{}'),
    ('quorate_store.life_class', '{}'),
    ('quorate_store.new_rounds', '{}'),
    ('quorate_store.adopt_keys', '{}'),
    ('quorate_store.hold_node', '{}'),
    ('quorate_store.is_over', '{}'),
    ('quorate_store.keep_only', '{}'),
    ('quorate_store.max_receipt_keys', '{}'),
    ('quorate_store.no_valid_key', '{}'),
    ('quorate_store.note_acked', '{}'),
    ('quorate_store.node_key_begins', '{}'),
    ('quorate_store.refresh_node', '{}'),
    ('quorate_store.refresh_nodes', '{}'),
    ('quorate_store.refuse_revoked', '{}'),
    ('quorate_store.set_window', '{}'),
    ('quorate_store.version_at', '{}'),
    ('quorate_store.version_for', '{}'),
    ('quorate_store.versions_now', '{}'),
    ('quorate_store.with_more', '{}'),
    ('quorate_store.nonce_of', '{}'),
    ('quorate_store.record_outcomes', '{}'),
    ('quorate_store.refuse_envelopes', '{}'),
    ('quorate_store.refuse_used', '{}'),
    ('quorate_store.rejection_kept', '{}'),
    ('quorate_store.round_begins', '{}'),
    ('quorate_store.round_changes', '{}'),
    ('quorate_store.round_deleted', '{}'),
    ('quorate_store.round_ends', '{}'),
    ('quorate_store.round_work', '{}'),
    ('quorate_store.sealed', '{}'),
    ('quorate_store.take_over', '{}'),
    ('quorate_store.under_way', '{}'),
    ('quorate_store.unknown_round', '{}'),
    ('quorate_store.url_valid', '{}'),
    ('quorate_store.write_out', '{}');

-- A line for each view that a role may read whole, or in some columns. What is not here is for no role: no table of quorate_store is.
CREATE TEMP TABLE expected_read (name text, roles text[], columns text[]);
INSERT INTO expected_read VALUES
    ('quorate.acks', '{auditor,admin}', NULL),
    ('quorate.attempts', '{auditor,admin}', NULL),
    ('quorate.checkpoints', '{auditor,admin}', NULL),
    ('quorate.coordinators', '{auditor,admin}', NULL),
    ('quorate.dead_letters', '{auditor,admin}', NULL),
    ('quorate.deliveries', '{auditor,admin}', NULL),
    ('quorate.deployment', '{auditor,admin}', NULL),
    ('quorate.node_keys', '{auditor,admin}', NULL),
    ('quorate.nodes', '{auditor,admin}', NULL),
    ('quorate.nodes', '{dealer}', '{node_id,enabled,seal_key}'),
    ('quorate.rejections', '{auditor,admin}', NULL),
    ('quorate.rounds', '{auditor,admin}', NULL),
    ('quorate.rounds', '{collector}', '{round_id,state,deadline_at,fresh_until}');

-- What roles there are.

SELECT bag_eq(
    $$ SELECT r.rolname::text, r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls
         FROM pg_roles r WHERE r.rolname LIKE 'quorate\_%' AND r.rolname NOT LIKE 'quorate\_test%' $$,
    $$ SELECT name, false FROM roles $$, 'the roles are there, and none can log in or has an attribute of power');
SELECT is_empty(
    $$ SELECT m.roleid::regrole FROM pg_auth_members m JOIN roles r ON to_regrole(r.name) = m.member $$, 'none is a member of another role');

-- Functions.

SELECT set_eq(
    $$ SELECT s.name || '.' || p.proname FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace $$,
    $$ SELECT name FROM expected_function $$, 'every function of the three schemas is in the matrix, and no other');
SELECT bag_eq(
    $$ SELECT p.oid::regprocedure::text, r.role FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace CROSS JOIN roles r
        WHERE has_function_privilege(r.name, p.oid, 'EXECUTE') $$,
    $$ SELECT p.oid::regprocedure::text, role FROM expected_function e CROSS JOIN unnest(e.roles) AS role
         JOIN pg_proc p ON p.pronamespace::regnamespace || '.' || p.proname = e.name $$, 'who may call each is as in the matrix');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure, e.grantee::regrole FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace
        CROSS JOIN LATERAL aclexplode(p.proacl) e JOIN roles r ON to_regrole(r.name) = e.grantee WHERE e.is_grantable $$,
    'nobody may pass it on');
SELECT is_empty(
    $$ SELECT name FROM expected_function WHERE name LIKE 'quorate\_store.%' AND roles <> '{}' $$, 'nothing internal is for a role');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace
        WHERE (p.prosecdef OR p.prorettype = 'trigger'::regtype)
          AND NOT 'search_path=pg_catalog, pg_temp' = ANY (COALESCE(p.proconfig, '{}')) $$,
    'every function with its owner''s rights, and every trigger''s, has a fixed search_path with pg_temp last');
SELECT bag_eq(
    $$ SELECT s.name || '.' || p.proname FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace WHERE p.prosecdef $$,
    $$ SELECT name FROM expected_function WHERE roles <> '{}' $$, 'those that a role may call have their owner''s rights, and only those');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace
         JOIN pg_proc o ON o.oid = 'quorate.collect'::regproc WHERE p.proowner <> o.proowner $$, 'all have one owner');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace WHERE p.prosrc ~ '\\' AND p.prosrc !~ 'E''\\n''' $$,
    'no literal has a backslash, whose meaning the caller could change with standard_conforming_strings');

-- Schemas.

SELECT bag_eq(
    $$ SELECT s.name, r.role, p FROM schemas s CROSS JOIN roles r CROSS JOIN unnest('{USAGE,CREATE}'::text[]) p
        WHERE has_schema_privilege(r.name, s.oid, p) $$,
    $$ VALUES ('quorate', 'dealer', 'USAGE'), ('quorate', 'collector', 'USAGE'), ('quorate', 'auditor', 'USAGE'), ('quorate', 'admin', 'USAGE'),
              ('quorate_worker', 'coordinator', 'USAGE') $$,
    'who may enter which schema, and nobody makes anything in one');

-- Tables, views, sequences, columns.

SELECT bag_eq(
    $$ SELECT c.oid::regclass::text, r.role, p FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace CROSS JOIN roles r
        CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND has_table_privilege(r.name, c.oid, p) $$,
    $$ SELECT name, role, 'SELECT' FROM expected_read e CROSS JOIN unnest(e.roles) role WHERE columns IS NULL $$,
    'who may read which views whole, and nobody reads or writes a table, or writes a view');
SELECT bag_eq(
    $$ SELECT c.oid::regclass::text, a.attname::text, r.role, p FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace
         JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped CROSS JOIN roles r
        CROSS JOIN unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) p
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND has_column_privilege(r.name, c.oid, a.attnum, p)
          AND NOT has_table_privilege(r.name, c.oid, p) $$,
    $$ SELECT name, c, role, 'SELECT' FROM expected_read e CROSS JOIN unnest(e.roles) role CROSS JOIN unnest(e.columns) c $$,
    'and who some columns only');
SELECT set_eq(
    $$ SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'quorate'::regnamespace AND c.relkind <> 'c' $$,
    $$ SELECT name FROM expected_read $$, 'every view is in the matrix, and there is nothing but views in schema quorate');
SELECT is_empty(
    $$ SELECT c.oid::regclass, r.role, p FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace CROSS JOIN roles r
        CROSS JOIN unnest('{USAGE,SELECT,UPDATE}'::text[]) p WHERE c.relkind = 'S' AND has_sequence_privilege(r.name, c.oid, p) $$,
    'no sequence is for a role');
SELECT is_empty(
    $$ WITH RECURSIVE uses AS (
           SELECT c.oid AS view, c.oid AS used FROM pg_class c WHERE c.relnamespace = 'quorate'::regnamespace
            UNION
           SELECT u.view, d.refobjid FROM uses u JOIN pg_rewrite w ON w.ev_class = u.used
             JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass)
       SELECT u.view::regclass FROM uses u WHERE u.used = 'quorate_store.envelope'::regclass $$,
    'no view reads the table of envelopes, not even by another view');

-- Types, and PUBLIC everywhere.

SELECT is_empty(
    $$ SELECT t.oid::regtype, r.role FROM pg_type t JOIN schemas s ON s.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
        CROSS JOIN roles r WHERE t.typelem = 0 AND (t.typtype <> 'c' OR c.relkind = 'c') AND has_type_privilege(r.name, t.oid, 'USAGE') $$,
    'no type is for a role, but for what is the row of a table or view');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure::text, e.privilege_type FROM pg_proc p JOIN schemas s ON s.oid = p.pronamespace
        CROSS JOIN LATERAL aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) e WHERE e.grantee = 0
       UNION ALL SELECT s.name, e.privilege_type FROM schemas s JOIN pg_namespace n ON n.oid = s.oid CROSS JOIN LATERAL aclexplode(n.nspacl) e
        WHERE e.grantee = 0
       UNION ALL SELECT c.oid::regclass::text, e.privilege_type FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace
        CROSS JOIN LATERAL aclexplode(c.relacl) e WHERE e.grantee = 0
       UNION ALL SELECT c.oid::regclass::text || '.' || a.attname, e.privilege_type FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace
         JOIN pg_attribute a ON a.attrelid = c.oid CROSS JOIN LATERAL aclexplode(a.attacl) e WHERE e.grantee = 0 $$,
    'PUBLIC has no schema, function, table, view, sequence or column');

SELECT * FROM finish();
ROLLBACK;
