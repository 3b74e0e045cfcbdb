-- Nodes: who can be sent envelopes, where, and whose key signs the receipts.

CREATE OR REPLACE FUNCTION quorate.add_node(node_id int, url text, receipt_key text, backup_url text DEFAULT NULL,
                                            seal_key text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_version int;
BEGIN
    IF node_id IS NULL OR node_id NOT BETWEEN 1 AND 32767 THEN
        PERFORM quorate_store.invalid(format('node id %s is out of range', COALESCE(node_id::text, 'NULL')), 'Use 1 to 32767.');
    END IF;
    IF NOT COALESCE(quorate_store.url_valid(url), false) THEN
        PERFORM quorate_store.invalid(format('url "%s" of node %s is no usable URL', left(url, 200), node_id),
            'Use http:// or https:// with a host, without user, password or fragment, at most 2048 characters.');
    END IF;
    IF backup_url IS NOT NULL AND NOT quorate_store.url_valid(backup_url) THEN
        PERFORM quorate_store.invalid(format('backup url "%s" of node %s is no usable URL', left(backup_url, 200), node_id),
            'Use http:// or https:// with a host, without user, password or fragment, at most 2048 characters.');
    END IF;
    IF COALESCE(receipt_key, '') !~ '^(whpk_[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=|whid_[0-9a-f]{16})$' THEN
        PERFORM quorate_store.invalid(format('receipt key of node %s is neither an Ed25519 public key nor the id of a symmetric secret', node_id),
            'Use whpk_ followed by the base64 of the 32-byte key, as quorate keygen prints it, or whid_ followed by 16 lower-case hex digits, '
            'as quorate keygen --symmetric does.');
    END IF;
    IF seal_key !~ '^qbox_[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$' THEN
        PERFORM quorate_store.invalid(format('seal key of node %s is no X25519 public key', node_id),
            'Use qbox_ followed by the base64 of the 32-byte key, as quorate keygen --public prints it, or NULL for none.');
    END IF;
    -- One writer a node at a time: the second one then sees the first one's version and keys.
    PERFORM pg_advisory_xact_lock(quorate_store.fence_class(), -node_id);
    PERFORM quorate_store.adopt_keys(node_id::smallint);
    PERFORM quorate_store.refuse_revoked(node_id::smallint, receipt_key);
    PERFORM quorate_store.refuse_revoked(node_id::smallint, seal_key);
    v_version := quorate_store.version_for(node_id::smallint, url, backup_url, ARRAY[receipt_key], seal_key);
    INSERT INTO quorate_store.node AS n (node_id, current_version) VALUES (add_node.node_id, v_version)
    ON CONFLICT ON CONSTRAINT node_pkey DO UPDATE SET current_version = EXCLUDED.current_version, keys_until = NULL
        WHERE n.current_version <> EXCLUDED.current_version OR n.keys_until IS NOT NULL;
    PERFORM quorate_store.keep_only(node_id::smallint, array_remove(ARRAY[receipt_key, seal_key], NULL));
END $$;
COMMENT ON FUNCTION quorate.add_node(int, text, text, text, text) IS
'Adds a node, or gives an existing one (which stays enabled or disabled) these URLs and keys from now on; rounds that are open keep theirs.
node_id: 1..32767. url, backup_url: http or https, at most 2048 characters; backup_url NULL: none.
receipt_key: the same for both routes: whpk_ and the base64 of the node''s Ed25519 public key; or, for a node that shares a symmetric secret with the coordinators,
whid_ and the first 16 hex digits of the secret''s SHA-256.
seal_key: qbox_ and the base64 of the X25519 public key that dealers seal envelopes to; NULL: none, and none is kept from before.
These two keys are valid from now on without end, and the windows of all others that the node has end now; see add_node_key. The same call again changes nothing.
Errors: QR007 (also for a key that was revoked). Locks: serialises with add_node, add_node_key and revoke_node_key for this node until the transaction ends.';

CREATE OR REPLACE FUNCTION quorate.set_node_enabled(node_id int, enabled boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    IF node_id IS NULL OR enabled IS NULL THEN
        PERFORM quorate_store.invalid('set_node_enabled needs a node id and true or false, not NULL');
    END IF;
    UPDATE quorate_store.node n SET enabled = set_node_enabled.enabled WHERE n.node_id = set_node_enabled.node_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown node %', node_id USING ERRCODE = 'QR008', HINT = 'quorate.nodes lists them; add_node adds one.';
    END IF;
END $$;
COMMENT ON FUNCTION quorate.set_node_enabled(int, boolean) IS
'Enables or disables a node for rounds opened from now on; rounds that are open keep it.
Errors: QR007 (NULL), QR008 (unknown node).';

CREATE OR REPLACE FUNCTION quorate.set_envelope_limit(bytes int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF bytes IS NULL OR bytes NOT BETWEEN 1 AND 16777216 THEN
        PERFORM quorate_store.invalid(format('envelope limit %s is out of range', COALESCE(bytes::text, 'NULL')),
            'Use 1 to 16777216 bytes.');
    END IF;
    UPDATE quorate_store.deployment SET max_envelope_bytes = bytes;
END $$;
COMMENT ON FUNCTION quorate.set_envelope_limit(int) IS
'Sets the size above which distribute says invalid_payload. bytes: 1..16777216 (16 MiB, the default). Errors: QR007.';
