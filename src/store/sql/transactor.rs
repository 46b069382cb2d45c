//! A connection that a writer holds: what it can do whatever is asked of it.

use std::future::Future;

use super::fault::Fault;
use crate::Timestamp;

/// What a statement leaves behind. Where one fails, nothing of its transaction may be committed.
pub(super) type Done<T = ()> = Result<T, sqlx::Error>;

/// One connection, for one writer.
///
/// `begin` comes first, then statements, then `commit` or `rollback`. Times are those of the clock that `begin` read.
pub(super) trait Transactor: Send + 'static {
    /// Whether a transaction keeps all others out, so that a row that was read need not be locked.
    const ALONE: bool;

    fn fault(error: &sqlx::Error) -> Fault;

    /// Connects where there is no connection, opens a transaction, and reads the store's clock.
    fn begin(&mut self) -> impl Future<Output = Done<Timestamp>> + Send;

    fn commit(&mut self) -> impl Future<Output = Done> + Send;

    fn rollback(&mut self) -> impl Future<Output = Done> + Send;

    /// Gives the connection up as it is: the next `begin` connects anew.
    fn disconnect(&mut self);

    /// Ends the connection in good order.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}
