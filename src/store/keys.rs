//! All keys of a store, a stretch at a time: for exports, copies, and whatever else goes through all of it.

/// A stretch of the keys of a store, in the order in which their rows were made.
///
/// What was committed before the first stretch was asked for, and is not removed meanwhile, is there once. What is removed
/// meanwhile may be among them or not.
///
/// What is made meanwhile comes later, or not at all: on PostgreSQL and MySQL a row has its number before it is committed, so
/// that a transaction that was open may commit one behind which the reading has got already. Where all must be there, nothing
/// may write between the first stretch and the last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keys<K> {
    /// The keys.
    pub keys: Vec<K>,
    /// Where to go on. `None`: there are no more.
    pub next: Option<u64>,
}

impl<K> Keys<K> {
    /// As a store of one's own says it.
    #[must_use]
    pub const fn new(keys: Vec<K>, next: Option<u64>) -> Self {
        Self { keys, next }
    }

    /// Of rows that were asked for, at most `limit`: each with its number, and its key where that can be read.
    pub(super) fn of_rows(rows: Vec<(u64, Option<K>)>, limit: u32) -> Self {
        let is_last = u32::try_from(rows.len()).is_ok_and(|found| found < limit);
        let next = rows.last().map(|(number, _)| number.saturating_add(1)).filter(|_| !is_last);
        Self { keys: rows.into_iter().filter_map(|(_, key)| key).collect(), next }
    }
}
