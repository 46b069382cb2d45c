//! What an application declares: a [`Saga`], and its [`Decision`]s.

use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::Name;
use crate::envelope::{Contract, ContractError, Envelope};
use crate::send::MessageError;

/// A flow of several steps, as a state machine. The type that implements it is its state.
///
/// Nothing here waits or asks a database: an event and the state go in, a [`Decision`] comes out, and is tested as such.
pub trait Saga: Serialize + DeserializeOwned + Send + Sync {
    /// What the flow is called. Its instances are kept under it: it never changes.
    const NAME: &'static str;

    /// All that can move it.
    type Event: Send + Sync;

    /// Reads an event, by its type: `Paid::TYPE => Event::Paid(event.read()?.data)`, and [`Envelope::unknown_type`] for the
    /// rest.
    ///
    /// # Errors
    ///
    /// [`ContractError`] where it is none that moves this flow.
    fn read(event: &Envelope) -> Result<Self::Event, ContractError>;

    /// Which instance an event belongs to: an order's number, say. 1 to 255 bytes.
    fn instance(event: &Self::Event) -> &str;

    /// What the step is called at which this state stands, for people who look for what is stuck.
    fn step(&self) -> &'static str;

    /// Answers an event. `None`: the instance has not begun.
    ///
    /// The declared answers to what comes late, twice or too early are [`Decision::Ignore`], [`Decision::Defer`] and
    /// [`Decision::Refuse`]. An event of an instance is asked about again where this transaction fails, and one that was
    /// deferred is after every move, so that the answer must depend on nothing but the arguments.
    fn decide(state: Option<&Self>, event: &Self::Event) -> Decision<Self>;
}

/// How a saga answers an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum Decision<S> {
    /// It comes too early, for this reason: it is kept with the instance and asked about again after each move.
    Defer(String),
    /// It comes late or again, and changes nothing, for this reason.
    Ignore(String),
    /// The instance moves.
    Move(Move<S>),
    /// It makes no sense, for this reason: a dead letter.
    Refuse(String),
}

impl<S> Decision<S> {
    /// It comes too early.
    pub fn defer(reason: impl Into<String>) -> Self {
        Self::Defer(reason.into())
    }

    /// It comes late, or again.
    pub fn ignore(reason: impl Into<String>) -> Self {
        Self::Ignore(reason.into())
    }

    /// It makes no sense.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self::Refuse(reason.into())
    }
}

impl<S> From<Move<S>> for Decision<S> {
    fn from(step: Move<S>) -> Self {
        Self::Move(step)
    }
}

/// A move to another state, and what is sent with it: in the same transaction, or not at all.
///
/// Messages of one instance to one endpoint arrive in the order in which they were sent, except for those that are sent
/// [`later`](Self::later).
#[derive(Debug)]
#[must_use = "a move is returned as a decision"]
pub struct Move<S> {
    pub(super) state: S,
    pub(super) acts: Vec<Act>,
    pub(super) ends: bool,
    /// Why one of the messages could not be made.
    pub(super) fault: Option<MessageError>,
}

/// One thing that a move does, in order.
#[derive(Debug)]
pub(super) enum Act {
    Send(Command),
    /// Keeps a message that undoes what was done.
    Keep(Command),
    /// Sends what was kept, the last one first.
    Undo,
    /// Forgets what was kept.
    Settle,
}

/// A message that has not been made yet: it gets its id and its cause when it is sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Command {
    /// `None`: all who want its type.
    pub(super) to: Option<Name>,
    #[serde(rename = "type")]
    pub(super) event_type: Name,
    pub(super) schema_version: u32,
    pub(super) data: Box<RawValue>,
    #[serde(skip)]
    pub(super) delay: Duration,
}

impl<S> Move<S> {
    /// To this state, which may be the one in which it is.
    pub const fn to(state: S) -> Self {
        Self { state, acts: Vec::new(), ends: false, fault: None }
    }

    /// Sends a message to one endpoint.
    pub fn send<T: Contract>(self, endpoint: &str, data: &T) -> Self {
        self.act(Command::new(Some(endpoint), data, Duration::ZERO), Act::Send)
    }

    /// Sends a message to all endpoints that want its type.
    pub fn publish<T: Contract>(self, data: &T) -> Self {
        self.act(Command::new(None, data, Duration::ZERO), Act::Send)
    }

    /// Sends a message to one endpoint after a while. A time-out is one to the flow's own endpoint: it comes whether it is
    /// needed any more or not, and late ones are ignored.
    pub fn later<T: Contract>(self, delay: Duration, endpoint: &str, data: &T) -> Self {
        self.act(Command::new(Some(endpoint), data, delay), Act::Send)
    }

    /// Says what undoes what this move does. It is kept, and sent where the flow is [undone](Self::undo).
    ///
    /// Say it with the message that does something, not with the news that it was done: that news may never come. Both go
    /// the same way, in order, so that it is never overtaken.
    pub fn undo_with<T: Contract>(self, endpoint: &str, data: &T) -> Self {
        self.act(Command::new(Some(endpoint), data, Duration::ZERO), Act::Keep)
    }

    /// Undoes what was done: sends what was kept for it, the last one first, each of them once.
    pub fn undo(mut self) -> Self {
        self.acts.push(Act::Undo);
        self
    }

    /// From here on nothing is undone: forgets what was kept for it.
    pub fn settle(mut self) -> Self {
        self.acts.push(Act::Settle);
        self
    }

    /// The flow has come to its end. It can still answer events, and its history is kept until it is purged. A later move that
    /// does not say so too takes it up again.
    pub const fn end(mut self) -> Self {
        self.ends = true;
        self
    }

    fn act(mut self, command: Result<Command, MessageError>, act: fn(Command) -> Act) -> Self {
        match command {
            Ok(command) => self.acts.push(act(command)),
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
        self
    }
}

impl Command {
    fn new<T: Contract>(to: Option<&str>, data: &T, delay: Duration) -> Result<Self, MessageError> {
        let named = |what, text| Name::new(text).map_err(|reason| MessageError::Name { what, reason });
        Ok(Self {
            to: to.map(|to| named("endpoint", to)).transpose()?,
            event_type: named("type", T::TYPE)?,
            schema_version: T::VERSION,
            data: serde_json::value::to_raw_value(data)?,
            delay,
        })
    }
}
