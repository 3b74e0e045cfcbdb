-- Begins a re-application of sql/: remembers the grants on quorate's functions, then drops the functions, so that a changed
-- signature never leaves an old overload behind. 99_end.sql gives the grants back. All of sql/ runs in one transaction.
-- Trigger functions stay: they belong to migrations/.

CREATE TEMPORARY TABLE quorate_saved_grants ON COMMIT DROP AS
SELECT n.nspname, p.proname, a.grantee, a.privilege_type, a.is_grantable
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
 CROSS JOIN LATERAL aclexplode(p.proacl) a
 WHERE n.nspname IN ('quorate', 'quorate_worker') AND a.grantee <> 0 AND a.grantee <> p.proowner;

DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid FROM pg_proc p
         WHERE p.pronamespace IN ('quorate'::regnamespace, 'quorate_worker'::regnamespace, 'quorate_store'::regnamespace)
           AND p.prorettype <> 'trigger'::regtype
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
END $$;
