-- The tables of quorate: every fact about a round is written once, here, and the views of schema quorate derive the rest.
--
-- Child tables key on round_no, a small number that stands for the round's text id. They have no foreign keys: a foreign key
-- locks the parent row once per child, while the statement triggers of 0002_guards.sql check a whole batch in one query.

CREATE SCHEMA quorate;
COMMENT ON SCHEMA quorate IS 'Functions and views for dealers, collectors and auditors: the outside contract.';
CREATE SCHEMA quorate_worker;
COMMENT ON SCHEMA quorate_worker IS 'Functions that coordinators call, each taking a whole batch; not for other users.';
COMMENT ON SCHEMA quorate_store IS 'Tables, constraints and triggers. Read them through the views of schema quorate.';

CREATE TYPE quorate_store.round_state AS ENUM ('open', 'complete', 'stalled', 'cancelled', 'dead_lettered');
CREATE TYPE quorate_store.route AS ENUM ('primary', 'backup');
CREATE TYPE quorate_store.after_quorum AS ENUM ('continue', 'stop');
CREATE TYPE quorate_store.outcome AS ENUM
    ('ack', 'timeout', 'connect_error', 'http_error', 'bad_receipt', 'refused', 'in_doubt', 'unsent');
CREATE TYPE quorate_store.verdict AS ENUM
    ('unknown_round', 'stale_nonce', 'unknown_node', 'invalid_payload', 'duplicate', 'conflict', 'round_closed', 'accepted');

-- One row: this database's deployment.
CREATE TABLE quorate_store.deployment (
    singleton          boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    deployment_id      text COLLATE "C" NOT NULL CHECK (deployment_id ~ '^[A-Za-z0-9_-]{1,128}$'),
    max_envelope_bytes int NOT NULL DEFAULT 16777216 CHECK (max_envelope_bytes BETWEEN 1 AND 16777216),
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a node was at some time: immutable, so that a round fixes its nodes by version number alone.
CREATE TABLE quorate_store.node_version (
    version     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id     smallint NOT NULL CHECK (node_id BETWEEN 1 AND 32767),
    url         text NOT NULL,
    backup_url  text,
    receipt_key text NOT NULL CHECK (receipt_key ~ '^(whpk_[A-Za-z0-9+/]{43}=|whid_[0-9a-f]{16})$'), -- an Ed25519 key, or the id of a symmetric secret
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (version, node_id)
);

-- A node as it is now.
CREATE TABLE quorate_store.node (
    node_id         smallint PRIMARY KEY,
    current_version int NOT NULL,
    enabled         boolean NOT NULL DEFAULT true,
    FOREIGN KEY (current_version, node_id) REFERENCES quorate_store.node_version (version, node_id)
);

-- Round ids and nonces that were ever used; permanent, also after the round was pruned.
CREATE TABLE quorate_store.ledger (
    round_no  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nonce     bigint NOT NULL CONSTRAINT ledger_nonce_key UNIQUE,
    pruned_at timestamptz,
    round_id  text COLLATE "C" NOT NULL CONSTRAINT ledger_round_id_key UNIQUE,
    CONSTRAINT ledger_entry CHECK (round_no > 0 AND nonce > 0 AND round_id ~ '^[A-Za-z0-9_-]{1,128}$')
);

-- One row a start of `quorate run`; its number is the fencing token.
CREATE TABLE quorate_store.coordinator (
    instance_no  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id  uuid NOT NULL UNIQUE,
    name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    lease        interval NOT NULL CHECK (lease > interval '0'),
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    holds_life   boolean NOT NULL DEFAULT false, -- it has held its life lock: when that is free, it may be dead
    ended_at     timestamptz, -- fenced or left: from here on it reserves and records no attempt
    end_reason   text CHECK (end_reason IN ('left', 'fenced')),
    cleared_at   timestamptz, -- since when no unsettled round is left behind under its number
    CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CHECK (cleared_at IS NULL OR ended_at IS NOT NULL)
) WITH (fillfactor = 20);
CREATE INDEX coordinator_current ON quorate_store.coordinator (instance_no) WHERE cleared_at IS NULL;

-- Its rules stand in the triggers round_begins and round_changes: a CHECK is parsed anew by every statement, a trigger's query once a session.
CREATE TABLE quorate_store.round (
    round_no          bigint PRIMARY KEY, -- ledger.round_no
    opened_at         timestamptz NOT NULL,
    escalate_at       timestamptz NOT NULL,
    deadline_at       timestamptz NOT NULL,
    fresh_until       timestamptz,
    claimed_at        timestamptz,
    escalated_at      timestamptz,
    closed_at         timestamptz,
    collected_at      timestamptz,
    dead_lettered_at  timestamptz,
    settled_at        timestamptz,
    per_share_timeout interval NOT NULL,
    base_backoff      interval NOT NULL,
    max_backoff       interval NOT NULL,
    owner             int NOT NULL DEFAULT 0, -- coordinator.instance_no; 0: nobody's yet
    claimed_by        int,
    state             quorate_store.round_state NOT NULL DEFAULT 'open',
    after_quorum      quorate_store.after_quorum NOT NULL,
    quorum            smallint NOT NULL,
    retry_budget      smallint NOT NULL,
    news              boolean NOT NULL DEFAULT false, -- envelopes came after the owner last looked
    node_ids          smallint[] NOT NULL, -- ascending
    node_versions     int[] NOT NULL,      -- node_version.version of each, in the same order
    -- The claim that gave the round its first owner is the committed first attempt, on the primary route, of these nodes'
    -- deliveries, by claimed_by at claimed_at. It becomes a row of attempt once there is more to say of it than that it brought an ack.
    claimed_nodes     smallint[],
    quorum_nodes      smallint[],          -- ascending
    close_reason      text
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2);
-- Hot work is found through partial indexes on unsettled rounds, so that its cost does not grow with history.
-- `round_no > 0`, which always holds, is a password: only a query that says it can use one of these. Else the planner, believing
-- from a quiet hour's statistics that there are hardly any open rounds, would look a single round up by reading all of them.
CREATE INDEX round_unsettled ON quorate_store.round (owner, round_no) WHERE settled_at IS NULL AND round_no > 0;
CREATE INDEX round_news ON quorate_store.round (owner) WHERE news AND settled_at IS NULL AND round_no > 0;
CREATE INDEX round_due ON quorate_store.round (deadline_at) WHERE state = 'open' AND round_no > 0;
CREATE INDEX round_fresh ON quorate_store.round (fresh_until)
    WHERE state = 'complete' AND collected_at IS NULL AND fresh_until IS NOT NULL AND round_no > 0;
CREATE INDEX round_failed ON quorate_store.round (owner, round_no)
    WHERE state IN ('stalled', 'cancelled') AND settled_at IS NULL AND round_no > 0;
CREATE INDEX round_dead_lettered ON quorate_store.round (dead_lettered_at) WHERE state = 'dead_lettered';
CREATE INDEX round_opened ON quorate_store.round USING brin (opened_at) WITH (pages_per_range = 32, autosummarize = on);

-- An accepted envelope: what stays of it for ever.
CREATE TABLE quorate_store.delivery (
    round_no       bigint NOT NULL,
    distributed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload_bytes  int NOT NULL,
    node_id        smallint NOT NULL,
    payload_sha256 bytea NOT NULL,
    PRIMARY KEY (round_no, node_id)
);

-- The bytes of an envelope, until its round is settled. They are masked, hence random: never compressed.
CREATE TABLE quorate_store.envelope (
    round_no bigint NOT NULL,
    node_id  smallint NOT NULL,
    payload  bytea NOT NULL,
    PRIMARY KEY (round_no, node_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE quorate_store.envelope ALTER COLUMN payload SET STORAGE EXTERNAL;

-- One HTTP request of a delivery, committed before it is sent; but for those that round.claimed_nodes stands for. View attempt_state shows
-- all of them.
CREATE TABLE quorate_store.attempt (
    round_no    bigint NOT NULL,
    reserved_at timestamptz NOT NULL,
    finished_at timestamptz,
    retry_at    timestamptz, -- when the next attempt of this route may start
    owner       int NOT NULL, -- coordinator.instance_no of who sends it
    route       quorate_store.route NOT NULL,
    outcome     quorate_store.outcome,
    node_id     smallint NOT NULL,
    attempt     smallint NOT NULL CHECK (attempt BETWEEN 1 AND 100),
    http_status smallint CHECK (http_status BETWEEN 100 AND 999),
    resends     smallint NOT NULL DEFAULT 0 CHECK (resends >= 0),
    PRIMARY KEY (round_no, node_id, route, attempt),
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- A verified receipt, once per node of a round.
CREATE TABLE quorate_store.ack (
    round_no    bigint NOT NULL,
    acked_at    timestamptz NOT NULL,
    route       quorate_store.route NOT NULL,
    node_id     smallint NOT NULL,
    attempt     smallint NOT NULL,
    http_status smallint,
    late        boolean NOT NULL,
    receipt     bytea NOT NULL,
    PRIMARY KEY (round_no, node_id)
);
CREATE INDEX ack_late ON quorate_store.ack (round_no) WHERE late;

CREATE VIEW quorate_store.attempt_state AS
SELECT a.round_no, a.node_id, a.route, a.attempt, a.owner, a.reserved_at, a.xmin AS reserved_in, a.retry_at, a.resends, a.finished_at,
       a.http_status, a.outcome
  FROM quorate_store.attempt a
UNION ALL
SELECT r.round_no, c.node_id, 'primary', 1::smallint, r.claimed_by, r.claimed_at, NULL, NULL, 0::smallint, k.acked_at, k.http_status,
       CASE WHEN k.round_no IS NOT NULL THEN 'ack'::quorate_store.outcome END
  FROM quorate_store.round r
 CROSS JOIN unnest(r.claimed_nodes) AS c (node_id)
  LEFT JOIN quorate_store.ack k ON k.round_no = r.round_no AND k.node_id = c.node_id AND k.route = 'primary' AND k.attempt = 1
 WHERE NOT EXISTS (SELECT FROM quorate_store.attempt a
                    WHERE a.round_no = r.round_no AND a.node_id = c.node_id AND a.route = 'primary' AND a.attempt = 1);
COMMENT ON VIEW quorate_store.attempt_state IS
'Every attempt, those included that a claim stands for: of such a one its ack says the outcome. outcome NULL: under way. reserved_in: the
transaction that wrote its row.';

-- What distribute refused.
CREATE TABLE quorate_store.rejection (
    rejection_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rejected_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    nonce        bigint,
    node_id      int,
    verdict      quorate_store.verdict NOT NULL CHECK (verdict NOT IN ('accepted', 'duplicate')),
    round_id     text COLLATE "C" NOT NULL,
    rejected_for name NOT NULL DEFAULT session_user
);
CREATE INDEX rejection_round ON quorate_store.rejection (round_id);
