//! The outbox's statements, each a constant. Nothing is formatted into SQL.
//!
//! As in the inbox a statement for a batch takes each column of its rows as one array. They run in transactions that
//! [`BEGIN`](super::super::statements::BEGIN) opened, except for those that take messages in, which run in any.

/// Which of these endpoints there are. None of them is removed before the transaction ends; other changes are not kept
/// waiting.
pub(super) const KNOWN: &str =
    "SELECT name FROM countersign_endpoint WHERE name = ANY ($1::text[]) ORDER BY name FOR KEY SHARE";

/// What each endpoint wants.
pub(super) const SUBSCRIPTIONS: &str = "SELECT name, types FROM countersign_endpoint ORDER BY name";

/// Makes the messages that are not there yet, in their order, each due after its delay: from `$13`, or from now. Returns
/// those that were made.
pub(super) const INSERT: &str = "\
WITH clock AS MATERIALIZED (
    SELECT coalesce($13::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now)
INSERT INTO countersign_outbox
    (endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
     traceparent, state, due, claim_at, created, since, updated, last_token)
SELECT endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, 'pending', now + delay, now + delay, now, now, now, token
FROM clock, unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::text[],
    $9::bigint[], $10::text[], $11::bigint[], $12::bytea[]) WITH ORDINALITY
    AS row (endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id,
        schema_version, traceparent, delay, token, place)
ORDER BY place
ON CONFLICT (message_id, endpoint) DO NOTHING
RETURNING endpoint, message_id";

/// Which of the batch were made under their tokens, and have not been tried since.
pub(super) const MADE: &str = "\
SELECT message.endpoint, message.message_id
FROM unnest($1::text[], $2::text[], $3::bytea[]) AS row (endpoint, message_id, token)
JOIN countersign_outbox AS message ON message.message_id = row.message_id AND message.endpoint = row.endpoint
WHERE message.last_token = row.token";

/// Tells those who listen, at the commit, unless a setting says not to. Always the same, so that a transaction says it once.
pub(super) const ANNOUNCE: &str = "\
SELECT CASE WHEN coalesce(current_setting('countersign.notify', true), '') NOT IN ('off', 'false', 'no', '0')
    THEN pg_notify('countersign_outbox', '')::text END";

/// Endpoints by name.
pub(super) const ENDPOINTS: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE name = ANY ($1::text[]) ORDER BY name";

/// The same, and nobody else changes them before the commit.
pub(super) const LOCKED_ENDPOINTS: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE name = ANY ($1::text[]) ORDER BY name FOR NO KEY UPDATE";

/// All endpoints, or the one with this name.
pub(super) const ALL_ENDPOINTS: &str = "\
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated
FROM countersign_endpoint WHERE $1::text IS NULL OR name = $1 ORDER BY name";

/// Makes the endpoint, or gives the one that is there these settings.
pub(super) const PUT_ENDPOINT: &str = "\
INSERT INTO countersign_endpoint (name, url, scheme, secrets, types, headers, settings, created, updated)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
ON CONFLICT (name) DO UPDATE SET url = excluded.url, scheme = excluded.scheme, secrets = excluded.secrets,
    types = excluded.types, headers = excluded.headers, settings = excluded.settings, updated = excluded.updated";

/// Notes how an endpoint is doing.
pub(super) const SET_HEALTH: &str = "\
UPDATE countersign_endpoint
SET disabled = $2, disabled_since = $3, paused_until = $4, failing_since = $5, failures = $6,
    updated = coalesce($7::bigint, updated)
WHERE name = $1";

pub(super) const REMOVE_ENDPOINT: &str = "DELETE FROM countersign_endpoint WHERE name = $1";

/// Whether more than `$2` messages of an endpoint have no end.
pub(super) const MORE_THAN: &str =
    "SELECT 1 FROM countersign_outbox WHERE endpoint = $1 AND claim_at IS NOT NULL OFFSET $2 LIMIT 1";

/// Makes what has no end of an endpoint dead letters, at most `$4`. Whoever delivers one keeps its token, to say how that
/// ended.
pub(super) const BURY_ALL: &str = "\
UPDATE countersign_outbox
SET state = 'dead_letter', due = NULL, claim_at = NULL, reason = $2, updated = $3
WHERE id = ANY (ARRAY (
    SELECT id FROM countersign_outbox WHERE id = ANY (ARRAY (
        SELECT id FROM countersign_outbox WHERE endpoint = $1 AND claim_at IS NOT NULL LIMIT $4))
    ORDER BY id FOR UPDATE)) AND claim_at IS NOT NULL";

/// Endpoints that have something to look at at `$1`, without `$2`, at most `$3`, drawn by lot; and since when, by lane.
/// `$4` says where to begin in the lanes of some of them.
///
/// One look-up in the index for each endpoint and lane: a form with EXISTS could be turned into one that reads all that is
/// due.
pub(super) const READY: &str = "\
WITH known AS MATERIALIZED (SELECT $4::text::jsonb AS floors)
SELECT name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures,
    created, updated, fresh, tried, held_up
FROM countersign_endpoint AS endpoint
CROSS JOIN LATERAL (
    SELECT floors -> endpoint.name AS floor FROM known OFFSET 0) AS above
CROSS JOIN LATERAL (
    SELECT
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 0 AND claim_at <= $1
            AND claim_at >= coalesce((floor ->> 0)::bigint, -9223372036854775808)
         ORDER BY claim_at LIMIT 1) AS fresh,
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 1 AND claim_at <= $1
            AND claim_at >= coalesce((floor ->> 1)::bigint, -9223372036854775808)
         ORDER BY claim_at LIMIT 1) AS tried,
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 2 AND claim_at <= $1
            AND claim_at >= coalesce((floor ->> 2)::bigint, -9223372036854775808)
         ORDER BY claim_at LIMIT 1) AS held_up
    OFFSET 0) AS has
WHERE disabled IS NULL AND (paused_until IS NULL OR paused_until <= $1) AND name <> ALL ($2::text[])
    AND (fresh IS NOT NULL OR tried IS NOT NULL OR held_up IS NOT NULL)
ORDER BY random() LIMIT $3";

/// What there is to look at at `$4` of each share: endpoint, lane, how many, since when. It is locked, and what others have
/// in hand is passed over. Of one whose sender may have died, how many attempts have been noted is counted in its history
/// too: a row that somebody reset must not give a number twice.
pub(super) const TAKE: &str = "\
SELECT share.place, message.*
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $5::bigint[]) WITH ORDINALITY
    AS share (endpoint, lane, most, floor, place)
CROSS JOIN LATERAL (
    SELECT id, endpoint, message_id, type, content_type, octet_length(payload)::bigint AS size, ordering_key, correlation_id, causation_id,
        schema_version, traceparent, state, attempts, replays, created, since, claim_at,
        CASE WHEN state = 'delivering' THEN greatest(noted, (SELECT max(seq) FROM countersign_attempt AS attempt
            WHERE attempt.message = message.id)) ELSE noted END AS noted
    FROM countersign_outbox AS message
    WHERE message.endpoint = share.endpoint AND message.lane = share.lane AND message.claim_at <= $4
        AND message.claim_at >= share.floor
    ORDER BY message.claim_at, message.id LIMIT share.most FOR UPDATE SKIP LOCKED) AS message";

/// What stands before messages in their orders at `$2`: one that is pending; one that is being delivered, also a later one
/// while its lease lasts; and the first one that will not be delivered.
pub(super) const AHEAD: &str = "\
SELECT message.id,
    coalesce(
        (SELECT other.id FROM countersign_outbox AS other
         WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
            AND other.state = 'pending' AND other.id < message.id
         ORDER BY other.id LIMIT 1),
        (SELECT other.id FROM countersign_outbox AS other
         WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
            AND other.state = 'delivering' AND other.id <> message.id AND (other.id < message.id OR other.due > $2)
         ORDER BY other.id LIMIT 1)) AS open,
    ended.id AS ended, ended.message_id AS ended_id
FROM countersign_outbox AS message
LEFT JOIN LATERAL (
    SELECT id, message_id FROM (
        (SELECT other.id, other.message_id FROM countersign_outbox AS other
         WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
            AND other.state = 'dead_letter' AND other.id < message.id
         ORDER BY other.id LIMIT 1)
        UNION ALL
        (SELECT other.id, other.message_id FROM countersign_outbox AS other
         WHERE other.endpoint = message.endpoint AND other.ordering_key = message.ordering_key
            AND other.state = 'failed' AND other.id < message.id
         ORDER BY other.id LIMIT 1)
    ) AS first ORDER BY id LIMIT 1) AS ended ON true
WHERE message.id = ANY ($1::bigint[])";

/// Locks messages that may hold others up, except those that somebody else has in hand. The states are said in a way that
/// the index of states cannot be used for: it would be read in full.
pub(super) const LOCK_HEADS: &str = "\
SELECT id, state FROM countersign_outbox
WHERE id = ANY ($1::bigint[]) AND state <> 'succeeded' AND state <> 'cancelled'
ORDER BY id FOR UPDATE SKIP LOCKED";

/// Has claims look later at messages that are held up: as long again as they have waited at `$2`, at least `$3` and at most
/// `$4`.
pub(super) const POSTPONE: &str = "\
UPDATE countersign_outbox SET claim_at = $2 + least(greatest($2 - greatest(due, 0), $3), $4)
WHERE id = ANY ($1::bigint[]) AND claim_at <= $2";

/// The same for what stands behind them in their orders, at most `$7` of each.
pub(super) const POSTPONE_BEHIND: &str = "\
UPDATE countersign_outbox SET claim_at = $4 + least(greatest($4 - greatest(due, 0), $5), $6)
WHERE id = ANY (ARRAY (
    SELECT message.id
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS row (endpoint, ordering_key, id)
    CROSS JOIN LATERAL (
        SELECT behind.id FROM countersign_outbox AS behind
        WHERE behind.endpoint = row.endpoint AND behind.ordering_key = row.ordering_key AND behind.state = 'pending'
            AND behind.id > row.id AND behind.claim_at <= $4
        ORDER BY behind.id LIMIT $7 FOR UPDATE SKIP LOCKED) AS message))";

/// Has claims look at the first message of each order when it is due, and at those that lost their senders.
pub(super) const PROMOTE: &str = "\
UPDATE countersign_outbox SET claim_at = due
WHERE claim_at > due AND id = ANY (ARRAY (
    SELECT next.id
    FROM unnest($1::text[], $2::text[]) AS row (endpoint, ordering_key)
    CROSS JOIN LATERAL (
        (SELECT message.id FROM countersign_outbox AS message
         WHERE message.endpoint = row.endpoint AND message.ordering_key = row.ordering_key AND message.state = 'pending'
         ORDER BY message.id LIMIT 1)
        UNION ALL
        (SELECT message.id FROM countersign_outbox AS message
         WHERE message.endpoint = row.endpoint AND message.ordering_key = row.ordering_key
            AND message.state = 'delivering')) AS next))";

/// The same for postponed messages of an endpoint, at most `$2`. What others have in hand is passed over.
pub(super) const PROMOTE_ALL: &str = "\
UPDATE countersign_outbox SET claim_at = due WHERE id = ANY (ARRAY (
    SELECT id FROM countersign_outbox WHERE endpoint = $1 AND lane = 2 AND claim_at IS NOT NULL
    LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// Makes what is pending behind a message in its order dead letters, at most `$6`, in their order.
pub(super) const PARK: &str = "\
UPDATE countersign_outbox
SET state = 'dead_letter', due = NULL, claim_at = NULL, reason = $4, updated = $5
WHERE state = 'pending' AND id = ANY (ARRAY (
    SELECT id FROM countersign_outbox
    WHERE endpoint = $2 AND ordering_key = $3 AND state = 'pending' AND id > $1
    ORDER BY id LIMIT $6 FOR UPDATE))";

/// Gives messages to new holders until `$4`. Where the last attempt left no word, `$5` is the last error. Returns what they
/// bring: until now it was not known that each of them is to be sent.
pub(super) const TAKE_OVER: &str = "\
UPDATE countersign_outbox AS message
SET state = 'delivering', token = row.token, due = $4, claim_at = $4, attempts = message.attempts + 1, updated = $6,
    reason = NULL, noted = least(message.noted + row.lapsed, 1000000000000000),
    last_error = CASE WHEN row.lapsed = 1 THEN $5 ELSE message.last_error END
FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS row (id, token, lapsed)
WHERE message.id = row.id
RETURNING message.id, message.payload";

/// Makes messages dead letters. Where the last attempt left no word, `$4` is the last error.
pub(super) const BURY: &str = "\
UPDATE countersign_outbox AS message
SET state = 'dead_letter', token = NULL, due = NULL, claim_at = NULL, reason = row.reason, updated = $5,
    noted = least(message.noted + row.lapsed, 1000000000000000),
    last_error = CASE WHEN row.lapsed = 1 THEN $4 ELSE message.last_error END
FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS row (id, reason, lapsed)
WHERE message.id = row.id";

/// Adds attempts to the histories of their messages. One whose number is taken all the same is left out: others must not fail
/// for it.
pub(super) const NOTE: &str = "\
INSERT INTO countersign_attempt (message, seq, replay, number, at, took, status, headers, body, error, kind)
SELECT message, seq, replay, number, $11, took, status, headers, body, error, kind
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[],
    $8::bytea[], $9::text[], $10::text[])
    AS row (message, seq, replay, number, took, status, headers, body, error, kind)
ON CONFLICT (message, seq) DO NOTHING";

/// Keeps the histories from growing.
pub(super) const FORGET_ATTEMPTS: &str = "\
DELETE FROM countersign_attempt AS attempt
USING unnest($1::bigint[], $2::bigint[]) AS row (message, seq)
WHERE attempt.message = row.message AND attempt.seq <= row.seq";

/// Moves the ends of leases. Of a message whose endpoint was removed there is none to move. Returns the places of those that
/// were held.
pub(super) const RENEW: &str = "\
UPDATE countersign_outbox AS message
SET due = CASE WHEN message.due IS NOT NULL THEN row.until END,
    claim_at = CASE WHEN message.claim_at IS NOT NULL THEN row.until END
FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS row (id, token, until, place)
WHERE message.id = row.id AND message.token = row.token
RETURNING row.place";

/// Ends attempts. One whose message's endpoint was removed meanwhile finds it a dead letter: what would send it again leaves
/// it one. Returns the places of those that were held; how many attempts have been noted is counted in their histories too.
pub(super) const END: &str = "\
UPDATE countersign_outbox AS message
SET state = CASE WHEN message.state = 'dead_letter' AND row.state = 'pending' THEN message.state ELSE row.state END,
    token = NULL, last_token = row.token, due = CASE WHEN message.due IS NOT NULL THEN row.due END,
    claim_at = CASE WHEN message.claim_at IS NOT NULL THEN row.due END,
    reason = CASE WHEN row.state = 'pending' THEN message.reason ELSE row.reason END,
    attempts = message.attempts - row.uncounted, noted = least(message.noted + row.noted, 1000000000000000), updated = $10,
    last_status = coalesce(row.status, message.last_status),
    last_error = CASE WHEN row.state <> 'succeeded' THEN coalesce(row.error, message.last_error) END
FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::text[]) WITH ORDINALITY AS row (id, token, state, due, reason, uncounted, noted, status, error, place)
WHERE message.id = row.id AND message.token = row.token
RETURNING row.place, message.id, message.replays, message.ordering_key,
    greatest(message.noted, least(coalesce((SELECT max(seq) FROM countersign_attempt AS attempt
        WHERE attempt.message = message.id), 0), 9000000000000000000) + row.noted) AS noted";

/// Whether a lease's attempt was the last one of its message that came to an end.
pub(super) const ENDED: &str = "SELECT 1 FROM countersign_outbox WHERE id = $1 AND last_token = $2";

/// For a statement that leaves out some of its conditions: how it is done well depends on which ones, and on what is rare.
/// Until the commit.
pub(super) const PLAN_ANEW: &str = "SET LOCAL plan_cache_mode = force_custom_plan";

/// The oldest messages behind `$1` in the states `$2` that fit endpoint, id, type and correlation id `$9` (null: any), at most
/// `$6`; with `$7` only those whose endpoint is there. Only what changed before `$8`. Nobody else changes them before the commit.
pub(super) const SELECT: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox AS message
WHERE id > $1 AND state = ANY ($2::text[]) AND ($3::text IS NULL OR endpoint = $3)
    AND ($4::text IS NULL OR message_id = $4) AND ($5::text IS NULL OR type = $5)
    AND (NOT $7 OR endpoint IN (SELECT name FROM countersign_endpoint)) AND updated < $8
    AND ($9::text IS NULL OR correlation_id = $9)
ORDER BY id LIMIT $6 FOR UPDATE";

/// The same, of those that have the id.
pub(super) const SELECT_BY_ID: &str = "\
SELECT id, endpoint, message_id, ordering_key FROM countersign_outbox AS message
WHERE id > $1 AND state = ANY ($2::text[]) AND ($3::text IS NULL OR endpoint = $3)
    AND message_id = $4 AND ($5::text IS NULL OR type = $5)
    AND (NOT $7 OR endpoint IN (SELECT name FROM countersign_endpoint)) AND updated < $8
    AND ($9::text IS NULL OR correlation_id = $9)
ORDER BY id LIMIT $6 FOR UPDATE";

/// Makes messages pending again, with all their attempts before them.
pub(super) const REPLAY: &str = "\
UPDATE countersign_outbox AS message
SET state = 'pending', token = NULL, attempts = 0, replays = least(message.replays + 1, 4294967295),
    due = row.due, claim_at = row.due, reason = NULL, since = $3, updated = $3
FROM unnest($1::bigint[], $2::bigint[]) AS row (id, due)
WHERE message.id = row.id";

/// Takes messages back.
pub(super) const CANCEL: &str = "\
UPDATE countersign_outbox
SET state = 'cancelled', token = NULL, due = NULL, claim_at = NULL, reason = $2, updated = $3
WHERE id = ANY ($1::bigint[])";

/// Removes messages that succeeded or were cancelled and have not changed since `$1`, and dead letters and failed ones that
/// have not since `$2` (null: none), the oldest first, at most `$3`, with their attempts. What somebody else has in hand is
/// passed over. Returns what had an order and may have held others up.
pub(super) const PURGE: &str = "\
WITH aged AS MATERIALIZED (
    SELECT id FROM countersign_outbox WHERE id = ANY (ARRAY (
        SELECT id FROM (
            (SELECT id, updated FROM countersign_outbox
             WHERE state = 'succeeded' AND updated <= $1 ORDER BY updated, id LIMIT $3)
            UNION ALL
            (SELECT id, updated FROM countersign_outbox
             WHERE state = 'cancelled' AND updated <= $1 ORDER BY updated, id LIMIT $3)
            UNION ALL
            (SELECT id, updated FROM countersign_outbox
             WHERE state = 'dead_letter' AND updated <= $2 ORDER BY updated, id LIMIT $3)
            UNION ALL
            (SELECT id, updated FROM countersign_outbox
             WHERE state = 'failed' AND updated <= $2 ORDER BY updated, id LIMIT $3)
        ) AS oldest ORDER BY updated, id LIMIT $3))
    AND due IS NULL
    FOR UPDATE SKIP LOCKED
), attempts AS (
    DELETE FROM countersign_attempt WHERE message = ANY (ARRAY (SELECT id FROM aged))
)
DELETE FROM countersign_outbox WHERE id = ANY (ARRAY (SELECT id FROM aged))
RETURNING endpoint, CASE WHEN state IN ('failed', 'dead_letter') THEN ordering_key END AS ordering_key";

/// One message, whole, without its attempts.
pub(super) const FIND: &str = "\
SELECT id, endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox WHERE message_id = $1 AND endpoint = $2";

/// The attempts of a message, the oldest first.
pub(super) const ATTEMPTS: &str = "\
SELECT replay, number, at, took, status, headers, body, error, kind
FROM countersign_attempt WHERE message = $1 ORDER BY seq";

/// Messages by `$1` endpoint, `$2` type, `$4` state (null: any), those changed last first, at most `$3`; below `$5`, `$6` and
/// from `$7`, `$8` on, which say when a row changed and its id.
///
/// Each state is read backwards along the index and no further than the limit, or the end of the stretch, so that a list costs
/// the same whatever the size of the table.
///
/// The filters are written so that no index can serve them: the planner would take one in which the column is not the first,
/// and read all of it.
pub(super) const LIST: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox
WHERE id = ANY (ARRAY (
    SELECT newest.id FROM unnest(ARRAY ['pending', 'delivering', 'succeeded', 'failed', 'dead_letter', 'cancelled'])
        AS asked (state)
    CROSS JOIN LATERAL (
        SELECT id, updated FROM countersign_outbox AS message
        WHERE message.state = asked.state AND (endpoint = $1::text) IS NOT FALSE AND (type = $2::text) IS NOT FALSE
            AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
        ORDER BY updated DESC, id DESC LIMIT $3) AS newest
    WHERE $4::text IS NULL OR $4 = asked.state
    ORDER BY newest.updated DESC, newest.id DESC LIMIT $3))
ORDER BY updated DESC, id DESC";

/// Where a stretch of `$4` rows ends that begins below `$2`, `$3`, in state `$1` (null: any): its last one.
pub(super) const EDGE: &str = "\
SELECT updated, id FROM (
    (SELECT updated, id FROM countersign_outbox WHERE state = 'pending'
        AND ($1::text IS NULL OR $1 = 'pending') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox WHERE state = 'delivering'
        AND ($1::text IS NULL OR $1 = 'delivering') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox WHERE state = 'succeeded'
        AND ($1::text IS NULL OR $1 = 'succeeded') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox WHERE state = 'failed'
        AND ($1::text IS NULL OR $1 = 'failed') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox WHERE state = 'dead_letter'
        AND ($1::text IS NULL OR $1 = 'dead_letter') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
    UNION ALL
    (SELECT updated, id FROM countersign_outbox WHERE state = 'cancelled'
        AND ($1::text IS NULL OR $1 = 'cancelled') AND (updated, id) < ($2, $3)
        ORDER BY updated DESC, id DESC LIMIT $4)
) AS newest ORDER BY updated DESC, id DESC LIMIT 1 OFFSET $4 - 1";

/// The same, of those that have the id `$9`.
pub(super) const LIST_BY_ID: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox
WHERE message_id = $9 AND ($1::text IS NULL OR endpoint = $1) AND ($2::text IS NULL OR type = $2)
    AND ($4::text IS NULL OR state = $4) AND ($10::text IS NULL OR correlation_id = $10)
    AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
ORDER BY updated DESC, id DESC LIMIT $3";

/// The same, of those that belong to `$10`, whatever their id: `$9` is null.
pub(super) const LIST_BY_CORRELATION: &str = "\
SELECT id, endpoint, message_id, type, content_type, ordering_key, correlation_id, causation_id, schema_version,
    traceparent, state, attempts, replays, due, created, updated, last_status, last_error, reason
FROM countersign_outbox
WHERE correlation_id = $10 AND ($1::text IS NULL OR endpoint = $1) AND ($2::text IS NULL OR type = $2)
    AND ($4::text IS NULL OR state = $4) AND $9::text IS NULL
    AND (updated, id) < ($5, $6) AND (updated, id) >= ($7, $8)
ORDER BY updated DESC, id DESC LIMIT $3";

/// The endpoint, not disabled and without those numbered in `$1`, whose next message is to be looked at first, and when; and
/// the time. What is held up is not waited for.
pub(super) const NEXT_DUE: &str = "\
SELECT id, name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since,
    failures, created, updated, greatest(next.at, endpoint.paused_until) AS due,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
FROM countersign_endpoint AS endpoint
CROSS JOIN LATERAL (
    SELECT least(
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 0 AND claim_at IS NOT NULL ORDER BY claim_at LIMIT 1),
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 1 AND claim_at IS NOT NULL ORDER BY claim_at LIMIT 1)
    ) AS at OFFSET 0) AS next
WHERE endpoint.disabled IS NULL AND next.at IS NOT NULL AND id <> ALL ($1::bigint[])
ORDER BY due LIMIT 1";

/// When the longest due message of each endpoint was due, and what time it is.
pub(super) const OLDEST_DUE: &str = "\
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, endpoint.name, oldest.due
FROM countersign_endpoint AS endpoint
CROSS JOIN LATERAL (
    SELECT least(
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 0 AND claim_at IS NOT NULL ORDER BY claim_at LIMIT 1),
        (SELECT claim_at FROM countersign_outbox AS message
         WHERE message.endpoint = endpoint.name AND lane = 1 AND claim_at IS NOT NULL ORDER BY claim_at LIMIT 1)
    ) AS due OFFSET 0) AS oldest
WHERE endpoint.disabled IS NULL AND oldest.due IS NOT NULL
ORDER BY endpoint.name";

/// The keys of messages from a number on, at most so many.
pub(super) const KEYS: &str =
    "SELECT id, endpoint, message_id FROM countersign_outbox WHERE id >= $1 ORDER BY id LIMIT $2";
