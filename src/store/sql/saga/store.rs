//! What operators ask a store about sagas, whichever database it is in.

use std::fmt;

use super::super::fault::unavailable;
use super::connection::SagaConnection;
use crate::store::{SagaEntry, SagaKey, SagaStep, StoreError, StoreFuture};
use crate::{Name, Timestamp};

/// The sagas in the database of a store: where each instance stands, and what it has answered.
///
/// It moves none: that is done in transactions of the application's ([`saga::handle`](crate::saga::handle)).
///
/// ```no_run
/// # #[cfg(feature = "sqlite")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use countersign::store::{SagaStore as _, SqliteStore};
/// use countersign::{Clock, SystemClock};
///
/// let store = SqliteStore::open("orders.db").await?;
/// let an_hour_ago = SystemClock.now().saturating_sub(Duration::from_secs(3_600));
/// for stuck in store.open_sagas(None, an_hour_ago, 100).await? {
///     println!("{} {} at {:?} since {}", stuck.key.saga, stuck.key.instance, stuck.step, stuck.moved);
/// }
/// # Ok(())
/// # }
/// ```
pub trait SagaStore: fmt::Debug + Send + Sync + 'static {
    /// Where an instance stands.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database failed, [`StoreError::Corrupt`] where the row cannot be read.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn find_saga(&self, key: SagaKey) -> StoreFuture<'_, Option<SagaEntry>>;

    /// All that an instance has answered, in order.
    ///
    /// # Errors
    ///
    /// As [`find_saga`](Self::find_saga).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn saga_steps(&self, key: SagaKey) -> StoreFuture<'_, Vec<SagaStep>>;

    /// Instances of this saga, or of all, that have no end and have not moved since a moment, the one that has not moved for
    /// longest first; at most `limit`. One that cannot be read is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database failed.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn open_sagas(&self, saga: Option<Name>, unmoved_since: Timestamp, limit: u32) -> StoreFuture<'_, Vec<SagaEntry>>;

    /// Forgets instances that ended before a moment, with their history; at most `limit`. Returns how many.
    ///
    /// An event that comes after that finds none, as if there had never been one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database failed.
    ///
    /// # Cancel safety
    ///
    /// What has been forgotten stays so.
    fn purge_sagas(&self, ended_before: Timestamp, limit: u32) -> StoreFuture<'_, u64>;
}

/// There are few sagas, and many instances of each.
async fn open(
    connection: &mut impl SagaConnection,
    saga: Option<Name>,
    unmoved_since: Timestamp,
    limit: u32,
) -> Result<Vec<SagaEntry>, StoreError> {
    let names = match saga {
        Some(name) => vec![name],
        None => connection.saga_names().await?,
    };
    let mut open = Vec::new();
    for name in &names {
        open.extend(connection.open_sagas(name, unmoved_since, limit).await?);
    }
    open.sort_by_key(|entry| entry.moved);
    open.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(open)
}

/// `$reading` and `$writing` give a connection each.
macro_rules! saga_store {
    ($store:ty, |$self:ident| reading: $reading:expr, writing: $writing:expr) => {
        impl SagaStore for $store {
            fn find_saga(&self, key: SagaKey) -> StoreFuture<'_, Option<SagaEntry>> {
                let $self = self;
                Box::pin(async move { $reading.await.map_err(not_here)?.find_saga(&key).await })
            }

            fn saga_steps(&self, key: SagaKey) -> StoreFuture<'_, Vec<SagaStep>> {
                let $self = self;
                Box::pin(async move { $reading.await.map_err(not_here)?.saga_steps(&key).await })
            }

            fn open_sagas(
                &self,
                saga: Option<Name>,
                unmoved_since: Timestamp,
                limit: u32,
            ) -> StoreFuture<'_, Vec<SagaEntry>> {
                let $self = self;
                Box::pin(async move { open(&mut *$reading.await.map_err(not_here)?, saga, unmoved_since, limit).await })
            }

            fn purge_sagas(&self, ended_before: Timestamp, limit: u32) -> StoreFuture<'_, u64> {
                let $self = self;
                Box::pin(async move { $writing.await.map_err(not_here)?.purge_sagas(ended_before, limit).await })
            }
        }
    };
}

fn not_here(error: sqlx::Error) -> StoreError {
    unavailable("asking about sagas", error)
}

#[cfg(feature = "sqlite")]
saga_store!(crate::store::SqliteStore, |store| reading: store.reading(), writing: store.writing());
#[cfg(feature = "postgres")]
saga_store!(crate::store::PostgresStore, |store| reading: store.connection(), writing: store.connection());
#[cfg(feature = "mysql")]
saga_store!(crate::store::MySqlStore, |store| reading: store.connection(), writing: store.connection());
