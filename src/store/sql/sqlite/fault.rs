//! What a failure of the database means: told by number, never by text.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::store::StoreError;

/// SQLite's primary result codes, as far as they are told apart.
pub(super) mod code {
    pub(in super::super) const ERROR: i32 = 1;
    pub(in super::super) const BUSY: i32 = 5;
    pub(in super::super) const LOCKED: i32 = 6;
    pub(in super::super) const READ_ONLY: i32 = 8;
    pub(in super::super) const CANNOT_OPEN: i32 = 14;
    pub(in super::super) const TOO_BIG: i32 = 18;
    pub(in super::super) const CONSTRAINT: i32 = 19;
    pub(in super::super) const MISMATCH: i32 = 20;
    pub(in super::super) const RANGE: i32 = 25;
    pub(in super::super) const NOT_A_DATABASE: i32 = 26;
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another process has the file: the same again later may well succeed.
    Busy,
    /// Nobody can use this connection any more, or nobody could do anything with the file.
    Connection,
    /// One of the rows: the others of its batch would have succeeded.
    Row,
}

impl Fault {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        match primary_code(error) {
            Some(code::BUSY | code::LOCKED) => Self::Busy,
            Some(code::ERROR | code::TOO_BIG | code::CONSTRAINT | code::MISMATCH | code::RANGE) => Self::Row,
            Some(_) => Self::Connection,
            None => match error {
                sqlx::Error::Encode(_) | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => Self::Row,
                _ => Self::Connection,
            },
        }
    }
}

/// The lower byte of SQLite's extended result code.
pub(super) fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
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
