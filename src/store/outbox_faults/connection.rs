//! Connections that are lost: before a statement, after it, and between a commit and its answer.
//!
//! Each promise is tried with a break at the first message of a call, at the second, and so on, until the call is over before
//! the break comes; in both directions; and with the database back at once or out of reach for the rest of the call. A call
//! may then fail, as one that is worth trying again ([`StoreError::is_transient`]), and may or may not have taken effect.
//! What it must not do is to leave a message half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{
    Break, FaultySubject, LEASE, PATIENCE, Side, claim_exactly, claim_of, claimed, delivered, enqueue, entry, key,
    message, new, settle, shop, succeeded,
};
use crate::store::{ClaimMessages, MessageFilter, MessageState, OutboxStore, Settled, StoreError, StoreFuture};

/// Reading changes nothing, and goes on when the database is back.
pub async fn a_connection_lost_while_reading_messages_is_made_anew(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    enqueue(&*store, "msg_1").await;
    for side in SIDES {
        for at in 1..=4 {
            if !subject.break_at(Break { message: at, side, lasting: false }) {
                return;
            }
            let read = store.find_message(key("msg_1")).await;
            let due = store.next_due().await;
            let came = subject.heal();
            assert!(came || at > 1, "{side:?}: nothing was lost at the first message");
            match read {
                Ok(read) => assert_eq!(read.map(|entry| entry.message), Some(message("msg_1"))),
                Err(error) => assert!(came && error.is_transient(), "{error}"),
            }
            match due {
                Ok(due) => assert_eq!(due, Some(Duration::ZERO)),
                Err(error) => assert!(came && error.is_transient(), "{error}"),
            }
            assert_eq!(entry(&*store, "msg_1").await.message, message("msg_1"));
            let listed = store.list_messages(MessageFilter::default()).await.expect("the store answers");
            assert_eq!(listed.len(), 1);
        }
    }
}

/// Connections go all the time, and everybody tries again as senders and dispatchers do: each message is there once, and
/// ends once.
pub async fn connections_lost_under_load_deliver_every_message_once(subject: &dyn FaultySubject) {
    const MESSAGES: usize = 40;
    const SENDERS: usize = 4;
    const DISPATCHERS: usize = 4;
    shop(&*subject.store()).await;
    if !subject.break_at(Break { message: 5, side: Side::Answer, lasting: false }) {
        return;
    }
    let told = Arc::new(AtomicUsize::new(0));
    let mut working = JoinSet::new();
    for sender in 0..SENDERS {
        let (store, told) = (subject.store(), Arc::clone(&told));
        working.spawn(async move {
            for number in 0..MESSAGES {
                let asked = new(&format!("msg_{}", (number + sender * 5) % MESSAGES));
                until_told(|| store.enqueue(vec![asked.clone()])).await;
                told.fetch_add(1, Ordering::SeqCst);
            }
            0
        });
    }
    for _ in 0..DISPATCHERS {
        let (store, told) = (subject.store(), Arc::clone(&told));
        working.spawn(async move {
            let mut ends = 0;
            let mut in_vain = 0;
            while in_vain < 50 {
                let Ok(claims) = store.claim_messages(claim_of(4)).await else { continue };
                told.fetch_add(1, Ordering::SeqCst);
                in_vain = if claims.messages.is_empty() { in_vain + 1 } else { 0 };
                for claimed in claims.messages {
                    // Lost: a call before this one took effect, and its caller was told that it may not have.
                    let settled = until_told(|| store.settle(claimed.lease.clone(), delivered())).await;
                    ends += usize::from(settled == Settled::Done);
                }
            }
            ends
        });
    }
    let (mut turn, mut before, mut lost) = (0, 0, 0);
    let mut ends = 0;
    while !working.is_empty() {
        tokio::select! {
            Some(ended) = working.join_next() => ends += ended.expect("no panic"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                // Somebody gets on in between, however slow it is.
                let so_far = told.load(Ordering::SeqCst);
                if so_far < before + 8 {
                    continue;
                }
                (turn, before) = (turn + 1, so_far);
                lost += u32::from(subject.heal());
                let side = if turn % 2 == 0 { Side::Answer } else { Side::Question };
                subject.break_at(Break { message: 1 + turn % 7, side, lasting: false });
            }
        }
    }
    lost += u32::from(subject.heal());
    assert!(lost > 0, "nothing was lost in {turn} turns");
    assert!(ends <= MESSAGES, "{ends} ends of {MESSAGES} messages");
    // What somebody was given and never heard of waits for its lease.
    subject.advance(LEASE).await;
    let store = subject.store();
    for claimed in claimed(&*store).await {
        settle(&*store, &claimed.lease, delivered()).await;
    }
    let all = store.list_messages(MessageFilter { limit: 1_000, ..MessageFilter::default() });
    assert_eq!(all.await.expect("the store answers").len(), MESSAGES);
    for number in 0..MESSAGES {
        let id = format!("msg_{number}");
        assert_eq!(entry(&*store, &id).await.state, MessageState::Succeeded, "{id}");
        succeeded(&*store, &id).await;
    }
    let claim = store.claim_messages(claim_of(ClaimMessages::MOST)).await.expect("the store answers");
    assert!(claim.messages.is_empty());
}

const SIDES: [Side; 2] = [Side::Question, Side::Answer];

/// Makes a call on a message of its own for each place at which its connection can be lost.
pub(super) async fn everywhere<T: Clone, R>(
    subject: &dyn FaultySubject,
    what: &str,
    prepare: impl AsyncFn(&str) -> T,
    call: impl AsyncFn(&str, T) -> Result<R, StoreError>,
    check: impl AsyncFn(&str, T, Result<R, StoreError>),
) {
    /// No call takes so many messages: then the subject does not count them.
    const MOST: u32 = 200;
    for lasting in [false, true] {
        for side in SIDES {
            for message in 1.. {
                assert!(message < MOST, "a call that never ends before its connection is lost");
                let id = format!("{what}_{side:?}_{message}_{lasting}");
                let prepared = prepare(&id).await;
                if !subject.break_at(Break { message, side, lasting }) {
                    return;
                }
                let answered = call(&id, prepared.clone()).await;
                let came = subject.heal();
                assert!(came || message > 1, "{id}: nothing was lost at the first message of the call");
                if let Err(error) = &answered {
                    assert!(came, "{id}: it failed although nothing was lost: {error}");
                    assert!(error.is_transient(), "{id}: {error}");
                }
                check(&id, prepared, answered).await;
                if !came {
                    break;
                }
            }
        }
    }
}

/// What a call says once it says anything.
async fn until_told<'s, T>(call: impl Fn() -> StoreFuture<'s, T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(told) => return told,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
        }
    }
}

/// Whether the caller was told that its call took effect. Nobody else had the message, so that it cannot have lost it.
pub(super) fn done(id: &str, answered: &Result<Settled, StoreError>) -> bool {
    assert!(!matches!(answered, Ok(Settled::LeaseLost)), "{id}: the lease of the only holder was lost");
    answered.is_ok()
}

/// The message is there once, can be claimed once, and is delivered.
pub(super) async fn goes_out(store: &dyn OutboxStore, id: &str) {
    let claimed = claim_exactly(store, 1).await.remove(0);
    assert_eq!((&claimed.lease.key.id, &claimed.message), (&super::event_id(id), &message(id)));
    settle(store, &claimed.lease, delivered()).await;
}
