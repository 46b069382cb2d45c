//! Dispatchers that come back after their lease: a process that was stopped, a machine that slept, a network that healed.

use std::sync::Arc;
use std::time::Duration;

use super::{
    FaultySubject, HOUR, LEASE, again, by_id, claim_of, claim_one, claimed, dead, delivered, enqueue, entry, found,
    name, purge, settle, shop, succeeded,
};
use crate::store::{EndpointNews, MessageLease, MessageState, OutboxStore, Settled, Settlement};

/// Whatever it tries, and however its message went on: nothing changes, and its endpoint is none the worse.
pub async fn a_late_dispatcher_changes_nothing_that_came_after_it(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    for next in ["runs", "succeeded", "dead", "cancelled", "again"] {
        enqueue(&*store, next).await;
        let late = claim_one(&*store).await;
        subject.advance(LEASE).await;
        let holder = claim_one(&*store).await;
        match next {
            "succeeded" => settle(&*store, &holder, delivered()).await,
            "dead" => settle(&*store, &holder, dead()).await,
            "again" => settle(&*store, &holder, again(100 * HOUR)).await,
            "cancelled" => {
                settle(&*store, &holder, again(HOUR)).await;
                assert_eq!(store.cancel(by_id(next)).await.expect("the store answers").len(), 1);
            }
            _ => {
                let renewed = store.renew_message(holder.clone(), 100 * HOUR).await;
                assert_eq!(renewed.expect("the store answers"), Settled::Done);
            }
        }
        let shop = store.endpoint(name("shop")).await.expect("the store answers");
        let before = entry(&*store, next).await;
        all_is_lost(&*store, &late).await;
        assert_eq!(entry(&*store, next).await, before, "after it {next}");
        assert_eq!(store.endpoint(name("shop")).await.expect("the store answers"), shop, "after it {next}");
    }
}

/// The attempt of a replay has the number that an earlier one had: it is told apart all the same.
pub async fn a_late_dispatcher_has_no_part_in_a_replay(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    enqueue(&*store, "msg_1").await;
    let late = claim_one(&*store).await;
    subject.advance(LEASE).await;
    settle(&*store, &claim_one(&*store).await, dead()).await;
    assert_eq!(store.replay(by_id("msg_1"), Duration::ZERO).await.expect("the store answers").len(), 1);
    all_is_lost(&*store, &late).await;
    let holder = claim_one(&*store).await;
    assert_eq!(holder.attempt, late.attempt);
    all_is_lost(&*store, &late).await;
    settle(&*store, &holder, delivered()).await;
    let end = entry(&*store, "msg_1").await;
    assert_eq!((end.state, end.attempts, end.replays), (MessageState::Succeeded, 1, 1));
}

/// Its message has ended and reached its age, and another one of that id came: it has no part in that.
pub async fn a_late_dispatcher_finds_nothing_to_settle_where_its_message_was_purged(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    enqueue(&*store, "msg_1").await;
    let late = claim_one(&*store).await;
    subject.advance(LEASE).await;
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    subject.advance(2 * HOUR).await;
    assert_eq!(purge(&*store, 10).await.expect("the store answers"), 1);
    all_is_lost(&*store, &late).await;
    assert_eq!(found(&*store, "msg_1").await, None);
    enqueue(&*store, "msg_1").await;
    let holder = claim_one(&*store).await;
    all_is_lost(&*store, &late).await;
    settle(&*store, &holder, delivered()).await;
    succeeded(&*store, "msg_1").await;
}

/// The lease has run out, and at the same moment its holder settles and another one claims: one of them is told no.
pub async fn a_late_dispatcher_and_the_next_one_never_both_win(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    for round in 0..24 {
        let id = format!("msg_{round}");
        enqueue(&*store, &id).await;
        let late = claim_one(&*store).await;
        subject.advance(LEASE).await;
        let settling = {
            let (store, late) = (Arc::clone(&store), late.clone());
            tokio::spawn(async move {
                let settled = match round % 4 {
                    0 => store.settle(late, delivered()).await,
                    1 => store.settle(late, again(Duration::ZERO)).await,
                    2 => store.renew_message(late, LEASE).await,
                    _ => store.release_message(late).await,
                };
                settled.expect("the store answers")
            })
        };
        let claiming = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.claim_messages(claim_of(9)).await.expect("the store answers").messages })
        };
        let (settled, mut got) = (settling.await.expect("no panic"), claiming.await.expect("no panic"));
        match (settled, &got[..]) {
            (Settled::LeaseLost, [next]) => {
                assert_eq!(next.lease.attempt, 2);
                all_is_lost(&*store, &late).await;
            }
            (Settled::Done, [next]) => {
                assert!(matches!(round % 4, 1 | 3), "round {round}: it has ended, or its holder goes on");
                assert!(next.lease.token != late.token);
            }
            (Settled::Done, []) => {
                // It has ended, is held, or another transaction had it in hand: whichever, it can be had in the end.
                subject.advance(LEASE).await;
                got = claimed(&*store).await;
                assert_eq!(got.len(), usize::from(round % 4 != 0), "round {round}");
            }
            other => panic!("round {round}: {other:?}"),
        }
        for next in got {
            settle(&*store, &next.lease, delivered()).await;
        }
        assert_eq!(entry(&*store, &id).await.state, MessageState::Succeeded, "round {round}");
    }
}

async fn all_is_lost(store: &dyn OutboxStore, late: &MessageLease) {
    let news = EndpointNews { pause: Some(HOUR), disable: Some("late".into()), ..again(HOUR).endpoint };
    let tries = [
        store.renew_message(late.clone(), LEASE),
        store.release_message(late.clone()),
        store.settle(late.clone(), delivered()),
        store.settle(late.clone(), Settlement { endpoint: news, ..again(HOUR) }),
        store.settle(late.clone(), dead()),
    ];
    for tried in tries {
        assert_eq!(tried.await.expect("the store answers"), Settled::LeaseLost);
    }
}
