//! Holders that come back after their lease: a process that was stopped, a machine that slept, a network that healed.

use std::sync::Arc;

use super::{FaultySubject, LEASE, acquire, answer, failure, found, key, receipt, request};
use crate::store::{Failure, InboxStore, Lease, ReceiptState, Reserve, Reserved, Settled, Unclear};

/// Whatever it tries, and however its event went on: nothing changes.
pub async fn a_late_holder_changes_nothing_that_came_after_it(subject: &dyn FaultySubject) {
    let store = subject.store();
    for next in ["runs", "succeeded", "failed", "dead"] {
        let late = acquire(&*store, next).await;
        subject.advance(LEASE).await;
        let holder = acquire(&*store, next).await;
        let ended = match next {
            "succeeded" => store.complete(holder.clone(), answer("done")).await,
            "failed" => store.fail(holder.clone(), failure("down")).await,
            "dead" => store.fail(holder.clone(), Failure { dead: Some("no".into()), ..failure("down") }).await,
            _ => store.renew(holder.clone(), LEASE).await,
        };
        assert_eq!(ended.expect("the store answers"), Settled::Done);
        let before = receipt(&*store, next).await;
        all_is_lost(&*store, &late).await;
        assert_eq!(receipt(&*store, next).await, before, "after it {next}");
    }
}

/// Nobody else ran it: it waits for an operator, who decides, and not whoever comes back.
pub async fn a_late_holder_changes_nothing_about_an_event_that_is_held(subject: &dyn FaultySubject) {
    let store = subject.store();
    let strict = |id: &str| Reserve { unclear: Unclear::Hold, ..request(id) };
    for next in ["waits", "concluded", "retried"] {
        let late = acquire(&*store, next).await;
        subject.advance(LEASE).await;
        let held = store.reserve(strict(next)).await.expect("the store answers");
        assert!(matches!(held, Reserved::DeadLetter(_)), "{held:?}");
        match next {
            "concluded" => drop(store.conclude(key(next)).await.expect("the store answers")),
            "retried" => drop(store.retry(key(next)).await.expect("the store answers")),
            _ => {}
        }
        let before = receipt(&*store, next).await;
        all_is_lost(&*store, &late).await;
        assert_eq!(receipt(&*store, next).await, before, "where it is {next}");
        let again = store.reserve(strict(next)).await.expect("the store answers");
        assert_eq!(matches!(again, Reserved::Acquired(_)), next == "retried", "{again:?}");
    }
}

/// An operator removed the event, and it came again: the old run has no part in the new one.
pub async fn a_late_holder_finds_nothing_to_settle_where_its_event_was_forgotten(subject: &dyn FaultySubject) {
    let store = subject.store();
    let late = acquire(&*store, "evt_1").await;
    assert!(store.forget(key("evt_1")).await.expect("the store answers"));
    all_is_lost(&*store, &late).await;
    assert_eq!(found(&*store, "evt_1").await, None);
    let holder = acquire(&*store, "evt_1").await;
    assert_eq!(holder.attempt, 1);
    all_is_lost(&*store, &late).await;
    assert_eq!(store.complete(holder, answer("done")).await.expect("the store answers"), Settled::Done);
    assert_eq!(receipt(&*store, "evt_1").await.result, Some(answer("done")));
}

/// The lease has run out, and at the same moment its holder settles and another one asks: one of them is told no.
pub async fn a_late_holder_and_the_next_one_never_both_win(subject: &dyn FaultySubject) {
    for round in 0..24 {
        let store = subject.store();
        let id = format!("evt_{round}");
        let late = acquire(&*store, &id).await;
        subject.advance(LEASE).await;
        let settling = {
            let (store, late) = (Arc::clone(&store), late.clone());
            tokio::spawn(async move {
                let settled = match round % 4 {
                    0 => store.complete(late, answer("late")).await,
                    1 => store.fail(late, failure("late")).await,
                    2 => store.renew(late, LEASE).await,
                    _ => store.release(late).await,
                };
                settled.expect("the store answers")
            })
        };
        let asking = {
            let (store, request) = (Arc::clone(&store), request(&id));
            tokio::spawn(async move { store.reserve(request).await.expect("the store answers") })
        };
        let (settled, asked) = (settling.await.expect("no panic"), asking.await.expect("no panic"));
        match (settled, asked) {
            // The new holder came first, or after a run that had ended or been given back.
            (Settled::LeaseLost, Reserved::Acquired(holder)) => {
                assert_eq!(holder.attempt, 2);
                all_is_lost(&*store, &late).await;
            }
            (Settled::Done, Reserved::Acquired(holder)) => {
                assert!(matches!(round % 4, 1 | 3), "a run that ended well, or goes on, was given to another holder");
                assert!(holder.token != late.token);
            }
            (Settled::Done, Reserved::Succeeded(_)) => assert_eq!(round % 4, 0),
            (Settled::Done, Reserved::Processing(_)) => {
                // It still runs, or another transaction had it in hand: whichever, it can be had in the end.
                subject.advance(LEASE).await;
                match store.reserve(request(&id)).await.expect("the store answers") {
                    Reserved::Succeeded(_) => assert_eq!(round % 4, 0),
                    Reserved::Acquired(_) => assert_ne!(round % 4, 0),
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

async fn all_is_lost(store: &dyn InboxStore, late: &Lease) {
    let tries = [
        store.renew(late.clone(), LEASE),
        store.release(late.clone()),
        store.complete(late.clone(), answer("late")),
        store.fail(late.clone(), failure("late")),
        store.fail(late.clone(), Failure { dead: Some("late".into()), ..failure("late") }),
    ];
    for tried in tries {
        assert_eq!(tried.await.expect("the store answers"), Settled::LeaseLost);
    }
    let end = [ReceiptState::Succeeded, ReceiptState::Failed, ReceiptState::DeadLetter];
    if let Some(receipt) = store.find(late.key.clone()).await.expect("the store answers") {
        let is_late = receipt.result.as_ref() == Some(&answer("late"));
        assert!(!end.contains(&receipt.state) || !is_late, "{receipt:?}");
    }
}
