-- Keys of nodes: several may be valid at one time, each in its window. Those that are valid when a round is opened stand in the version
-- of the node that the round keeps.
--
-- node.current_version is that version as long as node.keys_until has not passed; after that coordinators bring the node up to date, and
-- dealers who come before them find the version for themselves. These write and lock no node: a dealer who dawdles in its transaction
-- holds up neither other dealers nor whoever revokes a key.

CREATE OR REPLACE FUNCTION quorate_store.version_for(p_node_id smallint, p_url text, p_backup_url text, p_keys text[], p_seal_key text)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_version int;
BEGIN
    SELECT v.version INTO v_version FROM quorate_store.node_version v
     WHERE v.node_id = p_node_id AND v.url = p_url AND v.backup_url IS NOT DISTINCT FROM p_backup_url AND v.receipt_key = p_keys[1]
       AND v.other_keys = p_keys[2:] AND v.seal_key IS NOT DISTINCT FROM p_seal_key
     ORDER BY v.version DESC LIMIT 1;
    IF v_version IS NULL THEN
        INSERT INTO quorate_store.node_version (node_id, url, backup_url, receipt_key, other_keys, seal_key)
        VALUES (p_node_id, p_url, p_backup_url, p_keys[1], p_keys[2:], p_seal_key) RETURNING version INTO v_version;
    END IF;
    RETURN v_version;
END $$;
COMMENT ON FUNCTION quorate_store.version_for(smallint, text, text, text[], text) IS
'The version of a node with these URLs and keys (receipt keys newest first), made if there is none.';

CREATE OR REPLACE FUNCTION quorate_store.version_at(p_node_id smallint, p_at timestamptz, OUT version int, OUT keys_until timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    v_before quorate_store.node_version;
    v_since timestamptz := (SELECT n.keys_until FROM quorate_store.node n WHERE n.node_id = p_node_id AND isfinite(n.keys_until));
    v_keys text[];
    v_seal_key text;
BEGIN
    SELECT v.* INTO v_before FROM quorate_store.node n JOIN quorate_store.node_version v ON v.version = n.current_version
     WHERE n.node_id = p_node_id;
    SELECT array_agg(k.key ORDER BY k.valid_from DESC, k.key_no DESC) FILTER (WHERE k.valid AND NOT starts_with(k.key, 'qbox_')),
           (array_agg(k.key ORDER BY k.valid_from DESC, k.key_no DESC) FILTER (WHERE k.valid AND starts_with(k.key, 'qbox_')))[1],
           least(min(k.valid_from) FILTER (WHERE k.valid_from > p_at), min(k.valid_until) FILTER (WHERE k.valid_until > p_at))
      INTO v_keys, v_seal_key, keys_until
      FROM (SELECT x.*, x.valid_from <= p_at AND (x.valid_until IS NULL OR x.valid_until > p_at) AS valid FROM quorate_store.node_key x
             WHERE x.node_id = p_node_id AND x.valid_until IS DISTINCT FROM x.valid_from
               AND NOT EXISTS (SELECT FROM quorate_store.node_key r WHERE r.node_id = x.node_id AND r.key = x.key AND r.revoked_at IS NOT NULL)) k;
    -- Whoever sealed to the node must not begin to send what anybody can read, only because a key ended: one that the node has, or one that
    -- began since it was brought up to date.
    IF v_keys IS NULL
       OR v_seal_key IS NULL AND (v_before.seal_key IS NOT NULL
                                  OR EXISTS (SELECT FROM quorate_store.node_key k
                                              WHERE k.node_id = p_node_id AND starts_with(k.key, 'qbox_') AND k.valid_from BETWEEN v_since AND p_at
                                                AND k.valid_until IS DISTINCT FROM k.valid_from
                                                AND (k.revoked_at IS NULL OR k.revoked_at > k.valid_from))) THEN
        keys_until := '-infinity';
        RETURN;
    END IF;
    -- Not more than a version holds, whatever stands in the table.
    v_keys := ARRAY(SELECT u FROM unnest(v_keys) WITH ORDINALITY AS u (u, i) WHERE left(u, 5) = left(v_keys[1], 5) ORDER BY i
                     LIMIT CASE WHEN starts_with(v_keys[1], 'whid_') THEN 1 ELSE quorate_store.max_receipt_keys() END);
    version := quorate_store.version_for(p_node_id, v_before.url, v_before.backup_url, v_keys, v_seal_key);
END $$;
COMMENT ON FUNCTION quorate_store.version_at(smallint, timestamptz) IS
'The version of a node with the keys that are valid at that time, found or made, and until when it is the right one (NULL: nothing is going to change). version NULL,
keys_until -infinity: it has no valid receipt key, or no valid sealing key any more.';

CREATE OR REPLACE FUNCTION quorate_store.max_receipt_keys() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 8 $$;
COMMENT ON FUNCTION quorate_store.max_receipt_keys() IS 'How many receipt keys of a node may be valid at one time: a coordinator tries them one after the other.';

CREATE OR REPLACE FUNCTION quorate_store.no_valid_key(p_node_id smallint, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_seals boolean;
    v_ended timestamptz;
BEGIN
    v_seals := EXISTS (SELECT FROM quorate_store.node_key k
                        WHERE k.node_id = p_node_id AND NOT starts_with(k.key, 'qbox_') AND k.revoked_at IS NULL AND k.valid_from <= p_at
                          AND (k.valid_until IS NULL OR k.valid_until > p_at));
    v_ended := (SELECT max(least(k.valid_until, k.revoked_at)) FROM quorate_store.node_key k
                 WHERE k.node_id = p_node_id AND starts_with(k.key, 'qbox_') = v_seals AND k.valid_from <= p_at);
    RAISE EXCEPTION 'node % has no valid % key', p_node_id, CASE WHEN v_seals THEN 'sealing' ELSE 'signing' END
        USING ERRCODE = 'QR008', DETAIL = COALESCE(format('The last one ended at %s.', v_ended), 'None has begun.'),
              HINT = format('Give it one with add_node_key, or leave the node out: set_node_enabled(%s, false).%s', p_node_id,
                            CASE WHEN v_seals THEN ' (add_node without a sealing key has envelopes sent as they are.)' ELSE '' END);
END $$;
COMMENT ON FUNCTION quorate_store.no_valid_key(smallint, timestamptz) IS 'Raises QR008: the node has no valid receipt key, or, if it has one, no sealing key any more.';

CREATE OR REPLACE FUNCTION quorate_store.versions_now(p_node_ids smallint[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_versions int[];
    v_node record;
BEGIN
    FOR v_node IN SELECT n.* FROM quorate_store.node n WHERE n.node_id = ANY (p_node_ids) ORDER BY n.node_id LOOP
        IF v_node.keys_until <= v_now THEN
            v_node.current_version := (quorate_store.version_at(v_node.node_id, v_now)).version;
            IF v_node.current_version IS NULL THEN
                PERFORM quorate_store.no_valid_key(v_node.node_id, v_now);
            END IF;
        END IF;
        v_versions := v_versions || v_node.current_version;
    END LOOP;
    RETURN v_versions;
END $$;
COMMENT ON FUNCTION quorate_store.versions_now(smallint[]) IS
'The versions that rounds opened now keep of these nodes (ascending), also where coordinators have not brought a node up to date yet. Errors: QR008. Locks: none.';

CREATE OR REPLACE FUNCTION quorate_store.refresh_node(p_node_id smallint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_at timestamptz;
    v_then record;
BEGIN
    LOOP
        -- One boundary after the other: a sealing key that was valid between two of them is not forgotten.
        v_at := (SELECT CASE WHEN isfinite(n.keys_until) AND n.keys_until < v_now THEN n.keys_until ELSE v_now END
                   FROM quorate_store.node n WHERE n.node_id = p_node_id);
        v_then := quorate_store.version_at(p_node_id, v_at);
        -- Without a valid key it keeps the version that it had, and no round is opened with that.
        UPDATE quorate_store.node n SET current_version = COALESCE(v_then.version, n.current_version), keys_until = v_then.keys_until
         WHERE n.node_id = p_node_id
           AND (n.current_version, n.keys_until) IS DISTINCT FROM (COALESCE(v_then.version, n.current_version), v_then.keys_until);
        EXIT WHEN (v_at < v_now) IS NOT TRUE;
    END LOOP;
END $$;
COMMENT ON FUNCTION quorate_store.refresh_node(smallint) IS 'Brings a node up to date with its keys; its row is locked.';

CREATE OR REPLACE FUNCTION quorate_store.refresh_nodes() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_node_id smallint;
BEGIN
    FOR v_node_id IN SELECT n.node_id FROM quorate_store.node n WHERE n.keys_until <= clock_timestamp()
                      ORDER BY n.node_id FOR NO KEY UPDATE SKIP LOCKED LOOP
        PERFORM quorate_store.refresh_node(v_node_id);
    END LOOP;
END $$;
COMMENT ON FUNCTION quorate_store.refresh_nodes() IS 'Brings nodes up to date of which a key began or ended. Locks: their rows; locked ones are left for the next call.';

CREATE OR REPLACE FUNCTION quorate_store.adopt_keys(p_node_id smallint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO quorate_store.node_key (node_id, key, valid_from)
    SELECT n.node_id, u.key, v.created_at
      FROM quorate_store.node n
      JOIN quorate_store.node_version v ON v.version = n.current_version
     CROSS JOIN unnest(ARRAY[v.receipt_key, v.seal_key]) WITH ORDINALITY AS u (key, i)
     WHERE (p_node_id IS NULL OR n.node_id = p_node_id) AND u.key IS NOT NULL
       AND NOT EXISTS (SELECT FROM quorate_store.node_key k WHERE k.node_id = n.node_id AND k.key = u.key)
     ORDER BY n.node_id, u.i
$$;
COMMENT ON FUNCTION quorate_store.adopt_keys(smallint) IS
'Gives the keys that a node (NULL: any) was added with before keys had windows, or by an older add_node since then, a window without end.';

DO $$ BEGIN PERFORM quorate_store.adopt_keys(NULL); END $$;

CREATE OR REPLACE FUNCTION quorate_store.is_over(p_row quorate_store.node_key, p_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT COALESCE(p_row.valid_until <= greatest(p_row.valid_from, p_at), false) $$;
COMMENT ON FUNCTION quorate_store.is_over(quorate_store.node_key, timestamptz) IS 'Whether the window has ended, or was taken back before it began.';

CREATE OR REPLACE FUNCTION quorate_store.keep_only(p_node_id smallint, p_keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    UPDATE quorate_store.node_key k
       SET valid_until = CASE WHEN k.key <> ALL (p_keys) OR k.valid_from > v_now THEN greatest(k.valid_from, v_now) END
     WHERE k.node_id = p_node_id AND k.revoked_at IS NULL AND NOT quorate_store.is_over(k, v_now)
       AND (k.key <> ALL (p_keys) OR k.valid_from > v_now OR k.valid_until IS NOT NULL);
    INSERT INTO quorate_store.node_key (node_id, key, valid_from)
    SELECT p_node_id, u.key, v_now FROM unnest(p_keys) WITH ORDINALITY AS u (key, i)
     WHERE NOT EXISTS (SELECT FROM quorate_store.node_key k
                        WHERE k.node_id = p_node_id AND k.key = u.key AND k.valid_from <= v_now AND k.valid_until IS NULL)
     ORDER BY u.i;
END $$;
COMMENT ON FUNCTION quorate_store.keep_only(smallint, text[]) IS 'Makes these keys of a node valid from now on without end, and ends the windows of all others.';

CREATE OR REPLACE FUNCTION quorate_store.refuse_revoked(p_node_id smallint, p_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_revoked timestamptz := (SELECT min(k.revoked_at) FROM quorate_store.node_key k WHERE k.node_id = p_node_id AND k.key = p_key);
BEGIN
    IF v_revoked IS NOT NULL THEN
        PERFORM quorate_store.invalid(format('the key %s of node %s was revoked at %s', p_key, p_node_id, v_revoked),
            'A revoked key never comes back: have the node draw another one.');
    END IF;
END $$;
COMMENT ON FUNCTION quorate_store.refuse_revoked(smallint, text) IS 'Raises QR007 if the node''s key was revoked.';

CREATE OR REPLACE FUNCTION quorate_store.hold_node(p_node_id int) RETURNS quorate_store.node_version
LANGUAGE plpgsql AS $$
DECLARE
    v_version quorate_store.node_version;
BEGIN
    IF p_node_id IS NULL THEN
        PERFORM quorate_store.invalid('the node id is NULL', 'Use 1 to 32767.');
    END IF;
    IF p_node_id BETWEEN 1 AND 32767 THEN
        PERFORM pg_advisory_xact_lock(quorate_store.fence_class(), -p_node_id);
    END IF;
    -- Coordinators pass over it from here on, and what they did is seen.
    PERFORM FROM quorate_store.node n WHERE n.node_id = p_node_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown node %', p_node_id USING ERRCODE = 'QR008', HINT = 'quorate.nodes lists them; add_node adds one.';
    END IF;
    PERFORM quorate_store.adopt_keys(p_node_id::smallint);
    -- What has passed is settled before the keys change.
    PERFORM quorate_store.refresh_node(n.node_id) FROM quorate_store.node n WHERE n.node_id = p_node_id AND n.keys_until <= clock_timestamp();
    SELECT v.* INTO v_version FROM quorate_store.node n JOIN quorate_store.node_version v ON v.version = n.current_version
     WHERE n.node_id = p_node_id;
    RETURN v_version;
END $$;
COMMENT ON FUNCTION quorate_store.hold_node(int) IS
'Keeps others away from the keys of a node until the transaction ends; its current version. Errors: QR007 (NULL), QR008.';

CREATE OR REPLACE FUNCTION quorate_store.set_window(p_node_id smallint, p_key text, p_from timestamptz, p_until timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_row quorate_store.node_key;
BEGIN
    IF EXISTS (SELECT FROM quorate_store.node_key k
                WHERE k.node_id = p_node_id AND k.key = p_key AND k.valid_from = p_from AND k.valid_until IS NOT DISTINCT FROM p_until) THEN
        RETURN;
    END IF;
    -- One at most: a key that is valid gets no second window.
    SELECT k.* INTO v_row FROM quorate_store.node_key k
     WHERE k.node_id = p_node_id AND k.key = p_key AND NOT quorate_store.is_over(k, v_now) ORDER BY k.valid_from LIMIT 1;
    IF v_row.valid_from = p_from OR p_from IS NULL AND v_row.valid_from <= v_now THEN
        IF v_row.valid_until IS NOT DISTINCT FROM p_until THEN
            RETURN;
        END IF;
        p_from := v_row.valid_from;
    ELSIF v_row.valid_from <= v_now THEN
        PERFORM quorate_store.invalid(format('the key %s of node %s has been valid since %s', p_key, p_node_id, v_row.valid_from),
            'Its beginning cannot be changed any more: leave valid_from out, and give the end that it shall have.');
    ELSIF p_from < now() THEN -- a time of this transaction may have been read before it got here
        PERFORM quorate_store.invalid(format('valid_from %s has passed', p_from), 'Use a time to come, or leave it out: from now on.');
    END IF;
    IF v_row.key_no IS NULL AND p_from IS NULL AND p_until BETWEEN now() AND v_now THEN -- `now`: to end one, not to add one
        PERFORM quorate_store.invalid(format('node %s has no key %s that is valid or is going to be', p_node_id, p_key),
            'Only such a key can end: quorate.node_keys lists them.');
    END IF;
    IF p_until <= COALESCE(p_from, v_now) OR p_until < now() THEN
        PERFORM quorate_store.invalid(format('valid_until %s has passed, or is not after valid_from', p_until),
            'Use a later time, or leave it out: for ever. revoke_node_key ends a key at once, and for ever.');
    END IF;
    IF v_row.valid_from = p_from THEN
        UPDATE quorate_store.node_key k SET valid_until = p_until WHERE k.key_no = v_row.key_no;
        RETURN;
    END IF;
    UPDATE quorate_store.node_key k SET valid_until = k.valid_from WHERE k.key_no = v_row.key_no;
    INSERT INTO quorate_store.node_key (node_id, key, valid_from, valid_until) VALUES (p_node_id, p_key, COALESCE(p_from, v_now), p_until);
END $$;
COMMENT ON FUNCTION quorate_store.set_window(smallint, text, timestamptz, timestamptz) IS
'What add_node_key does to the windows of a key that is not revoked. p_from NULL: now, or when it began. Errors: QR007.';

CREATE OR REPLACE FUNCTION quorate.add_node_key(node_id int, key text, valid_from timestamptz DEFAULT NULL, valid_until timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_version quorate_store.node_version := quorate_store.hold_node(node_id);
    v_most bigint;
BEGIN
    IF key ~ '^whid_' OR key ~ '^whpk_' AND starts_with(v_version.receipt_key, 'whid_') THEN
        PERFORM quorate_store.invalid(format('node %s would have a symmetric secret beside another key', node_id),
            'The database knows one secret of a node at a time: replace it with add_node while the custodian and the coordinators hold both.');
    END IF;
    IF COALESCE(key, '') !~ '^(whpk|qbox)_[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$' THEN
        PERFORM quorate_store.invalid(format('the key for node %s is neither an Ed25519 nor an X25519 public key', node_id),
            'Use whpk_ or qbox_ followed by the base64 of the 32-byte key, as quorate keygen prints them.');
    END IF;
    IF valid_from NOT BETWEEN 'epoch' AND '9999-12-31 00:00:00+00' OR valid_until NOT BETWEEN 'epoch' AND '9999-12-31 00:00:00+00' THEN
        PERFORM quorate_store.invalid(format('the window from %s to %s is out of range', COALESCE(valid_from::text, 'now'), COALESCE(valid_until::text, 'ever')),
            'Use times before the year 10000, or leave valid_until out: for ever.');
    END IF;
    PERFORM quorate_store.refuse_revoked(v_version.node_id, key);
    PERFORM quorate_store.set_window(v_version.node_id, key, valid_from, valid_until);
    SELECT max((SELECT count(*) FROM quorate_store.node_key o
                 WHERE o.node_id = k.node_id AND NOT starts_with(o.key, 'qbox_') AND o.revoked_at IS NULL
                   AND o.valid_from <= k.valid_from AND (o.valid_until IS NULL OR o.valid_until > greatest(k.valid_from, clock_timestamp()))))
      INTO v_most FROM quorate_store.node_key k WHERE k.node_id = v_version.node_id;
    IF v_most > quorate_store.max_receipt_keys() THEN
        PERFORM quorate_store.invalid(format('node %s would have %s signing keys valid at one time', node_id, v_most),
            format('A node has at most %s: end or revoke old ones.', quorate_store.max_receipt_keys()));
    END IF;
    PERFORM quorate_store.refresh_node(v_version.node_id);
END $$;
COMMENT ON FUNCTION quorate.add_node_key(int, text, timestamptz, timestamptz) IS
'Lets a node have one more key: rounds opened from valid_from (NULL: now) until valid_until (NULL: for ever; that moment excluded) take receipts by it, beside those by
the node''s other valid keys; rounds that are open keep what they were opened with.
key: whpk_ and the base64 of an Ed25519 public key, of which 8 may be valid at one time; or qbox_ and that of an X25519 public key: dealers seal to the valid one that
began last.
A key that the node has already gets this window, as far as it has not passed: the end of one that is valid, both of one that has not begun. The same call again changes
nothing. A revoked key never comes back.
Errors: QR007 (also for a symmetric secret, which add_node replaces), QR008 (unknown node). Locks: serialises with add_node, add_node_key and revoke_node_key for
this node until the transaction ends.';

CREATE OR REPLACE FUNCTION quorate.revoke_node_key(node_id int, key text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_version quorate_store.node_version := quorate_store.hold_node(node_id);
BEGIN
    IF COALESCE(key, '') !~ '^(whpk_[A-Za-z0-9+/]{43}=|qbox_[A-Za-z0-9+/]{43}=|whid_[0-9a-f]{16})$' THEN
        PERFORM quorate_store.invalid(format('the key of node %s that is to be revoked is malformed', node_id), 'Use one that quorate.node_keys shows.');
    END IF;
    IF NOT EXISTS (SELECT FROM quorate_store.node_key k WHERE k.node_id = v_version.node_id AND k.key = revoke_node_key.key) THEN
        PERFORM quorate_store.invalid(format('node %s has no key %s', node_id, key), 'quorate.node_keys lists them.');
    END IF;
    UPDATE quorate_store.node_key k SET revoked_at = clock_timestamp()
     WHERE k.node_id = v_version.node_id AND k.key = revoke_node_key.key AND k.revoked_at IS NULL;
    PERFORM quorate_store.refresh_node(v_version.node_id);
END $$;
COMMENT ON FUNCTION quorate.revoke_node_key(int, text) IS
'Revokes a key of a node, for ever: no round that is opened from now on takes receipts by it, or has envelopes sealed to it. Rounds that are open keep it, and acks show
it as before. If no other key of its use is valid then, rounds with this node are refused (QR008) until it has one again or is disabled. The same call again changes nothing.
key: as quorate.node_keys shows it. Errors: QR007 (malformed, or no key of the node), QR008 (unknown node). Locks: as add_node_key.';
