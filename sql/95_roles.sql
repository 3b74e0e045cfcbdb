-- The roles of quorate, and everything that each of them may touch: given anew, so that this file is the whole truth about them. What
-- operators granted to other roles stays. Nobody but the owner may touch a table, and PUBLIC has nothing at all.
--
-- Roles belong to the server, not to the database: another database's migrator may make the same ones at this moment, and their login
-- users may serve several deployments. They log in by users of their own, which are made members; see docs/operations.md.
--
-- Views read tables with their owner's rights. None of them hides a row from whoever may read it (dead_letters are rounds, too), nor a
-- column that a function in WHERE could be given: so none needs security_barrier.

CREATE TEMPORARY TABLE quorate_roles (place int, role text, may text) ON COMMIT DROP;
INSERT INTO quorate_roles VALUES
    (1, 'quorate_dealer', 'USAGE ON SCHEMA quorate'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.open_round'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.distribute'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.submit_round'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.submit_rounds'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.cancel_round'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.settle_round'),
    (1, 'quorate_dealer', 'EXECUTE ON FUNCTION quorate.seal_keys'),
    (1, 'quorate_dealer', 'SELECT (node_id, enabled, seal_key) ON quorate.nodes'), -- whom it may deal to
    (2, 'quorate_collector', 'USAGE ON SCHEMA quorate'),
    (2, 'quorate_collector', 'EXECUTE ON FUNCTION quorate.collect'),
    (2, 'quorate_collector', 'EXECUTE ON FUNCTION quorate.collected'),
    (2, 'quorate_collector', 'EXECUTE ON FUNCTION quorate.settle_round'),
    (2, 'quorate_collector', 'SELECT (round_id, state, deadline_at, fresh_until) ON quorate.rounds'), -- how long to wait
    (3, 'quorate_coordinator', 'USAGE ON SCHEMA quorate_worker'),
    (3, 'quorate_coordinator', 'EXECUTE ON ALL FUNCTIONS IN SCHEMA quorate_worker'),
    (4, 'quorate_auditor', 'USAGE ON SCHEMA quorate'),
    (4, 'quorate_auditor', 'SELECT ON ALL TABLES IN SCHEMA quorate'), -- these are views
    (4, 'quorate_auditor', 'EXECUTE ON FUNCTION quorate.history_entries'), -- records, never a payload
    (4, 'quorate_auditor', 'EXECUTE ON FUNCTION quorate.history_gaps'),
    (4, 'quorate_auditor', 'EXECUTE ON FUNCTION quorate.history_status'),
    (4, 'quorate_auditor', 'EXECUTE ON FUNCTION quorate.history_of'),
    (4, 'quorate_auditor', 'EXECUTE ON FUNCTION quorate.history_links'),
    (5, 'quorate_admin', 'USAGE ON SCHEMA quorate'),
    (5, 'quorate_admin', 'EXECUTE ON FUNCTION quorate.add_node'),
    (5, 'quorate_admin', 'EXECUTE ON FUNCTION quorate.add_node_key'),
    (5, 'quorate_admin', 'EXECUTE ON FUNCTION quorate.revoke_node_key'),
    (5, 'quorate_admin', 'EXECUTE ON FUNCTION quorate.set_node_enabled'),
    (5, 'quorate_admin', 'EXECUTE ON FUNCTION quorate.set_envelope_limit'),
    (5, 'quorate_admin', 'EXECUTE ON FUNCTION quorate.prune_rounds'),
    (5, 'quorate_admin', 'SELECT ON ALL TABLES IN SCHEMA quorate');

DO $$
DECLARE
    v_role text;
    v_missing text[];
BEGIN
    FOR v_role IN SELECT r.role FROM quorate_roles r GROUP BY r.role ORDER BY min(r.place) LOOP
        CONTINUE WHEN to_regrole(v_role) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL; -- another database's migrator was faster
            WHEN insufficient_privilege THEN
                v_missing := v_missing || format('CREATE ROLE %I NOLOGIN;', v_role);
        END;
    END LOOP;
    IF v_missing IS NOT NULL THEN
        RAISE WARNING '% may not create roles, so some of quorate''s are missing and nothing is granted to them: have somebody with CREATEROLE run `%`, '
                      'and run `quorate migrate` again', current_user, array_to_string(v_missing, ' ');
    END IF;
END $$;

DO $$
DECLARE
    v_role text;
    v_statement text;
BEGIN
    -- All that the roles have, and all that PUBLIC has: by nature of a type, by default privileges of the owner's, by an older version. Tables
    -- are left alone unless there is something to take away: their rows in pg_class are written by VACUUM as well.
    FOR v_statement IN
        WITH grantees AS (
            SELECT 0::oid AS grantee, 'PUBLIC' AS name
             UNION ALL SELECT DISTINCT to_regrole(r.role)::oid, quote_ident(r.role) FROM quorate_roles r),
        objects AS (
            SELECT format('SCHEMA %I', n.nspname) AS object, n.nspacl AS acl, n.oid AS schema FROM pg_namespace n
             UNION ALL
            SELECT format('FUNCTION %s', p.oid::regprocedure), p.proacl, p.pronamespace FROM pg_proc p
             UNION ALL
            SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass), c.relacl || a.acl, c.relnamespace
              FROM pg_class c
              LEFT JOIN LATERAL (SELECT array_agg(x.entry) AS acl FROM pg_attribute t CROSS JOIN unnest(t.attacl) AS x (entry)
                                  WHERE t.attrelid = c.oid) a ON true
             WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
             UNION ALL -- but for those of arrays and of the rows of tables and views
            SELECT format('TYPE %s', t.oid::regtype), COALESCE(t.typacl, acldefault('T', t.typowner)), t.typnamespace
              FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
             WHERE t.typelem = 0 AND (t.typtype <> 'c' OR c.relkind = 'c'))
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s CASCADE', o.object, g.name)
          FROM objects o
          JOIN pg_namespace n ON n.oid = o.schema
         CROSS JOIN LATERAL aclexplode(o.acl) AS e
          JOIN grantees g ON g.grantee = e.grantee
         WHERE n.nspname IN ('quorate', 'quorate_worker', 'quorate_store')
    LOOP
        EXECUTE v_statement;
    END LOOP;
    FOR v_role, v_statement IN SELECT r.role, format('GRANT %s TO %I', r.may, r.role) FROM quorate_roles r ORDER BY r.place LOOP
        CONTINUE WHEN to_regrole(v_role) IS NULL;
        EXECUTE v_statement;
    END LOOP;
END $$;
