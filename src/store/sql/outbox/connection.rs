//! Enqueueing in a transaction of the caller's.

use std::future::Future;

use super::super::fault::{Fault, unavailable};
use super::enqueue::{self, Inserts};
use crate::store::measure;
use crate::store::{Enqueue, Enqueued, Message, StoreError};

/// A connection of `sqlx`'s that messages can be enqueued with: in the transaction that it is in, together with whatever
/// else that changes. Nothing is sent where it is rolled back; everything is where it is committed.
///
/// [`SqliteConnection`](sqlx::SqliteConnection), [`PgConnection`](sqlx::PgConnection) and
/// [`MySqlConnection`](sqlx::MySqlConnection) are such, as far as the features are on, and with them whatever leads to
/// one: a `Transaction`, a `PoolConnection`. The database is the one that a store was opened in, which has made the tables.
///
/// A transaction that enqueues for an endpoint keeps it from being removed until it ends, and on MySQL and MariaDB from
/// being changed, also by what attempts show about it: keep such transactions short there. One that enqueues messages with
/// an ordering key has that key's turn until it ends: others that enqueue for the same key and endpoint wait, so that the
/// order of the calls is the order of the messages. Two transactions that take the turns of several keys in different
/// orders, in several calls, can end up waiting for each other; then the database lets one of them fail. On MySQL and
/// MariaDB that turn cannot be tied to a transaction of yours: there, of two transactions that overlap, the one that
/// commits first may be delivered first. A store's own `enqueue` and `publish` keep the order there too, among themselves.
///
/// What is new is found by the next poll of a dispatcher. On PostgreSQL those that listen are told at the commit: by a
/// notification that says nothing but that there is something. Where many short transactions enqueue, each waits for the
/// others' at its commit because of it: `SET countersign.notify = 'off'`, for the transaction, the session or the role,
/// leaves it out.
///
/// ```no_run
/// # use countersign::store::{Enqueue, Message, OutboxConnection, StoreError};
/// # use countersign::{EventId, Name};
/// # #[cfg(feature = "sqlite")]
/// # async fn example(pool: &sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *tx).await?;
/// let message = Message::new(EventId::new("msg_order_7")?, Name::new("order.paid")?, r#"{"order":7}"#);
/// tx.enqueue(&[Enqueue::new(Name::new("acme")?, message)]).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
pub trait OutboxConnection: sealed::Sealed + Send {
    /// Puts messages into the outbox, each for one endpoint, all or none of them. Says of each, in their order, whether it
    /// is new; one that is there already is left as it is.
    ///
    /// Times are those of the database's clock; on SQLite, of the system's.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Rejected`]: an endpoint is not there, or a message is over the limits of [`Enqueue::check`].
    ///   Nothing was changed.
    /// - [`StoreError::Unavailable`]: the database failed. Roll the transaction back.
    ///
    /// # Cancel safety
    ///
    /// Where it is dropped, roll the transaction back: it may hold the messages or not.
    fn enqueue(&mut self, messages: &[Enqueue]) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;

    /// Puts a message into the outbox for every endpoint that wants its type. Says for which, by name.
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Cancel safety
    ///
    /// As [`enqueue`](Self::enqueue).
    fn publish(&mut self, message: &Message) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! outbox_connection {
    ($connection:ty, $inserting:ty) => {
        impl sealed::Sealed for $connection {}

        impl OutboxConnection for $connection {
            async fn enqueue(&mut self, messages: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
                enqueue_in(&mut <$inserting>::of_caller(self), messages).await
            }

            async fn publish(&mut self, message: &Message) -> Result<Vec<Enqueued>, StoreError> {
                publish_in(&mut <$inserting>::of_caller(self), message).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
outbox_connection!(sqlx::SqliteConnection, super::super::sqlite::Inserting<'_>);

#[cfg(feature = "postgres")]
outbox_connection!(sqlx::PgConnection, super::super::postgres::Inserting<'_>);

#[cfg(feature = "mysql")]
outbox_connection!(sqlx::MySqlConnection, super::super::mysql::Inserting<'_>);

async fn enqueue_in<I: Inserts>(inserts: &mut I, messages: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
    messages.iter().try_for_each(|new| Enqueue::check(&new.message))?;
    measure::enqueued(enqueue::enqueue_all(inserts, messages).await.map_err(refused::<I>)?)
}

async fn publish_in<I: Inserts>(inserts: &mut I, message: &Message) -> Result<Vec<Enqueued>, StoreError> {
    Enqueue::check(message)?;
    measure::enqueued(enqueue::publish(inserts, message).await.map_err(refused::<I>)?)
}

fn refused<I: Inserts>(error: sqlx::Error) -> StoreError {
    match I::fault(&error) {
        Fault::Busy | Fault::Connection => unavailable("enqueueing", error),
        Fault::Row => StoreError::Rejected(error.to_string()),
    }
}
