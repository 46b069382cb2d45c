//! Where claims begin to look.
//!
//! What was claimed, and what came to its end, leaves its entries in the index behind until the table is vacuumed, in front
//! of what is still due. A claim would step over all of them, each time: when some ten thousand messages of an endpoint
//! have been delivered, that takes longer than all else. So where many were taken, a claim begins where the one before it
//! found the first one.
//!
//! What becomes due in front of that is rare: by a transaction that was open for long, by another connection that had it
//! in hand, by an endpoint that was paused. So now and then a claim looks at everything, and finds it: the first one that comes
//! a second after the last such look, or forty times as long as that one took, but never more than ten seconds. This is
//! the bound, on each connection that claims; what the look itself takes, and the wait for a claim, come on top.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::super::super::outbox::database::Lane;
use crate::{Name, Timestamp};

/// What one connection knows of the endpoints of which it took many messages.
#[derive(Debug, Default)]
pub(in super::super) struct Floors {
    lines: HashMap<String, Line>,
    /// When everything is looked at again; at once where it is not known.
    next_whole: Option<Instant>,
}

#[derive(Debug, Default)]
struct Line {
    taken: u64,
    /// By lane. What is not known begins at the beginning.
    floors: [Option<i64>; 3],
    /// Those that held before everything was looked at.
    before: [Option<i64>; 3],
    /// How often everything was looked at since any was taken.
    idle: u32,
}

/// The first time in each lane of an endpoint at which something is due, if that is now.
pub(super) type Firsts = [Option<i64>; 3];

impl Floors {
    /// A claim begins. Says whether it is one that looks at everything.
    pub(super) fn begin(&mut self) -> bool {
        let is_whole = self.next_whole.is_none_or(|next| next <= Instant::now());
        if is_whole {
            self.forget();
            self.lines.values_mut().for_each(|line| line.idle = line.idle.saturating_add(1));
            self.lines.retain(|_, line| line.idle <= REMEMBERED);
        }
        is_whole
    }

    /// Everything was looked at, in this time.
    pub(super) fn looked(&mut self, took: Duration) {
        self.next_whole = Some(Instant::now() + pause_after(took));
    }

    /// Begins at the beginning again: the next claim looks at everything.
    pub(in super::super) fn forget(&mut self) {
        self.next_whole = None;
        self.lines.values_mut().for_each(Line::forget);
    }

    /// Where to begin in a lane.
    pub(super) fn of(&self, endpoint: &Name, lane: Lane) -> i64 {
        let line = self.lines.get(endpoint.as_str()).filter(|line| line.taken >= MANY);
        line.and_then(|line| line.floors.get(lane as usize).copied().flatten()).unwrap_or(i64::MIN)
    }

    /// Where to begin in the lanes of endpoints, as JSON: lists by name. Others begin at the beginning.
    pub(super) fn json(&self) -> serde_json::Value {
        let known = self.lines.iter().filter(|(_, line)| line.taken >= MANY && line.floors != [None; 3]);
        known
            .map(|(name, line)| (name.clone(), serde_json::json!(line.floors)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// What was found to be due. `others`: nothing is of all endpoints but these, as far as they may get anything now. What
    /// they get later lies where it lay before.
    pub(super) fn found(&mut self, ready: &HashMap<&str, Firsts>, without: &[&Name], others: bool, now: Timestamp) {
        for (name, line) in &mut self.lines {
            match ready.get(name.as_str()) {
                Some(firsts) => line.raise(*firsts, now),
                None if others && without.iter().all(|left_out| left_out.as_str() != name) => line.restore(),
                None => {}
            }
        }
    }

    /// So many were taken of a lane, the first of which was due then.
    pub(super) fn took(&mut self, endpoint: &Name, lane: Lane, count: u64, first: Option<i64>, now: Timestamp) {
        if self.lines.len() >= MOST_LINES && !self.lines.contains_key(endpoint.as_str()) {
            return;
        }
        let line = self.lines.entry(endpoint.as_str().to_owned()).or_default();
        line.taken = line.taken.saturating_add(count);
        if count > 0 {
            line.idle = 0;
        }
        if let Some(floor) = line.floors.get_mut(lane as usize) {
            *floor = Some(bounded(first, now));
        }
    }
}

impl Line {
    fn forget(&mut self) {
        self.restore();
        self.before = std::mem::take(&mut self.floors);
    }

    fn restore(&mut self) {
        for (floor, before) in self.floors.iter_mut().zip(self.before) {
            *floor = floor.or(before);
        }
    }

    fn raise(&mut self, firsts: Firsts, now: Timestamp) {
        self.floors = firsts.map(|first| Some(bounded(first, now)));
    }
}

/// How long after a look at everything the next one is due.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(WHOLE_SHARE).clamp(WHOLE_EVERY, WHOLE_AT_LEAST_EVERY)
}

/// Not beyond what a transaction may commit that has just been open.
fn bounded(first: Option<i64>, now: Timestamp) -> i64 {
    let recent = now.as_micros().saturating_sub(RECENT);
    first.map_or(recent, |first| first.min(recent))
}

/// From how many messages on it is worth it.
const MANY: u64 = 1_000;
/// In microseconds: so long a transaction may be open that enqueues, without that what it brings is found late.
const RECENT: i64 = 5_000_000;
/// How often everything is looked at, at most.
const WHOLE_EVERY: Duration = Duration::from_secs(1);
/// And in one part of so many of all time, as long as this leaves less than that between two.
const WHOLE_SHARE: u32 = 40;
const WHOLE_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// For how many looks at everything an endpoint is remembered.
const REMEMBERED: u32 = 600;
const MOST_LINES: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn floors() -> Floors {
        let mut floors = Floors::default();
        assert!(floors.begin(), "the first claim looks at everything");
        floors.looked(Duration::ZERO);
        floors
    }

    #[test]
    fn a_claim_begins_where_the_one_before_it_found_the_first_if_many_were_taken() {
        let (mut floors, shop) = (floors(), name("shop"));
        floors.took(&shop, Lane::Fresh, MANY - 1, Some(7), NOW);
        assert!(!floors.begin());
        assert_eq!(floors.of(&shop, Lane::Fresh), i64::MIN, "few");
        floors.took(&shop, Lane::Fresh, 1, Some(8), NOW);
        assert_eq!((floors.of(&shop, Lane::Fresh), floors.of(&shop, Lane::Tried)), (8, i64::MIN));
        assert_eq!(floors.json(), serde_json::json!({ "shop": [8, null, null] }));
    }

    #[test]
    fn what_is_due_just_now_is_never_passed_over() {
        let (mut floors, shop) = (floors(), name("shop"));
        floors.took(&shop, Lane::Fresh, MANY, Some(NOW.as_micros()), NOW);
        assert_eq!(floors.of(&shop, Lane::Fresh), NOW.as_micros() - RECENT);
        floors.found(&HashMap::from([("shop", [None, Some(9), None])]), &[], true, NOW);
        assert_eq!(floors.of(&shop, Lane::Tried), 9);
        assert_eq!(floors.of(&shop, Lane::HeldUp), NOW.as_micros() - RECENT, "there was nothing");
    }

    #[test]
    fn what_was_looked_at_and_had_nothing_begins_where_it_did_and_what_was_left_out_is_looked_at_in_full() {
        let (mut floors, one, two) = (floors(), name("one"), name("two"));
        for endpoint in [&one, &two] {
            floors.took(endpoint, Lane::Fresh, MANY, Some(7), NOW);
        }
        floors.forget();
        assert!(floors.begin());
        floors.found(&HashMap::new(), &[&one], true, NOW);
        assert_eq!((floors.of(&one, Lane::Fresh), floors.of(&two, Lane::Fresh)), (i64::MIN, 7));
    }

    #[test]
    fn between_two_looks_at_everything_there_are_ten_seconds_at_most() {
        for (took, pause) in [(0, 1_000), (25, 1_000), (100, 4_000), (250, 10_000), (60_000, 10_000)] {
            assert_eq!(pause_after(Duration::from_millis(took)), Duration::from_millis(pause), "{took} ms");
        }
        assert_eq!(pause_after(Duration::MAX), WHOLE_AT_LEAST_EVERY);
    }

    #[test]
    fn after_something_unusual_and_once_in_a_while_everything_is_looked_at() {
        let (mut floors, shop) = (floors(), name("shop"));
        floors.took(&shop, Lane::Fresh, MANY, Some(7), NOW);
        floors.forget();
        assert!(floors.begin());
        assert_eq!(floors.of(&shop, Lane::Fresh), i64::MIN);
        floors.looked(Duration::ZERO);
        floors.next_whole = Some(Instant::now());
        floors.took(&shop, Lane::Fresh, 1, Some(7), NOW);
        assert!(floors.begin());
        assert_eq!(floors.of(&shop, Lane::Fresh), i64::MIN);
    }
}
