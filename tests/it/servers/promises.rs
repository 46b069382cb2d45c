//! The promises of every store, and the comparison with the one in memory, on each server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign::Timestamp;
use countersign::clock::ManualClock;
use countersign::store::conformance::{Moved, Subject};
use countersign::store::{InboxStore, MySqlStore, OutboxStore, PostgresStore, outbox_conformance};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{mysql, postgres};
use crate::store_model::{Step, Time, cases, compare_with, step};

mod on_postgres {
    use super::{PostgresStore, Tried, postgres};

    async fn empty() -> Option<Tried> {
        let database = postgres::Database::create().await?;
        let store = PostgresStore::connect(&database.url).await.expect("the store opens");
        Some(Tried::postgres(database, store))
    }

    countersign::inbox_conformance_tests!(optional empty);
    countersign::outbox_conformance_tests!(optional empty);
}

mod with_three_writers {
    use super::{PostgresStore, Tried, postgres};

    async fn empty() -> Option<Tried> {
        let database = postgres::Database::create().await?;
        let store = PostgresStore::options(&database.url).with_writers(3).open().await;
        Some(Tried::postgres(database, store.expect("the store opens")))
    }

    countersign::outbox_conformance_tests!(optional empty);
}

mod c101_through_pgbouncer {
    use super::{PostgresStore, Tried, postgres};

    async fn empty() -> Option<Tried> {
        let database = postgres::Database::create().await?;
        let url = database.through_pgbouncer()?;
        let store = PostgresStore::options(&url).with_prepared_statements(false).open().await;
        Some(Tried::postgres(database, store.expect("the store opens")))
    }

    countersign::inbox_conformance_tests!(optional empty);
    countersign::outbox_conformance_tests!(optional empty);
}

mod on_mysql {
    use super::{MySqlStore, Tried, mysql};

    async fn empty() -> Option<Tried> {
        let database = mysql::Database::create().await?;
        let store = MySqlStore::connect(&database.url).await.expect("the store opens");
        Some(Tried::mysql(database, store))
    }

    countersign::inbox_conformance_tests!(optional empty);
    countersign::outbox_conformance_tests!(optional empty);
}

struct Tried {
    database: Database,
    store: Arc<dyn InboxStore>,
    outbox: Arc<dyn OutboxStore>,
    /// How far what is stored has been moved into the past, in seconds.
    moved: AtomicU64,
}

enum Database {
    MySql(mysql::Database),
    Postgres(postgres::Database),
}

impl Tried {
    fn mysql(database: mysql::Database, store: MySqlStore) -> Self {
        Self {
            database: Database::MySql(database),
            store: Arc::new(store.clone()),
            outbox: Arc::new(store),
            moved: AtomicU64::new(0),
        }
    }

    fn postgres(database: postgres::Database, store: PostgresStore) -> Self {
        Self {
            database: Database::Postgres(database),
            store: Arc::new(store.clone()),
            outbox: Arc::new(store),
            moved: AtomicU64::new(0),
        }
    }

    async fn pass(&self, span: Duration) {
        match &self.database {
            Database::MySql(database) => database.age(span).await,
            Database::Postgres(database) => database.age(span).await,
        }
        self.moved.fetch_add(span.as_secs(), Ordering::SeqCst);
    }

    async fn now(&self) -> Timestamp {
        Timestamp::from_micros(match &self.database {
            Database::MySql(database) => database.now().await,
            Database::Postgres(database) => database.now().await,
        })
    }
}

impl Subject for Tried {
    fn store(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.store)
    }

    fn advance(&self, span: Duration) -> Moved<'_> {
        Box::pin(self.pass(span))
    }
}

impl outbox_conformance::Subject for Tried {
    fn store(&self) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.outbox)
    }

    fn advance(&self, span: Duration) -> outbox_conformance::Moved<'_> {
        Box::pin(self.pass(span))
    }
}

impl Time for Tried {
    fn ahead(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.moved.load(Ordering::SeqCst)))
    }

    fn advance<'a>(&'a self, clock: &'a ManualClock, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            if !span.is_zero() {
                self.pass(span).await;
            }
            clock.set(self.now().await.saturating_add(Duration::from_secs(self.moved.load(Ordering::SeqCst))));
        })
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn the_mysql_store_does_what_the_one_in_memory_does(steps in vec(step(), 1..60)) {
        block_on(async {
            let Some(database) = mysql::Database::create().await else { return };
            let store = MySqlStore::connect(&database.url).await.expect("the store opens");
            compare(steps, Tried::mysql(database, store)).await;
        });
    }

    #[test]
    fn the_postgres_store_does_what_the_one_in_memory_does(steps in vec(step(), 1..60)) {
        block_on(async {
            let Some(database) = postgres::Database::create().await else { return };
            let store = PostgresStore::connect(&database.url).await.expect("the store opens");
            compare(steps, Tried::postgres(database, store)).await;
        });
    }
}

async fn compare(steps: Vec<Step>, tried: Tried) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
    compare_with(steps, &clock, &*tried.store, &tried).await;
}

fn block_on(task: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(task);
}

/// A store on a server and the clock that the one in memory goes by, which is set by the server's.
struct Modelled {
    clock: Arc<ManualClock>,
    tried: Tried,
}

impl crate::outbox_model::Modelled for Modelled {
    fn outbox(&self) -> &dyn OutboxStore {
        &*self.tried.outbox
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    fn time(&self) -> &dyn Time {
        &self.tried
    }
}

impl Modelled {
    async fn new(tried: Tried) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
        Time::advance(&tried, &clock, Duration::ZERO).await;
        Self { clock, tried }
    }
}

async fn modelled_on_postgres() -> Option<Modelled> {
    let database = postgres::Database::create().await?;
    let store = PostgresStore::connect(&database.url).await.expect("the store opens");
    Some(Modelled::new(Tried::postgres(database, store)).await)
}

async fn modelled_on_mysql() -> Option<Modelled> {
    let database = mysql::Database::create().await?;
    let store = MySqlStore::connect(&database.url).await.expect("the store opens");
    Some(Modelled::new(Tried::mysql(database, store)).await)
}

crate::outbox_model::outbox_model_test!(
    the_outbox_on_postgres_does_what_the_one_in_memory_does,
    12,
    modelled_on_postgres
);
crate::outbox_model::outbox_model_test!(the_outbox_on_mysql_does_what_the_one_in_memory_does, 12, modelled_on_mysql);
