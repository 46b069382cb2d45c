//! Every statement that the store runs, each a constant. Nothing is formatted into SQL.
//!
//! A statement for a batch takes its rows as one JSON array (`?1`), and everything that is bytes packed into one value
//! (`?2`) out of which `substr` cuts its own: bytes need no escaping then, and the text of a statement does not depend
//! on how many rows there are. `INDEXED BY` fixes the plan: the batch is walked, and the table is searched.
//!
//! Which rows of a batch a change is for is asked by a statement of its own that returns them all in one row: every row
//! that a statement returns is handed from SQLite's thread to ours, and costs more than looking it up.

/// Makes the receipts that do not exist yet. Rows: consumer, source, key, event id, correlation id, lease end. Bytes, 48 for
/// each row: token, digest.
pub(super) const INSERT: &str = "\
INSERT INTO countersign_inbox
    (consumer, source, key, event_id, correlation_id, body_digest, state, attempts, token, lease_until, first_seen, updated)
SELECT row.value ->> 0, row.value ->> 1, row.value ->> 2, row.value ->> 3, row.value ->> 4,
    substr(?2, row.key * 48 + 17, 32), 'processing', 1, substr(?2, row.key * 48 + 1, 16), row.value ->> 5, ?3, ?3
FROM json_each(?1) AS row
WHERE true
ON CONFLICT (key, source, consumer) DO NOTHING";

/// Which of the batch were made just now. Rows: consumer, source, key. Bytes: 16 for each row, the token. Returns the
/// places of the rows as a JSON array.
pub(super) const MADE: &str = "\
SELECT json_group_array(row.key)
FROM json_each(?1) AS row
CROSS JOIN countersign_inbox AS receipt INDEXED BY countersign_inbox_key
ON receipt.key = row.value ->> 2 AND receipt.source = row.value ->> 1 AND receipt.consumer = row.value ->> 0
WHERE receipt.token = substr(?2, row.key * 16 + 1, 16) AND receipt.attempts = 1";

/// Which of the batch still hold their lease. Rows, bytes and answer as before.
pub(super) const HELD: &str = "\
SELECT json_group_array(row.key)
FROM json_each(?1) AS row
CROSS JOIN countersign_inbox AS receipt INDEXED BY countersign_inbox_key
ON receipt.key = row.value ->> 2 AND receipt.source = row.value ->> 1 AND receipt.consumer = row.value ->> 0
WHERE receipt.token = substr(?2, row.key * 16 + 1, 16)";

/// What is known of receipts. Rows: consumer, source, key. Returns the place of the row and what counts about it.
pub(super) const STANDINGS: &str = "\
SELECT row.key AS place, receipt.id, receipt.state, receipt.attempts, receipt.token, receipt.lease_until, receipt.due,
    receipt.body_digest, receipt.result_status, receipt.result_headers, receipt.result_body
FROM json_each(?1) AS row
CROSS JOIN countersign_inbox AS receipt INDEXED BY countersign_inbox_key
ON receipt.key = row.value ->> 2 AND receipt.source = row.value ->> 1 AND receipt.consumer = row.value ->> 0";

/// Gives a known receipt to a new holder. What was owed still is.
pub(super) const TAKE_OVER: &str = "\
UPDATE countersign_inbox
SET state = 'processing', token = ?2, lease_until = ?3, attempts = ?4, updated = ?5, due = ?6, quarantined = 0,
    reason = NULL
WHERE id = ?1";

/// Takes in events that are not known yet. Each row is three lists: consumer, source, key, event id, ordering key, reason
/// for quarantine, correlation id; method, target, proof; where the bytes begin, length of the headers, length of the body. Bytes: digest,
/// headers, body.
pub(super) const ACCEPT: &str = "\
INSERT INTO countersign_inbox
    (consumer, source, key, event_id, correlation_id, ordering_key, body_digest, state, attempts, due, quarantined, reason,
     first_seen, updated, request_method, request_target, request_proof, request_headers, request_body)
SELECT row.value ->> '$[0][0]', row.value ->> '$[0][1]', row.value ->> '$[0][2]', row.value ->> '$[0][3]',
    row.value ->> '$[0][6]', row.value ->> '$[0][4]', substr(?2, row.value ->> '$[2][0]', 32), 'received', 0,
    CASE WHEN row.value ->> '$[0][5]' IS NULL THEN ?3 END, row.value ->> '$[0][5]' IS NOT NULL,
    row.value ->> '$[0][5]', ?3, ?3,
    row.value ->> '$[1][0]', row.value ->> '$[1][1]', row.value ->> '$[1][2]',
    substr(?2, (row.value ->> '$[2][0]') + 32, row.value ->> '$[2][1]'),
    substr(?2, (row.value ->> '$[2][0]') + 32 + (row.value ->> '$[2][1]'), row.value ->> '$[2][2]')
FROM json_each(?1) AS row
ORDER BY row.key";

/// Makes a known receipt one that is owed, or puts it into quarantine.
pub(super) const OWE: &str = "\
UPDATE countersign_inbox
SET state = ?2, due = ?3, quarantined = ?3 IS NULL, reason = ?4, ordering_key = ?6,
    updated = CASE WHEN ?2 = 'processing' THEN updated ELSE ?5 END,
    request_method = ?7, request_target = ?8, request_proof = ?9, request_headers = ?10, request_body = ?11
WHERE id = ?1";

/// What `?1` may claim at `?2`, the longest due first, at most `?3`. What is owed and was seen earlier holds up what has
/// the same ordering key.
pub(super) const DUE: &str = "\
SELECT id, consumer, source, key, event_id, state, attempts, token, lease_until, due, body_digest, first_seen,
    request_method, request_target, request_headers, request_body, request_proof
FROM countersign_inbox AS receipt INDEXED BY countersign_inbox_due
WHERE consumer = ?1 AND due <= ?2 AND (ordering_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM countersign_inbox AS earlier INDEXED BY countersign_inbox_order
    WHERE earlier.consumer = receipt.consumer AND earlier.source = receipt.source
        AND earlier.ordering_key = receipt.ordering_key AND earlier.due IS NOT NULL AND earlier.id < receipt.id))
ORDER BY due, id LIMIT ?3";

/// Gives a run back, uncounted.
pub(super) const RELEASE: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN due IS NOT NULL AND error IS NULL THEN 'received' ELSE 'failed' END,
    token = NULL, lease_until = NULL, attempts = max(attempts - 1, 0), updated = ?5,
    due = CASE WHEN due IS NOT NULL THEN ?5 END
WHERE consumer = ?1 AND source = ?2 AND key = ?3 AND token = ?4";

/// Makes a receipt a dead letter because its attempts are used up.
pub(super) const BURY: &str = "\
UPDATE countersign_inbox
SET state = 'dead_letter', token = NULL, lease_until = NULL, reason = ?2, updated = ?3, due = NULL, quarantined = 0
WHERE id = ?1";

/// Counts a delivery with another body.
pub(super) const COUNT_OTHER_BODY: &str = "UPDATE countersign_inbox SET other_bodies = other_bodies + 1 WHERE id = ?1";

/// Ends runs in success. Rows: consumer, source, key, status, where the bytes begin, length of the headers, length of
/// the body or null. Bytes: token, headers, body.
pub(super) const COMPLETE: &str = "\
UPDATE countersign_inbox AS receipt INDEXED BY countersign_inbox_key
SET state = 'succeeded', token = NULL, lease_until = NULL, due = NULL, updated = ?3, error = NULL,
    result_status = row.value ->> 3,
    result_headers = substr(?2, (row.value ->> 4) + 16, row.value ->> 5),
    result_body = CASE WHEN row.value ->> 6 IS NOT NULL
        THEN substr(?2, (row.value ->> 4) + 16 + (row.value ->> 5), row.value ->> 6) END,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
FROM json_each(?1) AS row
WHERE receipt.key = row.value ->> 2 AND receipt.source = row.value ->> 1 AND receipt.consumer = row.value ->> 0
    AND receipt.token = substr(?2, row.value ->> 4, 16)";

/// Ends one run in success, in the transaction of whoever runs it.
pub(super) const COMPLETE_ONE: &str = "\
UPDATE countersign_inbox INDEXED BY countersign_inbox_key
SET state = 'succeeded', token = NULL, lease_until = NULL, due = NULL, updated = ?5, error = NULL,
    result_status = ?6, result_headers = ?7, result_body = ?8,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
WHERE consumer = ?1 AND source = ?2 AND key = ?3 AND token = ?4";

/// Moves the ends of leases. Rows: consumer, source, key, lease end. Bytes: 16 for each row, the token.
pub(super) const RENEW: &str = "\
UPDATE countersign_inbox AS receipt INDEXED BY countersign_inbox_key
SET lease_until = row.value ->> 3, due = CASE WHEN receipt.due IS NOT NULL THEN row.value ->> 3 END
FROM json_each(?1) AS row
WHERE receipt.key = row.value ->> 2 AND receipt.source = row.value ->> 1 AND receipt.consumer = row.value ->> 0
    AND receipt.token = substr(?2, row.key * 16 + 1, 16)";

/// Ends a run in failure. What it brings no answer or request for stays as it was. It is due at `?15`, or at once where
/// it is owed, unless its request is not kept.
pub(super) const FAIL: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN ?6 IS NULL THEN 'failed' ELSE 'dead_letter' END,
    token = NULL, lease_until = NULL, updated = ?5, reason = ?6,
    due = CASE WHEN ?6 IS NULL AND coalesce(?10, request_method) IS NOT NULL
        THEN coalesce(?15, CASE WHEN due IS NOT NULL THEN ?5 END) END,
    result_headers = CASE WHEN ?7 IS NULL THEN result_headers ELSE ?8 END,
    result_body = CASE WHEN ?7 IS NULL THEN result_body ELSE ?9 END,
    result_status = coalesce(?7, result_status),
    request_target = CASE WHEN ?10 IS NULL THEN request_target ELSE ?11 END,
    request_headers = CASE WHEN ?10 IS NULL THEN request_headers ELSE ?12 END,
    request_body = CASE WHEN ?10 IS NULL THEN request_body ELSE ?13 END,
    request_proof = CASE WHEN ?10 IS NULL THEN request_proof ELSE ?14 END,
    request_method = coalesce(?10, request_method)
WHERE consumer = ?1 AND source = ?2 AND key = ?3 AND token = ?4
RETURNING id, attempts";

/// Adds a run to the history of a receipt. Returns its number.
pub(super) const NOTE_FAILURE: &str = "\
INSERT INTO countersign_inbox_failure (receipt, seq, attempt, at, status, error)
SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5 FROM countersign_inbox_failure WHERE receipt = ?1
RETURNING seq";

/// Shows the failure as the receipt's last one.
pub(super) const SHOW_ERROR: &str = "UPDATE countersign_inbox SET error = ?2 WHERE id = ?1";

/// Keeps the history of a receipt from growing.
pub(super) const FORGET_FAILURES: &str = "DELETE FROM countersign_inbox_failure WHERE receipt = ?1 AND seq <= ?2";

/// Gives a dead letter, a failed event or one in quarantine another chance.
pub(super) const RETRY: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN state = 'dead_letter' THEN 'failed' ELSE state END,
    attempts = CASE WHEN state = 'dead_letter' THEN 0 ELSE attempts END,
    updated = CASE WHEN state = 'failed' THEN updated ELSE ?4 END,
    due = CASE WHEN request_method IS NOT NULL THEN ?4 END, quarantined = 0, reason = NULL
WHERE consumer = ?1 AND source = ?2 AND key = ?3 AND (state IN ('dead_letter', 'failed') OR quarantined = 1)";

/// Ends a dead letter as succeeded, with this result.
pub(super) const CONCLUDE: &str = "\
UPDATE countersign_inbox
SET state = 'succeeded', reason = NULL, error = NULL, updated = ?4,
    result_status = ?5, result_headers = ?6, result_body = ?7,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
WHERE consumer = ?1 AND source = ?2 AND key = ?3 AND state = 'dead_letter'";

/// The state of a receipt.
pub(super) const STATE: &str = "SELECT state FROM countersign_inbox WHERE consumer = ?1 AND source = ?2 AND key = ?3";

/// Removes a receipt; its failures go with it.
pub(super) const FORGET: &str = "DELETE FROM countersign_inbox WHERE consumer = ?1 AND source = ?2 AND key = ?3";

/// Removes ended receipts, and failed ones that are not owed, that have not changed since `?1`, the oldest first, at most `?2`.
pub(super) const PURGE_KEYS: &str = "\
DELETE FROM countersign_inbox WHERE id IN (
    SELECT id FROM (
        SELECT * FROM (
            SELECT id, updated FROM countersign_inbox INDEXED BY countersign_inbox_state
            WHERE state = 'succeeded' AND updated <= ?1 ORDER BY updated, id LIMIT ?2)
        UNION ALL
        SELECT * FROM (
            SELECT id, updated FROM countersign_inbox INDEXED BY countersign_inbox_state
            WHERE state = 'failed' AND due IS NULL AND updated <= ?1 ORDER BY updated, id LIMIT ?2)
    ) ORDER BY updated, id LIMIT ?2)";

/// Removes the bodies of results that have not changed since `?1`, the oldest first, at most `?2`.
pub(super) const PURGE_RESULTS: &str = "\
UPDATE countersign_inbox SET result_body = NULL WHERE id IN (
    SELECT id FROM countersign_inbox INDEXED BY countersign_inbox_result
    WHERE state IN ('succeeded', 'failed') AND result_body IS NOT NULL AND updated <= ?1
    ORDER BY updated, id LIMIT ?2)";

/// Writes something that means nothing, so that a full or failing disk shows.
pub(super) const CHECK: &str = "UPDATE countersign_schema SET checked_at = ?1 WHERE version = 1";

/// One receipt, whole, with its history as a JSON array of number, attempt, time, status and error.
pub(super) const FIND: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due, quarantined,
    ordering_key, body_digest, other_bodies, error, reason, result_status, result_headers, result_body,
    request_method, request_target, request_headers, request_body, request_proof,
    (SELECT json_group_array(json_array(seq, attempt, at, status, error))
     FROM countersign_inbox_failure WHERE receipt = countersign_inbox.id) AS failures
FROM countersign_inbox
WHERE consumer = ?1 AND source = ?2 AND key = ?3";

/// Receipts by `?1` consumer, `?2` source, `?4` state (null: any), those changed last first, at most `?3`; below `?5`, `?6` and
/// from `?7`, `?8` on, which say when a row changed and its id.
///
/// Each state is read backwards along the index and no further than the limit, or the end of the stretch, so that a list costs
/// the same whatever the size of the table.
pub(super) const LIST: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due, quarantined,
    ordering_key, body_digest, other_bodies, error, reason, result_status, result_headers, NULL AS result_body,
    NULL AS request_method, NULL AS request_target, NULL AS request_headers, NULL AS request_body,
    NULL AS request_proof, '[]' AS failures
FROM countersign_inbox
WHERE id IN (
    SELECT id FROM (
        SELECT * FROM (SELECT id, updated FROM countersign_inbox WHERE state = 'received'
            AND (?4 IS NULL OR ?4 = 'received') AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_inbox WHERE state = 'processing'
            AND (?4 IS NULL OR ?4 = 'processing') AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_inbox WHERE state = 'succeeded'
            AND (?4 IS NULL OR ?4 = 'succeeded') AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_inbox WHERE state = 'failed'
            AND (?4 IS NULL OR ?4 = 'failed') AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
        UNION ALL
        SELECT * FROM (SELECT id, updated FROM countersign_inbox WHERE state = 'dead_letter'
            AND (?4 IS NULL OR ?4 = 'dead_letter') AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
            AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
            ORDER BY updated DESC, id DESC LIMIT ?3)
    ) ORDER BY updated DESC, id DESC LIMIT ?3)
ORDER BY updated DESC, id DESC";

/// Where a stretch of `?4` rows ends that begins below `?2`, `?3`, in state `?1` (null: any): its last one.
pub(super) const EDGE: &str = "\
SELECT updated, id FROM (
    SELECT * FROM (SELECT updated, id FROM countersign_inbox INDEXED BY countersign_inbox_state WHERE state = 'received'
        AND (?1 IS NULL OR ?1 = 'received') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_inbox INDEXED BY countersign_inbox_state WHERE state = 'processing'
        AND (?1 IS NULL OR ?1 = 'processing') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_inbox INDEXED BY countersign_inbox_state WHERE state = 'succeeded'
        AND (?1 IS NULL OR ?1 = 'succeeded') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_inbox INDEXED BY countersign_inbox_state WHERE state = 'failed'
        AND (?1 IS NULL OR ?1 = 'failed') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT updated, id FROM countersign_inbox INDEXED BY countersign_inbox_state WHERE state = 'dead_letter'
        AND (?1 IS NULL OR ?1 = 'dead_letter') AND updated <= ?2 AND (updated < ?2 OR id < ?3)
        ORDER BY updated DESC, id DESC LIMIT ?4)
) ORDER BY updated DESC, id DESC LIMIT 1 OFFSET ?4 - 1";

/// The same, of those that have the key `?9`, or the event id.
pub(super) const LIST_BY_KEY: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due, quarantined,
    ordering_key, body_digest, other_bodies, error, reason, result_status, result_headers, NULL AS result_body,
    NULL AS request_method, NULL AS request_target, NULL AS request_headers, NULL AS request_body,
    NULL AS request_proof, '[]' AS failures
FROM countersign_inbox
WHERE id IN (
        SELECT id FROM countersign_inbox INDEXED BY countersign_inbox_key WHERE key = ?9
        UNION
        SELECT id FROM countersign_inbox INDEXED BY countersign_inbox_label
        WHERE event_id = ?9 AND event_id IS NOT NULL AND event_id <> key)
    AND (?4 IS NULL OR state = ?4) AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
    AND (?10 IS NULL OR correlation_id = ?10)
    AND (updated, id) < (?5, ?6) AND (updated, id) >= (?7, ?8)
ORDER BY updated DESC, id DESC LIMIT ?3";

/// The same, of those that belong to `?10`, whatever their key: `?9` is null.
pub(super) const LIST_BY_CORRELATION: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status, result_headers,
    NULL AS result_body, NULL AS request_method, NULL AS request_target, NULL AS request_headers, NULL AS request_body,
    NULL AS request_proof, '[]' AS failures
FROM countersign_inbox INDEXED BY countersign_inbox_correlation
WHERE correlation_id = ?10 AND ?9 IS NULL
    AND (?4 IS NULL OR state = ?4) AND (?1 IS NULL OR consumer = ?1) AND (?2 IS NULL OR source = ?2)
    AND updated BETWEEN ?7 AND ?5 AND (updated < ?5 OR id < ?6) AND (updated > ?7 OR id >= ?8)
ORDER BY updated DESC, id DESC LIMIT ?3";

/// When the longest due event of a consumer was due.
pub(super) const OLDEST_DUE: &str = "\
SELECT min(due) AS due FROM countersign_inbox INDEXED BY countersign_inbox_due
WHERE consumer = ?1 AND due IS NOT NULL";

/// The keys of receipts from a number on, at most so many.
pub(super) const KEYS: &str =
    "SELECT id, consumer, source, key FROM countersign_inbox WHERE id >= ?1 ORDER BY id LIMIT ?2";
