//! What a database holds of a saga: where each instance stands, and each event that it has answered.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{EventId, Name, Timestamp};

/// Which instance of which saga: unique in a database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SagaKey {
    /// The saga's name.
    pub saga: Name,
    /// The instance: an order's number, say.
    pub instance: Name,
}

/// Where an instance stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SagaEntry {
    /// Which one.
    #[serde(flatten)]
    pub key: SagaKey,
    /// How many events it has answered. Two that move it at once are told apart by it.
    pub version: u64,
    /// Its step. `None` until it begins: what came before that is deferred.
    pub step: Option<Name>,
    /// When it was first heard of.
    pub created: Timestamp,
    /// When it last moved. One that is open and has not moved for long is stuck.
    pub moved: Timestamp,
    /// When it came to its end.
    pub ended: Option<Timestamp>,
    /// Written and read by the module `saga` alone.
    #[serde(skip)]
    pub(crate) body: String,
}

impl SagaEntry {
    /// One that nobody has heard of before.
    pub(crate) const fn new(key: SagaKey, now: Timestamp) -> Self {
        Self { key, version: 0, step: None, created: now, moved: now, ended: None, body: String::new() }
    }
}

/// How an instance answered an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StepAnswer {
    /// It keeps it until it can answer it.
    Deferred,
    /// It passed it over.
    Ignored,
    /// It moved.
    Moved,
    /// It had deferred it, and can never answer it.
    Refused,
}

impl StepAnswer {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Moved, Self::Ignored, Self::Deferred, Self::Refused];

    /// As stores write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Ignored => "ignored",
            Self::Moved => "moved",
            Self::Refused => "refused",
        }
    }

    /// The answer with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.as_str() == name)
    }
}

impl fmt::Display for StepAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for StepAnswer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One event that an instance has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SagaStep {
    /// Which one, from 1.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// The event that caused it.
    pub event_id: EventId,
    /// Its type.
    pub event_type: Name,
    /// How it was answered.
    pub answer: StepAnswer,
    /// The step before it.
    pub from: Option<Name>,
    /// The step behind it.
    pub to: Option<Name>,
    /// Why, where it did not move.
    pub reason: Option<String>,
    /// What it sent, in order.
    pub sent: Vec<SentMessage>,
}

/// A message that a step put into the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct SentMessage {
    /// Its id.
    pub id: EventId,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// Where it goes. `None`: to all who want its type.
    pub endpoint: Option<Name>,
    /// Whether it undoes what an earlier step did.
    pub undoes: bool,
}
