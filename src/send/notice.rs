//! What an operator is told: a message was given up, an endpoint gets nothing any more.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::clock::{Clock, SystemClock};
use crate::store::{EndpointEntry, Enqueue, Message, MessageKey, OutboxStore, StoreError};
use crate::work::in_time;
use crate::{Digest, EventId, Name, Timestamp};

/// Something that a person should know. It is told by the dispatcher that saw it, after it was stored: once as a rule, and
/// more often where several saw it. A dispatcher that dies in between tells nothing. Nor is told what a claim gave up whose
/// answer came too late: SQL stores log and count that. So a notice is a hint. What is dead and what is disabled stands in the
/// store, and can be listed.
///
/// Told too is what a claim gives up without another attempt: what has all attempts used up by senders that died, what
/// cannot be read, and what comes behind a dead letter where its endpoint parks that
/// ([`OnDead::Park`](crate::store::OnDead::Park)). Not told are those that waited behind a message when it was given up,
/// which is told itself, and those whose endpoint is removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Notice {
    /// A message was given up, and waits for an operator. As an event it is `message.dead`.
    #[non_exhaustive]
    DeadLetter {
        /// The message.
        id: EventId,
        /// Where it was to go.
        endpoint: Name,
        /// Its type.
        #[serde(rename = "type")]
        event_type: Name,
        /// Why it was given up.
        reason: String,
        /// How many attempts there were, since it was last replayed.
        attempts: u32,
        /// How often it was replayed.
        replays: u32,
    },
    /// An endpoint was disabled. Its messages wait until it is enabled. As an event it is `endpoint.disabled`.
    #[non_exhaustive]
    EndpointDisabled {
        /// The endpoint.
        endpoint: Name,
        /// Why.
        reason: String,
        /// When, by the store's clock.
        since: Timestamp,
    },
}

impl Notice {
    /// The type of the event that tells it.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::DeadLetter { .. } => "message.dead",
            Self::EndpointDisabled { .. } => "endpoint.disabled",
        }
    }

    /// The endpoint that it is about.
    #[must_use]
    pub const fn endpoint(&self) -> &Name {
        match self {
            Self::DeadLetter { endpoint, .. } | Self::EndpointDisabled { endpoint, .. } => endpoint,
        }
    }

    /// The same for the same occasion, whoever tells it, so that an operator's endpoint gets it once.
    fn id(&self) -> EventId {
        let occasion = match self {
            Self::DeadLetter { id, endpoint, replays, .. } => format!("dead\0{endpoint}\0{id}\0{replays}"),
            Self::EndpointDisabled { endpoint, since, .. } => format!("disabled\0{endpoint}\0{}", since.as_micros()),
        };
        let digest = Digest::of(occasion.as_bytes());
        EventId::literal(
            digest.as_bytes().iter().take(16).fold("ntc_".to_owned(), |id, byte| format!("{id}{byte:02x}")),
        )
    }
}

/// A hook that is called with each notice.
pub(super) type OnNotice = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Who is told.
#[derive(Clone, Default)]
pub(super) struct Notices {
    pub(super) hook: Option<OnNotice>,
    /// An endpoint that gets notices as messages.
    pub(super) operator: Option<Name>,
    seen: Arc<Mutex<HashMap<Name, Seen>>>,
}

/// What is known of an endpoint that fails.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    failing_since: Option<Timestamp>,
    /// Since when it was disabled, where that was told.
    told: Option<Timestamp>,
}

impl Notices {
    /// Tells it. What goes wrong is logged: the message is settled, and nothing about it can change.
    pub(super) async fn tell(&self, store: &Arc<dyn OutboxStore>, notice: &Notice) {
        warn!(endpoint = %notice.endpoint(), ?notice, "{}", notice.event_type());
        if let Some(hook) = &self.hook
            && catch_unwind(AssertUnwindSafe(|| hook(notice))).is_err()
        {
            error!("the hook for notices panicked");
        }
        // Never about the operator's own endpoint: each of its failures would make another message for it.
        let Some(operator) = self.operator.as_ref().filter(|operator| *operator != notice.endpoint()) else { return };
        if let Err(error) = enqueue(store, operator, notice).await {
            error!(%error, %operator, "a notice could not be enqueued");
        }
    }

    /// Whether to find out if an endpoint was disabled: a store does that without a word when it has failed for too long.
    /// About once a minute, and after every failed attempt once it may be so.
    pub(super) fn should_look(&self, endpoint: &Name, disable_after: Duration) -> bool {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, seen| now.saturating_duration_since(seen.at) < REMEMBERED);
        let Some(last) = seen.get(endpoint) else { return true };
        let failing_for = last.failing_since.map(|since| SystemClock.now().saturating_since(since));
        let may_be = failing_for.is_some_and(|span| span.saturating_add(CLOCKS_DIFFER) >= disable_after);
        may_be || now.saturating_duration_since(last.at) >= BETWEEN_LOOKS
    }

    /// Remembers what was found, and says what is to be told of it.
    pub(super) fn look_at(&self, found: &EndpointEntry) -> Option<Notice> {
        let since = found.disabled.as_ref().map(|_| found.disabled_since.unwrap_or(found.updated));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices")
            .field("hook", &self.hook.is_some())
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

const BETWEEN_LOOKS: Duration = Duration::from_secs(60);
/// How far this machine's clock may be from the store's; it decides only how often we look.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60 * 60);
const REMEMBERED: Duration = Duration::from_secs(2 * 60 * 60);
const MOST_REMEMBERED: usize = 10_000;

async fn enqueue(store: &Arc<dyn OutboxStore>, operator: &Name, notice: &Notice) -> Result<(), StoreError> {
    let payload = serde_json::to_vec(notice).map_err(|error| StoreError::Rejected(error.to_string()))?;
    let mut message = Message::new(notice.id(), Name::literal(notice.event_type()), payload);
    if let Notice::DeadLetter { id, .. } = notice {
        message.causation_id = Name::new(id.as_str()).ok();
    }
    in_time(store.enqueue(vec![Enqueue::new(operator.clone(), message)])).await?;
    Ok(())
}

/// Of a message that was given up.
pub(super) fn dead_letter(key: &MessageKey, event_type: &Name, reason: &str, attempts: u32, replays: u32) -> Notice {
    Notice::DeadLetter {
        id: key.id.clone(),
        endpoint: key.endpoint.clone(),
        event_type: event_type.clone(),
        reason: reason.to_owned(),
        attempts,
        replays,
    }
}

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
        let (one, other) = (Notices::default(), Notices::default());
        let first = one.look_at(&entry(Some(7), 7)).expect("it is told");
        assert_eq!(one.look_at(&entry(Some(7), 7)), None, "once");
        assert_eq!(one.look_at(&entry(Some(7), 9)), None, "its settings were changed");
        let seen_later = other.look_at(&entry(Some(7), 9)).expect("another dispatcher has not told it");
        assert_eq!(seen_later.id(), first.id());
    }

    #[test]
    fn two_disablings_are_told_both_and_have_two_ids() {
        let notices = Notices::default();
        let first = notices.look_at(&entry(Some(7), 7)).expect("it is told");
        // Nobody looked while it was enabled.
        let second = notices.look_at(&entry(Some(8), 8)).expect("it is told too");
        assert_ne!(second.id(), first.id());
        assert_eq!(notices.look_at(&entry(None, 9)), None);
    }
}
