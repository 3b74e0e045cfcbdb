-- An ack says which of its node's keys signed its receipt, and the history has records of keys.

ALTER TABLE quorate_store.ack ADD COLUMN key_no smallint NOT NULL DEFAULT 1; -- 1: node_version.receipt_key; 2 and more: other_keys[key_no - 1]

-- Not to be used before this migration is committed: see 0007_node_keys.sql.
ALTER TYPE quorate_store.history_kind ADD VALUE 'node_key';
