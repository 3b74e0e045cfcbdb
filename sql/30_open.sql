-- Opening rounds: nonce, quorum, nodes and policy are fixed here, for ever.

CREATE OR REPLACE FUNCTION quorate_store.check_policy(
    p_round_ids text[], p_quorum int, p_nonce bigint, p_timeout interval, p_budget int, p_base interval, p_max interval,
    p_deadline interval, p_freshness interval, p_after text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_longest CONSTANT interval := make_interval(secs => 3155760000); -- 100 years
    v_life interval := least(p_deadline, p_freshness);
    v_round_id text;
BEGIN
    SELECT COALESCE(u, 'NULL') INTO v_round_id FROM unnest(p_round_ids) AS u WHERE (u ~ '^[A-Za-z0-9_-]{1,128}$') IS NOT TRUE LIMIT 1;
    IF FOUND THEN
        PERFORM quorate_store.invalid(format('round id "%s" is malformed', left(v_round_id, 200)), 'Use 1 to 128 of A-Z, a-z, 0-9, _ and -.');
    END IF;
    IF p_quorum IS NULL OR p_quorum < 1 THEN
        PERFORM quorate_store.invalid(format('quorum %s is below 1', COALESCE(p_quorum::text, 'NULL')),
            'Use 1 up to the number of nodes.');
    END IF;
    IF p_nonce < 1 THEN
        PERFORM quorate_store.invalid(format('nonce %s is not positive', p_nonce), 'Use 1 to 9223372036854775807, or NULL for a random one.');
    END IF;
    IF num_nulls(p_timeout, p_budget, p_base, p_max, p_deadline, p_after) > 0 THEN
        PERFORM quorate_store.invalid('a policy argument is NULL', 'Only freshness may be NULL; leave the others out for their defaults.');
    END IF;
    IF p_budget NOT BETWEEN 1 AND 100 THEN
        PERFORM quorate_store.invalid(format('retry_budget %s is out of range', p_budget), 'Use 1 to 100.');
    END IF;
    IF least(p_timeout, p_base, p_max, p_deadline, p_freshness) <= interval '0'
       OR greatest(p_timeout, p_base, p_max, p_deadline, p_freshness) > v_longest THEN
        PERFORM quorate_store.invalid(format('a duration is out of range: per_share_timeout %s, base_backoff %s, max_backoff %s, '
            'round_deadline %s, freshness %s', p_timeout, p_base, p_max, p_deadline, COALESCE(p_freshness::text, 'none')),
            'Every duration must be above 0 and at most 100 years.');
    END IF;
    IF p_base > p_max THEN
        PERFORM quorate_store.invalid(format('base_backoff %s is above max_backoff %s', p_base, p_max));
    END IF;
    IF p_budget * p_max >= v_life THEN
        PERFORM quorate_store.invalid(
            format('retry_budget %s x max_backoff %s does not fit before the deadline after %s', p_budget, p_max, v_life),
            'Keep retry_budget x max_backoff below least(round_deadline, freshness).');
    END IF;
    IF p_after NOT IN ('continue', 'stop') THEN
        PERFORM quorate_store.invalid(format('after_quorum "%s" is unknown', left(p_after, 50)), 'Use continue or stop.');
    END IF;
    RETURN true;
END $$;
COMMENT ON FUNCTION quorate_store.check_policy(text[], int, bigint, interval, int, interval, interval, interval, interval, text) IS
    'Raises QR007 unless rounds could be opened so.';

CREATE OR REPLACE FUNCTION quorate_store.choose_nodes(p_quorum int, p_node_ids int[], OUT node_ids smallint[], OUT versions int[])
LANGUAGE plpgsql AS $$
DECLARE
    v_asked int := cardinality(p_node_ids);
    v_overdue boolean; -- a key of one of them began or ended, and no coordinator has seen to it yet
BEGIN
    IF array_ndims(p_node_ids) > 1 OR array_position(p_node_ids, NULL) IS NOT NULL THEN
        PERFORM quorate_store.invalid('node_ids must be a plain array of node ids without NULL');
    END IF;
    IF v_asked > 255 THEN
        PERFORM quorate_store.invalid(format('%s nodes are too many', v_asked), 'A round has at most 255.');
    END IF;
    SELECT array_agg(x.node_id), array_agg(x.current_version), bool_or(x.keys_until <= clock_timestamp()) INTO node_ids, versions, v_overdue
      FROM (SELECT n.node_id, n.current_version, n.keys_until FROM quorate_store.node n
             WHERE n.enabled AND (p_node_ids IS NULL OR n.node_id = ANY (p_node_ids)) ORDER BY n.node_id) x;
    IF v_asked <> COALESCE(cardinality(node_ids), 0) THEN
        IF v_asked <> (SELECT count(DISTINCT a) FROM unnest(p_node_ids) a) THEN
            PERFORM quorate_store.invalid(format('a node stands twice in %s', p_node_ids));
        END IF;
        RAISE EXCEPTION 'unknown or disabled node %',
            (SELECT string_agg(a::text, ', ' ORDER BY a) FROM unnest(p_node_ids) a
              WHERE a <> ALL (COALESCE(choose_nodes.node_ids, '{}')))
            USING ERRCODE = 'QR008', HINT = 'quorate.nodes lists them.';
    END IF;
    IF COALESCE(cardinality(node_ids), 0) = 0 THEN
        PERFORM quorate_store.invalid('a round needs at least one node', 'Name enabled nodes, or add some with add_node.');
    END IF;
    IF cardinality(node_ids) > 255 THEN
        PERFORM quorate_store.invalid(format('%s nodes are enabled', cardinality(node_ids)), 'Name at most 255 of them.');
    END IF;
    IF p_quorum > cardinality(node_ids) THEN
        PERFORM quorate_store.invalid(format('quorum %s is above the number of nodes, %s', p_quorum, cardinality(node_ids)));
    END IF;
    IF v_overdue THEN
        versions := quorate_store.versions_now(node_ids);
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.choose_nodes(int, int[]) IS
    'The nodes of new rounds, ascending, with the version of each that the rounds keep. Errors: QR007, QR008.';

CREATE OR REPLACE FUNCTION quorate_store.refuse_used(p_round_ids text[], p_entered text[], p_nonce bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_used record;
BEGIN
    SELECT l.round_id, l.nonce, r.state INTO v_used
      FROM quorate_store.ledger l LEFT JOIN quorate_store.round r ON r.round_no = l.round_no
     WHERE l.round_id = ANY (p_round_ids) AND l.round_id <> ALL (COALESCE(p_entered, '{}')) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'round id "%" is already used', v_used.round_id
            USING ERRCODE = 'QR006', HINT = 'A round id is used once, for ever.',
                  DETAIL = format('The existing round has nonce %s and state %s.', v_used.nonce, COALESCE(v_used.state::text, 'pruned'));
    ELSIF p_round_ids <@ p_entered THEN
        PERFORM quorate_store.invalid('a round id stands twice in one call');
    ELSIF p_nonce IS NOT NULL THEN
        RAISE EXCEPTION 'nonce % is already used', p_nonce
            USING ERRCODE = 'QR005', HINT = 'A nonce is used once, for ever; NULL draws a fresh one.';
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.refuse_used(text[], text[], bigint) IS
    'Says why the ledger took only p_entered of these round ids: QR006, QR007 or QR005. Returns if none is so: a drawn nonce met a used one.';

CREATE OR REPLACE FUNCTION quorate_store.enter_ledger(p_round_ids text[], p_nonce bigint, OUT round_nos bigint[], OUT nonces bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    v_ids text[];
BEGIN
    LOOP
        -- In one order for everybody, so that two calls with the same ids never deadlock.
        WITH entered AS (
            INSERT INTO quorate_store.ledger AS l (round_id, nonce)
            SELECT x.round_id, COALESCE(p_nonce, quorate_store.nonce_of(x.uuid))
              FROM (SELECT u AS round_id, uuid_send(gen_random_uuid()) AS uuid FROM unnest(p_round_ids) AS u
                     WHERE v_ids IS NULL OR u <> ALL (v_ids) ORDER BY u COLLATE "C") x
            ON CONFLICT DO NOTHING RETURNING l.round_no, l.round_id, l.nonce)
        SELECT round_nos || array_agg(e.round_no), v_ids || array_agg(e.round_id), nonces || array_agg(e.nonce)
          INTO round_nos, v_ids, nonces FROM entered e;
        EXIT WHEN cardinality(v_ids) = cardinality(p_round_ids);
        PERFORM quorate_store.refuse_used(p_round_ids, v_ids, p_nonce);
        -- A drawn nonce met a used one (once in 2^63 / rounds): draw again.
    END LOOP;
    IF v_ids <> p_round_ids THEN
        -- Back into the order given, by sorting alone: a search for each id would cost the square of their number.
        SELECT array_agg(e.round_no ORDER BY e.round_id COLLATE "C"), array_agg(e.nonce ORDER BY e.round_id COLLATE "C") INTO round_nos, nonces
          FROM unnest(round_nos, nonces, v_ids) AS e (round_no, nonce, round_id);
        SELECT array_agg(round_nos[p.place] ORDER BY p.i), array_agg(nonces[p.place] ORDER BY p.i) INTO round_nos, nonces
          FROM (SELECT u.i, row_number() OVER (ORDER BY u.round_id COLLATE "C") AS place
                  FROM unnest(p_round_ids) WITH ORDINALITY AS u (round_id, i)) p;
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.enter_ledger(text[], bigint) IS
    'Writes round ids, each with p_nonce or, if that is NULL, a drawn one, into the permanent ledger. Result: in the order given. Errors: QR006, QR005, QR007.';

CREATE OR REPLACE FUNCTION quorate_store.new_rounds(
    p_round_ids text[], p_quorum int, p_node_ids int[], p_payloads bytea[], p_nonce bigint, p_timeout interval, p_budget int,
    p_base interval, p_max interval, p_deadline interval, p_freshness interval, p_after text,
    p_require_sealed boolean)
RETURNS TABLE (round_id text, nonce bigint, opened_at timestamptz, escalate_at timestamptz, deadline_at timestamptz,
               fresh_until timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Months and days become hours, as comparisons see them: a calendar or a time zone never moves a deadline.
    v_life interval := make_interval(secs => extract(epoch FROM p_deadline)::float8);
    v_freshness interval := make_interval(secs => extract(epoch FROM p_freshness)::float8);
    v_checked boolean := quorate_store.check_policy(p_round_ids, p_quorum, p_nonce, p_timeout, p_budget, p_base, p_max, v_life,
                                                    v_freshness, p_after);
    -- Before its nodes are looked at: a round that is opened at or after the moment when a key begins or ends knows that.
    v_opened timestamptz := clock_timestamp();
    v_nodes record := quorate_store.choose_nodes(p_quorum, p_node_ids);
    v_fresh timestamptz := v_opened + v_freshness;
    v_deadline timestamptz := least(v_opened + v_life, v_fresh);
    v_escalate timestamptz := v_opened + make_interval(secs => extract(epoch FROM v_deadline - v_opened)::float8 / 2);
    v_nos bigint[];
    v_nonces bigint[];
    v_limit int;
BEGIN
    IF p_require_sealed IS NULL THEN
        PERFORM quorate_store.invalid('require_sealed is NULL', 'Use true or false, or leave it out.');
    END IF;
    SELECT e.round_nos, e.nonces INTO v_nos, v_nonces FROM quorate_store.enter_ledger(p_round_ids, p_nonce) e;
    SELECT d.max_envelope_bytes INTO v_limit FROM quorate_store.deployment d
     WHERE p_require_sealed OR EXISTS (SELECT FROM unnest(p_payloads) AS u WHERE octet_length(u) NOT BETWEEN 1 AND d.max_envelope_bytes);
    IF FOUND THEN
        PERFORM quorate_store.refuse_envelopes(p_round_ids, p_node_ids, p_payloads, v_limit, p_require_sealed);
    END IF;
    RETURN QUERY
    WITH opened AS (
        INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, fresh_until, per_share_timeout, base_backoff,
                                         max_backoff, after_quorum, quorum, retry_budget, node_ids, node_versions, require_sealed)
        SELECT u, v_opened, v_escalate, v_deadline, v_fresh, p_timeout, p_base, p_max, p_after::quorate_store.after_quorum,
               p_quorum, p_budget, v_nodes.node_ids, v_nodes.versions, p_require_sealed FROM unnest(v_nos) AS u),
    shares AS MATERIALIZED (
        SELECT n.round_no, p_node_ids[k] AS node_id, p_payloads[(n.i - 1) * cardinality(p_node_ids) + k] AS payload
          FROM unnest(v_nos) WITH ORDINALITY AS n (round_no, i) CROSS JOIN generate_series(1, cardinality(p_node_ids)) AS k
         WHERE p_payloads IS NOT NULL),
    delivered AS (
        INSERT INTO quorate_store.delivery (round_no, distributed_at, node_id, payload_sha256, payload_bytes)
        SELECT s.round_no, v_opened, s.node_id, sha256(s.payload), octet_length(s.payload) FROM shares s),
    enveloped AS (
        INSERT INTO quorate_store.envelope (round_no, node_id, payload) SELECT s.round_no, s.node_id, s.payload FROM shares s)
    SELECT n.round_id, n.nonce, v_opened, v_escalate, v_deadline, v_fresh
      FROM unnest(p_round_ids, v_nonces) WITH ORDINALITY AS n (round_id, nonce, i) ORDER BY n.i;
END $$;
COMMENT ON FUNCTION quorate_store.new_rounds(text[], int, int[], bytea[], bigint, interval, int, interval, interval, interval, interval, text, boolean) IS
    'What open_round, submit_round and submit_rounds share: checks, the ledger entries, the rounds, and, unless p_payloads is NULL, their envelopes, '
    'round by round in the order of p_node_ids.';

CREATE OR REPLACE FUNCTION quorate.open_round(
    round_id text, quorum int, node_ids int[] DEFAULT NULL, INOUT nonce bigint DEFAULT NULL,
    per_share_timeout interval DEFAULT '2 s', retry_budget int DEFAULT 4, base_backoff interval DEFAULT '50 ms',
    max_backoff interval DEFAULT '1.5 s', round_deadline interval DEFAULT '8 s', freshness interval DEFAULT NULL,
    after_quorum text DEFAULT 'continue', require_sealed boolean DEFAULT false, OUT opened_at timestamptz, OUT escalate_at timestamptz,
    OUT deadline_at timestamptz, OUT fresh_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
BEGIN
    SELECT n.nonce, n.opened_at, n.escalate_at, n.deadline_at, n.fresh_until INTO nonce, opened_at, escalate_at, deadline_at, fresh_until
      FROM quorate_store.new_rounds(ARRAY[round_id], quorum, node_ids, NULL, nonce, per_share_timeout, retry_budget, base_backoff, max_backoff,
                                    round_deadline, freshness, after_quorum, require_sealed) n;
END $$;
COMMENT ON FUNCTION quorate.open_round(text, int, int[], bigint, interval, int, interval, interval, interval, interval, text, boolean) IS
'Opens a round and fixes its nonce, quorum, nodes (with their URLs and keys as they are now) and policy for ever.
round_id: 1..128 of [A-Za-z0-9_-], used once for ever. quorum: 1..number of nodes. node_ids: 1..255 distinct enabled nodes; NULL: every enabled one.
nonce: > 0, used once for ever; NULL: drawn from a CSPRNG. per_share_timeout: the longest one attempt may take. retry_budget: attempts per route, 1..100.
base_backoff, max_backoff: the wait between attempts is uniform in [0, backoff], which doubles from base_backoff up to max_backoff (full jitter).
round_deadline: when the round stalls below quorum. freshness: how long the result may be collected; NULL: for ever.
after_quorum: continue (deliver to the remaining nodes too) or stop. require_sealed: take only sealed envelopes. All durations > 0 and <= 100 years; retry_budget x max_backoff < least(round_deadline, freshness).
Result: one row with the nonce and the times fixed, by the database''s clock at the call.
Errors: QR005 nonce used, QR006 round id used (checked first), QR007 invalid, QR008 unknown or disabled node, or one without a valid key.';
