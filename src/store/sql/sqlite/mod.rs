//! The store in one SQLite file.

mod calls;
mod connection;
mod copy;
mod database;
pub(super) mod fault;
mod files;
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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
#[cfg(feature = "saga")]
use sqlx::pool::PoolConnection;
#[cfg(feature = "saga")]
use sqlx::{Sqlite, SqliteConnection};

pub use self::options::SqliteOptions;
#[cfg(feature = "send")]
pub(super) use self::outbox::Inserting;
use super::fault::unavailable;
use super::queue::{Queue, inbox_store};
use crate::store::StoreError;
use crate::{Clock, Timestamp};

/// A store in one file, for one machine.
///
/// - **Durable**: what was answered has been synced to the disk (`WAL`, `synchronous = FULL`). A process that is killed
///   loses nothing that it was answered.
/// - **Fast under load**: calls that are waiting share a transaction, so that the rate is bound by rows, not by syncs of
///   the disk. A single caller is committed at once.
/// - **Shared**: several processes on one machine may open one file. Not over a network: a file system that SQLite
///   cannot keep its log on is refused, and one that only claims to have locks will lose data.
///
/// A file that does not exist is created, readable and writable by its owner alone.
///
/// Beside the file `x.db` stand `x.db-wal` (commits that have not been moved into it yet) and `x.db-shm`. All three
/// belong together while any process has it open: do not copy or remove them one by one. For a backup use
/// `sqlite3 x.db '.backup copy.db'`, or close the store first: then `x.db` is all there is. Should one be removed or
/// replaced all the same, nothing is answered from files that are not there any more: where only the log is gone and no
/// other process has the file open, what stood in it is saved; where the file itself is gone, calls fail until it is back.
///
/// A purge is done by the one connection that writes, in steps of a few milliseconds between the calls of others: a file has
/// one writer at a time, and a purger beside it would only make that one wait. Processes on one file take turns.
///
/// Clones are handles to the same store. Its writer is a task of the tokio runtime in which it was opened, and ends
/// with it: calls then fail with [`StoreError::Unavailable`].
///
/// ```
/// # use countersign::store::{InboxStore, SqliteStore, StoreError};
/// # async fn example() -> Result<(), StoreError> {
/// let store = SqliteStore::open("countersign.db").await?;
/// store.check().await?;
/// store.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    path: PathBuf,
    queue: Queue<calls::Call>,
    #[cfg(feature = "send")]
    outbox: super::outbox::queue::Queue<calls::Call>,
    #[cfg(feature = "send")]
    outbox_reader: outbox::Reader,
    readers: SqlitePool,
    clock: Arc<dyn Clock>,
    applied: Vec<u32>,
}

impl SqliteStore {
    /// Opens the store in this file with the usual settings: creates the file where there is none, and brings its schema
    /// up to date. The path is the name of a file, whatever characters it holds.
    ///
    /// # Errors
    ///
    /// See [`SqliteOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped: the schema has then been brought up to date wholly or not at all.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options(path).open().await
    }

    /// Settings to open the store in this file with.
    pub fn options(path: impl AsRef<Path>) -> SqliteOptions {
        SqliteOptions::new(path.as_ref())
    }

    /// Does what is waiting, and closes the file: all there is stands in the one file then, unless another process has it
    /// open too. Calls after this fail with [`StoreError::Unavailable`], on every clone.
    ///
    /// A store that is dropped without it loses nothing either; its log is read when the file is opened again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where it has been closed before.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it may or may not be closed then.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.0.readers.close().await;
        self.0.queue.0.close().await
    }

    /// The newest migration that has been applied to the file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the file cannot be read.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it only reads.
    pub async fn schema_version(&self) -> Result<u32, StoreError> {
        let connection = self.0.readers.acquire().await;
        let mut connection = connection.map_err(|error| unavailable("reading the schema", error))?;
        Ok(migrate::version(&mut connection).await?)
    }

    /// The moment that the store goes by: that of its own machine, or what it was opened with.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the file cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it only reads.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.0.clock.now())
    }

    /// The migrations that were applied when this store was opened, in their order.
    #[must_use]
    pub fn applied_migrations(&self) -> &[u32] {
        &self.0.applied
    }

    /// How many transactions this store's writer has committed. Set beside the number of calls, it shows how many share
    /// one.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.0.queue.0.commits()
    }
}

#[cfg(feature = "send")]
impl Inner {
    const fn outbox(&self) -> &super::outbox::queue::Queue<calls::Call> {
        &self.outbox
    }
}

#[cfg(feature = "saga")]
impl SqliteStore {
    pub(in crate::store::sql) async fn reading(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        self.0.readers.acquire().await
    }

    /// A connection of its own: those of the pool only read.
    pub(in crate::store::sql) async fn writing(&self) -> Result<SqliteConnection, sqlx::Error> {
        let mut connection = self.0.readers.acquire().await?.detach();
        sqlx::raw_sql("PRAGMA query_only = OFF").execute(&mut connection).await?;
        Ok(connection)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}

inbox_store!(
    SqliteStore,
    |inner| find(key): async move { read::find(&inner.readers, &key).await },
    page(filter, after): async move { read::page(&inner.readers, &filter, after).await },
    oldest_due(consumer): async move { read::oldest_due(&inner.readers, &consumer, inner.clock.now()).await },
    keys(from, limit): read::keys(&inner.readers, from, limit)
);

#[cfg(feature = "send")]
super::outbox::queue::outbox_store!(
    SqliteStore,
    |inner| endpoints(name): inner.outbox_reader.endpoints(name),
    unreadable_endpoints: inner.outbox_reader.unreadable_endpoints(),
    find(key): inner.outbox_reader.find_message(key),
    page(filter, after): inner.outbox_reader.page(filter, after),
    next_due: inner.outbox_reader.next_due(),
    oldest_due: inner.outbox_reader.oldest_due(),
    keys(from, limit): inner.outbox_reader.keys(from, limit),
    wake: Arc::clone(&inner.outbox.wake),
);
