//! What this process did in the last hours, in steps of five minutes: for the plots of the admin pages.
//!
//! It is kept in the process and not in the store. A store says what is; to keep what has been going on, each event would cost it
//! one write more, or its rows would have to be counted for each look at a page. What several processes did together, and for
//! days, is for whoever collects their metrics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ATTEMPTS, Instrument, RECEIVED, RUNS, Value};
use crate::clock::{Clock, SystemClock, Timestamp};

/// So many steps are kept: six hours.
pub(crate) const STEPS: usize = 72;

/// How long a step is.
pub(crate) const STEP_SECONDS: u64 = 300;

/// How many kinds there are of each thing that is counted.
pub(crate) const KINDS: usize = 3;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Requests: new events, repeats, and those that were turned away.
    Requests,
    /// Runs of handlers: those that succeeded, that failed, and with which an event was given up.
    Runs,
    /// Attempts to deliver: messages that arrived, that did not, and that were given up.
    Attempts,
}

/// One step, and how much of each kind was counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) begins: Timestamp,
    pub(crate) kinds: [u64; KINDS],
}

impl Step {
    pub(crate) fn sum(&self) -> u64 {
        self.kinds.iter().sum()
    }
}

/// Since when this process has been counting. The first call is the beginning.
pub(crate) fn began() -> Timestamp {
    static BEGAN: OnceLock<Timestamp> = OnceLock::new();
    *BEGAN.get_or_init(|| SystemClock.now())
}

/// The steps up to the present one, oldest first.
pub(crate) fn lately(activity: Activity, now: Timestamp) -> Vec<Step> {
    COUNTS.of(activity).steps(number(now))
}

/// Takes note of what a counter of [`INSTRUMENTS`](super::instruments) counted.
pub(super) fn note(counter: Instrument, values: &[Value<'_>], by: u64) {
    let outcome = values.iter().rev().find_map(|value| if let Value::Word(word) = value { Some(*word) } else { None });
    if by > 0
        && let Some((activity, kind)) = outcome.and_then(|outcome| place(counter, outcome))
    {
        let _since = began();
        COUNTS.of(activity).add(number(SystemClock.now()), kind, by);
    }
}

/// Where an outcome is counted. A handshake is no event.
fn place(counter: Instrument, outcome: &str) -> Option<(Activity, usize)> {
    Some(if counter == RECEIVED {
        match outcome {
            "accepted" | "succeeded" | "failed" | "dead_letter" | "lease_lost" => (Activity::Requests, 0),
            "known" | "replayed" | "processing" | "given_up" => (Activity::Requests, 1),
            "handshake" => return None,
            _ => (Activity::Requests, 2),
        }
    } else if counter == RUNS {
        match outcome {
            "succeeded" => (Activity::Runs, 0),
            "dead_letter" => (Activity::Runs, 2),
            _ => (Activity::Runs, 1),
        }
    } else if counter == ATTEMPTS {
        match outcome {
            "delivered" => (Activity::Attempts, 0),
            "dead" => (Activity::Attempts, 2),
            _ => (Activity::Attempts, 1),
        }
    } else {
        return None;
    })
}

/// Which step a moment lies in, counted from the epoch.
fn number(moment: Timestamp) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or_default() / (STEP_SECONDS * 1_000_000)
}

static COUNTS: Counts = Counts([const { Ring::new() }; 3]);

struct Counts([Ring; 3]);

impl Counts {
    const fn of(&self, activity: Activity) -> &Ring {
        let [requests, runs, attempts] = &self.0;
        match activity {
            Activity::Requests => requests,
            Activity::Runs => runs,
            Activity::Attempts => attempts,
        }
    }
}

/// The counts of the last steps. Each cell holds the number of its step beside the count, so that one exchange both begins a
/// step and adds to it: no request waits for another one's lock.
struct Ring([[AtomicU64; STEPS]; KINDS]);

/// A count has the lower bits, more than a process counts in five minutes; the number of a step the upper ones, which are
/// enough until the year 10,000.
const COUNT_BITS: u32 = 34;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl Ring {
    const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; STEPS] }; KINDS])
    }

    fn cell(&self, step: u64, kind: usize) -> Option<&AtomicU64> {
        let at = usize::try_from(step % STEPS as u64).ok()?;
        self.0.get(kind)?.get(at)
    }

    fn add(&self, step: u64, kind: usize, by: u64) {
        if let Some(cell) = self.cell(step, kind) {
            let added = |there: u64| {
                let before = if there >> COUNT_BITS == step { there & COUNT_MASK } else { 0 };
                Some(step << COUNT_BITS | before.saturating_add(by).min(COUNT_MASK))
            };
            // It always says what to write.
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        }
    }

    fn steps(&self, last: u64) -> Vec<Step> {
        let first = last.saturating_sub(STEPS as u64 - 1);
        let count = |step, kind| {
            let there = self.cell(step, kind).map_or(0, |cell| cell.load(Ordering::Relaxed));
            if there >> COUNT_BITS == step { there & COUNT_MASK } else { 0 }
        };
        let step = |step: u64| Step {
            begins: Timestamp::from_micros(i64::try_from(step * STEP_SECONDS * 1_000_000).unwrap_or(i64::MAX)),
            kinds: std::array::from_fn(|kind| count(step, kind)),
        };
        (first..=last).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_there_for_six_hours_and_then_no_more() {
        let ring = Ring::new();
        let begin = 5_700_000;
        ring.add(begin, 0, 3);
        ring.add(begin, 0, 4);
        ring.add(begin + 1, 2, 1);
        let of = |last| ring.steps(last).iter().map(|step| step.kinds).collect::<Vec<_>>();
        assert_eq!(of(begin + 1)[STEPS - 2..], [[7, 0, 0], [0, 0, 1]]);
        let last = begin + STEPS as u64 - 1;
        assert_eq!(of(last)[..2], [[7, 0, 0], [0, 0, 1]]);
        assert_eq!(of(last + 1)[0], [0, 0, 1]);
        // The next one in its place does not begin with its count.
        ring.add(last + 1, 0, 2);
        assert_eq!(of(last + 1)[STEPS - 1], [2, 0, 0]);
        assert_eq!(ring.steps(last + 1).len(), STEPS);
    }

    #[test]
    fn a_clock_that_jumps_back_costs_counts_and_nothing_else() {
        let ring = Ring::new();
        ring.add(5_700_000 + STEPS as u64, 1, 9);
        ring.add(5_700_000, 1, 1);
        assert_eq!(ring.steps(5_700_000)[STEPS - 1].kinds, [0, 1, 0]);
        ring.add(0, 1, 1);
        assert_eq!(ring.steps(0), [Step { begins: Timestamp::from_micros(0), kinds: [0, 1, 0] }]);
    }

    #[test]
    fn nothing_is_lost_where_many_count_at_once() {
        static RING: Ring = Ring::new();
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..10_000).for_each(|at| RING.add(5_700_000 + at / 5_000, 0, 1))))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(RING.steps(5_700_001).iter().map(Step::sum).sum::<u64>(), 40_000);
    }

    #[test]
    fn the_largest_step_and_the_largest_count_fit() {
        let ring = Ring::new();
        let last = number(Timestamp::from_unix_seconds(253_402_300_799).expect("the end of the year 9999"));
        assert!(last < 1 << (64 - COUNT_BITS));
        ring.add(last, 0, u64::MAX);
        ring.add(last, 0, 1);
        assert_eq!(ring.steps(last)[STEPS - 1].kinds[0], COUNT_MASK);
    }
}
