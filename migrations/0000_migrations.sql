-- What has been applied to this database. Not a migration itself: `quorate migrate` runs this file whenever one of
-- these tables is missing, so it can only ever create what is not there.

CREATE SCHEMA IF NOT EXISTS quorate_store;

CREATE TABLE IF NOT EXISTS quorate_store.migration (
    number     int PRIMARY KEY CHECK (number > 0),
    name       text NOT NULL,
    sha256     bytea NOT NULL CHECK (octet_length(sha256) = 32),
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE quorate_store.migration IS 'numbered files of migrations/, applied once each and never changed after';

CREATE TABLE IF NOT EXISTS quorate_store.repeatable (
    name       text PRIMARY KEY,
    sha256     bytea NOT NULL CHECK (octet_length(sha256) = 32),
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE quorate_store.repeatable IS 'files of sql/, applied again, all together, when one of them changes';
