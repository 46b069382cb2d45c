//! What an event says about itself, signed with it: [`Envelope`], and how its payload's form may change: [`Contract`].
//!
//! Headers beside a delivery are signed by few schemes. An envelope is the body, so whoever signs the body signs all of it:
//!
//! ```json
//! {
//!   "id": "msg_018bcfe568000c5d2f4e6a8b9c0d1e2f",
//!   "type": "stock.reserved",
//!   "schema_version": 2,
//!   "occurred_at": "2026-01-31T12:00:00Z",
//!   "correlation_id": "order-7",
//!   "causation_id": "msg_018bcfe567f0a1b2c3d4e5f60718293a",
//!   "ordering_key": "order-7",
//!   "data": { "order": "order-7" }
//! }
//! ```
//!
//! The sender makes one with `Envelope::new` (feature `send`) and enqueues `Envelope::message`; the receiver reads it with
//! [`Delivery::envelope`](crate::receive::Delivery::envelope), or asks for an `Envelope<T>` in an axum handler.
//!
//! # Three kinds of failure
//!
//! | kind | example | what happens |
//! |---|---|---|
//! | transient | the database is busy | the handler answers 503 or [`Outcome::transient`](crate::receive::Outcome::transient): it is tried again |
//! | contract | unreadable; a version that nobody here knows | [`ContractError`]: a dead letter, with its reason |
//! | business | no stock | none of these: an event, which is answered, and a decision of the flow |

mod contract;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::contract::{Contract, ContractError, Newer};
use crate::{EventId, Name, Timestamp};

/// An event with what it says about itself. As long as nobody has read its payload that is `Box<RawValue>`: its text.
///
/// `Debug` shows what names it, and never the payload.
#[derive(Clone, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Envelope<T = Box<RawValue>> {
    /// Names the event: stable over attempts and replays.
    pub id: EventId,
    /// What kind of event it is, `order.paid` for example.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// The version of the payload's form.
    pub schema_version: u32,
    /// When it happened, by the clock of who says so.
    pub occurred_at: Timestamp,
    /// What it belongs to: an order, a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Name>,
    /// The id of the event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<Name>,
    /// Those of one endpoint that share this arrive one at a time, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<Name>,
    /// What happened.
    pub data: T,
}

impl Envelope {
    /// Reads an envelope, and leaves its payload as it is.
    ///
    /// # Errors
    ///
    /// [`ContractError::Unreadable`] where it is none.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ContractError> {
        serde_json::from_slice(bytes).map_err(|error| ContractError::unreadable("the envelope", &error))
    }

    /// Reads the payload as what this type's contract says: one of an older version is lifted to the present one first.
    ///
    /// ```
    /// use countersign::envelope::{Contract, ContractError, Envelope};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Paid {
    ///     order: String,
    ///     cents: u64,
    /// }
    ///
    /// impl Contract for Paid {
    ///     const TYPE: &'static str = "order.paid";
    ///     const VERSION: u32 = 2;
    ///
    ///     fn upcast(version: u32, mut data: serde_json::Value) -> Option<serde_json::Value> {
    ///         match version {
    ///             // Version 1 had whole euros.
    ///             1 => data["cents"] = (data["euros"].as_u64()?.checked_mul(100)?).into(),
    ///             _ => return None,
    ///         }
    ///         Some(data)
    ///     }
    /// }
    ///
    /// let old = Envelope::from_json(br#"{"id": "msg_1", "type": "order.paid", "schema_version": 1,
    ///     "occurred_at": "2026-01-31T12:00:00Z", "data": {"order": "7", "euros": 3}}"#)?;
    /// assert_eq!(old.read::<Paid>()?.data.cents, 300);
    /// # Ok::<(), ContractError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContractError`] says why it cannot be read as one.
    pub fn read<T: Contract>(&self) -> Result<Envelope<T>, ContractError> {
        if self.event_type.as_str() != T::TYPE {
            return Err(self.unknown_type());
        }
        Ok(Envelope {
            id: self.id.clone(),
            event_type: self.event_type.clone(),
            schema_version: T::VERSION,
            occurred_at: self.occurred_at,
            correlation_id: self.correlation_id.clone(),
            causation_id: self.causation_id.clone(),
            ordering_key: self.ordering_key.clone(),
            data: contract::read(self.schema_version, &self.data)?,
        })
    }

    /// What to answer to an event of a type that is not handled here.
    #[must_use]
    pub fn unknown_type(&self) -> ContractError {
        ContractError::UnknownType(self.event_type.clone())
    }
}

impl<T> Envelope<T> {
    /// Sets what it belongs to, in the place of what the event belongs to that is being handled.
    #[must_use]
    pub fn with_correlation_id(mut self, id: Name) -> Self {
        self.correlation_id = Some(id);
        self
    }

    /// Those of one endpoint that share this key go one at a time, in the order in which they were enqueued.
    #[must_use]
    pub fn with_ordering_key(mut self, key: Name) -> Self {
        self.ordering_key = Some(key);
        self
    }
}

impl<T> fmt::Debug for Envelope<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("event_type", &self.event_type)
            .field("schema_version", &self.schema_version)
            .field("occurred_at", &format_args!("{}", self.occurred_at))
            .field("correlation_id", &self.correlation_id)
            .field("causation_id", &self.causation_id)
            .field("ordering_key", &self.ordering_key)
            .finish_non_exhaustive()
    }
}
