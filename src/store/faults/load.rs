//! Purging while everybody works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::{FaultySubject, HOUR, acquire, answer, found, receipt, request};
use crate::store::{InboxStore, ReceiptState, Reserved, Retention, Settled};

/// Old and young events have neighbouring ids: the old ones go, no call fails, and of the young ones each runs once.
pub async fn a_purge_under_load_fails_no_call_and_touches_nothing_young(subject: &dyn FaultySubject) {
    const EVENTS: usize = 60;
    const WRITERS: usize = 12;
    let store = subject.store();
    for number in 0..EVENTS {
        let lease = acquire(&*store, &format!("evt_{number:03}_old")).await;
        assert_eq!(store.complete(lease, answer("old")).await.expect("the store answers"), Settled::Done);
    }
    subject.advance(2 * HOUR).await;

    let stop = Arc::new(AtomicBool::new(false));
    let mut purging = JoinSet::new();
    for _ in 0..2 {
        let (store, stop) = (subject.store(), Arc::clone(&stop));
        purging.spawn(async move {
            let mut keys = 0;
            while !stop.load(Ordering::SeqCst) {
                keys += purge(&*store, 7).await;
                tokio::task::yield_now().await;
            }
            keys
        });
    }
    let mut writing = JoinSet::new();
    for writer in 0..WRITERS {
        let store = subject.store();
        writing.spawn(async move {
            let mut runs = 0;
            for number in 0..EVENTS {
                let asked = request(&format!("evt_{:03}_young", (number + writer) % EVENTS));
                if let Reserved::Acquired(lease) = store.reserve(asked).await.expect("no call fails") {
                    runs += 1;
                    assert_eq!(store.complete(lease, answer("young")).await.expect("no call fails"), Settled::Done);
                }
            }
            runs
        });
    }
    assert_eq!(writing.join_all().await.into_iter().sum::<usize>(), EVENTS, "each event runs once");
    stop.store(true, Ordering::SeqCst);
    let mut keys: u64 = purging.join_all().await.into_iter().sum();
    loop {
        match purge(&*store, 100).await {
            0 => break,
            more => keys += more,
        }
    }
    assert_eq!(keys, EVENTS as u64, "each receipt is removed once");
    for number in 0..EVENTS {
        assert_eq!(found(&*store, &format!("evt_{number:03}_old")).await, None);
        let young = receipt(&*store, &format!("evt_{number:03}_young")).await;
        assert_eq!((young.state, young.attempts, young.result), (ReceiptState::Succeeded, 1, Some(answer("young"))));
    }
}

async fn purge(store: &dyn InboxStore, limit: u32) -> u64 {
    let retention = Retention { results: HOUR, keys: HOUR };
    store.purge(retention, limit).await.expect("no call fails").keys
}
