//! Leaves an endpoint alone that does not answer: its messages stay in the store, and their attempts are not used up.
//!
//! ```text
//! closed ──failures in a row──▶ open(until) ──until is past, one attempt begins──▶ probing ──it succeeds──▶ closed
//!                                  ▲                                                 └─it fails: open for longer
//! ```

use tokio::time::Instant;

use crate::work::{Backoff, after};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct BreakerSettings {
    /// After this many failures in a row. 0: never.
    pub(super) after: u32,
    /// How long it stays open: the first time, and at most.
    pub(super) pauses: Backoff,
}

/// The breaker of one endpoint, as one dispatcher sees it.
#[derive(Debug)]
pub(super) struct Breaker {
    settings: BreakerSettings,
    state: State,
    failures: u32,
    /// How often it has opened since an attempt succeeded.
    openings: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Instant },
    Probing,
}

impl Breaker {
    pub(super) const fn new(settings: BreakerSettings) -> Self {
        Self { settings, state: State::Closed, failures: 0, openings: 0 }
    }

    /// How many attempts may begin now; `None` where it sets no bound.
    pub(super) fn allows(&self, now: Instant) -> Option<u32> {
        match self.state {
            State::Closed => None,
            State::Open { until } if until <= now => Some(1),
            State::Open { .. } | State::Probing => Some(0),
        }
    }

    /// When it lets an attempt through again, if it does not now.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Open { until } if until > now => Some(until),
            State::Closed | State::Open { .. } | State::Probing => None,
        }
    }

    /// An attempt begins. Says whether it is the probe.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_probe = self.allows(now) == Some(1);
        if is_probe {
            self.state = State::Probing;
        }
        is_probe
    }

    /// The endpoint works, whichever attempt shows it: it has answered now. Says whether that closed the breaker.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_closed = self.state == State::Closed;
        *self = Self::new(self.settings);
        !was_closed
    }

    /// The endpoint does not work. Says whether that opened the breaker.
    pub(super) fn failed(&mut self, now: Instant, is_probe: bool) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            State::Closed => self.settings.after > 0 && self.failures >= self.settings.after,
            // One that began before it opened says nothing new.
            State::Open { .. } => false,
            State::Probing => is_probe,
        };
        if opens {
            self.openings = self.openings.saturating_add(1);
            self.state = State::Open { until: after(now, self.settings.pauses.by_chance(self.openings)) };
        }
        opens
    }

    /// The probe ended and showed nothing: another attempt may be it.
    pub(super) fn learned_nothing(&mut self, now: Instant) {
        if self.state == State::Probing {
            self.state = State::Open { until: now };
        }
    }

    /// Whether it knows nothing that would be missed.
    pub(super) fn is_at_rest(&self) -> bool {
        self.state == State::Closed && self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings { after: 3, pauses: Backoff::new(SECOND, 60 * SECOND) })
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_a_success_between_them_starts_anew() {
        let mut breaker = breaker();
        let now = Instant::now();
        assert!(!breaker.failed(now, false) && !breaker.failed(now, false));
        assert!(!breaker.succeeded());
        assert!(breaker.is_at_rest());
        assert!(!breaker.failed(now, false) && !breaker.failed(now, false));
        assert_eq!(breaker.allows(now), None);
        assert!(breaker.failed(now, false));
        assert_eq!(breaker.allows(now), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn one_attempt_probes_and_decides_whether_it_closes_or_stays_open_for_longer() {
        let mut breaker = breaker();
        let mut now = Instant::now();
        assert!((0..3).any(|_| breaker.failed(now, false)));
        let mut before = Duration::ZERO;
        for _ in 0..4 {
            let until = breaker.opens_at(now).expect("open");
            let pause = until - now;
            // By chance up to twice as long, so never shorter than the time before, and in the end longer.
            assert!(pause >= before / 2 && pause <= 60 * SECOND, "{pause:?}");
            before = pause;
            now = until;
            assert_eq!(breaker.allows(now), Some(1));
            breaker.begin(now);
            assert_eq!(breaker.allows(now), Some(0), "the probe goes alone");
            assert!(!breaker.failed(now, false), "one that began before the probe decides nothing");
            assert!(breaker.failed(now, true));
        }
        now = breaker.opens_at(now).expect("open");
        breaker.begin(now);
        breaker.learned_nothing(now);
        assert_eq!(breaker.allows(now), Some(1), "another one probes");
        breaker.begin(now);
        assert!(breaker.succeeded());
        assert_eq!(breaker.allows(now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_straggler_that_fails_does_not_lengthen_the_pause() {
        let mut breaker = breaker();
        let now = Instant::now();
        assert!((0..3).any(|_| breaker.failed(now, false)));
        let until = breaker.opens_at(now);
        assert!(!breaker.failed(now, false));
        assert_eq!(breaker.opens_at(now), until);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_number_of_failures_it_never_opens() {
        let mut breaker = Breaker::new(BreakerSettings { after: 0, pauses: Backoff::default() });
        let now = Instant::now();
        assert!((0..1_000).all(|_| !breaker.failed(now, false)));
        assert_eq!(breaker.allows(now), None);
    }
}
