-- Submitting rounds: open_round and distribute in one commit, all or nothing, one round or many.

CREATE OR REPLACE FUNCTION quorate_store.refuse_envelopes(
    p_round_ids text[], p_node_ids int[], p_payloads bytea[], p_limit int, p_require_sealed boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_round_id text;
    v_refused text;
BEGIN
    SELECT x.round_id, string_agg(format('node %s: %s, %s bytes', x.node_id, x.verdict, x.bytes), '; ' ORDER BY x.node_id)
      INTO v_round_id, v_refused
      FROM (SELECT p_round_ids[(u.i - 1) / cardinality(p_node_ids) + 1] AS round_id,
                   p_node_ids[(u.i - 1) % cardinality(p_node_ids) + 1] AS node_id, octet_length(u.payload) AS bytes,
                   CASE WHEN octet_length(u.payload) NOT BETWEEN 1 AND p_limit THEN 'invalid_payload'
                        WHEN p_require_sealed AND NOT quorate_store.sealed(u.payload) THEN 'unsealed' END AS verdict
              FROM unnest(p_payloads) WITH ORDINALITY AS u (payload, i)) x
     WHERE x.verdict IS NOT NULL
     GROUP BY x.round_id ORDER BY array_position(p_round_ids, x.round_id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'an envelope of round "%" was refused, so nothing was stored', v_round_id
            USING ERRCODE = 'QR009', DETAIL = v_refused, HINT = format('An envelope has 1 to %s bytes%s.', p_limit,
                                                                            CASE WHEN p_require_sealed THEN ', and in this round it is sealed' ELSE '' END);
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.refuse_envelopes(text[], int[], bytea[], int, boolean) IS
    'Raises QR009 for the first round with an envelope that has no byte or more than p_limit, or, if p_require_sealed, is not sealed.';

CREATE OR REPLACE FUNCTION quorate.submit_round(
    round_id text, quorum int, node_ids int[], payloads bytea[], INOUT nonce bigint DEFAULT NULL,
    per_share_timeout interval DEFAULT '2 s', retry_budget int DEFAULT 4, base_backoff interval DEFAULT '50 ms',
    max_backoff interval DEFAULT '1.5 s', round_deadline interval DEFAULT '8 s', freshness interval DEFAULT NULL,
    after_quorum text DEFAULT 'continue', require_sealed boolean DEFAULT false, OUT opened_at timestamptz, OUT escalate_at timestamptz,
    OUT deadline_at timestamptz, OUT fresh_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    v_fit boolean := quorate_store.check_envelopes(1, node_ids, payloads);
BEGIN
    SELECT n.nonce, n.opened_at, n.escalate_at, n.deadline_at, n.fresh_until INTO nonce, opened_at, escalate_at, deadline_at, fresh_until
      FROM quorate_store.new_rounds(ARRAY[round_id], quorum, node_ids, payloads, nonce, per_share_timeout, retry_budget, base_backoff,
                                    max_backoff, round_deadline, freshness, after_quorum, require_sealed) n;
    PERFORM pg_notify('quorate_work', '');
END $$;
COMMENT ON FUNCTION quorate.submit_round(text, int, int[], bytea[], bigint, interval, int, interval, interval, interval, interval, text, boolean) IS
'open_round and distribute in one commit, all or nothing: the round''s nodes are node_ids, and node_ids[i] is sent payloads[i].
Arguments, result and errors as for open_round; besides, QR009 when an envelope is refused (DETAIL says which and why).';

CREATE OR REPLACE FUNCTION quorate.submit_rounds(
    round_ids text[], quorum int, node_ids int[], payloads bytea[],
    per_share_timeout interval DEFAULT '2 s', retry_budget int DEFAULT 4, base_backoff interval DEFAULT '50 ms',
    max_backoff interval DEFAULT '1.5 s', round_deadline interval DEFAULT '8 s', freshness interval DEFAULT NULL,
    after_quorum text DEFAULT 'continue', require_sealed boolean DEFAULT false)
RETURNS TABLE (round_id text, nonce bigint, opened_at timestamptz, escalate_at timestamptz, deadline_at timestamptz,
               fresh_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    v_fit boolean;
BEGIN
    IF round_ids IS NULL OR array_ndims(round_ids) IS DISTINCT FROM 1 OR array_lower(round_ids, 1) <> 1 OR cardinality(round_ids) > 10000 THEN
        PERFORM quorate_store.invalid(format('%s round ids cannot be submitted in one call', COALESCE(cardinality(round_ids)::text, 'NULL')),
            'Give a plain array of 1 to 10000 of them, subscripted from 1.');
    END IF;
    v_fit := quorate_store.check_envelopes(cardinality(round_ids), node_ids, payloads);
    RETURN QUERY
    SELECT * FROM quorate_store.new_rounds(round_ids, quorum, node_ids, payloads, NULL, per_share_timeout, retry_budget, base_backoff, max_backoff,
                                           round_deadline, freshness, after_quorum, require_sealed);
    PERFORM pg_notify('quorate_work', '');
END $$;
COMMENT ON FUNCTION quorate.submit_rounds(text[], int, int[], bytea[], interval, int, interval, interval, interval, interval, text, boolean) IS
'submit_round for many rounds at once, several times as fast: 1..10000 round ids, all with the same quorum, nodes and policy. payloads: round by
round, in each in the order of node_ids; payloads[(r - 1) * n + k] of round_ids[r] is sent to node_ids[k] of n.
All or nothing: one id that was used, or one envelope that is refused, and none is stored. Nonces are drawn.
Result: a row per round in the order given, otherwise as open_round''s. Errors: as for submit_round.';
