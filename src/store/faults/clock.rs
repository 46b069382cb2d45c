//! Clocks that jump: a server that fails over to one whose clock differs, a machine that is set right.

use super::{
    FaultySubject, HOUR, LEASE, SECOND, accepted, acquire, answer, claimed, failure, receipt, request, reserved,
};
use crate::store::{Failure, Purged, ReceiptState, Reserved, Retention, Settled};

/// Whoever holds an event holds it: earlier is not later than the end of its lease.
pub async fn a_clock_set_back_gives_no_event_to_two_holders(subject: &dyn FaultySubject) {
    let store = subject.store();
    let lease = acquire(&*store, "evt_1").await;
    subject.turn_back(HOUR).await;
    assert!(matches!(reserved(&*store, "evt_1").await, Reserved::Processing(_)));
    assert_eq!(store.complete(lease, answer("done")).await.expect("the store answers"), Settled::Done);
    assert!(matches!(reserved(&*store, "evt_1").await, Reserved::Succeeded(_)));
}

/// What is due an hour later than it was is still due.
pub async fn a_clock_set_back_loses_nothing_that_is_owed(subject: &dyn FaultySubject) {
    let store = subject.store();
    for id in ["evt_1", "evt_2", "evt_3"] {
        store.accept(accepted(id)).await.expect("the store answers");
    }
    let running = claimed(&*store).await;
    assert_eq!(running.len(), 3);
    let mut leases = running.into_iter().map(|claimed| claimed.lease);
    let down = Failure { retry_in: Some(SECOND), ..failure("down") };
    let failed = leases.next().expect("the first one");
    assert_eq!(store.fail(failed, down).await.expect("the store answers"), Settled::Done);
    let given_back = leases.next().expect("the second one");
    assert_eq!(store.release(given_back).await.expect("the store answers"), Settled::Done);

    subject.turn_back(HOUR).await;
    assert!(claimed(&*store).await.len() <= 1, "what failed waits, and what runs is held");
    subject.advance(HOUR + LEASE + LEASE).await;
    let left: Vec<_> = claimed(&*store).await;
    assert_eq!(left.len(), 3, "{left:?}");
    for claimed in left {
        assert_eq!(store.complete(claimed.lease, answer("")).await.expect("the store answers"), Settled::Done);
    }
}

/// A receipt of the future is not one of long ago.
pub async fn a_clock_set_back_makes_nothing_old(subject: &dyn FaultySubject) {
    let store = subject.store();
    let lease = acquire(&*store, "evt_1").await;
    assert_eq!(store.complete(lease, answer("done")).await.expect("the store answers"), Settled::Done);
    subject.turn_back(HOUR).await;
    let retention = Retention { results: SECOND, keys: SECOND };
    assert_eq!(store.purge(retention, 10).await.expect("the store answers"), Purged::default());
    assert_eq!(receipt(&*store, "evt_1").await.result, Some(answer("done")));
}

/// A holder that renews is given what it asks for from now on, not what the clock said before.
pub async fn a_lease_renewed_after_the_clock_was_set_back_counts_from_then(subject: &dyn FaultySubject) {
    let store = subject.store();
    let lease = acquire(&*store, "evt_1").await;
    subject.turn_back(HOUR).await;
    assert_eq!(store.renew(lease, LEASE).await.expect("the store answers"), Settled::Done);
    let Reserved::Processing(wait) = reserved(&*store, "evt_1").await else { panic!("it is held") };
    assert!(wait <= LEASE, "{wait:?}");
    subject.advance(LEASE).await;
    assert_eq!(acquire(&*store, "evt_1").await.attempt, 2);
}

/// All leases run out at once: each event goes to one new holder, and none of the old ones settles anything.
pub async fn a_clock_that_jumps_ahead_hands_events_over_once(subject: &dyn FaultySubject) {
    const EVENTS: usize = 12;
    let mut late = Vec::new();
    for number in 0..EVENTS {
        late.push(acquire(&*subject.store(), &format!("evt_{number:02}")).await);
    }
    subject.advance(24 * HOUR).await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..4 * EVENTS {
        let store = subject.store();
        let asked = request(&format!("evt_{:02}", number % EVENTS));
        asking.spawn(async move { store.reserve(asked).await.expect("the store answers") });
    }
    let answers = asking.join_all().await;
    let leases: Vec<_> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            Reserved::Acquired(lease) => Some(lease),
            _ => None,
        })
        .collect();
    assert_eq!(leases.len(), EVENTS, "each event has one holder");
    let store = subject.store();
    for lease in late {
        assert_eq!(store.complete(lease, answer("late")).await.expect("the store answers"), Settled::LeaseLost);
    }
    for lease in leases {
        assert_eq!(lease.attempt, 2);
        let id = lease.key.key.as_str().to_owned();
        assert_eq!(store.complete(lease, answer("done")).await.expect("the store answers"), Settled::Done);
        assert_eq!(receipt(&*store, &id).await.state, ReceiptState::Succeeded);
    }
}
