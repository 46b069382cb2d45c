//! What somebody wrote into the outbox by hand, and its tables allow: it stops nobody else, on any database.

use std::time::Duration;

use countersign::store::{
    Attempt, AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, Enqueue, Fate, Message, MessageFilter, MessageKey,
    MessageState, OutboxStore, Settled, Settlement,
};
use countersign::{EventId, Name};

/// All of it, in a store that is new. `execute` is what somebody types.
pub(crate) async fn stops_nobody(store: &dyn OutboxStore, execute: impl AsyncFn(&str)) {
    for endpoint in ["a", "b"] {
        store.put_endpoint(Endpoint::new(name(endpoint), "https://example.com/hooks")).await.expect("an answer");
    }
    a_message_that_is_reset(store, &execute).await;
    numbers_at_their_ends(store, &execute).await;
    a_due_time_before_all_times(store, &execute).await;
    a_dead_letter_replayed_too_often(store, &execute).await;
    an_endpoint_that_cannot_be_read(store, &execute).await;
}

/// Its history goes on behind what it holds, and stays as short as others.
async fn a_message_that_is_reset(store: &dyn OutboxStore, execute: &impl AsyncFn(&str)) {
    const RESET: &str =
        "UPDATE countersign_outbox SET attempts = 0, noted = 0, due = 0, claim_at = 0 WHERE state = 'pending'";
    enqueue(store, "a", "msg_1").await;
    for _ in 0..3 {
        again(store).await;
    }
    execute(RESET).await;
    again(store).await;
    execute(RESET).await;
    assert_eq!(claim(store).await.len(), 1);
    lapse(execute, "noted = 0").await;
    enqueue(store, "b", "msg_2").await;
    let mut claimed = claim(store).await;
    claimed.sort_by_key(|claimed| claimed.lease.key.id.clone());
    let [first, second] = &claimed[..] else { panic!("{claimed:?}") };
    let log = log(store, "a", "msg_1").await;
    assert_eq!(log.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 2, 3, 1, 1]);
    assert!(log.last().is_some_and(|lapsed| lapsed.report.error.is_some()), "{log:?}");
    settle(store, second, Fate::Delivered).await;
    settle(store, first, Fate::Again { after: Duration::ZERO, counts: true }).await;

    execute("UPDATE countersign_attempt SET seq = seq + 1000").await;
    execute(RESET).await;
    let mut last = 0;
    for _ in 0..=Attempt::MAX_KEPT {
        last = again(store).await;
    }
    let log = self::log(store, "a", "msg_1").await;
    assert_eq!(log.len(), Attempt::MAX_KEPT);
    assert_eq!(log.last().map(|attempt| attempt.number), Some(last));
    deliver(store).await;
}

async fn numbers_at_their_ends(store: &dyn OutboxStore, execute: &impl AsyncFn(&str)) {
    enqueue(store, "a", "msg_3").await;
    for _ in 0..3 {
        assert_eq!(claim(store).await.len(), 1);
        lapse(execute, "noted = 1000000000000000").await;
    }
    again(store).await;
    assert_eq!(log(store, "a", "msg_3").await.len(), 4);
    // One that is buried, for it has been tried often enough.
    assert_eq!(claim(store).await.len(), 1);
    lapse(execute, "attempts = 4294967295, noted = 1000000000000000").await;
    enqueue(store, "a", "msg_4").await;
    assert_eq!(deliver(store).await, ["msg_4"]);
    assert_eq!(find(store, "a", "msg_3").await, MessageState::DeadLetter);

    enqueue(store, "a", "msg_5").await;
    again(store).await;
    execute("UPDATE countersign_attempt SET seq = 9223372036854775807 WHERE seq = 1").await;
    again(store).await;
    again(store).await;
    assert_eq!(deliver(store).await, ["msg_5"]);
}

async fn a_due_time_before_all_times(store: &dyn OutboxStore, execute: &impl AsyncFn(&str)) {
    let mut three: Vec<Enqueue> = ["msg_6", "msg_7", "msg_8"].iter().map(|id| new("a", id)).collect();
    three.iter_mut().for_each(|new| new.message.ordering_key = Some(name("one by one")));
    store.enqueue(three).await.expect("an answer");
    let first = claim(store).await.remove(0);
    execute(
        "UPDATE countersign_outbox SET due = -9223372036854775808, claim_at = -9223372036854775808
         WHERE state = 'pending'",
    )
    .await;
    enqueue(store, "b", "msg_9").await;
    assert_eq!(deliver(store).await, ["msg_9"]);
    settle(store, &first, Fate::Delivered).await;
    assert_eq!(deliver(store).await, ["msg_7"]);
    assert_eq!(deliver(store).await, ["msg_8"]);
}

async fn a_dead_letter_replayed_too_often(store: &dyn OutboxStore, execute: &impl AsyncFn(&str)) {
    enqueue(store, "b", "msg_10").await;
    let claimed = claim(store).await.remove(0);
    settle(store, &claimed, Fate::Dead("gone".to_owned())).await;
    execute("UPDATE countersign_outbox SET replays = 4294967295 WHERE message_id = 'msg_10'").await;
    // With the one that was buried above.
    assert_eq!(store.replay(MessageFilter::default(), Duration::ZERO).await.expect("an answer").len(), 2);
    let entry = store.find_message(key("b", "msg_10")).await.expect("an answer").expect("it is there");
    assert_eq!((entry.state, entry.replays), (MessageState::Pending, u32::MAX));
    assert_eq!(deliver(store).await.len(), 2);
}

/// It is named, and nobody waits for its messages.
async fn an_endpoint_that_cannot_be_read(store: &dyn OutboxStore, execute: &impl AsyncFn(&str)) {
    enqueue(store, "a", "msg_11").await;
    assert!(store.unreadable_endpoints().await.expect("an answer").is_empty());
    assert_eq!(store.next_due().await.expect("an answer"), Some(Duration::ZERO));
    execute("UPDATE countersign_endpoint SET settings = 'nope' WHERE name = 'a'").await;
    let unreadable = store.unreadable_endpoints().await.expect("an answer");
    assert_eq!(unreadable.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert!(unreadable[0].1.to_string().contains("settings"), "{unreadable:?}");
    assert_eq!(store.next_due().await.expect("an answer"), None);
    enqueue(store, "b", "msg_11").await;
    assert_eq!(store.next_due().await.expect("an answer"), Some(Duration::ZERO));
    assert_eq!(deliver(store).await, ["msg_11"]);
    store.put_endpoint(Endpoint::new(name("a"), "https://example.com/hooks")).await.expect("an answer");
    assert!(store.unreadable_endpoints().await.expect("an answer").is_empty());
    assert_eq!(deliver(store).await, ["msg_11"]);
}

/// What is being delivered is so no longer, and its row is changed.
async fn lapse(execute: &impl AsyncFn(&str), change: &str) {
    execute(&format!("UPDATE countersign_outbox SET {change}, due = 1, claim_at = 1 WHERE state = 'delivering'")).await;
}

/// An attempt at the one message that is due; it is due again. The attempt's number.
async fn again(store: &dyn OutboxStore) -> u32 {
    let claimed = claim(store).await;
    let [claimed] = &claimed[..] else { panic!("one is due: {claimed:?}") };
    settle(store, claimed, Fate::Again { after: Duration::ZERO, counts: true }).await;
    claimed.lease.attempt
}

/// Delivers what is due.
async fn deliver(store: &dyn OutboxStore) -> Vec<String> {
    let claimed = claim(store).await;
    for claimed in &claimed {
        settle(store, claimed, Fate::Delivered).await;
    }
    claimed.into_iter().map(|claimed| claimed.lease.key.id.to_string()).collect()
}

async fn claim(store: &dyn OutboxStore) -> Vec<ClaimedMessage> {
    let mut claim = ClaimMessages::new(9, Duration::from_secs(60));
    claim.max_attempts = 1_000;
    store.claim_messages(claim).await.expect("no error").messages
}

async fn settle(store: &dyn OutboxStore, claimed: &ClaimedMessage, fate: Fate) {
    let settlement = Settlement::new(fate, AttemptReport::default());
    assert_eq!(store.settle(claimed.lease.clone(), settlement).await.expect("no error"), Settled::Done);
}

async fn log(store: &dyn OutboxStore, endpoint: &str, id: &str) -> Vec<Attempt> {
    store.find_message(key(endpoint, id)).await.expect("an answer").expect("it is there").attempt_log
}

async fn find(store: &dyn OutboxStore, endpoint: &str, id: &str) -> MessageState {
    store.find_message(key(endpoint, id)).await.expect("an answer").expect("it is there").state
}

async fn enqueue(store: &dyn OutboxStore, endpoint: &str, id: &str) {
    store.enqueue(vec![new(endpoint, id)]).await.expect("an answer");
}

fn new(endpoint: &str, id: &str) -> Enqueue {
    Enqueue::new(name(endpoint), Message::new(EventId::new(id).expect("an id"), name("order.paid"), "{}"))
}

fn key(endpoint: &str, id: &str) -> MessageKey {
    MessageKey { endpoint: name(endpoint), id: EventId::new(id).expect("an id") }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
