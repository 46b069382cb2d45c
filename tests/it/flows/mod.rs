//! Flows: sagas in each kind of database, envelopes over real HTTP, and the example with everything that can go wrong.

mod deliveries;
mod orders;
mod rolling;
mod sagas;
mod shop;

use std::future::Future;
use std::sync::Arc;

use countersign::envelope::{Contract, ContractError, Envelope};
use countersign::saga::{Decision, Move, Saga};
use countersign::store::{
    Endpoint, InboxStore, MySqlStore, OutboxStore, PostgresStore, SagaStore, SqliteStore, TypePattern,
};
use countersign::{EventId, Name};
use serde::{Deserialize, Serialize};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{MySqlPool, PgPool, SqlitePool};

use super::servers::{MySqlDatabase, PostgresDatabase};

/// Runs a block in a transaction, whose end the block's value says: `true` commits it.
macro_rules! transaction {
    ($pool:expr, |$connection:ident| $block:block) => {
        match $pool {
            $crate::flows::Pool::Sqlite(pool) => {
                $crate::flows::transaction!(@within pool.begin_with("BEGIN IMMEDIATE"), $connection, $block)
            }
            $crate::flows::Pool::Postgres(pool) => {
                $crate::flows::transaction!(@within pool.begin(), $connection, $block)
            }
            $crate::flows::Pool::MySql(pool) => $crate::flows::transaction!(@within pool.begin(), $connection, $block),
        }
    };
    (@within $begun:expr, $connection:ident, $block:block) => {{
        let mut transaction = $begun.await.expect("a transaction");
        let $connection = &mut *transaction;
        let (commits, done) = $block;
        if commits {
            transaction.commit().await.expect("a commit");
        } else {
            transaction.rollback().await.expect("a rollback");
        }
        done
    }};
}

pub(crate) use transaction;

#[derive(Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

/// A database with a store in it, which goes with it.
struct Place {
    pool: Pool,
    inbox: Arc<dyn InboxStore>,
    outbox: Arc<dyn OutboxStore>,
    sagas: Arc<dyn SagaStore>,
    _folder: Option<tempfile::TempDir>,
}

/// Runs a test in each kind of database that there is.
async fn in_each_database<F: Future<Output = ()>>(test: impl Fn(Arc<Place>) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("flows.db");
    let store = SqliteStore::open(&file).await.expect("a store");
    let pool = SqlitePoolOptions::new().connect_lazy_with(SqliteConnectOptions::new().filename(&file));
    test(Place::new(Pool::Sqlite(pool), store, Some(folder)).await).await;
    if let Some(database) = PostgresDatabase::create().await {
        let pool = PgPoolOptions::new().max_connections(8).connect_lazy(&database.url).expect("a URL");
        let store = PostgresStore::connect(&database.url).await.expect("a store");
        test(Place::new(Pool::Postgres(pool), store, None).await).await;
    }
    if let Some(database) = MySqlDatabase::create().await {
        let pool = MySqlPoolOptions::new().max_connections(8).connect_lazy(&database.url).expect("a URL");
        let store = MySqlStore::connect(&database.url).await.expect("a store");
        test(Place::new(Pool::MySql(pool), store, None).await).await;
    }
}

impl Place {
    async fn new(
        pool: Pool,
        store: impl InboxStore + OutboxStore + SagaStore + Clone,
        folder: Option<tempfile::TempDir>,
    ) -> Arc<Self> {
        let mut bank = Endpoint::new(name("bank"), "https://bank.example/hooks");
        bank.types = vec![TypePattern::new("bank.*").expect("a pattern")];
        store.put_endpoint(bank).await.expect("an endpoint");
        let (inbox, outbox) = (Arc::new(store.clone()), Arc::new(store.clone()));
        Arc::new(Self { pool, inbox, outbox, sagas: Arc::new(store), _folder: folder })
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A jar that coins go into, one by one, until it is full.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Jar {
    coins: u32,
    full: bool,
}

#[derive(Serialize, Deserialize)]
struct Coin {
    jar: String,
    says: String,
}

impl Contract for Coin {
    const TYPE: &'static str = "jar.coin";
}

#[derive(Serialize, Deserialize)]
struct Pay {
    coin: u32,
}

impl Contract for Pay {
    const TYPE: &'static str = "bank.pay";
}

impl Saga for Jar {
    const NAME: &'static str = "jar";
    type Event = Coin;

    fn read(event: &Envelope) -> Result<Coin, ContractError> {
        Ok(event.read()?.data)
    }

    fn instance(event: &Coin) -> &str {
        &event.jar
    }

    fn step(&self) -> &'static str {
        if self.full { "full" } else { "filling" }
    }

    fn decide(state: Option<&Self>, event: &Coin) -> Decision<Self> {
        let coins = state.map_or(0, |jar| jar.coins);
        match event.says.as_str() {
            "button" => Decision::refuse("it is a button"),
            "lid" if coins == 0 => Decision::defer("it is empty"),
            "lid" => Move::to(Self { coins, full: true }).end().into(),
            "hammer" => Move::to(Self { coins: 0, full: false }).into(),
            "purse" => Move::to(Self { coins: coins + 3, full: false })
                .send("bank", &Pay { coin: 1 })
                .publish(&Pay { coin: 2 })
                .send("bank", &Pay { coin: 3 })
                .into(),
            _ if state.is_some_and(|jar| jar.full) => Decision::ignore("it is full"),
            _ => Move::to(Self { coins: coins + 1, full: false }).send("bank", &Pay { coin: coins + 1 }).into(),
        }
    }
}

fn event(id: &str, jar: &str, says: &str) -> Envelope {
    let mut event = version(1, jar, says);
    event.id = EventId::new(id).expect("an id");
    event
}

fn version(version: u32, jar: &str, says: &str) -> Envelope {
    let text = serde_json::json!({ "id": "evt_1", "type": "jar.coin", "schema_version": version,
        "occurred_at": "2026-01-31T12:00:00Z", "data": { "jar": jar, "says": says } });
    Envelope::from_json(text.to_string().as_bytes()).expect("an envelope")
}
