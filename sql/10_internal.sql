-- Small functions that the others share; not for users. Like all of schema quorate_store's, they run with the search_path that
-- their callers in schemas quorate and quorate_worker have fixed.

CREATE OR REPLACE FUNCTION quorate_store.invalid(message text, hint text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION '%', message USING ERRCODE = 'QR007';
    END IF;
    RAISE EXCEPTION '%', message USING ERRCODE = 'QR007', HINT = hint;
END $$;
COMMENT ON FUNCTION quorate_store.invalid(text, text) IS 'Raises QR007 (invalid policy or argument).';

CREATE OR REPLACE FUNCTION quorate_store.unknown_round(p_round_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'unknown round "%"', left(p_round_id, 128)
        USING ERRCODE = 'QR003', HINT = 'It was never opened here, or it has been pruned.';
END $$;
COMMENT ON FUNCTION quorate_store.unknown_round(text) IS 'Raises QR003 (unknown round).';

CREATE OR REPLACE FUNCTION quorate_store.nonce_of(p_uuid bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT greatest(1, ('x' || encode(substr(p_uuid, 10, 7) || substr(p_uuid, 1, 1), 'hex'))::bit(64)::bigint & 9223372036854775807)
$$;
COMMENT ON FUNCTION quorate_store.nonce_of(bytea) IS
'The nonce, greater than 0, that a random UUID (version 4, as uuid_send gives it) makes. The UUID carries 122 bits of the server''s CSPRNG
(pg_strong_random); its last 7 bytes and its first one hold no version or variant bits. The nonce has 63 of these 64 bits, moved off zero.';

CREATE OR REPLACE FUNCTION quorate_store.fence_class() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1903521650 $$;
COMMENT ON FUNCTION quorate_store.fence_class() IS
    'First key of the advisory locks (class, instance_no): a coordinator''s batches hold theirs shared, who fences it exclusively. ("quor" in ASCII.)';

CREATE OR REPLACE FUNCTION quorate_store.life_class() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1903521644 $$;
COMMENT ON FUNCTION quorate_store.life_class() IS
    'First key of the advisory locks (class, instance_no) that a coordinator''s listening session holds as long as it lives. ("quol" in ASCII.)';

CREATE OR REPLACE FUNCTION quorate_store.enter_batch(p_instance int) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever fences this instance holds the lock exclusively: it waits for this batch to end, or this batch sees the fence.
    PERFORM pg_advisory_xact_lock_shared(quorate_store.fence_class(), p_instance);
    RETURN EXISTS (SELECT FROM quorate_store.coordinator c WHERE c.instance_no = p_instance AND c.ended_at IS NULL);
END $$;
COMMENT ON FUNCTION quorate_store.enter_batch(int) IS
    'Takes the instance''s fence lock, shared, to the end of the transaction; true unless the instance was fenced or has left.';

CREATE OR REPLACE FUNCTION quorate_store.url_valid(p_url text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT length(p_url) <= 2048
       AND p_url ~ '^https?://([A-Za-z0-9._-]+|[[][0-9A-Fa-f:.]+[]])(:[0-9]{1,5})?(/[!$-;=?-Z_a-z~@%]*)?([?][!$-;=?-Z_a-z~@%]*)?$'
       AND COALESCE(substring(p_url FROM '^https?://[^/?]*:([0-9]+)(?:[/?]|$)')::int BETWEEN 1 AND 65535, true)
$$;
COMMENT ON FUNCTION quorate_store.url_valid(text) IS
    'True for an http or https URL of at most 2048 printable ASCII characters, with a host and no user, password or fragment.';

CREATE OR REPLACE FUNCTION quorate_store.sealed(p_payload bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT substr(p_payload, 1, 7) = 'qsealed'::bytea $$;
COMMENT ON FUNCTION quorate_store.sealed(bytea) IS 'True if an envelope says that it is sealed; whether it opens, only its node can tell.';
