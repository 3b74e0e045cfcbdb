-- Sealed envelopes: the key that each version of a node is sealed to, and rounds that take nothing else.

ALTER TABLE quorate_store.node_version ADD COLUMN seal_key text
    CHECK (seal_key ~ '^qbox_[A-Za-z0-9+/]{43}=$'); -- an X25519 key; NULL: nothing is sealed to it

ALTER TABLE quorate_store.round ADD COLUMN require_sealed boolean NOT NULL DEFAULT false;

-- Of the column alone, so that no other update pays for it.
CREATE TRIGGER round_sealing_fixed BEFORE UPDATE OF require_sealed ON quorate_store.round
    FOR EACH ROW WHEN (NEW.require_sealed <> OLD.require_sealed)
    EXECUTE FUNCTION quorate_store.forbid('whether a round takes only sealed envelopes is fixed when it is opened');
ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_sealing_fixed;

-- Not to be used before this migration is committed; sql/ is applied after that.
ALTER TYPE quorate_store.verdict ADD VALUE 'unsealed' AFTER 'invalid_payload';
