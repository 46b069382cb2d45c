//! Every statement about sagas, each a constant. Parameters stand in the same order for every database.

/// Where an instance stands.
pub(in crate::store::sql) const FIND: &str = "\
SELECT saga, instance, version, step, body, created, moved, ended
FROM countersign_saga WHERE saga = ? AND instance = ?";

/// The same, and nobody else moves it before this transaction ends.
pub(in crate::store::sql) const LOCK: &str = "\
SELECT saga, instance, version, step, body, created, moved, ended
FROM countersign_saga WHERE saga = ? AND instance = ? FOR UPDATE";

/// What it has answered.
pub(in crate::store::sql) const STEPS: &str = "\
SELECT number, at, event_id, event_type, answer, from_step, to_step, reason, sent
FROM countersign_saga_step WHERE saga = ? AND instance = ? ORDER BY number";

/// Those that have not moved since a moment.
pub(in crate::store::sql) const OPEN: &str = "\
SELECT saga, instance, version, step, body, created, moved, ended
FROM countersign_saga WHERE saga = ? AND ended IS NULL AND moved <= ? ORDER BY moved LIMIT ?";

/// The next name of a saga behind this one: one look-up in the primary key, however many instances there are.
pub(in crate::store::sql) const NEXT_NAME: &str =
    "SELECT saga FROM countersign_saga WHERE saga > ? ORDER BY saga LIMIT 1";

/// Those that ended before a moment.
pub(in crate::store::sql) const ENDED: &str = "\
SELECT saga, instance FROM countersign_saga WHERE ended < ? ORDER BY ended LIMIT ?";

/// The history of an instance.
pub(in crate::store::sql) const FORGET_STEPS: &str = "\
DELETE FROM countersign_saga_step WHERE saga = ? AND instance = ?";

/// An instance that ended before a moment, if it has not gone on meanwhile.
pub(in crate::store::sql) const FORGET: &str = "\
DELETE FROM countersign_saga WHERE saga = ? AND instance = ? AND ended < ?";

/// Fails where it is there already.
pub(in crate::store::sql) const BEGIN: &str = "\
INSERT INTO countersign_saga (saga, instance, version, step, body, created, moved, ended)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

/// Compares the version, and sets it.
pub(in crate::store::sql) const MOVE: &str = "\
UPDATE countersign_saga SET version = ?, step = ?, body = ?, moved = ?, ended = ?
WHERE saga = ? AND instance = ? AND version = ?";

/// One answer.
pub(in crate::store::sql) const NOTE: &str = "\
INSERT INTO countersign_saga_step
    (saga, instance, number, at, event_id, event_type, answer, from_step, to_step, reason, sent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
