//! Clocks that jump: a server that fails over to one whose clock differs, a machine that is set right.

use super::{
    FaultySubject, HOUR, LEASE, SECOND, again, claim_exactly, claim_of, claim_one, claimed, delivered, enqueue, entry,
    message, name, purge, settle, settled, shop, succeeded,
};
use crate::store::{Enqueue, Message, MessageState, OutboxStore, Settled};

/// Whoever holds a message holds it: earlier is not later than the end of its lease.
pub async fn a_clock_set_back_gives_no_message_to_two_dispatchers(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    enqueue(&*store, "msg_1").await;
    let lease = claim_one(&*store).await;
    subject.turn_back(HOUR).await;
    assert!(claimed(&*store).await.is_empty());
    settle(&*store, &lease, delivered()).await;
    assert!(claimed(&*store).await.is_empty());
    succeeded(&*store, "msg_1").await;
}

/// What is due an hour later than it was is still due, and so is what an endpoint's pause held back.
pub async fn a_clock_set_back_forgets_no_message_that_is_owed(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    for id in ["again", "fresh", "released", "runs"] {
        enqueue(&*store, id).await;
    }
    for claimed in claimed(&*store).await {
        let lease = claimed.lease;
        match lease.key.id.as_str() {
            "again" => {
                let mut again = again(SECOND);
                again.endpoint.pause = Some(SECOND);
                settle(&*store, &lease, again).await;
            }
            "fresh" | "released" => {
                assert_eq!(store.release_message(lease).await.expect("the store answers"), Settled::Done);
            }
            _ => {}
        }
    }
    subject.turn_back(HOUR).await;
    assert!(claimed(&*store).await.is_empty(), "its endpoint asked for time");
    subject.advance(HOUR + LEASE + LEASE).await;
    for claimed in claim_exactly(&*store, 4).await {
        settle(&*store, &claimed.lease, delivered()).await;
    }
}

/// The one behind waits for the one that is being delivered, whatever time it is.
pub async fn a_clock_set_back_keeps_the_order(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    for id in ["msg_1", "msg_2"] {
        let ordered = Message { ordering_key: Some(name("order_7")), ..message(id) };
        store.enqueue(vec![Enqueue::new(name("shop"), ordered)]).await.expect("the store answers");
    }
    let first = claim_one(&*store).await;
    assert_eq!(first.key.id.as_str(), "msg_1");
    subject.turn_back(HOUR).await;
    assert!(claimed(&*store).await.is_empty());
    settle(&*store, &first, delivered()).await;
    subject.advance(HOUR + LEASE).await;
    assert_eq!(claim_one(&*store).await.key.id.as_str(), "msg_2");
}

/// A message of the future is not one of long ago.
pub async fn a_clock_set_back_makes_no_message_old(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    for id in ["done", "waits"] {
        enqueue(&*store, id).await;
    }
    let both = claimed(&*store).await;
    for claimed in &both {
        if claimed.lease.key.id.as_str() == "done" {
            settle(&*store, &claimed.lease, delivered()).await;
        } else {
            assert_eq!(store.release_message(claimed.lease.clone()).await.expect("the store answers"), Settled::Done);
        }
    }
    subject.turn_back(HOUR).await;
    assert_eq!(purge(&*store, 10).await.expect("the store answers"), 0);
    succeeded(&*store, "done").await;
    subject.advance(HOUR + SECOND).await;
    let waits = claim_exactly(&*store, 1).await.remove(0);
    assert!(waits.age < HOUR, "its age is counted by one clock: {:?}", waits.age);
}

/// A holder that renews is given what it asks for from now on, not what the clock said before.
pub async fn a_message_renewed_after_the_clock_was_set_back_is_held_from_then(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    enqueue(&*store, "msg_1").await;
    let lease = claim_one(&*store).await;
    subject.turn_back(HOUR).await;
    assert_eq!(store.renew_message(lease, LEASE).await.expect("the store answers"), Settled::Done);
    assert!(claimed(&*store).await.is_empty());
    subject.advance(LEASE).await;
    assert_eq!(claim_one(&*store).await.attempt, 2);
}

/// All leases run out at once: each message goes to one new holder, and none of the old ones settles anything.
pub async fn a_clock_that_jumps_ahead_hands_messages_over_once(subject: &dyn FaultySubject) {
    const MESSAGES: usize = 12;
    let store = subject.store();
    shop(&*store).await;
    for number in 0..MESSAGES {
        enqueue(&*store, &format!("msg_{number:02}")).await;
    }
    let late = claimed(&*store).await;
    assert_eq!(late.len(), MESSAGES);
    subject.advance(24 * HOUR).await;
    let mut claiming = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = subject.store();
        claiming.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..MESSAGES {
                got.extend(store.claim_messages(claim_of(5)).await.expect("the store answers").messages);
            }
            got
        });
    }
    let got: Vec<_> = claiming.join_all().await.into_iter().flatten().collect();
    assert_eq!(got.len(), MESSAGES, "each message has one holder");
    for late in late {
        assert_eq!(settled(&*store, &late.lease, delivered()).await, Settled::LeaseLost);
    }
    for claimed in got {
        assert_eq!(claimed.lease.attempt, 2);
        settle(&*store, &claimed.lease, delivered()).await;
        assert_eq!(entry(&*store, claimed.lease.key.id.as_str()).await.state, MessageState::Succeeded);
    }
}
