//! What a failure of a database means to the writer, and how callers hear of it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::store::StoreError;

/// Whose fault it is. Each database tells them apart by its own numbers, never by text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Somebody else is in the way: the same again later may well succeed.
    Busy,
    /// Nobody can use this connection any more, or nobody could do anything with the database.
    Connection,
    /// One of the rows: the others of its batch would have succeeded.
    Row,
}

pub(super) fn unavailable(doing: &str, error: sqlx::Error) -> StoreError {
    shared(doing, &Arc::new(error))
}

/// The same error for every call of a batch.
pub(super) fn shared(doing: &str, error: &Arc<sqlx::Error>) -> StoreError {
    StoreError::Unavailable { reason: format!("{doing}: {error}"), source: Some(Box::new(Shared(Arc::clone(error)))) }
}

pub(super) fn corrupt(error: &sqlx::Error) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// One driver error behind several store errors.
#[derive(Debug)]
struct Shared(Arc<sqlx::Error>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl StdError for Shared {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}
