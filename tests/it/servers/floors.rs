//! What becomes due in front of where claims on PostgreSQL begin to look, once many messages of an endpoint were taken.

use std::time::{Duration, Instant};

use countersign::store::{
    AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, Enqueue, Fate, Message, OutboxConnection, OutboxStore,
    PostgresStore, Settled, Settlement,
};
use countersign::{EventId, Name};
use futures_util::future::join_all;
use sqlx::Connection as _;

use super::postgres;

/// Everything is looked at once in ten seconds at least. As much again for a machine that is busy.
const BOUND: Duration = Duration::from_secs(20);
/// From a thousand on, claims do not begin at the beginning.
const MANY: usize = 1_200;

/// It is as if the transaction had been open for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_transaction_commits_that_was_open_for_long_is_found_behind_many_that_were_taken() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = many_taken(&database).await;
    let mut connection = postgres::connect(&database.url).await;
    let mut early = connection.begin().await.expect("a transaction");
    early.enqueue(&[new("msg_early")]).await.expect("an answer");
    sqlx::query(
        "UPDATE countersign_outbox SET due = due - 60000000, claim_at = claim_at - 60000000 WHERE message_id = $1",
    )
    .bind("msg_early")
    .execute(&mut *early)
    .await
    .expect("an answer");
    // The store has looked at everything meanwhile, and has seen nothing of it.
    store.enqueue(vec![new("msg_late")]).await.expect("an answer");
    settle(&store, found(&store, "msg_late").await).await;
    early.commit().await.expect("it is committed");
    settle(&store, found(&store, "msg_early").await).await;
}

/// The other handle ends what stands before it, and knows nothing of where this one begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_store_promotes_is_found_behind_many_that_were_taken() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = many_taken(&database).await;
    let in_order = |id| {
        let mut new = new(id);
        new.message.ordering_key = Some(name("one by one"));
        new
    };
    store.enqueue(vec![in_order("msg_1"), in_order("msg_2")]).await.expect("an answer");
    make_older(&database).await;
    let first = found(&store, "msg_1").await;
    // By now it is held up, and looked at later.
    while database.number("SELECT count(*) FROM countersign_outbox WHERE state = 'pending' AND claim_at > due").await
        == 0
    {
        assert!(claim(&store).await.is_empty(), "the other one is not its turn");
    }
    let other = database.open().await;
    settle(&other, first).await;
    settle(&store, found(&store, "msg_2").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_for_an_endpoint_that_was_disabled_is_found_behind_many_that_were_taken() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = many_taken(&database).await;
    let other = database.open().await;
    assert!(other.disable_endpoint(name("a"), Some("for a while".into())).await.expect("an answer"));
    other.enqueue(vec![new("msg_1")]).await.expect("an answer");
    make_older(&database).await;
    assert!(claim(&store).await.is_empty(), "it is disabled");
    assert!(other.disable_endpoint(name("a"), None).await.expect("an answer"));
    settle(&store, found(&store, "msg_1").await).await;
}

/// A store that has taken many messages of an endpoint, and begins where it found the last ones.
async fn many_taken(database: &postgres::Database) -> PostgresStore {
    let store = database.open().await;
    store.put_endpoint(Endpoint::new(name("a"), "https://example.com/hooks")).await.expect("an answer");
    let many = (0..MANY).map(|number| new(&format!("msg_many_{number}"))).collect::<Vec<_>>();
    for some in many.chunks(200) {
        store.enqueue(some.to_vec()).await.expect("an answer");
    }
    let mut taken = 0;
    while taken < MANY {
        let claimed = claim(&store).await;
        taken += claimed.len();
        join_all(claimed.into_iter().map(|claimed| settle(&store, claimed))).await;
    }
    store
}

/// What is pending has been due for a minute longer.
async fn make_older(database: &postgres::Database) {
    database
        .execute(
            "UPDATE countersign_outbox SET due = due - 60000000, claim_at = claim_at - 60000000 WHERE state = 'pending'",
        )
        .await;
}

/// Claims until it has this message, within the bound.
async fn found(store: &dyn OutboxStore, id: &str) -> ClaimedMessage {
    let since = Instant::now();
    loop {
        if let Some(claimed) = claim(store).await.pop() {
            assert_eq!(claimed.message.id.as_str(), id);
            return claimed;
        }
        assert!(since.elapsed() < BOUND, "{id} is not found");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn claim(store: &dyn OutboxStore) -> Vec<ClaimedMessage> {
    store.claim_messages(ClaimMessages::new(200, Duration::from_secs(600))).await.expect("an answer").messages
}

async fn settle(store: &dyn OutboxStore, claimed: ClaimedMessage) {
    let settlement = Settlement::new(Fate::Delivered, AttemptReport::default());
    assert_eq!(store.settle(claimed.lease, settlement).await.expect("an answer"), Settled::Done);
}

fn new(id: &str) -> Enqueue {
    Enqueue::new(name("a"), Message::new(EventId::new(id).expect("an id"), name("order.paid"), "{}"))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
