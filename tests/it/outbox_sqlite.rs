//! What only the outbox in a file promises: what stands in the tables, transactions of the caller's, and several processes
//! on one file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign::store::{
    AttemptReport, ClaimMessages, Endpoint, Enqueue, Fate, Message, MessageFilter, MessageState, OnDead,
    OutboxConnection, OutboxRetention, OutboxStore, Settled, Settlement, SqliteStore, StoreError, TypePattern,
};
use countersign::{EventId, Name};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::task::JoinSet;

use crate::outbox_model::{OnOneClock, outbox_model_test};

outbox_model_test!(the_outbox_in_a_file_does_what_the_one_in_memory_does, 32, modelled);

async fn modelled() -> Option<OnOneClock<SqliteStore>> {
    let directory = tempfile::tempdir().expect("a directory");
    // The directory goes when the process does.
    let path = directory.keep().join("outbox.db");
    Some(
        OnOneClock::new(async |clock| SqliteStore::options(path).with_clock(clock).open().await.expect("it opens"))
            .await,
    )
}

#[tokio::test]
async fn c074_what_is_rolled_back_is_not_sent_and_what_is_committed_is_once_for_each_endpoint() {
    let (directory, store) = fresh().await;
    let mut connection = connect(&directory.path().join("outbox.db")).await;
    let two = [new("a", "msg_1"), new("b", "msg_1")];

    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
    assert!(tx.enqueue(&two).await.expect("an answer").iter().all(|enqueued| enqueued.created));
    tx.rollback().await.expect("it is rolled back");
    assert!(claim(&store, 9).await.is_empty());

    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
    assert!(tx.enqueue(&two).await.expect("an answer").iter().all(|enqueued| enqueued.created));
    assert!(tx.enqueue(&two).await.expect("an answer").iter().all(|enqueued| !enqueued.created));
    let unknown = tx.enqueue(&[new("a", "msg_2"), new("nobody", "msg_2")]).await;
    assert!(matches!(unknown, Err(StoreError::Rejected(text)) if text.contains("nobody")));
    let published = tx.publish(&message("msg_3")).await.expect("an answer");
    assert_eq!(published.iter().map(|enqueued| enqueued.endpoint.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    tx.commit().await.expect("it is committed");
    assert_eq!(claim(&store, 9).await.len(), 4);
}

#[tokio::test]
async fn c082_the_table_takes_no_row_that_is_neither_waiting_nor_at_an_end() {
    let (directory, store) = fresh().await;
    store.enqueue(vec![new("a", "msg_1")]).await.expect("an answer");
    let mut connection = connect(&directory.path().join("outbox.db")).await;
    for change in [
        "state = 'sending'",
        "state = 'succeeded'",
        "due = NULL, claim_at = NULL",
        "claim_at = due - 1",
        "state = 'delivering', attempts = 1",
        "token = x'000102030405060708090a0b0c0d0e0f'",
        "state = 'dead_letter', due = NULL, claim_at = NULL",
        "attempts = -1",
        // Beyond these a claim or a replay would overflow, and with it everybody else's.
        "noted = 9223372036854775807",
        "replays = 9223372036854775807",
        "last_status = 99",
    ] {
        let update = format!("UPDATE countersign_outbox SET {change}");
        let changed = sqlx::query(AssertSqlSafe(update)).execute(&mut connection).await;
        assert!(changed.is_err(), "{change}");
    }
}

#[tokio::test]
async fn c082_what_somebody_wrote_by_hand_stops_nobody_in_a_file() {
    let (directory, store) = fresh().await;
    let path = directory.path().join("outbox.db");
    crate::outbox_by_hand::stops_nobody(&store, async |sql| {
        let mut connection = connect(&path).await;
        sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect("it is done");
        connection.close().await.expect("it closes");
    })
    .await;
}

#[tokio::test]
async fn c083_a_row_that_cannot_be_read_becomes_a_dead_letter_and_others_go_on() {
    let (directory, store) = fresh().await;
    let ids = ["msg_1", "msg_2", "msg_3"];
    store.enqueue(ids.iter().map(|id| new("a", id)).collect()).await.expect("an answer");
    let mut connection = connect(&directory.path().join("outbox.db")).await;
    execute(&mut connection, "UPDATE countersign_outbox SET schema_version = -1 WHERE message_id = 'msg_2'").await;
    let claimed = claim(&store, 9).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.message.id.as_str()).collect::<Vec<_>>(), ["msg_1", "msg_3"]);
    let dead = "SELECT reason FROM countersign_outbox WHERE state = 'dead_letter' AND message_id = 'msg_2'";
    let reason: String = sqlx::query(dead).fetch_one(&mut connection).await.expect("a row").get(0);
    assert!(reason.contains("schema_version"), "{reason}");

    // An endpoint that cannot be read is left out, and its messages wait.
    store.enqueue(vec![new("a", "msg_4"), new("b", "msg_4")]).await.expect("an answer");
    execute(&mut connection, "UPDATE countersign_endpoint SET settings = '{\"on_dead\":1}' WHERE name = 'a'").await;
    let claimed = claim(&store, 9).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.endpoint.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(store.endpoints().await.expect("an answer").len(), 1);
    execute(&mut connection, "UPDATE countersign_endpoint SET settings = '{}'").await;
    assert_eq!(claim(&store, 9).await.len(), 1);
}

/// What is left is due still.
#[tokio::test]
async fn a_claim_brings_no_more_than_fits_into_memory() {
    let (_directory, store) = fresh().await;
    let large = |id: &str| {
        let mut new = new("a", id);
        new.message.payload = vec![b'x'; 15 * 1_024 * 1_024].into();
        new
    };
    for id in ["msg_1", "msg_2", "msg_3"] {
        store.enqueue(vec![large(id)]).await.expect("an answer");
    }
    store.enqueue(vec![new("a", "msg_4")]).await.expect("an answer");
    let sizes = async || claim(&store, 9).await.iter().map(|one| one.message.payload.len()).collect::<Vec<_>>();
    let large = 15 * 1_024 * 1_024;
    assert_eq!(sizes().await, [large, large, new("a", "msg_4").message.payload.len()]);
    assert_eq!(sizes().await, [large]);
}

/// A step through many messages does not end early for one of them.
#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_keep_an_operator_from_those_behind_it() {
    let (directory, store) = fresh().await;
    let many = (0..450).map(|number| new("a", &format!("msg_{number:03}"))).collect();
    store.enqueue(many).await.expect("an answer");
    let mut connection = connect(&directory.path().join("outbox.db")).await;
    let spoil = "UPDATE countersign_outbox SET message_id = 'msg ' || char(10) WHERE message_id = 'msg_100'";
    execute(&mut connection, spoil).await;
    let mut all = MessageFilter::default();
    all.limit = 1_000;
    assert_eq!(store.cancel(all).await.expect("an answer").len(), 449);
}

#[tokio::test]
async fn what_is_held_up_is_looked_at_again_when_its_turn_comes() {
    let (directory, store) = fresh().await;
    let mut keyed: Vec<Enqueue> = (0..1_500).map(|number| new("a", &format!("msg_{number:04}"))).collect();
    keyed.iter_mut().for_each(|new| new.message.ordering_key = Some(name("one by one")));
    store.enqueue(keyed).await.expect("an answer");
    let mut connection = connect(&directory.path().join("outbox.db")).await;
    for number in 0..3 {
        let [claimed] = &claim(&store, 9).await[..] else { panic!("one by one") };
        assert_eq!(claimed.message.id.as_str(), format!("msg_{number:04}"));
        assert!(claim(&store, 9).await.is_empty());
        let waiting = "SELECT count(*) FROM countersign_outbox WHERE lane = 2";
        let waiting: i64 = sqlx::query(waiting).fetch_one(&mut connection).await.expect("a row").get(0);
        assert!(waiting > 1_400, "{waiting} are postponed");
        assert_eq!(settle(&store, claimed.lease.clone(), Fate::Delivered).await, Settled::Done);
    }
    // Whoever dies before it has said so costs time, and nothing more.
    let [claimed] = &claim(&store, 9).await[..] else { panic!("one by one") };
    execute(&mut connection, "UPDATE countersign_outbox SET claim_at = due WHERE lane = 2").await;
    assert!(claim(&store, 9).await.is_empty());
    execute(&mut connection, "UPDATE countersign_outbox SET state = 'succeeded', token = NULL, due = NULL, claim_at = NULL WHERE state = 'delivering'").await;
    assert!(claim(&store, 9).await.is_empty(), "nobody said that it is over");
    execute(
        &mut connection,
        "UPDATE countersign_outbox SET due = due - 2000000, claim_at = claim_at - 2000000 WHERE due IS NOT NULL",
    )
    .await;
    let [next] = &claim(&store, 9).await[..] else { panic!("one by one") };
    assert!(next.message.id > claimed.message.id);
}

#[tokio::test]
async fn the_history_of_a_message_goes_with_it() {
    let (directory, store) = fresh().await;
    store.enqueue(vec![new("a", "msg_1")]).await.expect("an answer");
    let claimed = claim(&store, 1).await.remove(0);
    assert_eq!(settle(&store, claimed.lease, Fate::Delivered).await, Settled::Done);
    let none = OutboxRetention::default();
    assert_eq!(store.purge_messages(none, 9).await.expect("an answer"), 0);
    let mut at_once = OutboxRetention::default();
    at_once.done = Duration::ZERO;
    assert_eq!(store.purge_messages(at_once, 9).await.expect("an answer"), 1);
    let mut connection = connect(&directory.path().join("outbox.db")).await;
    let left: i64 =
        sqlx::query("SELECT count(*) FROM countersign_attempt").fetch_one(&mut connection).await.expect("a row").get(0);
    assert_eq!(left, 0);
}

/// Two stores stand for two processes: each has a connection of its own that writes. A third kind of writer enqueues beside
/// them, in transactions of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c091_dispatchers_and_enqueuers_on_one_file_see_no_error_and_lose_nothing() {
    const EACH: u32 = 150;
    let (directory, store) = fresh().await;
    let path = directory.path().join("outbox.db");
    let other = SqliteStore::open(&path).await.expect("the store opens");
    let mut enqueuing = JoinSet::new();
    for (place, store) in [store.clone(), other.clone()].into_iter().enumerate() {
        enqueuing.spawn(async move {
            for number in 0..EACH {
                store.enqueue(vec![new("a", &format!("msg_{place}_{number}"))]).await.expect("no error");
            }
        });
    }
    let beside = path.clone();
    enqueuing.spawn(async move {
        let mut connection = connect(&beside).await;
        for number in 0..EACH {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("no error");
            tx.enqueue(&[new("b", &format!("msg_{number}"))]).await.expect("no error");
            tx.commit().await.expect("no error");
        }
    });
    let delivered = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut dispatching = JoinSet::new();
    for store in [store.clone(), other] {
        let delivered = Arc::clone(&delivered);
        dispatching.spawn(async move {
            while delivered.lock().expect("no panic").len() < 3 * EACH as usize {
                for claimed in claim(&store, 20).await {
                    let key = claimed.lease.key.clone();
                    assert_eq!(settle(&store, claimed.lease, Fate::Delivered).await, Settled::Done);
                    delivered.lock().expect("no panic").push(key);
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let all = async { tokio::join!(enqueuing.join_all(), dispatching.join_all()) };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("everything is delivered");
    let mut delivered = Arc::into_inner(delivered).expect("the last one").into_inner().expect("no panic");
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), 3 * EACH as usize);
    let mut succeeded = in_state(MessageState::Succeeded);
    succeeded.limit = 1_000;
    assert_eq!(store.list_messages(succeeded).await.expect("an answer").len(), 3 * EACH as usize);
}

#[tokio::test]
async fn another_choice_for_dead_letters_frees_what_they_held_up() {
    let (_directory, store) = fresh().await;
    let mut two = vec![new("a", "msg_1"), new("a", "msg_2")];
    two.iter_mut().for_each(|new| new.message.ordering_key = Some(name("order")));
    store.enqueue(two).await.expect("an answer");
    let first = claim(&store, 9).await.remove(0);
    assert_eq!(settle(&store, first.lease, Fate::Dead("gone".into())).await, Settled::Done);
    assert!(claim(&store, 9).await.is_empty());
    let mut endpoint = endpoint("a");
    endpoint.settings.on_dead = OnDead::Skip;
    store.put_endpoint(endpoint).await.expect("an answer");
    assert_eq!(claim(&store, 9).await.len(), 1);
}

async fn fresh() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("outbox.db")).await.expect("the store opens");
    for name in ["a", "b"] {
        store.put_endpoint(endpoint(name)).await.expect("an answer");
    }
    (directory, store)
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
    options.connect().await.expect("a connection")
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::query(sql).execute(connection).await.expect("it is done");
}

async fn claim(store: &SqliteStore, limit: u32) -> Vec<countersign::store::ClaimedMessage> {
    store.claim_messages(ClaimMessages::new(limit, Duration::from_secs(60))).await.expect("no error").messages
}

async fn settle(store: &SqliteStore, lease: countersign::store::MessageLease, fate: Fate) -> Settled {
    store.settle(lease, Settlement::new(fate, AttemptReport::default())).await.expect("no error")
}

fn in_state(state: MessageState) -> MessageFilter {
    let mut filter = MessageFilter::default();
    filter.state = Some(state);
    filter
}

fn endpoint(text: &str) -> Endpoint {
    let mut endpoint = Endpoint::new(name(text), "https://example.com/hooks");
    endpoint.types = vec![TypePattern::new("order.*").expect("a pattern")];
    endpoint
}

fn new(endpoint: &str, id: &str) -> Enqueue {
    Enqueue::new(name(endpoint), message(id))
}

fn message(id: &str) -> Message {
    Message::new(EventId::new(id).expect("an id"), name("order.paid"), b"{}".as_slice())
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
