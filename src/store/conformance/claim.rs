//! Handing out what is due.

use std::collections::HashSet;
use std::time::Duration;

use http::StatusCode;

use super::contents::{BODIES, odd_headers};
use super::{
    LEASE, SECOND, Subject, accept, accepted, acquire, answer, claim, claim_of, claim_one, complete, fail, failure,
    kept_request, key, name, receipt, request, reserved,
};
use crate::store::{
    Accept, Claim, Claimed, Failure, InboxStore, KeptRequest, Lease, ReceiptKey, ReceiptState, Reserve, Reserved,
    Settled, Unclear,
};

/// A claim is a lease like any other, with the request beside it.
pub async fn a_claimed_event_is_leased_with_its_request(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    subject.advance(SECOND).await;
    let Claimed { lease, event_id, body, request: kept, first_seen } = claim_one(&*store).await;
    assert_eq!((lease.attempt, &lease.key), (1, &key("evt_1")));
    assert_eq!((event_id, body, kept), (accepted("evt_1").event_id, accepted("evt_1").body, kept_request()));

    let held = receipt(&*store, "evt_1").await;
    assert_eq!((held.state, held.attempts, held.first_seen), (ReceiptState::Processing, 1, first_seen));
    assert_eq!(held.lease_until, Some(held.updated.saturating_add(LEASE)));
    assert!(held.updated >= first_seen.saturating_add(SECOND));
    assert_eq!(held.due, held.lease_until);
    assert_eq!(held.request, Some(kept_request()), "until it has succeeded");
    let Reserved::Processing(left) = reserved(&*store, request("evt_1")).await else { panic!("it is held") };
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    assert!(claim(&*store, 9).await.is_empty());

    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
    let done = receipt(&*store, "evt_1").await;
    assert_eq!((done.state, done.due, done.request), (ReceiptState::Succeeded, None, None));
}

/// C068: what a processor runs are the bytes that the sender sent.
pub async fn claimed_requests_come_back_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    let kept = |body: &'static [u8]| KeptRequest {
        method: http::Method::from_bytes(b"X-HOOK").expect("a method"),
        target: "/hooks/%C3%A9?a=%00&b=é".into(),
        headers: odd_headers(),
        body: body.into(),
        proof: "{\"a\":\"é\\u0000\"}".into(),
    };
    for (number, body) in BODIES.into_iter().enumerate() {
        accept(&*store, Accept { request: kept(body), ..accepted(&format!("evt_{number:02}")) }).await;
    }
    let claimed = claim(&*store, 99).await;
    assert_eq!(claimed.len(), BODIES.len());
    for (claimed, body) in claimed.into_iter().zip(BODIES) {
        let order: Vec<_> = claimed.request.headers.iter().collect();
        assert_eq!(order, odd_headers().iter().collect::<Vec<_>>());
        assert_eq!(claimed.request, kept(body));
    }
}

/// Who has waited for longest comes first, whatever it waits for.
pub async fn the_longest_due_is_claimed_first(subject: &dyn Subject) {
    let store = subject.store();
    for id in ["evt_1", "evt_2", "evt_3", "evt_4"] {
        accept(&*store, accepted(id)).await;
    }
    let first = claim_one(&*store).await;
    assert_eq!(first.lease.key, key("evt_1"), "of those that are due at once, the one that was there first");
    assert_eq!(
        fail(&*store, first.lease, Failure { retry_in: Some(2 * SECOND), ..failure("down") }).await,
        Settled::Done
    );
    subject.advance(SECOND).await;
    accept(&*store, accepted("evt_5")).await;
    subject.advance(2 * SECOND).await;
    accept(&*store, accepted("evt_6")).await;
    assert_eq!(keys(&claim(&*store, 2).await), ["evt_2", "evt_3"]);
    assert_eq!(keys(&claim(&*store, 9).await), ["evt_4", "evt_5", "evt_1", "evt_6"]);
    assert!(claim(&*store, 9).await.is_empty());
    assert!(claim(&*store, 0).await.is_empty());
}

/// Each consumer's events are its own.
pub async fn a_claim_gets_its_consumers_events_alone(subject: &dyn Subject) {
    let store = subject.store();
    let other = ReceiptKey { consumer: name("Orders"), ..key("evt_1") };
    accept(&*store, Accept { key: other.clone(), ..accepted("evt_1") }).await;
    assert!(claim(&*store, 9).await.is_empty());
    let claimed = store.claim(Claim { consumer: name("Orders"), ..claim_of(9) }).await.expect("the store answers");
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].lease.key, other);
}

/// C078, C080: any number of processors, each event to one of them.
pub async fn no_two_claims_get_the_same_event(subject: &dyn Subject) {
    const EVENTS: usize = 60;
    for number in 0..EVENTS {
        accept(&*subject.store(), accepted(&format!("evt_{number}"))).await;
    }
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = subject.store();
        running.spawn(async move {
            let mut got = Vec::new();
            loop {
                let claimed = claim(&*store, 7).await;
                if claimed.is_empty() {
                    return got;
                }
                got.extend(keys(&claimed));
            }
        });
    }
    let got: Vec<String> = running.join_all().await.into_iter().flatten().collect();
    assert_eq!(got.len(), EVENTS);
    assert_eq!(got.into_iter().collect::<HashSet<_>>().len(), EVENTS);
}

/// C085, C086: when a failed event runs again stands in the store, for all processors alike.
pub async fn a_failed_event_is_claimed_when_it_is_due_and_not_before(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    let lease = claim_one(&*store).await.lease;
    assert_eq!(fail(&*store, lease, Failure { retry_in: Some(60 * SECOND), ..failure("down") }).await, Settled::Done);
    let failed = receipt(&*store, "evt_1").await;
    assert_eq!((failed.state, failed.due), (ReceiptState::Failed, Some(failed.updated.saturating_add(60 * SECOND))));
    // The clock of a server goes on by itself.
    subject.advance(40 * SECOND).await;
    assert!(claim(&*store, 9).await.is_empty());
    subject.advance(20 * SECOND).await;
    assert_eq!(claim_one(&*store).await.lease.attempt, 2);
}

/// An event that nobody accepted is run by a processor only if its request is there to be run.
pub async fn what_has_no_request_is_never_due(subject: &dyn Subject) {
    let store = subject.store();
    let soon = Failure { retry_in: Some(Duration::ZERO), ..failure("down") };
    let bare = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, bare, soon.clone()).await, Settled::Done);
    let kept = acquire(&*store, request("evt_2")).await;
    assert_eq!(fail(&*store, kept, Failure { request: Some(kept_request()), ..soon }).await, Settled::Done);
    assert_eq!(receipt(&*store, "evt_1").await.due, None);
    assert_eq!(keys(&claim(&*store, 9).await), ["evt_2"]);
}

/// C075: what a dead processor left is claimed like everything else, and its run counts.
pub async fn a_claim_whose_lease_ran_out_is_claimed_again(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    let late = claim_one(&*store).await.lease;
    subject.advance(LEASE - SECOND).await;
    assert_eq!(store.renew(late.clone(), LEASE).await.expect("the store answers"), Settled::Done);
    subject.advance(LEASE - SECOND).await;
    assert!(claim(&*store, 9).await.is_empty(), "it was renewed");
    subject.advance(SECOND).await;
    let holder = claim_one(&*store).await.lease;
    assert_eq!((holder.attempt, holder.token == late.token), (2, false));
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!(receipt.failures.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1]);

    assert_eq!(store.renew(late.clone(), LEASE).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(store.release(late.clone()).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(complete(&*store, late, answer(StatusCode::OK, b"late")).await, Settled::LeaseLost);
    assert_eq!(complete(&*store, holder, answer(StatusCode::OK, b"done")).await, Settled::Done);
}

/// The sender of a run within a request will come back: nobody promised it anything.
pub async fn an_inline_run_whose_lease_ran_out_is_left_to_the_next_delivery(subject: &dyn Subject) {
    let store = subject.store();
    let _dies = acquire(&*store, request("evt_1")).await;
    subject.advance(2 * LEASE).await;
    assert!(claim(&*store, 9).await.is_empty());
    assert_eq!(acquire(&*store, request("evt_1")).await.attempt, 2);
}

/// C083: an event that kills whoever runs it ends as a dead letter, and holds nobody up.
pub async fn claims_that_run_out_use_up_the_attempts(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    for attempt in 1..=3 {
        let claimed = store.claim(Claim { max_attempts: 3, ..claim_of(9) }).await.expect("the store answers");
        assert_eq!(claimed.iter().map(|claimed| claimed.lease.attempt).collect::<Vec<_>>(), [attempt]);
        subject.advance(LEASE).await;
    }
    accept(&*store, accepted("evt_2")).await;
    let claimed = store.claim(Claim { max_attempts: 3, ..claim_of(1) }).await.expect("the store answers");
    assert_eq!(keys(&claimed), ["evt_2"]);
    let dead = receipt(&*store, "evt_1").await;
    assert_eq!((dead.state, dead.attempts, dead.due), (ReceiptState::DeadLetter, 3, None));
    assert_eq!(dead.reason.as_deref(), Some("attempts used up: 3 of 3"));
    assert_eq!(dead.failures.len(), 3);
    assert_eq!(dead.request, Some(kept_request()), "so that it can be retried");
}

/// C076: what is given back is as if it had not been taken.
pub async fn a_released_event_is_due_at_once_and_its_run_does_not_count(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    for _ in 0..3 {
        let lease = claim_one(&*store).await.lease;
        assert_eq!(lease.attempt, 1);
        assert_eq!(store.release(lease.clone()).await.expect("the store answers"), Settled::Done);
        assert_eq!(store.release(lease).await.expect("the store answers"), Settled::LeaseLost, "once");
    }
    let back = receipt(&*store, "evt_1").await;
    assert_eq!((back.state, back.attempts, back.due), (ReceiptState::Received, 0, Some(back.updated)));
    assert!(back.failures.is_empty());

    let lease = claim_one(&*store).await.lease;
    assert_eq!(fail(&*store, lease, Failure { retry_in: Some(SECOND), ..failure("down") }).await, Settled::Done);
    subject.advance(SECOND).await;
    assert_eq!(store.release(claim_one(&*store).await.lease).await.expect("the store answers"), Settled::Done);
    let back = receipt(&*store, "evt_1").await;
    assert_eq!((back.state, back.attempts, back.due), (ReceiptState::Failed, 1, Some(back.updated)));
}

/// A run within a request that is given back is left to the next delivery, as before.
pub async fn a_released_inline_run_is_not_due(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(store.release(lease).await.expect("the store answers"), Settled::Done);
    let back = receipt(&*store, "evt_1").await;
    assert_eq!((back.state, back.attempts, back.due), (ReceiptState::Failed, 0, None));
    assert!(claim(&*store, 9).await.is_empty());
    assert_eq!(acquire(&*store, request("evt_1")).await.attempt, 1);
}

/// Of events with one ordering key, the first one that has no end is run, and none beside it.
pub async fn events_with_one_ordering_key_are_claimed_one_by_one_in_order(subject: &dyn Subject) {
    let store = subject.store();
    for (id, ordering_key) in
        [("a_1", Some("a")), ("a_2", Some("a")), ("b_1", Some("b")), ("free", None), ("a_3", Some("a"))]
    {
        accept(&*store, Accept { ordering_key: ordering_key.map(name), ..accepted(id) }).await;
        subject.advance(SECOND).await;
    }
    let elsewhere = ReceiptKey { source: name("Shop"), ..key("other") };
    accept(&*store, Accept { key: elsewhere, ordering_key: Some(name("a")), ..accepted("other") }).await;
    let claimed = claim(&*store, 9).await;
    assert_eq!(keys(&claimed), ["a_1", "b_1", "free", "other"]);
    assert!(claim(&*store, 9).await.is_empty(), "while the first one runs");

    // The first one keeps its place while it waits for its next run.
    assert_eq!(fail(&*store, lease(&claimed), Failure { retry_in: Some(SECOND), ..failure("x") }).await, Settled::Done);
    assert!(claim(&*store, 9).await.is_empty());
    subject.advance(SECOND).await;
    let again = claim(&*store, 9).await;
    assert_eq!(keys(&again), ["a_1"]);
    assert_eq!(complete(&*store, lease(&again), answer(StatusCode::OK, b"")).await, Settled::Done);

    // A dead letter lets the others pass, and so does one in quarantine.
    let second = claim(&*store, 9).await;
    assert_eq!(keys(&second), ["a_2"]);
    assert_eq!(fail(&*store, lease(&second), Failure { dead: Some("no".into()), ..failure("x") }).await, Settled::Done);
    assert_eq!(keys(&claim(&*store, 9).await), ["a_3"]);
}

/// What waits for a person to look at it holds nobody up.
pub async fn an_event_in_quarantine_does_not_hold_up_its_ordering_key(subject: &dyn Subject) {
    let store = subject.store();
    let ordered = |id: &str| Accept { ordering_key: Some(name("a")), ..accepted(id) };
    accept(&*store, Accept { quarantine: Some("stale".into()), ..ordered("evt_1") }).await;
    accept(&*store, ordered("evt_2")).await;
    assert_eq!(keys(&claim(&*store, 9).await), ["evt_2"]);
}

/// C070: a dead letter that is retried runs by itself, if its request is kept.
pub async fn a_dead_letter_with_its_request_that_is_retried_is_due_at_once(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    let dead = Failure { dead: Some("permanent".into()), ..failure("refused") };
    assert_eq!(fail(&*store, claim_one(&*store).await.lease, dead.clone()).await, Settled::Done);
    let inline = acquire(&*store, request("evt_2")).await;
    assert_eq!(fail(&*store, inline, dead).await, Settled::Done);
    assert!(claim(&*store, 9).await.is_empty());

    subject.advance(SECOND).await;
    for id in ["evt_1", "evt_2"] {
        assert_eq!(store.retry(key(id)).await.expect("the store answers"), Some(ReceiptState::Failed));
    }
    assert_eq!(receipt(&*store, "evt_2").await.due, None, "there is nothing to run");
    let claimed = claim_one(&*store).await;
    assert_eq!((claimed.lease.attempt, claimed.request), (1, kept_request()));
}

/// C070: an event that failed within a request can be run without its sender.
pub async fn a_failed_event_with_its_request_that_is_retried_is_due_at_once(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let down = Failure { request: Some(kept_request()), ..failure("down") };
    assert_eq!(fail(&*store, lease, down).await, Settled::Done);
    assert!(claim(&*store, 9).await.is_empty());
    assert_eq!(store.retry(key("evt_1")).await.expect("the store answers"), Some(ReceiptState::Failed));
    assert_eq!(claim_one(&*store).await.lease.attempt, 2);
}

/// C082: whatever happened to an event, it waits for a time to come, is held until one, has an end, or was never promised.
pub async fn an_accepted_event_is_never_without_a_next_step(subject: &dyn Subject) {
    let store = subject.store();
    let asked = || Reserve { max_attempts: 2, ..request("evt_1") };
    let owed = async |what: &str| assert!(receipt(&*store, "evt_1").await.due.is_some(), "{what}");
    accept(&*store, accepted("evt_1")).await;
    owed("accepted").await;
    let lease = claim_one(&*store).await.lease;
    owed("claimed").await;
    assert_eq!(store.renew(lease.clone(), LEASE).await.expect("the store answers"), Settled::Done);
    owed("renewed").await;
    assert_eq!(store.release(lease).await.expect("the store answers"), Settled::Done);
    owed("released").await;
    let lease = acquire(&*store, asked()).await;
    owed("reserved").await;
    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    owed("failed").await;
    let _dies = acquire(&*store, asked()).await;
    subject.advance(LEASE).await;
    assert!(matches!(reserved(&*store, asked()).await, Reserved::DeadLetter(_)));
    assert_eq!(receipt(&*store, "evt_1").await.due, None, "it has an end");
    assert_eq!(store.retry(key("evt_1")).await.expect("the store answers"), Some(ReceiptState::Failed));
    owed("retried").await;
}

fn keys(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(|claimed| claimed.lease.key.key.as_str().to_owned()).collect()
}

fn lease(claimed: &[Claimed]) -> Lease {
    claimed[0].lease.clone()
}

/// How long the longest due event of a consumer has been due. One that runs, waits or belongs to another consumer is not.
pub async fn the_longest_due_event_says_how_far_processors_are_behind(subject: &dyn Subject) {
    let store = subject.store();
    let behind = async || store.oldest_due(name("orders")).await.expect("the store answers");
    assert_eq!(behind().await, None);
    let others = ReceiptKey { consumer: name("billing"), ..key("evt_0") };
    accept(&*store, Accept { key: others, ..accepted("evt_0") }).await;
    assert_eq!(behind().await, None);
    accept(&*store, accepted("evt_1")).await;
    subject.advance(20 * SECOND).await;
    accept(&*store, accepted("evt_2")).await;
    subject.advance(10 * SECOND).await;
    let near = |span: Option<Duration>, seconds: u32| {
        let (span, expected) = (span.expect("something is due"), seconds * SECOND);
        assert!(span >= expected && span < expected + 10 * SECOND, "{span:?} is not {expected:?}");
    };
    near(behind().await, 30);
    let first = claim_one(&*store).await;
    near(behind().await, 10);
    let second = claim_one(&*store).await;
    assert_eq!(behind().await, None);
    let failed = Failure { retry_in: Some(5 * SECOND), ..failure("no") };
    assert_eq!(fail(&*store, first.lease, failed).await, Settled::Done);
    assert_eq!(behind().await, None);
    assert_eq!(complete(&*store, second.lease, answer(StatusCode::OK, b"")).await, Settled::Done);
    subject.advance(15 * SECOND).await;
    near(behind().await, 10);
}

/// The same for what was claimed.
pub async fn a_claim_that_left_no_word_is_held_where_that_is_asked_for(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    let strict =
        async || store.claim(Claim { unclear: Unclear::Hold, ..claim_of(9) }).await.expect("the store answers");
    assert_eq!(strict().await.len(), 1);
    subject.advance(LEASE).await;
    assert!(strict().await.is_empty());
    assert!(claim(&*store, 9).await.is_empty(), "whoever asks");
    let dead = receipt(&*store, "evt_1").await;
    assert_eq!((dead.state, dead.due, dead.reason.as_deref()), (ReceiptState::DeadLetter, None, Some(Unclear::HELD)));

    assert_eq!(store.retry(key("evt_1")).await.expect("the store answers"), Some(ReceiptState::Failed));
    assert_eq!(strict().await.len(), 1, "its request is kept");
}
