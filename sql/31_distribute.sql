-- Distributing envelopes: each gets its verdict, and every refusal is a row.

CREATE OR REPLACE FUNCTION quorate_store.check_envelopes(p_rounds int, p_node_ids int[], p_payloads bytea[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_bytes bigint := 0;
    v_payload bytea;
BEGIN
    IF p_node_ids IS NULL OR p_payloads IS NULL OR cardinality(p_node_ids) * p_rounds <> cardinality(p_payloads)
       OR array_ndims(p_node_ids) > 1 OR array_ndims(p_payloads) > 1
       OR array_lower(p_node_ids, 1) <> 1 OR array_lower(p_payloads, 1) <> 1 THEN
        PERFORM quorate_store.invalid(format('%s node ids stand against %s payloads',
            COALESCE((cardinality(p_node_ids) * p_rounds)::text, 'NULL'), COALESCE(cardinality(p_payloads)::text, 'NULL')),
            'Give two plain arrays that fit together, subscripted from 1.');
    END IF;
    IF cardinality(p_node_ids) > 32767 THEN
        PERFORM quorate_store.invalid(format('one call names %s nodes', cardinality(p_node_ids)), 'There are at most 32767.');
    END IF;
    IF array_position(p_node_ids, NULL) IS NOT NULL THEN
        PERFORM quorate_store.invalid('a node id is NULL');
    END IF;
    FOREACH v_payload IN ARRAY p_payloads LOOP
        IF v_payload IS NULL THEN
            PERFORM quorate_store.invalid('a payload is NULL');
        END IF;
        v_bytes := v_bytes + octet_length(v_payload);
    END LOOP;
    IF v_bytes > 268435456 THEN
        PERFORM quorate_store.invalid(format('the payloads of one call have %s bytes', v_bytes), 'Keep them at 268435456 (256 MiB) or fewer.');
    END IF;
    RETURN true;
END $$;
COMMENT ON FUNCTION quorate_store.check_envelopes(int, int[], bytea[]) IS
    'Raises QR007 unless there is a payload for each node of each of p_rounds rounds, and all of them pass the limit of one call.';

CREATE OR REPLACE FUNCTION quorate.distribute(round_id text, nonce bigint, node_ids int[], payloads bytea[])
RETURNS TABLE (node_id int, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_round record;
    v_limit int;
    v_digest bytea;
    v_known bytea;
    v_verdict quorate_store.verdict;
    v_accepted boolean := false;
BEGIN
    PERFORM quorate_store.check_envelopes(1, node_ids, payloads);
    IF round_id IS NULL OR nonce IS NULL THEN
        PERFORM quorate_store.invalid('distribute needs a round id and a nonce, not NULL');
    END IF;
    SELECT d.max_envelope_bytes INTO v_limit FROM quorate_store.deployment d;
    -- The round's row lock: it cannot end, nor be claimed, between a verdict and this transaction's commit.
    SELECT r.round_no, r.state, r.deadline_at, r.node_ids, r.require_sealed, l.nonce INTO v_round
      FROM quorate_store.ledger l JOIN quorate_store.round r ON r.round_no = l.round_no
     WHERE l.round_id = distribute.round_id
       FOR UPDATE OF r;
    FOR i IN 1 .. cardinality(node_ids) LOOP
        v_digest := sha256(payloads[i]);
        v_known := NULL;
        IF v_round.round_no IS NOT NULL THEN
            SELECT d.payload_sha256 INTO v_known FROM quorate_store.delivery d
             WHERE d.round_no = v_round.round_no AND d.node_id = distribute.node_ids[i];
        END IF;
        v_verdict := CASE
            WHEN v_round.round_no IS NULL THEN 'unknown_round'
            WHEN v_round.nonce <> distribute.nonce THEN 'stale_nonce'
            WHEN node_ids[i] <> ALL (v_round.node_ids) THEN 'unknown_node'
            WHEN octet_length(payloads[i]) NOT BETWEEN 1 AND v_limit THEN 'invalid_payload'
            WHEN v_round.require_sealed AND NOT quorate_store.sealed(payloads[i]) THEN 'unsealed'
            WHEN v_known = v_digest THEN 'duplicate'
            WHEN v_known IS NOT NULL THEN 'conflict'
            WHEN v_round.state <> 'open' OR clock_timestamp() > v_round.deadline_at THEN 'round_closed'
            ELSE 'accepted' END;
        IF v_verdict = 'accepted' THEN
            INSERT INTO quorate_store.delivery (round_no, node_id, payload_sha256, payload_bytes)
            VALUES (v_round.round_no, node_ids[i], v_digest, octet_length(payloads[i]))
            ON CONFLICT DO NOTHING; -- only an old snapshot gets here: 40001, not 23505
            INSERT INTO quorate_store.envelope (round_no, node_id, payload) VALUES (v_round.round_no, node_ids[i], payloads[i]);
            v_accepted := true;
        ELSIF v_verdict <> 'duplicate' THEN
            INSERT INTO quorate_store.rejection (round_id, node_id, nonce, verdict)
            VALUES (left(distribute.round_id, 128), node_ids[i], distribute.nonce, v_verdict);
        END IF;
        RETURN QUERY SELECT distribute.node_ids[i], v_verdict::text;
    END LOOP;
    IF v_accepted THEN
        UPDATE quorate_store.round r SET news = true WHERE r.round_no = v_round.round_no;
        PERFORM pg_notify('quorate_work', '');
    END IF;
END $$;
COMMENT ON FUNCTION quorate.distribute(text, bigint, int[], bytea[]) IS
'Stores envelopes of an open round for delivery. nonce: the round''s own. node_ids[i] is sent payloads[i]: 1 byte..16 MiB each, at most 32767 and 256 MiB in one call.
Result: one row per envelope in the order given, with the first verdict that matches: unknown_round, stale_nonce, unknown_node, invalid_payload,
unsealed (by its first bytes, in a round that was opened with require_sealed), duplicate (the same bytes as before by SHA-256: harmless), conflict,
round_closed, accepted. Refusals do not abort the caller''s other envelopes; each is a row in quorate.rejections.
Errors: QR007 for NULLs, arrays that do not fit together and too many bytes. Locks: the round''s row, until the transaction ends: commit soon.';

CREATE OR REPLACE FUNCTION quorate.seal_keys(round_id text)
RETURNS TABLE (node_id int, seal_key text, require_sealed boolean, deployment_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT v.node_id::int, v.seal_key, r.require_sealed, p.deployment_id
      FROM quorate_store.ledger l
      JOIN quorate_store.round r ON r.round_no = l.round_no
     CROSS JOIN quorate_store.deployment p
     CROSS JOIN unnest(r.node_versions) WITH ORDINALITY AS u (version, i)
      JOIN quorate_store.node_version v ON v.version = u.version
     WHERE l.round_id = seal_keys.round_id
     ORDER BY u.i;
    IF NOT FOUND THEN
        PERFORM quorate_store.unknown_round(COALESCE(round_id, 'NULL'));
    END IF;
END $$;
COMMENT ON FUNCTION quorate.seal_keys(text) IS
'What a dealer needs to seal the envelopes of a round: a row per node, ascending, with the key that it had when the round was opened (NULL: none), whether the round
takes only sealed ones, and the deployment id, which is sealed in. Errors: QR003 unknown round. Locks: none.';

-- Whoever may distribute may ask for the keys.
INSERT INTO quorate_saved_grants (nspname, proname, grantee, privilege_type, is_grantable)
SELECT g.nspname, 'seal_keys', g.grantee, g.privilege_type, g.is_grantable
  FROM quorate_saved_grants g WHERE g.nspname = 'quorate' AND g.proname = 'distribute';
