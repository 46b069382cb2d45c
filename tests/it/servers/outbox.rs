//! What only the outboxes on servers promise: transactions of the caller's, clocks, notifications, and several writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign::store::{
    AttemptReport, Claim, ClaimMessages, ClaimedMessage, Endpoint, Enqueue, Fate, InboxStore, Message, MessageKey,
    MessageState, OutboxConnection, OutboxStore, Settled, Settlement, StoreError, TypePattern, Unclear,
};
use countersign::{EventId, Name};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{mysql, postgres};

/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rolled back and committed, enqueued and published, known and unknown: on an open transaction of the caller's.
macro_rules! c074 {
    ($name:ident, $room:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let store = database.open().await;
            endpoints(&store).await;
            let mut connection = $room::connect(&database.url).await;
            let two = [new("a", "msg_1"), new("b", "msg_1")];

            let mut tx = connection.begin().await.expect("a transaction");
            assert!(tx.enqueue(&two).await.expect("an answer").iter().all(|enqueued| enqueued.created));
            tx.rollback().await.expect("it is rolled back");
            assert!(claim(&store, 9).await.is_empty());

            let mut tx = connection.begin().await.expect("a transaction");
            assert!(tx.enqueue(&two).await.expect("an answer").iter().all(|enqueued| enqueued.created));
            assert!(tx.enqueue(&two).await.expect("an answer").iter().all(|enqueued| !enqueued.created));
            let unknown = tx.enqueue(&[new("a", "msg_2"), new("nobody", "msg_2")]).await;
            assert!(matches!(unknown, Err(StoreError::Rejected(text)) if text.contains("nobody")));
            let published = tx.publish(&message("msg_3", vec![0xff; 2_000_000])).await.expect("an answer");
            assert_eq!(published.iter().map(|enqueued| enqueued.endpoint.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            assert!(claim(&store, 9).await.is_empty(), "not before the commit");
            tx.commit().await.expect("it is committed");
            let claimed = claim(&store, 9).await;
            assert_eq!(claimed.len(), 4);
            assert_eq!(claimed.iter().filter(|claimed| claimed.message.payload.len() == 2_000_000).count(), 2);
            let soon = Duration::from_secs(50);
            assert!(claimed.iter().all(|claimed| claimed.age < soon), "its age is by the database's clock");
        }
    };
}

c074!(c074_on_postgres_a_message_is_part_of_the_callers_transaction, postgres);
c074!(c074_on_mysql_a_message_is_part_of_the_callers_transaction, mysql);

/// A transaction that was begun earlier and commits later is found: what is claimed goes by state, not by number.
macro_rules! c072 {
    ($name:ident, $room:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let store = database.open().await;
            endpoints(&store).await;
            let mut connection = $room::connect(&database.url).await;
            let mut early = connection.begin().await.expect("a transaction");
            early.enqueue(&[new("a", "msg_1")]).await.expect("an answer");
            store.enqueue(vec![new("a", "msg_2")]).await.expect("an answer");
            let [second] = &claim(&store, 9).await[..] else { panic!("one is committed") };
            assert_eq!(second.message.id.as_str(), "msg_2");
            early.commit().await.expect("it is committed");
            let [first] = &claim(&store, 9).await[..] else { panic!("the other one") };
            assert_eq!(first.message.id.as_str(), "msg_1");
        }
    };
}

c072!(c072_on_postgres_what_commits_late_is_found, postgres);
c072!(c072_on_mysql_what_commits_late_is_found, mysql);

/// Keyed messages under several dispatchers: in order, one by one, none held up for good. Whether a postponed one is looked
/// at again as soon as its turn comes shows in the time that this takes.
macro_rules! in_order {
    ($name:ident, $room:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            const KEYS: usize = 6;
            const EACH: usize = 25;
            let Some(database) = $room::Database::create().await else { return };
            let stores = [database.open().await, database.open().await, database.open().await];
            endpoints(&stores[0]).await;
            let mut all = Vec::new();
            for number in 0..EACH {
                for key in 0..KEYS {
                    let mut new = new("a", &format!("msg_{key}_{number}"));
                    new.message.ordering_key = Some(name(&format!("key {key}")));
                    all.push(new);
                }
            }
            stores[0].enqueue(all).await.expect("an answer");
            let next: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
            let done = Arc::new(AtomicUsize::new(0));
            let mut running = JoinSet::new();
            for store in stores {
                let (next, done) = (Arc::clone(&next), Arc::clone(&done));
                running.spawn(async move {
                    while done.load(Ordering::SeqCst) < KEYS * EACH {
                        for claimed in claim(&store, 4).await {
                            let id = claimed.message.id.as_str().to_owned();
                            let mut parts = id.split('_').skip(1).map(|part| part.parse::<usize>().expect("a number"));
                            let (key, number) = (parts.next().expect("a key"), parts.next().expect("a number"));
                            assert_eq!(next[key].fetch_add(1, Ordering::SeqCst), number, "in order");
                            assert_eq!(settle(&store, claimed, Fate::Delivered).await, Settled::Done);
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            timeout(PATIENCE, running.join_all()).await.expect("each one's turn comes");
        }
    };
}

in_order!(on_postgres_messages_of_one_key_go_in_order_under_three_dispatchers, postgres);
in_order!(on_mysql_messages_of_one_key_go_in_order_under_three_dispatchers, mysql);

/// Whoever removes an endpoint waits for a transaction that has enqueued for it, and finds what that made.
macro_rules! removed_meanwhile {
    ($name:ident, $room:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let store = Arc::new(database.open().await);
            endpoints(&*store).await;
            let mut connection = $room::connect(&database.url).await;
            let mut tx = connection.begin().await.expect("a transaction");
            tx.enqueue(&[new("a", "msg_1")]).await.expect("an answer");
            tx.publish(&message("msg_2", b"{}".to_vec())).await.expect("an answer");
            let removing = Arc::clone(&store);
            let mut removing = tokio::spawn(async move { removing.remove_endpoint(name("a")).await });
            // Where nothing keeps it waiting it is done by now.
            let done = timeout(Duration::from_millis(500), &mut removing).await;
            tx.commit().await.expect("it is committed");
            let removed = match done {
                Ok(removed) => removed,
                Err(_elapsed) => timeout(PATIENCE, removing).await.expect("it waits for nothing else"),
            };
            assert!(removed.expect("no panic").expect("an answer"));
            for id in ["msg_1", "msg_2"] {
                let key = MessageKey { endpoint: name("a"), id: EventId::new(id).expect("an id") };
                let entry = store.find_message(key).await.expect("an answer").expect("it is there");
                assert_eq!(entry.state, MessageState::DeadLetter, "{id} would wait for ever");
            }
        }
    };
}

removed_meanwhile!(on_postgres_no_message_is_left_to_an_endpoint_that_is_removed_at_that_moment, postgres);
removed_meanwhile!(on_mysql_no_message_is_left_to_an_endpoint_that_is_removed_at_that_moment, mysql);

/// The second one's enqueueing waits for the first one's commit; everything else goes on meanwhile.
#[tokio::test]
async fn on_postgres_what_commits_late_is_first_still_in_its_order() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = Arc::new(database.open().await);
    endpoints(&*store).await;
    let mut connection = postgres::connect(&database.url).await;
    let mut early = connection.begin().await.expect("a transaction");
    early.enqueue(&[in_order("msg_1")]).await.expect("an answer");
    let late = Arc::clone(&store);
    let late = tokio::spawn(async move { late.enqueue(vec![in_order("msg_2")]).await });
    // Where nothing keeps it waiting it is done by now.
    while database.number(ADVISORY_WAITS).await == 0 && !late.is_finished() {
        tokio::task::yield_now().await;
    }
    let other = timeout(PATIENCE, store.enqueue(vec![new("a", "msg_3")])).await.expect("it does not wait");
    assert!(other.is_ok());
    let claimed = timeout(PATIENCE, claim(&*store, 9)).await.expect("it does not wait");
    assert_eq!(claimed.iter().map(|claimed| claimed.message.id.as_str()).collect::<Vec<_>>(), ["msg_3"]);
    early.commit().await.expect("it is committed");
    timeout(PATIENCE, late).await.expect("its turn comes").expect("no panic").expect("an answer");
    for id in ["msg_1", "msg_2"] {
        let [claimed] = &claim(&*store, 9).await[..] else { panic!("one at a time") };
        assert_eq!(claimed.message.id.as_str(), id);
        assert_eq!(settle(&*store, claimed.clone(), Fate::Delivered).await, Settled::Done);
    }
}

const ADVISORY_WAITS: &str = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted";

/// The first message is made by one store, and its commit is kept waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mysql_what_one_store_commits_late_is_first_still_in_its_order() {
    let Some(database) = mysql::Database::create().await else { return };
    let [first, second, claiming] = [database.open().await, database.open().await, database.open().await];
    endpoints(&claiming).await;
    database
        .execute(
            "CREATE TRIGGER hold AFTER INSERT ON countersign_outbox FOR EACH ROW
             IF NEW.message_id = 'msg_1' THEN SET @held = GET_LOCK(CONCAT('gate:', DATABASE()), 30); END IF",
        )
        .await;
    let mut gate = mysql::connect(&database.url).await;
    sqlx::raw_sql("DO GET_LOCK(CONCAT('gate:', DATABASE()), 0)").execute(&mut gate).await.expect("a lock");
    let waiting = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'";
    let early = tokio::spawn(async move { first.enqueue(vec![in_order("msg_1")]).await });
    while database.number(waiting).await < 1 {
        assert!(!early.is_finished(), "the first one is not held up");
    }
    let late = tokio::spawn(async move { second.enqueue(vec![in_order("msg_2")]).await });
    while database.number(waiting).await < 2 && !late.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(claim(&claiming, 9).await.is_empty(), "the second message would go before the first one");
    sqlx::raw_sql("DO RELEASE_ALL_LOCKS()").execute(&mut gate).await.expect("the gate opens");
    for enqueued in [early, late] {
        timeout(PATIENCE, enqueued).await.expect("its turn comes").expect("no panic").expect("an answer");
    }
    let [claimed] = &claim(&claiming, 9).await[..] else { panic!("one at a time") };
    assert_eq!(claimed.message.id.as_str(), "msg_1");
}

/// A server that is sent too much hangs up, and takes along who shares the connection.
#[tokio::test]
async fn on_mysql_a_payload_that_the_server_does_not_take_is_refused_before_it_is_sent() {
    let Some(database) = mysql::Database::create().await else { return };
    let store = database.open().await;
    endpoints(&store).await;
    let packet = usize::try_from(database.number("SELECT CAST(@@max_allowed_packet AS SIGNED)").await).expect("a size");
    let largest = || message("msg_1", vec![b'x'; Enqueue::MAX_PAYLOAD_BYTES]);
    let fits = packet > Enqueue::MAX_PAYLOAD_BYTES + 4_096;
    let as_expected = |answer: Result<bool, StoreError>| match answer {
        Ok(_) => fits,
        Err(StoreError::Rejected(text)) => !fits && text.contains("max_allowed_packet"),
        Err(_) => false,
    };
    let enqueued = store.enqueue(vec![Enqueue::new(name("a"), largest())]).await;
    assert!(as_expected(enqueued.map(|enqueued| enqueued[0].created)));
    assert!(as_expected(store.publish(largest()).await.map(|_| true)));
    let mut connection = mysql::connect(&database.url).await;
    let enqueued = connection.enqueue(&[Enqueue::new(name("a"), largest())]).await;
    assert!(as_expected(enqueued.map(|enqueued| enqueued[0].created)));
    let large = Enqueue::new(name("a"), message("msg_2", vec![b'x'; packet.min(15 << 20) / 16 * 15]));
    assert!(connection.enqueue(&[large]).await.expect("it fits")[0].created, "the connection is there still");
}

/// Behind a pooler a statement that one transaction named is not there for the next one, or is there already.
#[tokio::test]
async fn c101_the_callers_transactions_enqueue_through_pgbouncer() {
    let Some(database) = postgres::Database::create().await else { return };
    let Some(pooled) = database.through_pgbouncer() else { return };
    let store = database.open().await;
    endpoints(&store).await;
    let mut connections = [postgres::connect(&pooled).await, postgres::connect(&pooled).await];
    for number in 0..6 {
        let mut tx = connections[number % 2].begin().await.expect("a transaction");
        let enqueued = tx.enqueue(&[new("a", &format!("msg_{number}"))]).await.expect("an answer");
        assert!(enqueued[0].created);
        tx.publish(&message(&format!("msg_{number}_all"), b"{}".to_vec())).await.expect("an answer");
        tx.commit().await.expect("it is committed");
    }
    assert_eq!(claim(&store, 99).await.len(), 6 + 2 * 6);
}

/// A claim that outlives its caller gives back what it took: no attempt is counted, and nothing waits for a lease to end.
#[tokio::test]
async fn what_is_claimed_for_a_caller_who_gave_up_is_given_back() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    endpoints(&store).await;
    store.enqueue(vec![new("a", "msg_1")]).await.expect("an answer");
    InboxStore::accept(&store, super::taken_in(1)).await.expect("an answer");
    let mut connection = postgres::connect(&database.url).await;
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database =
        (SELECT oid FROM pg_database WHERE datname = current_database())";
    let taken_in = Claim {
        consumer: super::request(0).key.consumer,
        limit: 5,
        lease: Duration::from_secs(60),
        max_attempts: 20,
        unclear: Unclear::RunAgain,
    };

    let mut tx = connection.begin().await.expect("a transaction");
    sqlx::raw_sql("LOCK TABLE countersign_outbox, countersign_inbox").execute(&mut *tx).await.expect("a lock");
    let gone = async { tokio::join!(claim(&store, 9), InboxStore::claim(&store, taken_in.clone())) };
    let both_wait = async {
        while database.number(waiting).await < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = gone => panic!("the tables are locked"),
        waiting = timeout(PATIENCE, both_wait) => waiting.expect("they wait"),
    }
    tx.rollback().await.expect("the tables are free");

    let [claimed] = &claim(&store, 9).await[..] else { panic!("it was given back") };
    assert_eq!(claimed.lease.attempt, 1, "the attempt that nobody made is not counted");
    let [claimed] = &InboxStore::claim(&store, taken_in).await.expect("an answer")[..] else { panic!("given back") };
    assert_eq!(claimed.lease.attempt, 1);
}

#[tokio::test]
async fn a_pool_of_one_is_enough_on_postgres() {
    let Some(database) = postgres::Database::create().await else { return };
    let pool = PgPoolOptions::new().max_connections(1).connect(&database.url).await.expect("a pool");
    let store = countersign::store::PostgresStore::from_pool(pool.clone()).open().await.expect("the store opens");
    timeout(PATIENCE, works(&store)).await.expect("nobody waits for a connection for good");
    let told = store.wake().expect("it tells");
    store.enqueue(vec![new("b", "msg_9")]).await.expect("an answer");
    timeout(PATIENCE, told.notified()).await.expect("it is told");
    assert!(pool.acquire().await.is_ok());
    store.close().await.expect("it closes");
    assert!(matches!(store.enqueue(vec![new("a", "msg_2")]).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(store.check_outbox().await, Err(StoreError::Unavailable { .. })));
}

#[tokio::test]
async fn a_pool_of_one_is_enough_on_mysql() {
    let Some(database) = mysql::Database::create().await else { return };
    let pool = MySqlPoolOptions::new().max_connections(1).connect(&database.url).await.expect("a pool");
    let store = countersign::store::MySqlStore::from_pool(pool.clone()).open().await.expect("the store opens");
    timeout(PATIENCE, works(&store)).await.expect("nobody waits for a connection for good");
    assert!(pool.acquire().await.is_ok());
    store.close().await.expect("it closes");
    assert!(matches!(store.enqueue(vec![new("a", "msg_2")]).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(store.check_outbox().await, Err(StoreError::Unavailable { .. })));
}

#[tokio::test]
async fn c073_a_dispatcher_elsewhere_is_told_at_the_commit_and_not_before() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    endpoints(&store).await;
    let told = listening(&store).await;
    let mut connection = postgres::connect(&database.url).await;
    let mut tx = connection.begin().await.expect("a transaction");
    tx.enqueue(&[new("a", "msg_1")]).await.expect("an answer");
    assert!(timeout(Duration::from_millis(300), told.notified()).await.is_err(), "nobody is told before the commit");
    tx.commit().await.expect("it is committed");
    timeout(PATIENCE, told.notified()).await.expect("it is told");
    assert_eq!(claim(&store, 9).await.len(), 1);
}

#[tokio::test]
async fn c099_a_listener_that_is_cut_off_listens_again_and_looks_once() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    endpoints(&store).await;
    let told = listening(&store).await;
    database
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()",
        )
        .await;
    timeout(PATIENCE, told.notified()).await.expect("it looks once when it listens again");
    let mut connection = postgres::connect(&database.url).await;
    connection.enqueue(&[new("a", "msg_1")]).await.expect("an answer");
    timeout(PATIENCE, told.notified()).await.expect("it is told again");
}

#[tokio::test]
async fn c100_a_notification_says_nothing_and_can_be_left_out() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    endpoints(&store).await;
    let mut listener = sqlx::postgres::PgListener::connect(&database.url).await.expect("a listener");
    listener.listen("countersign_outbox").await.expect("it listens");
    let mut connection = postgres::connect(&database.url).await;

    let mut tx = connection.begin().await.expect("a transaction");
    let large = message("msg_1", vec![b'x'; 1_000_000]);
    tx.enqueue(&[Enqueue::new(name("a"), large)]).await.expect("an answer");
    tx.enqueue(&[new("a", "msg_2")]).await.expect("an answer");
    tx.commit().await.expect("it is committed");
    let heard = timeout(PATIENCE, listener.recv()).await.expect("it is said").expect("a notification");
    assert_eq!(heard.payload(), "");

    sqlx::query("SET countersign.notify = 'off'").execute(&mut connection).await.expect("it is set");
    connection.enqueue(&[new("a", "msg_3")]).await.expect("an answer");
    let say = "SELECT pg_notify('countersign_outbox', 'last')";
    sqlx::query(AssertSqlSafe(say)).execute(&mut connection).await.expect("it is said");
    let heard = timeout(PATIENCE, listener.recv()).await.expect("it is said").expect("a notification");
    assert_eq!(heard.payload(), "last", "one for the transaction, and none for what came after");
}

#[tokio::test]
async fn whoever_uses_the_inbox_alone_pays_for_no_connection_of_the_outbox() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    countersign::store::InboxStore::check(&store).await.expect("an answer");
    let connections = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let before = database.number(connections).await;
    endpoints(&store).await;
    assert_eq!(database.number(connections).await, before + 1);
}

/// From here on it listens, and what it is told comes from elsewhere.
async fn listening(store: &dyn OutboxStore) -> Arc<tokio::sync::Notify> {
    let told = store.wake().expect("it tells");
    // A call of this process may have told already; the listener tells when it listens.
    timeout(PATIENCE, told.notified()).await.expect("it is told");
    let _ = timeout(Duration::from_secs(2), told.notified()).await;
    told
}

async fn works(store: &dyn OutboxStore) {
    endpoints(store).await;
    store.enqueue(vec![new("a", "msg_1")]).await.expect("an answer");
    assert!(store.next_due().await.expect("an answer").is_some());
    let claimed = claim(store, 9).await.remove(0);
    let key = claimed.lease.key.clone();
    assert_eq!(settle(store, claimed, Fate::Delivered).await, Settled::Done);
    let entry = store.find_message(key).await.expect("an answer").expect("it is there");
    assert_eq!(entry.attempt_log.len(), 1);
}

async fn endpoints(store: &dyn OutboxStore) {
    for text in ["a", "b"] {
        let mut endpoint = Endpoint::new(name(text), "https://example.com/hooks");
        endpoint.types = vec![TypePattern::new("order.*").expect("a pattern")];
        store.put_endpoint(endpoint).await.expect("an answer");
    }
}

async fn claim(store: &dyn OutboxStore, limit: u32) -> Vec<ClaimedMessage> {
    store.claim_messages(ClaimMessages::new(limit, Duration::from_secs(60))).await.expect("no error").messages
}

async fn settle(store: &dyn OutboxStore, claimed: ClaimedMessage, fate: Fate) -> Settled {
    store.settle(claimed.lease, Settlement::new(fate, AttemptReport::default())).await.expect("no error")
}

fn new(endpoint: &str, id: &str) -> Enqueue {
    Enqueue::new(name(endpoint), message(id, b"{}".to_vec()))
}

/// One of those that go one by one.
fn in_order(id: &str) -> Enqueue {
    let mut new = new("a", id);
    new.message.ordering_key = Some(name("one by one"));
    new
}

fn message(id: &str, payload: Vec<u8>) -> Message {
    Message::new(EventId::new(id).expect("an id"), name("order.paid"), payload)
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
