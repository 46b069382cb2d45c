//! Every statement that the store runs, each a constant. Nothing is formatted into SQL.
//!
//! A statement for a batch takes each column of its rows as one array, so that its text does not depend on how many rows
//! there are. Rows come sorted by key, and are locked in that order.

/// What every transaction that writes goes by, said once for both ways to set it.
macro_rules! settings {
    ($set:literal) => {
        concat!(
            $set,
            " lock_timeout = '5s';",
            $set,
            " idle_in_transaction_session_timeout = '15s';",
            $set,
            " enable_seqscan = off;",
            $set,
            " enable_hashjoin = off;",
            $set,
            " enable_mergejoin = off;",
            $set,
            " jit = off;",
        )
    };
}

/// Opens a transaction that depends on no setting of the server, the database, the role or the pool before it.
///
/// - Nobody waits for a lock for ever; and where this process is stopped within a transaction, the server ends it and
///   lets the others go on.
/// - The batch is walked and the table is searched, from the first row on: a plan made while the table was small would
///   read all of it for every batch when it has grown. Nor is it compiled first, which takes longer than it runs: what
///   has to be read from the first row on all the same looks too dear to the planner for that.
/// - A commit is durable, also where the server was set not to wait for the disk.
///
/// Returns the time: microseconds since the Unix epoch.
///
/// For a connection that is ours for this transaction alone, behind a proxy that pools: nothing may be left set on it.
pub(super) const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;",
    settings!("SET LOCAL"),
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END"
);

/// The same settings, once for a connection that nobody else uses.
///
/// A statement is planned once there: for a small batch the server would plan it anew each time, which takes it longer than
/// the batch does. What the rows are changes nothing about the plan that is wanted.
pub(super) const SET_UP: &str = concat!(
    "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;",
    settings!("SET"),
    "SET plan_cache_mode = force_generic_plan;",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
);

/// Opens a transaction on a connection that was set up, and returns the time.
pub(super) const BEGIN_SET_UP: &str = "BEGIN; SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now";

/// Opens a transaction that only reads.
pub(super) const BEGIN_READING: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = '15s';
SET LOCAL enable_seqscan = off;
SET LOCAL jit = off";

pub(super) const COMMIT: &str = "COMMIT";

pub(super) const ROLLBACK: &str = "ROLLBACK";

/// Makes the receipts that do not exist yet.
///
/// Those that do are left out beforehand: the conflict alone would wait for whatever transaction has the row in hand.
pub(super) const INSERT: &str = "\
INSERT INTO countersign_inbox
    (consumer, source, key, event_id, correlation_id, body_digest, state, attempts, token, lease_until, first_seen, updated)
SELECT consumer, source, key, event_id, correlation_id, digest, 'processing', 1, token, lease_until, $9, $9
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bigint[])
    AS row (consumer, source, key, event_id, correlation_id, digest, token, lease_until)
WHERE NOT EXISTS (
    SELECT FROM countersign_inbox AS receipt
    WHERE receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer)
ON CONFLICT (key, source, consumer) DO NOTHING";

/// Which of the batch were made just now.
pub(super) const MADE: &str = "\
SELECT row.place
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) WITH ORDINALITY
    AS row (consumer, source, key, token, place)
JOIN countersign_inbox AS receipt
ON receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer
WHERE receipt.token = row.token AND receipt.attempts = 1";

/// What is known of receipts.
pub(super) const STANDINGS: &str = "\
SELECT row.place, receipt.id, receipt.state, receipt.attempts, receipt.token, receipt.lease_until,
    receipt.due, receipt.body_digest, receipt.result_status, receipt.result_headers, receipt.result_body
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS row (consumer, source, key, place)
JOIN countersign_inbox AS receipt
ON receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer";

/// The same, and nobody else changes them before the commit. Those that another transaction has in hand are passed over.
pub(super) const LOCKED_STANDINGS: &str = "\
SELECT row.place, receipt.id, receipt.state, receipt.attempts, receipt.token, receipt.lease_until,
    receipt.due, receipt.body_digest, receipt.result_status, receipt.result_headers, receipt.result_body
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS row (consumer, source, key, place)
JOIN countersign_inbox AS receipt
ON receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer
FOR UPDATE OF receipt SKIP LOCKED";

/// Gives a known receipt to a new holder. What was owed still is.
pub(super) const TAKE_OVER: &str = "\
UPDATE countersign_inbox
SET state = 'processing', token = $2, lease_until = $3, attempts = $4, updated = $5, due = $6, quarantined = false,
    reason = NULL
WHERE id = $1";

/// Waits for advisory locks that end with the transaction, one after another.
pub(super) const TAKE_TURNS: &str = "SELECT pg_advisory_xact_lock(turn) FROM unnest($1::bigint[]) AS turn";

/// Takes in events that are not known yet. Returns which of them were made.
pub(super) const ACCEPT: &str = "\
INSERT INTO countersign_inbox
    (consumer, source, key, event_id, correlation_id, ordering_key, body_digest, state, attempts, due, quarantined, reason,
     first_seen, updated, request_method, request_target, request_proof, request_headers, request_body)
SELECT consumer, source, key, event_id, correlation_id, ordering_key, digest, 'received', 0,
    CASE WHEN reason IS NULL THEN $14::bigint END, reason IS NOT NULL, reason, $14, $14,
    method, target, proof, headers, body
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::bytea[], $13::bytea[])
    AS row (consumer, source, key, event_id, correlation_id, ordering_key, digest, reason, method, target, proof, headers, body)
ON CONFLICT (key, source, consumer) DO NOTHING
RETURNING consumer, source, key";

/// Makes a known receipt one that is owed, or puts it into quarantine.
pub(super) const OWE: &str = "\
UPDATE countersign_inbox
SET state = $2, due = $3::bigint, quarantined = $3 IS NULL, reason = $4, ordering_key = $6,
    updated = CASE WHEN $2 = 'processing' THEN updated ELSE $5 END,
    request_method = $7, request_target = $8, request_proof = $9, request_headers = $10, request_body = $11
WHERE id = $1";

/// What `$1` may claim at `$2`, the longest due first, at most `$3`. It is locked, and what others have in hand is passed
/// over. What is owed and was seen earlier holds up what has the same ordering key, also while it is in hand.
pub(super) const DUE: &str = "\
SELECT id, consumer, source, key, event_id, state, attempts, token, lease_until, due, body_digest, first_seen,
    request_method, request_target, request_headers, request_body, request_proof
FROM countersign_inbox AS receipt
WHERE consumer = $1 AND due <= $2 AND (ordering_key IS NULL OR NOT EXISTS (
    SELECT FROM countersign_inbox AS earlier
    WHERE earlier.consumer = receipt.consumer AND earlier.source = receipt.source
        AND earlier.ordering_key = receipt.ordering_key AND earlier.due IS NOT NULL AND earlier.id < receipt.id))
ORDER BY due, id LIMIT $3
FOR UPDATE OF receipt SKIP LOCKED";

/// Gives a run back, uncounted.
pub(super) const RELEASE: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN due IS NOT NULL AND error IS NULL THEN 'received' ELSE 'failed' END,
    token = NULL, ended_token = token, lease_until = NULL, attempts = greatest(attempts - 1, 0), updated = $5,
    due = CASE WHEN due IS NOT NULL THEN $5::bigint END
WHERE consumer = $1 AND source = $2 AND key = $3 AND token = $4";

/// Makes a receipt a dead letter because its attempts are used up.
pub(super) const BURY: &str = "\
UPDATE countersign_inbox
SET state = 'dead_letter', token = NULL, lease_until = NULL, reason = $2, updated = $3, due = NULL, quarantined = false
WHERE id = $1";

/// Counts a delivery with another body, unless another transaction has the receipt in hand.
pub(super) const COUNT_OTHER_BODY: &str = "\
UPDATE countersign_inbox SET other_bodies = other_bodies + 1
WHERE id = (SELECT id FROM countersign_inbox WHERE id = $1 FOR UPDATE SKIP LOCKED)";

/// Ends runs in success. Returns the places of those that were held, unless all were.
pub(super) const COMPLETE: &str = "\
UPDATE countersign_inbox AS receipt
SET state = 'succeeded', token = NULL, ended_token = row.token, lease_until = NULL, due = NULL, updated = $8, error = NULL,
    result_status = row.status, result_headers = row.headers, result_body = row.body,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bytea[], $7::bytea[]) WITH ORDINALITY
    AS row (consumer, source, key, token, status, headers, body, place)
WHERE receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer
    AND receipt.token = row.token
RETURNING row.place";

/// Ends one run in success, in the transaction of whoever runs it.
pub(super) const COMPLETE_ONE: &str = "\
UPDATE countersign_inbox
SET state = 'succeeded', token = NULL, ended_token = token, lease_until = NULL, due = NULL,
    updated = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, error = NULL,
    result_status = $5, result_headers = $6, result_body = $7,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
WHERE consumer = $1 AND source = $2 AND key = $3 AND token = $4";

/// Ends runs in success and makes receipts in one statement that is its own transaction: one way to the server and back
/// for what most batches consist of. `$1` to `$7` as in [`COMPLETE`], `$8` to `$14` as in [`INSERT`], with spans in place of
/// the ends of leases.
///
/// Returns the places, from 1, of the runs that ended, and the tokens of the receipts that were made: each of them null
/// where it was all of them, so that what comes back most often is one short row.
pub(super) const AT_ONCE: &str = "\
WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now),
ended AS (
    UPDATE countersign_inbox AS receipt
    SET state = 'succeeded', token = NULL, ended_token = row.token, lease_until = NULL, due = NULL, updated = clock.now,
        error = NULL, result_status = row.status, result_headers = row.headers, result_body = row.body,
        request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
    FROM clock, unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bytea[], $7::bytea[])
        WITH ORDINALITY AS row (consumer, source, key, token, status, headers, body, place)
    WHERE receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer
        AND receipt.token = row.token
    RETURNING row.place),
fresh AS (
    SELECT * FROM unnest($8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bytea[],
            $15::bigint[])
        WITH ORDINALITY AS row (consumer, source, key, event_id, correlation_id, digest, token, span, place)
    WHERE NOT EXISTS (
        SELECT FROM countersign_inbox AS receipt
        WHERE receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer)),
made AS (
    INSERT INTO countersign_inbox
        (consumer, source, key, event_id, correlation_id, body_digest, state, attempts, token, lease_until, first_seen,
         updated)
    SELECT consumer, source, key, event_id, correlation_id, digest, 'processing', 1, token, clock.now + span, clock.now,
        clock.now
    FROM fresh, clock
    ORDER BY place
    ON CONFLICT (key, source, consumer) DO NOTHING
    RETURNING token)
SELECT
    (SELECT CASE WHEN count(*) < cardinality($4) THEN coalesce(array_agg(place), '{}') END FROM ended) AS ended,
    (SELECT CASE WHEN count(*) < cardinality($14) THEN coalesce(array_agg(token), '{}') END FROM made) AS made";

/// Moves the ends of leases, except where another transaction has the receipt in hand.
pub(super) const RENEW: &str = "\
UPDATE countersign_inbox AS receipt
SET lease_until = held.lease_until, due = CASE WHEN receipt.due IS NOT NULL THEN held.lease_until END
FROM (
    SELECT locked.id, row.lease_until, row.place
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[]) WITH ORDINALITY
        AS row (consumer, source, key, token, lease_until, place)
    JOIN countersign_inbox AS locked
    ON locked.key = row.key AND locked.source = row.source AND locked.consumer = row.consumer
    WHERE locked.token = row.token
    FOR UPDATE OF locked SKIP LOCKED
) AS held
WHERE receipt.id = held.id
RETURNING held.place";

/// Which of the batch still hold their lease.
pub(super) const HELD: &str = "\
SELECT row.place
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) WITH ORDINALITY
    AS row (consumer, source, key, token, place)
JOIN countersign_inbox AS receipt
ON receipt.key = row.key AND receipt.source = row.source AND receipt.consumer = row.consumer
WHERE receipt.token = row.token";

/// Ends a run in failure. What it brings no answer or request for stays as it was. It is due at `$15`, or at once where
/// it is owed, unless its request is not kept.
pub(super) const FAIL: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN $6::text IS NULL THEN 'failed' ELSE 'dead_letter' END,
    token = NULL, ended_token = token, lease_until = NULL, updated = $5, reason = $6,
    due = CASE WHEN $6 IS NULL AND coalesce($10::text, request_method) IS NOT NULL
        THEN coalesce($15::bigint, CASE WHEN due IS NOT NULL THEN $5 END) END,
    result_headers = CASE WHEN $7::bigint IS NULL THEN result_headers ELSE $8 END,
    result_body = CASE WHEN $7::bigint IS NULL THEN result_body ELSE $9 END,
    result_status = coalesce($7, result_status),
    request_target = CASE WHEN $10::text IS NULL THEN request_target ELSE $11 END,
    request_headers = CASE WHEN $10::text IS NULL THEN request_headers ELSE $12 END,
    request_body = CASE WHEN $10::text IS NULL THEN request_body ELSE $13 END,
    request_proof = CASE WHEN $10::text IS NULL THEN request_proof ELSE $14 END,
    request_method = coalesce($10, request_method)
WHERE consumer = $1 AND source = $2 AND key = $3 AND token = $4
RETURNING id, attempts";

/// Whether a lease's run was the last one that came to an end.
pub(super) const ENDED: &str = "\
SELECT 1 FROM countersign_inbox WHERE consumer = $1 AND source = $2 AND key = $3 AND ended_token = $4";

/// Adds a run to the history of a receipt. Returns its number.
pub(super) const NOTE_FAILURE: &str = "\
INSERT INTO countersign_inbox_failure (receipt, seq, attempt, at, status, error)
SELECT $1, coalesce(max(seq), 0) + 1, $2, $3, $4, $5 FROM countersign_inbox_failure WHERE receipt = $1
RETURNING seq";

/// Shows the failure as the receipt's last one.
pub(super) const SHOW_ERROR: &str = "UPDATE countersign_inbox SET error = $2 WHERE id = $1";

/// Keeps the history of a receipt from growing.
pub(super) const FORGET_FAILURES: &str = "DELETE FROM countersign_inbox_failure WHERE receipt = $1 AND seq <= $2";

/// Gives a dead letter, a failed event or one in quarantine another chance.
pub(super) const RETRY: &str = "\
UPDATE countersign_inbox
SET state = CASE WHEN state = 'dead_letter' THEN 'failed' ELSE state END,
    attempts = CASE WHEN state = 'dead_letter' THEN 0 ELSE attempts END,
    updated = CASE WHEN state = 'failed' THEN updated ELSE $4 END,
    due = CASE WHEN request_method IS NOT NULL THEN $4::bigint END, quarantined = false, reason = NULL
WHERE consumer = $1 AND source = $2 AND key = $3 AND (state IN ('dead_letter', 'failed') OR quarantined)";

/// Ends a dead letter as succeeded, with this result.
pub(super) const CONCLUDE: &str = "\
UPDATE countersign_inbox
SET state = 'succeeded', reason = NULL, error = NULL, updated = $4,
    result_status = $5, result_headers = $6, result_body = $7,
    request_method = NULL, request_target = NULL, request_headers = NULL, request_body = NULL, request_proof = NULL
WHERE consumer = $1 AND source = $2 AND key = $3 AND state = 'dead_letter'";

/// The state of a receipt.
pub(super) const STATE: &str =
    "SELECT id, state FROM countersign_inbox WHERE consumer = $1 AND source = $2 AND key = $3";

/// Removes a receipt; its failures go with it.
pub(super) const FORGET: &str = "DELETE FROM countersign_inbox WHERE consumer = $1 AND source = $2 AND key = $3";

/// Whether nobody else purges this database at this moment; nobody does then before the commit. "countersp" as a number.
pub(super) const PURGE_ALONE: &str = "SELECT pg_try_advisory_xact_lock(7165916604736876912) AS alone";

/// Removes ended receipts, and failed ones that are not owed, that have not changed since `$1`, the oldest first, at most
/// `$2`. What somebody else has in hand is passed over.
pub(super) const PURGE_KEYS: &str = "\
DELETE FROM countersign_inbox WHERE id = ANY (ARRAY (
    SELECT id FROM countersign_inbox WHERE id = ANY (ARRAY (
        SELECT id FROM (
            (SELECT id, updated FROM countersign_inbox
             WHERE state = 'succeeded' AND updated <= $1 ORDER BY updated, id LIMIT $2)
            UNION ALL
            (SELECT id, updated FROM countersign_inbox
             WHERE state = 'failed' AND due IS NULL AND updated <= $1 ORDER BY updated, id LIMIT $2)
        ) AS aged ORDER BY updated, id LIMIT $2))
    AND state IN ('succeeded', 'failed') AND due IS NULL AND updated <= $1
    FOR UPDATE SKIP LOCKED))";

/// Removes the bodies of results that have not changed since `$1`, the oldest first, at most `$2`.
pub(super) const PURGE_RESULTS: &str = "\
UPDATE countersign_inbox SET result_body = NULL WHERE id = ANY (ARRAY (
    SELECT id FROM countersign_inbox
    WHERE state IN ('succeeded', 'failed') AND result_body IS NOT NULL AND updated <= $1
    ORDER BY updated, id LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// Writes something that means nothing, so that a full or failing disk shows.
pub(super) const CHECK: &str = "UPDATE countersign_schema SET checked_at = $1 WHERE version = 1";

/// One receipt, whole, with its history as a JSON array of number, attempt, time, status and error.
pub(super) const FIND: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    quarantined::int::bigint AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, result_body, request_method, request_target, request_headers, request_body, request_proof,
    (SELECT coalesce(json_agg(json_build_array(seq, attempt, at, status, error)), '[]')::text
     FROM countersign_inbox_failure WHERE receipt = countersign_inbox.id) AS failures
FROM countersign_inbox
WHERE consumer = $1 AND source = $2 AND key = $3";

/// Receipts by `$1` consumer, `$2` source, `$4` state (null: any), those changed last first, at most `$3`; below `$5`, `$6` and
/// from `$7`, `$8` on, which say when a row changed and its id.
///
/// Each state is read backwards along the index and no further than the limit, or the end of the stretch, so that a list costs
/// the same whatever the size of the table.
///
/// The filters are written so that no index can serve them: the planner would take one in which the column is not the first,
/// and read all of it.
pub(super) const LIST: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    quarantined::int::bigint AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, NULL::bytea AS result_body,
    NULL::text AS request_method, NULL::text AS request_target, NULL::bytea AS request_headers,
    NULL::bytea AS request_body, NULL::text AS request_proof, '[]' AS failures
FROM countersign_inbox
WHERE id IN (
    SELECT id FROM (
        (SELECT id, updated FROM countersign_inbox WHERE state = 'received'
            AND ($4::text IS NULL OR $4 = 'received')
            AND (consumer = $1::text) IS NOT FALSE AND (source = $2::text) IS NOT FALSE
            AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
            ORDER BY updated DESC, id DESC LIMIT $3)
        UNION ALL
        (SELECT id, updated FROM countersign_inbox WHERE state = 'processing'
            AND ($4::text IS NULL OR $4 = 'processing')
            AND (consumer = $1::text) IS NOT FALSE AND (source = $2::text) IS NOT FALSE
            AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
            ORDER BY updated DESC, id DESC LIMIT $3)
        UNION ALL
        (SELECT id, updated FROM countersign_inbox WHERE state = 'succeeded'
            AND ($4::text IS NULL OR $4 = 'succeeded')
            AND (consumer = $1::text) IS NOT FALSE AND (source = $2::text) IS NOT FALSE
            AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
            ORDER BY updated DESC, id DESC LIMIT $3)
        UNION ALL
        (SELECT id, updated FROM countersign_inbox WHERE state = 'failed'
            AND ($4::text IS NULL OR $4 = 'failed')
            AND (consumer = $1::text) IS NOT FALSE AND (source = $2::text) IS NOT FALSE
            AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
            ORDER BY updated DESC, id DESC LIMIT $3)
        UNION ALL
        (SELECT id, updated FROM countersign_inbox WHERE state = 'dead_letter'
            AND ($4::text IS NULL OR $4 = 'dead_letter')
            AND (consumer = $1::text) IS NOT FALSE AND (source = $2::text) IS NOT FALSE
            AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
            ORDER BY updated DESC, id DESC LIMIT $3)
    ) AS newest ORDER BY updated DESC, id DESC LIMIT $3)
ORDER BY updated DESC, id DESC";

/// Where a stretch of `$4` rows ends that begins below `$2`, `$3`, in state `$1` (null: any): its last one.
pub(super) const EDGE: &str = "\
SELECT updated, id FROM (
    (SELECT updated, id FROM countersign_inbox WHERE state = 'received'
        AND ($1::text IS NULL OR $1 = 'received') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox WHERE state = 'processing'
        AND ($1::text IS NULL OR $1 = 'processing') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox WHERE state = 'succeeded'
        AND ($1::text IS NULL OR $1 = 'succeeded') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox WHERE state = 'failed'
        AND ($1::text IS NULL OR $1 = 'failed') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_inbox WHERE state = 'dead_letter'
        AND ($1::text IS NULL OR $1 = 'dead_letter') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
) AS newest ORDER BY updated DESC, id DESC LIMIT 1 OFFSET $4 - 1";

/// The same, of those that have the key `$9`, or the event id.
pub(super) const LIST_BY_KEY: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    quarantined::int::bigint AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, NULL::bytea AS result_body,
    NULL::text AS request_method, NULL::text AS request_target, NULL::bytea AS request_headers,
    NULL::bytea AS request_body, NULL::text AS request_proof, '[]' AS failures
FROM countersign_inbox
WHERE id IN (
        SELECT id FROM countersign_inbox WHERE key = $9
        UNION
        SELECT id FROM countersign_inbox WHERE event_id = $9 AND event_id IS NOT NULL AND event_id <> key)
    AND ($4::text IS NULL OR state = $4) AND ($1::text IS NULL OR consumer = $1) AND ($2::text IS NULL OR source = $2)
    AND ($10::text IS NULL OR correlation_id = $10)
    AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
ORDER BY updated DESC, id DESC LIMIT $3";

/// The same, of those that belong to `$10`, whatever their key: `$9` is null.
pub(super) const LIST_BY_CORRELATION: &str = "\
SELECT id, consumer, source, key, event_id, correlation_id, state, attempts, first_seen, updated, lease_until, due,
    quarantined::int::bigint AS quarantined, ordering_key, body_digest, other_bodies, error, reason, result_status,
    result_headers, NULL::bytea AS result_body,
    NULL::text AS request_method, NULL::text AS request_target, NULL::bytea AS request_headers,
    NULL::bytea AS request_body, NULL::text AS request_proof, '[]' AS failures
FROM countersign_inbox
WHERE correlation_id = $10 AND $9::text IS NULL
    AND ($4::text IS NULL OR state = $4) AND ($1::text IS NULL OR consumer = $1) AND ($2::text IS NULL OR source = $2)
    AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
ORDER BY updated DESC, id DESC LIMIT $3";

/// When the longest due event of a consumer was due, and what time it is.
pub(super) const OLDEST_DUE: &str = "\
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
    (SELECT due FROM countersign_inbox WHERE consumer = $1 AND due IS NOT NULL ORDER BY due LIMIT 1) AS due";

/// What time it is.
pub(in crate::store::sql) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now";

/// The keys of receipts from a number on, at most so many.
pub(super) const KEYS: &str =
    "SELECT id, consumer, source, key FROM countersign_inbox WHERE id >= $1 ORDER BY id LIMIT $2";
