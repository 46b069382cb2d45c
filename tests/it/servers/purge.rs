//! One purges at a time, however many processes try.

use std::time::{Duration, Instant};

use countersign::store::{InboxStore, PostgresStore, Purged};
use tokio::task::JoinSet;

use super::{OLD, SOON, acquire, finished, mysql, postgres, request};

/// What another process does while it purges. Which locks these are is fixed: versions that run side by side share them.
const POSTGRES_LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(7165916604736876912)";
const MYSQL_LOCK: &str = "DO GET_LOCK(CONCAT('countersign:purge:', MD5(DATABASE())), 9)";

#[tokio::test]
async fn a_second_purger_on_postgres_returns_at_once_with_nothing() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    finished(&store, 300).await;
    database.age(OLD).await;
    let mut another = postgres::connect(&database.url).await;
    sqlx::raw_sql(POSTGRES_LOCK).execute(&mut another).await.expect("a lock");
    nothing_is_purged(&store).await;
    if let Some(url) = database.through_pgbouncer() {
        let pooled = PostgresStore::options(&url).with_prepared_statements(false).open().await.expect("it opens");
        nothing_is_purged(&pooled).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut another).await.expect("the lock is free");
        assert_eq!(pooled.purge(SOON, 100).await.expect("an answer").keys, 100);
    } else {
        sqlx::raw_sql("ROLLBACK").execute(&mut another).await.expect("the lock is free");
        assert_eq!(store.purge(SOON, 100).await.expect("an answer").keys, 100);
    }
    assert_eq!(store.purge(SOON, 1_000).await.expect("an answer").keys, 200);
}

#[tokio::test]
async fn a_second_purger_on_mysql_returns_at_once_with_nothing() {
    let Some(database) = mysql::Database::create().await else { return };
    let store = database.open().await;
    finished(&store, 300).await;
    database.age(OLD).await;
    let mut another = mysql::connect(&database.url).await;
    sqlx::raw_sql(MYSQL_LOCK).execute(&mut another).await.expect("a lock");
    nothing_is_purged(&store).await;
    sqlx::raw_sql("DO RELEASE_ALL_LOCKS()").execute(&mut another).await.expect("the lock is free");
    assert_eq!(store.purge(SOON, 1_000).await.expect("an answer").keys, 300);
    // It went with the transaction, not with the connection, which is still open.
    let free = "SELECT IS_FREE_LOCK(CONCAT('countersign:purge:', MD5(DATABASE())))";
    assert_eq!(database.number(free).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_purgers_on_postgres_remove_each_receipt_once() {
    let Some(database) = postgres::Database::create().await else { return };
    let stores = [database.open().await, database.open().await, database.open().await];
    finished(&stores[0], 900).await;
    database.age(OLD).await;
    assert_eq!(purge_together(&stores).await, 900);
    assert_eq!(database.number("SELECT count(*) FROM countersign_inbox").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_purgers_on_mysql_remove_each_receipt_once() {
    let Some(database) = mysql::Database::create().await else { return };
    let stores = [database.open().await, database.open().await, database.open().await];
    finished(&stores[0], 900).await;
    database.age(OLD).await;
    assert_eq!(purge_together(&stores).await, 900);
    assert_eq!(database.number("SELECT count(*) FROM countersign_inbox").await, 0);
}

/// A purge has a connection of its own: a step that waits for a lock keeps no delivery waiting.
#[tokio::test]
async fn deliveries_do_not_wait_for_a_purge_that_hangs() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    finished(&store, 10).await;
    database.age(OLD).await;
    let mut another = postgres::connect(&database.url).await;
    // Who changes the table's history in hand keeps the purge from it, and no reservation.
    let lock = "BEGIN; LOCK TABLE countersign_inbox_failure IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut another).await.expect("a lock");
    let purging = tokio::spawn({
        let store = store.clone();
        async move { store.purge(SOON, 1_000).await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'DELETE%'";
    let deadline = Instant::now() + Duration::from_secs(20);
    while database.number(waiting).await == 0 {
        assert!(Instant::now() < deadline, "the purge does not wait");
    }
    let began = Instant::now();
    assert_eq!(acquire(&store, request(1)).await.attempt, 1);
    assert!(began.elapsed() < Duration::from_secs(3), "it waited for {:?}", began.elapsed());
    sqlx::raw_sql("ROLLBACK").execute(&mut another).await.expect("the lock is free");
    assert_eq!(purging.await.expect("no panic").expect("an answer").keys, 10);
}

async fn nothing_is_purged(store: &dyn InboxStore) {
    let began = Instant::now();
    assert_eq!(store.purge(SOON, 1_000).await.expect("an answer"), Purged::default());
    assert!(began.elapsed() < Duration::from_secs(3), "it waited for {:?}", began.elapsed());
}

/// How many receipts all of them removed.
async fn purge_together<S: InboxStore + Clone>(stores: &[S]) -> u64 {
    let mut purging = JoinSet::new();
    for store in stores {
        let store = store.clone();
        purging.spawn(async move {
            let mut keys = 0;
            // Whoever meets another one has nothing to do, and looks again until there is nothing left.
            for _ in 0..40 {
                keys += store.purge(SOON, 250).await.expect("no error").keys;
            }
            keys
        });
    }
    purging.join_all().await.into_iter().sum()
}
