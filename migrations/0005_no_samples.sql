-- ANALYZE keeps samples of a column's values where they outlive the rows: in pg_statistic, visible to the owner and in dumps of the data
-- directory after an envelope has been erased. So none are taken of payloads, and those that were taken go: changing a column's
-- type forgets its statistics (and its storage), here without touching a row.

ALTER TABLE quorate_store.envelope ALTER COLUMN payload SET STATISTICS 0;
ALTER TABLE quorate_store.envelope ALTER COLUMN payload TYPE bytea;
ALTER TABLE quorate_store.envelope ALTER COLUMN payload SET STORAGE EXTERNAL;
