//! Taking events in, to be run later.

use http::StatusCode;

use super::{
    LEASE, SECOND, Subject, accept, accepted, acquire, answer, claim, claim_one, complete, fail, failure, kept_request,
    key, receipt, request, reserved,
};
use crate::Digest;
use crate::store::{
    Accept, Accepted, Failure, InboxStore, ListFilter, OtherBody, ReceiptState, Repeat, Reserved, Retention, Settled,
};

/// What was accepted is there, whole, and due.
pub async fn an_accepted_event_is_received_and_due_at_once(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Stored);
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.attempts, receipt.lease_until), (ReceiptState::Received, 0, None));
    assert_eq!(
        (receipt.due, receipt.updated, receipt.quarantined),
        (Some(receipt.first_seen), receipt.first_seen, false)
    );
    assert_eq!((receipt.event_id, receipt.body), (accepted("evt_1").event_id, accepted("evt_1").body));
    assert_eq!((receipt.request, receipt.ordering_key), (Some(kept_request()), None));
    assert_eq!((receipt.result, receipt.error, receipt.reason), (None, None, None));
    let listed = store.list(ListFilter::default()).await.expect("the store answers");
    assert_eq!(listed.iter().map(|receipt| receipt.due).collect::<Vec<_>>(), [receipt.due]);
}

/// C055: of many deliveries at the same moment one makes the receipt; all may be told that it is in good hands.
pub async fn an_event_accepted_by_many_callers_is_stored_once(subject: &dyn Subject) {
    let mut running = tokio::task::JoinSet::new();
    for caller in 0..50 {
        let store = subject.store();
        running.spawn(async move { accept(&*store, accepted(&format!("evt_{}", caller % 2))).await });
    }
    let answers = running.join_all().await;
    let count = |expected: &Accepted| answers.iter().filter(|answer| *answer == expected).count();
    assert_eq!((count(&Accepted::Stored), count(&Accepted::Known)), (2, 48));
    assert_eq!(claim(&*subject.store(), 9).await.len(), 2);
}

/// A repeat moves nothing: neither the place in the queue nor the request.
pub async fn accepting_again_what_has_no_end_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    subject.advance(SECOND).await;
    let before = receipt(&*store, "evt_1").await;
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Known);
    assert_eq!(receipt(&*store, "evt_1").await, before);

    let claimed = claim_one(&*store).await;
    let before = receipt(&*store, "evt_1").await;
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Known);
    assert_eq!(receipt(&*store, "evt_1").await, before);

    let later = Failure { retry_in: Some(LEASE), ..failure("down") };
    assert_eq!(fail(&*store, claimed.lease, later).await, Settled::Done);
    let before = receipt(&*store, "evt_1").await;
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Known);
    assert_eq!(receipt(&*store, "evt_1").await, before, "a delivery does not shorten the wait");
}

/// Whoever asks after the end gets the end.
pub async fn accepting_what_has_an_end_repeats_it(subject: &dyn Subject) {
    let store = subject.store();
    let done = answer(StatusCode::CREATED, b"done");
    accept(&*store, accepted("evt_1")).await;
    assert_eq!(complete(&*store, claim_one(&*store).await.lease, done.clone()).await, Settled::Done);
    accept(&*store, accepted("evt_2")).await;
    let dead = Failure { result: Some(done.clone()), dead: Some("permanent".into()), ..failure("refused") };
    assert_eq!(fail(&*store, claim_one(&*store).await.lease, dead).await, Settled::Done);

    let repeat = Repeat { result: Some(done), same_body: true };
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Succeeded(repeat.clone()));
    assert_eq!(accept(&*store, accepted("evt_2")).await, Accepted::DeadLetter(repeat));
    assert!(claim(&*store, 9).await.is_empty());
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.due, receipt.request), (ReceiptState::Succeeded, None, None));
}

/// C064: another body under a known id, in every state.
pub async fn another_body_is_counted_or_refused_when_it_is_accepted(subject: &dyn Subject) {
    let store = subject.store();
    let other = |other_body| Accept { body: Digest::of(b"another"), other_body, ..accepted("evt_1") };
    accept(&*store, accepted("evt_1")).await;
    assert_eq!(accept(&*store, other(OtherBody::Refuse)).await, Accepted::OtherBody);
    assert_eq!(accept(&*store, other(OtherBody::Accept)).await, Accepted::Known);
    assert_eq!(receipt(&*store, "evt_1").await.other_bodies, 2);
    let claimed = claim_one(&*store).await;
    assert_eq!(claimed.body, accepted("evt_1").body);
    assert_eq!(accept(&*store, other(OtherBody::Refuse)).await, Accepted::OtherBody);
    let done = answer(StatusCode::OK, b"done");
    assert_eq!(complete(&*store, claimed.lease, done.clone()).await, Settled::Done);
    assert_eq!(accept(&*store, other(OtherBody::Refuse)).await, Accepted::OtherBody);
    let repeat = Repeat { result: Some(done), same_body: false };
    assert_eq!(accept(&*store, other(OtherBody::Accept)).await, Accepted::Succeeded(repeat));
    assert_eq!(receipt(&*store, "evt_1").await.other_bodies, 5);
}

/// An event that failed within a request needs its sender no more once it was accepted.
pub async fn a_failed_event_that_is_accepted_is_due_at_once(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    assert_eq!(receipt(&*store, "evt_1").await.due, None);
    assert!(claim(&*store, 9).await.is_empty(), "it is left to its sender");

    subject.advance(SECOND).await;
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Known);
    let claimed = claim_one(&*store).await;
    assert_eq!((claimed.lease.attempt, claimed.request), (2, kept_request()));
}

/// What runs within a request and is accepted meanwhile is run by a processor, should that run die.
pub async fn a_running_event_that_is_accepted_outlives_its_run(subject: &dyn Subject) {
    let store = subject.store();
    let _dies = acquire(&*store, request("evt_1")).await;
    assert_eq!(accept(&*store, accepted("evt_1")).await, Accepted::Known);
    assert!(claim(&*store, 9).await.is_empty(), "it runs");
    subject.advance(LEASE).await;
    assert_eq!(claim_one(&*store).await.lease.attempt, 2);
}

/// C051: an event that was accepted is never left to a sender that may not come back, whoever runs it.
pub async fn an_accepted_event_stays_owed_when_a_delivery_runs_it(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    let lease = acquire(&*store, request("evt_1")).await;
    assert!(claim(&*store, 9).await.is_empty());
    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    let claimed = claim_one(&*store).await;
    assert_eq!(claimed.lease.attempt, 2);
    assert_eq!(store.release(claimed.lease).await.expect("the store answers"), Settled::Done);

    let _dies = acquire(&*store, request("evt_1")).await;
    subject.advance(LEASE).await;
    assert_eq!(claim_one(&*store).await.lease.attempt, 3);
    assert!(matches!(reserved(&*store, request("evt_1")).await, Reserved::Processing(_)));
}

/// What a person is to look at is kept, and not run.
pub async fn an_event_in_quarantine_is_never_claimed(subject: &dyn Subject) {
    let store = subject.store();
    let stale = Accept { quarantine: Some("it is stale".into()), ..accepted("evt_1") };
    assert_eq!(accept(&*store, stale.clone()).await, Accepted::Stored);
    assert_eq!(accept(&*store, stale).await, Accepted::Known);
    subject.advance(100 * LEASE).await;
    assert!(claim(&*store, 9).await.is_empty());
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.quarantined, receipt.due), (ReceiptState::Received, true, None));
    assert_eq!((receipt.reason.as_deref(), receipt.request), (Some("it is stale"), Some(kept_request())));
}

/// An operator lets it run, or a delivery does that is not suspect.
pub async fn quarantine_ends_by_retry_or_by_another_delivery(subject: &dyn Subject) {
    let store = subject.store();
    for id in ["evt_1", "evt_2", "evt_3"] {
        accept(&*store, Accept { quarantine: Some("it is stale".into()), ..accepted(id) }).await;
    }
    subject.advance(SECOND).await;
    assert_eq!(store.retry(key("evt_1")).await.expect("the store answers"), Some(ReceiptState::Received));
    assert_eq!(accept(&*store, accepted("evt_2")).await, Accepted::Known);
    let inline = acquire(&*store, request("evt_3")).await;
    assert_eq!(inline.attempt, 1);
    for id in ["evt_1", "evt_2", "evt_3"] {
        let receipt = receipt(&*store, id).await;
        assert_eq!((receipt.quarantined, receipt.reason, receipt.due.is_some()), (false, None, true), "{id}");
    }
    assert_eq!(claim(&*store, 9).await.len(), 2);
}

/// A suspect delivery of an event that failed keeps it for a person to look at; of one that runs or waits, it is nothing.
pub async fn a_suspect_delivery_of_a_known_event_changes_only_a_failed_one(subject: &dyn Subject) {
    let store = subject.store();
    let stale = |id: &str| Accept { quarantine: Some("it is stale".into()), ..accepted(id) };
    let failed = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, failed, failure("down")).await, Settled::Done);
    let _runs = acquire(&*store, request("evt_2")).await;
    accept(&*store, accepted("evt_3")).await;
    let before = (receipt(&*store, "evt_2").await, receipt(&*store, "evt_3").await);
    for id in ["evt_1", "evt_2", "evt_3"] {
        assert_eq!(accept(&*store, stale(id)).await, Accepted::Known, "{id}");
    }
    assert_eq!((receipt(&*store, "evt_2").await, receipt(&*store, "evt_3").await), before);
    let kept = receipt(&*store, "evt_1").await;
    assert_eq!((kept.state, kept.quarantined, kept.attempts), (ReceiptState::Received, true, 1));
}

/// C071: what is owed does not age, however long nobody runs it.
pub async fn purge_never_touches_what_is_owed(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    accept(&*store, accepted("evt_2")).await;
    let lease = claim_one(&*store).await.lease;
    assert_eq!(fail(&*store, lease, Failure { retry_in: Some(SECOND), ..failure("down") }).await, Settled::Done);
    let zero = Retention { results: std::time::Duration::ZERO, keys: std::time::Duration::ZERO };
    subject.advance(LEASE).await;
    assert_eq!(store.purge(zero, 100).await.expect("the store answers").keys, 0);
    assert_eq!(claim(&*store, 9).await.len(), 2);
}
