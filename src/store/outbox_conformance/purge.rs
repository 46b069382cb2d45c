//! That what has an end is forgotten in time, and nothing else is.

use std::time::Duration;

use super::{
    LEASE, SECOND, Subject, again, by_id, cancelled, claim_all, claim_one, dead, delivered, endpoint, enqueue, key,
    message, put, queue, report, settle, to,
};
use crate::store::{Fate, OutboxRetention, OutboxStore, Settlement};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is done is forgotten after its time; what waits for an operator only where that is asked for.
pub async fn purge_takes_what_is_done_and_leaves_dead_letters(subject: &dyn Subject) {
    let store = subject.store();
    all_states(&*store).await;
    let retention = |done, dead| OutboxRetention { done, dead };
    assert_eq!(purged(&*store, retention(DAY, Some(DAY)), 99).await, 0, "nothing is old enough");
    subject.advance(DAY).await;
    assert_eq!(purged(&*store, retention(DAY, None), 99).await, 2);
    assert_eq!(left(&*store).await, ["dead", "failed", "pending", "running"]);
    assert_eq!(purged(&*store, retention(DAY, None), 99).await, 0);
    assert_eq!(purged(&*store, retention(DAY, Some(2 * DAY)), 99).await, 0);
    subject.advance(DAY).await;
    assert_eq!(purged(&*store, retention(DAY, Some(2 * DAY)), 99).await, 2);
    assert_eq!(left(&*store).await, ["pending", "running"]);
}

/// What has no end is never forgotten, however old it is.
pub async fn purge_never_touches_messages_that_have_no_end(subject: &dyn Subject) {
    let store = subject.store();
    all_states(&*store).await;
    subject.advance(400 * DAY).await;
    let at_once = OutboxRetention { done: Duration::ZERO, dead: Some(Duration::ZERO) };
    assert_eq!(purged(&*store, at_once, 99).await, 4);
    assert_eq!(left(&*store).await, ["pending", "running"]);
    assert_eq!(claim_all(&*store).await.len(), 2, "they are sent still");
}

/// A purge is a small step: the oldest first, and no more than asked for.
pub async fn a_purge_keeps_to_its_limit_and_takes_the_oldest_first(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    for id in ["msg_3", "msg_1", "msg_2"] {
        enqueue(&*store, vec![to("shop", message(id))]).await;
        settle(&*store, &claim_one(&*store).await, delivered()).await;
        subject.advance(SECOND).await;
    }
    let retention = OutboxRetention { done: Duration::ZERO, dead: None };
    assert_eq!(purged(&*store, retention, 0).await, 0);
    assert_eq!(purged(&*store, retention, 1).await, 1);
    assert_eq!(left(&*store).await, ["msg_1", "msg_2"]);
    assert_eq!(purged(&*store, retention, 1).await, 1);
    assert_eq!(left(&*store).await, ["msg_2"]);
    assert_eq!(purged(&*store, retention, u32::MAX).await, 1);
}

/// An age counts from the last change: a message that was replayed is not old.
pub async fn an_age_counts_from_the_last_change(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    subject.advance(2 * DAY).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    subject.advance(DAY / 2).await;
    let retention = OutboxRetention { done: DAY, dead: Some(DAY) };
    assert_eq!(purged(&*store, retention, 9).await, 0);
    super::replayed(&*store, by_id("msg_1")).await;
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    subject.advance(DAY / 2).await;
    assert_eq!(purged(&*store, retention, 9).await, 0);
    subject.advance(DAY / 2).await;
    assert_eq!(purged(&*store, retention, 9).await, 1);
}

/// A message that is gone is a new one when it is enqueued again, and its attempts went with it.
pub async fn a_purged_message_leaves_nothing_behind(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let first = claim_one(&*store).await;
    settle(&*store, &first, delivered()).await;
    subject.advance(SECOND).await;
    assert_eq!(purged(&*store, OutboxRetention { done: Duration::ZERO, dead: None }, 9).await, 1);
    assert_eq!(store.find_message(key("shop", "msg_1")).await.expect("the store answers"), None);
    assert_eq!(enqueue(&*store, vec![to("shop", message("msg_1"))]).await, [true]);
    let again = super::entry(&*store, "shop", "msg_1").await;
    assert_eq!((again.attempts, again.replays, again.attempt_log), (0, 0, Vec::new()));
    let second = claim_one(&*store).await;
    assert_eq!(second.lease.attempt, 1);
    assert_eq!(super::settled(&*store, &first.lease, delivered()).await, crate::store::Settled::LeaseLost);
    settle(&*store, &second, delivered()).await;
}

/// One message in each state, named after it.
async fn all_states(store: &dyn OutboxStore) {
    queue(store, "shop", &["pending", "running", "delivered", "dead", "failed", "cancelled"]).await;
    cancelled(store, by_id("cancelled")).await;
    for claimed in claim_all(store).await {
        let settlement = match claimed.lease.key.id.as_str() {
            "pending" => again(LEASE),
            "delivered" => delivered(),
            "dead" => dead("no"),
            "failed" => Settlement::new(Fate::Failed("ask".into()), report(500, "odd")),
            _ => continue,
        };
        settle(store, &claimed, settlement).await;
    }
}

async fn purged(store: &dyn OutboxStore, retention: OutboxRetention, limit: u32) -> u64 {
    store.purge_messages(retention, limit).await.expect("the store answers")
}

async fn left(store: &dyn OutboxStore) -> Vec<String> {
    let listed = store.list_messages(super::MessageFilter::default()).await.expect("the store answers");
    let mut left: Vec<_> = listed.iter().map(|entry| entry.message.id.as_str().to_owned()).collect();
    left.sort_unstable();
    left
}
