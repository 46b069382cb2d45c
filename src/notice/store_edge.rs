//! When a store begins to fail, and when that is over.

use std::sync::{Mutex, PoisonError};

use super::{BLIP, Notice, seconds_since};
use crate::Timestamp;
use crate::clock::{Clock, SystemClock};

/// What is known of a store. Several watch it; each edge is told once.
#[derive(Debug, Default)]
pub(super) struct StoreEdge(Mutex<Option<Failing>>);

#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Timestamp,
    is_told: bool,
}

impl StoreEdge {
    /// Notes an answer, or how it failed, and says what is to be told.
    pub(super) fn answered(&self, answer: Result<(), String>) -> Option<Notice> {
        self.answered_at(answer, SystemClock.now())
    }

    fn answered_at(&self, answer: Result<(), String>, now: Timestamp) -> Option<Notice> {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(()) => {
                let Failing { since, is_told } = failing.take()?;
                is_told.then(|| Notice::StoreRecovered { since, lasted_seconds: seconds_since(since, now) })
            }
            Err(reason) => {
                let failing = failing.get_or_insert(Failing { since: now, is_told: false });
                if failing.is_told || now.saturating_since(failing.since) < BLIP {
                    return None;
                }
                failing.is_told = true;
                Some(Notice::StoreFailing { reason, since: failing.since })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_goes_on_is_told_once_and_its_end_once() {
        let edge = StoreEdge::default();
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let down = || Err("down".to_owned());
        assert_eq!(edge.answered_at(Ok(()), at(0)), None);
        assert_eq!(edge.answered_at(down(), at(5)), None, "it may mend itself");
        assert_eq!(
            edge.answered_at(down(), at(10)),
            Some(Notice::StoreFailing { reason: "down".into(), since: at(5) })
        );
        assert_eq!(edge.answered_at(down(), at(15)), None);
        assert_eq!(edge.answered_at(Ok(()), at(65)), Some(Notice::StoreRecovered { since: at(5), lasted_seconds: 60 }));
        assert_eq!(edge.answered_at(Ok(()), at(70)), None);
        assert_eq!(edge.answered_at(down(), at(80)), None);
        assert_eq!(edge.answered_at(Ok(()), at(85)), None, "what was not told has no end to tell");
    }
}
