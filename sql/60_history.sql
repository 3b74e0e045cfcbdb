-- The records of the history, made from the rows they are about, and the chain of their hashes; docs/history.md has the format.
--
-- A record is a JSON text as json_build_object writes it. It must come out the same for ever and under any setting: times and durations
-- are whole microseconds, bytes are hexadecimal or base64, and it holds only what does not change any more.
--
-- The small functions are STABLE, as what they call is: the planner would not inline them otherwise, and a call costs ten times its work.

CREATE OR REPLACE FUNCTION quorate_store.us(p_time timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM p_time) * 1000000)::bigint $$;
COMMENT ON FUNCTION quorate_store.us(timestamptz) IS 'Microseconds since 1970.';

CREATE OR REPLACE FUNCTION quorate_store.us(p_duration interval) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM p_duration) * 1000000)::bigint $$;
COMMENT ON FUNCTION quorate_store.us(interval) IS 'Microseconds.';

CREATE OR REPLACE FUNCTION quorate_store.receipt_text(p_receipt bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE octet_length(p_receipt) WHEN 32 THEN 'v1,' ELSE 'v1a,' END || replace(encode(p_receipt, 'base64'), E'\n', '')
$$;
COMMENT ON FUNCTION quorate_store.receipt_text(bytea) IS 'A receipt as its header has it.';

-- The lists of a record are put together as text: json_build_object looks up the type of each argument in each call, which for acks and
-- deliveries is most of the work. What stands in quotes is of base64, hexadecimal digits or an enum: nothing needs an escape.

CREATE OR REPLACE FUNCTION quorate_store.quoted(p_text text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT COALESCE('"' || p_text || '"', 'null') $$;
COMMENT ON FUNCTION quorate_store.quoted(text) IS 'A JSON string of a text that needs no escape.';

CREATE OR REPLACE FUNCTION quorate_store.ack_text(p_ack quorate_store.ack, p_key text, p_sha256 bytea) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT concat('{"node_id" : ', p_ack.node_id, ', "route" : "', p_ack.route, '", "attempt" : ', p_ack.attempt,
                  ', "acked_at" : ', quorate_store.us(p_ack.acked_at), ', "http_status" : ', COALESCE(p_ack.http_status::text, 'null'),
                  ', "late" : ', p_ack.late::text, ', "receipt" : ', quorate_store.quoted(quorate_store.receipt_text(p_ack.receipt)),
                  ', "receipt_key" : ', quorate_store.quoted(p_key), ', "payload_sha256" : ', quorate_store.quoted(encode(p_sha256, 'hex')), '}')
$$;
COMMENT ON FUNCTION quorate_store.ack_text(quorate_store.ack, text, bytea) IS
'An ack in a record, a JSON object with all that is needed to verify its receipt.';

CREATE OR REPLACE FUNCTION quorate_store.part(p_text text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT substr(sha256(convert_to(p_text, 'UTF8')), 1, 4) $$;
COMMENT ON FUNCTION quorate_store.part(text) IS 'What history.parts keeps of a part of a record.';

CREATE OR REPLACE FUNCTION quorate_store.records_of(p_round_nos bigint[], p_gone quorate_store.round[], p_kinds quorate_store.history_kind[], p_whole boolean)
RETURNS TABLE (i bigint, record text, digest bytea, parts bytea)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_versions int[];
    v_keys text[];
BEGIN
    -- Most rounds of a batch have the same few: read once, not once an ack.
    SELECT array_agg(v.version), array_agg(v.receipt_key) INTO v_versions, v_keys FROM quorate_store.node_version v
     WHERE v.version = ANY (ARRAY(SELECT unnest(r.node_versions) FROM quorate_store.round r WHERE r.round_no = ANY (p_round_nos)
                                 UNION SELECT unnest(g.node_versions) FROM unnest(p_gone) g));
    -- Deliveries, acks and attempts come in the order of their primary keys, which the index gives: to sort each few would cost more.
    RETURN QUERY
    SELECT r.ordinality, CASE WHEN p_whole THEN t.record END, sha256(convert_to(t.record, 'UTF8')),
           quorate_store.part(p.ledger) || quorate_store.part(p.round)
           || COALESCE(quorate_store.part(p.deliveries) || quorate_store.part(p.acks), '') || COALESCE(quorate_store.part(p.attempts), '')
      FROM (SELECT r.*, u.ordinality
              FROM unnest(p_round_nos) WITH ORDINALITY AS u (round_no) JOIN quorate_store.round r ON r.round_no = u.round_no
            UNION ALL SELECT g.* FROM unnest(p_gone) WITH ORDINALITY AS g) r
      LEFT JOIN quorate_store.ledger l ON l.round_no = r.round_no
     CROSS JOIN LATERAL (SELECT p_kinds[r.ordinality] IN ('ended', 'settled') AS whole, p_kinds[r.ordinality] = 'settled' AS settled) k
     CROSS JOIN LATERAL (
           SELECT CASE WHEN k.whole THEN
                      concat('[', string_agg(concat('{"node_id" : ', d.node_id, ', "distributed_at" : ', quorate_store.us(d.distributed_at),
                                                    ', "payload_bytes" : ', d.payload_bytes,
                                                    ', "payload_sha256" : ', quorate_store.quoted(encode(d.payload_sha256, 'hex')), '}'), ', '), ']')
                  END AS list,
                  array_agg(d.node_id) AS node_ids, array_agg(d.payload_sha256) AS digests
             FROM (SELECT d.* FROM quorate_store.delivery d WHERE d.round_no = r.round_no AND k.whole ORDER BY d.node_id OFFSET 0) d) d
     CROSS JOIN LATERAL (
           SELECT json_build_object('round_no', r.round_no, 'round_id', l.round_id, 'nonce', l.nonce::text)::text AS ledger,
                  CASE
                  WHEN k.whole THEN json_build_object(
                      'state', CASE r.state WHEN 'dead_lettered' THEN 'complete' ELSE r.state END, 'quorum', r.quorum,
                      'node_ids', r.node_ids, 'node_versions', r.node_versions, 'per_share_timeout', quorate_store.us(r.per_share_timeout),
                      'retry_budget', r.retry_budget, 'base_backoff', quorate_store.us(r.base_backoff),
                      'max_backoff', quorate_store.us(r.max_backoff), 'after_quorum', r.after_quorum, 'require_sealed', r.require_sealed,
                      'opened_at', quorate_store.us(r.opened_at), 'escalate_at', quorate_store.us(r.escalate_at),
                      'escalated_at', quorate_store.us(r.escalated_at), 'deadline_at', quorate_store.us(r.deadline_at),
                      'fresh_until', quorate_store.us(r.fresh_until), 'claimed_at', quorate_store.us(r.claimed_at),
                      'claimed_by', r.claimed_by, 'claimed_nodes', r.claimed_nodes, 'closed_at', quorate_store.us(r.closed_at),
                      'close_reason', r.close_reason, 'quorum_nodes', r.quorum_nodes,
                      'settled_at', CASE WHEN k.settled THEN quorate_store.us(r.settled_at) END, 'owner', CASE WHEN k.settled THEN r.owner END)
                  WHEN p_kinds[r.ordinality] = 'collected' THEN json_build_object('collected_at', quorate_store.us(r.collected_at))
                  ELSE json_build_object('dead_lettered_at', quorate_store.us(r.dead_lettered_at)) END::text AS round,
                  d.list AS deliveries,
                  -- Those up to the end, or up to the settling.
                  CASE WHEN k.whole THEN
                      concat('[', (SELECT string_agg(quorate_store.ack_text(
                                              a, CASE a.key_no WHEN 1 THEN v_keys[array_position(v_versions, r.node_versions[array_position(r.node_ids, a.node_id)])]
                                                               ELSE (SELECT v.other_keys[a.key_no - 1] FROM quorate_store.node_version v
                                                                      WHERE v.version = r.node_versions[array_position(r.node_ids, a.node_id)]) END,
                                              d.digests[array_position(d.node_ids, a.node_id)]), ', ')
                                  FROM (SELECT a.* FROM quorate_store.ack a
                                         WHERE a.round_no = r.round_no
                                           AND CASE WHEN k.settled THEN a.acked_at <= r.settled_at
                                                    WHEN r.quorum_nodes IS NOT NULL THEN a.node_id = ANY (r.quorum_nodes)
                                                    ELSE NOT a.late END
                                         ORDER BY a.node_id OFFSET 0) a), ']') END AS acks,
                  CASE WHEN k.settled THEN
                      COALESCE((SELECT json_agg(json_build_object('node_id', a.node_id, 'route', a.route, 'attempt', a.attempt, 'owner', a.owner,
                                                                  'reserved_at', quorate_store.us(a.reserved_at),
                                                                  'finished_at', quorate_store.us(a.finished_at), 'outcome', a.outcome,
                                                                  'http_status', a.http_status, 'retry_at', quorate_store.us(a.retry_at),
                                                                  'resends', a.resends))
                                  FROM (SELECT a.* FROM quorate_store.attempt a WHERE a.round_no = r.round_no
                                         ORDER BY a.node_id, a.route, a.attempt OFFSET 0) a), '[]')::text END AS attempts
            OFFSET 0) AS p -- a fence: what is named more than once is made once
     CROSS JOIN LATERAL (
           SELECT concat('{"kind" : "', p_kinds[r.ordinality], '", "ledger" : ', p.ledger, ', "round" : ', p.round,
                         ', "deliveries" : ' || p.deliveries, ', "acks" : ' || p.acks, ', "attempts" : ' || p.attempts, '}') AS record OFFSET 0) AS t;
END $$;
COMMENT ON FUNCTION quorate_store.records_of(bigint[], quorate_store.round[], quorate_store.history_kind[], boolean) IS
'The records of rounds that are there (p_round_nos) or have just been deleted (p_gone), one of the two NULL, of these kinds one by one (ended, settled, collected,
dead_lettered). p_whole false: without their texts, whose digests are enough for the chain. i: the place in the arrays; none for a round that is not there.';

CREATE OR REPLACE FUNCTION quorate_store.round_records(p_rounds quorate_store.round[], p_kinds quorate_store.history_kind[])
RETURNS TABLE (i bigint, record text, digest bytea, parts bytea)
LANGUAGE sql STABLE AS $$ SELECT * FROM quorate_store.records_of(NULL, p_rounds, p_kinds, false) $$;
COMMENT ON FUNCTION quorate_store.round_records(quorate_store.round[], quorate_store.history_kind[]) IS 'The records of rounds that have just been deleted, as records_of makes them.';

CREATE OR REPLACE FUNCTION quorate_store.rejection_record(p_row quorate_store.rejection) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT json_build_object('kind', 'rejected', 'rejection_no', p_row.rejection_no, 'rejected_at', quorate_store.us(p_row.rejected_at),
                             'round_id', p_row.round_id, 'node_id', p_row.node_id, 'nonce', p_row.nonce::text, 'verdict', p_row.verdict,
                             'rejected_for', p_row.rejected_for)::text
$$;
COMMENT ON FUNCTION quorate_store.rejection_record(quorate_store.rejection) IS 'The record of a rejection.';

CREATE OR REPLACE FUNCTION quorate_store.with_more(p_record json, p_more json) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT COALESCE(left(p_record::text, -1) || ', ' || substr(p_more::text, 2), p_record::text) $$;
COMMENT ON FUNCTION quorate_store.with_more(json, json) IS
'A record with what came into the format later; without that (NULL) it is, to the byte, what it was before, as the chain has it.';

CREATE OR REPLACE FUNCTION quorate_store.single_record(p_key bigint, p_kind quorate_store.history_kind, p_digests json) RETURNS text
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
    CASE p_kind
    WHEN 'began' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'deployment_id', d.deployment_id, 'rounds', i.rounds, 'rejections', i.rejections)
                  FROM quorate_store.deployment d, quorate_store.history_import i);
    WHEN 'imported' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'rounds', i.rounds, 'rejections', i.rejections) FROM quorate_store.history_import i);
    WHEN 'deployment' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'deployment_id', d.deployment_id, 'max_envelope_bytes', d.max_envelope_bytes,
                                         'created_at', quorate_store.us(d.created_at)) FROM quorate_store.deployment d);
    WHEN 'coordinator' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'instance_no', c.instance_no, 'instance_id', c.instance_id, 'name', c.name,
                                         'lease', quorate_store.us(c.lease), 'started_at', quorate_store.us(c.started_at),
                                         'ended_at', quorate_store.us(c.ended_at), 'end_reason', c.end_reason)
                  FROM quorate_store.coordinator c WHERE c.instance_no = p_key);
    WHEN 'node' THEN
        RETURN (SELECT quorate_store.with_more(
                           json_build_object('kind', p_kind, 'node_id', n.node_id, 'current_version', n.current_version, 'enabled', n.enabled),
                           CASE WHEN n.keys_until IS NOT NULL THEN json_build_object('keys_until',
                               CASE WHEN isfinite(n.keys_until) THEN to_json(quorate_store.us(n.keys_until)) ELSE to_json(n.keys_until::text) END) END)
                  FROM quorate_store.node n WHERE n.node_id = p_key);
    WHEN 'node_version' THEN
        RETURN (SELECT quorate_store.with_more(
                           json_build_object('kind', p_kind, 'version', v.version, 'node_id', v.node_id, 'url', v.url, 'backup_url', v.backup_url,
                                             'receipt_key', v.receipt_key, 'seal_key', v.seal_key, 'created_at', quorate_store.us(v.created_at)),
                           CASE WHEN v.other_keys <> '{}' THEN json_build_object('other_keys', v.other_keys) END)
                  FROM quorate_store.node_version v WHERE v.version = p_key);
    WHEN 'node_key' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'key_no', k.key_no, 'node_id', k.node_id, 'key', k.key,
                                         'valid_from', quorate_store.us(k.valid_from), 'valid_until', quorate_store.us(k.valid_until),
                                         'revoked_at', quorate_store.us(k.revoked_at), 'added_at', quorate_store.us(k.added_at))
                  FROM quorate_store.node_key k WHERE k.key_no = p_key);
    WHEN 'acked' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'ledger', json_build_object('round_no', l.round_no, 'round_id', l.round_id, 'nonce', l.nonce::text),
                           'acks', json_agg(quorate_store.ack_text(k, (v.receipt_key || v.other_keys)[k.key_no], d.payload_sha256)::json ORDER BY k.node_id))
                  FROM quorate_store.ack k
                  JOIN quorate_store.round r ON r.round_no = k.round_no AND k.acked_at > r.settled_at
                  JOIN quorate_store.ledger l ON l.round_no = k.round_no
                  LEFT JOIN quorate_store.delivery d ON d.round_no = k.round_no AND d.node_id = k.node_id
                  LEFT JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, k.node_id)]
                 WHERE k.round_no = p_key GROUP BY l.round_no, l.round_id, l.nonce);
    WHEN 'pruned' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'round_no', l.round_no, 'round_id', l.round_id, 'nonce', l.nonce::text,
                                         'pruned_at', quorate_store.us(l.pruned_at), 'settled', p_digests -> 'settled' ->> 0, 'collected', p_digests -> 'collected' ->> 0,
                                         'dead_lettered', p_digests -> 'dead_lettered' ->> 0)
                  FROM quorate_store.ledger l WHERE l.round_no = p_key AND l.pruned_at IS NOT NULL);
    WHEN 'rejected' THEN
        RETURN (SELECT quorate_store.rejection_record(j) FROM quorate_store.rejection j WHERE j.rejection_no = p_key);
    WHEN 'forgotten' THEN
        RETURN json_build_object('kind', p_kind, 'rejection_no', p_key, 'rejected', p_digests -> 'rejected' ->> 0);
    WHEN 'checkpoint' THEN
        RETURN (SELECT json_build_object('kind', p_kind, 'checkpoint_no', c.checkpoint_no, 'seq', c.seq, 'at', quorate_store.us(c.at),
                                         'hash', encode(c.hash, 'hex'), 'key', c.key, 'signature', encode(c.signature, 'hex'))
                  FROM quorate_store.checkpoint c WHERE c.checkpoint_no = p_key);
    ELSE
        RETURN NULL;
    END CASE;
END $$;
COMMENT ON FUNCTION quorate_store.single_record(bigint, quorate_store.history_kind, json) IS
'The record of one row of a kind that records_of does not make; NULL when there is no such row. p_digests: of the records of rows that have gone, as
history_due.note has them.';

CREATE OR REPLACE FUNCTION quorate_store.is_of_round(p_kind quorate_store.history_kind) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT p_kind IN ('ended', 'settled', 'collected', 'dead_lettered') $$;
COMMENT ON FUNCTION quorate_store.is_of_round(quorate_store.history_kind) IS 'Whether records_of makes the record.';

CREATE OR REPLACE FUNCTION quorate_store.is_kept(p_kind quorate_store.history_kind) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT p_kind IN ('began', 'imported', 'deployment', 'coordinator', 'node', 'node_key', 'acked') $$;
COMMENT ON FUNCTION quorate_store.is_kept(quorate_store.history_kind) IS 'Whether history.record keeps the record, since its row changes and keeps no past.';

CREATE OR REPLACE FUNCTION quorate_store.records_now(p_keys bigint[], p_kinds quorate_store.history_kind[], p_digests json[], p_whole boolean)
RETURNS TABLE (i bigint, record text, digest bytea, parts bytea)
LANGUAGE plpgsql STABLE SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_round_nos bigint[];
    v_kinds quorate_store.history_kind[];
    v_places bigint[];
BEGIN
    SELECT array_agg(u.key), array_agg(u.kind), array_agg(u.i) INTO v_round_nos, v_kinds, v_places
      FROM unnest(p_keys, p_kinds) WITH ORDINALITY AS u (key, kind, i) WHERE quorate_store.is_of_round(u.kind);
    RETURN QUERY SELECT v_places[q.i], q.record, q.digest, q.parts FROM quorate_store.records_of(v_round_nos, NULL, v_kinds, p_whole) q;
    RETURN QUERY
    SELECT x.i, x.record, sha256(convert_to(x.record, 'UTF8')), ''::bytea
      FROM (SELECT u.i, quorate_store.single_record(u.key, u.kind, p_digests[u.i]) AS record
              FROM unnest(p_keys, p_kinds) WITH ORDINALITY AS u (key, kind, i) WHERE NOT quorate_store.is_of_round(u.kind) OFFSET 0) x
     WHERE x.record IS NOT NULL;
END $$;
COMMENT ON FUNCTION quorate_store.records_now(bigint[], quorate_store.history_kind[], json[], boolean) IS
'The records of these keys and kinds, as the rows are now; none where the rows have gone. p_whole false: of rounds only the digests. i: the place in the arrays.';

CREATE OR REPLACE FUNCTION quorate_store.rounds_without_record(p_from bigint, p_upto bigint)
RETURNS TABLE (key bigint, kind quorate_store.history_kind)
LANGUAGE plpgsql STABLE SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH lacking AS MATERIALIZED (
        SELECT l.round_no, e.kind
          FROM quorate_store.ledger l
          LEFT JOIN quorate_store.round r ON r.round_no = l.round_no
         CROSS JOIN LATERAL (VALUES ('ended'::quorate_store.history_kind, r.closed_at IS NOT NULL AND r.settled_at IS NULL), ('settled', r.settled_at IS NOT NULL),
                                    ('acked', r.settled_at IS NOT NULL AND EXISTS (
                                         SELECT FROM quorate_store.ack k WHERE k.round_no = r.round_no AND k.acked_at > r.settled_at)),
                                    ('collected', r.collected_at IS NOT NULL), ('dead_lettered', r.dead_lettered_at IS NOT NULL),
                                    ('pruned', l.pruned_at IS NOT NULL)) AS e (kind, happened)
         WHERE l.round_no BETWEEN p_from AND p_upto AND e.happened
           AND (SELECT true FROM quorate_store.history h WHERE h.key = l.round_no AND h.kind = e.kind LIMIT 1) IS NULL)
    SELECT k.round_no, k.kind FROM lacking k
     WHERE NOT EXISTS (SELECT FROM quorate_store.history_due d WHERE d.key = k.round_no AND d.kind = k.kind)
     ORDER BY k.round_no, k.kind;
END $$;
COMMENT ON FUNCTION quorate_store.rounds_without_record(bigint, bigint) IS
'What the rounds of these numbers have been through that has no record and is not due. The record of the settling is one of the end, too.';

CREATE OR REPLACE FUNCTION quorate_store.chain_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 8175562158424584565 $$;
COMMENT ON FUNCTION quorate_store.chain_lock() IS 'The advisory lock of who makes the chain longer: one at a time.';

CREATE OR REPLACE FUNCTION quorate_store.import_more(p_room int, OUT keys bigint[], OUT kinds quorate_store.history_kind[])
LANGUAGE plpgsql AS $$
DECLARE
    v_import quorate_store.history_import;
    v_upto bigint;
BEGIN
    SELECT i.* INTO v_import FROM quorate_store.history_import i
     WHERE NOT EXISTS (SELECT FROM quorate_store.history h WHERE h.key = 0 AND h.kind = 'imported');
    IF v_import.singleton IS NULL OR p_room < 3 THEN
        RETURN;
    END IF;
    IF v_import.next_round <= v_import.rounds THEN
        v_upto := least(v_import.rounds, v_import.next_round + p_room / 3);
        SELECT array_agg(m.key), array_agg(m.kind) INTO keys, kinds
          FROM quorate_store.rounds_without_record(v_import.next_round, v_upto) m;
        UPDATE quorate_store.history_import SET next_round = v_upto + 1;
    ELSIF v_import.next_rejection <= v_import.rejections THEN
        v_upto := least(v_import.rejections, v_import.next_rejection + p_room);
        SELECT array_agg(j.rejection_no ORDER BY j.rejection_no), array_agg('rejected'::quorate_store.history_kind) INTO keys, kinds
          FROM quorate_store.rejection j WHERE j.rejection_no BETWEEN v_import.next_rejection AND v_upto;
        UPDATE quorate_store.history_import SET next_rejection = v_upto + 1;
    ELSE
        keys := '{0}';
        kinds := '{imported}';
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.import_more(int) IS
'What of the time before the history goes into the chain next; both NULL when nothing is left, or nothing in this piece.';

CREATE OR REPLACE FUNCTION quorate_store.entry_digest(p_seq bigint, p_kind quorate_store.history_kind, p_key bigint, p_at timestamptz, p_digest bytea, p_parts bytea)
RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(convert_to(concat_ws('.', 'quorate-entry-v1', p_seq, p_kind, p_key, quorate_store.us(p_at), encode(p_digest, 'hex'),
                                       encode(p_parts, 'hex')), 'UTF8'))
$$;
COMMENT ON FUNCTION quorate_store.entry_digest(bigint, quorate_store.history_kind, bigint, timestamptz, bytea, bytea) IS
'What an entry adds to the chain: hash = SHA-256(hash before, this).';

CREATE OR REPLACE FUNCTION quorate_store.append_history(p_keys bigint[], p_kinds quorate_store.history_kind[], p_digests json[]) RETURNS int
LANGUAGE plpgsql SET jit = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_seq bigint;
    v_hash bytea;
    v_entries bytea[];
    v_entry bytea;
    v_hashes bytea[] := '{}';
    v_new record;
BEGIN
    SELECT h.seq, h.hash INTO v_seq, v_hash FROM quorate_store.history h ORDER BY h.seq DESC LIMIT 1;
    IF v_seq IS NULL THEN
        SELECT 0, sha256(convert_to('quorate-history-v1.' || d.deployment_id, 'UTF8')) INTO v_seq, v_hash FROM quorate_store.deployment d;
        p_keys := 0::bigint || p_keys;
        p_kinds := 'began'::quorate_store.history_kind || p_kinds;
        p_digests := NULL::json || p_digests;
    END IF;
    SELECT array_agg(x.digest ORDER BY x.i) AS digests, array_agg(x.parts ORDER BY x.i) AS parts, array_agg(x.record ORDER BY x.i) AS records,
           array_agg(quorate_store.entry_digest(v_seq + x.i, x.kind, x.key, v_now, x.digest, x.parts) ORDER BY x.i) AS entries INTO v_new
      FROM (SELECT u.i, u.key, u.kind,
                   COALESCE(n.digest, decode(g.note ->> 0, 'hex'), sha256(convert_to(g.lost, 'UTF8'))) AS digest,
                   COALESCE(n.parts, decode(g.note ->> 1, 'hex'), '') AS parts,
                   CASE WHEN quorate_store.is_kept(u.kind) THEN COALESCE(n.record, g.lost) WHEN n.i IS NULL AND g.note IS NULL THEN g.lost END AS record
              FROM unnest(p_keys, p_kinds) WITH ORDINALITY AS u (key, kind, i)
              LEFT JOIN quorate_store.records_now(p_keys, p_kinds, p_digests, false) n ON n.i = u.i
              -- The row has gone meanwhile, and its last digest is due as well; or someone has taken it away by hand.
              LEFT JOIN LATERAL (
                   SELECT (SELECT d.note -> u.kind::text FROM quorate_store.history_due d
                            WHERE d.key = u.key AND d.kind IN ('pruned', 'forgotten')
                              AND d.kind = CASE u.kind WHEN 'rejected' THEN 'forgotten' ELSE 'pruned' END::quorate_store.history_kind
                            LIMIT 1) AS note,
                          json_build_object('kind', u.kind, 'key', u.key, 'lost', true)::text AS lost
                    OFFSET 0) g ON n.i IS NULL) x;
    FOREACH v_entry IN ARRAY v_new.entries LOOP
        v_hash := sha256(v_hash || v_entry);
        v_hashes := v_hashes || v_hash;
    END LOOP;
    INSERT INTO quorate_store.history (seq, at, key, kind, digest, hash, parts, record)
    SELECT v_seq + u.i, v_now, u.key, u.kind, u.digest, u.hash, u.parts, u.record
      FROM unnest(p_keys, p_kinds, v_new.digests, v_hashes, v_new.parts, v_new.records) WITH ORDINALITY AS u (key, kind, digest, hash, parts, record, i);
    RETURN cardinality(v_hashes);
END $$;
COMMENT ON FUNCTION quorate_store.append_history(bigint[], quorate_store.history_kind[], json[]) IS
'Makes the chain longer by entries of these keys and kinds; the chain''s lock is held. p_digests: the notes of pruned and forgotten. Result: how many.';

CREATE OR REPLACE FUNCTION quorate_worker.chain(
    p_max int, p_key text, OUT chained int, OUT more boolean, OUT seq bigint, OUT hash bytea, OUT now_us bigint, OUT unsigned bigint,
    OUT unsigned_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_nos bigint[];
    v_keys bigint[];
    v_kinds quorate_store.history_kind[];
    v_notes json[];
    v_old record;
    v_signed bigint;
BEGIN
    chained := 0;
    more := false;
    IF NOT pg_try_advisory_xact_lock(quorate_store.chain_lock()) THEN
        RETURN; -- a peer is at it
    END IF;
    SELECT array_agg(x.due_no ORDER BY x.due_no), array_agg(x.key ORDER BY x.due_no), array_agg(x.kind ORDER BY x.due_no),
           array_agg(x.note ORDER BY x.due_no) INTO v_nos, v_keys, v_kinds, v_notes
      FROM (SELECT d.* FROM quorate_store.history_due d ORDER BY d.due_no LIMIT p_max) x;
    -- Who settles before the end is in the chain leaves one record for both.
    SELECT array_agg(u.key ORDER BY u.i), array_agg(u.kind ORDER BY u.i), array_agg(u.note ORDER BY u.i) INTO v_keys, v_kinds, v_notes
      FROM (SELECT k.*, bool_or(k.kind = 'settled') OVER (PARTITION BY k.key) AS settles
              FROM unnest(v_keys, v_kinds, v_notes) WITH ORDINALITY AS k (key, kind, note, i)) u
     WHERE u.kind <> 'ended' OR NOT u.settles;
    v_old := quorate_store.import_more(p_max - COALESCE(cardinality(v_nos), 0));
    v_keys := v_keys || v_old.keys;
    v_kinds := v_kinds || v_old.kinds;
    IF 'pruned' = ANY (v_kinds) OR 'forgotten' = ANY (v_kinds) THEN
        -- Rows that went before the import came to them: their digests are in the note.
        SELECT array_agg(x.key ORDER BY x.i, x.j), array_agg(x.kind ORDER BY x.i, x.j), array_agg(x.note ORDER BY x.i, x.j)
          INTO v_keys, v_kinds, v_notes
          FROM (SELECT u.i, 99 AS j, u.key, u.kind, u.note FROM unnest(v_keys, v_kinds, v_notes) WITH ORDINALITY AS u (key, kind, note, i)
                UNION ALL
                SELECT u.i, b.j, u.key, b.kind::quorate_store.history_kind, NULL
                  FROM unnest(v_keys, v_kinds, v_notes) WITH ORDINALITY AS u (key, kind, note, i)
                 CROSS JOIN LATERAL json_object_keys(u.note) WITH ORDINALITY AS b (kind, j)
                 WHERE b.kind <> 'ended'
                   AND (SELECT true FROM quorate_store.history h WHERE h.key = u.key AND h.kind = b.kind::quorate_store.history_kind LIMIT 1) IS NULL
                   AND NOT EXISTS (SELECT FROM unnest(v_keys, v_kinds) AS o (key, kind)
                                    WHERE o.key = u.key AND o.kind = b.kind::quorate_store.history_kind)) x;
    END IF;
    IF cardinality(v_keys) > 0 THEN
        chained := quorate_store.append_history(v_keys, v_kinds, v_notes);
        DELETE FROM quorate_store.history_due d WHERE d.due_no = ANY (v_nos);
    END IF;
    more := COALESCE(cardinality(v_nos) >= p_max, false) OR v_old.keys IS NOT NULL;
    SELECT h.seq, h.hash INTO seq, hash FROM quorate_store.history h ORDER BY h.seq DESC LIMIT 1;
    v_signed := COALESCE((SELECT max(c.seq) FROM quorate_store.checkpoint c WHERE c.key = p_key), 0);
    now_us := quorate_store.us(clock_timestamp());
    -- (abs: a clock that was set back must not put the next signature off.)
    SELECT chain.seq - v_signed, abs(now_us - quorate_store.us(h.at)) INTO unsigned, unsigned_us
      FROM quorate_store.history h WHERE h.seq > v_signed AND h.kind <> 'checkpoint' ORDER BY h.seq LIMIT 1;
END $$;
COMMENT ON FUNCTION quorate_worker.chain(int, text) IS
'Puts up to p_max of what has happened into the chain, and, where there is room, of what was there before the history began. One at a time: who comes second
does nothing (seq is NULL then). Result: how many entries were added, whether more wait, the head of the chain, the database''s clock; and how many entries the key
p_key has not signed, and for how many microseconds the first of them has been waiting (NULL: none, or only records of checkpoints).';

CREATE OR REPLACE FUNCTION quorate_worker.links(p_after bigint, p_upto bigint) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN (SELECT string_agg(quorate_store.entry_digest(h.seq, h.kind, h.key, h.at, h.digest, h.parts), ''::bytea ORDER BY h.seq)
              FROM quorate_store.history h WHERE h.seq > p_after AND h.seq <= p_upto);
END $$;
COMMENT ON FUNCTION quorate_worker.links(bigint, bigint) IS
'What each entry after p_after up to p_upto adds to the chain, 32 bytes each: whoever signs the head makes sure that it follows from what was signed before.';

CREATE OR REPLACE FUNCTION quorate_worker.signed(p_key text, OUT seq bigint, OUT at_us bigint, OUT hash bytea, OUT signature bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
BEGIN
    SELECT c.seq, quorate_store.us(c.at), c.hash, c.signature INTO seq, at_us, hash, signature
      FROM quorate_store.checkpoint c WHERE c.key = p_key ORDER BY c.seq DESC LIMIT 1;
END $$;
COMMENT ON FUNCTION quorate_worker.signed(text) IS
'The newest checkpoint of this key: where a coordinator that has just started goes on signing. NULLs when there is none.';

CREATE OR REPLACE FUNCTION quorate_worker.checkpoint(p_seq bigint, p_hash bytea, p_at_us bigint, p_key text, p_signature bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO quorate_store.checkpoint (seq, at, hash, signature, key)
    SELECT h.seq, 'epoch'::timestamptz + p_at_us * interval '1 microsecond', h.hash, p_signature, p_key
      FROM quorate_store.history h WHERE h.seq = p_seq AND h.hash = p_hash
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION quorate_worker.checkpoint(bigint, bytea, bigint, text, bytea) IS
'Stores a signature over the chain up to entry p_seq, made by the caller with its audit key; false when the chain does not have that hash there, or the key has
signed it already.';
