//! How a run ends, and that nobody else can end it.

use http::StatusCode;

use super::{
    LEASE, SECOND, Subject, acquire, answer, complete, fail, failure, kept_request, key, receipt, request, reserved,
};
use crate::store::{Failure, Lease, ReceiptState, Repeat, Reserve, Reserved, Settled, Token};

/// C058: who lost the lease cannot end the run of the one who took over.
pub async fn a_late_complete_after_a_takeover_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    let late = acquire(&*store, request("evt_1")).await;
    subject.advance(LEASE).await;
    let holder = acquire(&*store, request("evt_1")).await;

    let before = receipt(&*store, "evt_1").await;
    assert_eq!(complete(&*store, late.clone(), answer(StatusCode::OK, b"late")).await, Settled::LeaseLost);
    assert_eq!(receipt(&*store, "evt_1").await, before);

    assert_eq!(fail(&*store, holder, failure("down")).await, Settled::Done);
    let before = receipt(&*store, "evt_1").await;
    assert_eq!(complete(&*store, late, answer(StatusCode::OK, b"late")).await, Settled::LeaseLost);
    assert_eq!(receipt(&*store, "evt_1").await, before);
}

/// C058, C079: neither can it fail it, nor hold on to it.
pub async fn a_late_failure_or_renewal_after_a_takeover_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    let late = acquire(&*store, request("evt_1")).await;
    subject.advance(LEASE).await;
    let holder = acquire(&*store, request("evt_1")).await;

    let before = receipt(&*store, "evt_1").await;
    assert_eq!(fail(&*store, late.clone(), failure("late")).await, Settled::LeaseLost);
    assert_eq!(store.renew(late.clone(), 9 * LEASE).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(receipt(&*store, "evt_1").await, before);

    assert_eq!(complete(&*store, holder, answer(StatusCode::OK, b"done")).await, Settled::Done);
    let before = receipt(&*store, "evt_1").await;
    let dead = Failure { dead: Some("late".into()), ..failure("late") };
    assert_eq!(fail(&*store, late.clone(), dead).await, Settled::LeaseLost);
    assert_eq!(store.renew(late, LEASE).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(receipt(&*store, "evt_1").await, before);
}

/// A lease that ran out proves nothing against work that was done.
pub async fn a_lapsed_lease_that_nobody_took_over_can_still_be_settled(subject: &dyn Subject) {
    let store = subject.store();
    let completed = acquire(&*store, request("evt_1")).await;
    let failed = acquire(&*store, request("evt_2")).await;
    let renewed = acquire(&*store, request("evt_3")).await;
    subject.advance(2 * LEASE).await;
    assert_eq!(complete(&*store, completed, answer(StatusCode::OK, b"done")).await, Settled::Done);
    assert_eq!(fail(&*store, failed, failure("down")).await, Settled::Done);
    assert_eq!(store.renew(renewed, LEASE).await.expect("the store answers"), Settled::Done);
    assert_eq!(receipt(&*store, "evt_1").await.state, ReceiptState::Succeeded);
    assert_eq!(receipt(&*store, "evt_2").await.state, ReceiptState::Failed);
    assert!(matches!(reserved(&*store, request("evt_3")).await, Reserved::Processing(_)));
}

/// A token ends one run once, and another token or another receipt's none.
pub async fn a_lease_is_settled_once(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let other = acquire(&*store, request("evt_2")).await;
    let guessed = Lease { token: Token::random().expect("random bytes"), ..lease.clone() };
    let swapped = Lease { token: other.token, ..lease.clone() };
    for wrong in [guessed, swapped] {
        assert_eq!(complete(&*store, wrong, answer(StatusCode::OK, b"no")).await, Settled::LeaseLost);
    }
    assert_eq!(complete(&*store, lease.clone(), answer(StatusCode::OK, b"one")).await, Settled::Done);
    assert_eq!(complete(&*store, lease.clone(), answer(StatusCode::OK, b"two")).await, Settled::LeaseLost);
    assert_eq!(fail(&*store, lease.clone(), failure("three")).await, Settled::LeaseLost);
    assert_eq!(store.renew(lease, LEASE).await.expect("the store answers"), Settled::LeaseLost);
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.result), (ReceiptState::Succeeded, Some(answer(StatusCode::OK, b"one"))));
    assert!(receipt.failures.is_empty());
}

/// Renewal counts from now, and holds the event beyond the first lease.
pub async fn a_renewed_lease_holds(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    for _ in 0..3 {
        subject.advance(LEASE - SECOND).await;
        assert_eq!(store.renew(lease.clone(), LEASE).await.expect("the store answers"), Settled::Done);
    }
    subject.advance(LEASE - SECOND).await;
    assert!(matches!(reserved(&*store, request("evt_1")).await, Reserved::Processing(_)));
    subject.advance(SECOND).await;
    assert_eq!(acquire(&*store, request("evt_1")).await.attempt, 2);
}

/// What was forgotten while it ran is gone: its end makes no new receipt.
pub async fn settling_a_forgotten_receipt_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert!(store.forget(key("evt_1")).await.expect("the store answers"));
    assert_eq!(store.renew(lease.clone(), LEASE).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(fail(&*store, lease.clone(), failure("down")).await, Settled::LeaseLost);
    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::LeaseLost);
    assert_eq!(store.find(key("evt_1")).await.expect("the store answers"), None);
}

/// C052: what failed is not done. The next delivery runs it at once.
pub async fn a_failed_event_is_run_again(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let down = Failure { result: Some(answer(StatusCode::BAD_GATEWAY, b"down")), ..failure("no connection") };
    subject.advance(SECOND).await;
    assert_eq!(fail(&*store, lease, down).await, Settled::Done);

    let failed = receipt(&*store, "evt_1").await;
    assert_eq!((failed.state, failed.attempts, failed.lease_until), (ReceiptState::Failed, 1, None));
    assert_eq!(failed.error.as_deref(), Some("no connection"));
    assert_eq!(failed.result, Some(answer(StatusCode::BAD_GATEWAY, b"down")));
    assert_eq!(failed.failures.len(), 1);
    let run = &failed.failures[0];
    assert_eq!((run.attempt, run.status, &*run.error), (1, Some(StatusCode::BAD_GATEWAY), "no connection"));
    assert_eq!(run.at, failed.updated);

    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(lease.attempt, 2);
    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
    assert_eq!(receipt(&*store, "evt_1").await.state, ReceiptState::Succeeded);
}

/// A permanent failure is final, and its answer is repeated.
pub async fn a_dead_letter_is_not_run_again_and_repeats_its_answer(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let refused = answer(StatusCode::UNPROCESSABLE_ENTITY, b"no such order");
    let dead = Failure { result: Some(refused.clone()), dead: Some("permanent".into()), ..failure("no such order") };
    assert_eq!(fail(&*store, lease, dead).await, Settled::Done);

    for _ in 0..2 {
        subject.advance(LEASE).await;
        let repeat = Repeat { result: Some(refused.clone()), same_body: true };
        assert_eq!(reserved(&*store, request("evt_1")).await, Reserved::DeadLetter(repeat));
    }
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.reason.as_deref()), (ReceiptState::DeadLetter, Some("permanent")));
    assert_eq!(receipt.failures.len(), 1);
}

/// The limit is the caller's, and holds over failures that were answered: the last answer is repeated.
pub async fn attempts_used_up_by_failures_make_a_dead_letter(subject: &dyn Subject) {
    let store = subject.store();
    let asked = Reserve { max_attempts: 2, ..request("evt_1") };
    for body in [b"first", b"again"] {
        let lease = acquire(&*store, asked.clone()).await;
        let down = Failure { result: Some(answer(StatusCode::BAD_GATEWAY, body)), ..failure("down") };
        assert_eq!(fail(&*store, lease, down).await, Settled::Done);
    }
    let last = Repeat { result: Some(answer(StatusCode::BAD_GATEWAY, b"again")), same_body: true };
    assert_eq!(reserved(&*store, asked).await, Reserved::DeadLetter(last));
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.state, receipt.attempts, receipt.failures.len()), (ReceiptState::DeadLetter, 2, 2));
    assert_eq!(receipt.error.as_deref(), Some("down"));
}

/// A run that timed out says nothing; what was answered before stays.
pub async fn a_failure_without_an_answer_leaves_the_last_one(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let down = Failure {
        result: Some(answer(StatusCode::BAD_GATEWAY, b"down")),
        request: Some(kept_request()),
        ..failure("down")
    };
    assert_eq!(fail(&*store, lease, down).await, Settled::Done);
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, lease, failure("timed out")).await, Settled::Done);
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!(receipt.result, Some(answer(StatusCode::BAD_GATEWAY, b"down")));
    assert_eq!(receipt.request, Some(kept_request()));
    assert_eq!(receipt.error.as_deref(), Some("timed out"));
    assert_eq!(receipt.failures[1].status, None);
}

/// The request was kept to run the event without its sender: once it has succeeded nobody needs it.
pub async fn success_drops_the_kept_request_and_keeps_the_history(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let down = Failure { request: Some(kept_request()), ..failure("down") };
    assert_eq!(fail(&*store, lease, down).await, Settled::Done);
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(receipt(&*store, "evt_1").await.request, Some(kept_request()), "while it runs again");
    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);

    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.request, receipt.error, receipt.reason), (None, None, None));
    assert_eq!(receipt.failures.len(), 1);
}

/// However often an event fails, its receipt stays small: the last failures are kept.
pub async fn a_history_of_failures_is_bounded(subject: &dyn Subject) {
    let store = subject.store();
    let kept = u32::try_from(Failure::MAX_KEPT).expect("a small number");
    for run in 1..=kept + 3 {
        let lease = acquire(&*store, Reserve { max_attempts: u32::MAX, ..request("evt_1") }).await;
        assert_eq!(lease.attempt, run);
        assert_eq!(fail(&*store, lease, failure(&format!("run {run}"))).await, Settled::Done);
    }
    let failures = receipt(&*store, "evt_1").await.failures;
    let attempts: Vec<u32> = failures.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, (4..=kept + 3).collect::<Vec<_>>());
    assert_eq!(failures.last().map(|run| run.error.clone()), Some(format!("run {}", kept + 3)));
}
