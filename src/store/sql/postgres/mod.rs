//! The store in a PostgreSQL database.

mod connection;
mod copy;
mod database;
pub(super) mod fault;
mod migrate;
mod options;
#[cfg(feature = "send")]
mod outbox;
mod read;
#[cfg(feature = "saga")]
pub(super) mod saga;
mod statements;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
#[cfg(feature = "saga")]
use sqlx::Postgres;
#[cfg(feature = "saga")]
use sqlx::pool::PoolConnection;

pub use self::options::PostgresOptions;
#[cfg(feature = "send")]
pub(super) use self::outbox::Inserting;
#[cfg(feature = "send")]
use self::outbox::Listening;
use self::read::Reader;
#[cfg(feature = "saga")]
pub(super) use self::statements::CLOCK;
use super::fault::unavailable;
#[cfg(feature = "send")]
use super::outbox::later::Later;
use super::queue::{Queue, inbox_store};
use crate::Timestamp;
use crate::store::StoreError;

/// A store in a PostgreSQL database, for any number of machines. PostgreSQL 12 or later.
///
/// - **Durable**: what was answered has been committed with `synchronous_commit` as the server has it, and never `off`.
/// - **Fast under load**: calls that are waiting become one statement for each kind and share a commit. A single caller
///   is committed at once.
/// - **One clock**: leases and ages go by the database's clock, so that those of the machines need not agree. Session time
///   zone, isolation level and language of the server do not matter.
/// - **Exact**: ids compare as bytes.
///
/// Its tables are in the first schema of the `search_path`. Each writer has a connection of its own, which is taken out of
/// the pool for good: a pool of `n` connections and a store with `m` writers are up to `n` + `m` connections to the server.
///
/// A connection that breaks is made anew up to three times, and what was under way is done again. `writer.rs` says what
/// that means for a commit whose answer was lost: reservations and ends are recognised by their tokens. A claim is not: its
/// leases run out, and then its events are due again.
///
/// Behind PgBouncer in transaction mode, see [`PostgresOptions::with_prepared_statements`]. For TLS, choose one of `sqlx`'s
/// features (`tls-rustls-ring-native-roots`, …) in your own `Cargo.toml`, and `sslmode=verify-full` in the URL.
///
/// Events of one ordering key run in the order in which they were accepted, whichever process accepted them: those who
/// accept events of one key commit one after another, by an advisory lock of their transactions.
///
/// A purge has one more connection, which is closed when nothing has been purged for a few seconds. Each of its steps
/// takes an advisory lock of the transaction, so that of all processes one purges at a time.
///
/// Clones are handles to the same store. Its writers are tasks of the tokio runtime in which it was opened, and end with
/// it: calls then fail with [`StoreError::Unavailable`].
///
/// ```no_run
/// # use countersign::store::{InboxStore, PostgresStore, StoreError};
/// # async fn example() -> Result<(), StoreError> {
/// let store = PostgresStore::connect("postgres://app@db.example/app").await?;
/// store.check().await?;
/// store.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

struct Inner {
    queue: Queue,
    #[cfg(feature = "send")]
    outbox: Later,
    #[cfg(feature = "send")]
    listening: Listening,
    reader: Reader,
    /// Whether the pool is ours to close.
    own: bool,
    applied: Vec<u32>,
}

impl PostgresStore {
    /// Opens the store in the database of this URL (`postgres://user:password@host/name`) with the usual settings, and
    /// brings its schema up to date.
    ///
    /// # Errors
    ///
    /// See [`PostgresOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped: the schema has then been brought up to date wholly or not at all.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options(url).open().await
    }

    /// Settings to open the store in the database of this URL with.
    pub fn options(url: &str) -> PostgresOptions {
        PostgresOptions::url(url)
    }

    /// Settings to open the store in the database of a pool that the application has. What the pool does to each
    /// connection after it was made is done to the store's as well. Closing the store leaves the pool open.
    pub fn from_pool(pool: PgPool) -> PostgresOptions {
        PostgresOptions::pool(pool)
    }

    /// Does what is waiting, and closes the store's connections. Calls after this fail with
    /// [`StoreError::Unavailable`], on every clone. A store that is dropped without it loses nothing either.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where it has been closed before.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it may or may not be closed then.
    pub async fn close(&self) -> Result<(), StoreError> {
        let closed = self.0.queue.0.close().await;
        #[cfg(feature = "send")]
        {
            self.0.listening.end();
            self.0.outbox.close().await?;
        }
        if self.0.own {
            self.0.reader.pool.close().await;
        }
        closed
    }

    /// The newest migration that has been applied to the database.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database cannot be read.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it only reads.
    pub async fn schema_version(&self) -> Result<u32, StoreError> {
        let connection = self.0.reader.pool.acquire().await;
        let mut connection = connection.map_err(|error| unavailable("reading the schema", error))?;
        Ok(migrate::version(&mut connection).await?)
    }

    /// The moment that the store goes by: that of its server.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the server cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it only reads.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        self.0.reader.now().await
    }

    /// The migrations that were applied when this store was opened, in their order.
    #[must_use]
    pub fn applied_migrations(&self) -> &[u32] {
        &self.0.applied
    }

    /// How many transactions this store's writers have committed. Set beside the number of calls, it shows how many share
    /// one.
    #[must_use]
    pub fn commits(&self) -> u64 {
        let commits = self.0.queue.0.commits();
        #[cfg(feature = "send")]
        let commits = commits + self.0.outbox.commits();
        commits
    }
}

#[cfg(feature = "send")]
impl Inner {
    fn outbox(&self) -> &super::outbox::queue::Queue {
        self.outbox.queue()
    }
}

#[cfg(feature = "saga")]
impl PostgresStore {
    pub(in crate::store::sql) async fn connection(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.0.reader.pool.acquire().await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

inbox_store!(
    PostgresStore,
    |inner| find(key): inner.reader.find(key),
    page(filter, after): inner.reader.page(filter, after),
    oldest_due(consumer): inner.reader.oldest_due(consumer),
    keys(from, limit): inner.reader.keys(from, limit)
);

#[cfg(feature = "send")]
super::outbox::queue::outbox_store!(
    PostgresStore,
    |inner| endpoints(name): inner.reader.endpoints(name),
    unreadable_endpoints: inner.reader.unreadable_endpoints(),
    find(key): inner.reader.find_message(key),
    page(filter, after): inner.reader.page_messages(filter, after),
    next_due: inner.reader.next_due(),
    oldest_due: inner.reader.oldest_due_messages(),
    keys(from, limit): inner.reader.message_keys(from, limit),
    wake: inner.listening.wake(&inner.outbox().wake),
);
