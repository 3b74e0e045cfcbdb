-- What an auditor's program asks for to verify the history: the chain beside the records as the rows would make them now, and rows without a record.

CREATE OR REPLACE FUNCTION quorate_store.digests_of(p_key bigint, p_kind quorate_store.history_kind) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_kind NOT IN ('pruned', 'forgotten') THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT json_object_agg(x.kind, json_build_array(encode(x.digest, 'hex')))
              FROM (SELECT DISTINCT ON (h.kind) h.kind, h.digest FROM quorate_store.history h
                     WHERE h.key = p_key AND CASE p_kind WHEN 'pruned' THEN quorate_store.is_of_round(h.kind) ELSE h.kind = 'rejected' END
                     ORDER BY h.kind, h.seq) x);
END $$;
COMMENT ON FUNCTION quorate_store.digests_of(bigint, quorate_store.history_kind) IS
'The digests that the chain has of the records of rows that are said to have gone.';

CREATE OR REPLACE FUNCTION quorate_store.is_due(p_key bigint, p_kinds quorate_store.history_kind[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM quorate_store.history_due d WHERE d.key = p_key AND d.kind = ANY (p_kinds));
END $$;
COMMENT ON FUNCTION quorate_store.is_due(bigint, quorate_store.history_kind[]) IS 'Whether something of these kinds has happened to the key and is not in the chain yet.';

CREATE OR REPLACE FUNCTION quorate_store.has_gone(p_key bigint, p_kind quorate_store.history_kind) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_by quorate_store.history_kind := CASE WHEN quorate_store.is_of_round(p_kind) OR p_kind = 'acked' THEN 'pruned'
                                            WHEN p_kind = 'rejected' THEN 'forgotten' END;
BEGIN
    RETURN v_by IS NOT NULL
       AND (EXISTS (SELECT FROM quorate_store.history h WHERE h.key = p_key AND h.kind = v_by)
            OR quorate_store.is_due(p_key, ARRAY[v_by]));
END $$;
COMMENT ON FUNCTION quorate_store.has_gone(bigint, quorate_store.history_kind) IS 'Whether the row that such a record is about was deleted by the rules.';

CREATE OR REPLACE FUNCTION quorate.history_entries(after_seq bigint, max_entries int)
RETURNS TABLE (seq bigint, at_us bigint, kind text, key bigint, digest bytea, hash bytea, parts bytea, record text, row_parts bytea, verdict text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_slice record;
BEGIN
    SELECT array_agg(x.key ORDER BY x.seq) AS keys, array_agg(x.kind ORDER BY x.seq) AS kinds,
           array_agg(quorate_store.digests_of(x.key, x.kind) ORDER BY x.seq) AS digests, array_agg(x.seq ORDER BY x.seq) AS seqs INTO v_slice
      FROM (SELECT h.seq, h.key, h.kind FROM quorate_store.history h WHERE h.seq > after_seq ORDER BY h.seq LIMIT max_entries) x;
    RETURN QUERY
    SELECT h.seq, quorate_store.us(h.at), h.kind::text, h.key, h.digest, h.hash, h.parts,
           CASE WHEN quorate_store.is_kept(h.kind) THEN h.record ELSE n.record END, COALESCE(n.parts, ''),
           CASE WHEN n.i IS NULL THEN CASE WHEN quorate_store.has_gone(h.key, h.kind) THEN 'gone' ELSE 'missing' END
                WHEN NOT quorate_store.is_kept(h.kind) THEN CASE WHEN h.record IS NULL THEN 'row' ELSE 'kept for nothing' END
                WHEN h.record = n.record
                     OR (SELECT true FROM quorate_store.history o WHERE o.key = h.key AND o.kind = h.kind AND o.seq > h.seq LIMIT 1)
                     OR quorate_store.is_due(h.key, ARRAY[h.kind]) THEN 'kept'
                ELSE 'changed' END
      FROM unnest(v_slice.seqs) WITH ORDINALITY AS u (seq, i)
      JOIN quorate_store.history h ON h.seq = u.seq
      LEFT JOIN quorate_store.records_now(v_slice.keys, v_slice.kinds, v_slice.digests, true) n ON n.i = u.i
     ORDER BY h.seq;
END $$;
COMMENT ON FUNCTION quorate.history_entries(bigint, int) IS
'Entries of the chain after after_seq, ascending, at most max_entries, each with the record that its digest is to be of: made of the rows as they are now, or, where
rows change and keep no past, as it was kept. verdict: row (made of the rows), kept, changed (kept, but the row is not as the newest record says), gone
(the rows were deleted by the rules), missing (the rows are not there, and no rule let them go), or kept for nothing. Never a payload. Errors: none of its own.';

CREATE OR REPLACE FUNCTION quorate.history_gaps(after_round bigint, max_rounds int)
RETURNS TABLE (upto bigint, source text, key text, problem text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_upto bigint := (SELECT max(x.round_no) FROM (SELECT l.round_no FROM quorate_store.ledger l WHERE l.round_no > after_round
                                                    ORDER BY l.round_no LIMIT max_rounds) x);
    v_last boolean := v_upto IS NULL OR NOT EXISTS (SELECT FROM quorate_store.ledger l WHERE l.round_no > v_upto);
    v_to bigint := CASE WHEN v_last THEN 9223372036854775807 ELSE v_upto END;
    v_from bigint := CASE WHEN after_round = 0 THEN -9223372036854775808 ELSE after_round + 1 END;
    v_old bigint := (SELECT i.rounds FROM quorate_store.history_import i
                      WHERE NOT EXISTS (SELECT FROM quorate_store.history h WHERE h.key = 0 AND h.kind = 'imported'));
BEGIN
    RETURN QUERY SELECT CASE WHEN NOT v_last THEN v_upto END, NULL, NULL, NULL;
    RETURN QUERY
    SELECT v_upto, 'quorate_store.' || CASE m.kind WHEN 'acked' THEN 'ack' WHEN 'pruned' THEN 'ledger' ELSE 'round' END, m.key::text,
           format('there is no record that round_no %s was %s', m.key, m.kind)
      FROM quorate_store.rounds_without_record(v_from, v_to) m WHERE m.key > COALESCE(v_old, 0);
    RETURN QUERY
    SELECT v_upto, 'quorate_store.ledger', l.round_no::text, format('round_no %s has gone without being pruned', l.round_no)
      FROM quorate_store.ledger l WHERE l.round_no BETWEEN v_from AND v_to AND l.pruned_at IS NULL
       AND NOT EXISTS (SELECT FROM quorate_store.round r WHERE r.round_no = l.round_no);
    RETURN QUERY
    SELECT v_upto, 'quorate_store.round', r.round_no::text, format('round_no %s has no entry in the ledger, or was pruned', r.round_no)
      FROM quorate_store.round r WHERE r.round_no BETWEEN v_from AND v_to
       AND NOT EXISTS (SELECT FROM quorate_store.ledger l WHERE l.round_no = r.round_no AND l.pruned_at IS NULL);
    RETURN QUERY
    SELECT v_upto, 'quorate_store.' || c.source, format('(%s, %s)', c.round_no, c.node_id), format('round_no %s, whose row this would be, is not there', c.round_no)
      FROM (SELECT 'delivery' AS source, d.round_no, d.node_id FROM quorate_store.delivery d WHERE d.round_no BETWEEN v_from AND v_to
            UNION ALL SELECT 'attempt', a.round_no, a.node_id FROM quorate_store.attempt a WHERE a.round_no BETWEEN v_from AND v_to
            UNION ALL SELECT 'ack', k.round_no, k.node_id FROM quorate_store.ack k WHERE k.round_no BETWEEN v_from AND v_to
            UNION ALL SELECT 'envelope', e.round_no, e.node_id FROM quorate_store.envelope e WHERE e.round_no BETWEEN v_from AND v_to) c
     WHERE NOT EXISTS (SELECT FROM quorate_store.round r WHERE r.round_no = c.round_no AND (c.source <> 'envelope' OR r.settled_at IS NULL));
    IF v_last THEN
        RETURN QUERY
        SELECT NULL::bigint, 'quorate_store.' || CASE x.kind WHEN 'rejected' THEN 'rejection' ELSE x.kind::text END, x.key::text, format('there is no record of it')
          FROM (SELECT 'deployment'::quorate_store.history_kind AS kind, 0::bigint AS key FROM quorate_store.deployment
                UNION ALL SELECT 'node_version', v.version FROM quorate_store.node_version v
                UNION ALL SELECT 'node', n.node_id FROM quorate_store.node n
                UNION ALL SELECT 'node_key', k.key_no FROM quorate_store.node_key k
                UNION ALL SELECT 'coordinator', c.instance_no FROM quorate_store.coordinator c
                UNION ALL SELECT 'checkpoint', c.checkpoint_no FROM quorate_store.checkpoint c
                UNION ALL SELECT 'rejected', j.rejection_no FROM quorate_store.rejection j
                           WHERE j.rejection_no > COALESCE((SELECT i.rejections FROM quorate_store.history_import i WHERE v_old IS NOT NULL), 0)) x
         WHERE (SELECT true FROM quorate_store.history h WHERE h.key = x.key AND h.kind = x.kind LIMIT 1) IS NULL
           AND NOT EXISTS (SELECT FROM quorate_store.history_due d WHERE d.key = x.key AND d.kind = x.kind);
        RETURN QUERY
        SELECT NULL::bigint, 'quorate_store.checkpoint', c.checkpoint_no::text,
               format('it signs %s entries, which the history has not, or not with that hash: the newest were cut off, or it is forged', c.seq)
          FROM quorate_store.checkpoint c
         WHERE (SELECT h.hash FROM quorate_store.history h WHERE h.seq = c.seq) IS DISTINCT FROM c.hash;
    END IF;
END $$;
COMMENT ON FUNCTION quorate.history_gaps(bigint, int) IS
'Rows that should have a record in the history and have none, or belong to nothing: those of max_rounds rounds after round_no after_round, ascending (0: from the
beginning), and with the last ones those of all other tables. The first row has only upto: where to go on, NULL when that was all. Errors: none of its own.';

CREATE OR REPLACE FUNCTION quorate.history_status(OUT deployment_id text, OUT entries bigint, OUT hash bytea, OUT due bigint, OUT importing boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    SELECT d.deployment_id INTO deployment_id FROM quorate_store.deployment d;
    SELECT h.seq, h.hash INTO entries, hash FROM quorate_store.history h ORDER BY h.seq DESC LIMIT 1;
    entries := COALESCE(entries, 0);
    due := (SELECT count(*) FROM quorate_store.history_due);
    importing := NOT EXISTS (SELECT FROM quorate_store.history h WHERE h.key = 0 AND h.kind = 'imported');
END $$;
COMMENT ON FUNCTION quorate.history_status() IS
'How long the chain is, its head, how much has happened that is not in it yet, and whether what was there before it is still being taken over. Errors: none of its own.';

CREATE OR REPLACE FUNCTION quorate.history_of(round_id text)
RETURNS TABLE (seq bigint, at_us bigint, kind text, key bigint, digest bytea, parts bytea, record text, before bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_round_no bigint := (SELECT l.round_no FROM quorate_store.ledger l WHERE l.round_id = history_of.round_id);
BEGIN
    IF v_round_no IS NULL THEN
        PERFORM quorate_store.unknown_round(round_id);
    END IF;
    RETURN QUERY
    SELECT e.seq, e.at_us, e.kind, e.key, e.digest, e.parts, e.record,
           (SELECT o.hash FROM quorate_store.history o WHERE o.seq = e.seq - 1)
      FROM quorate_store.history h CROSS JOIN LATERAL quorate.history_entries(h.seq - 1, 1) e
     WHERE h.key = v_round_no AND (quorate_store.is_of_round(h.kind) OR h.kind IN ('acked', 'pruned'))
     ORDER BY e.seq;
END $$;
COMMENT ON FUNCTION quorate.history_of(text) IS
'The entries of one round, each with its record (NULL once its rows have gone) and the hash before it. Errors: QR003.';

CREATE OR REPLACE FUNCTION quorate.history_links(after_seq bigint, upto_seq bigint)
RETURNS TABLE (link bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    RETURN QUERY
    SELECT quorate_store.entry_digest(h.seq, h.kind, h.key, h.at, h.digest, h.parts)
      FROM quorate_store.history h WHERE h.seq > after_seq AND h.seq <= upto_seq ORDER BY h.seq;
END $$;
COMMENT ON FUNCTION quorate.history_links(bigint, bigint) IS
'What each entry after after_seq up to upto_seq adds to the chain: hash = SHA-256(hash before, link). Errors: none of its own.';

-- (Of no function of ours: those can be dropped and made anew under it.)
CREATE OR REPLACE VIEW quorate.checkpoints AS
SELECT c.checkpoint_no, c.seq, c.at, encode(c.hash, 'hex') AS hash, c.key,
       'v1a,' || translate(encode(c.signature, 'base64'), E'\n', '') AS signature,
       format('quorate-checkpoint-v1.%s.%s.%s.%s %s v1a,%s', d.deployment_id, c.seq, encode(c.hash, 'hex'), (extract(epoch FROM c.at) * 1000000)::bigint, c.key,
              translate(encode(c.signature, 'base64'), E'\n', '')) AS line
  FROM quorate_store.checkpoint c CROSS JOIN quorate_store.deployment d;
COMMENT ON VIEW quorate.checkpoints IS
'Signatures over the chain of the history: when it had seq entries it ended with hash. line: what is to be kept elsewhere: the signed text, the key, the signature.';
