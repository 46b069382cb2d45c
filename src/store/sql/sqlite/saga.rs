//! Every statement about sagas, each a constant. Parameters stand in the same order for every database.

/// Where an instance stands.
pub(in crate::store::sql) const FIND: &str = "\
SELECT saga, instance, version, step, body, created, moved, ended
FROM countersign_saga WHERE saga = ?1 AND instance = ?2";

/// The same: a transaction that writes keeps all others out.
pub(in crate::store::sql) const LOCK: &str = "\
SELECT saga, instance, version, step, body, created, moved, ended
FROM countersign_saga WHERE saga = ?1 AND instance = ?2";

/// What it has answered.
pub(in crate::store::sql) const STEPS: &str = "\
SELECT number, at, event_id, event_type, answer, from_step, to_step, reason, sent
FROM countersign_saga_step WHERE saga = ?1 AND instance = ?2 ORDER BY number";

/// Those that have not moved since a moment.
pub(in crate::store::sql) const OPEN: &str = "\
SELECT saga, instance, version, step, body, created, moved, ended
FROM countersign_saga WHERE saga = ?1 AND ended IS NULL AND moved <= ?2 ORDER BY moved LIMIT ?3";

/// The next name of a saga behind this one: one look-up in the primary key, however many instances there are.
pub(in crate::store::sql) const NEXT_NAME: &str =
    "SELECT saga FROM countersign_saga WHERE saga > ?1 ORDER BY saga LIMIT 1";

/// Those that ended before a moment.
pub(in crate::store::sql) const ENDED: &str = "\
SELECT saga, instance FROM countersign_saga WHERE ended < ?1 ORDER BY ended LIMIT ?2";

/// The history of an instance.
pub(in crate::store::sql) const FORGET_STEPS: &str = "\
DELETE FROM countersign_saga_step WHERE saga = ?1 AND instance = ?2";

/// An instance that ended before a moment, if it has not gone on meanwhile.
pub(in crate::store::sql) const FORGET: &str = "\
DELETE FROM countersign_saga WHERE saga = ?1 AND instance = ?2 AND ended < ?3";

/// Fails where it is there already.
pub(in crate::store::sql) const BEGIN: &str = "\
INSERT INTO countersign_saga (saga, instance, version, step, body, created, moved, ended)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Compares the version, and sets it.
pub(in crate::store::sql) const MOVE: &str = "\
UPDATE countersign_saga SET version = ?1, step = ?2, body = ?3, moved = ?4, ended = ?5
WHERE saga = ?6 AND instance = ?7 AND version = ?8";

/// One answer.
pub(in crate::store::sql) const NOTE: &str = "\
INSERT INTO countersign_saga_step
    (saga, instance, number, at, event_id, event_type, answer, from_step, to_step, reason, sent)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
