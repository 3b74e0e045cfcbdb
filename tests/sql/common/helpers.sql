-- Helpers for the pgTAP files, included by each inside its transaction: nodes, coordinators, rounds, and rounds of the past.

SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;

CREATE FUNCTION pg_temp.key() RETURNS text LANGUAGE sql AS
    $$ SELECT 'whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=' $$;
CREATE FUNCTION pg_temp.other_key() RETURNS text LANGUAGE sql AS
    $$ SELECT 'whpk_Kay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=' $$;

-- Nodes p_from..p_to, with a backup URL or without.
CREATE FUNCTION pg_temp.nodes(p_from int, p_to int, p_backup boolean DEFAULT false) RETURNS void LANGUAGE sql AS $$
    SELECT quorate.add_node(i, format('http://n%s.test/', i), pg_temp.key(),
                            CASE WHEN p_backup THEN format('http://b%s.test/', i) END)
      FROM generate_series(p_from, p_to) i
$$;

-- A coordinator; its instance number.
CREATE FUNCTION pg_temp.join_as(p_name text, p_lease interval DEFAULT '1 h') RETURNS int LANGUAGE sql AS
    $$ SELECT instance_no FROM quorate_worker.join_deployment(gen_random_uuid(), p_name, p_lease) $$;

CREATE FUNCTION pg_temp.no(p_round_id text) RETURNS bigint LANGUAGE sql AS
    $$ SELECT round_no FROM quorate_store.ledger WHERE round_id = p_round_id $$;
CREATE FUNCTION pg_temp.state(p_round_id text) RETURNS text LANGUAGE sql AS
    $$ SELECT state FROM quorate.rounds WHERE round_id = p_round_id $$;

-- 64 bytes that stand for a receipt: SQL keeps receipts, coordinators verify them.
CREATE FUNCTION pg_temp.receipt(p_node int) RETURNS bytea LANGUAGE sql AS
    $$ SELECT sha512(p_node::text::bytea) $$;

-- submit_round with a policy that no test outlives, and one envelope 'share <node>' for each node.
CREATE FUNCTION pg_temp.submit(p_round_id text, p_quorum int, p_nodes int[], p_after text DEFAULT 'continue',
                               p_deadline interval DEFAULT '1 h', p_budget int DEFAULT 4, p_freshness interval DEFAULT NULL)
RETURNS bigint LANGUAGE sql AS $$
    SELECT nonce FROM quorate.submit_round(p_round_id, p_quorum, p_nodes,
        ARRAY(SELECT convert_to('share ' || n, 'UTF8') FROM unnest(p_nodes) WITH ORDINALITY u (n, i) ORDER BY i),
        retry_budget => p_budget, round_deadline => p_deadline, freshness => p_freshness, after_quorum => p_after)
$$;

-- Claims all there is; how many rounds.
CREATE FUNCTION pg_temp.claim_all(p_instance int, p_busy int[] DEFAULT '{}') RETURNS bigint LANGUAGE sql AS
    $$ SELECT count(DISTINCT round_no) FROM quorate_worker.claim(p_instance, 100000, 1000000, p_busy) $$;

-- Reserves one attempt: 'granted <state>' or 'not granted <state>'.
CREATE FUNCTION pg_temp.reserve(p_instance int, p_round_id text, p_node int, p_attempt int, p_route text DEFAULT 'primary')
RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN granted THEN 'granted ' ELSE 'not granted ' END || state
      FROM quorate_worker.reserve(p_instance, ARRAY[pg_temp.no(p_round_id)], ARRAY[p_node]::smallint[], ARRAY[p_route],
                                  ARRAY[p_attempt]::smallint[])
$$;

-- Records one outcome, with a receipt if it is 'ack': '<state>' or '<state> settled'.
CREATE FUNCTION pg_temp.record(p_instance int, p_round_id text, p_node int, p_outcome text, p_attempt int DEFAULT 1,
                               p_route text DEFAULT 'primary', p_status int DEFAULT NULL, p_retry_us bigint DEFAULT NULL)
RETURNS text LANGUAGE sql AS $$
    SELECT state || CASE WHEN settled THEN ' settled' ELSE '' END
      FROM quorate_worker.record(p_instance, true, ARRAY[pg_temp.no(p_round_id)], ARRAY[p_node]::smallint[], ARRAY[p_route],
                                 ARRAY[p_attempt]::smallint[], ARRAY[p_outcome], ARRAY[p_status]::smallint[], ARRAY[p_retry_us],
                                 ARRAY[CASE WHEN p_outcome = 'ack' THEN pg_temp.receipt(p_node) END])
$$;

-- Settles one round: '<state>' or '<state> settled'.
CREATE FUNCTION pg_temp.settle(p_instance int, p_round_id text) RETURNS text LANGUAGE sql AS $$
    SELECT state || CASE WHEN settled THEN ' settled' ELSE '' END
      FROM quorate_worker.settle(p_instance, true, ARRAY[pg_temp.no(p_round_id)])
$$;

-- Rounds of the past, so that tests need not wait. The guards let the owner write them, as they let him write any open round.

CREATE FUNCTION pg_temp.past_round(p_round_id text, p_quorum int, p_nodes int[], p_ago interval DEFAULT '1 min',
                                   p_deadline interval DEFAULT '10 s', p_freshness interval DEFAULT NULL,
                                   p_after text DEFAULT 'continue', p_owner int DEFAULT 0)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_no bigint;
    v_opened timestamptz := clock_timestamp() - p_ago;
    v_deadline timestamptz := v_opened + least(p_deadline, p_freshness);
BEGIN
    INSERT INTO quorate_store.ledger (round_id, nonce) VALUES (p_round_id, quorate_store.nonce_of(uuid_send(gen_random_uuid()))) RETURNING round_no INTO v_no;
    INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, fresh_until, per_share_timeout, base_backoff,
                                     max_backoff, owner, after_quorum, quorum, retry_budget, node_ids, node_versions)
    VALUES (v_no, v_opened, v_opened + (v_deadline - v_opened) / 2, v_deadline, v_opened + p_freshness, '1 s', '1 ms', '1 ms', p_owner,
            p_after::quorate_store.after_quorum, p_quorum, 4, p_nodes,
            ARRAY(SELECT n.current_version FROM unnest(p_nodes) WITH ORDINALITY u (id, i)
                    JOIN quorate_store.node n ON n.node_id = u.id ORDER BY u.i));
    INSERT INTO quorate_store.delivery (round_no, distributed_at, node_id, payload_bytes, payload_sha256)
    SELECT v_no, v_opened, n, octet_length('share ' || n), sha256(convert_to('share ' || n, 'UTF8')) FROM unnest(p_nodes) n;
    INSERT INTO quorate_store.envelope (round_no, node_id, payload)
    SELECT v_no, n, convert_to('share ' || n, 'UTF8') FROM unnest(p_nodes) n;
    RETURN v_no;
END $$;

-- First attempts of these nodes, half a second after opening; an outcome of NULL: still under way.
CREATE FUNCTION pg_temp.past_attempts(p_round_id text, p_nodes int[], p_outcome text DEFAULT NULL, p_owner int DEFAULT 0)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO quorate_store.attempt (round_no, node_id, route, attempt, owner, reserved_at, finished_at, outcome)
    SELECT r.round_no, n, 'primary', 1, p_owner, r.opened_at, CASE WHEN p_outcome IS NOT NULL THEN r.opened_at + interval '0.5 s' END,
           p_outcome::quorate_store.outcome
      FROM quorate_store.round r, unnest(p_nodes) n WHERE r.round_no = pg_temp.no(p_round_id)
$$;

-- Acks in time of these nodes, with their attempts; and the completion, if p_complete.
CREATE FUNCTION pg_temp.past_acks(p_round_id text, p_nodes int[], p_complete boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_temp.past_attempts(p_round_id, p_nodes, 'ack');
    INSERT INTO quorate_store.ack (round_no, node_id, route, attempt, acked_at, late, receipt)
    SELECT r.round_no, n, 'primary', 1, r.opened_at + interval '0.5 s', false, pg_temp.receipt(n)
      FROM quorate_store.round r, unnest(p_nodes) n WHERE r.round_no = pg_temp.no(p_round_id);
    IF p_complete THEN
        UPDATE quorate_store.round
           SET state = 'complete', closed_at = opened_at + interval '0.5 s', close_reason = 'quorum', quorum_nodes = p_nodes
         WHERE round_no = pg_temp.no(p_round_id);
    END IF;
END $$;

-- Waits until the clock has passed a time that is at most two seconds away.
CREATE FUNCTION pg_temp.pass(p_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_time > clock_timestamp() + interval '2 s' THEN
        RAISE EXCEPTION 'a test must not wait until %', p_time;
    END IF;
    WHILE clock_timestamp() <= p_time LOOP
        PERFORM pg_sleep_for(p_time - clock_timestamp() + interval '1 ms');
    END LOOP;
END $$;

-- DETAIL, HINT or MESSAGE of the error that a statement raises; NULL if it raises none.
CREATE FUNCTION pg_temp.error_of(p_sql text, p_what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_message text; v_detail text; v_hint text;
BEGIN
    EXECUTE p_sql;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS v_message = MESSAGE_TEXT, v_detail = PG_EXCEPTION_DETAIL, v_hint = PG_EXCEPTION_HINT;
    RETURN CASE p_what WHEN 'DETAIL' THEN v_detail WHEN 'HINT' THEN v_hint ELSE v_message END;
END $$;
