//! The promises of every store, and the comparison with the one in memory, on each server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign::Timestamp;
use countersign::clock::ManualClock;
use countersign::store::conformance::{Moved, Subject};
use countersign::store::{InboxStore, PostgresStore};
use proptest::collection::vec;
use proptest::prelude::*;

use super::postgres::Database;
use crate::store_model::{Step, Time, compare_with, step};

mod postgres {
    use super::{Database, OnPostgres, PostgresStore};

    async fn empty() -> Option<OnPostgres> {
        let database = Database::create().await?;
        let store = PostgresStore::connect(&database.url).await.expect("the store opens");
        Some(OnPostgres::new(database, store))
    }

    countersign::inbox_conformance_tests!(optional empty);
}

mod c101_pgbouncer {
    use super::{Database, OnPostgres, PostgresStore};

    async fn empty() -> Option<OnPostgres> {
        let database = Database::create().await?;
        let url = database.through_pgbouncer()?;
        let store = PostgresStore::options(&url).with_prepared_statements(false).open().await;
        Some(OnPostgres::new(database, store.expect("the store opens")))
    }

    countersign::inbox_conformance_tests!(optional empty);
}

struct OnPostgres {
    database: Database,
    store: Arc<PostgresStore>,
    /// How far what is stored has been moved into the past, in seconds.
    moved: AtomicU64,
}

impl OnPostgres {
    fn new(database: Database, store: PostgresStore) -> Self {
        Self { database, store: Arc::new(store), moved: AtomicU64::new(0) }
    }

    async fn pass(&self, span: Duration) {
        self.database.age(span).await;
        self.moved.fetch_add(span.as_secs(), Ordering::SeqCst);
    }
}

impl Subject for OnPostgres {
    fn store(&self) -> Arc<dyn InboxStore> {
        self.store.clone()
    }

    fn advance(&self, span: Duration) -> Moved<'_> {
        Box::pin(self.pass(span))
    }
}

impl Time for OnPostgres {
    fn ahead(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.moved.load(Ordering::SeqCst)))
    }

    fn advance<'a>(&'a self, clock: &'a ManualClock, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            if !span.is_zero() {
                self.pass(span).await;
            }
            let now = Timestamp::from_micros(self.database.now().await);
            clock.set(now.saturating_add(Duration::from_secs(self.moved.load(Ordering::SeqCst))));
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_postgres_store_does_what_the_one_in_memory_does(steps in vec(step(), 1..60)) {
        block_on(compare_postgres(steps));
    }
}

async fn compare_postgres(steps: Vec<Step>) {
    let Some(database) = Database::create().await else { return };
    let store = PostgresStore::connect(&database.url).await.expect("the store opens");
    let subject = OnPostgres::new(database, store);
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
    compare_with(steps, &clock, &*subject.store, &subject).await;
}

fn block_on(task: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(task);
}
