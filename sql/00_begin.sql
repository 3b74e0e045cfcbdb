-- Begins a re-application of sql/: locks what others read, and remembers the grants on quorate's functions. The functions are
-- replaced in place, so that a call under way goes on; 90_grants.sql drops those that are not among the files any more, and gives
-- the grants back. Only when one cannot be replaced (42P13), since its arguments' names or its result have changed, does `quorate
-- migrate` begin again with quorate.drop_functions = on. All of sql/ runs in one transaction. Trigger functions stay: they
-- belong to migrations/.

-- The locks on all views come first. Whoever reads several of them in a transaction would otherwise deadlock with us: so
-- this never waits long with some of them in its hands, and gives them back between two tries. Not longer than lock_timeout
-- altogether. (LOCK TABLE would lock the tables below a view as well, under everybody's work.)
DO $$
DECLARE
    v_given text := current_setting('lock_timeout');
    v_most interval := (SELECT s.setting::bigint * interval '1 ms' FROM pg_settings s WHERE s.name = 'lock_timeout');
    v_until timestamptz := clock_timestamp() + v_most;
    v_patience interval := interval '20 ms';
    v_view regclass;
BEGIN
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', greatest(1, extract(epoch FROM v_patience) * 1000)::int::text, true);
            FOR v_view IN
                SELECT c.oid FROM pg_class c
                 WHERE c.relnamespace IN ('quorate'::regnamespace, 'quorate_store'::regnamespace) AND c.relkind = 'v' ORDER BY c.oid
            LOOP
                EXECUTE format('ALTER VIEW %s RESET (check_option)', v_view);
            END LOOP;
            -- quorate_worker.record notes acks of rounds that are settled already: it knows them without looking each one up. Who writes such a
            -- row by hand notes nothing, and is found. The trigger goes with the function that did not do so, and not before.
            IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'quorate_store.ack'::regclass AND t.tgname = 'history_acked') THEN
                DROP TRIGGER history_acked ON quorate_store.ack;
                DROP FUNCTION quorate_store.history_acked();
            END IF;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF v_most > interval '0' AND clock_timestamp() >= v_until THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(random() * 0.02);
            v_patience := least(v_patience * 2, interval '400 ms');
            IF v_most > interval '0' THEN
                v_patience := least(v_patience, v_until - clock_timestamp());
            END IF;
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', v_given, true);
END $$;

-- A function that is replaced gets another row, and so another ctid.
CREATE TEMPORARY TABLE quorate_functions_before ON COMMIT DROP AS
SELECT p.oid, p.ctid AS place
  FROM pg_proc p
 WHERE p.pronamespace IN ('quorate'::regnamespace, 'quorate_worker'::regnamespace, 'quorate_store'::regnamespace)
   AND p.prorettype <> 'trigger'::regtype;

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
        SELECT b.oid FROM quorate_functions_before b WHERE current_setting('quorate.drop_functions', true) = 'on'
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
    IF current_setting('quorate.drop_functions', true) = 'on' THEN
        DROP TYPE IF EXISTS quorate_store.work;
    END IF;
END $$;
