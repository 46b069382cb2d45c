//! Purging while everybody works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::{FaultySubject, HOUR, claim_of, claimed, delivered, enqueue, found, new, purge, settle, shop, succeeded};
use crate::store::{OutboxStore, Settled};

/// Old and young messages have neighbouring ids: the old ones go, no call fails, and of the young ones each is sent once.
pub async fn a_purge_of_messages_under_load_fails_no_call_and_touches_nothing_young(subject: &dyn FaultySubject) {
    const MESSAGES: usize = 60;
    const SENDERS: usize = 4;
    const DISPATCHERS: usize = 4;
    let store = subject.store();
    shop(&*store).await;
    for number in 0..MESSAGES {
        enqueue(&*store, &format!("msg_{number:03}_old")).await;
    }
    for claimed in claimed(&*store).await {
        settle(&*store, &claimed.lease, delivered()).await;
    }
    subject.advance(2 * HOUR).await;

    let stop = Arc::new(AtomicBool::new(false));
    let mut purging = JoinSet::new();
    for _ in 0..2 {
        let (store, stop) = (subject.store(), Arc::clone(&stop));
        purging.spawn(async move {
            let mut removed = 0;
            while !stop.load(Ordering::SeqCst) {
                removed += purge(&*store, 7).await.expect("no call fails");
                tokio::task::yield_now().await;
            }
            removed
        });
    }
    let mut sending = JoinSet::new();
    for sender in 0..SENDERS {
        let store = subject.store();
        sending.spawn(async move {
            let mut made = 0;
            for number in 0..MESSAGES {
                let asked = new(&format!("msg_{:03}_young", (number + sender) % MESSAGES));
                made += usize::from(store.enqueue(vec![asked]).await.expect("no call fails")[0].created);
            }
            made
        });
    }
    let mut dispatching = JoinSet::new();
    let all_sent = Arc::new(AtomicBool::new(false));
    for _ in 0..DISPATCHERS {
        let (store, all_sent) = (subject.store(), Arc::clone(&all_sent));
        dispatching.spawn(async move {
            let mut ends = 0;
            let mut in_vain = 0;
            while in_vain < super::CLAIMS {
                let claims = store.claim_messages(claim_of(4)).await.expect("no call fails").messages;
                let is_over = all_sent.load(Ordering::SeqCst) && claims.is_empty();
                in_vain = if is_over { in_vain + 1 } else { 0 };
                for claimed in claims {
                    let settled = store.settle(claimed.lease, delivered()).await.expect("no call fails");
                    assert_eq!(settled, Settled::Done);
                    ends += 1;
                }
                tokio::task::yield_now().await;
            }
            ends
        });
    }
    assert_eq!(sending.join_all().await.into_iter().sum::<usize>(), MESSAGES, "each message is made once");
    all_sent.store(true, Ordering::SeqCst);
    assert_eq!(dispatching.join_all().await.into_iter().sum::<usize>(), MESSAGES, "each message is sent once");
    stop.store(true, Ordering::SeqCst);
    let mut removed: u64 = purging.join_all().await.into_iter().sum();
    loop {
        match purge(&*store, 100).await.expect("no call fails") {
            0 => break,
            more => removed += more,
        }
    }
    assert_eq!(removed, MESSAGES as u64, "each old message is removed once");
    for number in 0..MESSAGES {
        assert_eq!(found(&*store, &format!("msg_{number:03}_old")).await, None);
        succeeded(&*store, &format!("msg_{number:03}_young")).await;
    }
}
