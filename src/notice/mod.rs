//! What people are told, in time: something was given up, waits for them, or has stopped working.
//!
//! One hook for both walks. [`Notices`] is what dispatchers, layers and processors are given; [`Telling`] carries what they
//! see to those who are to know, each of them an [`Operator`] with a queue of its own. Neither a walk nor another operator
//! ever waits for one: what a queue has no room for is counted, logged, and not told.
//!
//! ```
//! # async fn example(store: countersign::store::MemoryStore) -> Result<(), Box<dyn std::error::Error>> {
//! use countersign::notice::Notices;
//! use countersign::receive::DedupLayer;
//!
//! let (notices, telling) = Notices::builder().hook(|notice| eprintln!("{}: {notice:?}", notice.kind())).build();
//! let stop = tokio_util::sync::CancellationToken::new();
//! let telling = tokio::spawn(telling.run(stop.clone().cancelled_owned()));
//!
//! let dedup = DedupLayer::builder(store).notices(&notices).build()?;
//! // At the end, when the walks have ended:
//! stop.cancel();
//! telling.await?;
//! # Ok(())
//! # }
//! ```
#![doc = include_str!("../guide/notices.md")]

mod notices;
mod operator;
mod store_edge;
mod telling;

use std::time::Duration;

use serde::Serialize;

use crate::{Digest, EventId, Name, Timestamp};

pub use notices::{Notices, NoticesBuilder};
pub use operator::{NotTold, Operator, TellFuture};
pub use telling::Telling;

/// Something that a person should know. As JSON it is an object whose member `notice` is its [`kind`](Notice::kind), beside
/// the fields below; it never holds a payload or a secret.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "notice")]
#[non_exhaustive]
pub enum Notice {
    /// A message was given up, and waits for an operator.
    #[serde(rename = "message.dead")]
    #[non_exhaustive]
    MessageDead {
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
    /// An endpoint was disabled. Its messages wait until it is enabled.
    #[serde(rename = "endpoint.disabled")]
    #[non_exhaustive]
    EndpointDisabled {
        /// The endpoint.
        endpoint: Name,
        /// Why.
        reason: String,
        /// When, by the store's clock.
        since: Timestamp,
    },
    /// An event was given up, and waits for an operator.
    #[serde(rename = "event.dead")]
    #[non_exhaustive]
    EventDead {
        /// Who was to handle it.
        consumer: Name,
        /// Where it came from.
        source: Name,
        /// What it is remembered by.
        key: String,
        /// The sender's id, where there is one.
        event_id: Option<EventId>,
        /// Why it was given up.
        reason: String,
        /// How often it was run, since it was first seen or last retried.
        attempts: u32,
        /// When, by the store's clock.
        since: Timestamp,
    },
    /// An event came rightly signed but stale, and is kept for a person to look at.
    #[serde(rename = "event.quarantined")]
    #[non_exhaustive]
    EventQuarantined {
        /// Who is to handle it, once it is released.
        consumer: Name,
        /// Where it came from.
        source: Name,
        /// What it is remembered by.
        key: String,
        /// The sender's id, where there is one.
        event_id: Option<EventId>,
        /// How stale it was.
        reason: String,
    },
    /// What is due waits for longer than [`NoticesBuilder::overdue_after`]. Told once, until it is over.
    #[serde(rename = "backlog.overdue")]
    #[non_exhaustive]
    BacklogOverdue {
        /// `inbox` or `outbox`.
        walk: Walk,
        /// The consumer, or the endpoint.
        name: Name,
        /// For how long the one has been due that has been due longest.
        oldest_due_seconds: u64,
        /// What it may be.
        limit_seconds: u64,
        /// When this was seen, by this machine's clock.
        since: Timestamp,
    },
    /// It does not any more.
    #[serde(rename = "backlog.recovered")]
    #[non_exhaustive]
    BacklogRecovered {
        /// `inbox` or `outbox`.
        walk: Walk,
        /// The consumer, or the endpoint.
        name: Name,
        /// When it began, as that was told.
        since: Timestamp,
        /// How long it went on.
        lasted_seconds: u64,
    },
    /// The store has failed for some seconds, and fails. Told once, until it is over.
    #[serde(rename = "store.failing")]
    #[non_exhaustive]
    StoreFailing {
        /// What kind of failure it is.
        reason: String,
        /// When it began, by this machine's clock.
        since: Timestamp,
    },
    /// It answers again.
    #[serde(rename = "store.recovered")]
    #[non_exhaustive]
    StoreRecovered {
        /// When it began, as that was told.
        since: Timestamp,
        /// How long it went on.
        lasted_seconds: u64,
    },
}

/// One of the two walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Walk {
    /// Of a request.
    Inbox,
    /// Of a message.
    Outbox,
}

impl Walk {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
        }
    }
}

impl Notice {
    /// What kind of notice it is; as an event this is its type.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::MessageDead { .. } => "message.dead",
            Self::EndpointDisabled { .. } => "endpoint.disabled",
            Self::EventDead { .. } => "event.dead",
            Self::EventQuarantined { .. } => "event.quarantined",
            Self::BacklogOverdue { .. } => "backlog.overdue",
            Self::BacklogRecovered { .. } => "backlog.recovered",
            Self::StoreFailing { .. } => "store.failing",
            Self::StoreRecovered { .. } => "store.recovered",
        }
    }

    /// The endpoint that it is about, if it is about one.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Name> {
        match self {
            Self::MessageDead { endpoint, .. } | Self::EndpointDisabled { endpoint, .. } => Some(endpoint),
            Self::BacklogOverdue { walk: Walk::Outbox, name, .. }
            | Self::BacklogRecovered { walk: Walk::Outbox, name, .. } => Some(name),
            Self::BacklogOverdue { .. }
            | Self::BacklogRecovered { .. }
            | Self::EventDead { .. }
            | Self::EventQuarantined { .. }
            | Self::StoreFailing { .. }
            | Self::StoreRecovered { .. } => None,
        }
    }

    /// The same for the same occasion, whoever tells it, so that an operator's endpoint gets it once. What each process sees
    /// for itself, a backlog or a store that fails, is an occasion for each.
    #[must_use]
    pub fn id(&self) -> EventId {
        let kind = self.kind();
        let occasion = match self {
            Self::MessageDead { id, endpoint, replays, .. } => format!("{kind}\0{endpoint}\0{id}\0{replays}"),
            Self::EndpointDisabled { endpoint, since, .. } => format!("{kind}\0{endpoint}\0{}", since.as_micros()),
            Self::EventDead { consumer, source, key, since, .. } => {
                format!("{kind}\0{consumer}\0{source}\0{key}\0{}", since.as_micros())
            }
            Self::EventQuarantined { consumer, source, key, .. } => format!("{kind}\0{consumer}\0{source}\0{key}"),
            Self::BacklogOverdue { walk, name, since, .. } | Self::BacklogRecovered { walk, name, since, .. } => {
                format!("{kind}\0{}\0{name}\0{}", walk.as_str(), since.as_micros())
            }
            Self::StoreFailing { since, .. } | Self::StoreRecovered { since, .. } => {
                format!("{kind}\0{}", since.as_micros())
            }
        };
        let digest = Digest::of(occasion.as_bytes());
        EventId::literal(
            digest.as_bytes().iter().take(16).fold("ntc_".to_owned(), |id, byte| format!("{id}{byte:02x}")),
        )
    }
}

/// Whole seconds since a moment.
pub(crate) fn seconds_since(since: Timestamp, now: Timestamp) -> u64 {
    now.saturating_since(since).as_secs()
}

/// How long something has to go on before it is told: what mends itself meanwhile wakes nobody.
pub(crate) const BLIP: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Notice> {
        let (name, since) = (|name| Name::literal(name), Timestamp::from_micros(1_700_000_000_000_000));
        let id = || EventId::literal("evt_1".to_owned());
        vec![
            Notice::MessageDead {
                id: id(),
                endpoint: name("shop"),
                event_type: name("order.paid"),
                reason: "400".into(),
                attempts: 1,
                replays: 0,
            },
            Notice::EndpointDisabled { endpoint: name("shop"), reason: "410".into(), since },
            Notice::EventDead {
                consumer: name("billing"),
                source: name("stripe"),
                key: "evt_1".into(),
                event_id: Some(id()),
                reason: "no such account".into(),
                attempts: 1,
                since,
            },
            Notice::EventQuarantined {
                consumer: name("billing"),
                source: name("stripe"),
                key: "evt_1".into(),
                event_id: None,
                reason: "too old".into(),
            },
            Notice::BacklogOverdue {
                walk: Walk::Inbox,
                name: name("billing"),
                oldest_due_seconds: 700,
                limit_seconds: 600,
                since,
            },
            Notice::BacklogRecovered { walk: Walk::Outbox, name: name("shop"), since, lasted_seconds: 60 },
            Notice::StoreFailing { reason: "could not be reached".into(), since },
            Notice::StoreRecovered { since, lasted_seconds: 60 },
        ]
    }

    #[test]
    fn each_kind_is_told_by_its_name_under_an_id_of_its_own_and_its_fields_stand_in_the_guide() {
        let guide = include_str!("../guide/notices.md");
        let mut ids = std::collections::HashSet::new();
        for notice in all() {
            let json = serde_json::to_value(&notice).expect("JSON");
            assert_eq!(json["notice"], notice.kind());
            assert!(ids.insert(notice.id()), "{notice:?}");
            assert!(Name::new(notice.kind()).is_ok(), "it is a type of event");
            let fields: Vec<_> = json.as_object().expect("an object").keys().filter(|key| *key != "notice").collect();
            let row = guide.lines().find(|line| line.starts_with(&format!("| `{}` ", notice.kind()))).expect("a row");
            let told = row.split('|').nth(3).expect("its fields");
            for field in &fields {
                assert!(told.contains(&format!("`{field}`")), "{field} of {}", notice.kind());
            }
            assert_eq!(told.matches('`').count(), 2 * fields.len(), "{row}");
        }
    }

    #[test]
    fn the_same_occasion_has_the_same_id_whatever_else_is_said_of_it() {
        let quarantined = |reason: &str| Notice::EventQuarantined {
            consumer: Name::literal("billing"),
            source: Name::literal("stripe"),
            key: "evt_1".into(),
            event_id: None,
            reason: reason.into(),
        };
        assert_eq!(quarantined("too old").id(), quarantined("too old by more").id());
        let dead = |micros| Notice::StoreFailing { reason: String::new(), since: Timestamp::from_micros(micros) };
        assert_ne!(dead(1).id(), dead(2).id());
    }
}
