//! Handing out what is due.

use std::collections::HashSet;

use super::{
    LEASE, SECOND, Subject, again, claim, claim_all, claim_of, claim_one, claimed, delivered, endpoint, enqueue, entry,
    ids, key, message, put, queue, settle, to,
};
use crate::store::{ClaimMessages, ClaimedMessage, Endpoint, MessageState};

/// A claim is a lease, with the message and its endpoint beside it.
pub async fn a_claimed_message_is_leased_with_its_endpoint(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    subject.advance(SECOND).await;
    let ClaimedMessage { lease, message: claimed, endpoint: to, created, age, replays } = claim_one(&*store).await;
    assert_eq!((lease.attempt, &lease.key, replays), (1, &key("shop", "msg_1"), 0));
    assert_eq!((claimed, &*to), (message("msg_1"), &endpoint("shop")));
    assert!(age >= SECOND && age < LEASE, "{age:?}");

    let held = entry(&*store, "shop", "msg_1").await;
    assert_eq!((held.state, held.attempts, held.created), (MessageState::Delivering, 1, created));
    assert_eq!(held.due, Some(held.updated.saturating_add(LEASE)));
    assert!(held.updated >= created.saturating_add(SECOND));
    assert!(super::claimed(&*store, claim_of(9)).await.is_empty());
}

/// The endpoint is the one of now, not the one of when the message was enqueued.
pub async fn a_claim_brings_the_endpoint_as_it_is_now(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let moved = Endpoint { url: "https://example.org/new".into(), ..endpoint("shop") };
    put(&*store, moved.clone()).await;
    assert_eq!(*claim_one(&*store).await.endpoint, moved);
}

/// C075, C078: no two callers get the same.
pub async fn no_two_claims_get_the_same_message(subject: &dyn Subject) {
    const MESSAGES: usize = 200;
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    put(&*store, endpoint("desk")).await;
    let batch = (0..MESSAGES).map(|n| to(if n % 2 == 0 { "shop" } else { "desk" }, message(&format!("msg_{n}"))));
    enqueue(&*store, batch.collect()).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = subject.store();
        callers.spawn(async move {
            let mut got = Vec::new();
            loop {
                let found = claim(&*store, 7).await;
                if found.is_empty() {
                    return got;
                }
                got.extend(found.into_iter().map(|claimed| claimed.lease));
            }
        });
    }
    let leases: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    assert_eq!(leases.len(), MESSAGES);
    assert_eq!(leases.iter().map(|lease| &lease.key).collect::<HashSet<_>>().len(), MESSAGES);
    assert_eq!(leases.iter().map(|lease| lease.token).collect::<HashSet<_>>().len(), MESSAGES);
    assert_eq!(leases.iter().map(|lease| lease.row).collect::<HashSet<_>>().len(), MESSAGES);
}

/// A retry is due when it was promised.
pub async fn a_retry_is_claimed_when_it_is_due_and_not_before(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, again(60 * SECOND)).await;
    let waiting = entry(&*store, "shop", "msg_1").await;
    assert_eq!((waiting.state, waiting.attempts), (MessageState::Pending, 1));
    assert_eq!(waiting.due, Some(waiting.updated.saturating_add(60 * SECOND)));
    subject.advance(40 * SECOND).await;
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
    subject.advance(20 * SECOND).await;
    assert_eq!(claim_one(&*store).await.lease.attempt, 2);
}

/// Who has waited for longest comes first.
pub async fn the_longest_due_message_is_claimed_first(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    subject.advance(SECOND).await;
    // Enqueued later, and due earlier than it would be by its place alone.
    let late = |id: &str, seconds| crate::store::Enqueue { delay: seconds * SECOND, ..to("shop", message(id)) };
    enqueue(&*store, vec![late("msg_4", 30), late("msg_3", 5)]).await;
    subject.advance(LEASE).await;
    for expected in ["msg_1", "msg_2", "msg_3", "msg_4"] {
        assert_eq!(ids(&claim(&*store, 1).await), [expected]);
    }
    assert!(claimed(&*store, claim_of(1)).await.is_empty());
}

/// A dispatcher gets no more than it has room for, and a claim has an end.
pub async fn a_claim_keeps_to_its_limit(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let batch = (0..600).map(|n| to("shop", message(&format!("msg_{n}"))));
    enqueue(&*store, batch.collect()).await;
    assert!(claimed(&*store, claim_of(0)).await.is_empty());
    assert_eq!(claim(&*store, 3).await.len(), 3);
    let most = claim(&*store, u32::MAX).await.len();
    assert!(most <= usize::try_from(ClaimMessages::MOST).expect("a small number"), "{most}");
    assert_eq!(most + claim_all(&*store).await.len(), 597);
}

/// What has an end is never handed out again, however long it lies there.
pub async fn what_has_an_end_is_never_claimed(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["delivered", "dead", "failed", "cancelled"]).await;
    super::cancelled(&*store, super::by_id("cancelled")).await;
    for claimed in claim_all(&*store).await {
        let settlement = match claimed.lease.key.id.as_str() {
            "delivered" => delivered(),
            "dead" => super::dead("no"),
            _ => crate::store::Settlement::new(crate::store::Fate::Failed("ask".into()), super::report(500, "odd")),
        };
        settle(&*store, &claimed, settlement).await;
    }
    subject.advance(100 * LEASE).await;
    assert!(claim_all(&*store).await.is_empty());
    for id in ["delivered", "dead", "failed", "cancelled"] {
        assert_eq!(entry(&*store, "shop", id).await.due, None, "{id}");
    }
}
