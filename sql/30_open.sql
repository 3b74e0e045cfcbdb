-- Opening rounds: nonce, quorum, nodes and policy are fixed here, for ever.

CREATE OR REPLACE FUNCTION quorate_store.check_policy(
    p_round_id text, p_quorum int, p_nonce bigint, p_timeout interval, p_budget int, p_base interval, p_max interval,
    p_deadline interval, p_freshness interval, p_after text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_longest CONSTANT interval := make_interval(secs => 3155760000); -- 100 years
    v_life interval := least(p_deadline, p_freshness);
BEGIN
    IF p_round_id IS NULL OR p_round_id !~ '^[A-Za-z0-9_-]{1,128}$' THEN
        PERFORM quorate_store.invalid(format('round id "%s" is malformed', left(COALESCE(p_round_id, 'NULL'), 200)),
            'Use 1 to 128 of A-Z, a-z, 0-9, _ and -.');
    END IF;
    IF p_quorum IS NULL OR p_quorum < 1 THEN
        PERFORM quorate_store.invalid(format('quorum %s is below 1', COALESCE(p_quorum::text, 'NULL')),
            'Use 1 up to the number of nodes.');
    END IF;
    IF p_nonce < 1 THEN
        PERFORM quorate_store.invalid(format('nonce %s is not positive', p_nonce), 'Use 1 to 9223372036854775807, or NULL for a random one.');
    END IF;
    IF p_timeout IS NULL OR p_budget IS NULL OR p_base IS NULL OR p_max IS NULL OR p_deadline IS NULL OR p_after IS NULL THEN
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
END $$;
COMMENT ON FUNCTION quorate_store.check_policy(text, int, bigint, interval, int, interval, interval, interval, interval, text) IS
    'Raises QR007 unless a round could be opened so.';

CREATE OR REPLACE FUNCTION quorate_store.choose_nodes(p_quorum int, p_node_ids int[], OUT node_ids smallint[], OUT versions int[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_asked int := cardinality(p_node_ids);
BEGIN
    IF array_ndims(p_node_ids) > 1 OR array_position(p_node_ids, NULL) IS NOT NULL THEN
        PERFORM quorate_store.invalid('node_ids must be a plain array of node ids without NULL');
    END IF;
    IF v_asked > 255 THEN
        PERFORM quorate_store.invalid(format('%s nodes are too many', v_asked), 'A round has at most 255.');
    END IF;
    SELECT array_agg(n.node_id ORDER BY n.node_id), array_agg(n.current_version ORDER BY n.node_id)
      INTO node_ids, versions
      FROM quorate_store.node n
     WHERE n.enabled AND (p_node_ids IS NULL OR n.node_id = ANY (p_node_ids));
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
END $$;
COMMENT ON FUNCTION quorate_store.choose_nodes(int, int[]) IS
    'The nodes of a new round, ascending, with the version of each that the round keeps. Errors: QR007, QR008.';

CREATE OR REPLACE FUNCTION quorate_store.enter_ledger(p_round_id text, p_nonce bigint) RETURNS quorate_store.ledger
LANGUAGE plpgsql AS $$
DECLARE
    v_entry quorate_store.ledger;
    v_state text;
BEGIN
    LOOP
        INSERT INTO quorate_store.ledger (round_id, nonce)
        VALUES (p_round_id, COALESCE(p_nonce, quorate_store.random_nonce()))
        ON CONFLICT DO NOTHING
        RETURNING * INTO v_entry;
        IF FOUND THEN
            RETURN v_entry;
        END IF;
        SELECT l.* INTO v_entry FROM quorate_store.ledger l WHERE l.round_id = p_round_id;
        IF FOUND THEN
            SELECT r.state::text INTO v_state FROM quorate_store.round r WHERE r.round_no = v_entry.round_no;
            RAISE EXCEPTION 'round id "%" is already used', p_round_id
                USING ERRCODE = 'QR006', HINT = 'A round id is used once, for ever.',
                      DETAIL = format('The existing round has nonce %s and state %s.', v_entry.nonce, COALESCE(v_state, 'pruned'));
        END IF;
        IF p_nonce IS NOT NULL THEN
            RAISE EXCEPTION 'nonce % is already used', p_nonce
                USING ERRCODE = 'QR005', HINT = 'A nonce is used once, for ever; NULL draws a fresh one.';
        END IF;
        -- A drawn nonce met a used one (once in 2^63 / rounds): draw again.
    END LOOP;
END $$;
COMMENT ON FUNCTION quorate_store.enter_ledger(text, bigint) IS
    'Writes a round id and a nonce (NULL: drawn) into the permanent ledger. Errors: QR006, QR005.';

CREATE OR REPLACE FUNCTION quorate_store.new_round(
    p_round_id text, p_quorum int, p_node_ids int[], p_nonce bigint, p_timeout interval, p_budget int, p_base interval,
    p_max interval, p_deadline interval, p_freshness interval, p_after text,
    OUT round_no bigint, OUT nonce bigint, OUT opened_at timestamptz, OUT escalate_at timestamptz, OUT deadline_at timestamptz,
    OUT fresh_until timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    v_nodes record;
    v_entry quorate_store.ledger;
    -- Months and days become hours, as comparisons see them: a calendar or a time zone never moves a deadline.
    v_deadline interval := make_interval(secs => extract(epoch FROM p_deadline)::float8);
    v_freshness interval := make_interval(secs => extract(epoch FROM p_freshness)::float8);
BEGIN
    PERFORM quorate_store.check_policy(p_round_id, p_quorum, p_nonce, p_timeout, p_budget, p_base, p_max, v_deadline,
                                       v_freshness, p_after);
    SELECT * INTO v_nodes FROM quorate_store.choose_nodes(p_quorum, p_node_ids);
    v_entry := quorate_store.enter_ledger(p_round_id, p_nonce);
    round_no := v_entry.round_no;
    nonce := v_entry.nonce;
    opened_at := clock_timestamp();
    fresh_until := opened_at + v_freshness;
    deadline_at := least(opened_at + v_deadline, fresh_until);
    escalate_at := opened_at + make_interval(secs => extract(epoch FROM deadline_at - opened_at)::float8 / 2);
    INSERT INTO quorate_store.round (round_no, opened_at, escalate_at, deadline_at, fresh_until, per_share_timeout, base_backoff,
                                     max_backoff, after_quorum, quorum, retry_budget, node_ids, node_versions)
    VALUES (round_no, opened_at, escalate_at, deadline_at, fresh_until, p_timeout, p_base, p_max,
            p_after::quorate_store.after_quorum, p_quorum, p_budget, v_nodes.node_ids, v_nodes.versions);
END $$;
COMMENT ON FUNCTION quorate_store.new_round(text, int, int[], bigint, interval, int, interval, interval, interval, interval, text) IS
    'What open_round and submit_round share: checks, the ledger entry and the round itself.';

CREATE FUNCTION quorate.open_round(
    round_id text, quorum int, node_ids int[] DEFAULT NULL, INOUT nonce bigint DEFAULT NULL,
    per_share_timeout interval DEFAULT '2 s', retry_budget int DEFAULT 4, base_backoff interval DEFAULT '50 ms',
    max_backoff interval DEFAULT '1.5 s', round_deadline interval DEFAULT '8 s', freshness interval DEFAULT NULL,
    after_quorum text DEFAULT 'continue', OUT opened_at timestamptz, OUT escalate_at timestamptz, OUT deadline_at timestamptz,
    OUT fresh_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    v_round record;
BEGIN
    SELECT * INTO v_round
      FROM quorate_store.new_round(round_id, quorum, node_ids, nonce, per_share_timeout, retry_budget, base_backoff, max_backoff,
                                   round_deadline, freshness, after_quorum);
    nonce := v_round.nonce;
    opened_at := v_round.opened_at;
    escalate_at := v_round.escalate_at;
    deadline_at := v_round.deadline_at;
    fresh_until := v_round.fresh_until;
END $$;
COMMENT ON FUNCTION quorate.open_round(text, int, int[], bigint, interval, int, interval, interval, interval, interval, text) IS
'Opens a round and fixes its nonce, quorum, nodes (with their URLs and keys as they are now) and policy for ever.
round_id: 1..128 of [A-Za-z0-9_-], used once for ever. quorum: 1..number of nodes. node_ids: 1..255 distinct enabled nodes; NULL: every enabled one.
nonce: > 0, used once for ever; NULL: drawn from a CSPRNG. per_share_timeout: the longest one attempt may take. retry_budget: attempts per route, 1..100.
base_backoff, max_backoff: the wait between attempts is uniform in [0, backoff], which doubles from base_backoff up to max_backoff (full jitter).
round_deadline: when the round stalls below quorum. freshness: how long the result may be collected; NULL: for ever.
after_quorum: continue (deliver to the remaining nodes too) or stop. All durations > 0 and <= 100 years; retry_budget x max_backoff < least(round_deadline, freshness).
Result: one row with the nonce and the times fixed, by the database''s clock at the call.
Errors: QR005 nonce used, QR006 round id used (checked first), QR007 invalid, QR008 unknown or disabled node.';
