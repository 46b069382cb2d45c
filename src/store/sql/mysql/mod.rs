//! The store in a MySQL database.

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

#[cfg(feature = "saga")]
use sqlx::MySql;
use sqlx::MySqlPool;
#[cfg(feature = "saga")]
use sqlx::pool::PoolConnection;

pub use self::options::MySqlOptions;
#[cfg(feature = "send")]
pub(super) use self::outbox::Inserting;
#[cfg(feature = "saga")]
pub(super) use self::statements::CLOCK;
use super::fault::unavailable;
#[cfg(feature = "send")]
use super::outbox::later::Later;
use super::queue::{Queue, inbox_store};
use crate::Timestamp;
use crate::store::StoreError;

/// A store in a database of MySQL (8.0.16 or later) or MariaDB (10.6 or later), for any number of machines.
///
/// - **Durable**: what was answered has been committed, as durably as `innodb_flush_log_at_trx_commit` says: leave it at 1.
/// - **Fast under load**: calls that are waiting become one statement for each kind and share a commit. A single caller
///   is committed at once.
/// - **One clock**: leases and ages go by the database's clock, so that those of the machines need not agree. Session time
///   zone, isolation level, `sql_mode` and language of the server do not matter.
/// - **Exact**: ids are stored and compared as bytes.
///
/// Each writer has a connection of its own, which is taken out of the pool for good: a pool of `n` connections and a store
/// with `m` writers are up to `n` + `m` connections to the server.
///
/// A connection that breaks is made anew up to three times, and what was under way is done again: reservations and ends
/// whose commit was not answered are recognised by their tokens. A claim is not: its leases run out, and then its events
/// are due again.
///
/// For TLS, choose one of `sqlx`'s features (`tls-rustls-ring-native-roots`, …) in your own `Cargo.toml`, and
/// `ssl-mode=VERIFY_IDENTITY` in the URL. Without TLS, MySQL's own way to send passwords (`caching_sha2_password`) needs
/// `sqlx`'s feature `mysql-rsa`.
///
/// Events of one ordering key run in the order in which they were accepted, whichever process accepted them: those who
/// accept events of one key commit one after another, by a named lock (`GET_LOCK`). Such locks are those of one server: in a
/// cluster in which several take writes, this holds for those who write to the same one.
///
/// A purge has one more connection, which is closed when nothing has been purged for a few seconds. Each of its steps
/// takes a named lock (`GET_LOCK`), freed at its commit, so that of all processes one purges at a time.
///
/// Clones are handles to the same store. Its writers are tasks of the tokio runtime in which it was opened, and end with
/// it: calls then fail with [`StoreError::Unavailable`].
///
/// ```no_run
/// # use countersign::store::{InboxStore, MySqlStore, StoreError};
/// # async fn example() -> Result<(), StoreError> {
/// let store = MySqlStore::connect("mysql://app@db.example/app").await?;
/// store.check().await?;
/// store.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MySqlStore(Arc<Inner>);

struct Inner {
    queue: Queue,
    #[cfg(feature = "send")]
    outbox: Later,
    pool: MySqlPool,
    /// Whether the pool is ours to close.
    own: bool,
    applied: Vec<u32>,
}

impl MySqlStore {
    /// Opens the store in the database of this URL (`mysql://user:password@host/name`) with the usual settings, and
    /// brings its schema up to date.
    ///
    /// # Errors
    ///
    /// See [`MySqlOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped: a migration that was cut off is repeated by the next store that opens.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options(url).open().await
    }

    /// Settings to open the store in the database of this URL with.
    pub fn options(url: &str) -> MySqlOptions {
        MySqlOptions::url(url)
    }

    /// Settings to open the store in the database of a pool that the application has. What the pool does to each
    /// connection after it was made is done to the store's as well. Closing the store leaves the pool open.
    pub fn from_pool(pool: MySqlPool) -> MySqlOptions {
        MySqlOptions::pool(pool)
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
        self.0.outbox.close().await?;
        if self.0.own {
            self.0.pool.close().await;
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
        let connection = self.0.pool.acquire().await;
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
        read::now(&self.0.pool).await
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
impl MySqlStore {
    pub(in crate::store::sql) async fn connection(&self) -> Result<PoolConnection<MySql>, sqlx::Error> {
        self.0.pool.acquire().await
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStore").finish_non_exhaustive()
    }
}

inbox_store!(
    MySqlStore,
    |inner| find(key): async move { read::find(&inner.pool, &key).await },
    page(filter, after): async move { read::page(&inner.pool, &filter, after).await },
    oldest_due(consumer): async move { read::oldest_due(&inner.pool, &consumer).await },
    keys(from, limit): read::keys(&inner.pool, from, limit)
);

#[cfg(feature = "send")]
super::outbox::queue::outbox_store!(
    MySqlStore,
    |inner| endpoints(name): outbox::read::endpoints(&inner.pool, name),
    unreadable_endpoints: outbox::read::unreadable_endpoints(&inner.pool),
    find(key): outbox::read::find_message(&inner.pool, key),
    page(filter, after): outbox::read::page_messages(&inner.pool, filter, after),
    next_due: outbox::read::next_due(&inner.pool),
    oldest_due: outbox::read::oldest_due(&inner.pool),
    keys(from, limit): outbox::read::keys(&inner.pool, from, limit),
    wake: Arc::clone(&inner.outbox().wake),
);
