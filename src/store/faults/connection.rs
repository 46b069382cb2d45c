//! Connections that are lost: before a statement, after it, and between a commit and its answer.
//!
//! Each promise is tried with a break at the first message of a call, at the second, and so on, until the call is over before
//! the break comes; in both directions; and with the database back at once or out of reach for the rest of the call. A call
//! may then fail, as one that is worth trying again ([`StoreError::is_transient`]), and may or may not have taken effect.
//! What it must not do is to leave an event half-way.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{
    Break, FaultySubject, HOUR, LEASE, Side, accepted, acquire, answer, claim_of, claimed, failure, found, key,
    receipt, request, reserved,
};
use crate::store::{
    Accepted, Failure, InboxStore, Lease, ListFilter, ReceiptState, Reserved, Retention, Settled, StoreError,
};

/// One holder, or none and a lease that runs out.
pub async fn a_connection_lost_anywhere_in_a_reserve_gives_the_event_to_one_holder(subject: &dyn FaultySubject) {
    let store = subject.store();
    let prepare = async |_: &str| ();
    let call = async |id: &str, ()| store.reserve(request(id)).await;
    let check = async |id: &str, (), answered: Result<Reserved, StoreError>| {
        let lease = match answered {
            Ok(Reserved::Acquired(lease)) => {
                assert_eq!(lease.attempt, 1, "{id}");
                assert!(matches!(reserved(&*store, id).await, Reserved::Processing(_)), "{id}: a second holder");
                lease
            }
            Ok(Reserved::Processing(_)) => taken_later(subject, id).await,
            Ok(other) => panic!("{id}: {other:?}"),
            Err(error) => {
                assert!(error.is_transient(), "{id}: {error}");
                taken_later(subject, id).await
            }
        };
        succeeds(&*store, id, lease).await;
    };
    everywhere(subject, "evt", prepare, call, check).await;
}

/// What was promised to a sender is there to be run, once.
pub async fn a_connection_lost_anywhere_loses_no_accepted_event(subject: &dyn FaultySubject) {
    let store = subject.store();
    let prepare = async |_: &str| ();
    let call = async |id: &str, ()| store.accept(accepted(id)).await;
    let check = async |id: &str, (), answered: Result<Accepted, StoreError>| {
        match answered {
            Ok(Accepted::Stored | Accepted::Known) => {}
            Ok(other) => panic!("{id}: {other:?}"),
            Err(error) => {
                assert!(error.is_transient(), "{id}: {error}");
                // Its sender comes back.
                let again = store.accept(accepted(id)).await.expect("the store answers");
                assert!(matches!(again, Accepted::Stored | Accepted::Known), "{id}: {again:?}");
            }
        }
        let claimed = claimed(&*store).await;
        let [claimed] = &claimed[..] else { panic!("{id}: {claimed:?}") };
        assert_eq!((&claimed.lease.key, claimed.lease.attempt), (&key(id), 1));
        assert_eq!(claimed.request, accepted(id).request);
        succeeds(&*store, id, claimed.lease.clone()).await;
    };
    everywhere(subject, "evt", prepare, call, check).await;
}

/// An event whose claim was lost with its answer is claimed again when its lease has run out.
pub async fn a_connection_lost_anywhere_in_a_claim_delays_events_at_most(subject: &dyn FaultySubject) {
    let store = subject.store();
    let prepare = async |id: &str| {
        store.accept(accepted(id)).await.expect("the store answers");
    };
    let call = async |_: &str, ()| store.claim(claim_of(9)).await;
    let check = async |id: &str, (), answered: Result<_, StoreError>| {
        let mut got = answered.unwrap_or_else(|error| {
            assert!(error.is_transient(), "{id}: {error}");
            Vec::new()
        });
        if got.is_empty() {
            got = claimed(&*store).await;
        }
        if got.is_empty() {
            subject.advance(LEASE).await;
            got = claimed(&*store).await;
        }
        assert!(claimed(&*store).await.is_empty(), "{id}: it was handed out twice");
        let [claimed] = &got[..] else { panic!("{id}: {got:?}") };
        succeeds(&*store, id, claimed.lease.clone()).await;
    };
    everywhere(subject, "evt", prepare, call, check).await;
}

/// The result is there as a whole, or the event still runs and can be completed.
pub async fn a_connection_lost_anywhere_in_a_complete_keeps_the_whole_result_or_none(subject: &dyn FaultySubject) {
    let store = subject.store();
    let prepare = async |id: &str| acquire(&*store, id).await;
    let call = async |id: &str, lease: Lease| store.complete(lease, answer(id)).await;
    let check = async |id: &str, lease: Lease, answered| {
        let stands = receipt(&*store, id).await;
        match done(id, answered) {
            true => assert_eq!(stands.state, ReceiptState::Succeeded, "{id}: it was told so"),
            false => {
                let again = store.complete(lease.clone(), answer(id)).await.expect("the store answers");
                let expected = match stands.state {
                    ReceiptState::Processing => Settled::Done,
                    _ => Settled::LeaseLost,
                };
                assert_eq!(again, expected, "{id}");
            }
        }
        let ended = receipt(&*store, id).await;
        assert_eq!((ended.state, ended.result), (ReceiptState::Succeeded, Some(answer(id))), "{id}");
        assert_eq!(store.complete(lease, answer("twice")).await.expect("the store answers"), Settled::LeaseLost);
    };
    everywhere(subject, "evt", prepare, call, check).await;
}

/// One run, one line of history.
pub async fn a_connection_lost_anywhere_in_a_fail_notes_one_failure(subject: &dyn FaultySubject) {
    let store = subject.store();
    let down = || Failure { result: Some(answer("down")), ..failure("down") };
    let prepare = async |id: &str| acquire(&*store, id).await;
    let call = async |_: &str, lease: Lease| store.fail(lease, down()).await;
    let check = async |id: &str, lease: Lease, answered| {
        if !done(id, answered) && receipt(&*store, id).await.state == ReceiptState::Processing {
            assert_eq!(store.fail(lease, down()).await.expect("the store answers"), Settled::Done, "{id}");
        }
        let failed = receipt(&*store, id).await;
        assert_eq!((failed.state, failed.failures.len()), (ReceiptState::Failed, 1), "{id}");
        assert_eq!(failed.result, Some(answer("down")), "{id}");
        let next = acquire(&*store, id).await;
        assert_eq!(next.attempt, 2, "{id}");
        succeeds(&*store, id, next).await;
    };
    everywhere(subject, "evt", prepare, call, check).await;
}

/// Whoever gives an event back, or asks for more time, leaves it held or free, and never neither.
pub async fn a_connection_lost_anywhere_in_a_release_or_renewal_leaves_the_event_to_somebody(
    subject: &dyn FaultySubject,
) {
    let store = subject.store();
    let prepare = async |id: &str| {
        store.accept(accepted(id)).await.expect("the store answers");
        claimed(&*store).await.pop().expect("it is due").lease
    };
    let renew = async |_: &str, lease: Lease| store.renew(lease, LEASE).await;
    let check = async |id: &str, lease: Lease, answered| {
        let _either = done(id, answered);
        assert!(claimed(&*store).await.is_empty(), "{id}: its holder still has it");
        succeeds(&*store, id, lease).await;
    };
    everywhere(subject, "renew", prepare, renew, check).await;

    let release = async |_: &str, lease: Lease| store.release(lease).await;
    let check = async |id: &str, lease: Lease, answered| {
        if !done(id, answered) && receipt(&*store, id).await.state == ReceiptState::Processing {
            assert_eq!(store.release(lease).await.expect("the store answers"), Settled::Done, "{id}");
        }
        let free = claimed(&*store).await.pop().expect("it is due");
        assert_eq!((&free.lease.key, free.lease.attempt), (&key(id), 1), "the run that was given back does not count");
        succeeds(&*store, id, free.lease).await;
    };
    everywhere(subject, "release", prepare, release, check).await;
}

/// It is done, or still a dead letter that can be concluded again; never run.
pub async fn a_connection_lost_anywhere_in_a_conclude_leaves_a_whole_receipt(subject: &dyn FaultySubject) {
    let store = subject.store();
    let dead = async |id: &str| {
        let lease = acquire(&*store, id).await;
        let dead = Failure { dead: Some("no".into()), ..failure("down") };
        assert_eq!(store.fail(lease, dead).await.expect("the store answers"), Settled::Done);
    };
    let conclude = async |id: &str, ()| store.conclude(key(id)).await;
    let check = async |id: &str, (), answered: Result<Option<ReceiptState>, StoreError>| {
        if let Err(error) = &answered {
            assert!(error.is_transient(), "{id}: {error}");
        }
        let again = store.conclude(key(id)).await.expect("the store answers");
        assert_eq!(again, Some(ReceiptState::Succeeded), "{id}");
        let receipt = receipt(&*store, id).await;
        assert_eq!((receipt.attempts, receipt.failures.len()), (1, 1), "{id}");
    };
    everywhere(subject, "conclude", dead, conclude, check).await;
}

/// What an operator does is done, or can be done again.
pub async fn a_connection_lost_anywhere_in_a_forget_or_retry_leaves_a_whole_receipt(subject: &dyn FaultySubject) {
    let store = subject.store();
    let dead = async |id: &str| {
        let lease = acquire(&*store, id).await;
        let dead = Failure { dead: Some("no".into()), ..failure("down") };
        assert_eq!(store.fail(lease, dead).await.expect("the store answers"), Settled::Done);
    };
    let retry = async |id: &str, ()| store.retry(key(id)).await;
    let check = async |id: &str, (), answered: Result<Option<ReceiptState>, StoreError>| {
        match answered {
            Ok(state) => assert_eq!(state, Some(ReceiptState::Failed), "{id}"),
            Err(error) => {
                assert!(error.is_transient(), "{id}: {error}");
                let again = store.retry(key(id)).await.expect("the store answers");
                assert_eq!(again, Some(ReceiptState::Failed), "{id}");
            }
        }
        assert_eq!(receipt(&*store, id).await.failures.len(), 1, "{id}");
        let lease = acquire(&*store, id).await;
        assert_eq!(lease.attempt, 1, "{id}");
        succeeds(&*store, id, lease).await;
    };
    everywhere(subject, "retry", dead, retry, check).await;

    let forget = async |id: &str, ()| store.forget(key(id)).await;
    let check = async |id: &str, (), answered: Result<bool, StoreError>| {
        if let Err(error) = answered {
            assert!(error.is_transient(), "{id}: {error}");
            store.forget(key(id)).await.expect("the store answers");
        }
        assert_eq!(found(&*store, id).await, None, "{id}");
        let lease = acquire(&*store, id).await;
        assert_eq!(lease.attempt, 1, "{id}");
        assert!(receipt(&*store, id).await.failures.is_empty(), "{id}: the history of another one");
        succeeds(&*store, id, lease).await;
    };
    everywhere(subject, "forget", dead, forget, check).await;
}

/// What is old goes, now or with the next purge; what is young stays.
pub async fn a_connection_lost_anywhere_in_a_purge_removes_nothing_young(subject: &dyn FaultySubject) {
    let store = subject.store();
    let retention = Retention { results: HOUR, keys: HOUR };
    let prepare = async |id: &str| {
        let old = format!("{id}_old");
        succeeds(&*store, &old, acquire(&*store, &old).await).await;
        subject.advance(2 * HOUR).await;
        succeeds(&*store, id, acquire(&*store, id).await).await;
    };
    let call = async |_: &str, ()| store.purge(retention, 10).await;
    let check = async |id: &str, (), answered: Result<_, StoreError>| {
        if let Err(error) = answered {
            assert!(error.is_transient(), "{id}: {error}");
        }
        // A database may hold on to what a lost connection locked until it notices.
        let deadline = Instant::now() + PATIENCE;
        while found(&*store, &format!("{id}_old")).await.is_some() {
            assert!(Instant::now() < deadline, "{id}: what is old is never removed");
            store.purge(retention, 10).await.expect("the store answers");
        }
        assert_eq!(receipt(&*store, id).await.result, Some(answer(id)), "{id}");
    };
    everywhere(subject, "evt", prepare, call, check).await;
}

/// Reading changes nothing, and goes on when the database is back.
pub async fn a_connection_lost_while_reading_is_made_anew(subject: &dyn FaultySubject) {
    let store = subject.store();
    succeeds(&*store, "evt_1", acquire(&*store, "evt_1").await).await;
    for side in SIDES {
        for message in 1..=4 {
            if !subject.break_at(Break { message, side, lasting: false }) {
                return;
            }
            let read = store.find(key("evt_1")).await;
            let came = subject.heal();
            assert!(came || message > 1, "{side:?}: nothing was lost at the first message");
            match read {
                Ok(read) => assert_eq!(read.and_then(|receipt| receipt.result), Some(answer("evt_1"))),
                Err(error) => assert!(came && error.is_transient(), "{error}"),
            }
            assert_eq!(receipt(&*store, "evt_1").await.result, Some(answer("evt_1")));
            assert_eq!(store.list(ListFilter::default()).await.expect("the store answers").len(), 1);
        }
    }
}

/// Connections go all the time, and everybody comes back as senders do: each event succeeds once.
pub async fn connections_lost_under_load_run_every_event_once(subject: &dyn FaultySubject) {
    const EVENTS: usize = 40;
    const WRITERS: usize = 8;
    if !subject.break_at(Break { message: 5, side: Side::Answer, lasting: false }) {
        return;
    }
    let mut writing = JoinSet::new();
    for writer in 0..WRITERS {
        let store = subject.store();
        writing.spawn(async move {
            let mut ends = 0;
            for number in 0..EVENTS {
                let id = format!("evt_{}", (number + writer * 5) % EVENTS);
                let Ok(Reserved::Acquired(lease)) = store.reserve(request(&id)).await else { continue };
                let deadline = Instant::now() + PATIENCE;
                loop {
                    match store.complete(lease.clone(), answer(&id)).await {
                        Ok(Settled::Done) => break ends += 1,
                        // An attempt before this one took effect, and its caller was told that it may not have.
                        Ok(Settled::LeaseLost) => break,
                        Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
                    }
                }
            }
            ends
        });
    }
    let (mut turn, mut lost) = (0, 0);
    let mut ends = 0;
    while !writing.is_empty() {
        tokio::select! {
            Some(ended) = writing.join_next() => ends += ended.expect("no panic"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                turn += 1;
                lost += u32::from(subject.heal());
                let side = if turn % 2 == 0 { Side::Answer } else { Side::Question };
                subject.break_at(Break { message: 1 + turn % 7, side, lasting: false });
            }
        }
    }
    lost += u32::from(subject.heal());
    assert!(lost > 0, "nothing was lost in {turn} turns");
    assert!(ends <= EVENTS, "{ends} ends of {EVENTS} events");
    // What somebody was given and never heard of waits for its lease.
    subject.advance(LEASE).await;
    let store = subject.store();
    for number in 0..EVENTS {
        let id = format!("evt_{number}");
        if let Reserved::Acquired(lease) = reserved(&*store, &id).await {
            assert_eq!(store.complete(lease, answer(&id)).await.expect("the store answers"), Settled::Done);
        }
        let ended = receipt(&*store, &id).await;
        assert_eq!((ended.state, ended.result), (ReceiptState::Succeeded, Some(answer(&id))), "{id}");
    }
}

const SIDES: [Side; 2] = [Side::Question, Side::Answer];

/// How long a database may take to notice that a connection is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a call on an event of its own for each place at which its connection can be lost.
async fn everywhere<T: Clone, R>(
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
                if !came {
                    assert!(answered.is_ok(), "{id}: it failed although nothing was lost");
                }
                check(&id, prepared, answered).await;
                if !came {
                    break;
                }
            }
        }
    }
}

/// An event that one call may have been given without hearing of it: another one gets it, at the latest after the lease.
async fn taken_later(subject: &dyn FaultySubject, id: &str) -> Lease {
    let store = subject.store();
    match reserved(&*store, id).await {
        Reserved::Acquired(lease) => lease,
        Reserved::Processing(_) => {
            subject.advance(LEASE).await;
            acquire(&*store, id).await
        }
        other => panic!("{id}: {other:?}"),
    }
}

async fn succeeds(store: &dyn InboxStore, id: &str, lease: Lease) {
    let settled = store.complete(lease, answer(id)).await.expect("the store answers");
    assert_eq!(settled, Settled::Done, "{id}: its holder settles it");
    let ended = receipt(store, id).await;
    assert_eq!((ended.state, ended.result), (ReceiptState::Succeeded, Some(answer(id))), "{id}");
}

/// Whether the caller was told that its call took effect. Nobody else had the event, so that it cannot have lost it.
fn done(id: &str, answered: Result<Settled, StoreError>) -> bool {
    match answered {
        Ok(Settled::Done) => true,
        Ok(Settled::LeaseLost) => panic!("{id}: the lease of the only holder was lost"),
        Err(error) => {
            assert!(error.is_transient(), "{id}: {error}");
            false
        }
    }
}
