-- Functions that are in none of the files of sql/ go, and nobody but the owner may call the others, save those who could before.

DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid FROM pg_proc p JOIN quorate_functions_before b ON b.oid = p.oid AND b.place = p.ctid
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
END $$;

DO $$
DECLARE
    v_grant record;
BEGIN
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA quorate, quorate_worker, quorate_store FROM PUBLIC;
    FOR v_grant IN
        SELECT DISTINCT p.oid::regprocedure AS function, g.grantee::regrole AS grantee, g.privilege_type, g.is_grantable
          FROM quorate_saved_grants g
          JOIN pg_namespace n ON n.nspname = g.nspname
          JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = g.proname
    LOOP
        EXECUTE format('GRANT %s ON FUNCTION %s TO %s%s', v_grant.privilege_type, v_grant.function, v_grant.grantee,
                       CASE WHEN v_grant.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
END $$;
