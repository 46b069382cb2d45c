//! How many attempts may begin in a second: a token bucket, kept as one moment.

use std::time::Duration;

use tokio::time::Instant;

/// The bucket of one endpoint, on a steady clock.
///
/// It holds a tenth of a second's attempts, one at least: in no second do more begin than that beyond the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// From one token to the next.
    interval: Duration,
    /// How many it holds.
    depth: u32,
    /// When it is full again.
    full_at: Instant,
}

impl Bucket {
    /// A full bucket of so many attempts in a second: one at least, [`FASTEST`] at most.
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        let per_second = per_second.clamp(1, FASTEST);
        Self { interval: Duration::from_secs(1) / per_second, depth: per_second.div_ceil(10), full_at: now }
    }

    /// Whether it fills at this rate.
    pub(super) fn is_of(&self, per_second: u32) -> bool {
        self.interval == Duration::from_secs(1) / per_second.clamp(1, FASTEST)
    }

    /// How many attempts may begin now.
    pub(super) fn holds(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos().div_ceil(self.interval.as_nanos());
        self.depth.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// When the next one may, if none may now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let one_at = self.full_at.checked_sub(self.interval.saturating_mul(self.depth - 1))?;
        (one_at > now).then_some(one_at)
    }

    /// An attempt begins.
    pub(super) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }
}

/// A faster rate is none: no dispatcher begins that many, and an interval must be longer than nothing.
const FASTEST: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_rate_that_fits_a_row_gives_a_bucket_that_works(
            rate in prop_oneof![any::<u32>(), 0..2_000_u32, 999_999_990..=1_000_000_010_u32, Just(u32::MAX)],
            waits in prop::collection::vec(0..2_000_000_000_u64, 0..20),
        ) {
            let mut now = Instant::now();
            let mut bucket = Bucket::new(rate, now);
            prop_assert!(bucket.is_of(rate));
            for wait in waits {
                let holds = bucket.holds(now);
                prop_assert!(holds <= rate.clamp(1, FASTEST).div_ceil(10));
                (0..holds.min(100)).for_each(|_| bucket.take(now));
                now = bucket.next(now).unwrap_or(now) + Duration::from_nanos(wait);
                prop_assert!(bucket.holds(now) >= 1);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn over_any_time_no_more_attempts_begin_than_the_rate_and_a_tenth_of_it() {
        for per_second in [1, 3, 7, 10, 25, 1_000, 30_000] {
            let began = Instant::now();
            let (mut bucket, mut now, mut taken) = (Bucket::new(per_second, began), began, 0_u32);
            while now - began < Duration::from_secs(5) {
                let holds = bucket.holds(now);
                (0..holds).for_each(|_| bucket.take(now));
                taken += holds;
                now = bucket.next(now).expect("it is empty");
                assert!(bucket.holds(now) >= 1, "{per_second}: one may begin when it was said");
            }
            // An interval is a whole number of nanoseconds.
            let most = 5 * per_second + per_second.div_ceil(10) + per_second / 10_000;
            assert!(taken <= most && taken + 1 >= 5 * per_second, "{per_second}: {taken}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_bucket_holds_no_more_than_its_depth() {
        let now = Instant::now();
        let bucket = Bucket::new(100, now);
        assert_eq!(bucket.holds(now + Duration::from_secs(3_600)), 10);
        assert_eq!(bucket.next(now), None);
        assert!(bucket.is_of(100) && !bucket.is_of(101));
    }
}
