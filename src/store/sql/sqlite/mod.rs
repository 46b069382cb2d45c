//! The store in one SQLite file.
//!
//! A call that writes goes the way `store → call → writer → batch → accept, claim, reserve, settle → statements`; one that reads, `store → read`.

mod accept;
mod batch;
mod call;
mod claim;
mod fault;
mod migrate;
mod options;
mod read;
mod reserve;
mod row;
mod settle;
mod statements;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::SqlitePool;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use self::call::{Ask, Call, PurgeStep};
pub use self::options::SqliteOptions;
use crate::Clock;
use crate::store::{
    Accept, Accepted, Claim, Claimed, Failure, InboxStore, Lease, ListFilter, Purged, Receipt, ReceiptKey,
    ReceiptState, Reserve, Reserved, Retention, Settled, StoreError, StoreFuture, StoredResult, Token,
};

/// A store in one file, for one machine.
///
/// - **Durable**: what was answered has been synced to the disk (`WAL`, `synchronous = FULL`). A process that is killed
///   loses nothing that it was answered.
/// - **Fast under load**: calls that are waiting share a transaction, so that the rate is bound by rows, not by syncs of
///   the disk. A single caller is committed at once.
/// - **Shared**: several processes on one machine may open one file. Not over a network: a file system that SQLite
///   cannot keep its log on is refused, and one that only claims to have locks will lose data.
///
/// Beside the file `x.db` stand `x.db-wal` (commits that have not been moved into it yet) and `x.db-shm`. All three
/// belong together while any process has it open: do not copy or remove them one by one. For a backup use
/// `sqlite3 x.db '.backup copy.db'`, or close the store first: then `x.db` is all there is.
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
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Call>,
    readers: SqlitePool,
    commits: Arc<AtomicU64>,
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
        let (done, closed) = oneshot::channel();
        self.0.queue.send(Call::Close(done)).await.map_err(|_| stopped())?;
        closed.await.map_err(|_| stopped())
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
        let mut connection =
            self.0.readers.acquire().await.map_err(|error| fault::unavailable("reading the schema", error))?;
        Ok(migrate::version(&mut connection).await?)
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
        self.0.commits.load(Ordering::Relaxed)
    }

    /// Hands a call to the writer. The caller waits for the answer and owns nothing meanwhile, so that it may be dropped.
    async fn ask<Q, A>(&self, question: Q, call: fn(Ask<Q, A>) -> Call) -> Result<A, StoreError> {
        let (ask, answer) = Ask::new(question);
        self.0.queue.try_send(call(ask)).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Overloaded(self.0.queue.max_capacity()),
            TrySendError::Closed(_) => stopped(),
        })?;
        answer.await.map_err(|_| stopped())?
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl InboxStore for SqliteStore {
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
        Box::pin(async move { self.ask((request, Token::random()?), Call::Reserve).await })
    }

    fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
        Box::pin(self.ask(Box::new(request), Call::Accept))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        Box::pin(async move {
            let tokens = (0..claim.most()).map(|_| Token::random()).collect::<Result<Vec<_>, _>>()?;
            self.ask((claim, tokens), Call::Claim).await
        })
    }

    fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
        Box::pin(self.ask(lease, Call::Release))
    }

    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
        Box::pin(self.ask((lease, result), Call::Complete))
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
        Box::pin(self.ask((lease, Box::new(failure)), Call::Fail))
    }

    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
        Box::pin(self.ask((lease, span), Call::Renew))
    }

    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
        Box::pin(async move { read::find(&self.0.readers, &key).await })
    }

    fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>> {
        Box::pin(async move { read::list(&self.0.readers, &filter).await })
    }

    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        Box::pin(self.ask(key, Call::Retry))
    }

    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
        Box::pin(self.ask(key, Call::Forget))
    }

    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
        Box::pin(self.purge_in_steps(retention, limit))
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.ask((), Call::Check))
    }
}

impl SqliteStore {
    /// Small steps between the batches of other callers, so that none of them waits for long.
    async fn purge_in_steps(&self, retention: Retention, limit: u32) -> Result<Purged, StoreError> {
        /// A few milliseconds' work.
        const STEP: u32 = 200;
        let now = self.0.clock.now();
        let mut left = Purged { results: limit.into(), keys: limit.into() };
        let mut purged = Purged::default();
        let most = |left: u64| u32::try_from(left).unwrap_or(STEP).min(STEP);
        while left.keys > 0 || left.results > 0 {
            // Bodies after keys: what is about to go as a whole need not lose its body first.
            let keys = most(left.keys);
            let step = PurgeStep {
                keys_before: now.saturating_sub(retention.keys),
                keys,
                results_before: now.saturating_sub(retention.results),
                results: if keys > 0 { 0 } else { most(left.results) },
            };
            let done = self.ask(step, Call::Purge).await?;
            purged.keys += done.keys;
            purged.results += done.results;
            // Less than was asked for: there is no more.
            left.keys = if done.keys < step.keys.into() { 0 } else { left.keys - done.keys };
            if keys == 0 {
                left.results = if done.results < step.results.into() { 0 } else { left.results - done.results };
            }
        }
        Ok(purged)
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable { reason: "the store has been closed, or its runtime has ended".into(), source: None }
}
