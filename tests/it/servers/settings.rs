//! Servers that speak another language, and machines whose clocks are wrong.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use countersign::Timestamp;
use countersign::clock::{Clock as _, ManualClock, SystemClock};
use countersign::receive::{DedupLayer, ReceiveLayer};
use countersign::signature::{ReplayWindow, Scheme};
use countersign::store::{InboxStore, MySqlStore, PostgresStore, ReceiptState, Reserve, StoreError};
use http::StatusCode;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Connection as _, Executor as _};

use super::{acquire, mysql, postgres, request};
use crate::support::{Gate, SECRET, client, receipt, send, serve, standard, until, verifier};

/// A deadlock as PostgreSQL itself tells it: the store's transaction is the one that is ended, and it is done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c098_a_postgres_that_speaks_german_is_understood_by_its_codes() {
    let Some(database) = german_postgres().await else { return };
    let store = PostgresStore::connect(&database.url).await.expect("the store opens");
    database
        .execute(
            "CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_advisory_xact_lock(1);
                 PERFORM pg_advisory_xact_lock(2);
                 RETURN NEW;
             END $$;
             CREATE TRIGGER meet BEFORE INSERT ON countersign_inbox FOR EACH ROW EXECUTE FUNCTION meet();",
        )
        .await;
    let mut beside = postgres::connect(&database.url).await;
    let mut holding = beside.begin().await.expect("a transaction");
    // Of the two, the store's is to notice.
    holding.execute("SET LOCAL deadlock_timeout = '60s'").await.expect("it is a superuser");
    holding.execute("SELECT pg_advisory_xact_lock(2)").await.expect("a lock");
    let reserving = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, request(1)).await }
    });
    let waits = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted";
    until("the store waits", || async { database.number(waits).await == 1 }).await;
    holding.execute("SELECT pg_advisory_xact_lock(1)").await.expect("the other one gave way");
    holding.rollback().await.expect("it ends");
    assert_eq!(reserving.await.expect("no panic").attempt, 1);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    until("the deadlock is counted", || async { database.number(deadlocks).await == 1 }).await;

    database.execute("CREATE UNIQUE INDEX once ON countersign_inbox (event_id)").await;
    let refused = store.reserve(Reserve { event_id: request(1).event_id, ..request(2) }).await;
    assert!(matches!(&refused, Err(StoreError::Rejected(text)) if text.contains("doppelter")), "{refused:?}");
    assert_eq!(acquire(&store, request(3)).await.attempt, 1, "the others of its kind are not affected");
}

/// `None` where there is no such server, or it has not learned German.
async fn german_postgres() -> Option<postgres::Database> {
    let database = postgres::Database::create().await?;
    let mut connection = postgres::connect(&database.url).await;
    if let Err(error) = connection.execute("SET lc_messages = 'de_DE.UTF-8'").await {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{error}");
        eprintln!("LEFT OUT: the server does not speak German: {error}");
        return None;
    }
    let sql = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lc_messages = %L', current_database(), 'de_DE.UTF-8');
        END $$";
    connection.execute(sql).await.expect("it is done");
    let error = postgres::connect(&database.url).await.execute("SELECT 1 / 0").await.expect_err("no number");
    assert!(error.to_string().contains("Division durch Null"), "{error}");
    Some(database)
}

#[tokio::test]
async fn c098_a_mysql_that_speaks_german_is_understood_by_its_numbers() {
    let Some(database) = mysql::Database::create().await else { return };
    let pool = MySqlPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET SESSION lc_messages = 'de_DE'").await.map(drop) })
    });
    let pool = pool.connect(&database.url).await.expect("a pool");
    let store = MySqlStore::from_pool(pool).open().await.expect("the store opens");
    // What the text says is nobody's business: the number is that of a deadlock, and it comes once.
    database
        .execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON countersign_inbox FOR EACH ROW
             IF @tried IS NULL THEN
                 SET @tried = 1;
                 SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Beim Warten auf eine Sperre';
             END IF;
             ALTER TABLE countersign_inbox ADD CONSTRAINT nicht_diese CHECK (`key` <> 'evt_2')",
        )
        .await;
    assert_eq!(acquire(&store, request(1)).await.attempt, 1, "it was tried again");
    let refused = store.reserve(request(2)).await;
    assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
    assert_eq!(acquire(&store, request(3)).await.attempt, 1, "the others are not affected");
}

#[tokio::test]
async fn c095_the_clocks_of_two_machines_on_postgres_do_not_matter() {
    let Some(database) = postgres::Database::create().await else { return };
    let stores: [Arc<dyn InboxStore>; 2] = [Arc::new(database.open().await), Arc::new(database.open().await)];
    ten_minutes_apart(stores, database.now().await).await;
}

#[tokio::test]
async fn c095_the_clocks_of_two_machines_on_mysql_do_not_matter() {
    let Some(database) = mysql::Database::create().await else { return };
    let stores: [Arc<dyn InboxStore>; 2] = [Arc::new(database.open().await), Arc::new(database.open().await)];
    ten_minutes_apart(stores, database.now().await).await;
}

/// Two receivers, one five minutes ahead of the database, one five minutes behind it. Neither takes a lease over early.
async fn ten_minutes_apart([ahead, behind]: [Arc<dyn InboxStore>; 2], now: i64) {
    const OFF: Duration = Duration::from_secs(300);
    let gate = Gate::default();
    let real = SystemClock.now();
    let ahead_address = receiver(&ahead, real.saturating_add(OFF), &gate).await;
    let behind_address = receiver(&behind, real.saturating_sub(OFF), &gate).await;
    let deliver = |address: &str| {
        let delivery = crate::support::request(address, standard("evt_1", b"{}"), "{}");
        async move { send(&client(false), delivery).await }
    };
    let running = tokio::spawn(deliver(&ahead_address));
    let stands = || receipt(&*behind, "default", "test", "evt_1");
    until("it runs", || async { stands().await.is_some() }).await;
    let began = Instant::now();
    assert_eq!(deliver(&behind_address).await.status, StatusCode::CONFLICT);
    assert!(began.elapsed() < Duration::from_secs(20));

    let receipt = stands().await.expect("a receipt");
    let apart = receipt.first_seen.as_micros() - now;
    assert!(apart.abs() < 60_000_000, "the time is the database's: {apart}");
    gate.open();
    assert_eq!(running.await.expect("no panic").status, StatusCode::OK);
    let repeat = deliver(&behind_address).await;
    assert_eq!((repeat.status, repeat.is_replay()), (StatusCode::OK, true));
    assert_eq!(stands().await.map(|receipt| receipt.state), Some(ReceiptState::Succeeded));
}

async fn receiver(store: &Arc<dyn InboxStore>, clock: Timestamp, gate: &Gate) -> String {
    let verifier = verifier(Scheme::standard(), SECRET).with_clock(Arc::new(ManualClock::new(clock)));
    let verifier = verifier.with_window(ReplayWindow::symmetric(Duration::from_secs(600)));
    let verify = countersign::receive::VerifyLayer::new("test", verifier).expect("a layer");
    let dedup = DedupLayer::builder(Arc::clone(store)).lease(Duration::from_secs(30)).build().expect("a layer");
    let gate = gate.clone();
    let handler = move || {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            "done"
        }
    };
    let layer = ReceiveLayer::new(verify, dedup).expect("a layer");
    format!("http://{}/", serve(Router::new().route("/", post(handler).layer(layer))).await)
}
