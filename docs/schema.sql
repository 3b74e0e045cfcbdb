-- The schema as the migrations leave it; made by scripts/dump-schema and compared by the tests. Do not edit.

CREATE SCHEMA quorate;

COMMENT ON SCHEMA quorate IS 'Functions and views for dealers, collectors and auditors: the outside contract.';

CREATE SCHEMA quorate_store;

COMMENT ON SCHEMA quorate_store IS 'Tables, constraints and triggers. Read them through the views of schema quorate.';

CREATE SCHEMA quorate_worker;

COMMENT ON SCHEMA quorate_worker IS 'Functions that coordinators call, each taking a whole batch; not for other users.';

CREATE TYPE quorate_store.after_quorum AS ENUM (
    'continue',
    'stop'
);

CREATE TYPE quorate_store.history_kind AS ENUM (
    'began',
    'imported',
    'deployment',
    'coordinator',
    'node',
    'node_version',
    'ended',
    'settled',
    'acked',
    'collected',
    'dead_lettered',
    'pruned',
    'rejected',
    'forgotten',
    'checkpoint',
    'node_key'
);

CREATE TYPE quorate_store.outcome AS ENUM (
    'ack',
    'timeout',
    'connect_error',
    'http_error',
    'bad_receipt',
    'refused',
    'in_doubt',
    'unsent'
);

CREATE TYPE quorate_store.round_state AS ENUM (
    'open',
    'complete',
    'stalled',
    'cancelled',
    'dead_lettered'
);

CREATE TYPE quorate_store.route AS ENUM (
    'primary',
    'backup'
);

CREATE TYPE quorate_store.verdict AS ENUM (
    'unknown_round',
    'stale_nonce',
    'unknown_node',
    'invalid_payload',
    'unsealed',
    'duplicate',
    'conflict',
    'round_closed',
    'accepted'
);

CREATE TYPE quorate_store.work AS (
	round_no bigint,
	round_id text,
	nonce bigint,
	state text,
	stop boolean,
	escalated boolean,
	escalate_us bigint,
	deadline_us bigint,
	timeout_us bigint,
	base_us bigint,
	max_us bigint,
	retry_budget smallint,
	node_id smallint,
	node_version integer,
	payload_bytes integer,
	payload_sha256 bytea,
	acked boolean,
	primary_used smallint,
	primary_refused boolean,
	primary_open smallint,
	primary_mine boolean,
	primary_wait_us bigint,
	backup_used smallint,
	backup_refused boolean,
	backup_open smallint,
	backup_mine boolean,
	backup_wait_us bigint,
	now_us bigint,
	payload bytea,
	quorum smallint
);

COMMENT ON TYPE quorate_store.work IS 'All that a coordinator needs to go on with a delivery and its round; node_id NULL: a round without any. Times are microseconds left (negative: past).
used: attempts reserved on the route; open: the number of the one without an outcome, 0 for none; mine: it was reserved by this very transaction, so that it
cannot have been sent yet. payload: only where an attempt is mine and the envelope is small; else it is read by quorate_worker.envelopes.';

CREATE TABLE quorate_store.ack (
    round_no bigint NOT NULL,
    acked_at timestamp with time zone NOT NULL,
    route quorate_store.route NOT NULL,
    node_id smallint NOT NULL,
    attempt smallint NOT NULL,
    http_status smallint,
    late boolean NOT NULL,
    receipt bytea NOT NULL,
    key_no smallint DEFAULT 1 NOT NULL
);

CREATE TABLE quorate_store.node_version (
    version integer NOT NULL,
    node_id smallint NOT NULL,
    url text NOT NULL,
    backup_url text,
    receipt_key text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seal_key text,
    other_keys text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT node_version_node_id_check CHECK (((node_id >= 1) AND (node_id <= 32767))),
    CONSTRAINT node_version_other_keys CHECK (((cardinality(other_keys) = 0) OR ((cardinality(other_keys) <= 7) AND starts_with(receipt_key, 'whpk_'::text) AND (array_position(other_keys, NULL::text) IS NULL) AND ((array_to_string(other_keys, ' '::text) || ' '::text) ~ '^(whpk_[A-Za-z0-9+/]{43}= )+$'::text)))),
    CONSTRAINT node_version_receipt_key_check CHECK ((receipt_key ~ '^(whpk_[A-Za-z0-9+/]{43}=|whid_[0-9a-f]{16})$'::text)),
    CONSTRAINT node_version_seal_key_check CHECK ((seal_key ~ '^qbox_[A-Za-z0-9+/]{43}=$'::text))
);

CREATE TABLE quorate_store.node_key (
    key_no integer NOT NULL,
    node_id smallint NOT NULL,
    key text NOT NULL,
    valid_from timestamp with time zone NOT NULL,
    valid_until timestamp with time zone,
    revoked_at timestamp with time zone,
    added_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT node_key_check CHECK ((valid_until >= valid_from)),
    CONSTRAINT node_key_check1 CHECK (((LEAST(valid_from, revoked_at, added_at) >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(valid_from, valid_until, revoked_at, added_at) <= '9999-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT node_key_key_check CHECK ((key ~ '^(whpk_[A-Za-z0-9+/]{43}=|whid_[0-9a-f]{16}|qbox_[A-Za-z0-9+/]{43}=)$'::text))
);

CREATE TABLE quorate_store.round (
    round_no bigint NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    escalate_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    fresh_until timestamp with time zone,
    claimed_at timestamp with time zone,
    escalated_at timestamp with time zone,
    closed_at timestamp with time zone,
    collected_at timestamp with time zone,
    dead_lettered_at timestamp with time zone,
    settled_at timestamp with time zone,
    per_share_timeout interval NOT NULL,
    base_backoff interval NOT NULL,
    max_backoff interval NOT NULL,
    owner integer DEFAULT 0 NOT NULL,
    claimed_by integer,
    state quorate_store.round_state DEFAULT 'open'::quorate_store.round_state NOT NULL,
    after_quorum quorate_store.after_quorum NOT NULL,
    quorum smallint NOT NULL,
    retry_budget smallint NOT NULL,
    news boolean DEFAULT false NOT NULL,
    node_ids smallint[] NOT NULL,
    node_versions integer[] NOT NULL,
    claimed_nodes smallint[],
    quorum_nodes smallint[],
    close_reason text,
    require_sealed boolean DEFAULT false NOT NULL
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_insert_scale_factor='0.2');

CREATE TABLE quorate_store.rejection (
    rejection_no bigint NOT NULL,
    rejected_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    nonce bigint,
    node_id integer,
    verdict quorate_store.verdict NOT NULL,
    round_id text NOT NULL COLLATE pg_catalog."C",
    rejected_for name DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT rejection_verdict_check CHECK ((verdict <> ALL (ARRAY['accepted'::quorate_store.verdict, 'duplicate'::quorate_store.verdict])))
);

CREATE TABLE quorate_store.ledger (
    round_no bigint NOT NULL,
    nonce bigint NOT NULL,
    pruned_at timestamp with time zone,
    round_id text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT ledger_entry CHECK (((round_no > 0) AND (nonce > 0) AND (round_id ~ '^[A-Za-z0-9_-]{1,128}$'::text)))
);

CREATE VIEW quorate.acks AS
 SELECT l.round_id,
    (a.node_id)::integer AS node_id,
    (a.route)::text AS route,
    (a.attempt)::integer AS attempt,
    a.acked_at,
    COALESCE((a.node_id = ANY (r.quorum_nodes)), false) AS in_quorum,
    a.late,
    (
        CASE octet_length(a.receipt)
            WHEN 32 THEN 'v1,'::text
            ELSE 'v1a,'::text
        END || translate(encode(a.receipt, 'base64'::text), '
'::text, ''::text)) AS receipt,
    ((v.receipt_key || v.other_keys))[a.key_no] AS receipt_key,
    (octet_length(a.receipt) = 64) AS third_party
   FROM (((quorate_store.ack a
     JOIN quorate_store.round r ON ((r.round_no = a.round_no)))
     JOIN quorate_store.ledger l ON ((l.round_no = a.round_no)))
     JOIN quorate_store.node_version v ON ((v.version = r.node_versions[array_position(r.node_ids, a.node_id)])));

COMMENT ON VIEW quorate.acks IS 'Every verified receipt, once per node of a round, with the key that it verifies under. late: stored after the deadline or the end of a failed round; it changes nothing.
third_party: whether it convinces a third party, as an Ed25519 signature (v1a) does; one made with a symmetric secret (v1, receipt_key whid_...) can be checked, and could
have been made, by whoever holds the secret, the coordinators included.';

CREATE TABLE quorate_store.attempt (
    round_no bigint NOT NULL,
    reserved_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    retry_at timestamp with time zone,
    owner integer NOT NULL,
    route quorate_store.route NOT NULL,
    outcome quorate_store.outcome,
    node_id smallint NOT NULL,
    attempt smallint NOT NULL,
    http_status smallint,
    resends smallint DEFAULT 0 NOT NULL,
    CONSTRAINT attempt_attempt_check CHECK (((attempt >= 1) AND (attempt <= 100))),
    CONSTRAINT attempt_check CHECK (((outcome IS NULL) = (finished_at IS NULL))),
    CONSTRAINT attempt_http_status_check CHECK (((http_status >= 100) AND (http_status <= 999))),
    CONSTRAINT attempt_resends_check CHECK ((resends >= 0))
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.05');

CREATE VIEW quorate_store.attempt_state AS
 SELECT a.round_no,
    a.node_id,
    a.route,
    a.attempt,
    a.owner,
    a.reserved_at,
    a.xmin AS reserved_in,
    a.retry_at,
    a.resends,
    a.finished_at,
    a.http_status,
    a.outcome
   FROM quorate_store.attempt a
UNION ALL
 SELECT r.round_no,
    c.node_id,
    'primary'::quorate_store.route AS route,
    (1)::smallint AS attempt,
    r.claimed_by AS owner,
    r.claimed_at AS reserved_at,
    NULL::xid AS reserved_in,
    NULL::timestamp with time zone AS retry_at,
    (0)::smallint AS resends,
    k.acked_at AS finished_at,
    k.http_status,
        CASE
            WHEN (k.round_no IS NOT NULL) THEN 'ack'::quorate_store.outcome
            ELSE NULL::quorate_store.outcome
        END AS outcome
   FROM ((quorate_store.round r
     CROSS JOIN LATERAL unnest(r.claimed_nodes) c(node_id))
     LEFT JOIN quorate_store.ack k ON (((k.round_no = r.round_no) AND (k.node_id = c.node_id) AND (k.route = 'primary'::quorate_store.route) AND (k.attempt = 1))))
  WHERE (NOT (EXISTS ( SELECT
           FROM quorate_store.attempt a
          WHERE ((a.round_no = r.round_no) AND (a.node_id = c.node_id) AND (a.route = 'primary'::quorate_store.route) AND (a.attempt = 1)))));

COMMENT ON VIEW quorate_store.attempt_state IS 'Every attempt, those included that a claim stands for: of such a one its ack says the outcome. outcome NULL: under way. reserved_in: the
transaction that wrote its row.';

CREATE TABLE quorate_store.coordinator (
    instance_no integer NOT NULL,
    instance_id uuid NOT NULL,
    name text NOT NULL,
    lease interval NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    holds_life boolean DEFAULT false NOT NULL,
    ended_at timestamp with time zone,
    end_reason text,
    cleared_at timestamp with time zone,
    CONSTRAINT coordinator_check CHECK (((ended_at IS NULL) = (end_reason IS NULL))),
    CONSTRAINT coordinator_check1 CHECK (((cleared_at IS NULL) OR (ended_at IS NOT NULL))),
    CONSTRAINT coordinator_end_reason_check CHECK ((end_reason = ANY (ARRAY['left'::text, 'fenced'::text]))),
    CONSTRAINT coordinator_lease_check CHECK ((lease > '00:00:00'::interval)),
    CONSTRAINT coordinator_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255)))
)
WITH (fillfactor='20');

CREATE VIEW quorate.attempts AS
 SELECT l.round_id,
    (a.node_id)::integer AS node_id,
    (a.route)::text AS route,
    (a.attempt)::integer AS attempt,
    c.name AS coordinator,
    a.reserved_at,
    a.finished_at,
    (a.outcome)::text AS outcome,
    (a.http_status)::integer AS http_status,
    (a.resends)::integer AS resends
   FROM ((quorate_store.ledger l
     CROSS JOIN LATERAL ( SELECT s.round_no,
            s.node_id,
            s.route,
            s.attempt,
            s.owner,
            s.reserved_at,
            s.reserved_in,
            s.retry_at,
            s.resends,
            s.finished_at,
            s.http_status,
            s.outcome
           FROM quorate_store.attempt_state s
          WHERE (s.round_no = l.round_no)
         OFFSET 0) a)
     LEFT JOIN quorate_store.coordinator c ON ((c.instance_no = a.owner)));

COMMENT ON VIEW quorate.attempts IS 'Every HTTP request that was reserved. outcome NULL: under way. resends: how often another coordinator sent it again under the same number.';

CREATE TABLE quorate_store.checkpoint (
    checkpoint_no bigint NOT NULL,
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    hash bytea NOT NULL,
    signature bytea NOT NULL,
    key text NOT NULL,
    CONSTRAINT checkpoint_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT checkpoint_key_check CHECK ((key ~ '^whpk_[A-Za-z0-9+/]{43}=$'::text)),
    CONSTRAINT checkpoint_signature_check CHECK ((octet_length(signature) = 64))
);

CREATE TABLE quorate_store.deployment (
    singleton boolean DEFAULT true NOT NULL,
    deployment_id text NOT NULL COLLATE pg_catalog."C",
    max_envelope_bytes integer DEFAULT 16777216 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT deployment_deployment_id_check CHECK ((deployment_id ~ '^[A-Za-z0-9_-]{1,128}$'::text)),
    CONSTRAINT deployment_max_envelope_bytes_check CHECK (((max_envelope_bytes >= 1) AND (max_envelope_bytes <= 16777216))),
    CONSTRAINT deployment_singleton_check CHECK (singleton)
);

CREATE VIEW quorate.checkpoints AS
 SELECT c.checkpoint_no,
    c.seq,
    c.at,
    encode(c.hash, 'hex'::text) AS hash,
    c.key,
    ('v1a,'::text || translate(encode(c.signature, 'base64'::text), '
'::text, ''::text)) AS signature,
    format('quorate-checkpoint-v1.%s.%s.%s.%s %s v1a,%s'::text, d.deployment_id, c.seq, encode(c.hash, 'hex'::text), ((EXTRACT(epoch FROM c.at) * (1000000)::numeric))::bigint, c.key, translate(encode(c.signature, 'base64'::text), '
'::text, ''::text)) AS line
   FROM (quorate_store.checkpoint c
     CROSS JOIN quorate_store.deployment d);

COMMENT ON VIEW quorate.checkpoints IS 'Signatures over the chain of the history: when it had seq entries it ended with hash. line: what is to be kept elsewhere: the signed text, the key, the signature.';

CREATE VIEW quorate.coordinators AS
 SELECT c.name AS coordinator,
    c.instance_id,
    c.started_at,
    c.heartbeat_at,
    ((c.ended_at IS NULL) AND ((c.heartbeat_at + c.lease) >= clock_timestamp())) AS alive,
    ( SELECT (count(*))::integer AS count
           FROM quorate_store.round r
          WHERE ((r.owner = c.instance_no) AND (r.settled_at IS NULL) AND (r.state = 'open'::quorate_store.round_state) AND (r.round_no > 0))) AS open_rounds
   FROM quorate_store.coordinator c;

COMMENT ON VIEW quorate.coordinators IS 'Every start of quorate run. alive: not fenced, not gone, and heard from within its lease.';

CREATE VIEW quorate.dead_letters AS
 SELECT l.round_id,
    'not_collected'::text AS reason,
    r.closed_at,
    ( SELECT (count(*))::integer AS count
           FROM quorate_store.ack a
          WHERE (a.round_no = r.round_no)) AS acked,
    (r.quorum)::integer AS quorum
   FROM (quorate_store.round r
     JOIN quorate_store.ledger l ON ((l.round_no = r.round_no)))
  WHERE (r.state = 'dead_lettered'::quorate_store.round_state)
UNION ALL
 SELECT l.round_id,
    'late_quorum'::text AS reason,
    r.closed_at,
    (k.acked)::integer AS acked,
    (r.quorum)::integer AS quorum
   FROM (((( SELECT DISTINCT a.round_no
           FROM quorate_store.ack a
          WHERE a.late) late
     JOIN quorate_store.round r ON (((r.round_no = late.round_no) AND (r.state = 'stalled'::quorate_store.round_state))))
     JOIN quorate_store.ledger l ON ((l.round_no = r.round_no)))
     CROSS JOIN LATERAL ( SELECT count(*) AS acked
           FROM quorate_store.ack a
          WHERE (a.round_no = r.round_no)) k)
  WHERE (k.acked >= r.quorum);

COMMENT ON VIEW quorate.dead_letters IS 'Rounds whose result must not be used any more: complete but not collected while fresh (not_collected), or stalled and then reaching t with late acks (late_quorum).
acked: late ones included.';

CREATE TABLE quorate_store.delivery (
    round_no bigint NOT NULL,
    distributed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    payload_bytes integer NOT NULL,
    node_id smallint NOT NULL,
    payload_sha256 bytea NOT NULL
);

CREATE VIEW quorate_store.delivery_state AS
 SELECT d.round_no,
    d.node_id,
    d.payload_sha256,
    d.payload_bytes,
    r.settled_at,
    (p.used + b.used) AS attempts,
    o.outcome AS last_outcome,
        CASE
            WHEN ((s.state = 'pending'::text) AND (s.primary_left OR s.backup_left) AND ((p.under_way + b.under_way) = 0)) THEN LEAST(
            CASE
                WHEN s.primary_left THEN p.retry_at
                ELSE NULL::timestamp with time zone
            END,
            CASE
                WHEN s.backup_left THEN b.retry_at
                ELSE NULL::timestamp with time zone
            END)
            ELSE NULL::timestamp with time zone
        END AS next_attempt_at,
    s.state
   FROM ((((((((quorate_store.delivery d
     JOIN quorate_store.round r ON ((r.round_no = d.round_no)))
     JOIN quorate_store.node_version v ON ((v.version = r.node_versions[array_position(r.node_ids, d.node_id)])))
     LEFT JOIN quorate_store.ack k ON (((k.round_no = d.round_no) AND (k.node_id = d.node_id))))
     CROSS JOIN LATERAL ( SELECT count(*) AS used,
            count(*) FILTER (WHERE (a.outcome IS NULL)) AS under_way,
            COALESCE(bool_or((a.outcome = 'refused'::quorate_store.outcome)), false) AS refused,
            max(a.retry_at) AS retry_at
           FROM quorate_store.attempt_state a
          WHERE ((a.round_no = d.round_no) AND (a.node_id = d.node_id) AND (a.route = 'primary'::quorate_store.route))) p)
     CROSS JOIN LATERAL ( SELECT count(*) AS used,
            count(*) FILTER (WHERE (a.outcome IS NULL)) AS under_way,
            COALESCE(bool_or((a.outcome = 'refused'::quorate_store.outcome)), false) AS refused,
            max(a.retry_at) AS retry_at
           FROM quorate_store.attempt_state a
          WHERE ((a.round_no = d.round_no) AND (a.node_id = d.node_id) AND (a.route = 'backup'::quorate_store.route))) b)
     LEFT JOIN LATERAL ( SELECT a.outcome
           FROM quorate_store.attempt_state a
          WHERE ((a.round_no = d.round_no) AND (a.node_id = d.node_id) AND (a.outcome IS NOT NULL))
          ORDER BY a.finished_at DESC, a.attempt DESC
         LIMIT 1) o ON (true))
     CROSS JOIN LATERAL ( SELECT ((NOT p.refused) AND ((p.used < r.retry_budget) OR (p.under_way > 0))) AS primary_left,
            ((v.backup_url IS NOT NULL) AND (NOT b.refused) AND ((b.used < r.retry_budget) OR (b.under_way > 0)) AND ((r.escalated_at IS NOT NULL) OR (r.state = 'open'::quorate_store.round_state))) AS backup_left,
            ((r.settled_at IS NULL) AND (clock_timestamp() <= r.deadline_at) AND ((r.state = 'open'::quorate_store.round_state) OR ((r.state = 'complete'::quorate_store.round_state) AND (r.after_quorum = 'continue'::quorate_store.after_quorum)))) AS going_on) q)
     CROSS JOIN LATERAL ( SELECT q.primary_left,
            q.backup_left,
                CASE
                    WHEN (k.round_no IS NOT NULL) THEN 'acked'::text
                    WHEN (q.going_on AND (q.primary_left OR q.backup_left)) THEN 'pending'::text
                    WHEN ((r.state = 'open'::quorate_store.round_state) AND (q.primary_left OR q.backup_left)) THEN 'pending'::text
                    WHEN (q.primary_left OR q.backup_left) THEN 'abandoned'::text
                    WHEN (p.refused OR b.refused) THEN 'refused'::text
                    ELSE 'exhausted'::text
                END AS state) s);

COMMENT ON VIEW quorate_store.delivery_state IS 'The state of every delivery, derived: acked once an ack is stored; pending while a route may still be tried; refused or exhausted once none has an attempt left;
abandoned when the round ended first.';

CREATE VIEW quorate.deliveries AS
 SELECT l.round_id,
    (s.node_id)::integer AS node_id,
    s.state,
    (s.attempts)::integer AS attempts,
    (s.last_outcome)::text AS last_outcome,
    s.next_attempt_at,
    s.payload_sha256,
    s.payload_bytes,
    s.settled_at AS payload_erased_at
   FROM (quorate_store.ledger l
     CROSS JOIN LATERAL ( SELECT d.round_no,
            d.node_id,
            d.payload_sha256,
            d.payload_bytes,
            d.settled_at,
            d.attempts,
            d.last_outcome,
            d.next_attempt_at,
            d.state
           FROM quorate_store.delivery_state d
          WHERE (d.round_no = l.round_no)
         OFFSET 0) s);

COMMENT ON VIEW quorate.deliveries IS 'Accepted envelopes and how far their delivery got: pending, acked, exhausted, refused or abandoned. attempts: on both routes. payload_erased_at: since when only
the SHA-256 and the size are left.';

CREATE TABLE quorate_store.migration (
    number integer NOT NULL,
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT migration_number_check CHECK ((number > 0)),
    CONSTRAINT migration_sha256_check CHECK ((octet_length(sha256) = 32))
);

COMMENT ON TABLE quorate_store.migration IS 'numbered files of migrations/, applied once each and never changed after';

CREATE VIEW quorate.deployment AS
 SELECT d.deployment_id,
    ( SELECT max(m.number) AS max
           FROM quorate_store.migration m) AS schema_version
   FROM quorate_store.deployment d;

COMMENT ON VIEW quorate.deployment IS 'This database''s deployment: its id, which is part of every signature, and the number of its last migration.';

CREATE VIEW quorate.node_keys AS
 SELECT (k.node_id)::integer AS node_id,
    k.key,
        CASE
            WHEN starts_with(k.key, 'qbox_'::text) THEN 'seal'::text
            ELSE 'receipt'::text
        END AS use,
    k.valid_from,
    k.valid_until,
    k.revoked_at,
        CASE
            WHEN (k.revoked_at IS NOT NULL) THEN 'revoked'::text
            WHEN (k.valid_until <= GREATEST(k.valid_from, clock_timestamp())) THEN 'expired'::text
            WHEN (k.valid_from > clock_timestamp()) THEN 'future'::text
            ELSE 'valid'::text
        END AS state
   FROM quorate_store.node_key k;

COMMENT ON VIEW quorate.node_keys IS 'The windows in which keys of nodes are valid: rounds opened from valid_from on and before valid_until (NULL: for ever) take receipts by the key (use receipt), or have
their envelopes sealed to it (use seal; the valid one that began last). valid_until = valid_from: taken back before it began. state: valid, future, expired or revoked.';

CREATE TABLE quorate_store.node (
    node_id smallint NOT NULL,
    current_version integer NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    keys_until timestamp with time zone,
    CONSTRAINT node_keys_until_check CHECK (((keys_until = '-infinity'::timestamp with time zone) OR ((keys_until >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (keys_until <= '9999-12-31 00:00:00+00'::timestamp with time zone))))
);

CREATE VIEW quorate.nodes AS
 SELECT (n.node_id)::integer AS node_id,
    v.url,
    v.backup_url,
    v.receipt_key,
    n.enabled,
    v.seal_key,
    (v.receipt_key || v.other_keys) AS receipt_keys
   FROM (quorate_store.node n
     JOIN quorate_store.node_version v ON ((v.version = n.current_version)));

COMMENT ON VIEW quorate.nodes IS 'The custodians as they are now; rounds that are open keep what they were opened with. seal_key: what envelopes are sealed to; NULL: they are sent as they are.
receipt_keys: all keys whose receipts count, newest first; receipt_key: the first of them. Of a node without a valid key, the last ones. Since when and until when they are valid: node_keys.';

CREATE VIEW quorate.rejections AS
 SELECT j.rejected_at,
    j.round_id,
    j.node_id,
    j.nonce,
    (j.verdict)::text AS verdict,
    j.rejected_for
   FROM quorate_store.rejection j;

COMMENT ON VIEW quorate.rejections IS 'Every envelope that distribute refused, and for which session user.';

CREATE VIEW quorate.rounds AS
 SELECT l.round_id,
    l.nonce,
    (r.state)::text AS state,
    (r.quorum)::integer AS quorum,
    cardinality(r.node_ids) AS total_nodes,
    (r.node_ids)::integer[] AS node_ids,
    r.per_share_timeout,
    (r.retry_budget)::integer AS retry_budget,
    r.base_backoff,
    r.max_backoff,
    (r.after_quorum)::text AS after_quorum,
    ( SELECT (count(*))::integer AS count
           FROM quorate_store.ack a
          WHERE ((a.round_no = r.round_no) AND (NOT a.late))) AS acked,
    (r.quorum_nodes)::integer[] AS quorum_nodes,
    r.opened_at,
    r.escalate_at,
    r.escalated_at,
    r.deadline_at,
    r.fresh_until,
    r.closed_at,
    r.collected_at,
    r.dead_lettered_at,
    r.settled_at,
    r.close_reason,
    c.name AS coordinator,
    r.require_sealed
   FROM ((quorate_store.round r
     JOIN quorate_store.ledger l ON ((l.round_no = r.round_no)))
     LEFT JOIN quorate_store.coordinator c ON ((c.instance_no = r.owner)));

COMMENT ON VIEW quorate.rounds IS 'Every round that was not pruned. acked: on-time acks. quorum_nodes: whose acks made the quorum; NULL unless complete or dead_lettered. coordinator: who owned it last.
require_sealed: whether distribute refused what is not sealed. Times are the database''s clock.';

ALTER TABLE quorate_store.checkpoint ALTER COLUMN checkpoint_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.checkpoint_checkpoint_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE quorate_store.coordinator ALTER COLUMN instance_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.coordinator_instance_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE quorate_store.envelope (
    round_no bigint NOT NULL,
    node_id smallint NOT NULL,
    payload bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY quorate_store.envelope ALTER COLUMN payload SET STATISTICS 0;
ALTER TABLE ONLY quorate_store.envelope ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE quorate_store.history (
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    key bigint NOT NULL,
    kind quorate_store.history_kind NOT NULL,
    digest bytea NOT NULL,
    hash bytea NOT NULL,
    parts bytea NOT NULL,
    record text,
    CONSTRAINT history_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT history_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT history_seq_check CHECK ((seq > 0))
);

CREATE TABLE quorate_store.history_due (
    due_no bigint NOT NULL,
    key bigint NOT NULL,
    kind quorate_store.history_kind NOT NULL,
    note json
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE quorate_store.history_due ALTER COLUMN due_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.history_due_due_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE quorate_store.history_import (
    singleton boolean DEFAULT true NOT NULL,
    rounds bigint NOT NULL,
    rejections bigint NOT NULL,
    next_round bigint DEFAULT 1 NOT NULL,
    next_rejection bigint DEFAULT 1 NOT NULL,
    CONSTRAINT history_import_singleton_check CHECK (singleton)
);

ALTER TABLE quorate_store.ledger ALTER COLUMN round_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.ledger_round_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE quorate_store.node_key ALTER COLUMN key_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.node_key_key_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE quorate_store.node_version ALTER COLUMN version ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.node_version_version_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE quorate_store.rejection ALTER COLUMN rejection_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quorate_store.rejection_rejection_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE quorate_store.repeatable (
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT repeatable_sha256_check CHECK ((octet_length(sha256) = 32))
);

COMMENT ON TABLE quorate_store.repeatable IS 'files of sql/, applied again, all together, when one of them changes';

ALTER TABLE ONLY quorate_store.ack
    ADD CONSTRAINT ack_pkey PRIMARY KEY (round_no, node_id);

ALTER TABLE ONLY quorate_store.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (round_no, node_id, route, attempt);

ALTER TABLE ONLY quorate_store.checkpoint
    ADD CONSTRAINT checkpoint_key_seq_key UNIQUE (key, seq);

ALTER TABLE ONLY quorate_store.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (checkpoint_no);

ALTER TABLE ONLY quorate_store.coordinator
    ADD CONSTRAINT coordinator_instance_id_key UNIQUE (instance_id);

ALTER TABLE ONLY quorate_store.coordinator
    ADD CONSTRAINT coordinator_pkey PRIMARY KEY (instance_no);

ALTER TABLE ONLY quorate_store.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (round_no, node_id);

ALTER TABLE ONLY quorate_store.deployment
    ADD CONSTRAINT deployment_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY quorate_store.envelope
    ADD CONSTRAINT envelope_pkey PRIMARY KEY (round_no, node_id);

ALTER TABLE ONLY quorate_store.history_import
    ADD CONSTRAINT history_import_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY quorate_store.history
    ADD CONSTRAINT history_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY quorate_store.ledger
    ADD CONSTRAINT ledger_nonce_key UNIQUE (nonce);

ALTER TABLE ONLY quorate_store.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (round_no);

ALTER TABLE ONLY quorate_store.ledger
    ADD CONSTRAINT ledger_round_id_key UNIQUE (round_id);

ALTER TABLE ONLY quorate_store.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);

ALTER TABLE ONLY quorate_store.node_key
    ADD CONSTRAINT node_key_pkey PRIMARY KEY (key_no);

ALTER TABLE ONLY quorate_store.node
    ADD CONSTRAINT node_pkey PRIMARY KEY (node_id);

ALTER TABLE ONLY quorate_store.node_version
    ADD CONSTRAINT node_version_pkey PRIMARY KEY (version);

ALTER TABLE ONLY quorate_store.node_version
    ADD CONSTRAINT node_version_version_node_id_key UNIQUE (version, node_id);

ALTER TABLE ONLY quorate_store.rejection
    ADD CONSTRAINT rejection_pkey PRIMARY KEY (rejection_no);

ALTER TABLE ONLY quorate_store.repeatable
    ADD CONSTRAINT repeatable_pkey PRIMARY KEY (name);

ALTER TABLE ONLY quorate_store.round
    ADD CONSTRAINT round_pkey PRIMARY KEY (round_no);

CREATE INDEX ack_late ON quorate_store.ack USING btree (round_no) WHERE late;

CREATE INDEX coordinator_current ON quorate_store.coordinator USING btree (instance_no) WHERE (cleared_at IS NULL);

CREATE INDEX history_due_gone ON quorate_store.history_due USING btree (key) WHERE (kind = ANY (ARRAY['pruned'::quorate_store.history_kind, 'forgotten'::quorate_store.history_kind]));

CREATE INDEX history_due_order ON quorate_store.history_due USING btree (due_no);

CREATE INDEX history_key ON quorate_store.history USING btree (key, kind);

CREATE UNIQUE INDEX node_key_window ON quorate_store.node_key USING btree (node_id, key, valid_from) WHERE (valid_until IS DISTINCT FROM valid_from);

CREATE INDEX node_version_node ON quorate_store.node_version USING btree (node_id);

CREATE INDEX rejection_round ON quorate_store.rejection USING btree (round_id);

CREATE INDEX round_dead_lettered ON quorate_store.round USING btree (dead_lettered_at) WHERE (state = 'dead_lettered'::quorate_store.round_state);

CREATE INDEX round_due ON quorate_store.round USING btree (deadline_at) WHERE ((state = 'open'::quorate_store.round_state) AND (round_no > 0));

CREATE INDEX round_failed ON quorate_store.round USING btree (owner, round_no) WHERE ((state = ANY (ARRAY['stalled'::quorate_store.round_state, 'cancelled'::quorate_store.round_state])) AND (settled_at IS NULL) AND (round_no > 0));

CREATE INDEX round_fresh ON quorate_store.round USING btree (fresh_until) WHERE ((state = 'complete'::quorate_store.round_state) AND (collected_at IS NULL) AND (fresh_until IS NOT NULL) AND (round_no > 0));

CREATE INDEX round_news ON quorate_store.round USING btree (owner) WHERE (news AND (settled_at IS NULL) AND (round_no > 0));

CREATE INDEX round_opened ON quorate_store.round USING brin (opened_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX round_unsettled ON quorate_store.round USING btree (owner, round_no) WHERE ((settled_at IS NULL) AND (round_no > 0));

CREATE TRIGGER ack_belongs AFTER INSERT ON quorate_store.ack REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.ack_belongs();

ALTER TABLE quorate_store.ack ENABLE ALWAYS TRIGGER ack_belongs;

CREATE TRIGGER ack_frozen BEFORE UPDATE ON quorate_store.ack FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('an ack never changes');

ALTER TABLE quorate_store.ack ENABLE ALWAYS TRIGGER ack_frozen;

CREATE TRIGGER ack_kept AFTER DELETE ON quorate_store.ack REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.goes_with_round();

ALTER TABLE quorate_store.ack ENABLE ALWAYS TRIGGER ack_kept;

CREATE TRIGGER attempt_belongs AFTER INSERT ON quorate_store.attempt REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.attempt_belongs();

ALTER TABLE quorate_store.attempt ENABLE ALWAYS TRIGGER attempt_belongs;

CREATE TRIGGER attempt_frozen BEFORE UPDATE ON quorate_store.attempt FOR EACH ROW WHEN (((old.outcome IS NOT NULL) OR (new.round_no <> old.round_no) OR (new.node_id <> old.node_id) OR (new.route <> old.route) OR (new.attempt <> old.attempt) OR (new.reserved_at <> old.reserved_at) OR (new.resends < old.resends))) EXECUTE FUNCTION quorate_store.forbid('an attempt keeps its key and time, and its outcome is written once');

ALTER TABLE quorate_store.attempt ENABLE ALWAYS TRIGGER attempt_frozen;

CREATE TRIGGER attempt_kept AFTER DELETE ON quorate_store.attempt REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.goes_with_round();

ALTER TABLE quorate_store.attempt ENABLE ALWAYS TRIGGER attempt_kept;

CREATE TRIGGER checkpoint_permanent BEFORE DELETE OR UPDATE ON quorate_store.checkpoint FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('checkpoints are permanent');

ALTER TABLE quorate_store.checkpoint ENABLE ALWAYS TRIGGER checkpoint_permanent;

CREATE TRIGGER coordinator_fixed BEFORE UPDATE ON quorate_store.coordinator FOR EACH ROW WHEN (((new.instance_no <> old.instance_no) OR (new.instance_id <> old.instance_id) OR (new.name <> old.name) OR ((old.ended_at IS NOT NULL) AND (new.ended_at IS DISTINCT FROM old.ended_at)))) EXECUTE FUNCTION quorate_store.forbid('a coordinator keeps its identity, and once fenced it stays fenced');

ALTER TABLE quorate_store.coordinator ENABLE ALWAYS TRIGGER coordinator_fixed;

CREATE TRIGGER coordinator_kept BEFORE DELETE ON quorate_store.coordinator FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('attempts refer to it');

ALTER TABLE quorate_store.coordinator ENABLE ALWAYS TRIGGER coordinator_kept;

CREATE TRIGGER delivery_belongs AFTER INSERT ON quorate_store.delivery REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.delivery_belongs();

ALTER TABLE quorate_store.delivery ENABLE ALWAYS TRIGGER delivery_belongs;

CREATE TRIGGER delivery_frozen BEFORE UPDATE ON quorate_store.delivery FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('a delivery never changes');

ALTER TABLE quorate_store.delivery ENABLE ALWAYS TRIGGER delivery_frozen;

CREATE TRIGGER delivery_kept AFTER DELETE ON quorate_store.delivery REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.goes_with_round();

ALTER TABLE quorate_store.delivery ENABLE ALWAYS TRIGGER delivery_kept;

CREATE TRIGGER deployment_id_fixed BEFORE UPDATE ON quorate_store.deployment FOR EACH ROW WHEN ((new.deployment_id IS DISTINCT FROM old.deployment_id)) EXECUTE FUNCTION quorate_store.forbid('the deployment id is signed into receipts and never changes');

ALTER TABLE quorate_store.deployment ENABLE ALWAYS TRIGGER deployment_id_fixed;

CREATE TRIGGER deployment_kept BEFORE DELETE ON quorate_store.deployment FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('the deployment is never deleted');

ALTER TABLE quorate_store.deployment ENABLE ALWAYS TRIGGER deployment_kept;

CREATE TRIGGER envelope_belongs AFTER INSERT ON quorate_store.envelope REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.envelope_belongs();

ALTER TABLE quorate_store.envelope ENABLE ALWAYS TRIGGER envelope_belongs;

CREATE TRIGGER envelope_erased AFTER DELETE ON quorate_store.envelope REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.envelope_erased();

ALTER TABLE quorate_store.envelope ENABLE ALWAYS TRIGGER envelope_erased;

CREATE TRIGGER envelope_frozen BEFORE UPDATE ON quorate_store.envelope FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('an envelope never changes');

ALTER TABLE quorate_store.envelope ENABLE ALWAYS TRIGGER envelope_frozen;

CREATE TRIGGER history_chained AFTER DELETE ON quorate_store.history_due REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_chained();

ALTER TABLE quorate_store.history_due ENABLE ALWAYS TRIGGER history_chained;

CREATE TRIGGER history_changed AFTER INSERT ON quorate_store.checkpoint FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('checkpoint_no');

ALTER TABLE quorate_store.checkpoint ENABLE ALWAYS TRIGGER history_changed;

CREATE TRIGGER history_changed AFTER INSERT ON quorate_store.coordinator FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('instance_no');

ALTER TABLE quorate_store.coordinator ENABLE ALWAYS TRIGGER history_changed;

CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.deployment FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed();

ALTER TABLE quorate_store.deployment ENABLE ALWAYS TRIGGER history_changed;

CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.node FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('node_id');

ALTER TABLE quorate_store.node ENABLE ALWAYS TRIGGER history_changed;

CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.node_key FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('key_no');

ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER history_changed;

CREATE TRIGGER history_changed AFTER INSERT OR UPDATE ON quorate_store.node_version FOR EACH ROW EXECUTE FUNCTION quorate_store.history_changed('version');

ALTER TABLE quorate_store.node_version ENABLE ALWAYS TRIGGER history_changed;

CREATE TRIGGER history_due_frozen BEFORE UPDATE ON quorate_store.history_due FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('what has happened never changes');

ALTER TABLE quorate_store.history_due ENABLE ALWAYS TRIGGER history_due_frozen;

CREATE TRIGGER history_ended AFTER UPDATE ON quorate_store.coordinator FOR EACH ROW WHEN ((old.ended_at IS DISTINCT FROM new.ended_at)) EXECUTE FUNCTION quorate_store.history_changed('instance_no');

ALTER TABLE quorate_store.coordinator ENABLE ALWAYS TRIGGER history_ended;

CREATE TRIGGER history_forgotten AFTER DELETE ON quorate_store.rejection REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_forgotten();

ALTER TABLE quorate_store.rejection ENABLE ALWAYS TRIGGER history_forgotten;

CREATE TRIGGER history_import_kept BEFORE DELETE ON quorate_store.history_import FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('it says what was there before the history');

ALTER TABLE quorate_store.history_import ENABLE ALWAYS TRIGGER history_import_kept;

CREATE TRIGGER history_permanent BEFORE DELETE OR UPDATE ON quorate_store.history FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('the chain only grows');

ALTER TABLE quorate_store.history ENABLE ALWAYS TRIGGER history_permanent;

CREATE TRIGGER history_pruned AFTER DELETE ON quorate_store.round REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_pruned();

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER history_pruned;

CREATE TRIGGER history_rejected AFTER INSERT ON quorate_store.rejection REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_rejected();

ALTER TABLE quorate_store.rejection ENABLE ALWAYS TRIGGER history_rejected;

CREATE TRIGGER history_round AFTER UPDATE ON quorate_store.round REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.history_round();

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER history_round;

CREATE TRIGGER ledger_fixed BEFORE UPDATE ON quorate_store.ledger FOR EACH ROW WHEN (((new.round_no <> old.round_no) OR (new.nonce <> old.nonce) OR (new.round_id <> old.round_id) OR (old.pruned_at IS NOT NULL))) EXECUTE FUNCTION quorate_store.forbid('used round ids and nonces are permanent');

ALTER TABLE quorate_store.ledger ENABLE ALWAYS TRIGGER ledger_fixed;

CREATE TRIGGER ledger_permanent BEFORE DELETE ON quorate_store.ledger FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('used round ids and nonces are permanent');

ALTER TABLE quorate_store.ledger ENABLE ALWAYS TRIGGER ledger_permanent;

CREATE TRIGGER ledger_pruned BEFORE UPDATE OF pruned_at ON quorate_store.ledger FOR EACH ROW EXECUTE FUNCTION quorate_store.ledger_pruned();

ALTER TABLE quorate_store.ledger ENABLE ALWAYS TRIGGER ledger_pruned;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.ack FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.ack ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.attempt FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.attempt ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.checkpoint FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.checkpoint ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.coordinator FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.coordinator ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.delivery FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.delivery ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.deployment FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.deployment ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.envelope FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.envelope ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.history FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.history ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.history_due FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.history_due ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.history_import FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.history_import ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.ledger FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.ledger ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.node FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.node ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.node_key FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.node_version FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.node_version ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.rejection FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.rejection ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quorate_store.round FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.forbid('history is never truncated');

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER no_truncate;

CREATE TRIGGER node_kept BEFORE DELETE ON quorate_store.node FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('a node is disabled, not deleted');

ALTER TABLE quorate_store.node ENABLE ALWAYS TRIGGER node_kept;

CREATE TRIGGER node_key_begins BEFORE INSERT ON quorate_store.node_key FOR EACH ROW EXECUTE FUNCTION quorate_store.node_key_begins();

ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER node_key_begins;

CREATE TRIGGER node_key_fixed BEFORE UPDATE ON quorate_store.node_key FOR EACH ROW WHEN (((new.key_no <> old.key_no) OR (new.node_id <> old.node_id) OR (new.key <> old.key) OR (new.valid_from <> old.valid_from) OR (new.added_at <> old.added_at) OR (old.revoked_at IS NOT NULL) OR ((new.valid_until IS DISTINCT FROM old.valid_until) AND ((old.valid_until <= GREATEST(old.valid_from, clock_timestamp())) OR (new.valid_until < now()))))) EXECUTE FUNCTION quorate_store.forbid('a key keeps its node and its beginning, an end that has passed stays, and revoked is for ever');

ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER node_key_fixed;

CREATE TRIGGER node_key_kept BEFORE DELETE ON quorate_store.node_key FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('it says since when and until when receipts of a key counted; end or revoke it instead');

ALTER TABLE quorate_store.node_key ENABLE ALWAYS TRIGGER node_key_kept;

CREATE TRIGGER node_version_permanent BEFORE DELETE OR UPDATE ON quorate_store.node_version FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('rounds refer to it; add a new version instead');

ALTER TABLE quorate_store.node_version ENABLE ALWAYS TRIGGER node_version_permanent;

CREATE TRIGGER rejection_frozen BEFORE UPDATE ON quorate_store.rejection FOR EACH ROW EXECUTE FUNCTION quorate_store.forbid('a rejection never changes');

ALTER TABLE quorate_store.rejection ENABLE ALWAYS TRIGGER rejection_frozen;

CREATE TRIGGER rejection_kept AFTER DELETE ON quorate_store.rejection REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.rejection_kept();

ALTER TABLE quorate_store.rejection ENABLE ALWAYS TRIGGER rejection_kept;

CREATE TRIGGER round_begins AFTER INSERT ON quorate_store.round REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.round_begins();

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_begins;

CREATE TRIGGER round_changes BEFORE UPDATE ON quorate_store.round FOR EACH ROW EXECUTE FUNCTION quorate_store.round_changes();

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_changes;

CREATE TRIGGER round_deleted AFTER DELETE ON quorate_store.round REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.round_deleted();

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_deleted;

CREATE TRIGGER round_ends AFTER UPDATE ON quorate_store.round REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION quorate_store.round_ends();

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_ends;

CREATE TRIGGER round_kept BEFORE DELETE ON quorate_store.round FOR EACH ROW WHEN ((old.settled_at IS NULL)) EXECUTE FUNCTION quorate_store.forbid('only a settled round can be deleted');

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_kept;

CREATE TRIGGER round_sealing_fixed BEFORE UPDATE OF require_sealed ON quorate_store.round FOR EACH ROW WHEN ((new.require_sealed <> old.require_sealed)) EXECUTE FUNCTION quorate_store.forbid('whether a round takes only sealed envelopes is fixed when it is opened');

ALTER TABLE quorate_store.round ENABLE ALWAYS TRIGGER round_sealing_fixed;

ALTER TABLE ONLY quorate_store.node
    ADD CONSTRAINT node_current_version_node_id_fkey FOREIGN KEY (current_version, node_id) REFERENCES quorate_store.node_version(version, node_id);

ALTER TABLE ONLY quorate_store.node_key
    ADD CONSTRAINT node_key_node_id_fkey FOREIGN KEY (node_id) REFERENCES quorate_store.node(node_id);

GRANT USAGE ON SCHEMA quorate TO quorate_dealer;
GRANT USAGE ON SCHEMA quorate TO quorate_collector;
GRANT USAGE ON SCHEMA quorate TO quorate_auditor;
GRANT USAGE ON SCHEMA quorate TO quorate_admin;

GRANT USAGE ON SCHEMA quorate_worker TO quorate_coordinator;

REVOKE ALL ON TYPE quorate_store.after_quorum FROM PUBLIC;

REVOKE ALL ON TYPE quorate_store.history_kind FROM PUBLIC;

REVOKE ALL ON TYPE quorate_store.outcome FROM PUBLIC;

REVOKE ALL ON TYPE quorate_store.round_state FROM PUBLIC;

REVOKE ALL ON TYPE quorate_store.route FROM PUBLIC;

REVOKE ALL ON TYPE quorate_store.verdict FROM PUBLIC;

REVOKE ALL ON TYPE quorate_store.work FROM PUBLIC;

GRANT SELECT ON TABLE quorate.acks TO quorate_auditor;
GRANT SELECT ON TABLE quorate.acks TO quorate_admin;

GRANT SELECT ON TABLE quorate.attempts TO quorate_auditor;
GRANT SELECT ON TABLE quorate.attempts TO quorate_admin;

GRANT SELECT ON TABLE quorate.checkpoints TO quorate_auditor;
GRANT SELECT ON TABLE quorate.checkpoints TO quorate_admin;

GRANT SELECT ON TABLE quorate.coordinators TO quorate_auditor;
GRANT SELECT ON TABLE quorate.coordinators TO quorate_admin;

GRANT SELECT ON TABLE quorate.dead_letters TO quorate_auditor;
GRANT SELECT ON TABLE quorate.dead_letters TO quorate_admin;

GRANT SELECT ON TABLE quorate.deliveries TO quorate_auditor;
GRANT SELECT ON TABLE quorate.deliveries TO quorate_admin;

GRANT SELECT ON TABLE quorate.deployment TO quorate_auditor;
GRANT SELECT ON TABLE quorate.deployment TO quorate_admin;

GRANT SELECT ON TABLE quorate.node_keys TO quorate_auditor;
GRANT SELECT ON TABLE quorate.node_keys TO quorate_admin;

GRANT SELECT ON TABLE quorate.nodes TO quorate_auditor;
GRANT SELECT ON TABLE quorate.nodes TO quorate_admin;

GRANT SELECT(node_id) ON TABLE quorate.nodes TO quorate_dealer;

GRANT SELECT(enabled) ON TABLE quorate.nodes TO quorate_dealer;

GRANT SELECT(seal_key) ON TABLE quorate.nodes TO quorate_dealer;

GRANT SELECT ON TABLE quorate.rejections TO quorate_auditor;
GRANT SELECT ON TABLE quorate.rejections TO quorate_admin;

GRANT SELECT ON TABLE quorate.rounds TO quorate_auditor;
GRANT SELECT ON TABLE quorate.rounds TO quorate_admin;

GRANT SELECT(round_id) ON TABLE quorate.rounds TO quorate_collector;

GRANT SELECT(state) ON TABLE quorate.rounds TO quorate_collector;

GRANT SELECT(deadline_at) ON TABLE quorate.rounds TO quorate_collector;

GRANT SELECT(fresh_until) ON TABLE quorate.rounds TO quorate_collector;

-- Functions: signature, result, kind and settings, and who may call each.
--
-- quorate.add_node(node_id integer, url text, receipt_key text, backup_url text DEFAULT NULL::text, seal_key text DEFAULT NULL::text)
--   returns void; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_admin
--
-- quorate.add_node_key(node_id integer, key text, valid_from timestamp with time zone DEFAULT NULL::timestamp with time zone, valid_until timestamp with time zone DEFAULT NULL::timestamp with time zone)
--   returns void; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_admin
--
-- quorate.cancel_round(round_id text, reason text)
--   returns boolean; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_dealer
--
-- quorate.collect(round_id text, quorum integer DEFAULT NULL::integer)
--   returns integer[]; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=1s; granted to quorate_collector
--
-- quorate.collected(round_id text)
--   returns TABLE(node_id integer, route text, url text, in_quorum boolean, receipt text, deployment_id text, nonce bigint, quorum integer, payload_sha256 bytea); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=1s; granted to quorate_collector
--
-- quorate.distribute(round_id text, nonce bigint, node_ids integer[], payloads bytea[])
--   returns TABLE(node_id integer, verdict text); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_dealer
--
-- quorate.history_entries(after_seq bigint, max_entries integer)
--   returns TABLE(seq bigint, at_us bigint, kind text, key bigint, digest bytea, hash bytea, parts bytea, record text, row_parts bytea, verdict text); stable, security definer, set search_path=pg_catalog, pg_temp, jit=off; granted to quorate_auditor
--
-- quorate.history_gaps(after_round bigint, max_rounds integer)
--   returns TABLE(upto bigint, source text, key text, problem text); stable, security definer, set search_path=pg_catalog, pg_temp, jit=off; granted to quorate_auditor
--
-- quorate.history_links(after_seq bigint, upto_seq bigint)
--   returns TABLE(link bytea); stable, security definer, set search_path=pg_catalog, pg_temp, jit=off; granted to quorate_auditor
--
-- quorate.history_of(round_id text)
--   returns TABLE(seq bigint, at_us bigint, kind text, key bigint, digest bytea, parts bytea, record text, before bytea); stable, security definer, set search_path=pg_catalog, pg_temp, jit=off; granted to quorate_auditor
--
-- quorate.history_status(OUT deployment_id text, OUT entries bigint, OUT hash bytea, OUT due bigint, OUT importing boolean)
--   returns record; stable, security definer, set search_path=pg_catalog, pg_temp, jit=off; granted to quorate_auditor
--
-- quorate.open_round(round_id text, quorum integer, node_ids integer[] DEFAULT NULL::integer[], INOUT nonce bigint DEFAULT NULL::bigint, per_share_timeout interval DEFAULT '00:00:02'::interval, retry_budget integer DEFAULT 4, base_backoff interval DEFAULT '00:00:00.05'::interval, max_backoff interval DEFAULT '00:00:01.5'::interval, round_deadline interval DEFAULT '00:00:08'::interval, freshness interval DEFAULT NULL::interval, after_quorum text DEFAULT 'continue'::text, require_sealed boolean DEFAULT false, OUT opened_at timestamp with time zone, OUT escalate_at timestamp with time zone, OUT deadline_at timestamp with time zone, OUT fresh_until timestamp with time zone)
--   returns record; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_dealer
--
-- quorate.prune_rounds(ended_before timestamp with time zone, max_rounds integer DEFAULT 10000)
--   returns bigint; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_admin
--
-- quorate.revoke_node_key(node_id integer, key text)
--   returns void; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_admin
--
-- quorate.seal_keys(round_id text)
--   returns TABLE(node_id integer, seal_key text, require_sealed boolean, deployment_id text); stable, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_dealer
--
-- quorate.set_envelope_limit(bytes integer)
--   returns void; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_admin
--
-- quorate.set_node_enabled(node_id integer, enabled boolean)
--   returns void; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_admin
--
-- quorate.settle_round(round_id text)
--   returns text; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=1s; granted to quorate_collector, quorate_dealer
--
-- quorate.submit_round(round_id text, quorum integer, node_ids integer[], payloads bytea[], INOUT nonce bigint DEFAULT NULL::bigint, per_share_timeout interval DEFAULT '00:00:02'::interval, retry_budget integer DEFAULT 4, base_backoff interval DEFAULT '00:00:00.05'::interval, max_backoff interval DEFAULT '00:00:01.5'::interval, round_deadline interval DEFAULT '00:00:08'::interval, freshness interval DEFAULT NULL::interval, after_quorum text DEFAULT 'continue'::text, require_sealed boolean DEFAULT false, OUT opened_at timestamp with time zone, OUT escalate_at timestamp with time zone, OUT deadline_at timestamp with time zone, OUT fresh_until timestamp with time zone)
--   returns record; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_dealer
--
-- quorate.submit_rounds(round_ids text[], quorum integer, node_ids integer[], payloads bytea[], per_share_timeout interval DEFAULT '00:00:02'::interval, retry_budget integer DEFAULT 4, base_backoff interval DEFAULT '00:00:00.05'::interval, max_backoff interval DEFAULT '00:00:01.5'::interval, round_deadline interval DEFAULT '00:00:08'::interval, freshness interval DEFAULT NULL::interval, after_quorum text DEFAULT 'continue'::text, require_sealed boolean DEFAULT false)
--   returns TABLE(round_id text, nonce bigint, opened_at timestamp with time zone, escalate_at timestamp with time zone, deadline_at timestamp with time zone, fresh_until timestamp with time zone); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_dealer
--
-- quorate_store.ack_belongs()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.ack_text(p_ack quorate_store.ack, p_key text, p_sha256 bytea)
--   returns text; stable
--
-- quorate_store.adopt_keys(p_node_id smallint)
--   returns void; volatile
--
-- quorate_store.append_history(p_keys bigint[], p_kinds quorate_store.history_kind[], p_digests json[])
--   returns integer; volatile, set jit=off
--
-- quorate_store.attempt_belongs()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.chain_lock()
--   returns bigint; immutable
--
-- quorate_store.check_envelopes(p_rounds integer, p_node_ids integer[], p_payloads bytea[])
--   returns boolean; immutable
--
-- quorate_store.check_policy(p_round_ids text[], p_quorum integer, p_nonce bigint, p_timeout interval, p_budget integer, p_base interval, p_max interval, p_deadline interval, p_freshness interval, p_after text)
--   returns boolean; volatile
--
-- quorate_store.choose_nodes(p_quorum integer, p_node_ids integer[], OUT node_ids smallint[], OUT versions integer[])
--   returns record; volatile
--
-- quorate_store.decide(p_round_id text, p_floor integer, OUT round_no bigint, OUT quorum_nodes integer[])
--   returns record; volatile
--
-- quorate_store.delivery_belongs()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.digests_of(p_key bigint, p_kind quorate_store.history_kind)
--   returns json; stable
--
-- quorate_store.end_due(p_round_no bigint)
--   returns quorate_store.round_state; volatile
--
-- quorate_store.end_due_rounds(p_notify boolean, p_max integer, OUT stalled integer, OUT dead_lettered integer)
--   returns record; volatile, set enable_seqscan=off
--
-- quorate_store.enter_batch(p_instance integer)
--   returns boolean; volatile
--
-- quorate_store.enter_ledger(p_round_ids text[], p_nonce bigint, OUT round_nos bigint[], OUT nonces bigint[])
--   returns record; volatile
--
-- quorate_store.entry_digest(p_seq bigint, p_kind quorate_store.history_kind, p_key bigint, p_at timestamp with time zone, p_digest bytea, p_parts bytea)
--   returns bytea; stable
--
-- quorate_store.envelope_belongs()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.envelope_erased()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.fence(p_instance integer)
--   returns boolean; volatile
--
-- quorate_store.fence_class()
--   returns integer; immutable
--
-- quorate_store.forbid()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.goes_with_round()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.has_gone(p_key bigint, p_kind quorate_store.history_kind)
--   returns boolean; stable
--
-- quorate_store.history_chained()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.history_changed()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.history_forgotten()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.history_pruned()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.history_rejected()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.history_round()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp, enable_nestloop=off, enable_hashjoin=on
--
-- quorate_store.hold_node(p_node_id integer)
--   returns quorate_store.node_version; volatile
--
-- quorate_store.import_more(p_room integer, OUT keys bigint[], OUT kinds quorate_store.history_kind[])
--   returns record; volatile
--
-- quorate_store.invalid(message text, hint text DEFAULT NULL::text)
--   returns void; volatile
--
-- quorate_store.is_due(p_key bigint, p_kinds quorate_store.history_kind[])
--   returns boolean; stable
--
-- quorate_store.is_kept(p_kind quorate_store.history_kind)
--   returns boolean; immutable
--
-- quorate_store.is_of_round(p_kind quorate_store.history_kind)
--   returns boolean; immutable
--
-- quorate_store.is_over(p_row quorate_store.node_key, p_at timestamp with time zone)
--   returns boolean; stable
--
-- quorate_store.keep_only(p_node_id smallint, p_keys text[])
--   returns void; volatile
--
-- quorate_store.ledger_pruned()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.life_class()
--   returns integer; immutable
--
-- quorate_store.max_receipt_keys()
--   returns integer; immutable
--
-- quorate_store.new_rounds(p_round_ids text[], p_quorum integer, p_node_ids integer[], p_payloads bytea[], p_nonce bigint, p_timeout interval, p_budget integer, p_base interval, p_max interval, p_deadline interval, p_freshness interval, p_after text, p_require_sealed boolean)
--   returns TABLE(round_id text, nonce bigint, opened_at timestamp with time zone, escalate_at timestamp with time zone, deadline_at timestamp with time zone, fresh_until timestamp with time zone); volatile
--
-- quorate_store.no_valid_key(p_node_id smallint, p_at timestamp with time zone)
--   returns void; volatile
--
-- quorate_store.node_key_begins()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.nonce_of(p_uuid bytea)
--   returns bigint; immutable
--
-- quorate_store.note_acked(p_round_no bigint, p_now timestamp with time zone)
--   returns void; volatile
--
-- quorate_store.part(p_text text)
--   returns bytea; stable
--
-- quorate_store.quoted(p_text text)
--   returns text; stable
--
-- quorate_store.receipt_text(p_receipt bytea)
--   returns text; immutable
--
-- quorate_store.record_outcomes(p_instance integer, p_now timestamp with time zone, p_which bigint[], p_round_nos bigint[], p_node_ids smallint[], p_routes text[], p_attempts smallint[], p_outcomes text[], p_statuses smallint[], p_retry_us bigint[])
--   returns void; volatile
--
-- quorate_store.records_now(p_keys bigint[], p_kinds quorate_store.history_kind[], p_digests json[], p_whole boolean)
--   returns TABLE(i bigint, record text, digest bytea, parts bytea); stable, set jit=off
--
-- quorate_store.records_of(p_round_nos bigint[], p_gone quorate_store.round[], p_kinds quorate_store.history_kind[], p_whole boolean)
--   returns TABLE(i bigint, record text, digest bytea, parts bytea); stable, set enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
--
-- quorate_store.refresh_node(p_node_id smallint)
--   returns void; volatile
--
-- quorate_store.refresh_nodes()
--   returns void; volatile
--
-- quorate_store.refuse_envelopes(p_round_ids text[], p_node_ids integer[], p_payloads bytea[], p_limit integer, p_require_sealed boolean)
--   returns void; volatile
--
-- quorate_store.refuse_revoked(p_node_id smallint, p_key text)
--   returns void; volatile
--
-- quorate_store.refuse_used(p_round_ids text[], p_entered text[], p_nonce bigint)
--   returns void; volatile
--
-- quorate_store.rejection_kept()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.rejection_record(p_row quorate_store.rejection)
--   returns text; stable
--
-- quorate_store.round_begins()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.round_changes()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.round_deleted()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp
--
-- quorate_store.round_ends()
--   returns trigger; volatile, set search_path=pg_catalog, pg_temp, enable_nestloop=off, enable_hashjoin=on
--
-- quorate_store.round_records(p_rounds quorate_store.round[], p_kinds quorate_store.history_kind[])
--   returns TABLE(i bigint, record text, digest bytea, parts bytea); stable
--
-- quorate_store.round_work(p_round_nos bigint[])
--   returns SETOF quorate_store.work; volatile, set enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
--
-- quorate_store.rounds_without_record(p_from bigint, p_upto bigint)
--   returns TABLE(key bigint, kind quorate_store.history_kind); stable, set jit=off
--
-- quorate_store.sealed(p_payload bytea)
--   returns boolean; immutable
--
-- quorate_store.set_window(p_node_id smallint, p_key text, p_from timestamp with time zone, p_until timestamp with time zone)
--   returns void; volatile
--
-- quorate_store.single_record(p_key bigint, p_kind quorate_store.history_kind, p_digests json)
--   returns text; stable, set enable_seqscan=off
--
-- quorate_store.take_over(p_instance integer, p_round_nos bigint[], p_busy integer[], p_left boolean)
--   returns void; volatile
--
-- quorate_store.under_way(p_round_no bigint)
--   returns boolean; stable
--
-- quorate_store.unknown_round(p_round_id text)
--   returns void; volatile
--
-- quorate_store.url_valid(p_url text)
--   returns boolean; immutable
--
-- quorate_store.us(p_duration interval)
--   returns bigint; stable
--
-- quorate_store.us(p_time timestamp with time zone)
--   returns bigint; stable
--
-- quorate_store.version_at(p_node_id smallint, p_at timestamp with time zone, OUT version integer, OUT keys_until timestamp with time zone)
--   returns record; volatile
--
-- quorate_store.version_for(p_node_id smallint, p_url text, p_backup_url text, p_keys text[], p_seal_key text)
--   returns integer; volatile
--
-- quorate_store.versions_now(p_node_ids smallint[])
--   returns integer[]; volatile
--
-- quorate_store.with_more(p_record json, p_more json)
--   returns text; stable
--
-- quorate_store.write_out(p_round_nos bigint[], p_node_ids smallint[])
--   returns void; volatile
--
-- quorate_worker.chain(p_max integer, p_key text, OUT chained integer, OUT more boolean, OUT seq bigint, OUT hash bytea, OUT now_us bigint, OUT unsigned bigint, OUT unsigned_us bigint)
--   returns record; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off; granted to quorate_coordinator
--
-- quorate_worker.checkpoint(p_seq bigint, p_hash bytea, p_at_us bigint, p_key text, p_signature bytea)
--   returns boolean; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_coordinator
--
-- quorate_worker.claim(p_instance integer, p_max integer, p_slots integer, p_busy integer[])
--   returns SETOF quorate_store.work; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off; granted to quorate_coordinator
--
-- quorate_worker.durability_warnings()
--   returns TABLE(setting text, value text, risk text); stable, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_coordinator
--
-- quorate_worker.envelopes(p_round_nos bigint[], p_node_ids smallint[])
--   returns TABLE(round_no bigint, node_id smallint, payload bytea); stable, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off; granted to quorate_coordinator
--
-- quorate_worker.escalate(p_instance integer, p_round_nos bigint[])
--   returns TABLE(round_no bigint, state text, escalated boolean, first boolean, due boolean); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off; granted to quorate_coordinator
--
-- quorate_worker.hold(p_instance integer)
--   returns boolean; volatile, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_coordinator
--
-- quorate_worker.is_joined(p_instance integer, p_instance_id uuid)
--   returns boolean; stable, security definer, set search_path=pg_catalog, pg_temp; granted to quorate_coordinator
--
-- quorate_worker.join_deployment(p_instance_id uuid, p_name text, p_lease interval, OUT instance_no integer, OUT deployment_id text, OUT schema_version integer)
--   returns record; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_coordinator
--
-- quorate_worker.leave(p_instance integer, p_notify boolean DEFAULT true)
--   returns boolean; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_coordinator
--
-- quorate_worker.links(p_after bigint, p_upto bigint)
--   returns bytea; stable, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off; granted to quorate_coordinator
--
-- quorate_worker.node_versions(p_versions integer[])
--   returns TABLE(version integer, node_id smallint, url text, backup_url text, receipt_key text); stable, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan; granted to quorate_coordinator
--
-- quorate_worker.owned(p_instance integer, p_after bigint, p_max integer)
--   returns SETOF quorate_store.work; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off; granted to quorate_coordinator
--
-- quorate_worker.record(p_instance integer, p_notify boolean, p_round_nos bigint[], p_node_ids smallint[], p_routes text[], p_attempts smallint[], p_outcomes text[], p_statuses smallint[], p_retry_us bigint[], p_receipts bytea[], p_key_nos smallint[] DEFAULT NULL::smallint[])
--   returns TABLE(round_no bigint, state text, settled boolean, completed_us bigint); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off; granted to quorate_coordinator
--
-- quorate_worker.release(p_instance integer, p_notify boolean, p_round_nos bigint[])
--   returns TABLE(round_no bigint, state text); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off; granted to quorate_coordinator
--
-- quorate_worker.reserve(p_instance integer, p_round_nos bigint[], p_node_ids smallint[], p_routes text[], p_attempts smallint[])
--   returns TABLE(round_no bigint, node_id smallint, route text, attempt smallint, granted boolean, state text, now_us bigint); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off; granted to quorate_coordinator
--
-- quorate_worker.settle(p_instance integer, p_notify boolean, p_round_nos bigint[])
--   returns TABLE(round_no bigint, state text, settled boolean, ended_us bigint); volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off; granted to quorate_coordinator
--
-- quorate_worker.signed(p_key text, OUT seq bigint, OUT at_us bigint, OUT hash bytea, OUT signature bytea)
--   returns record; stable, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off; granted to quorate_coordinator
--
-- quorate_worker.tick(p_instance integer, p_notify boolean, p_max integer, p_count boolean, OUT alive boolean, OUT stalled integer, OUT dead_lettered integer, OUT fenced integer, OUT work boolean, OUT failed_rounds bigint[], OUT next_due_us bigint, OUT now_us bigint, OUT owned bigint)
--   returns record; volatile, security definer, set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off; granted to quorate_coordinator
--
-- quorate_worker.watch(p_instance integer, p_seen integer, OUT peer integer, OUT seen boolean, OUT free boolean, OUT fenced boolean)
--   returns record; volatile, security definer, set search_path=pg_catalog, pg_temp, lock_timeout=900ms; granted to quorate_coordinator
