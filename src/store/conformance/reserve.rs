//! Who may run an event.

use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinSet;

use super::{
    LEASE, SECOND, Subject, acquire, answer, complete, fail, failure, key, name, other_body, receipt, request, reserved,
};
use crate::Digest;
use crate::store::{
    Failure, OtherBody, ReceiptKey, ReceiptState, Repeat, Reserve, Reserved, ResultBody, Settled, StoredResult, Unclear,
};

/// The first caller may run the event, and its receipt says so.
pub async fn the_first_reserve_gets_the_event(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!((lease.attempt, &lease.key), (1, &key("evt_1")));

    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!(receipt.state, ReceiptState::Processing);
    assert_eq!(receipt.attempts, 1);
    assert_eq!(receipt.lease_until, Some(receipt.first_seen.saturating_add(LEASE)));
    assert_eq!(receipt.updated, receipt.first_seen);
    assert_eq!(receipt.body, request("evt_1").body);
    assert_eq!(receipt.event_id, request("evt_1").event_id);
    assert_eq!((receipt.result, receipt.error, receipt.reason, receipt.request), (None, None, None, None));
}

/// C055: of callers at the same moment, one runs the event; the others are told to wait.
pub async fn reserve_gives_the_event_to_exactly_one_of_many_callers(subject: &dyn Subject) {
    let (acquired, waiting) = race(subject, 50).await;
    assert_eq!((acquired, waiting), (1, 49));
}

/// C055: the same for an event whose holder died.
pub async fn reserve_gives_a_lapsed_lease_to_exactly_one_of_many_callers(subject: &dyn Subject) {
    let _dead = acquire(&*subject.store(), request("evt_1")).await;
    subject.advance(LEASE).await;
    let (acquired, waiting) = race(subject, 50).await;
    assert_eq!((acquired, waiting), (1, 49));
    assert_eq!(receipt(&*subject.store(), "evt_1").await.attempts, 2);
}

async fn race(subject: &dyn Subject, callers: u32) -> (usize, usize) {
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let store = subject.store();
        running.spawn(async move { store.reserve(request("evt_1")).await.expect("the store answers") });
    }
    let answers = running.join_all().await;
    let acquired = answers.iter().filter(|answer| matches!(answer, Reserved::Acquired(_))).count();
    let waiting = answers.iter().filter(|answer| matches!(answer, Reserved::Processing(_))).count();
    (acquired, waiting)
}

/// Many events, each asked for by several callers that complete what they get: every one is run once.
pub async fn the_same_event_succeeds_once_for_many_callers(subject: &dyn Subject) {
    let mut running = JoinSet::new();
    for caller in 0..100 {
        let store = subject.store();
        running.spawn(async move {
            let id = format!("evt_{}", caller % 20);
            match reserved(&*store, request(&id)).await {
                Reserved::Acquired(lease) => {
                    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
                    1
                }
                Reserved::Processing(_) | Reserved::Succeeded(_) => 0,
                other => panic!("nothing failed here: {other:?}"),
            }
        });
    }
    assert_eq!(running.join_all().await.into_iter().sum::<u32>(), 20);
    for event in 0..20 {
        let receipt = receipt(&*subject.store(), &format!("evt_{event}")).await;
        assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Succeeded, 1));
    }
}

/// C056: a repeat during the run learns what is left of the lease, never zero.
pub async fn a_repeat_while_it_runs_is_told_how_long_to_wait(subject: &dyn Subject) {
    let store = subject.store();
    let _lease = acquire(&*store, request("evt_1")).await;
    subject.advance(SECOND).await;
    let Reserved::Processing(remaining) = reserved(&*store, request("evt_1")).await else {
        panic!("another holder runs it");
    };
    assert!(remaining <= LEASE - SECOND && remaining > LEASE - 30 * SECOND, "{remaining:?}");
}

/// C057: a holder that died does not keep the event for longer than its lease.
pub async fn reserve_after_the_lease_gives_a_new_token_and_counts(subject: &dyn Subject) {
    let store = subject.store();
    let first = acquire(&*store, request("evt_1")).await;
    subject.advance(LEASE).await;
    let second = acquire(&*store, request("evt_1")).await;
    assert_ne!(first.token, second.token);
    assert_eq!((first.attempt, second.attempt), (1, 2));

    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Processing, 2));
    assert!(receipt.updated > receipt.first_seen);
}

/// A run that ended without a word is not lost from the history.
pub async fn a_lease_that_ran_out_is_noted_among_the_failures(subject: &dyn Subject) {
    let store = subject.store();
    let _dead = acquire(&*store, request("evt_1")).await;
    subject.advance(LEASE).await;
    let _second = acquire(&*store, request("evt_1")).await;
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!(receipt.failures.len(), 1);
    assert_eq!((receipt.failures[0].attempt, receipt.failures[0].status), (1, None));
    assert_eq!(receipt.error.as_deref(), Some("the lease ran out before the run ended"));
}

/// C083: an event that kills its process is given up, although no run ever lived to say so.
pub async fn leases_that_run_out_use_up_the_attempts(subject: &dyn Subject) {
    let store = subject.store();
    let asked = Reserve { max_attempts: 3, ..request("evt_1") };
    for attempt in 1..=3 {
        assert_eq!(acquire(&*store, asked.clone()).await.attempt, attempt);
        subject.advance(LEASE).await;
    }
    let gone = Reserved::DeadLetter(Repeat { result: None, same_body: true });
    assert_eq!(reserved(&*store, asked.clone()).await, gone);
    assert_eq!(reserved(&*store, asked).await, gone);

    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.attempts), (ReceiptState::DeadLetter, 3));
    assert_eq!(receipt.failures.len(), 3);
    assert!(receipt.reason.is_some_and(|reason| reason.contains("attempts used up")));
}

/// C062: one id under two consumers, two sources, is four events.
pub async fn scopes_do_not_collide(subject: &dyn Subject) {
    let store = subject.store();
    for (consumer, source) in [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b"), ("ab", "a"), ("a", "ba")] {
        let key = ReceiptKey { consumer: name(consumer), source: name(source), ..key("evt_1") };
        let lease = acquire(&*store, Reserve { key: key.clone(), ..request("evt_1") }).await;
        assert_eq!((lease.attempt, lease.key), (1, key));
    }
}

/// C061: a repeat gets the stored answer, and costs the store nothing.
pub async fn a_repeat_of_a_succeeded_event_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(complete(&*store, lease, answer(StatusCode::CREATED, b"made")).await, Settled::Done);
    let before = receipt(&*store, "evt_1").await;
    for _ in 0..3 {
        subject.advance(LEASE).await;
        let repeat = Repeat { result: Some(answer(StatusCode::CREATED, b"made")), same_body: true };
        assert_eq!(reserved(&*store, request("evt_1")).await, Reserved::Succeeded(repeat));
    }
    let after = receipt(&*store, "evt_1").await;
    assert_eq!(after.updated.saturating_since(after.first_seen), before.updated.saturating_since(before.first_seen));
    assert_eq!((after.state, after.attempts, after.result), (before.state, before.attempts, before.result));
}

/// Another body under a known key: the same event, and a number that says so.
pub async fn another_body_is_accepted_and_counted(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let waiting = reserved(&*store, other_body("evt_1", OtherBody::Accept)).await;
    assert!(matches!(waiting, Reserved::Processing(_)), "{waiting:?}");
    assert_eq!(receipt(&*store, "evt_1").await.other_bodies, 0, "it will ask again");

    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
    let done = |same_body| Reserved::Succeeded(Repeat { result: Some(answer(StatusCode::OK, b"done")), same_body });
    assert_eq!(reserved(&*store, other_body("evt_1", OtherBody::Accept)).await, done(false));
    assert_eq!(reserved(&*store, request("evt_1")).await, done(true));
    assert_eq!(reserved(&*store, other_body("evt_1", OtherBody::Accept)).await, done(false));
    assert_eq!(receipt(&*store, "evt_1").await.other_bodies, 2);

    let lease = acquire(&*store, request("evt_2")).await;
    let dead = Failure { dead: Some("no such order".into()), ..failure("refused") };
    assert_eq!(fail(&*store, lease, dead).await, Settled::Done);
    let gone = Reserved::DeadLetter(Repeat { result: None, same_body: false });
    assert_eq!(reserved(&*store, other_body("evt_2", OtherBody::Accept)).await, gone);
    assert_eq!(receipt(&*store, "evt_2").await.other_bodies, 1);
}

/// Where a sender promises identical bytes, another body is never run, whatever became of the first one.
pub async fn another_body_is_refused_and_counted_in_every_state(subject: &dyn Subject) {
    let store = subject.store();
    let other = || other_body("evt_1", OtherBody::Refuse);
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(reserved(&*store, other()).await, Reserved::OtherBody, "while it runs");

    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    assert_eq!(reserved(&*store, other()).await, Reserved::OtherBody, "after a failure");

    let _dead = acquire(&*store, request("evt_1")).await;
    subject.advance(LEASE).await;
    assert_eq!(reserved(&*store, other()).await, Reserved::OtherBody, "after the lease");

    let lease = acquire(&*store, request("evt_1")).await;
    let dead = Failure { dead: Some("enough".into()), ..failure("down") };
    assert_eq!(fail(&*store, lease, dead).await, Settled::Done);
    assert_eq!(reserved(&*store, other()).await, Reserved::OtherBody, "after it was given up");

    let _ = store.retry(key("evt_1")).await.expect("the store answers");
    let lease = acquire(&*store, request("evt_1")).await;
    let empty = StoredResult { body: ResultBody::Omitted, ..answer(StatusCode::OK, b"") };
    assert_eq!(complete(&*store, lease, empty).await, Settled::Done);
    assert_eq!(reserved(&*store, other()).await, Reserved::OtherBody, "after success");
    assert_eq!(receipt(&*store, "evt_1").await.other_bodies, 5);

    let same = Reserve { other_body: OtherBody::Refuse, ..request("evt_1") };
    assert!(matches!(reserved(&*store, same).await, Reserved::Succeeded(_)), "the same body is no other body");
}

/// A later run may have another body; what was seen first stays on record.
pub async fn a_run_with_another_body_leaves_the_first_digest(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    let lease = acquire(&*store, other_body("evt_1", OtherBody::Accept)).await;
    assert_eq!(lease.attempt, 2);
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.body, receipt.other_bodies), (request("evt_1").body, 1));
    assert_ne!(receipt.body, Digest::of(b"another"));
    assert!(receipt.lease_until.is_some_and(|until| until > receipt.updated.saturating_add(Duration::from_secs(1))));
}

/// What ended without a word is not run again where that is asked for, however many ask: it is a dead letter until an operator
/// retries it. Whoever held it comes back too late.
pub async fn a_run_that_left_no_word_is_held_where_that_is_asked_for(subject: &dyn Subject) {
    let store = subject.store();
    let strict = || Reserve { unclear: Unclear::Hold, ..request("evt_1") };
    let late = acquire(&*store, strict()).await;
    assert!(matches!(reserved(&*store, strict()).await, Reserved::Processing(_)));
    subject.advance(LEASE).await;
    for _ in 0..3 {
        let held = Reserved::DeadLetter(Repeat { result: None, same_body: true });
        assert_eq!(reserved(&*store, strict()).await, held);
        assert_eq!(reserved(&*store, request("evt_1")).await, held, "whoever asks");
    }
    let dead = receipt(&*store, "evt_1").await;
    assert_eq!((dead.state, dead.attempts, dead.reason.as_deref()), (ReceiptState::DeadLetter, 1, Some(Unclear::HELD)));
    assert_eq!(dead.failures.len(), 1);
    assert_eq!(complete(&*store, late, answer(StatusCode::OK, b"late")).await, Settled::LeaseLost);

    assert_eq!(store.retry(key("evt_1")).await.expect("the store answers"), Some(ReceiptState::Failed));
    let lease = acquire(&*store, strict()).await;
    assert_eq!(fail(&*store, lease, failure("clear")).await, Settled::Done);
    acquire(&*store, strict()).await;
}
