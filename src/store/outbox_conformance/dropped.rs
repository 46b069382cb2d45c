//! That a call may be dropped wherever it waits.

use std::future::poll_fn;
use std::task::Poll;

use super::{
    LEASE, Subject, by_id, claim, claim_all, claim_of, dead, delivered, endpoint, enqueue, entry, event_id, message,
    put, queue, replayed, settle, settled, to,
};
use crate::store::{MessageFilter, MessageLease, MessageState, OutboxEntry, OutboxStore, Settled, StoreFuture, Token};

/// How often a call is polled before it is dropped, in turn: none of the stores waits more often than this.
const POINTS: u32 = 12;

/// A batch whose call was dropped is there whole and due, or not at all.
pub async fn an_enqueue_dropped_at_any_point_leaves_all_of_its_batch_or_none(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    for points in 0..POINTS {
        let batch: [String; 3] = ["a", "b", "c"].map(|letter| format!("msg_{points}_{letter}"));
        let messages = || batch.iter().map(|id| to("shop", message(id))).collect::<Vec<_>>();
        drop_after(store.enqueue(messages()), points).await;
        enqueue(&*store, vec![to("shop", message(&format!("barrier_{points}")))]).await;
        // In one look: where several connections write it may be committed only now.
        let all = MessageFilter { limit: 1_000, ..MessageFilter::default() };
        let listed = store.list_messages(all).await.expect("the store answers");
        let is_there = |entry: &OutboxEntry| {
            entry.state == MessageState::Pending && batch.iter().any(|id| entry.message.id.as_str() == id)
        };
        let there = listed.iter().filter(|entry| is_there(entry)).count();
        assert!(there == 0 || there == batch.len(), "{there} of {} after {points}", batch.len());
        let again = enqueue(&*store, messages()).await;
        assert!(again == [true; 3] || again == [false; 3], "{again:?} after {points}");
        assert!(there == 0 || again == [false; 3], "a second time after {points}");
        assert_eq!(claim_all(&*store).await.len(), 4);
    }
}

/// What a claim took whose caller is gone falls due again by itself.
pub async fn what_a_dropped_claim_took_comes_back(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    for points in 0..POINTS {
        let id = format!("msg_{points}");
        enqueue(&*store, vec![to("shop", message(&id))]).await;
        drop_after(store.claim_messages(claim_of(9)), points).await;
        let taken = claim_all(&*store).await;
        let held = entry(&*store, "shop", &id).await;
        assert_eq!((held.state, held.attempts), (MessageState::Delivering, 1), "after {points}");
        if taken.is_empty() {
            subject.advance(LEASE).await;
            let [claimed] = &claim(&*store, 9).await[..] else { panic!("it falls due again") };
            assert_eq!(claimed.lease.attempt, 2);
            settle(&*store, claimed, delivered()).await;
        } else {
            settle(&*store, &taken[0], delivered()).await;
        }
    }
}

/// The end of an attempt that was dropped is there with all it brought, or the attempt has not ended.
pub async fn a_settlement_dropped_at_any_point_is_there_whole_or_not_at_all(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    for points in 0..POINTS {
        let id = format!("msg_{points}");
        enqueue(&*store, vec![to("shop", message(&id))]).await;
        let lease = claim(&*store, 9).await.remove(0).lease;
        drop_after(store.renew_message(lease.clone(), LEASE), points).await;
        drop_after(store.settle(lease.clone(), dead("no")), points).await;
        let nobody = MessageLease { token: Token::from_bytes([7; 16]), ..lease.clone() };
        assert_eq!(settled(&*store, &nobody, delivered()).await, Settled::LeaseLost);
        let seen = entry(&*store, "shop", &id).await;
        if seen.state == MessageState::Delivering {
            assert_eq!((seen.attempt_log.len(), seen.last_status), (0, None));
            assert_eq!(settled(&*store, &lease, dead("no")).await, Settled::Done);
        } else {
            assert_eq!((seen.state, seen.reason.as_deref()), (MessageState::DeadLetter, Some("no")));
            assert_eq!((seen.attempt_log.len(), seen.last_error.as_deref()), (1, Some("refused")));
            assert_eq!(settled(&*store, &lease, delivered()).await, Settled::LeaseLost);
        }
        assert_eq!(entry(&*store, "shop", &id).await.attempt_log.len(), 1);
    }
}

/// A message that was given back, replayed or taken back by a call that was dropped can still be: nothing is in between.
pub async fn an_operators_call_dropped_at_any_point_can_be_made_again(subject: &dyn Subject) {
    let store = subject.store();
    for points in 0..POINTS {
        let id = format!("msg_{points}");
        queue(&*store, "shop", &[&id]).await;
        let lease = claim(&*store, 9).await.remove(0).lease;
        drop_after(store.release_message(lease.clone()), points).await;
        let again = store.release_message(lease).await.expect("the store answers");
        assert!(matches!(again, Settled::Done | Settled::LeaseLost));
        assert_eq!(entry(&*store, "shop", &id).await.state, MessageState::Pending);
        settle(&*store, &claim(&*store, 9).await[0], dead("no")).await;

        drop_after(store.replay(by_id(&id), LEASE), points).await;
        replayed(&*store, by_id(&id)).await;
        let seen = entry(&*store, "shop", &id).await;
        assert_eq!((seen.state, seen.replays, seen.attempts), (MessageState::Pending, 1, 0));
        drop_after(store.cancel(by_id(&id)), points).await;
        cancel_rest(&*store, &id).await;
        let seen = entry(&*store, "shop", &id).await;
        assert_eq!((seen.state, seen.due), (MessageState::Cancelled, None));
    }
}

async fn cancel_rest(store: &dyn OutboxStore, id: &str) {
    let filter = MessageFilter { id: Some(event_id(id)), ..MessageFilter::default() };
    store.cancel(filter).await.expect("the store answers");
}

async fn drop_after<T>(mut call: StoreFuture<'_, T>, points: u32) {
    for _ in 0..points {
        if poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
