-- Several keys of a node at one time, each in a window of its own, and revoked at once if it must be. What is valid when a round is
-- opened goes into the version of the node that the round keeps.
--
-- The keys of nodes that are there already get their rows by sql/21_node_keys.sql: a coordinator that runs meanwhile could make no
-- record of them before it has the functions for that.

-- In the order in which add_node takes them.
LOCK TABLE quorate_store.node, quorate_store.node_version IN ACCESS EXCLUSIVE MODE;

ALTER TABLE quorate_store.node_version ADD COLUMN other_keys text[] NOT NULL DEFAULT '{}'; -- valid beside receipt_key, newest first
ALTER TABLE quorate_store.node_version ADD CONSTRAINT node_version_other_keys CHECK (
    cardinality(other_keys) = 0
    OR cardinality(other_keys) <= 7 AND starts_with(receipt_key, 'whpk_') AND array_position(other_keys, NULL) IS NULL
       AND array_to_string(other_keys, ' ') || ' ' ~ '^(whpk_[A-Za-z0-9+/]{43}= )+$');
CREATE INDEX node_version_node ON quorate_store.node_version (node_id);

-- When the current version is not that of the keys that are valid any more. NULL: it stays; -infinity: no version would do now.
ALTER TABLE quorate_store.node ADD COLUMN keys_until timestamptz
    CHECK (keys_until = '-infinity' OR keys_until BETWEEN 'epoch' AND '9999-12-31 00:00:00+00');

-- One window of one key. A key may have had several, one after the other; revoked is for ever.
CREATE TABLE quorate_store.node_key (
    key_no      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id     smallint NOT NULL REFERENCES quorate_store.node (node_id),
    key         text NOT NULL CHECK (key ~ '^(whpk_[A-Za-z0-9+/]{43}=|whid_[0-9a-f]{16}|qbox_[A-Za-z0-9+/]{43}=)$'),
    valid_from  timestamptz NOT NULL,
    valid_until timestamptz, -- NULL: for ever; valid_from: it was taken back before it began
    revoked_at  timestamptz,
    added_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (valid_until >= valid_from),
    CHECK (least(valid_from, revoked_at, added_at) >= 'epoch'
           AND greatest(valid_from, valid_until, revoked_at, added_at) <= '9999-12-31 00:00:00+00')
);
CREATE UNIQUE INDEX node_key_window ON quorate_store.node_key (node_id, key, valid_from) WHERE valid_until IS DISTINCT FROM valid_from;

CREATE FUNCTION quorate_store.node_key_begins() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM quorate_store.node_key k WHERE k.node_id = NEW.node_id AND k.key = NEW.key AND k.revoked_at IS NOT NULL) THEN
        RAISE EXCEPTION 'a key that was revoked never comes back' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION quorate_store.node_key_begins() IS 'A revoked key of a node gets no other window.';
CREATE TRIGGER node_key_begins BEFORE INSERT ON quorate_store.node_key
    FOR EACH ROW EXECUTE FUNCTION quorate_store.node_key_begins();
CREATE TRIGGER node_key_kept BEFORE DELETE ON quorate_store.node_key
    FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('it says since when and until when receipts of a key counted; end or revoke it instead');
CREATE TRIGGER node_key_fixed BEFORE UPDATE ON quorate_store.node_key
    FOR EACH ROW WHEN (NEW.key_no <> OLD.key_no OR NEW.node_id <> OLD.node_id OR NEW.key <> OLD.key OR NEW.valid_from <> OLD.valid_from
                       OR NEW.added_at <> OLD.added_at OR OLD.revoked_at IS NOT NULL
                       -- (now() is when the transaction began: whoever ends a window may have read the clock before this.)
                       OR NEW.valid_until IS DISTINCT FROM OLD.valid_until
                          AND (OLD.valid_until <= greatest(OLD.valid_from, clock_timestamp()) OR NEW.valid_until < now()))
    EXECUTE FUNCTION quorate_store.forbid('a key keeps its node and its beginning, an end that has passed stays, and revoked is for ever');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.node_key
    EXECUTE FUNCTION quorate_store.forbid('history is never truncated');
CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.node_key
    FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('key_no');
ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER node_key_begins;
ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER node_key_kept;
ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER node_key_fixed;
ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER no_truncate;
ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER history_changed;

-- As 0002_guards.sql has it, and the key is one of the node's.
CREATE OR REPLACE FUNCTION quorate_store.ack_belongs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM added n
                WHERE n.http_status NOT BETWEEN 100 AND 999
                   OR (SELECT octet_length(n.receipt) = CASE WHEN starts_with(v.receipt_key, 'whid_') THEN 32 ELSE 64 END
                              AND n.key_no BETWEEN 1 AND 1 + cardinality(v.other_keys)
                              AND (n.late OR r.state IN ('open', 'complete') AND n.acked_at <= r.deadline_at)
                              AND (n.route = 'primary' AND n.attempt = 1 AND n.node_id = ANY (r.claimed_nodes)
                                   OR (SELECT true FROM quorate_store.attempt a
                                        WHERE a.round_no = n.round_no AND a.node_id = n.node_id
                                          AND a.route = n.route AND a.attempt = n.attempt))
                         FROM quorate_store.round r
                         JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, n.node_id)]
                        WHERE r.round_no = n.round_no) IS NOT TRUE) THEN
        RAISE EXCEPTION 'an ack has a receipt of its node''s kind (64 bytes by a key, 32 by a secret) by one of the keys that its round has of the node, belongs to a committed attempt, and is on time only in an open or complete round before its deadline'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
