//! Every statement that the store runs, each a constant. Nothing is formatted into SQL.
//!
//! A statement for a batch takes its rows as one JSON array, so that its text does not depend on how many rows there are;
//! whatever is text or bytes is in base64, which leaves nothing to character sets and collations. `STRAIGHT_JOIN` fixes the
//! plan: the batch is walked, and the table is searched. Rows come sorted by key, and are locked in that order.
//!
//! Neither `RETURNING` nor `AS new` is used: MariaDB has the one, MySQL the other.

/// What a writer's connection is told once, so that no setting of the server or the pool matters.
///
/// Under the usual `REPEATABLE READ` an insert would lock the gap between two keys, and neighbours would wait for it.
/// Strict mode: what does not fit is an error, not a shorter value. `NAMES`: the statements are in UTF-8.
pub(super) const PREPARE: &str = "\
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', autocommit = 1,
    innodb_lock_wait_timeout = 5, foreign_key_checks = 1, unique_checks = 1;
SET NAMES utf8mb4;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE";

/// Opens a transaction and returns the time: microseconds since the Unix epoch, whatever the time zone.
pub(super) const BEGIN: &str = "\
START TRANSACTION;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now";

pub(super) const COMMIT: &str = "COMMIT";

pub(super) const ROLLBACK: &str = "ROLLBACK";

/// The same where named locks were taken, which belong to the connection: they are freed once everybody sees what was done.
pub(super) const COMMIT_AND_UNLOCK: &str = "COMMIT; DO RELEASE_ALL_LOCKS()";

pub(super) const ROLLBACK_AND_UNLOCK: &str = "ROLLBACK; DO RELEASE_ALL_LOCKS()";

/// Which of the batch exist, whoever has them in hand. Rows: consumer, source, key.
pub(super) const KNOWN: &str = "\
SELECT CAST(row.place AS SIGNED) AS place
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)";

/// Makes the receipts that do not exist yet. Rows: consumer, source, key, event id, token, digest, lease end, correlation
/// id. Then the time, twice.
///
/// Those that are [`KNOWN`] have been left out before: the conflict alone would wait for whatever transaction has the row in hand. Not
/// by a join here, since the temporary table for that crashed MariaDB 10.11.19 under load.
pub(super) const INSERT: &str = "\
INSERT INTO countersign_inbox
    (consumer, source, `key`, event_id, correlation_id, body_digest, state, attempts, token, lease_until, first_seen, updated)
SELECT row.consumer, row.source, row.k, row.event_id, row.flow, row.digest, 'processing', 1, row.token, row.lease_until, ?, ?
FROM (
    SELECT FROM_BASE64(consumer) AS consumer, FROM_BASE64(source) AS source, FROM_BASE64(k) AS k,
        FROM_BASE64(event_id) AS event_id, FROM_BASE64(flow) AS flow, FROM_BASE64(token) AS token,
        FROM_BASE64(digest) AS digest, lease_until, place
    FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
        consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
        event_id VARCHAR(344) PATH '$[3]', token VARCHAR(24) PATH '$[4]', digest VARCHAR(44) PATH '$[5]',
        lease_until BIGINT PATH '$[6]', flow VARCHAR(344) PATH '$[7]')) AS cells
) AS row
ORDER BY row.place
ON DUPLICATE KEY UPDATE countersign_inbox.id = countersign_inbox.id";

/// Which of the batch were made just now. Rows: consumer, source, key, token.
pub(super) const MADE: &str = "\
SELECT CAST(row.place AS SIGNED) AS place
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    token VARCHAR(24) PATH '$[3]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
WHERE receipt.token = FROM_BASE64(row.token) AND receipt.attempts = 1";

/// Which of the batch still hold their lease. Rows as before.
pub(super) const HELD: &str = "\
SELECT CAST(row.place AS SIGNED) AS place
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    token VARCHAR(24) PATH '$[3]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
WHERE receipt.token = FROM_BASE64(row.token)";

/// The same, and nobody else changes them before the commit.
pub(super) const LOCK_HELD: &str = "\
SELECT CAST(row.place AS SIGNED) AS place
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    token VARCHAR(24) PATH '$[3]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
WHERE receipt.token = FROM_BASE64(row.token)
FOR UPDATE";

/// The same, without those that another transaction has in hand.
pub(super) const LOCK_HELD_AND_FREE: &str = "\
SELECT CAST(row.place AS SIGNED) AS place
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    token VARCHAR(24) PATH '$[3]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
WHERE receipt.token = FROM_BASE64(row.token)
FOR UPDATE SKIP LOCKED";

/// What is known of receipts. Rows: consumer, source, key.
pub(super) const STANDINGS: &str = "\
SELECT CAST(row.place AS SIGNED) AS place, receipt.id, receipt.state, receipt.attempts, receipt.token,
    receipt.lease_until, receipt.due, receipt.body_digest, receipt.result_status, receipt.result_headers,
    receipt.result_body
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)";

/// The same, and nobody else changes them before the commit. Those that another transaction has in hand are passed over.
pub(super) const LOCKED_STANDINGS: &str = "\
SELECT CAST(row.place AS SIGNED) AS place, receipt.id, receipt.state, receipt.attempts, receipt.token,
    receipt.lease_until, receipt.due, receipt.body_digest, receipt.result_status, receipt.result_headers,
    receipt.result_body
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
FOR UPDATE SKIP LOCKED";

/// Gives a known receipt to a new holder. What was owed still is.
pub(super) const TAKE_OVER: &str = "\
UPDATE countersign_inbox
SET state = 'processing', token = ?, lease_until = ?, attempts = ?, updated = ?, due = ?, quarantined = FALSE,
    reason = NULL
WHERE id = ?";

/// Waits for a named lock, as long as for the lock of a row. Such locks are those of a whole server.
pub(super) const TAKE_TURN: &str =
    "SELECT GET_LOCK(CONCAT('countersign:order:', MD5(CONCAT(DATABASE(), ?))), 5) AS taken";

/// Takes in events that are not known yet. The time, three times. Rows: consumer, source, key, event id, ordering key,
/// digest, reason for quarantine, method, target, proof, headers, body, correlation id.
pub(super) const ACCEPT: &str = "\
INSERT INTO countersign_inbox
    (consumer, source, `key`, event_id, correlation_id, ordering_key, body_digest, state, attempts, due, quarantined, reason,
     first_seen, updated, request_method, request_target, request_proof, request_headers, request_body)
SELECT row.consumer, row.source, row.k, row.event_id, row.flow, row.ordering_key, row.digest, 'received', 0,
    CASE WHEN row.reason IS NULL THEN ? END, row.reason IS NOT NULL, row.reason, ?, ?,
    row.method, row.target, row.proof, row.headers, row.body
FROM (
    SELECT FROM_BASE64(consumer) AS consumer, FROM_BASE64(source) AS source, FROM_BASE64(k) AS k,
        FROM_BASE64(event_id) AS event_id, FROM_BASE64(flow) AS flow, FROM_BASE64(ordering_key) AS ordering_key,
        FROM_BASE64(digest) AS digest,
        CONVERT(FROM_BASE64(reason) USING utf8mb4) AS reason, FROM_BASE64(method) AS method,
        FROM_BASE64(target) AS target, FROM_BASE64(proof) AS proof, FROM_BASE64(headers) AS headers,
        FROM_BASE64(body) AS body, place
    FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
        consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
        event_id VARCHAR(344) PATH '$[3]', ordering_key VARCHAR(344) PATH '$[4]', digest VARCHAR(44) PATH '$[5]',
        reason LONGTEXT PATH '$[6]', method VARCHAR(344) PATH '$[7]', target LONGTEXT PATH '$[8]',
        proof LONGTEXT PATH '$[9]', headers LONGTEXT PATH '$[10]', body LONGTEXT PATH '$[11]',
        flow VARCHAR(344) PATH '$[12]')) AS cells
) AS row
ORDER BY row.place
ON DUPLICATE KEY UPDATE countersign_inbox.id = countersign_inbox.id";

/// Which of the batch were made just now. Rows: consumer, source, key, digest, whether in quarantine. Then the time.
///
/// A receipt that somebody else made in the same microsecond, of the same body, is as good as one's own.
pub(super) const ACCEPTED: &str = "\
SELECT CAST(row.place AS SIGNED) AS place
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    digest VARCHAR(44) PATH '$[3]', quarantined BIGINT PATH '$[4]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
WHERE receipt.state = 'received' AND receipt.attempts = 0 AND receipt.first_seen = ?
    AND receipt.body_digest = FROM_BASE64(row.digest) AND receipt.quarantined = row.quarantined";

/// Makes a known receipt one that is owed, or puts it into quarantine.
pub(super) const OWE: &str = "\
UPDATE countersign_inbox
SET state = ?, due = ?, quarantined = ?, reason = ?, ordering_key = ?, updated = CASE WHEN ? THEN updated ELSE ? END,
    request_method = ?, request_target = ?, request_proof = ?, request_headers = ?, request_body = ?
WHERE id = ?";

/// What a consumer may claim at a time, the longest due first, at most so many. It is locked, and what others have in hand
/// is passed over. What is owed and was seen earlier holds up what has the same ordering key, also while it is in hand.
pub(super) const DUE: &str = "\
SELECT id, consumer, source, `key`, event_id, state, attempts, token, lease_until, due, body_digest, first_seen,
    request_method, request_target, request_headers, request_body, request_proof
FROM countersign_inbox AS receipt FORCE INDEX (countersign_inbox_due)
WHERE owed_to = ? AND due <= ? AND (ordering_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM countersign_inbox AS earlier FORCE INDEX (countersign_inbox_order)
    WHERE earlier.owed_order = receipt.ordering_key AND earlier.source = receipt.source
        AND earlier.consumer = receipt.consumer AND earlier.id < receipt.id))
ORDER BY due, id LIMIT ?
FOR UPDATE SKIP LOCKED";

/// Gives a run back, uncounted: the time, twice, then consumer, source, key, token. Assignments are made from the first to
/// the last, and each sees those before it.
pub(super) const RELEASE: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN due IS NOT NULL AND error IS NULL THEN 'received' ELSE 'failed' END,
    ended_token = token, token = NULL, lease_until = NULL, attempts = GREATEST(attempts - 1, 0), updated = ?,
    due = CASE WHEN due IS NOT NULL THEN ? END
WHERE consumer = ? AND source = ? AND `key` = ? AND token = ?";

/// Makes a receipt a dead letter because its attempts are used up.
pub(super) const BURY: &str = "\
UPDATE countersign_inbox
SET state = 'dead_letter', token = NULL, lease_until = NULL, reason = ?, updated = ?, due = NULL, quarantined = FALSE
WHERE id = ?";

/// Whether nobody has a receipt in hand; it is ours then.
pub(super) const LOCK_FREE: &str = "SELECT id FROM countersign_inbox WHERE id = ? FOR UPDATE SKIP LOCKED";

/// Counts a delivery with another body.
pub(super) const COUNT_OTHER_BODY: &str = "UPDATE countersign_inbox SET other_bodies = other_bodies + 1 WHERE id = ?";

/// Ends runs in success. Rows: consumer, source, key, token, status, headers, body or null. Then the time.
pub(super) const COMPLETE: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    token VARCHAR(24) PATH '$[3]', status BIGINT PATH '$[4]', headers LONGTEXT PATH '$[5]', body LONGTEXT PATH '$[6]'))
    AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
SET receipt.state = 'succeeded', receipt.ended_token = FROM_BASE64(row.token), receipt.token = NULL,
    receipt.lease_until = NULL, receipt.due = NULL, receipt.updated = ?, receipt.error = NULL, receipt.result_status = row.status,
    receipt.result_headers = FROM_BASE64(row.headers), receipt.result_body = FROM_BASE64(row.body),
    receipt.request_method = NULL, receipt.request_target = NULL, receipt.request_headers = NULL,
    receipt.request_body = NULL, receipt.request_proof = NULL
WHERE receipt.token = FROM_BASE64(row.token)";

/// Ends one run in success, in the transaction of whoever runs it: status, headers, body, then consumer, source, key, token.
/// The whole key stands there, so that one entry of its index is locked under any isolation, and no gap beside it.
/// Assignments are made from the first to the last, and each sees those before it.
pub(super) const COMPLETE_ONE: &str = "\
UPDATE countersign_inbox
SET state = 'succeeded', ended_token = token, token = NULL, lease_until = NULL, due = NULL,
    updated = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), error = NULL,
    result_status = ?, result_headers = ?, result_body = ?,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
WHERE consumer = ? AND source = ? AND `key` = ? AND token = ?";

/// Moves the ends of leases. Rows: consumer, source, key, token, lease end.
pub(super) const RENEW: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY,
    consumer VARCHAR(344) PATH '$[0]', source VARCHAR(344) PATH '$[1]', k VARCHAR(344) PATH '$[2]',
    token VARCHAR(24) PATH '$[3]', lease_until BIGINT PATH '$[4]')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (countersign_inbox_key)
ON receipt.`key` = FROM_BASE64(row.k) AND receipt.source = FROM_BASE64(row.source)
    AND receipt.consumer = FROM_BASE64(row.consumer)
SET receipt.lease_until = row.lease_until,
    receipt.due = CASE WHEN receipt.due IS NOT NULL THEN row.lease_until END
WHERE receipt.token = FROM_BASE64(row.token)";

/// The receipt that a lease holds. Nobody else changes it before the commit.
pub(super) const LOCK_ONE_HELD: &str = "\
SELECT id, attempts FROM countersign_inbox WHERE consumer = ? AND source = ? AND `key` = ? AND token = ? FOR UPDATE";

/// Ends a run in failure. What it brings no answer or request for stays as it was. It is due when it says, or at once where
/// it is owed, unless it is a dead letter or its request is not kept. Assignments are made from the first to the last, and
/// each sees those before it.
pub(super) const FAIL: &str = "\
UPDATE countersign_inbox
SET state = ?, ended_token = token, token = NULL, lease_until = NULL, updated = ?, reason = ?,
    due = CASE WHEN ? AND COALESCE(?, request_method) IS NOT NULL
        THEN COALESCE(?, CASE WHEN due IS NOT NULL THEN ? END) END,
    result_headers = CASE WHEN ? THEN ? ELSE result_headers END,
    result_body = CASE WHEN ? THEN ? ELSE result_body END,
    result_status = CASE WHEN ? THEN ? ELSE result_status END,
    request_target = CASE WHEN ? THEN ? ELSE request_target END,
    request_headers = CASE WHEN ? THEN ? ELSE request_headers END,
    request_body = CASE WHEN ? THEN ? ELSE request_body END,
    request_proof = CASE WHEN ? THEN ? ELSE request_proof END,
    request_method = CASE WHEN ? THEN ? ELSE request_method END
WHERE id = ?";

/// Whether a lease's run was the last one that came to an end.
pub(super) const ENDED: &str = "\
SELECT id FROM countersign_inbox WHERE consumer = ? AND source = ? AND `key` = ? AND ended_token = ?";

/// The number of a receipt's next failure.
pub(super) const NEXT_FAILURE: &str = "\
SELECT CAST(COALESCE(MAX(seq), 0) + 1 AS SIGNED) AS seq FROM countersign_inbox_failure WHERE receipt = ?";

/// Adds a run to the history of a receipt.
pub(super) const NOTE_FAILURE: &str = "\
INSERT INTO countersign_inbox_failure (receipt, seq, attempt, at, status, error) VALUES (?, ?, ?, ?, ?, ?)";

/// Shows the failure as the receipt's last one.
pub(super) const SHOW_ERROR: &str = "UPDATE countersign_inbox SET error = ? WHERE id = ?";

/// Keeps the history of a receipt from growing.
pub(super) const FORGET_FAILURES: &str = "DELETE FROM countersign_inbox_failure WHERE receipt = ? AND seq <= ?";

/// Gives a dead letter, a failed event or one in quarantine another chance: the time, twice, then consumer, source, key.
/// Assignments are made from the first to the last, and each sees those before it.
pub(super) const RETRY: &str = "\
UPDATE countersign_inbox
SET due = CASE WHEN request_method IS NOT NULL THEN ? END, updated = CASE WHEN state = 'failed' THEN updated ELSE ? END,
    attempts = CASE WHEN state = 'dead_letter' THEN 0 ELSE attempts END, quarantined = FALSE, reason = NULL,
    state = CASE WHEN state = 'dead_letter' THEN 'failed' ELSE state END
WHERE consumer = ? AND source = ? AND `key` = ? AND (state IN ('dead_letter', 'failed') OR quarantined)";

/// Ends a dead letter as succeeded, with this result: time, status, headers, body, then consumer, source, key.
pub(super) const CONCLUDE: &str = "\
UPDATE countersign_inbox
SET state = 'succeeded', reason = NULL, error = NULL, updated = ?,
    result_status = ?, result_headers = ?, result_body = ?,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
WHERE consumer = ? AND source = ? AND `key` = ? AND state = 'dead_letter'";

/// The state of a receipt.
pub(super) const STATE: &str =
    "SELECT id, state FROM countersign_inbox WHERE consumer = ? AND source = ? AND `key` = ?";

/// A receipt. Nobody else changes it before the commit.
pub(super) const LOCK_ONE: &str =
    "SELECT id FROM countersign_inbox WHERE consumer = ? AND source = ? AND `key` = ? FOR UPDATE";

/// Whether nobody else purges this database at this moment.
pub(super) const PURGE_ALONE: &str = "SELECT GET_LOCK(CONCAT('countersign:purge:', MD5(DATABASE())), 0) AS alone";

/// Receipts that have not changed since then and are not owed, the oldest first: `succeeded` or `failed`, time, at most so
/// many. What somebody else has in hand is passed over.
pub(super) const AGED_KEYS: &str = "\
SELECT id, updated FROM countersign_inbox FORCE INDEX (countersign_inbox_state)
WHERE state = ? AND due IS NULL AND updated <= ? ORDER BY updated, id LIMIT ? FOR UPDATE SKIP LOCKED";

/// The histories of receipts, before these go. Rows: ids.
pub(super) const REMOVE_HISTORIES: &str = "\
DELETE failure FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_inbox_failure AS failure FORCE INDEX (PRIMARY) ON failure.receipt = row.id";

/// Removes receipts. Rows: ids.
pub(super) const REMOVE: &str = "\
DELETE receipt FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (PRIMARY) ON receipt.id = row.id";

/// Receipts whose results' bodies have not changed since then, the oldest first.
pub(super) const AGED_RESULTS: &str = "\
SELECT id FROM countersign_inbox FORCE INDEX (countersign_inbox_result)
WHERE ageing <= ? ORDER BY ageing, id LIMIT ? FOR UPDATE SKIP LOCKED";

/// Removes the bodies of results. Rows: ids.
pub(super) const REMOVE_BODIES: &str = "\
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS row
STRAIGHT_JOIN countersign_inbox AS receipt FORCE INDEX (PRIMARY) ON receipt.id = row.id
SET receipt.result_body = NULL";

/// Writes something that means nothing, so that a full or failing disk shows.
pub(super) const CHECK: &str = "UPDATE countersign_schema SET checked_at = ? WHERE version = 1";

/// One receipt, whole, with its history as a JSON array of number, attempt, time, status and error.
pub(super) const FIND: &str = "\
SELECT id, consumer, source, `key`, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    CAST(quarantined AS SIGNED) AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, result_body, request_method, request_target, request_headers, request_body, request_proof,
    COALESCE((SELECT CAST(JSON_ARRAYAGG(JSON_ARRAY(seq, attempt, at, status, error)) AS CHAR)
     FROM countersign_inbox_failure WHERE receipt = countersign_inbox.id), '[]') AS failures
FROM countersign_inbox
WHERE consumer = ? AND source = ? AND `key` = ?";

/// Receipts, those changed last first. Five times, for each state: state, the stretch (updated of its end and its beginning,
/// then updated and id of its beginning, updated and id of its end), consumer twice, source twice, at most so many; null means
/// any. Then at most so many of all.
///
/// Each state is read backwards along the index and no further than the limit, or the end of the stretch, so that a list costs
/// the same whatever the size of the table.
pub(super) const LIST: &str = "\
SELECT receipt.id, consumer, source, `key`, event_id, correlation_id, state, attempts, first_seen, receipt.updated, lease_until,
    due, CAST(quarantined AS SIGNED) AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, NULL AS result_body,
    NULL AS request_method, NULL AS request_target, NULL AS request_headers, NULL AS request_body,
    NULL AS request_proof, '[]' AS failures
FROM (
    (SELECT id, updated FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?)
        AND (updated > ? OR id >= ?)
        AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT id, updated FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?)
        AND (updated > ? OR id >= ?)
        AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT id, updated FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?)
        AND (updated > ? OR id >= ?)
        AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT id, updated FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?)
        AND (updated > ? OR id >= ?)
        AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT id, updated FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?)
        AND (updated > ? OR id >= ?)
        AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?) ORDER BY updated DESC, id DESC LIMIT ?)
) AS newest
JOIN countersign_inbox AS receipt ON receipt.id = newest.id
ORDER BY receipt.updated DESC, receipt.id DESC LIMIT ?";

/// Where a stretch of rows ends: its last one. Five times, for each state: state, below which it begins as (updated twice, id), how many
/// rows; then one less than that.
pub(super) const EDGE: &str = "\
SELECT updated, id FROM (
    (SELECT updated, id FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox FORCE INDEX (countersign_inbox_state) WHERE state = ? AND updated <= ?
        AND (updated < ? OR id < ?) ORDER BY updated DESC, id DESC LIMIT ?)
) AS newest ORDER BY updated DESC, id DESC LIMIT 1 OFFSET ?";

/// Receipts that have the key, or the event id: both first; then the stretch as above, and state, consumer, source and
/// correlation id, each twice, null for any; then at most so many.
pub(super) const LIST_BY_KEY: &str = "\
SELECT id, consumer, source, `key`, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    CAST(quarantined AS SIGNED) AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, NULL AS result_body,
    NULL AS request_method, NULL AS request_target, NULL AS request_headers, NULL AS request_body,
    NULL AS request_proof, '[]' AS failures
FROM countersign_inbox
WHERE (`key` = ? OR label = ?)
    AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?) AND (updated > ? OR id >= ?)
    AND (? IS NULL OR state = ?) AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?)
    AND (? IS NULL OR correlation_id = ?)
ORDER BY updated DESC, id DESC LIMIT ?";

/// Receipts that belong together: to what, twice. The rest is the same.
pub(super) const LIST_BY_CORRELATION: &str = "\
SELECT id, consumer, source, `key`, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    CAST(quarantined AS SIGNED) AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, NULL AS result_body,
    NULL AS request_method, NULL AS request_target, NULL AS request_headers, NULL AS request_body,
    NULL AS request_proof, '[]' AS failures
FROM countersign_inbox FORCE INDEX (countersign_inbox_correlation)
WHERE (correlation_id = ? AND correlation_id = ?)
    AND updated BETWEEN ? AND ? AND (updated < ? OR id < ?) AND (updated > ? OR id >= ?)
    AND (? IS NULL OR state = ?) AND (? IS NULL OR consumer = ?) AND (? IS NULL OR source = ?)
    AND (? IS NULL OR correlation_id = ?)
ORDER BY updated DESC, id DESC LIMIT ?";

/// When the longest due event of a consumer was due, and what time it is.
pub(super) const OLDEST_DUE: &str = "\
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now,
    (SELECT due FROM countersign_inbox FORCE INDEX (countersign_inbox_due)
     WHERE owed_to = ? ORDER BY due LIMIT 1) AS due";

/// What time it is.
pub(in crate::store::sql) const CLOCK: &str =
    "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now";

/// The keys of receipts from a number on, at most so many.
pub(super) const KEYS: &str =
    "SELECT id, consumer, source, `key` FROM countersign_inbox WHERE id >= ? ORDER BY id LIMIT ?";
