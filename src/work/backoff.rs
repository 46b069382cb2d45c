//! When to try again: a pure function of how often it was tried.

use std::time::Duration;

/// How long work waits after it has failed: twice as long each time, up to a longest wait, and by chance up to twice
/// that.
///
/// Chance only ever adds, so that what is stored is never sooner than what was asked for, and events that failed together
/// come back apart.
///
/// ```
/// # use std::time::Duration;
/// # use countersign::receive::Backoff;
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60 * 60));
/// assert_eq!(backoff.delay(1), Duration::from_secs(1));
/// assert_eq!(backoff.delay(5), Duration::from_secs(16));
/// assert_eq!(backoff.delay(1_000), Duration::from_secs(60 * 60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// The wait after the first failure, and the longest one.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The shortest wait after this many runs.
    #[must_use]
    pub fn delay(&self, attempts: u32) -> Duration {
        // Bounded before it is a power: no number of attempts overflows.
        let doublings = attempts.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// The wait after this many runs, by chance.
    pub(crate) fn by_chance(&self, attempts: u32) -> Duration {
        self.jittered(attempts, chance())
    }

    /// The wait after this many runs, with `chance` from 0, nothing added, to `u32::MAX`, as much again.
    pub(super) fn jittered(&self, attempts: u32, chance: u32) -> Duration {
        let delay = self.delay(attempts);
        delay.saturating_add(share(delay, chance))
    }
}

impl Default for Backoff {
    /// One second, up to one hour.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(60 * 60))
    }
}

/// As much of a span as `chance` is of `u32::MAX`.
pub(crate) fn share(span: Duration, chance: u32) -> Duration {
    let nanos = span.as_nanos().saturating_mul(chance.into()) / u128::from(u32::MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Any number. Without random bytes there is no jitter, and nothing worse.
pub(crate) fn chance() -> u32 {
    getrandom::u32().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c121_no_number_of_attempts_makes_the_wait_shorter_or_overflows() {
        let longest = Duration::from_secs(60 * 60);
        for first in [Duration::from_nanos(1), Duration::from_secs(1), Duration::from_secs(7), Duration::MAX] {
            let backoff = Backoff::new(first, longest);
            let mut before = Duration::ZERO;
            for attempts in (0..=70).chain([1_000, u32::MAX - 1, u32::MAX]) {
                let delay = backoff.delay(attempts);
                assert!(delay >= before && delay <= longest && !delay.is_zero(), "{first:?} {attempts}");
                before = delay;
            }
        }
        for attempts in [31, 32, 33, 63, 64, 65, 1_000] {
            assert_eq!(Backoff::default().delay(attempts), longest, "{attempts}");
        }
        assert_eq!(Backoff::new(Duration::ZERO, Duration::MAX).jittered(u32::MAX, u32::MAX), Duration::ZERO);
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).jittered(u32::MAX, u32::MAX), Duration::MAX);
    }

    #[test]
    fn jitter_only_adds_and_at_most_as_much_again() {
        let backoff = Backoff::default();
        for attempts in 1..=20 {
            let delay = backoff.delay(attempts);
            assert_eq!(backoff.jittered(attempts, 0), delay);
            assert_eq!(backoff.jittered(attempts, u32::MAX), 2 * delay);
            let middle = backoff.jittered(attempts, u32::MAX / 2);
            assert!(middle > delay && middle < 2 * delay, "{middle:?}");
        }
    }
}
