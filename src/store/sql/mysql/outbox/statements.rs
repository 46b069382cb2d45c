//! The outbox's statements, each a constant. Nothing is formatted into SQL.
//!
//! As in the inbox a statement for a batch takes its rows as one JSON array, with text and bytes in base64, and
//! `STRAIGHT_JOIN` and `FORCE INDEX` fix the plan: one that read the table would wait for whatever anybody has in hand
//! there. They run on connections that [`PREPARE`](super::super::statements::PREPARE) has prepared, except for those that
//! take messages in, which run on any.

/// Which of these endpoints there are: names. None of them is removed, or otherwise changed, before the transaction ends.
pub(super) const KNOWN: &str = "\
SELECT endpoint.name FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(344) PATH '$')) AS row
STRAIGHT_JOIN countersign_endpoint AS endpoint FORCE INDEX (countersign_endpoint_name)
ON endpoint.name = FROM_BASE64(row.name)
LOCK IN SHARE MODE";

/// How many bytes the server takes in one packet, which is a statement with all that is bound to it.
pub(super) const ROOM: &str = "SELECT CAST(@@max_allowed_packet AS SIGNED) AS room";

/// What each endpoint wants.
pub(super) const SUBSCRIPTIONS: &str = "SELECT name, types FROM countersign_endpoint ORDER BY name";

/// Makes the messages that are not there yet, in their order, each due after its delay: from the time that comes first, or
/// from now. Rows: endpoint, id, type, content type, payload, ordering key, correlation id, causation id, schema version,
/// trace context, delay, token.
pub(super) const INSERT: &str = "\
INSERT INTO countersign_outbox
    (endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
     traceparent, state, due, claim_at, created, since, updated, last_token)
SELECT FROM_BASE64(row.endpoint), FROM_BASE64(row.message_id), FROM_BASE64(row.type), FROM_BASE64(row.content_type),
    FROM_BASE64(row.payload), FROM_BASE64(row.ordering_key), FROM_BASE64(row.correlation_id),
    FROM_BASE64(row.causation_id), row.schema_version, FROM_BASE64(row.traceparent), 'pending', clock.now + row.delay,
    clock.now + row.delay, clock.now, clock.now, clock.now, FROM_BASE64(row.token)
FROM (SELECT COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) AS now) AS clock
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    endpoint VARCHAR(344) PATH '$[0]', message_id VARCHAR(344) PATH '$[1]', type VARCHAR(344) PATH '$[2]',
    content_type VARCHAR(344) PATH '$[3]', payload LONGTEXT PATH '$[4]', ordering_key VARCHAR(344) PATH '$[5]',
    correlation_id VARCHAR(344) PATH '$[6]', causation_id VARCHAR(344) PATH '$[7]', schema_version BIGINT PATH '$[8]',
    traceparent VARCHAR(344) PATH '$[9]', delay BIGINT PATH '$[10]', token VARCHAR(24) PATH '$[11]')) AS row
ORDER BY row.place
ON DUPLICATE KEY UPDATE countersign_outbox.id = countersign_outbox.id";

/// The same for one message, whose payload may be large: the time, then the rows' columns.
pub(super) const INSERT_ONE: &str = "\
INSERT INTO countersign_outbox
    (endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
     traceparent, state, due, claim_at, created, since, updated, last_token)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', clock.now + ?, clock.now + ?, clock.now, clock.now, clock.now, ?
FROM (SELECT COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) AS now) AS clock
ON DUPLICATE KEY UPDATE countersign_outbox.id = countersign_outbox.id";

/// Which of the batch were made under their tokens, and have not been tried since. Rows: endpoint, id, token.
pub(super) const MADE: &str = "\
SELECT message.endpoint, message.message_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (endpoint VARCHAR(344) PATH '$[0]', message_id VARCHAR(344) PATH '$[1]',
    token VARCHAR(24) PATH '$[2]')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (countersign_outbox_key)
ON message.message_id = FROM_BASE64(row.message_id) AND message.endpoint = FROM_BASE64(row.endpoint)
WHERE message.last_token = FROM_BASE64(row.token)";

/// Endpoints by name: names.
pub(super) const ENDPOINTS: &str = "\
SELECT endpoint.name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until,
    failing_since, failures, created, updated
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(344) PATH '$')) AS row
STRAIGHT_JOIN countersign_endpoint AS endpoint FORCE INDEX (countersign_endpoint_name)
ON endpoint.name = FROM_BASE64(row.name)";

/// One endpoint. Nobody else changes it before the commit.
pub(super) const LOCKED_ENDPOINT: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE name = ? FOR UPDATE";

/// All endpoints, or the one with this name, twice.
pub(super) const ALL_ENDPOINTS: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE ? IS NULL OR name = ? ORDER BY name";

/// Makes the endpoint, or gives the one that is there these settings: name, URL, scheme, secrets, types, headers, settings,
/// the time twice; the same without name and the second time. It is the same row before and after, and what hangs on it
/// stays.
pub(super) const PUT_ENDPOINT: &str = "\
INSERT INTO countersign_endpoint (name, url, scheme, secrets, types, headers, settings, created, updated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE url = ?, scheme = ?, secrets = ?, types = ?, headers = ?, settings = ?, updated = ?";

/// Notes how an endpoint is doing; the name comes last.
pub(super) const SET_HEALTH: &str = "\
UPDATE countersign_endpoint
SET disabled = ?, disabled_since = ?, paused_until = ?, failing_since = ?, failures = ?,
    updated = COALESCE(?, updated)
WHERE name = ?";

pub(super) const REMOVE_ENDPOINT: &str = "DELETE FROM countersign_endpoint WHERE name = ?";

/// Whether more than so many messages of an endpoint have no end: name, how many.
pub(super) const MORE_THAN: &str = "SELECT id FROM countersign_outbox WHERE due_to = ? LIMIT 1 OFFSET ?";

/// Makes what has no end of an endpoint dead letters: reason, time, name, at most so many. Whoever delivers one keeps its
/// token, to say how that ended.
pub(super) const BURY_ALL: &str = "\
UPDATE countersign_outbox
SET state = 'dead_letter', due = NULL, claim_at = NULL, reason = ?, updated = ?
WHERE due_to = ? ORDER BY id LIMIT ?";

/// Endpoints that have something to look at, drawn by lot, and in which lanes: the time three times, the names of those
/// that are left out, the time, at most so many.
pub(super) const READY: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated, fresh, tried, held_up
FROM (
    SELECT endpoint.*,
        (SELECT 1 FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 0 AND claim_at <= ? LIMIT 1) AS fresh,
        (SELECT 1 FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 1 AND claim_at <= ? LIMIT 1) AS tried,
        (SELECT 1 FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 2 AND claim_at <= ? LIMIT 1) AS held_up
    FROM countersign_endpoint AS endpoint
    WHERE disabled IS NULL AND (paused_until IS NULL OR paused_until <= ?)
        AND name NOT IN (SELECT FROM_BASE64(name)
            FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(344) PATH '$')) AS row)) AS looked
WHERE fresh IS NOT NULL OR tried IS NOT NULL OR held_up IS NOT NULL
ORDER BY RAND() LIMIT ?";

/// What there is to look at of an endpoint's lane, the longest due first: name, lane, time, at most so many. It is locked,
/// and what others have in hand is passed over. Of one whose sender may have died, how many attempts have been noted is
/// counted in its history too: a row that somebody reset must not give a number twice.
pub(super) const TAKE: &str = "\
SELECT id, endpoint, message_id, type, content_type, CAST(LENGTH(payload) AS SIGNED) AS size, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, created, since,
    CASE WHEN state = 'delivering' THEN GREATEST(noted, COALESCE((SELECT MAX(attempt.seq)
        FROM countersign_attempt AS attempt FORCE INDEX (PRIMARY)
        WHERE attempt.message = countersign_outbox.id), 0)) ELSE noted END AS noted
FROM countersign_outbox FORCE INDEX (countersign_outbox_due)
WHERE due_to = ? AND lane = ? AND claim_at <= ?
ORDER BY claim_at, id LIMIT ? FOR UPDATE SKIP LOCKED";

/// What messages bring. Rows: ids.
pub(super) const PAYLOADS: &str = "\
SELECT message.id, message.payload FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_outbox AS message ON message.id = row.id";

/// What stands before messages in their orders: one that is pending; one that is being delivered, also a later one while
/// its lease lasts; and the first one that will not be delivered. The time, then rows: ids.
pub(super) const AHEAD: &str = "\
SELECT ahead.id, ahead.open, ahead.ended,
    (SELECT message_id FROM countersign_outbox AS dead WHERE dead.id = ahead.ended) AS ended_id
FROM (
    SELECT message.id,
        COALESCE(
            (SELECT other.id FROM countersign_outbox AS other FORCE INDEX (countersign_outbox_order)
             WHERE other.held_order = message.held_order AND other.endpoint = message.endpoint
                AND other.state = 'pending' AND other.id < message.id
             ORDER BY other.id LIMIT 1),
            (SELECT other.id FROM countersign_outbox AS other FORCE INDEX (countersign_outbox_order)
             WHERE other.held_order = message.held_order AND other.endpoint = message.endpoint
                AND other.state = 'delivering' AND other.id <> message.id
                AND (other.id < message.id OR other.due > ?)
             ORDER BY other.id LIMIT 1)) AS open,
        (SELECT MIN(other.id) FROM countersign_outbox AS other FORCE INDEX (countersign_outbox_order)
         WHERE other.held_order = message.held_order AND other.endpoint = message.endpoint
            AND other.state IN ('dead_letter', 'failed') AND other.id < message.id) AS ended
    FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
    STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id) AS ahead";

/// Locks messages that may hold others up, except those that somebody else has in hand. Rows: ids.
pub(super) const LOCK_HEADS: &str = "\
SELECT message.id, message.state
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
WHERE message.state IN ('pending', 'delivering', 'failed', 'dead_letter')
FOR UPDATE SKIP LOCKED";

/// Has claims look later at messages that are held up: as long again as they have waited, within bounds. The time twice, the
/// bounds; rows: ids; the time.
pub(super) const POSTPONE: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.claim_at = ? + LEAST(GREATEST(? - GREATEST(message.due, 0), ?), ?)
WHERE message.claim_at <= ?";

/// What is pending behind a message in its order, and to be looked at: ordering key, endpoint, id, time, at most so many. It
/// is locked, and what others have in hand is passed over.
pub(super) const BEHIND: &str = "\
SELECT id FROM countersign_outbox FORCE INDEX (countersign_outbox_order)
WHERE held_order = ? AND endpoint = ? AND state = 'pending' AND id > ? AND claim_at <= ?
ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED";

/// What may come next in an order: the first message that is pending, and those whose senders may have died. Ordering key,
/// endpoint, and both again.
pub(super) const NEXT: &str = "\
(SELECT id FROM countersign_outbox FORCE INDEX (countersign_outbox_order)
 WHERE held_order = ? AND endpoint = ? AND state = 'pending' ORDER BY id LIMIT 1)
UNION ALL
(SELECT id FROM countersign_outbox FORCE INDEX (countersign_outbox_order)
 WHERE held_order = ? AND endpoint = ? AND state = 'delivering')";

/// Has claims look at messages when they are due. Rows: ids.
pub(super) const PROMOTE: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.claim_at = message.due
WHERE message.claim_at > message.due";

/// The same for postponed messages of an endpoint, at most so many.
pub(super) const PROMOTE_ALL: &str =
    "UPDATE countersign_outbox SET claim_at = due WHERE due_to = ? AND lane = 2 LIMIT ?";

/// Makes what is pending behind a message in its order dead letters: reason, time, ordering key, endpoint, id, at
/// most so many.
pub(super) const PARK: &str = "\
UPDATE countersign_outbox
SET state = 'dead_letter', due = NULL, claim_at = NULL, reason = ?, updated = ?
WHERE held_order = ? AND endpoint = ? AND state = 'pending' AND id > ? ORDER BY id LIMIT ?";

/// Gives messages to new holders. Rows: id, token, whether the last attempt left no word. Then the end of the lease, twice,
/// the time, and the error of an attempt that left no word.
pub(super) const TAKE_OVER: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token VARCHAR(24) PATH '$[1]', lapsed BIGINT PATH '$[2]'))
    AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.state = 'delivering', message.token = FROM_BASE64(row.token), message.due = ?, message.claim_at = ?,
    message.attempts = message.attempts + 1, message.updated = ?, message.reason = NULL,
    message.noted = LEAST(message.noted + row.lapsed, 1000000000000000),
    message.last_error = CASE WHEN row.lapsed = 1 THEN ? ELSE message.last_error END";

/// Makes messages dead letters. Rows: id, reason, whether the last attempt left no word. Then the time, and the error of an
/// attempt that left no word.
pub(super) const BURY: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', reason TEXT PATH '$[1]', lapsed BIGINT PATH '$[2]')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.state = 'dead_letter', message.token = NULL, message.due = NULL, message.claim_at = NULL,
    message.reason = CONVERT(FROM_BASE64(row.reason) USING utf8mb4), message.updated = ?,
    message.noted = LEAST(message.noted + row.lapsed, 1000000000000000),
    message.last_error = CASE WHEN row.lapsed = 1 THEN ? ELSE message.last_error END";

/// Adds attempts to the histories of their messages. One whose number is taken all the same is left out: others must not fail
/// for it. The time, then rows: message, number in its history, replay, attempt,
/// duration, status, headers, body, error, kind.
pub(super) const NOTE: &str = "\
INSERT INTO countersign_attempt (message, seq, replay, number, at, took, status, headers, body, error, kind)
SELECT row.message, row.seq, row.replay, row.number, ?, row.took, row.status, FROM_BASE64(row.headers),
    FROM_BASE64(row.body), CONVERT(FROM_BASE64(row.error) USING utf8mb4),
    CONVERT(FROM_BASE64(row.kind) USING utf8mb4)
FROM JSON_TABLE(?, '$[*]' COLUMNS (message BIGINT PATH '$[0]', seq BIGINT PATH '$[1]', replay BIGINT PATH '$[2]',
    number BIGINT PATH '$[3]', took BIGINT PATH '$[4]', status BIGINT PATH '$[5]', headers LONGTEXT PATH '$[6]',
    body LONGTEXT PATH '$[7]', error TEXT PATH '$[8]', kind TEXT PATH '$[9]')) AS row
ON DUPLICATE KEY UPDATE countersign_attempt.seq = countersign_attempt.seq";

/// Keeps the history of a message from growing.
pub(super) const FORGET_ATTEMPTS: &str = "DELETE FROM countersign_attempt WHERE message = ? AND seq <= ?";

/// Moves the ends of leases. Of a message whose endpoint was removed there is none to move. Rows: id, token, end.
pub(super) const RENEW: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token VARCHAR(24) PATH '$[1]', until BIGINT PATH '$[2]'))
    AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.due = CASE WHEN message.due IS NOT NULL THEN row.until END,
    message.claim_at = CASE WHEN message.claim_at IS NOT NULL THEN row.until END
WHERE message.token = FROM_BASE64(row.token)";

/// What is known of messages whose leases are held; how many attempts have been noted is counted in their histories too.
/// Nobody else changes them before the commit. Rows: id, token.
pub(super) const LOCK_HELD: &str = "\
SELECT CAST(row.place AS SIGNED) AS place, message.replays, message.ordering_key,
    GREATEST(message.noted, COALESCE((SELECT MAX(attempt.seq)
        FROM countersign_attempt AS attempt FORCE INDEX (PRIMARY) WHERE attempt.message = message.id), 0)) AS noted
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY, id BIGINT PATH '$[0]', token VARCHAR(24) PATH '$[1]')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
WHERE message.token = FROM_BASE64(row.token)
FOR UPDATE";

/// Ends attempts. Rows: id, token, state, due, reason, whether it is taken out of the count, whether it is noted, status,
/// error. Then the time. Of several tables no assignment may depend on another. One whose endpoint was removed meanwhile is a
/// dead letter already: what would send it again leaves it one.
pub(super) const END: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token VARCHAR(24) PATH '$[1]',
    state VARCHAR(24) PATH '$[2]', due BIGINT PATH '$[3]', reason TEXT PATH '$[4]', uncounted BIGINT PATH '$[5]',
    noted BIGINT PATH '$[6]', status BIGINT PATH '$[7]', error TEXT PATH '$[8]')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.last_token = FROM_BASE64(row.token), message.token = NULL,
    message.state = CASE WHEN message.state = 'dead_letter' AND FROM_BASE64(row.state) = 'pending'
        THEN message.state ELSE FROM_BASE64(row.state) END,
    message.due = CASE WHEN message.due IS NOT NULL THEN row.due END,
    message.claim_at = CASE WHEN message.claim_at IS NOT NULL THEN row.due END,
    message.reason = CASE WHEN FROM_BASE64(row.state) = 'pending' THEN message.reason
        ELSE CONVERT(FROM_BASE64(row.reason) USING utf8mb4) END,
    message.attempts = message.attempts - row.uncounted,
    message.noted = LEAST(message.noted + row.noted, 1000000000000000),
    message.updated = ?, message.last_status = COALESCE(row.status, message.last_status),
    message.last_error = CASE WHEN FROM_BASE64(row.state) <> 'succeeded'
        THEN COALESCE(CONVERT(FROM_BASE64(row.error) USING utf8mb4), message.last_error) END
WHERE message.token = FROM_BASE64(row.token)";

/// Whether a lease's attempt was the last one of its message that came to an end.
pub(super) const ENDED: &str = "SELECT id FROM countersign_outbox WHERE id = ? AND last_token = ?";

/// The oldest messages behind a number that fit: number, before when they changed, three states; endpoint, id, type, each
/// twice, null for any; whether the endpoint may be missing, at most so many. Nobody else changes them before the commit.
pub(super) const SELECT: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_state)
WHERE id > ? AND updated < ? AND state IN (?, ?, ?) AND (? IS NULL OR endpoint = ?) AND (? IS NULL OR message_id = ?)
    AND (? IS NULL OR type = ?) AND (? IS NULL OR correlation_id = ?)
    AND (? OR EXISTS (SELECT 1 FROM countersign_endpoint WHERE name = message.endpoint))
ORDER BY id LIMIT ? FOR UPDATE";

/// The same, of those that have the id.
pub(super) const SELECT_BY_ID: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_key)
WHERE id > ? AND updated < ? AND state IN (?, ?, ?) AND (? IS NULL OR endpoint = ?) AND (? IS NOT NULL AND message_id = ?)
    AND (? IS NULL OR type = ?) AND (? IS NULL OR correlation_id = ?)
    AND (? OR EXISTS (SELECT 1 FROM countersign_endpoint WHERE name = message.endpoint))
ORDER BY id LIMIT ? FOR UPDATE";

/// The same, of those that belong together.
pub(super) const SELECT_BY_CORRELATION: &str = "\
SELECT id, endpoint, message_id, ordering_key
FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_correlation)
WHERE id > ? AND updated < ? AND state IN (?, ?, ?) AND (? IS NULL OR endpoint = ?) AND (? IS NULL OR message_id = ?)
    AND (? IS NULL OR type = ?) AND (? IS NOT NULL AND correlation_id = ?)
    AND (? OR EXISTS (SELECT 1 FROM countersign_endpoint WHERE name = message.endpoint))
ORDER BY id LIMIT ? FOR UPDATE";

/// Makes messages pending again, with all their attempts before them. Rows: id, due. Then the time, twice.
pub(super) const REPLAY: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', due BIGINT PATH '$[1]')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.state = 'pending', message.token = NULL, message.attempts = 0,
    message.replays = LEAST(message.replays + 1, 4294967295),
    message.due = row.due, message.claim_at = row.due, message.reason = NULL, message.since = ?, message.updated = ?";

/// Takes messages back. Rows: ids. Then reason and time.
pub(super) const CANCEL: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id
SET message.state = 'cancelled', message.token = NULL, message.due = NULL, message.claim_at = NULL,
    message.reason = ?, message.updated = ?";

/// Messages in a state that have not changed since then, the oldest first, at most so many. What somebody else has in hand
/// is passed over.
pub(super) const AGED: &str = "\
SELECT id, updated, endpoint, CASE WHEN state IN ('failed', 'dead_letter') THEN ordering_key END AS ordering_key
FROM countersign_outbox FORCE INDEX (countersign_outbox_state)
WHERE state = ? AND updated <= ? ORDER BY updated, id LIMIT ? FOR UPDATE SKIP LOCKED";

/// The histories of messages, before these go. Rows: ids.
pub(super) const REMOVE_HISTORIES: &str = "\
DELETE attempt FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_attempt AS attempt FORCE INDEX (PRIMARY) ON attempt.message = row.id";

/// Removes messages. Rows: ids.
pub(super) const REMOVE: &str = "\
DELETE message FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_outbox AS message FORCE INDEX (PRIMARY) ON message.id = row.id";

/// One message, whole, without its attempts: id, endpoint.
pub(super) const FIND: &str = "\
SELECT id, endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox WHERE message_id = ? AND endpoint = ?";

/// The attempts of a message, the oldest first.
pub(super) const ATTEMPTS: &str = "\
SELECT replay, number, at, took, status, headers, body, error, kind
FROM countersign_attempt WHERE message = ? ORDER BY seq";

/// Messages in a state, those changed last first: state, the stretch (updated of its end and its beginning, then updated and id
/// of its beginning, updated and id of its end), endpoint twice, type twice (null: any), at most so many.
pub(super) const LIST: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox FORCE INDEX (countersign_outbox_state)
WHERE state = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?) AND (updated > ? OR id >= ?)
    AND (? IS NULL OR endpoint = ?) AND (? IS NULL OR type = ?)
ORDER BY updated DESC, id DESC LIMIT ?";

/// Where a stretch of rows ends: its last one. Six times, for each state: state, below which it begins as (updated twice, id), how many
/// rows; then one less than that.
pub(super) const EDGE: &str = "\
SELECT updated, id FROM (
    (SELECT updated, id FROM countersign_outbox FORCE INDEX (countersign_outbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox FORCE INDEX (countersign_outbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox FORCE INDEX (countersign_outbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox FORCE INDEX (countersign_outbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox FORCE INDEX (countersign_outbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox FORCE INDEX (countersign_outbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
) AS newest ORDER BY updated DESC, id DESC LIMIT 1 OFFSET ?";

/// Messages that have an id: id, the stretch as above; endpoint, type and state, each twice, null for any; at most so many.
pub(super) const LIST_BY_ID: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox
WHERE message_id = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?) AND (updated > ? OR id >= ?)
    AND (? IS NULL OR endpoint = ?) AND (? IS NULL OR type = ?) AND (? IS NULL OR state = ?)
    AND (? IS NULL OR correlation_id = ?)
ORDER BY updated DESC, id DESC LIMIT ?";

/// The same, of those that belong together. Then endpoint, type and state.
pub(super) const LIST_BY_CORRELATION: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox FORCE INDEX (countersign_outbox_correlation)
WHERE correlation_id = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?) AND (updated > ? OR id >= ?)
    AND (? IS NULL OR endpoint = ?) AND (? IS NULL OR type = ?) AND (? IS NULL OR state = ?)
    AND (? IS NULL OR correlation_id = ?)
ORDER BY updated DESC, id DESC LIMIT ?";

/// The endpoint, not disabled and without those with these numbers, whose next message is to be looked at first, and when;
/// and the time. What is held up is not waited for.
pub(super) const NEXT_DUE: &str = "\
SELECT id, name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since,
    failures, created, updated,
    GREATEST(COALESCE(LEAST(fresh, tried), fresh, tried), COALESCE(paused_until, 0)) AS due,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now
FROM (
    SELECT endpoint.*,
        (SELECT claim_at FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 0 ORDER BY claim_at LIMIT 1) AS fresh,
        (SELECT claim_at FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 1 ORDER BY claim_at LIMIT 1) AS tried
    FROM countersign_endpoint AS endpoint
    WHERE disabled IS NULL
        AND id NOT IN (SELECT row.id FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row)) AS looked
WHERE fresh IS NOT NULL OR tried IS NOT NULL
ORDER BY due LIMIT 1";

/// When the longest due message of each endpoint was due (null where none waits), and what time it is.
pub(super) const OLDEST_DUE: &str = "\
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now, name,
    COALESCE(LEAST(fresh, tried), fresh, tried) AS due
FROM (
    SELECT name,
        (SELECT claim_at FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 0 ORDER BY claim_at LIMIT 1) AS fresh,
        (SELECT claim_at FROM countersign_outbox AS message FORCE INDEX (countersign_outbox_due)
         WHERE message.due_to = endpoint.name AND lane = 1 ORDER BY claim_at LIMIT 1) AS tried
    FROM countersign_endpoint AS endpoint WHERE disabled IS NULL) AS looked
ORDER BY name";

/// The keys of messages from a number on, at most so many.
pub(super) const KEYS: &str =
    "SELECT id, endpoint, message_id FROM countersign_outbox WHERE id >= ? ORDER BY id LIMIT ?";
