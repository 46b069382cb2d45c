//! What a store holds for each event: a [`Receipt`], and how receipts are listed and how they age.

use std::fmt;
use std::time::Duration;

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
use super::page::FoundBy;
use super::{KeptRequest, ReceiptKey, StoredResult, Unclear};
use crate::{DedupKey, Digest, EventId, Name, Timestamp};
use http::StatusCode;

/// The states of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReceiptState {
    /// Given up, for a reason; waits for an operator.
    DeadLetter,
    /// The last run failed; the next delivery runs it again, or a processor once it is due.
    Failed,
    /// Somebody runs it, or died doing so.
    Processing,
    /// Stored, not yet run: it waits for a processor, or in quarantine for an operator.
    Received,
    /// Done.
    Succeeded,
}

impl ReceiptState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Received, Self::Processing, Self::Succeeded, Self::Failed, Self::DeadLetter];

    /// As stores and the program write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::Failed => "failed",
            Self::Processing => "processing",
            Self::Received => "received",
            Self::Succeeded => "succeeded",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for ReceiptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One row of the inbox, as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Which receipt.
    pub key: ReceiptKey,
    /// The sender's id, where there is one.
    pub event_id: Option<EventId>,
    /// What the first delivery said that it belongs to: an order, a flow. Few schemes sign it: it is for people who look for
    /// something, and nothing goes by it.
    pub correlation_id: Option<Name>,
    /// Where it stands.
    pub state: ReceiptState,
    /// Runs begun since it was first seen, or since an operator last retried it.
    pub attempts: u32,
    /// When the first delivery was reserved or accepted.
    pub first_seen: Timestamp,
    /// When its state last changed. Renewing a lease and counting other bodies are no such change.
    pub updated: Timestamp,
    /// Until when its holder may run it, while it is processing.
    pub lease_until: Option<Timestamp>,
    /// From when on a processor may run it; while it is processed, that is when its lease ends. `None` where only the
    /// next delivery runs it, or nothing does.
    pub due: Option<Timestamp>,
    /// Whether it waits for an operator to look at it.
    pub quarantined: bool,
    /// Events of one source that share this run one by one.
    pub ordering_key: Option<Name>,
    /// Digest of the body seen first.
    pub body: Digest,
    /// Deliveries under this key that had another body.
    pub other_bodies: u64,
    /// The last answer that a run gave.
    pub result: Option<StoredResult>,
    /// What last went wrong, until it succeeds.
    pub error: Option<String>,
    /// Why it is a dead letter, or in quarantine.
    pub reason: Option<String>,
    /// The request, where it was kept.
    pub request: Option<KeptRequest>,
    /// The runs that failed, oldest first.
    pub failures: Vec<FailedRun>,
}

impl Receipt {
    /// Whether it waits for an operator because nobody can tell what came of its last run ([`Unclear::Hold`]).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.reason.as_deref() == Some(Unclear::HELD)
    }
}

/// One run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRun {
    /// Which run it was.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// How it was answered, where it was.
    pub status: Option<StatusCode>,
    /// What happened.
    pub error: String,
}

/// Which receipts to list.
#[derive(Clone, Debug)]
pub struct ListFilter {
    /// Only this consumer's.
    pub consumer: Option<Name>,
    /// Only this source's.
    pub source: Option<Name>,
    /// Only those that have this key, or this event id.
    pub key: Option<DedupKey>,
    /// Only those that belong to this: an order, a flow.
    pub correlation_id: Option<Name>,
    /// Only those in this state.
    pub state: Option<ReceiptState>,
    /// At most this many. 100 by default.
    pub limit: u32,
}

impl ListFilter {
    /// What a database finds the receipts by: what fits the fewest.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) const fn found_by(&self) -> FoundBy {
        FoundBy::of(self.key.is_some(), self.correlation_id.is_some())
    }

    /// Whether it may pass over many of the receipts that are found.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) const fn is_narrow(&self) -> bool {
        matches!(self.found_by(), FoundBy::State) && (self.consumer.is_some() || self.source.is_some())
    }
}

impl Default for ListFilter {
    fn default() -> Self {
        Self { consumer: None, source: None, key: None, correlation_id: None, state: None, limit: 100 }
    }
}

/// How long finished events are remembered.
///
/// A key that is gone lets the same event run again, so keys must outlive the time in which a sender may deliver again,
/// and a captured delivery be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long the body of a result is kept. 7 days by default. After that, repeats get the status alone.
    pub results: Duration,
    /// How long the key is kept. 30 days by default.
    pub keys: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { results: 7 * DAY, keys: 30 * DAY }
    }
}

/// What one `purge` removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Receipts whose result lost its body.
    pub results: u64,
    /// Receipts that are gone.
    pub keys: u64,
}
