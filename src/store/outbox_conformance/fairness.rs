//! That nobody waits for long behind another.

use std::collections::HashMap;

use super::{
    LEASE, SECOND, Subject, again, claim, claim_all, claim_of, claimed, endpoint, enqueue, message, name, put, queue,
    settle, to,
};
use crate::store::{ClaimMessages, ClaimedMessage, Enqueue, OutboxStore};

/// C088: a thousand messages for one endpoint do not keep the next one from its only message.
pub async fn a_thousand_messages_for_one_endpoint_do_not_hide_the_one_for_another(subject: &dyn Subject) {
    let store = subject.store();
    many(&*store, "tarpit", 1_000).await;
    subject.advance(SECOND).await;
    queue(&*store, "healthy", &["msg_1"]).await;
    let of = by_endpoint(&claim(&*store, 10).await);
    assert_eq!((of["healthy"], of["tarpit"]), (1, 9));
}

/// What there is is dealt out evenly; what one endpoint leaves goes to the others.
pub async fn a_limit_is_dealt_out_evenly(subject: &dyn Subject) {
    let store = subject.store();
    for (endpoint, messages) in [("a", 40), ("b", 40), ("c", 2), ("d", 40)] {
        many(&*store, endpoint, messages).await;
    }
    let of = by_endpoint(&claim(&*store, 17).await);
    assert_eq!((of["a"], of["b"], of["c"], of["d"]), (5, 5, 2, 5));
}

/// Who has one free slot at a time reaches everybody all the same.
pub async fn claims_of_a_single_message_reach_every_endpoint(subject: &dyn Subject) {
    let store = subject.store();
    many(&*store, "a", 100).await;
    many(&*store, "c", 100).await;
    subject.advance(SECOND).await;
    queue(&*store, "b", &["msg_1"]).await;
    // By chance it may take a while, but a hundred times is not chance.
    for _ in 0..100 {
        let [claimed] = &claim(&*store, 1).await[..] else { panic!("something is due") };
        if claimed.lease.key.endpoint == name("b") {
            return;
        }
    }
    panic!("b was never reached");
}

/// C086, C088: an endpoint gets no more at one time than its quota, and none gets what another has to leave.
pub async fn a_claim_keeps_to_its_quotas(subject: &dyn Subject) {
    let store = subject.store();
    for endpoint in ["a", "b", "c", "d"] {
        many(&*store, endpoint, 10).await;
    }
    let quotas = vec![(name("b"), 1), (name("c"), 0), (name("nowhere"), 9)];
    let asked = ClaimMessages { quota: 3, quotas, ..claim_of(99) };
    let of = by_endpoint(&claimed(&*store, asked).await);
    assert_eq!((of.get("a"), of.get("b"), of.get("c"), of.get("d")), (Some(&3), Some(&1), None, Some(&3)));
    let asked = ClaimMessages { quota: 0, quotas: vec![(name("c"), u32::MAX)], ..claim_of(99) };
    assert_eq!(by_endpoint(&claimed(&*store, asked).await), HashMap::from([("c".to_owned(), 10)]));
    assert!(claimed(&*store, ClaimMessages { quota: 0, ..claim_of(99) }).await.is_empty());
}

/// A new message does not wait behind late retries, nor a retry for the last of the new ones.
pub async fn one_in_four_was_tried_before(subject: &dyn Subject) {
    let store = subject.store();
    many(&*store, "shop", 24).await;
    for claimed in claim_all(&*store).await {
        settle(&*store, &claimed, again(SECOND)).await;
    }
    subject.advance(LEASE).await;
    put(&*store, endpoint("shop")).await;
    let fresh = (0..24).map(|n| to("shop", message(&format!("new_{n}"))));
    enqueue(&*store, fresh.collect()).await;
    assert_eq!(lanes(&claim(&*store, 8).await), (6, 2));
    assert_eq!(lanes(&claim(&*store, 16).await), (12, 4));
    // What one lane leaves, the other gets.
    assert_eq!(lanes(&claim(&*store, 16).await), (6, 10));
    assert_eq!(lanes(&claim(&*store, 16).await), (0, 8));
}

/// Who has one free slot at a time reaches retries, and new messages, all the same.
pub async fn claims_of_a_single_message_reach_both_lanes(subject: &dyn Subject) {
    let store = subject.store();
    many(&*store, "shop", 100).await;
    for claimed in claim_all(&*store).await {
        settle(&*store, &claimed, again(SECOND)).await;
    }
    subject.advance(LEASE).await;
    let fresh = (0..100).map(|n| to("shop", message(&format!("new_{n}"))));
    enqueue(&*store, fresh.collect()).await;
    let mut seen = (0, 0);
    for _ in 0..100 {
        let (fresh, tried) = lanes(&claim(&*store, 1).await);
        seen = (seen.0 + fresh, seen.1 + tried);
        if seen.0 > 0 && seen.1 > 0 {
            return;
        }
    }
    panic!("never tried and tried: {seen:?}");
}

/// An operator who replays a backlog does not hold up what is new.
pub async fn replayed_messages_do_not_get_ahead_of_new_ones(subject: &dyn Subject) {
    let store = subject.store();
    many(&*store, "shop", 24).await;
    for claimed in claim_all(&*store).await {
        settle(&*store, &claimed, super::dead("no")).await;
    }
    assert_eq!(super::replayed(&*store, crate::store::MessageFilter::default()).await.len(), 24);
    subject.advance(SECOND).await;
    let fresh = (0..24).map(|n| to("shop", message(&format!("new_{n}"))));
    enqueue(&*store, fresh.collect()).await;
    let claimed = claim(&*store, 8).await;
    assert_eq!(claimed.iter().filter(|claimed| claimed.replays > 0).count(), 2);
}

/// So many messages for an endpoint, which is added.
async fn many(store: &dyn OutboxStore, at: &str, messages: u32) {
    put(store, endpoint(at)).await;
    let batch: Vec<Enqueue> = (0..messages).map(|n| to(at, message(&format!("msg_{n}")))).collect();
    enqueue(store, batch).await;
}

fn by_endpoint(claimed: &[ClaimedMessage]) -> HashMap<String, usize> {
    let mut of = HashMap::new();
    for claimed in claimed {
        *of.entry(claimed.lease.key.endpoint.to_string()).or_default() += 1;
    }
    of
}

/// How many were never tried, and how many were.
fn lanes(claimed: &[ClaimedMessage]) -> (usize, usize) {
    let fresh = claimed.iter().filter(|claimed| claimed.lease.attempt == 1).count();
    (fresh, claimed.len() - fresh)
}
