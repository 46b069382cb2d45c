//! The outbox's statements, each a constant. Nothing is formatted into SQL.
//!
//! As in the inbox a statement for a batch takes its rows as one JSON array, and what is bytes beside it as one blob.

/// Which of these endpoints there are: names.
pub(super) const KNOWN: &str = "SELECT name FROM countersign_endpoint WHERE name IN (SELECT value FROM json_each(?1))";

/// What each endpoint wants.
pub(super) const SUBSCRIPTIONS: &str = "SELECT name, types FROM countersign_endpoint ORDER BY name";

/// Makes the messages that are not there yet, in their order, each due after its delay from `?3`. Rows, in
/// four parts: endpoint, id, type, content type; ordering key, correlation id, causation id; schema version, trace context;
/// delay, where the payload begins, its length. Returns those that were made.
pub(super) const INSERT: &str = "\
INSERT INTO countersign_outbox
    (endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version, traceparent,
     payload, state, due, claim_at, created, since, updated)
SELECT row.value ->> '$[0][0]', row.value ->> '$[0][1]', row.value ->> '$[0][2]', row.value ->> '$[0][3]',
    row.value ->> '$[1][0]', row.value ->> '$[1][1]', row.value ->> '$[1][2]', row.value ->> '$[2][0]',
    row.value ->> '$[2][1]', substr(?2, row.value ->> '$[3][1]', row.value ->> '$[3][2]'), 'pending',
    ?3 + (row.value ->> '$[3][0]'), ?3 + (row.value ->> '$[3][0]'), ?3, ?3, ?3
FROM json_each(?1) AS row WHERE true ORDER BY row.key
ON CONFLICT (message_id, endpoint) DO NOTHING
RETURNING endpoint, message_id";

/// Endpoints by name.
pub(super) const ENDPOINTS: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE name IN (SELECT value FROM json_each(?1)) ORDER BY name";

/// All endpoints, or the one with this name.
pub(super) const ALL_ENDPOINTS: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE ?1 IS NULL OR name = ?1 ORDER BY name";

/// Makes the endpoint, or gives the one that is there these settings.
pub(super) const PUT_ENDPOINT: &str = "\
INSERT INTO countersign_endpoint (name, url, scheme, secrets, types, headers, settings, created, updated)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
ON CONFLICT (name) DO UPDATE SET url = excluded.url, scheme = excluded.scheme, secrets = excluded.secrets,
    types = excluded.types, headers = excluded.headers, settings = excluded.settings, updated = excluded.updated";

/// Notes how an endpoint is doing.
pub(super) const SET_HEALTH: &str = "\
UPDATE countersign_endpoint
SET disabled = ?2, disabled_since = ?3, paused_until = ?4, failing_since = ?5, failures = ?6,
    updated = coalesce(?7, updated)
WHERE name = ?1";

pub(super) const REMOVE_ENDPOINT: &str = "DELETE FROM countersign_endpoint WHERE name = ?1";

/// Whether more than `?2` messages of an endpoint have no end.
pub(super) const MORE_THAN: &str =
    "SELECT 1 FROM countersign_outbox WHERE endpoint = ?1 AND claim_at IS NOT NULL LIMIT 1 OFFSET ?2";

/// Makes what has no end of an endpoint dead letters, at most `?4`. Whoever delivers one keeps its token, to say how that
/// ended.
pub(super) const BURY_ALL: &str = "\
UPDATE countersign_outbox
SET state = 'dead_letter', due = NULL, claim_at = NULL, reason = ?2, updated = ?3
WHERE id IN (SELECT id FROM countersign_outbox WHERE endpoint = ?1 AND claim_at IS NOT NULL LIMIT ?4)";

/// Endpoints that have something to look at at `?1`, without those named in `?2`, at most `?3`, drawn by lot; and in which
/// lanes.
pub(super) const READY: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated, fresh, tried, held_up
FROM (
    SELECT endpoint.*,
        (SELECT 1 FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
         WHERE message.endpoint = endpoint.name AND lane = 0 AND claim_at <= ?1) AS fresh,
        (SELECT 1 FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
         WHERE message.endpoint = endpoint.name AND lane = 1 AND claim_at <= ?1) AS tried,
        (SELECT 1 FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
         WHERE message.endpoint = endpoint.name AND lane = 2 AND claim_at <= ?1) AS held_up
    FROM countersign_endpoint AS endpoint
    WHERE disabled IS NULL AND (paused_until IS NULL OR paused_until <= ?1)
        AND name NOT IN (SELECT value FROM json_each(?2)))
WHERE fresh IS NOT NULL OR tried IS NOT NULL OR held_up IS NOT NULL
ORDER BY random() LIMIT ?3";

/// What there is to look at of an endpoint's lane at `?3`, the longest due first, at most `?4`. Of one whose sender may have
/// died, how many attempts have been noted is counted in its history too: a row that somebody reset must not give a number
/// twice.
pub(super) const TAKE: &str = "\
SELECT id, endpoint, message_id, type, content_type, length(payload) AS size, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, created, since,
    CASE WHEN state = 'delivering' THEN max(noted, coalesce((SELECT max(seq) FROM countersign_attempt
        WHERE message = countersign_outbox.id), 0)) ELSE noted END AS noted
FROM countersign_outbox INDEXED BY countersign_outbox_due
WHERE endpoint = ?1 AND lane = ?2 AND claim_at <= ?3
ORDER BY claim_at, id LIMIT ?4";

/// What messages bring. Rows: ids.
pub(super) const PAYLOADS: &str =
    "SELECT id, payload FROM countersign_outbox WHERE id IN (SELECT value FROM json_each(?1))";

/// What stands before messages in their orders at `?2`: one that is pending; one that is being delivered, also a later one
/// while its lease lasts; and the first one that will not be delivered. Rows: ids.
///
/// That a state is one of those in the index has to be said word for word for it to be used.
pub(super) const AHEAD: &str = "\
SELECT id, open, coalesce(min(dead, failed), dead, failed) AS ended,
    (SELECT message_id FROM countersign_outbox AS ended WHERE ended.id = coalesce(min(dead, failed), dead, failed))
        AS ended_id
FROM (
    SELECT message.id,
        coalesce(
            (SELECT other.id FROM countersign_outbox AS other INDEXED BY countersign_outbox_order
             WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
                AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
                AND other.state = 'pending' AND other.id < message.id
             ORDER BY other.id LIMIT 1),
            (SELECT other.id FROM countersign_outbox AS other INDEXED BY countersign_outbox_order
             WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
                AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
                AND other.state = 'delivering' AND other.id <> message.id
                AND (other.id < message.id OR other.due > ?2)
             ORDER BY other.id LIMIT 1)) AS open,
        (SELECT other.id FROM countersign_outbox AS other INDEXED BY countersign_outbox_order
         WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
            AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
            AND other.state = 'dead_letter' AND other.id < message.id
         ORDER BY other.id LIMIT 1) AS dead,
        (SELECT other.id FROM countersign_outbox AS other INDEXED BY countersign_outbox_order
         WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
            AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
            AND other.state = 'failed' AND other.id < message.id
         ORDER BY other.id LIMIT 1) AS failed
    FROM countersign_outbox AS message
    WHERE message.id IN (SELECT value FROM json_each(?1)))";

/// Messages that may hold others up. Rows: ids.
pub(super) const HEADS: &str = "\
SELECT id, state FROM countersign_outbox
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('pending', 'delivering', 'failed', 'dead_letter')";

/// Has claims look later at messages that are held up: as long again as they have waited at `?2`, at least `?3` and at most
/// `?4`. Rows: ids.
pub(super) const POSTPONE: &str = "\
UPDATE countersign_outbox SET claim_at = ?2 + min(max(?2 - max(due, 0), ?3), ?4)
WHERE id IN (SELECT value FROM json_each(?1)) AND claim_at <= ?2";

/// The same for what stands behind one in its order, at most `?7`: endpoint, ordering key, id.
pub(super) const POSTPONE_BEHIND: &str = "\
UPDATE countersign_outbox SET claim_at = ?4 + min(max(?4 - max(due, 0), ?5), ?6)
WHERE id IN (
    SELECT id FROM countersign_outbox INDEXED BY countersign_outbox_order
    WHERE endpoint = ?1 AND ordering_key = ?2 AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
        AND state = 'pending' AND id > ?3 AND claim_at <= ?4
    ORDER BY id LIMIT ?7)";

/// Has claims look at the first message of an order when it is due, and at those that lost their senders: endpoint,
/// ordering key.
pub(super) const PROMOTE: &str = "\
UPDATE countersign_outbox SET claim_at = due
WHERE claim_at > due AND id IN (
    SELECT id FROM (
        SELECT id FROM countersign_outbox INDEXED BY countersign_outbox_order
        WHERE endpoint = ?1 AND ordering_key = ?2 AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
            AND state = 'pending'
        ORDER BY id LIMIT 1)
    UNION ALL
    SELECT id FROM countersign_outbox INDEXED BY countersign_outbox_order
    WHERE endpoint = ?1 AND ordering_key = ?2 AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
        AND state = 'delivering')";

/// The same for postponed messages of an endpoint, at most `?2`.
pub(super) const PROMOTE_ALL: &str = "\
UPDATE countersign_outbox SET claim_at = due WHERE id IN (
    SELECT id FROM countersign_outbox INDEXED BY countersign_outbox_due
    WHERE endpoint = ?1 AND lane = 2 AND claim_at IS NOT NULL LIMIT ?2)";

/// Makes what is pending behind a message in its order dead letters, at most `?6`: id, endpoint, ordering key, reason.
pub(super) const PARK: &str = "\
UPDATE countersign_outbox
SET state = 'dead_letter', due = NULL, claim_at = NULL, reason = ?4, updated = ?5
WHERE id IN (
    SELECT id FROM countersign_outbox INDEXED BY countersign_outbox_order
    WHERE endpoint = ?2 AND ordering_key = ?3 AND state IN ('pending', 'delivering', 'failed', 'dead_letter')
        AND state = 'pending' AND id > ?1 ORDER BY id LIMIT ?6)";

/// Gives messages to new holders until `?3`. Rows: id, whether the last attempt left no word, of which `?4` is then the
/// error. Bytes: 16 for each row, the token.
pub(super) const TAKE_OVER: &str = "\
UPDATE countersign_outbox AS message
SET state = 'delivering', token = substr(?2, row.key * 16 + 1, 16), due = ?3, claim_at = ?3,
    attempts = message.attempts + 1, updated = ?5, reason = NULL,
    noted = min(message.noted + (row.value ->> 1), 1000000000000000),
    last_error = CASE WHEN row.value ->> 1 THEN ?4 ELSE message.last_error END
FROM json_each(?1) AS row
WHERE message.id = row.value ->> 0";

/// Makes messages dead letters. Rows: id, reason, whether the last attempt left no word, of which `?2` is then the error.
pub(super) const BURY: &str = "\
UPDATE countersign_outbox AS message
SET state = 'dead_letter', token = NULL, due = NULL, claim_at = NULL, reason = row.value ->> 1, updated = ?3,
    noted = min(message.noted + (row.value ->> 2), 1000000000000000),
    last_error = CASE WHEN row.value ->> 2 THEN ?2 ELSE message.last_error END
FROM json_each(?1) AS row
WHERE message.id = row.value ->> 0";

/// Adds attempts to the histories of their messages. One whose number is taken all the same is left out: others must not fail
/// for it. Rows: message, number in its history, replay, attempt, duration,
/// status, error, kind, where the bytes begin, length of the headers, length of the body.
pub(super) const NOTE: &str = "\
INSERT INTO countersign_attempt (message, seq, replay, number, at, took, status, headers, body, error, kind)
SELECT row.value ->> 0, row.value ->> 1, row.value ->> 2, row.value ->> 3, ?3, row.value ->> 4, row.value ->> 5,
    substr(?2, row.value ->> 8, row.value ->> 9),
    substr(?2, (row.value ->> 8) + (row.value ->> 9), row.value ->> 10), row.value ->> 6, row.value ->> 7
FROM json_each(?1) AS row WHERE true
ON CONFLICT (message, seq) DO NOTHING";

/// Keeps the history of a message from growing.
pub(super) const FORGET_ATTEMPTS: &str = "DELETE FROM countersign_attempt WHERE message = ?1 AND seq <= ?2";

/// Moves the end of a lease. Of a message whose endpoint was removed there is none to move.
pub(super) const RENEW: &str = "\
UPDATE countersign_outbox
SET due = CASE WHEN due IS NOT NULL THEN ?3 END, claim_at = CASE WHEN claim_at IS NOT NULL THEN ?3 END
WHERE id = ?1 AND token = ?2";

/// What is known of messages whose leases are held; how many attempts have been noted is counted in their histories too.
/// Rows: ids. Bytes: 16 for each row, the token.
pub(super) const HELD: &str = "\
SELECT row.key AS place, message.replays, message.ordering_key,
    max(message.noted, coalesce((SELECT max(seq) FROM countersign_attempt AS attempt
        WHERE attempt.message = message.id), 0)) AS noted
FROM json_each(?1) AS row CROSS JOIN countersign_outbox AS message ON message.id = row.value
WHERE message.token = substr(?2, row.key * 16 + 1, 16)";

/// Ends attempts. Rows: id, state, due, reason, whether it is taken out of the count, whether it is noted, status, error.
/// Bytes: 16 for each row, the token. One whose endpoint was removed meanwhile is a dead letter already: what would send it
/// again leaves it one.
pub(super) const END: &str = "\
UPDATE countersign_outbox AS message
SET state = CASE WHEN message.state = 'dead_letter' AND row.value ->> 1 = 'pending' THEN message.state
        ELSE row.value ->> 1 END,
    token = NULL, due = CASE WHEN message.due IS NOT NULL THEN row.value ->> 2 END,
    claim_at = CASE WHEN message.claim_at IS NOT NULL THEN row.value ->> 2 END,
    reason = CASE WHEN row.value ->> 1 = 'pending' THEN message.reason ELSE row.value ->> 3 END,
    attempts = message.attempts - (row.value ->> 4),
    noted = min(message.noted + (row.value ->> 5), 1000000000000000), updated = ?3,
    last_status = coalesce(row.value ->> 6, message.last_status),
    last_error = CASE WHEN row.value ->> 1 <> 'succeeded' THEN coalesce(row.value ->> 7, message.last_error) END
FROM json_each(?1) AS row
WHERE message.id = row.value ->> 0 AND message.token = substr(?2, row.key * 16 + 1, 16)";

/// The oldest messages behind `?1` in the states `?2` that fit endpoint, id and type (null: any), at most `?6`; with `?7`
/// only those whose endpoint is there. Only what changed before `?8`.
pub(super) const SELECT: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox INDEXED BY countersign_outbox_state
WHERE id > ?1 AND state IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR endpoint = ?3)
    AND (?4 IS NULL OR message_id = ?4) AND (?5 IS NULL OR type = ?5)
    AND (NOT ?7 OR endpoint IN (SELECT name FROM countersign_endpoint)) AND updated < ?8
    AND (?9 IS NULL OR correlation_id = ?9)
ORDER BY id LIMIT ?6";

/// The same, of those that have the id.
pub(super) const SELECT_BY_ID: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox INDEXED BY countersign_outbox_key
WHERE id > ?1 AND state IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR endpoint = ?3)
    AND message_id = ?4 AND (?5 IS NULL OR type = ?5)
    AND (NOT ?7 OR endpoint IN (SELECT name FROM countersign_endpoint)) AND updated < ?8
    AND (?9 IS NULL OR correlation_id = ?9)
ORDER BY id LIMIT ?6";

/// The same, of those that belong to `?9`, whatever their id: `?4` is null.
pub(super) const SELECT_BY_CORRELATION: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox INDEXED BY countersign_outbox_correlation
WHERE id > ?1 AND state IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR endpoint = ?3)
    AND correlation_id = ?9 AND ?4 IS NULL AND (?5 IS NULL OR type = ?5)
    AND (NOT ?7 OR endpoint IN (SELECT name FROM countersign_endpoint)) AND updated < ?8
ORDER BY id LIMIT ?6";

/// Makes messages pending again, with all their attempts before them. Rows: id, due.
pub(super) const REPLAY: &str = "\
UPDATE countersign_outbox AS message
SET state = 'pending', token = NULL, attempts = 0, replays = min(message.replays + 1, 4294967295), due = row.value ->> 1,
    claim_at = row.value ->> 1, reason = NULL, since = ?2, updated = ?2
FROM json_each(?1) AS row
WHERE message.id = row.value ->> 0";

/// Takes messages back. Rows: ids.
pub(super) const CANCEL: &str = "\
UPDATE countersign_outbox
SET state = 'cancelled', token = NULL, due = NULL, claim_at = NULL, reason = ?2, updated = ?3
WHERE id IN (SELECT value FROM json_each(?1))";

/// Removes messages that succeeded or were cancelled and have not changed since `?1`, and dead letters and failed ones that
/// have not since `?2` (null: none), the oldest first, at most `?3`; their attempts go with them. Returns what had an order
/// and may have held others up.
pub(super) const PURGE: &str = "\
DELETE FROM countersign_outbox WHERE id IN (
    SELECT id FROM (
        SELECT * FROM (
            SELECT id, updated FROM countersign_outbox INDEXED BY countersign_outbox_state
            WHERE state = 'succeeded' AND updated <= ?1 ORDER BY updated, id LIMIT ?3)
        UNION ALL
        SELECT * FROM (
            SELECT id, updated FROM countersign_outbox INDEXED BY countersign_outbox_state
            WHERE state = 'cancelled' AND updated <= ?1 ORDER BY updated, id LIMIT ?3)
        UNION ALL
        SELECT * FROM (
            SELECT id, updated FROM countersign_outbox INDEXED BY countersign_outbox_state
            WHERE state = 'dead_letter' AND updated <= ?2 ORDER BY updated, id LIMIT ?3)
        UNION ALL
        SELECT * FROM (
            SELECT id, updated FROM countersign_outbox INDEXED BY countersign_outbox_state
            WHERE state = 'failed' AND updated <= ?2 ORDER BY updated, id LIMIT ?3)
    ) ORDER BY updated, id LIMIT ?3)
RETURNING endpoint, CASE WHEN state IN ('failed', 'dead_letter') THEN ordering_key END AS ordering_key";

/// One message, whole, without its attempts.
pub(super) const FIND: &str = "\
SELECT id, endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox WHERE message_id = ?1 AND endpoint = ?2";

/// The attempts of a message, the oldest first.
pub(super) const ATTEMPTS: &str = "\
SELECT replay, number, at, took, status, headers, body, error, kind
FROM countersign_attempt WHERE message = ?1 ORDER BY seq";

/// Messages by `?1` endpoint, `?2` type, `?4` state (null: any), those changed last first, at most `?3`; below `?5`, `?6` and
/// from `?7`, `?8` on, which say when a row changed and its id.
///
/// Each state is read backwards along the index and no further than the limit, or the end of the stretch, so that a list costs
/// the same whatever the size of the table.
pub(super) const LIST: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox
WHERE id IN (
    SELECT id FROM (
        SELECT * FROM (SELECT id, updated FROM countersign_outbox WHERE state = 'pending'
            AND (?4 IS NULL OR ?4 = 'pending') AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_outbox WHERE state = 'delivering'
            AND (?4 IS NULL OR ?4 = 'delivering') AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_outbox WHERE state = 'succeeded'
            AND (?4 IS NULL OR ?4 = 'succeeded') AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_outbox WHERE state = 'failed'
            AND (?4 IS NULL OR ?4 = 'failed') AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_outbox WHERE state = 'dead_letter'
            AND (?4 IS NULL OR ?4 = 'dead_letter') AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_outbox WHERE state = 'cancelled'
            AND (?4 IS NULL OR ?4 = 'cancelled') AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
    ) ORDER BY updated DESC, id DESC LIMIT ?3)
ORDER BY updated DESC, id DESC";

/// Where a stretch of `?4` rows ends that begins below `?2`, `?3`, in state `?1` (null: any): its last one.
pub(super) const EDGE: &str = "\
SELECT updated, id FROM (
    SELECT * FROM (SELECT updated, id FROM countersign_outbox INDEXED BY countersign_outbox_state WHERE state = 'pending'
        AND (?1 IS NULL OR ?1 = 'pending') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_outbox INDEXED BY countersign_outbox_state WHERE state = 'delivering'
        AND (?1 IS NULL OR ?1 = 'delivering') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_outbox INDEXED BY countersign_outbox_state WHERE state = 'succeeded'
        AND (?1 IS NULL OR ?1 = 'succeeded') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_outbox INDEXED BY countersign_outbox_state WHERE state = 'failed'
        AND (?1 IS NULL OR ?1 = 'failed') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_outbox INDEXED BY countersign_outbox_state WHERE state = 'dead_letter'
        AND (?1 IS NULL OR ?1 = 'dead_letter') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_outbox INDEXED BY countersign_outbox_state WHERE state = 'cancelled'
        AND (?1 IS NULL OR ?1 = 'cancelled') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
) ORDER BY updated DESC, id DESC LIMIT 1 OFFSET ?4 - 1";

/// The same, of those that have the id `?9`.
pub(super) const LIST_BY_ID: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox INDEXED BY countersign_outbox_key
WHERE message_id = ?9 AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2) AND (?4 IS NULL OR state = ?4)
    AND (?10 IS NULL OR correlation_id = ?10)
    AND (updated, id) < (?5, ?6) AND (updated, id) >= (?7, ?8)
ORDER BY updated DESC, id DESC LIMIT ?3";

/// The same, of those that belong to `?10`, whatever their id: `?9` is null.
pub(super) const LIST_BY_CORRELATION: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox INDEXED BY countersign_outbox_correlation
WHERE correlation_id = ?10 AND ?9 IS NULL AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR type = ?2)
    AND (?4 IS NULL OR state = ?4)
    AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
ORDER BY updated DESC, id DESC LIMIT ?3";

/// The endpoint, not disabled and without those numbered in `?1`, whose next message is to be looked at first, and when. What
/// is held up is not waited for.
pub(super) const NEXT_DUE: &str = "\
SELECT id, name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since,
    failures, created, updated, max(at, coalesce(paused_until, at)) AS due
FROM (
    SELECT *, coalesce(min(fresh, tried), fresh, tried) AS at
    FROM (
        SELECT endpoint.*,
            (SELECT claim_at FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
             WHERE message.endpoint = endpoint.name AND lane = 0 AND claim_at IS NOT NULL
             ORDER BY claim_at LIMIT 1) AS fresh,
            (SELECT claim_at FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
             WHERE message.endpoint = endpoint.name AND lane = 1 AND claim_at IS NOT NULL
             ORDER BY claim_at LIMIT 1) AS tried
        FROM countersign_endpoint AS endpoint
        WHERE disabled IS NULL AND id NOT IN (SELECT value FROM json_each(?1))))
WHERE at IS NOT NULL ORDER BY due LIMIT 1";

/// When the longest due message of each endpoint was due; null where none waits.
pub(super) const OLDEST_DUE: &str = "\
SELECT name, coalesce(min(fresh, tried), fresh, tried) AS due
FROM (
    SELECT name,
        (SELECT claim_at FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
         WHERE message.endpoint = endpoint.name AND lane = 0 AND claim_at IS NOT NULL
         ORDER BY claim_at LIMIT 1) AS fresh,
        (SELECT claim_at FROM countersign_outbox AS message INDEXED BY countersign_outbox_due
         WHERE message.endpoint = endpoint.name AND lane = 1 AND claim_at IS NOT NULL
         ORDER BY claim_at LIMIT 1) AS tried
    FROM countersign_endpoint AS endpoint WHERE disabled IS NULL)
ORDER BY name";

/// The keys of messages from a number on, at most so many.
pub(super) const KEYS: &str =
    "SELECT id, endpoint, message_id FROM countersign_outbox WHERE id >= ?1 ORDER BY id LIMIT ?2";
