//! Whether and when a message is tried again: a pure function of verdict, counts and spans.
//!
//! Spans and no moments: the store's clock says how old a message is and when a wait is over, so no other clock matters.

use std::time::Duration;

use super::classify::{Retry, Verdict};
use crate::work::{Backoff, share};

/// How often, how long and how patiently a message is tried.
///
/// By default 5 seconds after the first attempt, twice as long each time up to 6 hours, and by chance up to twice that;
/// 20 attempts within 5 days, after which the message is a dead letter. A receiver that asks for time (`Retry-After`) gets
/// up to a day, and never less than our own wait.
///
/// Chance only adds: nothing is sent sooner than the receiver asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    backoff: Backoff,
    max_attempts: u32,
    max_age: Duration,
    max_retry_after: Duration,
}

/// What becomes of a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// It is delivered.
    Delivered,
    /// It is given up.
    GiveUp(GiveUp),
    /// It is tried again.
    Retry(Due),
}

/// When a message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Due {
    /// Not before this much time has passed.
    pub after: Duration,
    /// For how long no message goes to the endpoint; none where the receiver did not ask for it.
    pub endpoint_held_for: Option<Duration>,
    /// Whether the attempt is not counted.
    pub is_free: bool,
}

/// Why a message is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GiveUp {
    /// It was tried as often as it may be.
    AttemptsUsedUp,
    /// The endpoint is gone.
    Gone,
    /// The receiver, or our own policy, will not take it.
    Permanent,
    /// It would be older than it may get.
    TooOld,
}

impl RetryPolicy {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            backoff: Backoff::new(Duration::from_secs(5), Duration::from_secs(6 * 60 * 60)),
            max_attempts: 20,
            max_age: Duration::from_secs(5 * 24 * 60 * 60),
            max_retry_after: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Sets how long a message waits after each attempt.
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets how often a message is tried.
    #[must_use]
    pub const fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets how old a message may be when it is tried for the last time. Replaying one makes it new.
    #[must_use]
    pub const fn with_max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets the longest `Retry-After` that is heeded. A longer one counts as this one.
    #[must_use]
    pub const fn with_max_retry_after(mut self, time: Duration) -> Self {
        self.max_retry_after = time;
        self
    }

    /// How often a message is tried.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// What becomes of a message after its attempt number `attempts`, from 1, free ones left out. `age` is how long it
    /// has been deliverable, `chance` any number.
    #[must_use]
    pub fn next(&self, verdict: Verdict, attempts: u32, age: Duration, chance: u32) -> Next {
        let retry = match verdict {
            Verdict::Delivered => return Next::Delivered,
            Verdict::Gone => return Next::GiveUp(GiveUp::Gone),
            Verdict::Permanent => return Next::GiveUp(GiveUp::Permanent),
            Verdict::Retry(retry) => retry,
        };
        if attempts >= self.max_attempts && !retry.is_free {
            return Next::GiveUp(GiveUp::AttemptsUsedUp);
        }
        let after = self.wait(retry, attempts, chance);
        if age.saturating_add(after) > self.max_age {
            return Next::GiveUp(GiveUp::TooOld);
        }
        let asked = retry.after.filter(|_| retry.holds_endpoint);
        let endpoint_held_for = asked.map(|asked| asked.min(self.max_retry_after));
        Next::Retry(Due { after, endpoint_held_for, is_free: retry.is_free })
    }

    /// The wait, with chance on top: up to as much again as our own wait, or a tenth of what was asked for.
    fn wait(&self, retry: Retry, attempts: u32, chance: u32) -> Duration {
        let own = self.backoff.delay(attempts);
        let asked = retry.after.unwrap_or_default().min(self.max_retry_after);
        own.max(asked).saturating_add(share(own.max(asked / 10), chance))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn asked(seconds: u64) -> Verdict {
        Verdict::Retry(Retry { after: Some(Duration::from_secs(seconds)), holds_endpoint: true, is_free: false })
    }

    /// The wait after a fresh message's attempt.
    fn wait(policy: &RetryPolicy, verdict: Verdict, attempts: u32, chance: u32) -> Option<Duration> {
        match policy.next(verdict, attempts, Duration::ZERO, chance) {
            Next::Retry(due) => Some(due.after),
            Next::Delivered | Next::GiveUp(_) => None,
        }
    }

    #[test]
    fn c121_no_number_of_attempts_makes_the_wait_shorter_or_overflows() {
        let patient = RetryPolicy::new().with_max_attempts(u32::MAX).with_max_age(Duration::MAX);
        let mut before = Duration::ZERO;
        for attempts in (1..=70).chain([1_000, u32::MAX - 1]) {
            let wait = wait(&patient, Verdict::Retry(Retry::default()), attempts, 0).expect("a retry");
            assert!(wait >= before && !wait.is_zero(), "{attempts}");
            before = wait;
        }
        assert_eq!(before, DAY / 4);
    }

    #[test]
    fn c118_a_receiver_gets_the_time_it_asks_for_up_to_a_limit() {
        let policy = RetryPolicy::new();
        assert_eq!(wait(&policy, asked(60), 1, 0), Some(Duration::from_secs(60)));
        for seconds in [9_999_999_999, u64::MAX] {
            assert_eq!(wait(&policy, asked(seconds), 1, 0), Some(DAY), "{seconds}");
            assert!(wait(&policy, asked(seconds), 1, u32::MAX).expect("a retry") <= DAY + DAY / 10);
        }
        // A limit that was set without care does not overflow either.
        let careless = policy.with_max_retry_after(Duration::MAX).with_max_age(Duration::MAX);
        assert!(wait(&careless, asked(u64::MAX), 1, u32::MAX) >= Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn c119_our_own_wait_is_the_least() {
        let policy = RetryPolicy::new();
        assert_eq!(wait(&policy, asked(0), 4, 0), Some(Duration::from_secs(40)));
        assert_eq!(wait(&policy, Verdict::Retry(Retry::default()), 4, 0), Some(Duration::from_secs(40)));
    }

    #[test]
    fn chance_only_adds() {
        let policy = RetryPolicy::new();
        for chance in [0, 1, u32::MAX / 2, u32::MAX] {
            let wait = wait(&policy, asked(3_600), 1, chance).expect("a retry");
            assert!((3_600..=3_960).contains(&wait.as_secs()), "{wait:?}");
        }
    }

    #[test]
    fn attempts_and_age_are_both_bounded() {
        let policy = RetryPolicy::new().with_max_attempts(3).with_max_age(DAY);
        let retry = Verdict::Retry(Retry::default());
        let next = |attempts, age| policy.next(retry, attempts, age, 0);
        assert!(matches!(next(2, Duration::ZERO), Next::Retry(_)));
        assert_eq!(next(3, Duration::ZERO), Next::GiveUp(GiveUp::AttemptsUsedUp));
        assert_eq!(next(u32::MAX, Duration::ZERO), Next::GiveUp(GiveUp::AttemptsUsedUp));
        assert!(matches!(next(1, DAY - Duration::from_secs(5)), Next::Retry(_)));
        assert_eq!(next(1, DAY - Duration::from_secs(4)), Next::GiveUp(GiveUp::TooOld));
        assert_eq!(next(1, DAY * 365), Next::GiveUp(GiveUp::TooOld));
    }

    #[test]
    fn an_attempt_that_met_another_one_is_free_but_ages() {
        let policy = RetryPolicy::new().with_max_attempts(3);
        let busy = Verdict::Retry(Retry { after: Some(Duration::from_secs(30)), holds_endpoint: false, is_free: true });
        let expected = Due { after: Duration::from_secs(30), endpoint_held_for: None, is_free: true };
        assert_eq!(policy.next(busy, 3, Duration::ZERO, 0), Next::Retry(expected));
        assert_eq!(policy.next(busy, 1, 5 * DAY, 0), Next::GiveUp(GiveUp::TooOld));
    }

    #[test]
    fn a_busy_receiver_holds_its_whole_endpoint() {
        let Next::Retry(due) = RetryPolicy::new().next(asked(60), 1, Duration::ZERO, u32::MAX) else {
            panic!("it is tried again");
        };
        assert_eq!(due.endpoint_held_for, Some(Duration::from_secs(60)));
        assert!(due.after > Duration::from_secs(60));
    }

    #[test]
    fn what_is_not_retried_ends_at_once() {
        for (verdict, expected) in [
            (Verdict::Delivered, Next::Delivered),
            (Verdict::Gone, Next::GiveUp(GiveUp::Gone)),
            (Verdict::Permanent, Next::GiveUp(GiveUp::Permanent)),
        ] {
            assert_eq!(RetryPolicy::new().next(verdict, 1, Duration::ZERO, 0), expected);
        }
    }
}
