//! What the outbox holds: a [`Message`] on its way to one endpoint, its attempts, and how messages are listed and age.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
use super::page::FoundBy;
use crate::{EventId, Name, Timestamp};

/// One event as it is sent: the same to every endpoint, and the same on every attempt, byte for byte.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// Names the event: stable over attempts and replays, and what a receiver tells repeats by.
    pub id: EventId,
    /// What kind of event it is, `order.paid` for example. Endpoints choose by it.
    pub event_type: Name,
    /// The body, byte for byte.
    pub payload: Bytes,
    /// Its media type. `application/json` by default.
    pub content_type: String,
    /// Messages to one endpoint that share this go one at a time, in the order in which they were enqueued.
    pub ordering_key: Option<Name>,
    /// What it belongs to: an order, a flow.
    pub correlation_id: Option<Name>,
    /// The id of the event that caused it.
    pub causation_id: Option<Name>,
    /// The version of the payload's form. Sent as `webhook-schema-version`.
    pub schema_version: Option<u32>,
    /// The W3C trace context that it was made in.
    pub traceparent: Option<String>,
}

impl Message {
    /// A message with this payload, of media type `application/json`, and nothing else.
    #[must_use]
    pub fn new(id: EventId, event_type: Name, payload: impl Into<Bytes>) -> Self {
        Self {
            id,
            event_type,
            payload: payload.into(),
            content_type: "application/json".to_owned(),
            ordering_key: None,
            correlation_id: None,
            causation_id: None,
            schema_version: None,
            traceparent: None,
        }
    }
}

/// The states of a message on its way to one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MessageState {
    /// Taken back before it was delivered.
    Cancelled,
    /// Given up, for a reason; waits for an operator.
    DeadLetter,
    /// Somebody delivers it, or died doing so.
    Delivering,
    /// An attempt failed, and the next one is left to an operator.
    Failed,
    /// Waits until it is due.
    Pending,
    /// Delivered.
    Succeeded,
}

impl MessageState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Delivering, Self::Succeeded, Self::Failed, Self::DeadLetter, Self::Cancelled];

    /// As stores and the program write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::DeadLetter => "dead_letter",
            Self::Delivering => "delivering",
            Self::Failed => "failed",
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for MessageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which message: unique in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageKey {
    /// Where it goes.
    pub endpoint: Name,
    /// The event.
    pub id: EventId,
}

/// One row of the outbox, as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutboxEntry {
    /// The message. In lists it comes without its payload.
    pub message: Message,
    /// Where it goes.
    pub endpoint: Name,
    /// Where it stands.
    pub state: MessageState,
    /// Attempts begun since it was enqueued, or since it was last replayed.
    pub attempts: u32,
    /// How often it was replayed.
    pub replays: u32,
    /// From when on it may be claimed; while it is being delivered, that is when its lease ends. `None` once it has an
    /// end.
    pub due: Option<Timestamp>,
    /// When it was enqueued.
    pub created: Timestamp,
    /// When its state last changed. Renewing a lease is no such change.
    pub updated: Timestamp,
    /// The status of the last answer that there was.
    pub last_status: Option<StatusCode>,
    /// What last went wrong, until it succeeds.
    pub last_error: Option<String>,
    /// Why it is a dead letter, failed or cancelled.
    pub reason: Option<String>,
    /// The attempts, oldest first: the last [`Attempt::MAX_KEPT`]. Not in lists.
    pub attempt_log: Vec<Attempt>,
}

impl OutboxEntry {
    /// As a store of one's own shows it: enqueued now, and tried by nobody.
    #[must_use]
    pub const fn new(endpoint: Name, message: Message, now: Timestamp, due: Timestamp) -> Self {
        Self {
            message,
            endpoint,
            state: MessageState::Pending,
            attempts: 0,
            replays: 0,
            due: Some(due),
            created: now,
            updated: now,
            last_status: None,
            last_error: None,
            reason: None,
            attempt_log: Vec::new(),
        }
    }

    /// The message behind which it was parked ([`OnDead::Park`](super::OnDead::Park)), where that is why it is a dead letter.
    #[must_use]
    pub fn parked_behind(&self) -> Option<EventId> {
        let reason = self.reason.as_deref().filter(|_| self.state == MessageState::DeadLetter)?;
        super::delivery::parked_behind(reason)
    }
}

/// One attempt to deliver a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// After how many replays it was made: 0 before the first one.
    pub replay: u32,
    /// Which attempt it was, from 1, since the message was enqueued or last replayed.
    pub number: u32,
    /// When it ended, by the store's clock.
    pub at: Timestamp,
    /// What came of it.
    pub report: AttemptReport,
}

impl Attempt {
    /// How many attempts are remembered for one message: the last ones.
    pub const MAX_KEPT: usize = 50;

    /// As a store of one's own shows it: with its number, the moment it ended, and what came of it; before any replay.
    #[must_use]
    pub const fn new(number: u32, at: Timestamp, report: AttemptReport) -> Self {
        Self { replay: 0, number, at, report }
    }
}

/// What came of an attempt, as its sender tells it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AttemptReport {
    /// How long it took. Whole microseconds are kept.
    pub took: Duration,
    /// The status of the answer, where there was one.
    pub status: Option<StatusCode>,
    /// The headers of the answer that were kept.
    pub headers: HeaderMap,
    /// The beginning of the answer's body. At most [`AttemptReport::MAX_BODY_BYTES`] are kept.
    pub body: Bytes,
    /// What went wrong, for operators. At most [`AttemptReport::MAX_ERROR_BYTES`] are kept.
    pub error: Option<String>,
    /// Its kind, one word: `timeout`, `dns`, `policy`, …
    pub kind: Option<String>,
}

impl AttemptReport {
    /// How much of an answer's body a store keeps, in bytes.
    pub const MAX_BODY_BYTES: usize = 4_096;
    /// How much of an error's or a reason's text a store keeps, in bytes; it is cut at the end of a character.
    pub const MAX_ERROR_BYTES: usize = 1_024;
}

/// Which messages to list, to replay or to cancel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageFilter {
    /// Only those to this endpoint.
    pub endpoint: Option<Name>,
    /// Only those of this event.
    pub id: Option<EventId>,
    /// Only those of this type.
    pub event_type: Option<Name>,
    /// Only those that belong to this: an order, a flow.
    pub correlation_id: Option<Name>,
    /// Only those in this state.
    pub state: Option<MessageState>,
    /// Only those whose state last changed before this, by the store's clock: what changes while they are gone through
    /// step by step is not met again.
    pub updated_before: Option<Timestamp>,
    /// At most this many. 100 by default.
    pub limit: u32,
}

impl MessageFilter {
    /// [`updated_before`](Self::updated_before) in the database's form, where every moment is before the last one.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) fn before_micros(&self) -> i64 {
        self.updated_before.map_or(i64::MAX, Timestamp::as_micros)
    }

    /// What a database finds the messages by: what fits the fewest.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) const fn found_by(&self) -> FoundBy {
        FoundBy::of(self.id.is_some(), self.correlation_id.is_some())
    }

    /// Whether it may pass over many of the messages that are found.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) const fn is_narrow(&self) -> bool {
        matches!(self.found_by(), FoundBy::State) && (self.endpoint.is_some() || self.event_type.is_some())
    }

    /// Where a list begins that goes on behind `after`: at the earlier one of that and
    /// [`updated_before`](Self::updated_before).
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) fn begins_at(&self, after: Option<super::Cursor>) -> Option<super::Cursor> {
        self.updated_before.map(super::Cursor::before).into_iter().chain(after).min()
    }
}

impl Default for MessageFilter {
    fn default() -> Self {
        Self {
            endpoint: None,
            id: None,
            event_type: None,
            correlation_id: None,
            state: None,
            updated_before: None,
            limit: 100,
        }
    }
}

/// How long messages that have an end are remembered. Their attempts go with them.
///
/// An id that is gone can be enqueued again, and would be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxRetention {
    /// Those that succeeded or were cancelled. 30 days by default.
    pub done: Duration,
    /// Dead letters and failed ones. `None`, the default, keeps them until an operator decides.
    pub dead: Option<Duration>,
}

impl Default for OutboxRetention {
    fn default() -> Self {
        Self { done: Duration::from_secs(30 * 24 * 60 * 60), dead: None }
    }
}
