//! Which endpoints were disabled: a store does that without a word when one has failed for too long.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};
use crate::notice::Notice;
use crate::store::EndpointEntry;
use crate::{Name, Timestamp};

/// What a dispatcher has seen of the endpoints that fail.
#[derive(Debug, Default)]
pub(super) struct Disabled(Mutex<HashMap<Name, Seen>>);

/// What is known of an endpoint that fails.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    failing_since: Option<Timestamp>,
    /// Since when it was disabled, where that was told.
    told: Option<Timestamp>,
}

impl Disabled {
    /// Whether to find out if an endpoint was disabled: about once a minute, and after every failed attempt once it may be so.
    pub(super) fn should_look(&self, endpoint: &Name, disable_after: Duration) -> bool {
        let now = Instant::now();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, seen| now.saturating_duration_since(seen.at) < REMEMBERED);
        let Some(last) = seen.get(endpoint) else { return true };
        let failing_for = last.failing_since.map(|since| SystemClock.now().saturating_since(since));
        let may_be = failing_for.is_some_and(|span| span.saturating_add(CLOCKS_DIFFER) >= disable_after);
        may_be || now.saturating_duration_since(last.at) >= BETWEEN_LOOKS
    }

    /// Remembers what was found, and says what is to be told of it.
    pub(super) fn look_at(&self, found: &EndpointEntry) -> Option<Notice> {
        let since = found.disabled.as_ref().map(|_| found.disabled_since.unwrap_or(found.updated));
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &found.endpoint.name;
        let told = seen.get(name).and_then(|seen| seen.told);
        if seen.len() < MOST_REMEMBERED || seen.contains_key(name) {
            let now = Seen { at: Instant::now(), failing_since: found.failing_since, told: since };
            seen.insert(name.clone(), now);
        }
        // What changes while it is disabled is no second occasion; that it was enabled and is disabled again is one.
        let since = since.filter(|since| told != Some(*since))?;
        Some(Notice::EndpointDisabled { endpoint: name.clone(), reason: found.disabled.clone()?, since })
    }
}

const BETWEEN_LOOKS: Duration = Duration::from_secs(60);
/// How far this machine's clock may be from the store's; it decides only how often we look.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60 * 60);
const REMEMBERED: Duration = Duration::from_secs(2 * 60 * 60);
const MOST_REMEMBERED: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Endpoint;

    fn entry(since: Option<i64>, updated: i64) -> EndpointEntry {
        let endpoint = Endpoint::new(Name::literal("shop"), "https://example.com/hooks");
        let mut entry = EndpointEntry::new(endpoint, Timestamp::from_micros(0));
        entry.disabled = since.map(|_| "410".to_owned());
        entry.disabled_since = since.map(Timestamp::from_micros);
        entry.updated = Timestamp::from_micros(updated);
        entry
    }

    #[test]
    fn one_disabling_has_one_id_whoever_sees_it_and_whatever_was_changed_since() {
        let (one, other) = (Disabled::default(), Disabled::default());
        let first = one.look_at(&entry(Some(7), 7)).expect("it is told");
        assert_eq!(one.look_at(&entry(Some(7), 7)), None, "once");
        assert_eq!(one.look_at(&entry(Some(7), 9)), None, "its settings were changed");
        let seen_later = other.look_at(&entry(Some(7), 9)).expect("another dispatcher has not told it");
        assert_eq!(seen_later.id(), first.id());
    }

    #[test]
    fn two_disablings_are_told_both_and_have_two_ids() {
        let disabled = Disabled::default();
        let first = disabled.look_at(&entry(Some(7), 7)).expect("it is told");
        // Nobody looked while it was enabled.
        let second = disabled.look_at(&entry(Some(8), 8)).expect("it is told too");
        assert_ne!(second.id(), first.id());
        assert_eq!(disabled.look_at(&entry(None, 9)), None);
    }
}
