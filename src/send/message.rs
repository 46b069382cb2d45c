//! First step of the walk: an application's value becomes a [`Message`], whose bytes and id never change again.

use serde::Serialize;
use thiserror::Error;

use crate::clock::{Clock, SystemClock};
use crate::event::NameError;
use crate::store::Message;
use crate::{Cause, EventId, Name};

/// Why a value cannot be made a message.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It cannot be written as JSON.
    #[error("the payload cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A name cannot be used.
    #[error("the {what} cannot be used: {reason}")]
    Name {
        /// What it is the name of.
        what: &'static str,
        /// What is wrong with it.
        reason: NameError,
    },
    /// The operating system gives no random bytes for an id.
    #[error("no random bytes for an id: {0}")]
    Random(String),
}

impl Message {
    /// A message of this type with a new id and this value as its payload, written as JSON here and now: these bytes are
    /// signed and sent on every attempt, and to every endpoint. Made by a handler, it belongs to what the event belongs to
    /// that is being handled, names that as its cause, and continues its trace ([`Cause`]).
    ///
    /// ```
    /// # use countersign::store::Message;
    /// #[derive(serde::Serialize)]
    /// struct Paid {
    ///     order: u64,
    /// }
    ///
    /// let message = Message::json("order.paid", &Paid { order: 7 })?.with_ordering_key("order-7")?;
    /// assert_eq!(&message.payload[..], br#"{"order":7}"#);
    /// assert!(message.id.as_str().starts_with("msg_"));
    /// # Ok::<(), countersign::send::MessageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MessageError`] says why it cannot be one.
    pub fn json<T: Serialize + ?Sized>(event_type: &str, payload: &T) -> Result<Self, MessageError> {
        let mut message = Self::new(new_id()?, named("type", event_type)?, serde_json::to_vec(payload)?);
        if let Some(cause) = Cause::current() {
            message.correlation_id = cause.correlation_id().cloned();
            message.causation_id = cause.event_id().cloned();
            message.traceparent = cause.traceparent();
        }
        Ok(message)
    }

    /// Sets the id: of an event that has one already, so that putting it into the outbox twice does it once.
    ///
    /// # Errors
    ///
    /// [`MessageError::Name`] for an id that is none.
    pub fn with_id(mut self, id: &str) -> Result<Self, MessageError> {
        self.id = EventId::new(id).map_err(|reason| MessageError::Name { what: "id", reason })?;
        Ok(self)
    }

    /// Sets the media type of the payload.
    #[must_use]
    pub fn with_content_type(mut self, media_type: &str) -> Self {
        media_type.clone_into(&mut self.content_type);
        self
    }

    /// Messages to one endpoint that share this key go one at a time, in the order in which they were enqueued.
    ///
    /// # Errors
    ///
    /// [`MessageError::Name`] for a key that is none.
    pub fn with_ordering_key(mut self, key: &str) -> Result<Self, MessageError> {
        self.ordering_key = Some(named("ordering key", key)?);
        Ok(self)
    }

    /// Says what it belongs to: an order, a flow. Sent as `correlation-id`.
    ///
    /// # Errors
    ///
    /// [`MessageError::Name`] for an id that is none.
    pub fn with_correlation_id(mut self, id: &str) -> Result<Self, MessageError> {
        self.correlation_id = Some(named("correlation id", id)?);
        Ok(self)
    }

    /// Says which event caused it. Sent as `causation-id`.
    ///
    /// # Errors
    ///
    /// [`MessageError::Name`] for an id that is none.
    pub fn with_causation_id(mut self, id: &str) -> Result<Self, MessageError> {
        self.causation_id = Some(named("causation id", id)?);
        Ok(self)
    }

    /// Sets the W3C trace context that it was made in. Sent as `traceparent`.
    #[must_use]
    pub fn with_traceparent(mut self, context: &str) -> Self {
        self.traceparent = Some(context.to_owned());
        self
    }
}

/// A new message id: `msg_` and 32 hex digits. The first 12 are the time in milliseconds, so that ids of one sender sort
/// as they were made and keep an index together; the rest are random.
///
/// It is drawn when a message is made, and stands in its row: all attempts and replays carry it.
///
/// # Errors
///
/// [`MessageError::Random`] where the operating system gives no random bytes.
pub fn new_id() -> Result<EventId, MessageError> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(|error| MessageError::Random(error.to_string()))?;
    Ok(id_of(SystemClock.now().as_micros() / 1_000, random))
}

fn id_of(millis: i64, random: [u8; 10]) -> EventId {
    let [_, _, time @ ..] = millis.to_be_bytes();
    let mut id = String::from("msg_");
    for byte in time.into_iter().chain(random) {
        id.extend([byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16)));
    }
    EventId::literal(id)
}

pub(super) fn named(what: &'static str, text: &str) -> Result<Name, MessageError> {
    Name::new(text).map_err(|reason| MessageError::Name { what, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Enqueue;

    #[test]
    fn c109_ids_are_unique_sort_by_their_time_and_pass_every_limit() {
        let early = id_of(1_700_000_000_000, [0xff; 10]);
        let late = id_of(1_700_000_000_001, [0; 10]);
        assert_eq!(early.as_str(), "msg_018bcfe56800ffffffffffffffffffff");
        assert!(early < late);
        let ids: std::collections::HashSet<_> = (0..1_000).map(|_| new_id().expect("an id")).collect();
        assert_eq!(ids.len(), 1_000);
        let message = Message::json("a", &()).expect("a message");
        assert!(Enqueue::check(&message).is_ok());
    }

    #[test]
    fn what_cannot_be_named_is_refused_where_it_is_made() {
        for refused in [
            Message::json("", &1),
            Message::json("a\nb", &1),
            Message::json("a", &1).and_then(|message| message.with_id("")),
            Message::json("a", &1).and_then(|message| message.with_ordering_key("\u{7}")),
        ] {
            assert!(matches!(refused, Err(MessageError::Name { .. })));
        }
        let unwritable: std::collections::HashMap<(u8, u8), u8> = [((1, 2), 3)].into();
        assert!(matches!(Message::json("a", &unwritable), Err(MessageError::Json(_))));
    }
}
