-- What exists: functions with their arguments, views with their columns, types, triggers, privileges, comments.

BEGIN;
\ir common/helpers.sql
SELECT plan(51);

SELECT has_schema(s, format('schema %s', s)) FROM unnest(ARRAY['quorate', 'quorate_store', 'quorate_worker']) s;
SELECT has_table('quorate_store', t, format('table %s', t))
  FROM unnest(ARRAY['deployment', 'node_version', 'node', 'ledger', 'coordinator', 'round', 'delivery', 'envelope', 'attempt', 'ack',
                    'rejection', 'node_key']) t;
SELECT enum_has_labels('quorate_store', 'round_state', ARRAY['open', 'complete', 'stalled', 'cancelled', 'dead_lettered']);
SELECT enum_has_labels('quorate_store', 'outcome',
    ARRAY['ack', 'timeout', 'connect_error', 'http_error', 'bad_receipt', 'refused', 'in_doubt', 'unsent']);
SELECT enum_has_labels('quorate_store', 'verdict',
    ARRAY['unknown_round', 'stale_nonce', 'unknown_node', 'invalid_payload', 'unsealed', 'duplicate', 'conflict', 'round_closed', 'accepted']);

-- Functions for dealers, collectors and operators: names, order and types of arguments, how many have defaults, and the columns returned.

CREATE VIEW pg_temp.functions AS
SELECT n.nspname AS schema, p.proname::text COLLATE "default" AS name, p.pronargdefaults::int AS defaults, a.arguments,
       COALESCE(a.result, format_type(p.prorettype, NULL)) AS result, p.prosecdef, p.proconfig, p.oid
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 CROSS JOIN LATERAL (
       SELECT string_agg(u.name COLLATE "default" || ' ' || format_type(u.type, NULL), ', ' ORDER BY u.i) FILTER (WHERE COALESCE(u.mode, 'i') IN ('i', 'b')) AS arguments,
              string_agg(u.name COLLATE "default" || ' ' || format_type(u.type, NULL), ', ' ORDER BY u.i) FILTER (WHERE u.mode IN ('o', 'b', 't')) AS result
         FROM unnest(COALESCE(p.proallargtypes, p.proargtypes::oid[]), p.proargnames, p.proargmodes) WITH ORDINALITY u (type, name, mode, i)) a;

CREATE FUNCTION pg_temp.timestamps() RETURNS text LANGUAGE sql AS $$
    SELECT 'nonce bigint, opened_at timestamp with time zone, escalate_at timestamp with time zone, '
           'deadline_at timestamp with time zone, fresh_until timestamp with time zone' $$;
CREATE FUNCTION pg_temp.policy() RETURNS text LANGUAGE sql AS $$
    SELECT 'nonce bigint, per_share_timeout interval, retry_budget integer, base_backoff interval, max_backoff interval, '
           'round_deadline interval, freshness interval, after_quorum text, require_sealed boolean' $$;

SELECT results_eq(
    format('SELECT arguments, defaults, result FROM pg_temp.functions WHERE schema = ''quorate'' AND name = %L', f.name),
    format('VALUES (%L, %s, %L)', f.arguments, f.defaults, f.result),
    f.name || ': arguments, defaults, result; and no overload')
  FROM (VALUES
    ('open_round', 'round_id text, quorum integer, node_ids integer[], ' || pg_temp.policy(), 10, pg_temp.timestamps()),
    ('distribute', 'round_id text, nonce bigint, node_ids integer[], payloads bytea[]', 0, 'node_id integer, verdict text'),
    ('submit_round', 'round_id text, quorum integer, node_ids integer[], payloads bytea[], ' || pg_temp.policy(), 9, pg_temp.timestamps()),
    ('seal_keys', 'round_id text', 0, 'node_id integer, seal_key text, require_sealed boolean, deployment_id text'),
    ('collect', 'round_id text, quorum integer', 1, 'integer[]'),
    ('collected', 'round_id text', 0, 'node_id integer, route text, url text, in_quorum boolean, receipt text, deployment_id text, nonce bigint, quorum integer, payload_sha256 bytea'),
    ('settle_round', 'round_id text', 0, 'text'),
    ('cancel_round', 'round_id text, reason text', 0, 'boolean'),
    ('prune_rounds', 'ended_before timestamp with time zone, max_rounds integer', 1, 'bigint'),
    ('add_node', 'node_id integer, url text, receipt_key text, backup_url text, seal_key text', 2, 'void'),
    ('add_node_key', 'node_id integer, key text, valid_from timestamp with time zone, valid_until timestamp with time zone', 2, 'void'),
    ('revoke_node_key', 'node_id integer, key text', 0, 'void'),
    ('set_node_enabled', 'node_id integer, enabled boolean', 0, 'void')) f (name, arguments, defaults, result);

-- Views for auditors: at least these columns.

SELECT is_empty(format(
    $q$ SELECT unnest(%L::text[]) EXCEPT
        SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'quorate' AND table_name = %L $q$, v.columns, v.name),
    'view ' || v.name || ' has its columns')
  FROM (VALUES
    ('rounds', '{round_id,nonce,state,quorum,total_nodes,node_ids,per_share_timeout,retry_budget,base_backoff,max_backoff,after_quorum,acked,quorum_nodes,opened_at,escalate_at,escalated_at,deadline_at,fresh_until,closed_at,collected_at,dead_lettered_at,settled_at,close_reason,coordinator,require_sealed}'),
    ('deliveries', '{round_id,node_id,state,attempts,last_outcome,next_attempt_at,payload_sha256,payload_bytes,payload_erased_at}'),
    ('attempts', '{round_id,node_id,route,attempt,coordinator,reserved_at,finished_at,outcome,http_status,resends}'),
    ('acks', '{round_id,node_id,route,attempt,acked_at,in_quorum,late,receipt,receipt_key,third_party}'),
    ('rejections', '{rejected_at,round_id,node_id,nonce,verdict,rejected_for}'),
    ('dead_letters', '{round_id,reason,closed_at,acked,quorum}'),
    ('nodes', '{node_id,url,backup_url,receipt_key,enabled,seal_key,receipt_keys}'),
    ('node_keys', '{node_id,key,use,valid_from,valid_until,revoked_at,state}'),
    ('coordinators', '{coordinator,instance_id,started_at,heartbeat_at,alive,open_rounds}'),
    ('deployment', '{deployment_id,schema_version}')) v (name, columns);
SELECT bag_eq(
    $$ SELECT format_type(a.atttypid, NULL) FROM pg_attribute a
        WHERE a.attrelid = 'quorate.rounds'::regclass AND a.attname IN ('node_ids', 'quorum_nodes') $$,
    $$ VALUES ('integer[]'), ('integer[]') $$, 'rounds: node_ids and quorum_nodes are int[]');
SELECT bag_eq(
    $$ SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'quorate'::regnamespace AND a.atttypid = 'bytea'::regtype $$,
    $$ VALUES ('deliveries', 'payload_sha256') $$, 'no view has a bytea column but the digest of the payload');
-- Safety of the functions.

SELECT is_empty(
    $$ SELECT oid::regprocedure FROM pg_temp.functions WHERE schema IN ('quorate', 'quorate_worker')
          AND NOT (prosecdef AND 'search_path=pg_catalog, pg_temp' = ANY (COALESCE(proconfig, '{}'))) $$,
    'every function of quorate and quorate_worker is SECURITY DEFINER with a fixed search_path, pg_temp last');
SELECT is_empty(
    $$ SELECT p.oid::regprocedure FROM pg_proc p
        CROSS JOIN LATERAL aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
        WHERE p.pronamespace IN ('quorate'::regnamespace, 'quorate_worker'::regnamespace, 'quorate_store'::regnamespace) AND a.grantee = 0 $$,
    'PUBLIC executes nothing');
SELECT is_empty(
    $$ SELECT c.oid::regclass FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.relnamespace IN ('quorate'::regnamespace, 'quorate_store'::regnamespace) AND a.grantee = 0
       UNION ALL
       SELECT n.oid FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a WHERE n.nspname LIKE 'quorate%' AND a.grantee = 0 $$,
    'PUBLIC reads nothing and enters no schema');

-- Guards.

SELECT is_empty(
    $$ SELECT t.tgrelid::regclass, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'quorate_store'::regnamespace AND NOT t.tgisinternal AND t.tgenabled <> 'A' $$,
    'every trigger is ENABLE ALWAYS');
SELECT set_eq(
    $$ SELECT c.relname::text FROM pg_class c JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgtype & 32 <> 0
        WHERE c.relnamespace = 'quorate_store'::regnamespace $$,
    $$ SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'quorate_store'::regnamespace AND c.relkind IN ('r', 'p')
          AND c.relname NOT IN ('migration', 'repeatable') $$,
    'every table but the migrator''s has a trigger against TRUNCATE');

-- Comments.

SELECT is_empty(
    $$ SELECT oid::regprocedure FROM pg_temp.functions WHERE schema IN ('quorate', 'quorate_worker')
          AND COALESCE(length(obj_description(oid, 'pg_proc')), 0) < 20 $$,
    'every function of quorate and quorate_worker says what it does');
SELECT is_empty(
    $$ SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'quorate'::regnamespace AND c.relkind = 'v'
          AND COALESCE(length(obj_description(c.oid, 'pg_class')), 0) < 20 $$,
    'every view of quorate says what it shows');
SELECT is_empty(
    $$ SELECT f.name FROM pg_temp.functions f WHERE f.schema = 'quorate'
          AND obj_description(f.oid, 'pg_proc') !~ 'QR00|Errors' $$,
    'every function of quorate names its errors');

SELECT * FROM finish();
ROLLBACK;
