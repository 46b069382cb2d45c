//! What a dispatcher has done so far, counted by how attempts ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what a [`Dispatcher`](super::Dispatcher) does, for metrics. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Counters>);

/// How often each thing has happened since the dispatcher was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tallied {
    /// Messages that were delivered.
    pub delivered: u64,
    /// Attempts after which the message is to be tried again.
    pub retried: u64,
    /// Messages that became dead letters, or failed.
    pub dead: u64,
    /// Attempts that ended without a trace in the store: their lease was lost, or the store could not be reached.
    pub unsettled: u64,
    /// Attempts that the destination policy refused.
    pub refused: u64,
    /// Endpoints that were seen to be disabled after an attempt of ours.
    pub disabled: u64,
    /// Attempts that are running.
    pub running: u64,
}

#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    unsettled: AtomicU64,
    refused: AtomicU64,
    disabled: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// What can be counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Dead,
    Delivered,
    Disabled,
    Refused,
    Retried,
    Unsettled,
}

/// An attempt that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Running(Tally);

impl Tally {
    /// The counts as they are now.
    #[must_use]
    pub fn now(&self) -> Tallied {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { delivered, retried, dead, unsettled, refused, disabled, begun, ended } = &*self.0;
        Tallied {
            delivered: of(delivered),
            retried: of(retried),
            dead: of(dead),
            unsettled: of(unsettled),
            refused: of(refused),
            disabled: of(disabled),
            running: of(begun).saturating_sub(of(ended)),
        }
    }

    pub(super) fn count(&self, event: Event) {
        let counter = match event {
            Event::Dead => &self.0.dead,
            Event::Delivered => &self.0.delivered,
            Event::Disabled => &self.0.disabled,
            Event::Refused => &self.0.refused,
            Event::Retried => &self.0.retried,
            Event::Unsettled => &self.0.unsettled,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn begin(&self) -> Running {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}
