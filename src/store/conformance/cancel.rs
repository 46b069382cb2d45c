//! That a call may be dropped wherever it waits.

use std::future::poll_fn;
use std::task::Poll;

use http::StatusCode;

use super::{
    LEASE, Subject, accept, accepted, acquire, answer, claim_of, claim_one, complete, fail, failure, key, receipt,
    request, reserved,
};
use crate::store::{Accepted, ReceiptState, Reserved, Settled, StoreFuture};

/// How often a call is polled before it is dropped, in turn: none of the stores waits more often than this.
const POINTS: u32 = 12;

/// A reservation that was dropped is there or not; either way the event gets its turn.
pub async fn a_call_dropped_at_any_point_takes_effect_wholly_or_not_at_all(subject: &dyn Subject) {
    let store = subject.store();
    for points in 0..POINTS {
        let id = format!("evt_{points}");
        drop_after(store.reserve(request(&id)), points).await;
        // What was sent before this check is done or dropped when it returns.
        store.check().await.expect("the store works on");
        match store.find(key(&id)).await.expect("the store answers") {
            None => assert_eq!(acquire(&*store, request(&id)).await.attempt, 1),
            Some(receipt) => {
                assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Processing, 1));
                assert!(matches!(reserved(&*store, request(&id)).await, Reserved::Processing(_)));
                subject.advance(LEASE).await;
                assert_eq!(acquire(&*store, request(&id)).await.attempt, 2);
            }
        }
    }
}

/// An event whose acceptance was dropped is there, whole and due, or not at all; what a dropped claim took comes back.
pub async fn an_accept_or_claim_dropped_at_any_point_loses_no_event(subject: &dyn Subject) {
    let store = subject.store();
    for points in 0..POINTS {
        let id = format!("evt_{points}");
        drop_after(store.accept(accepted(&id)), points).await;
        store.check().await.expect("the store works on");
        if store.find(key(&id)).await.expect("the store answers").is_none() {
            assert_eq!(accept(&*store, accepted(&id)).await, Accepted::Stored);
        }
        drop_after(store.claim(claim_of(9)), points).await;
        store.check().await.expect("the store works on");
        let held = receipt(&*store, &id).await;
        assert!(held.due.is_some() && held.request.is_some(), "{held:?}");
        subject.advance(LEASE).await;
        let claimed = claim_one(&*store).await;
        assert_eq!(claimed.lease.key, key(&id));
        assert_eq!(complete(&*store, claimed.lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
    }
}

/// The end of a run that was dropped is there with all it brought, or the run has not ended.
pub async fn a_complete_dropped_at_any_point_keeps_its_whole_result_or_none(subject: &dyn Subject) {
    let store = subject.store();
    let done = || answer(StatusCode::OK, b"done");
    for points in 0..POINTS {
        let id = format!("evt_{points}");
        let lease = acquire(&*store, request(&id)).await;
        drop_after(store.renew(lease.clone(), LEASE), points).await;
        drop_after(store.complete(lease.clone(), done()), points).await;
        store.check().await.expect("the store works on");
        let seen = receipt(&*store, &id).await;
        if seen.state == ReceiptState::Processing {
            assert_eq!(seen.result, None);
            assert_eq!(complete(&*store, lease, done()).await, Settled::Done);
        } else {
            assert_eq!((seen.state, seen.result), (ReceiptState::Succeeded, Some(done())));
            assert_eq!(fail(&*store, lease, failure("late")).await, Settled::LeaseLost);
        }
    }
}

async fn drop_after<T>(mut call: StoreFuture<'_, T>, points: u32) {
    for _ in 0..points {
        if poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
