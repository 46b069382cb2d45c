//! Connections that are lost while messages are claimed, held and settled: a dispatcher that does not know whether its word
//! counts says it again.

use std::time::Duration;

use super::connection::{done, everywhere};
use super::{
    FaultySubject, LEASE, again, claim_of, claim_one, claimed, delivered, enqueue, entry, name, settle, settled, shop,
    succeeded,
};
use crate::store::{Claims, MessageLease, MessageState, OutboxStore, Settled, StoreError};

/// A message whose claim was lost with its answer is claimed again when its lease has run out.
pub async fn a_connection_lost_anywhere_in_a_claim_delays_messages_at_most(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let prepare = async |id: &str| enqueue(&*store, id).await;
    let call = async |_: &str, ()| store.claim_messages(claim_of(9)).await;
    let check = async |id: &str, (), answered: Result<Claims, StoreError>| {
        let mut got = answered.map(|claims| claims.messages).unwrap_or_default();
        if got.is_empty() {
            got = claimed(&*store).await;
        }
        if got.is_empty() {
            subject.advance(LEASE).await;
            got = claimed(&*store).await;
        }
        assert!(claimed(&*store).await.is_empty(), "{id}: it was handed out twice");
        let [claimed] = &got[..] else { panic!("{id}: {got:?}") };
        settle(&*store, &claimed.lease, delivered()).await;
        succeeded(&*store, id).await;
    };
    everywhere(subject, "msg", prepare, call, check).await;
}

/// A settlement whose answer was lost stands: it is noted once, and the message is not sent again.
pub async fn a_connection_lost_anywhere_in_a_settlement_ends_the_attempt_once(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let prepare = async |id: &str| held(&*store, id).await;
    let call = async |_: &str, lease: MessageLease| store.settle(lease, delivered()).await;
    let check = async |id: &str, lease: MessageLease, answered| {
        let stands = entry(&*store, id).await.state;
        if done(id, &answered) {
            assert_eq!(stands, MessageState::Succeeded, "{id}: it was told so");
        } else {
            let expected = if stands == MessageState::Delivering { Settled::Done } else { Settled::LeaseLost };
            assert_eq!(settled(&*store, &lease, delivered()).await, expected, "{id}");
        }
        succeeded(&*store, id).await;
        assert_eq!(settled(&*store, &lease, again(Duration::ZERO)).await, Settled::LeaseLost, "{id}");
        assert!(claimed(&*store).await.is_empty(), "{id}");
    };
    everywhere(subject, "msg", prepare, call, check).await;
}

/// One attempt, one line of its history, one failure of its endpoint.
pub async fn a_failed_attempt_is_counted_once_wherever_a_connection_was_lost(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let failures = async || {
        let shop = store.endpoint(name("shop")).await.expect("the store answers");
        shop.expect("it is there").failures
    };
    let prepare = async |id: &str| {
        let lease = held(&*store, id).await;
        (lease, failures().await)
    };
    let call = async |_: &str, (lease, _): (MessageLease, u64)| store.settle(lease, again(Duration::ZERO)).await;
    let check = async |id: &str, (lease, before): (MessageLease, u64), answered| {
        if !done(id, &answered) && entry(&*store, id).await.state == MessageState::Delivering {
            settle(&*store, &lease, again(Duration::ZERO)).await;
        }
        let failed = entry(&*store, id).await;
        assert_eq!((failed.state, failed.attempts, failed.attempt_log.len()), (MessageState::Pending, 1, 1), "{id}");
        assert_eq!(failures().await, before + 1, "{id}");
        let next = claim_one(&*store).await;
        assert_eq!(next.attempt, 2, "{id}");
        // Not delivered, so that its endpoint goes on failing.
        settle(&*store, &next, super::dead()).await;
    };
    everywhere(subject, "msg", prepare, call, check).await;
}

/// Whoever gives a message back, or asks for more time, leaves it held or free, and never neither.
pub async fn a_connection_lost_anywhere_in_a_release_or_renewal_leaves_the_message_to_somebody(
    subject: &dyn FaultySubject,
) {
    let store = subject.store();
    shop(&*store).await;
    let prepare = async |id: &str| held(&*store, id).await;
    let renew = async |_: &str, lease: MessageLease| store.renew_message(lease, LEASE).await;
    let check = async |id: &str, lease: MessageLease, answered| {
        let _either = done(id, &answered);
        assert!(claimed(&*store).await.is_empty(), "{id}: its holder still has it");
        settle(&*store, &lease, delivered()).await;
        succeeded(&*store, id).await;
    };
    everywhere(subject, "renewed", prepare, renew, check).await;

    let release = async |_: &str, lease: MessageLease| store.release_message(lease).await;
    let check = async |id: &str, lease: MessageLease, answered| {
        if !done(id, &answered) && entry(&*store, id).await.state == MessageState::Delivering {
            assert_eq!(store.release_message(lease).await.expect("the store answers"), Settled::Done, "{id}");
        }
        let free = claim_one(&*store).await;
        assert_eq!((free.key.id.as_str(), free.attempt), (id, 1), "the attempt that was given back does not count");
        settle(&*store, &free, delivered()).await;
        succeeded(&*store, id).await;
    };
    everywhere(subject, "released", prepare, release, check).await;
}

async fn held(store: &dyn OutboxStore, id: &str) -> MessageLease {
    enqueue(store, id).await;
    claim_one(store).await
}
