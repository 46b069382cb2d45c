//! The end of a run, written by the connection that writes what the run did.

use super::fault::{self, Fault};
use crate::store::{Settled, StoreError};

/// A connection to a database in which receipts can live: `sqlx::SqliteConnection`, `sqlx::PgConnection` or
/// `sqlx::MySqlConnection`.
///
/// A transaction is reached through: `&mut *transaction`. See
/// [`Reservation::complete_in`](crate::receive::Reservation::complete_in). Nothing else can implement it.
pub trait SqlConnection: sealed::Complete {}

impl<C: sealed::Complete> SqlConnection for C {}

/// Out of reach for others, so that a statement can be added for every database at once.
pub(super) mod sealed {
    use crate::store::{Lease, Settled, StoreFuture, StoredResult};

    /// Ends a run in success, within whatever transaction the connection is in.
    pub trait Complete: Send {
        fn complete<'a>(&'a mut self, lease: &'a Lease, result: &'a StoredResult) -> StoreFuture<'a, Settled>;
    }
}

/// What the number of changed rows, or the failure, means to the holder of a lease.
pub(super) fn settled(
    changed: Result<u64, sqlx::Error>,
    fault: fn(&sqlx::Error) -> Fault,
) -> Result<Settled, StoreError> {
    match changed {
        Ok(0) => Ok(Settled::LeaseLost),
        Ok(_) => Ok(Settled::Done),
        Err(error) if fault(&error) == Fault::Row => Err(StoreError::Rejected(error.to_string())),
        Err(error) => Err(fault::unavailable("completing a run", error)),
    }
}
