//! What only the store on MySQL and MariaDB promises.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use countersign::store::{
    Accepted, Claim, Failure, InboxStore as _, ListFilter, MySqlStore, ReceiptState, Reserved, Settled, StoreError,
    Unclear,
};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::task::JoinSet;

use super::{OLD, acquire, done, finished, many_processors, many_writers, proxy, request, server, taken_in, unique};

/// An empty database of a test's own.
pub(crate) struct Database {
    pub(crate) url: String,
    name: String,
}

impl Database {
    pub(crate) async fn create() -> Option<Self> {
        let server = server("COUNTERSIGN_TEST_MYSQL")?;
        let name = unique();
        let mut connection = connect(&server).await;
        // Folding as far as a database can: none of it may reach the ids.
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.expect("a database");
        Some(Self { url: format!("{server}/{name}"), name })
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let mut connection = connect(&self.url).await;
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect("it is done");
        connection.close().await.expect("the connection closes");
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut connection = connect(&self.url).await;
        let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.expect("a row");
        row.try_get(0).expect("a number")
    }

    pub(crate) async fn now(&self) -> i64 {
        self.number("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))").await
    }

    /// Moves all that is stored into the past, which is what time does.
    pub(crate) async fn age(&self, span: Duration) {
        self.shift(i64::try_from(span.as_micros()).expect("a short time")).await;
    }

    /// The other way round, as if the clock had been set back.
    pub(crate) async fn make_younger(&self, span: Duration) {
        self.shift(-i64::try_from(span.as_micros()).expect("a short time")).await;
    }

    async fn shift(&self, micros: i64) {
        self.execute(&format!(
            "UPDATE countersign_inbox SET first_seen = first_seen - ({micros}), updated = updated - ({micros}),
                 lease_until = lease_until - ({micros}), due = due - ({micros});
             UPDATE countersign_inbox_failure SET at = at - ({micros});
             UPDATE countersign_outbox SET created = created - ({micros}), since = since - ({micros}),
                 updated = updated - ({micros}), due = due - ({micros}), claim_at = claim_at - ({micros});
             UPDATE countersign_attempt SET at = at - ({micros});
             UPDATE countersign_endpoint SET paused_until = paused_until - ({micros}), disabled_since = disabled_since - ({micros}),
                 failing_since = failing_since - ({micros}), created = created - ({micros}), updated = updated - ({micros});"
        ))
        .await;
    }

    pub(crate) async fn open(&self) -> MySqlStore {
        MySqlStore::connect(&self.url).await.expect("the store opens")
    }

    /// The URL through a proxy.
    pub(crate) async fn behind_proxy(&self) -> (String, std::sync::Arc<proxy::Faults>) {
        let (user, host, name) = self
            .url
            .split_once('@')
            .and_then(|(user, rest)| rest.split_once('/').map(|(host, name)| (user, host, name)))
            .expect("a URL");
        let (address, faults) = proxy::start(host).await;
        (format!("{user}@{address}/{name}"), faults)
    }
}

pub(crate) async fn connect(url: &str) -> MySqlConnection {
    url.parse::<MySqlConnectOptions>().expect("a URL").connect().await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_writers_on_neighbouring_ids_never_fail_while_a_purge_runs() {
    let Some(database) = Database::create().await else { return };
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(database.open().await);
    }
    finished(&stores[0], 400).await;
    database.age(OLD).await;
    many_writers(&stores, 64, 200).await;
    assert_eq!(database.number("SELECT count(*) FROM countersign_inbox").await, 200, "what was old is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c102_twenty_stores_that_open_at_once_all_come_up() {
    let Some(database) = Database::create().await else { return };
    let mut opening = JoinSet::new();
    for _ in 0..20 {
        let url = database.url.clone();
        opening.spawn(async move { MySqlStore::options(&url).with_writers(1).open().await.expect("the store opens") });
    }
    let stores = opening.join_all().await;
    assert_eq!(
        stores.iter().filter(|store| store.applied_migrations() == [1, 2, 3]).count(),
        1,
        "one of them migrates"
    );
    for store in stores {
        assert_eq!(store.schema_version().await.expect("an answer"), 3);
    }
}

/// Statements that change a schema commit at once here: a process that was killed leaves some of them done.
#[tokio::test]
async fn c102_a_migration_that_was_cut_off_is_told_and_repeated() {
    let Some(database) = Database::create().await else { return };
    database.open().await.close().await.expect("the store closes");
    database.execute("DROP TABLE countersign_inbox_failure, countersign_attempt; UPDATE countersign_schema SET applied_at = NULL").await;
    let Err(StoreError::Schema(text)) = MySqlStore::options(&database.url).with_migrate(false).open().await else {
        panic!("it was opened");
    };
    assert!(text.contains("cut off") && text.contains("countersign migrate"), "{text}");
    let store = database.open().await;
    assert_eq!(store.applied_migrations(), [1, 2, 3]);
    let lease = acquire(&store, request(1)).await;
    let failure = Failure { error: "down".into(), result: None, dead: None, request: None, retry_in: None };
    assert_eq!(store.fail(lease, failure).await.expect("an answer"), Settled::Done);
}

#[tokio::test]
async fn a_schema_is_refused_where_it_is_absent_or_newer() {
    let Some(database) = Database::create().await else { return };
    let Err(StoreError::Schema(text)) = MySqlStore::options(&database.url).with_migrate(false).open().await else {
        panic!("it was opened");
    };
    assert!(text.contains("countersign migrate"), "{text}");
    database.open().await.close().await.expect("the store closes");
    database.execute("INSERT INTO countersign_schema (version, breaking, applied_at) VALUES (7, FALSE, 0)").await;
    let store = MySqlStore::options(&database.url).with_migrate(false).open().await.expect("an addition is no harm");
    assert_eq!(store.schema_version().await.expect("an answer"), 7);
    database.execute("UPDATE countersign_schema SET breaking = TRUE WHERE version = 7").await;
    let Err(StoreError::Schema(text)) = MySqlStore::connect(&database.url).await else { panic!("it was opened") };
    assert!(text.contains("migration 7") && text.contains("newer"), "{text}");
}

/// The pool sets all its connections to what an application may need, and the store goes by none of it.
#[tokio::test]
async fn c095_settings_of_the_pool_do_not_matter() {
    let Some(database) = Database::create().await else { return };
    let pool = MySqlPoolOptions::new().max_connections(2).after_connect(|connection, _| {
        Box::pin(async move {
            let odd = "SET SESSION time_zone = '+09:00', sql_mode = '', lc_messages = 'de_DE',
                transaction_isolation = 'SERIALIZABLE', transaction_read_only = 1";
            // MariaDB 10.11 knows the last two by other names.
            let older =
                "SET SESSION time_zone = '+09:00', sql_mode = '', lc_messages = 'de_DE', tx_isolation = 'SERIALIZABLE'";
            if sqlx::raw_sql(odd).execute(&mut *connection).await.is_err() {
                sqlx::raw_sql(older).execute(connection).await?;
            }
            Ok(())
        })
    });
    // The lists are read on the pool's own connections.
    database.open().await.close().await.expect("the store closes");
    let pool = pool.connect(&database.url).await.expect("a pool");
    let store = MySqlStore::from_pool(pool).open().await.expect("the store opens");
    let lease = acquire(&store, request(1)).await;
    let receipt = store.find(lease.key.clone()).await.expect("an answer").expect("it is there");
    let apart = receipt.first_seen.as_micros() - database.now().await;
    assert!(apart.abs() < 60_000_000, "the database's clock, in UTC: {apart}");
    assert_eq!(receipt.lease_until, Some(receipt.first_seen.saturating_add(Duration::from_secs(60))));
    assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
    assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Succeeded(_))));
    assert_eq!(store.list(ListFilter::default()).await.expect("an answer").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_fails_does_not_fail_its_batch() {
    let Some(database) = Database::create().await else { return };
    let store = database.open().await;
    database
        .execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON countersign_inbox FOR EACH ROW
             IF NEW.`key` = 'evt_7' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'nicht diese'; END IF",
        )
        .await;
    let mut asking = JoinSet::new();
    for number in 0..32 {
        let store = store.clone();
        asking.spawn(async move { (number, store.reserve(request(number)).await) });
    }
    for (number, answer) in asking.join_all().await {
        match answer {
            Ok(Reserved::Acquired(_)) => assert_ne!(number, 7),
            other => assert!(number == 7 && matches!(other, Err(StoreError::Rejected(_))), "{other:?}"),
        }
    }
}

/// A handler's own transaction may have the receipt locked for as long as it takes.
#[tokio::test]
async fn a_repeat_does_not_wait_for_a_receipt_that_a_transaction_holds() {
    let Some(database) = Database::create().await else { return };
    let store = MySqlStore::options(&database.url).with_writers(1).open().await.expect("the store opens");
    let lease = acquire(&store, request(1)).await;
    // By its whole key, as a handler does: then no gap beside it is locked, whatever the isolation level.
    let lock = "UPDATE countersign_inbox SET error = 'mine'
        WHERE `key` = 'evt_1' AND source = 'shop' AND consumer = 'orders'";
    let mut beside = connect(&database.url).await;
    let mut holding = beside.begin().await.expect("a transaction");
    sqlx::query(lock).execute(&mut *holding).await.expect("a lock");
    let began = Instant::now();
    assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Processing(_))));
    assert_eq!(acquire(&store, request(2)).await.attempt, 1);
    assert_eq!(store.renew(lease.clone(), Duration::ZERO).await.expect("an answer"), Settled::Done);
    assert!(began.elapsed() < Duration::from_secs(3), "it waited for {:?}", began.elapsed());
    holding.rollback().await.expect("it ends");
    database.age(Duration::from_secs(60)).await;
    let mut holding = beside.begin().await.expect("a transaction");
    sqlx::query(lock).execute(&mut *holding).await.expect("a lock");
    let began = Instant::now();
    assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Processing(_))), "it has lapsed, and is in hand");
    assert!(began.elapsed() < Duration::from_secs(3), "it waited for {:?}", began.elapsed());
    holding.rollback().await.expect("it ends");
    assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c080_processors_on_four_stores_run_each_event_once_and_in_order() {
    let Some(database) = Database::create().await else { return };
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(database.open().await);
    }
    many_processors(&stores, 90).await;
}

/// What a handler's own transaction has locked is neither waited for nor promised.
#[tokio::test]
async fn what_is_in_hand_is_passed_over_by_claims_and_not_taken_in() {
    let Some(database) = Database::create().await else { return };
    let store = MySqlStore::options(&database.url).with_writers(1).open().await.expect("the store opens");
    let _runs = acquire(&store, request(1)).await;
    assert_eq!(store.accept(taken_in(2)).await.expect("an answer"), Accepted::Stored);
    let claim = || Claim {
        consumer: request(1).key.consumer,
        limit: 9,
        lease: Duration::ZERO,
        max_attempts: 20,
        unclear: Unclear::RunAgain,
    };
    let mut beside = connect(&database.url).await;
    let mut holding = beside.begin().await.expect("a transaction");
    for number in [1, 2] {
        let lock = format!(
            "UPDATE countersign_inbox SET error = 'mine'
             WHERE `key` = 'evt_{number}' AND source = 'shop' AND consumer = 'orders'"
        );
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *holding).await.expect("a lock");
    }
    let began = Instant::now();
    assert!(store.claim(claim()).await.expect("an answer").is_empty());
    assert_eq!(store.accept(taken_in(2)).await.expect("an answer"), Accepted::Known, "it is owed already");
    let refused = store.accept(taken_in(1)).await.expect_err("it cannot be promised now");
    assert!(refused.is_transient(), "{refused}");
    assert_eq!(store.accept(taken_in(3)).await.expect("an answer"), Accepted::Stored);
    assert!(began.elapsed() < Duration::from_secs(3), "it waited for {:?}", began.elapsed());
    holding.rollback().await.expect("it ends");
    assert_eq!(store.accept(taken_in(1)).await.expect("an answer"), Accepted::Known);
    assert_eq!(store.claim(claim()).await.expect("an answer").len(), 2, "the first one still has its lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deferred_events_survive_commits_whose_answer_was_lost() {
    let Some(database) = Database::create().await else { return };
    let (url, faults) = database.behind_proxy().await;
    let store = MySqlStore::options(&url).with_writers(1).open().await.expect("the store opens");
    store.check().await.expect("it works");
    let lose = || faults.lose_answer_to_commit.store(true, Ordering::SeqCst);
    let consumer = request(1).key.consumer;
    let claim =
        Claim { consumer, limit: 9, lease: Duration::from_secs(60), max_attempts: 20, unclear: Unclear::RunAgain };

    lose();
    assert_eq!(store.accept(taken_in(1)).await.expect("an answer"), Accepted::Known);
    let claimed = store.claim(claim.clone()).await.expect("an answer").pop().expect("it is due");
    lose();
    assert_eq!(store.release(claimed.lease.clone()).await.expect("an answer"), Settled::Done);
    assert_eq!(store.release(claimed.lease).await.expect("an answer"), Settled::LeaseLost);

    lose();
    assert!(store.claim(claim.clone()).await.expect("an answer").is_empty(), "what it took is not found again");
    database.age(Duration::from_secs(60)).await;
    let claimed = store.claim(claim).await.expect("an answer").pop().expect("its lease ran out");
    assert_eq!((claimed.lease.attempt, faults.lost.load(Ordering::SeqCst)), (2, 3));
    assert_eq!(store.complete(claimed.lease, done()).await.expect("an answer"), Settled::Done);
}

/// C054 and C103: a pool of one, slow answers, callers that leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c054_callers_that_leave_a_slow_database_never_poison_a_pool_of_one() {
    let Some(database) = Database::create().await else { return };
    let (url, faults) = database.behind_proxy().await;
    let pool = MySqlPoolOptions::new().max_connections(1).connect(&url).await.expect("a pool");
    let store = MySqlStore::from_pool(pool.clone()).with_writers(1).open().await.expect("the store opens");
    faults.latency.store(20, Ordering::SeqCst);
    for number in 0..6 {
        for patience in [5, 30, 70] {
            let _ = tokio::time::timeout(Duration::from_millis(patience), store.reserve(request(number))).await;
            let _ = tokio::time::timeout(Duration::from_millis(patience), store.find(request(number).key)).await;
            let _ = tokio::time::timeout(Duration::from_millis(patience), store.list(ListFilter::default())).await;
        }
        let lease = acquire(&store, request(format!("kept_{number}"))).await;
        assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
    }
    faults.latency.store(0, Ordering::SeqCst);
    let kept = "SELECT count(*) FROM countersign_inbox WHERE state = 'succeeded'";
    assert_eq!(database.number(kept).await, 6, "another connection sees them");
    store.check().await.expect("it works");
    let row = sqlx::raw_sql("SELECT count(*) FROM countersign_inbox").fetch_one(&pool).await.expect("a row");
    assert!(row.try_get::<i64, _>(0).expect("a number") >= 6, "the application's one connection is its own");
    let open = "SELECT count(*) FROM information_schema.innodb_trx
        JOIN information_schema.processlist ON trx_mysql_thread_id = processlist.id WHERE db = DATABASE()";
    assert_eq!(database.number(open).await, 0, "no transaction is left open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_recognised() {
    let Some(database) = Database::create().await else { return };
    let (url, faults) = database.behind_proxy().await;
    let store = MySqlStore::options(&url).with_writers(1).open().await.expect("the store opens");
    store.check().await.expect("it works");
    let lose = || faults.lose_answer_to_commit.store(true, Ordering::SeqCst);

    lose();
    let lease = acquire(&store, request(1)).await;
    assert_eq!((lease.attempt, faults.lost.load(Ordering::SeqCst)), (1, 1));
    lose();
    let failure = Failure { error: "down".into(), result: None, dead: None, request: None, retry_in: None };
    assert_eq!(store.fail(lease.clone(), failure).await.expect("an answer"), Settled::Done);
    let receipt = store.find(lease.key.clone()).await.expect("an answer").expect("it is there");
    assert_eq!((receipt.state, receipt.failures.len()), (ReceiptState::Failed, 1));
    lose();
    let second = acquire(&store, request(1)).await;
    assert_eq!(second.attempt, 2);
    lose();
    assert_eq!(store.renew(second.clone(), Duration::from_secs(60)).await.expect("an answer"), Settled::Done);
    lose();
    assert_eq!(store.complete(second.clone(), done()).await.expect("an answer"), Settled::Done);
    assert_eq!(faults.lost.load(Ordering::SeqCst), 5);

    // A lease is settled once all the same.
    assert_eq!(store.complete(second, done()).await.expect("an answer"), Settled::LeaseLost);
    assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::LeaseLost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_under_load_lose_nothing() {
    let Some(database) = Database::create().await else { return };
    let store = database.open().await;
    let mut running = JoinSet::new();
    for task in 0..8 {
        let store = store.clone();
        running.spawn(async move {
            for number in 0..40 {
                let lease = acquire(&store, request(format!("{task}_{number}"))).await;
                assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
            }
        });
    }
    let mut beside = connect(&database.url).await;
    for _ in 0..3 {
        let others = format!(
            "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
            database.name
        );
        for row in sqlx::raw_sql(AssertSqlSafe(others)).fetch_all(&mut beside).await.expect("rows") {
            let kill = format!("KILL {}", row.try_get::<i64, _>(0).expect("a number"));
            // It may have gone by itself.
            let _ = sqlx::raw_sql(AssertSqlSafe(kill)).execute(&mut beside).await;
        }
    }
    running.join_all().await;
    assert_eq!(database.number("SELECT count(*) FROM countersign_inbox WHERE state = 'succeeded'").await, 320);
    assert_eq!(database.number("SELECT max(attempts) FROM countersign_inbox").await, 1);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_an_error_without_the_password() {
    let Err(error) = MySqlStore::connect("mysql://u:hunter2@127.0.0.1:1/d").await else { panic!("it was opened") };
    assert!(matches!(error, StoreError::Unavailable { .. }) && error.is_transient(), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}
