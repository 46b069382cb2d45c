//! The order within an ordering key, where two processes accept at the same moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::Name;
use countersign::store::{Accept, Accepted, Claim, Claimed, InboxStore, Settled, Unclear};
use tokio::task::JoinSet;

use super::{done, mysql, postgres, request, taken_in};

/// The first event's row is made, and its commit is kept waiting. Nobody may run the second one meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_on_postgres_is_not_run_before_one_that_was_accepted_earlier_and_commits_later() {
    let Some(database) = postgres::Database::create().await else { return };
    let stores = [database.open().await, database.open().await, database.open().await];
    let stores = stores.map(|store| Arc::new(store) as Arc<dyn InboxStore>);
    database
        .execute(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_advisory_xact_lock(42);
                 RETURN NEW;
             END $$;
             CREATE TRIGGER hold AFTER INSERT ON countersign_inbox FOR EACH ROW WHEN (NEW.key = 'evt_1')
                 EXECUTE FUNCTION hold();",
        )
        .await;
    let mut gate = postgres::connect(&database.url).await;
    sqlx::raw_sql("SELECT pg_advisory_lock(42)").execute(&mut gate).await.expect("a lock");
    let waiting = async || {
        let waiting = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
            WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted";
        database.number(waiting).await
    };
    let open = async { sqlx::raw_sql("SELECT pg_advisory_unlock(42)").execute(&mut gate).await.map(drop) };
    first_then_second(&stores, waiting, open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_on_mysql_is_not_run_before_one_that_was_accepted_earlier_and_commits_later() {
    let Some(database) = mysql::Database::create().await else { return };
    let stores = [database.open().await, database.open().await, database.open().await];
    let stores = stores.map(|store| Arc::new(store) as Arc<dyn InboxStore>);
    database
        .execute(
            "CREATE TRIGGER hold AFTER INSERT ON countersign_inbox FOR EACH ROW
             IF NEW.`key` = 'evt_1' THEN SET @held = GET_LOCK(CONCAT('gate:', DATABASE()), 30); END IF",
        )
        .await;
    let mut gate = mysql::connect(&database.url).await;
    sqlx::raw_sql("DO GET_LOCK(CONCAT('gate:', DATABASE()), 0)").execute(&mut gate).await.expect("a lock");
    let waiting = async || {
        let waiting =
            "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'";
        database.number(waiting).await
    };
    let open = async { sqlx::raw_sql("DO RELEASE_ALL_LOCKS()").execute(&mut gate).await.map(drop) };
    first_then_second(&stores, waiting, open).await;
}

/// `waiting` says how many wait for a lock; `open` lets the first one commit.
async fn first_then_second(
    [first, second, claiming]: &[Arc<dyn InboxStore>; 3],
    waiting: impl AsyncFn() -> i64,
    open: impl Future<Output = Result<(), sqlx::Error>>,
) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let accept = |store: &Arc<dyn InboxStore>, number| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.accept(ordered(number)).await.expect("an answer") })
    };
    let accepting = accept(first, 1);
    while waiting().await < 1 {
        assert!(Instant::now() < deadline && !accepting.is_finished(), "the first one is not held up");
    }
    let behind = accept(second, 2);
    // It waits for the first one; or, where nothing keeps the order, it is done.
    while waiting().await < 2 && !behind.is_finished() {
        assert!(Instant::now() < deadline, "the second one does neither wait nor end");
    }
    assert_eq!(claim(&**claiming, 9).await.len(), 0, "the second event would run before the first one");
    open.await.expect("the gate opens");
    assert_eq!(accepting.await.expect("no panic"), Accepted::Stored);
    assert_eq!(behind.await.expect("no panic"), Accepted::Stored);
    for id in ["evt_1", "evt_2"] {
        let claimed = claim(&**claiming, 9).await;
        assert_eq!(claimed.iter().map(|claimed| claimed.lease.key.key.as_str()).collect::<Vec<_>>(), [id]);
        for Claimed { lease, .. } in claimed {
            assert_eq!(claiming.complete(lease, done()).await.expect("an answer"), Settled::Done);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_on_postgres_that_are_accepted_while_others_run_go_one_by_one() {
    let Some(database) = postgres::Database::create().await else { return };
    let stores = [database.open().await, database.open().await, database.open().await];
    accepted_while_others_run(&stores.map(|store| Arc::new(store) as Arc<dyn InboxStore>)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_on_mysql_that_are_accepted_while_others_run_go_one_by_one() {
    let Some(database) = mysql::Database::create().await else { return };
    let stores = [database.open().await, database.open().await, database.open().await];
    accepted_while_others_run(&stores.map(|store| Arc::new(store) as Arc<dyn InboxStore>)).await;
}

/// All stores accept events of one ordering key, and all of them claim. At no moment do two of them run.
async fn accepted_while_others_run(stores: &[Arc<dyn InboxStore>]) {
    const EVENTS: u32 = 120;
    let mut accepting = JoinSet::new();
    for number in 0..EVENTS {
        let store = Arc::clone(&stores[usize::try_from(number).expect("small") % stores.len()]);
        accepting.spawn(async move { store.accept(ordered(number)).await.expect("an answer") });
    }
    let left = Arc::new(std::sync::atomic::AtomicU32::new(EVENTS));
    let alone = Arc::new(tokio::sync::Mutex::new(()));
    let mut running = JoinSet::new();
    for store in stores.iter().cloned() {
        let (left, alone) = (Arc::clone(&left), Arc::clone(&alone));
        running.spawn(async move {
            while left.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                let claimed = claim(&*store, 5).await;
                assert!(claimed.len() <= 1, "two of one ordering key");
                for Claimed { lease, .. } in claimed {
                    let runs = alone.try_lock().expect("another one runs");
                    tokio::task::yield_now().await;
                    left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(runs);
                    assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
                }
            }
        });
    }
    assert!(accepting.join_all().await.into_iter().all(|accepted| accepted == Accepted::Stored));
    running.join_all().await;
}

fn ordered(number: u32) -> Accept {
    Accept { ordering_key: Some(Name::new("one by one").expect("a name")), ..taken_in(number) }
}

async fn claim(store: &dyn InboxStore, limit: u32) -> Vec<Claimed> {
    let consumer = request(0).key.consumer;
    let claim = Claim { consumer, limit, lease: Duration::from_secs(60), max_attempts: 20, unclear: Unclear::RunAgain };
    store.claim(claim).await.expect("an answer")
}
