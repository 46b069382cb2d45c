//! What the stores on servers keep to when things break: a proxy loses their connections, at every message.

use std::sync::Arc;
use std::time::Duration;

use countersign::store::conformance::{Moved, Subject};
use countersign::store::faults::{self, Break, Faults};
use countersign::store::{InboxStore, MySqlStore, OutboxStore, PostgresStore, outbox_conformance};

use super::{mysql, postgres, proxy};

mod on_postgres {
    use super::{Arc, Database, PostgresStore, Tried, postgres};

    async fn empty() -> Option<Tried<PostgresStore>> {
        let database = postgres::Database::create().await?;
        let (url, faults) = database.behind_proxy().await;
        let store = PostgresStore::connect(&url).await.expect("the store opens");
        Some(Tried { database: Database::Postgres(database), store: Arc::new(store), faults })
    }

    countersign::inbox_fault_tests!(optional empty);
    countersign::outbox_fault_tests!(optional empty);
}

mod on_mysql {
    use super::{Arc, Database, MySqlStore, Tried, mysql};

    async fn empty() -> Option<Tried<MySqlStore>> {
        let database = mysql::Database::create().await?;
        let (url, faults) = database.behind_proxy().await;
        let store = MySqlStore::connect(&url).await.expect("the store opens");
        Some(Tried { database: Database::MySql(database), store: Arc::new(store), faults })
    }

    countersign::inbox_fault_tests!(optional empty);
    countersign::outbox_fault_tests!(optional empty);
}

struct Tried<S> {
    database: Database,
    store: Arc<S>,
    faults: Arc<proxy::Faults>,
}

enum Database {
    MySql(mysql::Database),
    Postgres(postgres::Database),
}

impl<S> Tried<S> {
    async fn age(&self, span: Duration) {
        match &self.database {
            Database::MySql(database) => database.age(span).await,
            Database::Postgres(database) => database.age(span).await,
        }
    }

    async fn make_younger(&self, span: Duration) {
        match &self.database {
            Database::MySql(database) => database.make_younger(span).await,
            Database::Postgres(database) => database.make_younger(span).await,
        }
    }

    fn plan(&self, Break { message, side, lasting, .. }: Break) {
        let side = match side {
            faults::Side::Question => proxy::Side::Question,
            faults::Side::Answer => proxy::Side::Answer,
            other => panic!("{other:?}"),
        };
        self.faults.plan(side, message, lasting);
    }
}

impl<S: InboxStore> Subject for Tried<S> {
    fn store(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.store) as _
    }

    fn advance(&self, span: Duration) -> Moved<'_> {
        Box::pin(self.age(span))
    }
}

impl<S: Send + Sync> Faults for Tried<S> {
    fn break_at(&self, at: Break) -> bool {
        self.plan(at);
        true
    }

    fn heal(&self) -> bool {
        self.faults.heal()
    }

    fn turn_back(&self, span: Duration) -> Moved<'_> {
        Box::pin(self.make_younger(span))
    }
}

impl<S: OutboxStore> outbox_conformance::Subject for Tried<S> {
    fn store(&self) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.store) as _
    }

    fn advance(&self, span: Duration) -> Moved<'_> {
        Box::pin(self.age(span))
    }
}
