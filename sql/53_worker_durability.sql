-- What a coordinator warns of when it connects: settings under which a crash or a failover forgets what was committed.

CREATE OR REPLACE FUNCTION quorate_worker.durability_warnings() RETURNS TABLE (setting text, value text, risk text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH set AS (SELECT name, current_setting(name) AS value
                   FROM unnest(ARRAY['fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names']) AS name),
    -- Who may not read pg_stat_replication sees its rows all the same, only without names and states. Logical subscribers are
    -- no standbys, and neither is a backup.
    standby AS (SELECT FROM pg_stat_replication r
                 WHERE r.application_name IS DISTINCT FROM 'pg_basebackup' AND r.application_name IS DISTINCT FROM 'pg_receivewal'
                   AND NOT EXISTS (SELECT FROM pg_replication_slots l WHERE l.active_pid = r.pid AND l.slot_type = 'logical'))
    SELECT s.name, s.value, w.risk
      FROM set s
      JOIN (VALUES (1, 'fsync', 'a crash of the machine may lose or corrupt the ledger: nonces may be used twice'),
                   (2, 'full_page_writes', 'a crash of the machine may corrupt the ledger: nonces may be used twice'),
                   (3, 'synchronous_commit', 'a crash of the server forgets its last commits: attempts that were sent, acks, completed rounds'))
        AS w (position, setting, risk) ON w.setting = s.name AND s.value = 'off'
    UNION ALL
    SELECT s.name, s.value, 'commits wait for no standby: a failover forgets those that the standby has not got yet'
      FROM set s
     WHERE s.name = 'synchronous_commit' AND s.value = 'local' AND EXISTS (SELECT FROM standby)
    UNION ALL
    SELECT s.name, s.value, 'there are standbys and none is synchronous: a failover forgets the commits that the new primary has not got yet'
      FROM set s
     WHERE s.name = 'synchronous_standby_names' AND btrim(s.value) = '' AND EXISTS (SELECT FROM standby)
$$;
COMMENT ON FUNCTION quorate_worker.durability_warnings() IS
'The settings, as they are in this session, under which a crash or a failover forgets commits: one row each, none when all is well.';
