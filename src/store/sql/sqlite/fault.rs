//! What SQLite's result codes mean.

use super::super::fault::Fault;

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

pub(in crate::store::sql) fn of(error: &sqlx::Error) -> Fault {
    match primary_code(error) {
        Some(code::BUSY | code::LOCKED) => Fault::Busy,
        Some(code::ERROR | code::TOO_BIG | code::CONSTRAINT | code::MISMATCH | code::RANGE) => Fault::Row,
        Some(_) => Fault::Connection,
        None => match error {
            sqlx::Error::Encode(_) | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => Fault::Row,
            _ => Fault::Connection,
        },
    }
}

/// The lower byte of SQLite's extended result code.
pub(super) fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}
