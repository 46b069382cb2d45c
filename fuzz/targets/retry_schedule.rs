//! Retries: whatever is set and asked for, a retry is never sooner than it may be, and the last one comes.

use std::time::Duration;

use countersign::Timestamp;
use countersign::send::{Answer, Backoff, GiveUp, Next, Overrides, RetryPolicy, Verdict, classify};
use http::{HeaderValue, StatusCode, header};

use super::input::Input;

/// Reads numbers: a status; first and longest wait, greatest age, longest `Retry-After` and the message's age in
/// microseconds; what the receiver asks for in seconds; attempts allowed and made; and chance.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let status = input.number().rem_euclid(900) + 100;
    let mut span = || Duration::from_micros(input.number().unsigned_abs());
    let (first, longest, max_age, max_asked, age) = (span(), span(), span(), span(), span());
    let asked = input.number().unsigned_abs();
    let (max_attempts, attempts, chance) = (small(input.number()), small(input.number()), small(input.number()));

    let mut answer = Answer::new(StatusCode::from_u16(u16::try_from(status).expect("1 to 999")).expect("a status"));
    answer.headers.insert(header::RETRY_AFTER, HeaderValue::from(asked));
    let verdict = classify(&Ok(answer), &Overrides::none(), Timestamp::default());

    let backoff = Backoff::new(first, longest);
    let policy = RetryPolicy::new().with_backoff(backoff).with_max_attempts(max_attempts).with_max_age(max_age);
    let policy = policy.with_max_retry_after(max_asked);
    for chance in [chance, 0, u32::MAX] {
        check(&policy, backoff, max_age, max_asked, verdict, attempts, age, chance);
    }
}

#[allow(clippy::too_many_arguments, reason = "it is all that a decision depends on")]
fn check(
    policy: &RetryPolicy,
    backoff: Backoff,
    max_age: Duration,
    max_asked: Duration,
    verdict: Verdict,
    attempts: u32,
    age: Duration,
    chance: u32,
) {
    let next = policy.next(verdict, attempts, age, chance);
    assert_eq!(next, policy.next(verdict, attempts, age, chance), "it depends on nothing else");
    match (verdict, next) {
        (Verdict::Delivered, next) => assert_eq!(next, Next::Delivered),
        (Verdict::Gone, next) => assert_eq!(next, Next::GiveUp(GiveUp::Gone)),
        (Verdict::Permanent, next) => assert_eq!(next, Next::GiveUp(GiveUp::Permanent)),
        (Verdict::Retry(retry), Next::Retry(due)) => {
            let asked = retry.after.unwrap_or_default().min(max_asked);
            let least = backoff.delay(attempts).max(asked);
            assert!(due.after >= least && due.after <= least.saturating_mul(2));
            assert!(age.saturating_add(due.after) <= max_age);
            assert!(retry.is_free || attempts < policy.max_attempts());
            assert_eq!(due.is_free, retry.is_free);
            assert_eq!(due.endpoint_held_for.is_some(), retry.holds_endpoint);
        }
        (Verdict::Retry(retry), Next::GiveUp(GiveUp::AttemptsUsedUp)) => {
            assert!(!retry.is_free && attempts >= policy.max_attempts());
        }
        (Verdict::Retry(retry), Next::GiveUp(GiveUp::TooOld)) => {
            let asked = retry.after.unwrap_or_default().min(max_asked);
            let most = backoff.delay(attempts).max(asked).saturating_mul(2);
            assert!(age.saturating_add(most) > max_age);
        }
        other => panic!("{other:?}"),
    }
}

fn small(number: i64) -> u32 {
    u32::try_from(number.unsigned_abs() % (1 << 32)).expect("below 2^32")
}
