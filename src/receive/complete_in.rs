//! The end of a run in the handler's own transaction: what it writes there, and that the event is done, are one commit.

use bytes::Bytes;
use http::Response;
use thiserror::Error;

use super::answer;
use super::{Outcome, Reservation, ResponseBody};
use crate::store::{Settled, SqlConnection, StoreError};

impl Reservation {
    /// Records in the handler's own transaction that the event is done, and how it is answered. What the handler writes in
    /// that transaction happens exactly once: it is committed together with the end of the event, or not at all.
    ///
    /// The connection is one to the database, and to the schema, in which the store keeps its receipts:
    /// `&mut *transaction`. Call it last, just before the commit, and return the response that it gives back. Where it
    /// fails, roll back.
    ///
    /// ```
    /// # #[cfg(all(feature = "axum", feature = "postgres"))] {
    /// use axum::extract::State;
    /// use countersign::receive::{Outcome, Reservation, ResponseBody};
    /// use http::Response;
    ///
    /// async fn book(State(pool): State<sqlx::PgPool>, run: Reservation) -> Result<Response<ResponseBody>, Outcome> {
    ///     let failed = |error: sqlx::Error| Outcome::transient(error.to_string());
    ///     let mut transaction = pool.begin().await.map_err(failed)?;
    ///     sqlx::query("UPDATE account SET balance = balance + 1").execute(&mut *transaction).await.map_err(failed)?;
    ///     let response = run.complete_in(&mut *transaction, Response::new("booked")).await?;
    ///     transaction.commit().await.map_err(failed)?;
    ///     Ok(response)
    /// }
    /// # }
    /// ```
    ///
    /// # What counts
    ///
    /// After the handler the store is asked, since it alone knows whether the transaction was committed.
    ///
    /// - **It was**: the event is done, with this response, whatever its status is and however the handler ended: with
    ///   another answer, an error, a panic, its time-out. Where the handler answers with the same status, that answer goes to
    ///   the sender; else this response does.
    /// - **It was not**: the run has failed. A handler that answers as if it had succeeded is not believed; the sender gets
    ///   500. Any other answer and [`Outcome`] count as they always do.
    ///
    /// Of the response is kept what is always kept: the status, the headers that are worth repeating, a body up to the
    /// limit.
    ///
    /// # The transaction
    ///
    /// - **SQLite**: begin it with `BEGIN IMMEDIATE` (`pool.begin_with("BEGIN IMMEDIATE")`). One that reads first and
    ///   writes later fails at once when anybody, this store too, has written in between. While it is open nobody else
    ///   writes to the file, the store included: leases are not renewed, but nobody can take one over either. Keep it short:
    ///   other deliveries wait for it, up to the store's busy time-out, and then get a 503.
    /// - **PostgreSQL, MySQL, MariaDB**: `READ COMMITTED`, or begin it and call this without long work between. A
    ///   transaction that holds on to its first view of the data (`REPEATABLE READ` and above on PostgreSQL; on MariaDB
    ///   where `innodb_snapshot_isolation` is on) fails where the lease has been renewed since. That is safe: it rolls
    ///   back, and the event runs again.
    /// - **A pooler in transaction mode** (PgBouncer) may stand between: this prepares nothing that outlives the transaction.
    ///   Your own statements must not either: `sqlx::query(…).persistent(false)`.
    /// - From this call to the commit the receipt is locked. A transaction that is then left open keeps others from the
    ///   event for as long as it is.
    /// - Without a transaction, this alone is done at once.
    ///
    /// # Errors
    ///
    /// [`CompleteError::LeaseLost`]: somebody else has taken the event over, or the connection is to another database
    /// than the store's. [`CompleteError::Store`]: the database failed. Nothing was recorded either way, and the
    /// transaction must be rolled back, or the handler's effects happen twice.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, with its transaction: nothing is recorded then.
    ///
    /// One caution about sqlx 0.9 on MySQL and MariaDB, whatever the statement: a connection that is dropped while a statement
    /// is prepared on it for the first time does not find back into step, and its place in the pool is only free after
    /// seconds. Choose time-outs for handlers that are not met in ordinary operation.
    pub async fn complete_in<C, B>(
        &self,
        connection: &mut C,
        response: Response<B>,
    ) -> Result<Response<ResponseBody>, CompleteError>
    where
        C: SqlConnection + ?Sized,
        B: Into<Bytes>,
    {
        let (parts, body) = response.into_parts();
        let body = body.into();
        let result = answer::stored(&parts, &body, self.keep());
        // Before it is tried: from here on only the store knows.
        self.begin_completion();
        match connection.complete(self.lease(), &result).await? {
            Settled::Done => Ok(Response::from_parts(parts, ResponseBody::full(body))),
            Settled::LeaseLost => {
                self.lose();
                Err(CompleteError::LeaseLost)
            }
        }
    }
}

/// A run could not be completed in the handler's transaction, which must be rolled back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The lease ran out and somebody else took the event over, or the connection is not one to the store's database.
    #[error("the lease is not held any more: roll back, somebody else runs the event")]
    LeaseLost,
    /// The database failed.
    #[error("the end of the run was not written: {0}")]
    Store(#[from] StoreError),
}

/// The event was not handled this time: a handler that returns `Result<_, Outcome>` may write
/// `run.complete_in(…).await?`.
impl From<CompleteError> for Outcome {
    fn from(error: CompleteError) -> Self {
        Self::transient(error.to_string())
    }
}
