//! An envelope becomes a [`Message`]: its bytes are the body, and what it says about itself stands in the headers too.

use serde::Serialize;

use super::message::{MessageError, named, new_id};
use crate::Cause;
use crate::clock::{Clock, SystemClock};
use crate::envelope::{Contract, Envelope};
use crate::store::Message;

impl<T: Contract> Envelope<T> {
    /// A new event: with an id of its own, now, and belonging to what the event belongs to that is being handled
    /// ([`Cause`]), if there is one.
    ///
    /// ```
    /// use countersign::envelope::{Contract, Envelope};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Paid {
    ///     order: u64,
    /// }
    ///
    /// impl Contract for Paid {
    ///     const TYPE: &'static str = "order.paid";
    /// }
    ///
    /// let message = Envelope::new(Paid { order: 7 })?.message()?;
    /// assert_eq!(message.event_type.as_str(), "order.paid");
    /// assert_eq!(message.schema_version, Some(1));
    /// # Ok::<(), countersign::send::MessageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MessageError`] says why it cannot be one.
    pub fn new(data: T) -> Result<Self, MessageError> {
        let cause = Cause::current();
        Ok(Self {
            id: new_id()?,
            event_type: named("type", T::TYPE)?,
            schema_version: T::VERSION,
            occurred_at: SystemClock.now(),
            correlation_id: cause.as_ref().and_then(|cause| cause.correlation_id().cloned()),
            causation_id: cause.as_ref().and_then(|cause| cause.event_id().cloned()),
            ordering_key: None,
            data,
        })
    }
}

impl<T: Serialize> Envelope<T> {
    /// The same with its payload as text, as a receiver gets it.
    ///
    /// # Errors
    ///
    /// [`MessageError::Json`] where the payload cannot be written.
    pub fn into_raw(self) -> Result<Envelope, MessageError> {
        let data = serde_json::value::to_raw_value(&self.data)?;
        let Self { id, event_type, schema_version, occurred_at, correlation_id, causation_id, ordering_key, .. } = self;
        Ok(Envelope { id, event_type, schema_version, occurred_at, correlation_id, causation_id, ordering_key, data })
    }

    /// The message that carries it, in the trace of the event that is being handled. It is made once: these bytes are
    /// signed and sent on every attempt.
    ///
    /// # Errors
    ///
    /// [`MessageError::Json`] where the payload cannot be written.
    pub fn message(&self) -> Result<Message, MessageError> {
        let mut message = Message::new(self.id.clone(), self.event_type.clone(), serde_json::to_vec(self)?);
        message.schema_version = Some(self.schema_version);
        message.correlation_id.clone_from(&self.correlation_id);
        message.causation_id.clone_from(&self.causation_id);
        message.ordering_key.clone_from(&self.ordering_key);
        message.traceparent = Cause::current().and_then(|cause| cause.traceparent());
        Ok(message)
    }
}
