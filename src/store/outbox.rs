//! The outbox: what every store promises to the sender.
//!
//! ```text
//! absent ──enqueue, publish──▶ pending(due) ──claim──▶ delivering(token, lease, attempt + 1)
//!                               │   ▲  ▲ ▲               │   ├─settle: delivered──▶ succeeded ──purge──▶ absent
//!                               │   │  │ └─release, or ──┘   ├─settle: again──────▶ pending(later)
//!                               │   │  │   the lease ran out ├─settle: failed─────▶ failed ─────┐
//!                               │   │  │                     └─settle: dead───────▶ dead_letter ┤
//!                               │   │  └────────────────replay: attempts 0, replays + 1─────────┘
//!                               └─cancel──▶ cancelled
//! ```
//!
//! One row for each [`MessageKey`]: a message on its way to one endpoint. The due time alone says what may be claimed: a
//! lease is a later due time and a random token, so that what a dispatcher left behind when it died falls due by itself.
//! Every later write names the token, and changes nothing once another holder has taken the message over. The promises
//! are spelled out, one test each, in `outbox_conformance` (feature `test-util`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::{
    AttemptReport, Cursor, Endpoint, EndpointEntry, EndpointNews, Keys, Message, MessageFilter, MessageKey,
    OutboxEntry, OutboxRetention, Page, Settled, StoreError, StoreFuture, Token,
};
use crate::{EventId, Name, Timestamp};

/// A table of messages on their way, and of the endpoints they go to, shared by all senders and dispatchers of an
/// application.
///
/// # Errors
///
/// Every call can fail with [`StoreError`]; then the caller must assume that it may or may not have taken effect.
///
/// # Cancel safety
///
/// Every call may be dropped at any point: it then takes effect wholly or not at all.
pub trait OutboxStore: fmt::Debug + Send + Sync + 'static {
    /// Adds an endpoint, or gives one that is there these settings and leaves its state and its messages alone.
    ///
    /// # Errors
    ///
    /// [`StoreError::Rejected`] where [`Endpoint::check`] refuses it. Nothing was changed.
    fn put_endpoint(&self, endpoint: Endpoint) -> StoreFuture<'_, EndpointEntry>;

    /// All endpoints, by name. One whose row cannot be read is left out, and named in the log.
    fn endpoints(&self) -> StoreFuture<'_, Vec<EndpointEntry>>;

    /// The endpoint with this name.
    fn endpoint(&self, name: Name) -> StoreFuture<'_, Option<EndpointEntry>>;

    /// Disables an endpoint for a reason, or with `None` enables it: then its failures are forgotten, it is not paused,
    /// and its messages are due when they are. `false` where there is none.
    fn disable_endpoint(&self, name: Name, reason: Option<String>) -> StoreFuture<'_, bool>;

    /// Removes an endpoint. Its messages that have no end become dead letters. `false` where there is none.
    ///
    /// Whoever delivers one of them meanwhile may still say how that ended: what was delivered has succeeded, and what would
    /// be sent again stays a dead letter.
    ///
    /// One with very many messages may be removed in steps: it is disabled first, and it is gone at the end. Where this fails
    /// or is dropped in between, ask again.
    fn remove_endpoint(&self, name: Name) -> StoreFuture<'_, bool>;

    /// Puts messages into the outbox, each for one endpoint, all or none of them. Durable when it returns.
    ///
    /// Says of each, in their order, whether it is new. One that is there already, by its [`MessageKey`], is left as it
    /// is, whatever its state.
    ///
    /// # Errors
    ///
    /// [`StoreError::Rejected`] where an endpoint is not there, or a message is over the limits of [`Enqueue::check`].
    fn enqueue(&self, messages: Vec<Enqueue>) -> StoreFuture<'_, Vec<Enqueued>>;

    /// Puts a message into the outbox for every endpoint that wants its type, disabled ones too: they get it when they
    /// are enabled. Says for which, by name. None where nobody wants it.
    fn publish(&self, message: Message) -> StoreFuture<'_, Vec<Enqueued>>;

    /// Takes messages that are due, each under a token and a lease of its own. No two callers get the same.
    ///
    /// Due is what waits and whose time has come, and what was being delivered and whose lease ran out. Of an endpoint
    /// that is disabled or paused nothing is due. Every endpoint gets its turn: at most its quota, and what there is of
    /// the limit is dealt out evenly among those that have something due. Of an endpoint's messages those that were
    /// never tried come first, except for one in four, so that neither waits for long behind the other; within each, the
    /// longest due comes first. Which endpoint gets what cannot be divided, and which message is the one in four, is left
    /// to chance: otherwise claims of a single message would always go to the same.
    ///
    /// Of the messages of one endpoint that share an ordering key only the first one that has no end can be claimed, and
    /// not while another one of them is being delivered (a later one can be, where the first one was replayed). What one
    /// that is a dead letter or failed means for those behind it says [`OnDead`](super::OnDead). While a message is held
    /// up, a store may move its due time ahead, so as not to look at it in each claim; it is due when its turn comes.
    ///
    /// A message whose attempts are used up, because its senders died, becomes a dead letter instead, and so does one
    /// whose row cannot be read, or that stands behind one that is dead where its endpoint asks for that: [`Claims::buried`]
    /// says so, so that an operator can be told. An attempt that left no word is noted as such when its message is taken over.
    ///
    /// At most `limit`, and at most [`ClaimMessages::MOST`], what becomes a dead letter instead among them; fewer, or
    /// none, does not mean that there are no more.
    fn claim_messages(&self, claim: ClaimMessages) -> StoreFuture<'_, Claims>;

    /// Ends an attempt: notes it, and says what becomes of its message and what it showed about its endpoint. Durable
    /// when it returns. An attempt whose lease ran out settles still, as long as nobody took the message over.
    fn settle(&self, lease: MessageLease, settlement: Settlement) -> StoreFuture<'_, Settled>;

    /// Holds the right to deliver for another `span`, counted from now by the store's clock.
    fn renew_message(&self, lease: MessageLease, span: Duration) -> StoreFuture<'_, Settled>;

    /// Gives a message back whose attempt was not begun or not ended: it is not counted, and it is due at once.
    fn release_message(&self, lease: MessageLease) -> StoreFuture<'_, Settled>;

    /// The message with this key, with its payload and its attempts.
    fn find_message(&self, key: MessageKey) -> StoreFuture<'_, Option<OutboxEntry>>;

    /// A part of the messages, those whose state changed last first; of those that changed at once, the younger first. It
    /// begins behind `after`, or with the newest.
    ///
    /// They come without payloads and attempts. One that cannot be read is left out, and named in the log. At most
    /// [`MessageFilter::limit`] of them; fewer, or none, does not mean that there are no more: [`Page::next`] says so. What
    /// changes meanwhile moves to the front: a list that goes on does not meet it again.
    fn page_messages(&self, filter: MessageFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<OutboxEntry>>;

    /// As many messages as are asked for, if there are as many: page by page ([`page_messages`](Self::page_messages)).
    ///
    /// Where a filter passes over most of a large table this takes as long as going through it.
    fn list_messages(&self, filter: MessageFilter) -> StoreFuture<'_, Vec<OutboxEntry>> {
        Box::pin(async move {
            let part = |limit, after| self.page_messages(MessageFilter { limit, ..filter.clone() }, after);
            Page::through(filter.limit, part).await
        })
    }

    /// Sends messages again that are dead letters or failed, the oldest first: `pending`, with all their attempts before
    /// them, and one replay more. Others that fit the filter stay as they are, so that asking twice does it once; one
    /// that succeeded is sent again only where the filter names its id and asks for that state. What has lost its endpoint
    /// stays as it is: nobody would ever send it.
    ///
    /// `gap` lies between the due times of one and the next. Returns which were changed, at most the filter's limit.
    fn replay(&self, filter: MessageFilter, gap: Duration) -> StoreFuture<'_, Vec<MessageKey>>;

    /// Takes back messages that are pending, failed or dead letters, the oldest first: `cancelled`. One that is being
    /// delivered stays as it is. Returns which were changed, at most the filter's limit.
    fn cancel(&self, filter: MessageFilter) -> StoreFuture<'_, Vec<MessageKey>>;

    /// How long until something is due, of endpoints that are not disabled and can be read: zero where something is, `None` where nothing
    /// waits and nothing is being delivered. What is held up by its ordering key is not waited for; a store may count it
    /// until a claim has met it.
    fn next_due(&self) -> StoreFuture<'_, Option<Duration>>;

    /// Removes what has reached its age, the oldest first, at most `limit`. Returns how many. In small steps, each of
    /// them whole, so that other calls go on meanwhile.
    fn purge_messages(&self, retention: OutboxRetention, limit: u32) -> StoreFuture<'_, u64>;

    /// Does nothing, durably: fails where a claim or a settlement would fail for want of the store.
    fn check_outbox(&self) -> StoreFuture<'_, ()>;

    /// For how long the message has been due that has been due longest, for each endpoint that has one: how far the
    /// dispatchers are behind, and with whom. A pause does not hide it; what is disabled, and what is held up by its
    /// ordering key, is not counted.
    ///
    /// For metrics: it is asked often, and has to cost next to nothing. None, the default, where a store does not know.
    fn oldest_due_messages(&self) -> StoreFuture<'_, Vec<(Name, Duration)>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// The endpoints that [`endpoints`](Self::endpoints) leaves out because their rows cannot be read: the name, as far as
    /// that can, and why. Nothing is claimed for them. None, the default, where a store has no such rows.
    fn unreadable_endpoints(&self) -> StoreFuture<'_, Vec<(String, StoreError)>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// The keys of all messages, in the order in which their rows were made: at most `limit`, from where the stretch before
    /// ended ([`Keys::next`]), or from 0. One that cannot be read is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// [`StoreError::Rejected`], the default, where a store cannot say all of them.
    fn message_keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<MessageKey>> {
        let _ = (from, limit);
        Box::pin(std::future::ready(Err(StoreError::Rejected("this store cannot say all of its keys".to_owned()))))
    }

    /// Told (`notify_one`) when something may have become due: by this process, and where the database can say so, by
    /// others. The same one on every call.
    ///
    /// It is a hint, and may never be told: a dispatcher polls all the same. `None`, the default, where nobody tells.
    fn wake(&self) -> Option<Arc<Notify>> {
        None
    }
}

/// A store that is shared is a store.
impl<S: OutboxStore + ?Sized> OutboxStore for Arc<S> {
    fn put_endpoint(&self, endpoint: Endpoint) -> StoreFuture<'_, EndpointEntry> {
        (**self).put_endpoint(endpoint)
    }

    fn endpoints(&self) -> StoreFuture<'_, Vec<EndpointEntry>> {
        (**self).endpoints()
    }

    fn endpoint(&self, name: Name) -> StoreFuture<'_, Option<EndpointEntry>> {
        (**self).endpoint(name)
    }

    fn disable_endpoint(&self, name: Name, reason: Option<String>) -> StoreFuture<'_, bool> {
        (**self).disable_endpoint(name, reason)
    }

    fn remove_endpoint(&self, name: Name) -> StoreFuture<'_, bool> {
        (**self).remove_endpoint(name)
    }

    fn enqueue(&self, messages: Vec<Enqueue>) -> StoreFuture<'_, Vec<Enqueued>> {
        (**self).enqueue(messages)
    }

    fn publish(&self, message: Message) -> StoreFuture<'_, Vec<Enqueued>> {
        (**self).publish(message)
    }

    fn claim_messages(&self, claim: ClaimMessages) -> StoreFuture<'_, Claims> {
        (**self).claim_messages(claim)
    }

    fn settle(&self, lease: MessageLease, settlement: Settlement) -> StoreFuture<'_, Settled> {
        (**self).settle(lease, settlement)
    }

    fn renew_message(&self, lease: MessageLease, span: Duration) -> StoreFuture<'_, Settled> {
        (**self).renew_message(lease, span)
    }

    fn release_message(&self, lease: MessageLease) -> StoreFuture<'_, Settled> {
        (**self).release_message(lease)
    }

    fn find_message(&self, key: MessageKey) -> StoreFuture<'_, Option<OutboxEntry>> {
        (**self).find_message(key)
    }

    fn page_messages(&self, filter: MessageFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<OutboxEntry>> {
        (**self).page_messages(filter, after)
    }

    fn list_messages(&self, filter: MessageFilter) -> StoreFuture<'_, Vec<OutboxEntry>> {
        (**self).list_messages(filter)
    }

    fn replay(&self, filter: MessageFilter, gap: Duration) -> StoreFuture<'_, Vec<MessageKey>> {
        (**self).replay(filter, gap)
    }

    fn cancel(&self, filter: MessageFilter) -> StoreFuture<'_, Vec<MessageKey>> {
        (**self).cancel(filter)
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Duration>> {
        (**self).next_due()
    }

    fn purge_messages(&self, retention: OutboxRetention, limit: u32) -> StoreFuture<'_, u64> {
        (**self).purge_messages(retention, limit)
    }

    fn check_outbox(&self) -> StoreFuture<'_, ()> {
        (**self).check_outbox()
    }

    fn oldest_due_messages(&self) -> StoreFuture<'_, Vec<(Name, Duration)>> {
        (**self).oldest_due_messages()
    }

    fn unreadable_endpoints(&self) -> StoreFuture<'_, Vec<(String, StoreError)>> {
        (**self).unreadable_endpoints()
    }

    fn message_keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<MessageKey>> {
        (**self).message_keys(from, limit)
    }

    fn wake(&self) -> Option<Arc<Notify>> {
        (**self).wake()
    }
}

/// A message to put into the outbox for one endpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Enqueue {
    /// Where it goes.
    pub endpoint: Name,
    /// The message.
    pub message: Message,
    /// When it may be sent, from now. At once by default.
    pub delay: Duration,
}

impl Enqueue {
    /// The largest payload, in bytes.
    pub const MAX_PAYLOAD_BYTES: usize = 16 * 1_024 * 1_024;
    /// The longest content type and trace context, in bytes.
    pub const MAX_TEXT_BYTES: usize = 255;

    /// A message for this endpoint, due at once.
    #[must_use]
    pub const fn new(endpoint: Name, message: Message) -> Self {
        Self { endpoint, message, delay: Duration::ZERO }
    }

    /// Holds a message to the limits of every store, before it is asked. What goes into headers must be able to.
    ///
    /// # Errors
    ///
    /// [`StoreError::Rejected`] says which limit it is over.
    pub fn check(message: &Message) -> Result<(), StoreError> {
        let rejected = |text: String| Err(StoreError::Rejected(text));
        let Message { id, event_type, payload, content_type, correlation_id, causation_id, traceparent, .. } = message;
        if payload.len() > Self::MAX_PAYLOAD_BYTES {
            return rejected(format!("a payload of {} bytes: {} are allowed", payload.len(), Self::MAX_PAYLOAD_BYTES));
        }
        // The signed text of the default scheme is `id.timestamp.payload`: with a dot in the id, one signature would fit
        // two ids.
        if id.as_str().contains('.') {
            return rejected("a message id with a dot in it: it could be taken for another id".to_owned());
        }
        let texts = [
            ("message id", Some(id.as_str())),
            ("type", Some(event_type.as_str())),
            ("content type", Some(content_type.as_str())),
            ("correlation id", correlation_id.as_ref().map(Name::as_str)),
            ("causation id", causation_id.as_ref().map(Name::as_str)),
            ("traceparent", traceparent.as_deref()),
        ];
        for (what, text) in texts {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > Self::MAX_TEXT_BYTES {
                return rejected(format!(
                    "a {what} of {} bytes: 1 to {} are allowed",
                    text.len(),
                    Self::MAX_TEXT_BYTES
                ));
            }
            // Spaces at its ends would be lost on the way.
            if text.trim() != text || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return rejected(format!(
                    "a {what} that a header cannot hold: visible ASCII and inner spaces are allowed"
                ));
            }
        }
        Ok(())
    }
}

/// What became of a message that was to be put into the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The message.
    pub id: EventId,
    /// Where it goes.
    pub endpoint: Name,
    /// Whether it is new. `false`: it was there before, and was left as it is.
    pub created: bool,
}

impl Enqueued {
    /// As a store of one's own says it.
    #[must_use]
    pub const fn new(id: EventId, endpoint: Name, created: bool) -> Self {
        Self { id, endpoint, created }
    }
}

/// Asks for messages to deliver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimMessages {
    /// At most this many.
    pub limit: u32,
    /// For how long.
    pub lease: Duration,
    /// At most this many to one endpoint.
    pub quota: u32,
    /// Endpoints that get another quota: what is left of their own limits. 0: nothing.
    pub quotas: Vec<(Name, u32)>,
    /// How many attempts a message gets, where its endpoint does not say otherwise.
    pub max_attempts: u32,
}

impl ClaimMessages {
    /// The most messages that one claim gets.
    pub const MOST: u32 = 512;

    /// Asks for this many, for as long, with no other limits.
    #[must_use]
    pub const fn new(limit: u32, lease: Duration) -> Self {
        Self { limit, lease, quota: u32::MAX, quotas: Vec::new(), max_attempts: u32::MAX }
    }
}

/// What a claim brings.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Claims {
    /// What is to be delivered.
    pub messages: Vec<ClaimedMessage>,
    /// What became dead letters instead. A row whose key or type cannot be read is left out, and named in the log.
    pub buried: Vec<Buried>,
}

impl Claims {
    /// As a store of one's own says it.
    #[must_use]
    pub const fn new(messages: Vec<ClaimedMessage>, buried: Vec<Buried>) -> Self {
        Self { messages, buried }
    }
}

/// A message that a claim made a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buried {
    /// Which message.
    pub key: MessageKey,
    /// Its type.
    pub event_type: Name,
    /// Why.
    pub reason: String,
    /// How many attempts were begun, since it was enqueued or last replayed. 0 where that cannot be read.
    pub attempts: u32,
    /// How often it was replayed. 0 where that cannot be read.
    pub replays: u32,
}

impl Buried {
    /// A message that was never tried.
    #[must_use]
    pub const fn new(key: MessageKey, event_type: Name, reason: String) -> Self {
        Self { key, event_type, reason, attempts: 0, replays: 0 }
    }
}

/// A message to deliver, and the right to deliver it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClaimedMessage {
    /// The right to deliver it.
    pub lease: MessageLease,
    /// The message.
    pub message: Message,
    /// Its endpoint, as it is now.
    pub endpoint: Arc<Endpoint>,
    /// When it was enqueued.
    pub created: Timestamp,
    /// How long ago that was, by the store's clock. Since it was last replayed, if it was.
    pub age: Duration,
    /// How often it was replayed.
    pub replays: u32,
}

impl ClaimedMessage {
    /// As a store of one's own hands it out: never replayed.
    #[must_use]
    pub const fn new(
        lease: MessageLease,
        message: Message,
        endpoint: Arc<Endpoint>,
        created: Timestamp,
        age: Duration,
    ) -> Self {
        Self { lease, message, endpoint, created, age, replays: 0 }
    }
}

/// The right to deliver one message, as its holder names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageLease {
    /// Which message.
    pub key: MessageKey,
    /// Its row, as the store names it.
    pub row: i64,
    /// Drawn anew for each attempt.
    pub token: Token,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settlement {
    /// What becomes of its message.
    pub fate: Fate,
    /// What is noted of it.
    pub report: AttemptReport,
    /// What it showed about its endpoint.
    pub endpoint: EndpointNews,
}

impl Settlement {
    /// A settlement that says nothing more about the endpoint.
    #[must_use]
    pub fn new(fate: Fate, report: AttemptReport) -> Self {
        Self { fate, report, endpoint: EndpointNews::default() }
    }
}

/// What becomes of a message after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It is tried again.
    Again {
        /// After how long.
        after: Duration,
        /// Whether the attempt counts. One that found another copy of the message being handled does not.
        counts: bool,
    },
    /// It is given up, for this reason.
    Dead(String),
    /// It was delivered.
    Delivered,
    /// The next attempt is left to an operator, for this reason.
    Failed(String),
}
