//! How many attempts each endpoint may get from this dispatcher now: its share of the slots, its rate, its breaker.
//!
//! What is known of an endpoint is dropped once it would not be missed, so that memory is bounded by the endpoints that
//! are busy or failing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::breaker::{Breaker, BreakerSettings};
use super::rate::Bucket;
use crate::Name;
use crate::store::Endpoint;

/// The limits of all endpoints. Clones are one and the same.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// How many attempts one endpoint gets at one time, where it does not say otherwise.
    in_flight: u32,
    breaker: BreakerSettings,
    lines: Arc<Mutex<HashMap<Name, Line>>>,
}

/// What is known of one endpoint.
#[derive(Debug)]
struct Line {
    running: u32,
    most: u32,
    bucket: Option<Bucket>,
    breaker: Breaker,
    used: Instant,
}

/// An attempt that counts against the limits of its endpoint until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Slot {
    limits: Limits,
    endpoint: Name,
    is_judged: bool,
    /// Whether it is the attempt that its endpoint's breaker waits for.
    is_probe: bool,
}

/// What a claim has to know.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Of the endpoints that get another number of messages than [`Limits::in_flight`].
    pub(super) by_name: Vec<(Name, u32)>,
    /// When one of them gets more, if none of its attempts ends before.
    pub(super) next: Option<Instant>,
}

impl Limits {
    pub(super) fn new(in_flight: u32, breaker: BreakerSettings) -> Self {
        Self { in_flight, breaker, lines: Arc::default() }
    }

    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many messages each endpoint may get now.
    pub(super) fn quotas(&self, now: Instant) -> Quotas {
        let mut lines = self.lines();
        lines.retain(|_, line| !line.can_be_forgotten(now));
        let mut quotas = Quotas::default();
        for (name, line) in &*lines {
            let quota = line.allows(now);
            if quota != self.in_flight {
                quotas.by_name.push((name.clone(), quota));
            }
            quotas.next = quotas.next.into_iter().chain(line.more_at(now)).min();
        }
        quotas
    }

    /// When an endpoint gets more than it may have now, if none of its attempts ends before.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.lines().values().filter_map(|line| line.more_at(now)).min()
    }

    /// Begins an attempt; `None` if the endpoint may have none now. Its limits may be news: a claim does not know those
    /// of an endpoint that it meets for the first time.
    pub(super) fn begin(&self, endpoint: &Endpoint, now: Instant) -> Option<Slot> {
        let mut lines = self.lines();
        let line = lines.entry(endpoint.name.clone()).or_insert_with(|| Line::new(self.breaker, now));
        line.most = endpoint.settings.max_in_flight.unwrap_or(self.in_flight).max(1);
        line.bucket = endpoint.settings.rate_per_second.map(|rate| match line.bucket {
            Some(bucket) if bucket.is_of(rate) => bucket,
            _ => Bucket::new(rate, now),
        });
        if line.allows(now) == 0 {
            return None;
        }
        line.running += 1;
        line.used = now;
        let is_probe = line.breaker.begin(now);
        if let Some(bucket) = &mut line.bucket {
            bucket.take(now);
        }
        Some(Slot { limits: self.clone(), endpoint: endpoint.name.clone(), is_judged: false, is_probe })
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Name, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The endpoint answered as one that works.
    pub(super) fn works(mut self) {
        self.judge(|breaker, endpoint| {
            if breaker.succeeded() {
                info!(%endpoint, "the endpoint works again");
            }
        });
    }

    /// The endpoint could not be reached, or said that it does not work.
    pub(super) fn fails(mut self) {
        let (now, is_probe) = (Instant::now(), self.is_probe);
        self.judge(|breaker, endpoint| {
            if breaker.failed(now, is_probe) {
                let pause = breaker.opens_at(now).map(|until| until - now);
                warn!(%endpoint, ?pause, "the endpoint does not work and is left alone for a while");
            }
        });
    }

    fn judge(&mut self, judge: impl FnOnce(&mut Breaker, &Name)) {
        self.is_judged = true;
        if let Some(line) = self.limits.lines().get_mut(&self.endpoint) {
            judge(&mut line.breaker, &self.endpoint);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = Instant::now();
        if let Some(line) = self.limits.lines().get_mut(&self.endpoint) {
            line.running = line.running.saturating_sub(1);
            line.used = now;
            if !self.is_judged && self.is_probe {
                line.breaker.learned_nothing(now);
            }
        }
    }
}

impl Line {
    fn new(breaker: BreakerSettings, now: Instant) -> Self {
        Self { running: 0, most: 1, bucket: None, breaker: Breaker::new(breaker), used: now }
    }

    fn allows(&self, now: Instant) -> u32 {
        let free = self.most.saturating_sub(self.running);
        let rate = self.bucket.map_or(u32::MAX, |bucket| bucket.holds(now));
        free.min(rate).min(self.breaker.allows(now).unwrap_or(u32::MAX))
    }

    fn more_at(&self, now: Instant) -> Option<Instant> {
        if self.running >= self.most {
            return None;
        }
        // Both have to let it through.
        self.bucket.and_then(|bucket| bucket.next(now)).max(self.breaker.opens_at(now))
    }

    fn can_be_forgotten(&self, now: Instant) -> bool {
        let idle = now.saturating_duration_since(self.used);
        // One that was disabled while it failed is never tried again, so that its breaker never comes to rest.
        self.running == 0 && ((idle > SHORT_MEMORY && self.breaker.is_at_rest()) || idle > LONG_MEMORY)
    }
}

/// How long an endpoint that works is remembered. Its bucket is full by then.
const SHORT_MEMORY: Duration = Duration::from_secs(60);
/// How long any endpoint is.
const LONG_MEMORY: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Backoff;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits::new(4, BreakerSettings { after: 2, pauses: Backoff::new(10 * SECOND, 10 * SECOND) })
    }

    fn endpoint(name: &str) -> Endpoint {
        Endpoint::new(Name::new(name).expect("a name"), "https://example.com/")
    }

    fn quota(limits: &Limits, endpoint: &Endpoint) -> u32 {
        let quotas = limits.quotas(Instant::now()).by_name;
        quotas.iter().find(|(name, _)| *name == endpoint.name).map_or(limits.in_flight(), |(_, quota)| *quota)
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_gets_its_share_of_the_slots_and_no_more() {
        let (limits, one, mut two) = (limits(), endpoint("one"), endpoint("two"));
        let mut slots: Vec<_> = (0..4).filter_map(|_| limits.begin(&one, Instant::now())).collect();
        assert_eq!((slots.len(), quota(&limits, &one)), (4, 0));
        assert!(limits.begin(&one, Instant::now()).is_none());
        slots.truncate(3);
        assert_eq!(quota(&limits, &one), 1);
        two.settings.max_in_flight = Some(1);
        let slot = limits.begin(&two, Instant::now()).expect("the first");
        assert!(limits.begin(&two, Instant::now()).is_none());
        drop(slot);
        assert_eq!(quota(&limits, &two), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_held_and_says_when_the_next_attempt_may_begin() {
        let (limits, mut slow) = (limits(), endpoint("slow"));
        slow.settings.rate_per_second = Some(5);
        drop(limits.begin(&slow, Instant::now()).expect("the first"));
        assert!(limits.begin(&slow, Instant::now()).is_none());
        let Quotas { by_name, next } = limits.quotas(Instant::now());
        assert_eq!(by_name, [(slow.name.clone(), 0)]);
        assert_eq!(next, Some(Instant::now() + SECOND / 5));
        tokio::time::advance(SECOND / 5).await;
        assert_eq!(quota(&limits, &slow), 1);
        assert_eq!(limits.quotas(Instant::now()).next, None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_close_the_line_until_one_attempt_shows_that_it_works() {
        let (limits, dead) = (limits(), endpoint("dead"));
        for _ in 0..2 {
            limits.begin(&dead, Instant::now()).expect("a slot").fails();
        }
        assert_eq!(quota(&limits, &dead), 0);
        let until = limits.quotas(Instant::now()).next.expect("a moment");
        tokio::time::advance(until - Instant::now()).await;
        assert_eq!(quota(&limits, &dead), 1);
        let probe = limits.begin(&dead, Instant::now()).expect("the probe");
        assert_eq!(quota(&limits, &dead), 0);
        drop(probe);
        assert_eq!(quota(&limits, &dead), 1, "a probe that was given up leaves room for another one");
        limits.begin(&dead, Instant::now()).expect("the probe").works();
        assert_eq!(quota(&limits, &dead), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_idle_is_forgotten() {
        let limits = limits();
        for number in 0..100 {
            limits.begin(&endpoint(&format!("works-{number}")), Instant::now()).expect("a slot").works();
            limits.begin(&endpoint(&format!("fails-{number}")), Instant::now()).expect("a slot").fails();
        }
        let busy = limits.begin(&endpoint("busy"), Instant::now()).expect("a slot");
        tokio::time::advance(SHORT_MEMORY + SECOND).await;
        limits.quotas(Instant::now());
        assert_eq!(limits.lines().len(), 101);
        tokio::time::advance(LONG_MEMORY).await;
        limits.quotas(Instant::now());
        assert_eq!(limits.lines().len(), 1);
        drop(busy);
    }
}
