-- Views for auditors: read-only, derived from the facts, without payload bytes.

CREATE OR REPLACE VIEW quorate_store.delivery_state AS
SELECT d.round_no, d.node_id, d.payload_sha256, d.payload_bytes, r.settled_at,
       p.used + b.used AS attempts, o.outcome AS last_outcome,
       CASE WHEN s.state = 'pending' AND (s.primary_left OR s.backup_left) AND p.under_way + b.under_way = 0
            THEN least(CASE WHEN s.primary_left THEN p.retry_at END, CASE WHEN s.backup_left THEN b.retry_at END) END AS next_attempt_at,
       s.state
  FROM quorate_store.delivery d
  JOIN quorate_store.round r ON r.round_no = d.round_no
  JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, d.node_id)]
  LEFT JOIN quorate_store.ack k ON k.round_no = d.round_no AND k.node_id = d.node_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS used, count(*) FILTER (WHERE a.outcome IS NULL) AS under_way,
              COALESCE(bool_or(a.outcome = 'refused'), false) AS refused, max(a.retry_at) AS retry_at
         FROM quorate_store.attempt_state a WHERE a.round_no = d.round_no AND a.node_id = d.node_id AND a.route = 'primary') p
 CROSS JOIN LATERAL (
       SELECT count(*) AS used, count(*) FILTER (WHERE a.outcome IS NULL) AS under_way,
              COALESCE(bool_or(a.outcome = 'refused'), false) AS refused, max(a.retry_at) AS retry_at
         FROM quorate_store.attempt_state a WHERE a.round_no = d.round_no AND a.node_id = d.node_id AND a.route = 'backup') b
  LEFT JOIN LATERAL (
       SELECT a.outcome FROM quorate_store.attempt_state a
        WHERE a.round_no = d.round_no AND a.node_id = d.node_id AND a.outcome IS NOT NULL
        ORDER BY a.finished_at DESC, a.attempt DESC LIMIT 1) o ON true
 -- What each route still allows by its own history, and whether the round still lets anyone try.
 CROSS JOIN LATERAL (
       SELECT NOT p.refused AND (p.used < r.retry_budget OR p.under_way > 0) AS primary_left,
              v.backup_url IS NOT NULL AND NOT b.refused AND (b.used < r.retry_budget OR b.under_way > 0)
              AND (r.escalated_at IS NOT NULL OR r.state = 'open') AS backup_left,
              r.settled_at IS NULL AND clock_timestamp() <= r.deadline_at
              AND (r.state = 'open' OR r.state = 'complete' AND r.after_quorum = 'continue') AS going_on) q
 CROSS JOIN LATERAL (
       SELECT q.primary_left, q.backup_left,
              CASE WHEN k.round_no IS NOT NULL THEN 'acked'
                   WHEN q.going_on AND (q.primary_left OR q.backup_left) THEN 'pending'
                   WHEN r.state = 'open' AND (q.primary_left OR q.backup_left) THEN 'pending'
                   WHEN q.primary_left OR q.backup_left THEN 'abandoned'
                   WHEN p.refused OR b.refused THEN 'refused'
                   ELSE 'exhausted' END AS state) s;
COMMENT ON VIEW quorate_store.delivery_state IS
'The state of every delivery, derived: acked once an ack is stored; pending while a route may still be tried; refused or exhausted once none has an attempt left;
abandoned when the round ended first.';

CREATE OR REPLACE VIEW quorate.rounds AS
SELECT l.round_id, l.nonce, r.state::text AS state, r.quorum::int AS quorum, cardinality(r.node_ids) AS total_nodes,
       r.node_ids::int[] AS node_ids, r.per_share_timeout, r.retry_budget::int AS retry_budget, r.base_backoff, r.max_backoff,
       r.after_quorum::text AS after_quorum,
       (SELECT count(*)::int FROM quorate_store.ack a WHERE a.round_no = r.round_no AND NOT a.late) AS acked,
       r.quorum_nodes::int[] AS quorum_nodes, r.opened_at, r.escalate_at, r.escalated_at, r.deadline_at, r.fresh_until, r.closed_at,
       r.collected_at, r.dead_lettered_at, r.settled_at, r.close_reason, c.name AS coordinator, r.require_sealed
  FROM quorate_store.round r
  JOIN quorate_store.ledger l ON l.round_no = r.round_no
  LEFT JOIN quorate_store.coordinator c ON c.instance_no = r.owner;
COMMENT ON VIEW quorate.rounds IS
'Every round that was not pruned. acked: on-time acks. quorum_nodes: whose acks made the quorum; NULL unless complete or dead_lettered. coordinator: who owned it last.
require_sealed: whether distribute refused what is not sealed. Times are the database''s clock.';

CREATE OR REPLACE VIEW quorate.deliveries AS
SELECT l.round_id, s.node_id::int AS node_id, s.state, s.attempts::int AS attempts, s.last_outcome::text AS last_outcome,
       s.next_attempt_at, s.payload_sha256, s.payload_bytes, s.settled_at AS payload_erased_at
  FROM quorate_store.ledger l
 -- Driven from the ledger: whoever asks for one round reads one round.
 CROSS JOIN LATERAL (SELECT * FROM quorate_store.delivery_state d WHERE d.round_no = l.round_no OFFSET 0) s;
COMMENT ON VIEW quorate.deliveries IS
'Accepted envelopes and how far their delivery got: pending, acked, exhausted, refused or abandoned. attempts: on both routes. payload_erased_at: since when only
the SHA-256 and the size are left.';

CREATE OR REPLACE VIEW quorate.attempts AS
SELECT l.round_id, a.node_id::int AS node_id, a.route::text AS route, a.attempt::int AS attempt, c.name AS coordinator, a.reserved_at,
       a.finished_at, a.outcome::text AS outcome, a.http_status::int AS http_status, a.resends::int AS resends
  FROM quorate_store.ledger l
 CROSS JOIN LATERAL (SELECT * FROM quorate_store.attempt_state s WHERE s.round_no = l.round_no OFFSET 0) a -- as in deliveries
  LEFT JOIN quorate_store.coordinator c ON c.instance_no = a.owner;
COMMENT ON VIEW quorate.attempts IS
'Every HTTP request that was reserved. outcome NULL: under way. resends: how often another coordinator sent it again under the same number.';

CREATE OR REPLACE VIEW quorate.acks AS
SELECT l.round_id, a.node_id::int AS node_id, a.route::text AS route, a.attempt::int AS attempt, a.acked_at,
       COALESCE(a.node_id = ANY (r.quorum_nodes), false) AS in_quorum, a.late,
       CASE octet_length(a.receipt) WHEN 32 THEN 'v1,' ELSE 'v1a,' END || translate(encode(a.receipt, 'base64'), E'\n', '') AS receipt,
       (v.receipt_key || v.other_keys)[a.key_no] AS receipt_key, octet_length(a.receipt) = 64 AS third_party
  FROM quorate_store.ack a
  JOIN quorate_store.round r ON r.round_no = a.round_no
  JOIN quorate_store.ledger l ON l.round_no = a.round_no
  JOIN quorate_store.node_version v ON v.version = r.node_versions[array_position(r.node_ids, a.node_id)];
COMMENT ON VIEW quorate.acks IS
'Every verified receipt, once per node of a round, with the key that it verifies under. late: stored after the deadline or the end of a failed round; it changes nothing.
third_party: whether it convinces a third party, as an Ed25519 signature (v1a) does; one made with a symmetric secret (v1, receipt_key whid_...) can be checked, and could
have been made, by whoever holds the secret, the coordinators included.';

CREATE OR REPLACE VIEW quorate.rejections AS
SELECT j.rejected_at, j.round_id, j.node_id, j.nonce, j.verdict::text AS verdict, j.rejected_for
  FROM quorate_store.rejection j;
COMMENT ON VIEW quorate.rejections IS 'Every envelope that distribute refused, and for which session user.';

CREATE OR REPLACE VIEW quorate.dead_letters AS
SELECT l.round_id, 'not_collected'::text AS reason, r.closed_at,
       (SELECT count(*)::int FROM quorate_store.ack a WHERE a.round_no = r.round_no) AS acked, r.quorum::int AS quorum
  FROM quorate_store.round r JOIN quorate_store.ledger l ON l.round_no = r.round_no
 WHERE r.state = 'dead_lettered'
UNION ALL
SELECT l.round_id, 'late_quorum', r.closed_at, k.acked::int, r.quorum::int
  FROM (SELECT DISTINCT a.round_no FROM quorate_store.ack a WHERE a.late) late
  JOIN quorate_store.round r ON r.round_no = late.round_no AND r.state = 'stalled'
  JOIN quorate_store.ledger l ON l.round_no = r.round_no
 CROSS JOIN LATERAL (SELECT count(*) AS acked FROM quorate_store.ack a WHERE a.round_no = r.round_no) k
 WHERE k.acked >= r.quorum;
COMMENT ON VIEW quorate.dead_letters IS
'Rounds whose result must not be used any more: complete but not collected while fresh (not_collected), or stalled and then reaching t with late acks (late_quorum).
acked: late ones included.';

CREATE OR REPLACE VIEW quorate.nodes AS
SELECT n.node_id::int AS node_id, v.url, v.backup_url, v.receipt_key, n.enabled, v.seal_key, v.receipt_key || v.other_keys AS receipt_keys
  FROM quorate_store.node n JOIN quorate_store.node_version v ON v.version = n.current_version;
COMMENT ON VIEW quorate.nodes IS
'The custodians as they are now; rounds that are open keep what they were opened with. seal_key: what envelopes are sealed to; NULL: they are sent as they are.
receipt_keys: all keys whose receipts count, newest first; receipt_key: the first of them. Of a node without a valid key, the last ones. Since when and until when they are valid: node_keys.';

CREATE OR REPLACE VIEW quorate.node_keys AS
SELECT k.node_id::int AS node_id, k.key, CASE WHEN starts_with(k.key, 'qbox_') THEN 'seal' ELSE 'receipt' END AS use, k.valid_from, k.valid_until,
       k.revoked_at,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
            WHEN k.valid_until <= greatest(k.valid_from, clock_timestamp()) THEN 'expired'
            WHEN k.valid_from > clock_timestamp() THEN 'future'
            ELSE 'valid' END AS state
  FROM quorate_store.node_key k;
COMMENT ON VIEW quorate.node_keys IS
'The windows in which keys of nodes are valid: rounds opened from valid_from on and before valid_until (NULL: for ever) take receipts by the key (use receipt), or have
their envelopes sealed to it (use seal; the valid one that began last). valid_until = valid_from: taken back before it began. state: valid, future, expired or revoked.';

CREATE OR REPLACE VIEW quorate.coordinators AS
SELECT c.name AS coordinator, c.instance_id, c.started_at, c.heartbeat_at,
       c.ended_at IS NULL AND c.heartbeat_at + c.lease >= clock_timestamp() AS alive,
       (SELECT count(*)::int FROM quorate_store.round r WHERE r.owner = c.instance_no AND r.settled_at IS NULL AND r.state = 'open' AND r.round_no > 0) AS open_rounds
  FROM quorate_store.coordinator c;
COMMENT ON VIEW quorate.coordinators IS 'Every start of quorate run. alive: not fenced, not gone, and heard from within its lease.';

CREATE OR REPLACE VIEW quorate.deployment AS
SELECT d.deployment_id, (SELECT max(m.number) FROM quorate_store.migration m) AS schema_version
  FROM quorate_store.deployment d;
COMMENT ON VIEW quorate.deployment IS 'This database''s deployment: its id, which is part of every signature, and the number of its last migration.';
