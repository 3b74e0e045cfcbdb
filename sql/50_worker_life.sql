-- A coordinator's life in the database: it joins, beats, closes what is due, fences the dead, and leaves.

CREATE OR REPLACE FUNCTION quorate_worker.join_deployment(
    p_instance_id uuid, p_name text, p_lease interval, OUT instance_no int, OUT deployment_id text, OUT schema_version int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF p_lease > interval '1 day' THEN
        PERFORM quorate_store.invalid(format('lease %s is out of range', p_lease), 'Use more than 0 and at most a day.');
    END IF;
    INSERT INTO quorate_store.coordinator AS c (instance_id, name, lease) VALUES (p_instance_id, p_name, p_lease)
    ON CONFLICT (instance_id) DO UPDATE SET heartbeat_at = clock_timestamp()
    RETURNING c.instance_no INTO instance_no;
    SELECT d.deployment_id INTO STRICT deployment_id FROM quorate_store.deployment d;
    SELECT max(m.number) INTO schema_version FROM quorate_store.migration m;
END $$;
COMMENT ON FUNCTION quorate_worker.join_deployment(uuid, text, interval) IS
'Registers one start of a coordinator; idempotent by p_instance_id. p_lease: how long it may be silent before others fence it, at most a day.
Result: its number (the fencing token), the deployment''s id and the schema''s version.';

CREATE OR REPLACE FUNCTION quorate_worker.is_joined(p_instance int, p_instance_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM quorate_store.coordinator c WHERE c.instance_no = p_instance AND c.instance_id = p_instance_id)
$$;
COMMENT ON FUNCTION quorate_worker.is_joined(int, uuid) IS
'True when this instance joined in this very database: how a coordinator with two connection strings finds out that they lead to the same one.';

CREATE OR REPLACE FUNCTION quorate_store.fence(p_instance int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid;
BEGIN
    -- A frozen process may sit on a half-sent result, and so on its transaction: end its sessions first. (Not allowed for
    -- sessions of another role: then the lock below is only had once they are gone.) Behind a transaction pooler a session keeps the name
    -- of whoever used it last, and the pooler may add the client's address: only one that runs a call of ours is ended.
    SELECT c.instance_id INTO v_id FROM quorate_store.coordinator c WHERE c.instance_no = p_instance;
    BEGIN
        PERFORM pg_terminate_backend(s.pid) FROM pg_stat_activity s
          WHERE starts_with(s.application_name, 'quorate ' || v_id) AND s.datname = current_database() AND s.pid <> pg_backend_pid()
            AND s.state <> 'idle' AND s.query LIKE '%quorate_worker.%';
    EXCEPTION WHEN insufficient_privilege THEN
        NULL;
    END;
    IF NOT pg_try_advisory_xact_lock(quorate_store.fence_class(), p_instance) THEN
        RETURN false; -- a batch of it is still under way: the next tick tries again
    END IF;
    UPDATE quorate_store.coordinator c SET ended_at = clock_timestamp(), end_reason = 'fenced'
     WHERE c.instance_no = p_instance AND c.ended_at IS NULL;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION quorate_store.fence(int) IS
    'Fences one silent instance, if none of its batches is under way: from then on it reserves and overwrites nothing, and its rounds can be claimed.';

CREATE OR REPLACE FUNCTION quorate_store.end_due_rounds(p_notify boolean, p_max int, OUT stalled int, OUT dead_lettered int)
LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp(); -- what is due now is due under its lock as well
    v_due bigint[];
    v_ended bigint[];
BEGIN
    v_due := ARRAY(SELECT r.round_no FROM quorate_store.round r
                    WHERE r.state = 'open' AND r.deadline_at < v_now AND r.round_no > 0
                    ORDER BY r.deadline_at LIMIT p_max FOR UPDATE SKIP LOCKED);
    WITH ended AS (UPDATE quorate_store.round r SET state = 'stalled', closed_at = v_now, close_reason = 'deadline'
                    WHERE r.round_no = ANY (v_due) RETURNING r.round_no)
    SELECT array_agg(e.round_no) INTO v_ended FROM ended e;
    stalled := COALESCE(cardinality(v_ended), 0);
    IF p_notify THEN
        PERFORM pg_notify('quorate_round', l.round_id || ' stalled') FROM quorate_store.ledger l WHERE l.round_no = ANY (v_ended);
    END IF;
    v_due := ARRAY(SELECT r.round_no FROM quorate_store.round r
                    WHERE r.state = 'complete' AND r.collected_at IS NULL AND r.fresh_until < v_now AND r.round_no > 0
                    ORDER BY r.fresh_until LIMIT p_max FOR UPDATE SKIP LOCKED);
    WITH ended AS (UPDATE quorate_store.round r SET state = 'dead_lettered', dead_lettered_at = v_now
                    WHERE r.round_no = ANY (v_due) RETURNING r.round_no)
    SELECT array_agg(e.round_no) INTO v_ended FROM ended e;
    dead_lettered := COALESCE(cardinality(v_ended), 0);
    IF p_notify THEN
        PERFORM pg_notify('quorate_round', l.round_id || ' dead_lettered') FROM quorate_store.ledger l
          WHERE l.round_no = ANY (v_ended);
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.end_due_rounds(boolean, int) IS
    'Stalls and dead-letters whatever is due, whoever owns it, at most p_max of each; locked rounds are left for the next call.';

CREATE OR REPLACE FUNCTION quorate_worker.tick(
    p_instance int, p_notify boolean, p_max int, p_count boolean,
    OUT alive boolean, OUT stalled int, OUT dead_lettered int, OUT fenced int, OUT work boolean, OUT failed_rounds bigint[],
    OUT next_due_us bigint, OUT now_us bigint, OUT owned bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_other int;
    v_due_at timestamptz;
    v_was_silent boolean;
BEGIN
    SELECT c.heartbeat_at + c.lease < clock_timestamp() INTO v_was_silent
      FROM quorate_store.coordinator c WHERE c.instance_no = p_instance;
    UPDATE quorate_store.coordinator c SET heartbeat_at = clock_timestamp() WHERE c.instance_no = p_instance AND c.ended_at IS NULL;
    alive := FOUND;
    SELECT e.stalled, e.dead_lettered INTO stalled, dead_lettered FROM quorate_store.end_due_rounds(p_notify, p_max) e;
    PERFORM quorate_store.refresh_nodes();
    fenced := 0;
    -- After an outage of the database all have been silent, this one too: it lets the others speak first.
    FOR v_other IN SELECT c.instance_no FROM quorate_store.coordinator c
                    WHERE alive AND NOT v_was_silent AND c.cleared_at IS NULL AND c.ended_at IS NULL
                      AND greatest(c.heartbeat_at, pg_postmaster_start_time()) + c.lease < clock_timestamp()
                      AND c.instance_no <> p_instance
                    ORDER BY c.instance_no FOR UPDATE SKIP LOCKED LOOP
        fenced := fenced + quorate_store.fence(v_other)::int;
    END LOOP;
    UPDATE quorate_store.coordinator c SET cleared_at = clock_timestamp()
     WHERE c.cleared_at IS NULL AND c.ended_at IS NOT NULL
       AND NOT EXISTS (SELECT FROM quorate_store.round r WHERE r.owner = c.instance_no AND r.settled_at IS NULL AND r.round_no > 0);
    work := EXISTS (SELECT FROM quorate_store.round r WHERE r.owner = 0 AND r.settled_at IS NULL AND r.round_no > 0)
         OR EXISTS (SELECT FROM quorate_store.round r WHERE r.owner = p_instance AND r.news AND r.settled_at IS NULL AND r.round_no > 0)
         OR EXISTS (SELECT FROM quorate_store.coordinator c WHERE c.cleared_at IS NULL AND c.ended_at IS NOT NULL);
    SELECT array_agg(f.round_no) INTO failed_rounds
      FROM (SELECT r.round_no FROM quorate_store.round r
             WHERE r.owner = p_instance AND r.state IN ('stalled', 'cancelled') AND r.settled_at IS NULL AND r.round_no > 0
             ORDER BY r.round_no LIMIT p_max) f;
    v_due_at := least((SELECT min(r.deadline_at) FROM quorate_store.round r WHERE r.state = 'open' AND r.round_no > 0),
                      (SELECT min(r.fresh_until) FROM quorate_store.round r
                        WHERE r.state = 'complete' AND r.collected_at IS NULL AND r.fresh_until IS NOT NULL AND r.round_no > 0));
    IF v_due_at IS NOT NULL THEN
        next_due_us := greatest(0, extract(epoch FROM v_due_at - clock_timestamp()) * 1000000)::bigint;
    END IF;
    IF p_count THEN
        owned := (SELECT count(*) FROM quorate_store.round r WHERE r.owner = p_instance AND r.settled_at IS NULL AND r.round_no > 0);
    END IF;
    now_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;
COMMENT ON FUNCTION quorate_worker.tick(int, boolean, int, boolean) IS
'One beat of a coordinator: its heartbeat; closes due rounds of any owner (at most p_max of each kind); brings nodes up to date of which a key began or ended; fences
silent instances.
p_notify false: closes without notifications (they are hints; for when the notification queue is full).
Result: alive (false: fenced, rejoin under a new instance id), what was ended, whether rounds wait to be claimed, own rounds that stalled or
were cancelled and are not settled yet, microseconds until the next one is due (NULL: none), the database''s clock, and, if p_count, how many unsettled rounds the instance owns.';

CREATE OR REPLACE FUNCTION quorate_worker.hold(p_instance int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_try_advisory_lock(quorate_store.life_class(), p_instance) THEN
        RETURN false;
    END IF;
    UPDATE quorate_store.coordinator c SET holds_life = true WHERE c.instance_no = p_instance AND NOT c.holds_life;
    RETURN true;
END $$;
COMMENT ON FUNCTION quorate_worker.hold(int) IS
'Takes the instance''s life lock for this session: the server frees it the moment the connection dies, and a peer that waits for it takes over at once.
False while a peer, or a session of this instance that is not gone yet, has it: ask again. Locks: that one, to the end of the session.';

CREATE OR REPLACE FUNCTION quorate_worker.watch(p_instance int, p_seen int, OUT peer int, OUT seen boolean, OUT free boolean, OUT fenced boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '900ms' AS $$
BEGIN
    seen := false;
    free := false;
    fenced := false;
    -- The next one in the ring of those that live: each has one watcher, and after that one's death another.
    SELECT c.instance_no INTO peer FROM quorate_store.coordinator c
     WHERE c.cleared_at IS NULL AND c.ended_at IS NULL AND c.holds_life AND c.instance_no <> p_instance
     ORDER BY c.instance_no < p_instance, c.instance_no LIMIT 1;
    IF peer IS NULL THEN
        RETURN;
    END IF;
    free := pg_try_advisory_xact_lock(quorate_store.life_class(), peer);
    -- By this very session, so that the server has not been restarted since, which frees the locks of the living as well.
    seen := NOT free OR peer = p_seen;
    IF NOT free THEN
        BEGIN
            PERFORM pg_advisory_xact_lock(quorate_store.life_class(), peer);
            free := true;
        EXCEPTION WHEN lock_not_available THEN
            RETURN; -- it lives
        END;
    END IF;
    -- Its listening session is gone. The others go with their process, within moments; while one is there, it may live and come back.
    -- (Not its own watch, which may wait for a lock and does not notice.)
    IF seen AND NOT EXISTS (SELECT FROM pg_stat_activity s JOIN quorate_store.coordinator c ON s.application_name = 'quorate ' || c.instance_id
                               WHERE c.instance_no = peer AND s.datname = current_database()) THEN
        fenced := quorate_store.fence(peer);
        IF fenced THEN
            PERFORM pg_notify('quorate_work', '');
        END IF;
    END IF;
END $$;
COMMENT ON FUNCTION quorate_worker.watch(int, int) IS
'Waits for the life lock of the next coordinator in the ring (ascending instance numbers, the lowest after the highest), and fences that one if it has died:
if its lock is free that this session has seen held (p_seen: whose; now or in the call before), and all its sessions are gone. Waits less than a second, since
who waits holds VACUUM back. To be called in a session that holds no life lock itself, lest two that watch each other deadlock.
Result: peer: whom it watched (NULL: there is no other); seen: this session has seen that one''s lock held; free: it is free, look again soon; fenced: its
rounds can be claimed.';

CREATE OR REPLACE FUNCTION quorate_worker.leave(p_instance int, p_notify boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    -- A batch of a broken connection may still run and claim: whoever goes waits for it, lest its rounds be nobody's.
    IF NOT pg_try_advisory_xact_lock(quorate_store.fence_class(), p_instance) THEN
        RETURN false;
    END IF;
    UPDATE quorate_store.coordinator c SET ended_at = clock_timestamp(), end_reason = 'left'
     WHERE c.instance_no = p_instance AND c.ended_at IS NULL;
    IF p_notify THEN
        PERFORM pg_notify('quorate_work', '');
    END IF;
    RETURN true;
END $$;
COMMENT ON FUNCTION quorate_worker.leave(int, boolean) IS
'A coordinator goes: others may claim its rounds at once. p_notify false: they are not told (for when the notification queue is full; they look by
themselves within a second). False while one of its batches is under way: ask again. Idempotent.';

CREATE OR REPLACE FUNCTION quorate_worker.node_versions(p_versions int[])
RETURNS TABLE (version int, node_id smallint, url text, backup_url text, receipt_key text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
    SELECT v.version, v.node_id, v.url, v.backup_url, array_to_string(v.receipt_key || v.other_keys, ' ')
      FROM quorate_store.node_version v WHERE v.version = ANY (p_versions)
$$;
COMMENT ON FUNCTION quorate_worker.node_versions(int[]) IS 
'URLs and keys of node versions; they never change, so a coordinator may keep them. receipt_key: all keys whose receipts count, newest first, with a blank between
them.';
