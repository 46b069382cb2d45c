//! The inbox: what every store promises to the receiver.
//!
//! ```text
//! absent ──reserve──▶ processing(token, lease, attempt) ──complete──▶ succeeded(result) ──purge──▶ absent
//!    │ ▲                │  ▲  └─fail──▶ failed(error, due) ──reserve, or claim when due──▶ processing
//!    │ │                │  └── reserve or claim after the lease: new token, attempt + 1
//!    │ forget           └─fail with a reason, or attempts used up──▶ dead_letter ──retry──▶ failed
//!    │                                                          └──conclude──▶ succeeded
//!    └─accept──▶ received(request, due) ──claim──▶ processing ──release──▶ received, due now
//! ```
//!
//! One receipt for each [`ReceiptKey`]. `reserve` and `claim` are the only ways into `processing`, and hand out random
//! tokens; `complete`, `fail`, `renew` and `release` name that token and change nothing once another holder has taken the
//! receipt over. The promises are spelled out, one test each, in `conformance` (feature `test-util`).
//!
//! A receipt that was accepted is *owed*: its sender has been told that it is in good hands, and may never deliver it
//! again. It has a due time until it has an end, through every failure, crash and inline run. So the due time alone says
//! what may be claimed: a lease under which an owed event runs is a later due time. What was never accepted has none, and
//! waits for its sender.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::{Cursor, Keys, ListFilter, Page, Purged, Receipt, ReceiptState, Retention, StoreError};
use crate::{DedupKey, Digest, EventId, Name, Timestamp};

/// What the calls of a store return: a boxed future, so that layers can hold any store without naming its type.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A table of receipts, shared by all receivers of an application.
///
/// # Errors
///
/// Every call can fail with [`StoreError`]; then the caller must assume that it may or may not have taken effect.
///
/// # Cancel safety
///
/// Every call may be dropped at any point: it then takes effect wholly or not at all.
pub trait InboxStore: fmt::Debug + Send + Sync + 'static {
    /// Asks for the right to run an event. Exactly one of any number of concurrent callers gets it.
    ///
    /// A repeat of an event that has an end changes nothing but the count of other bodies. A run whose lease ran out is
    /// noted among the failures of its receipt when it is taken over.
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved>;

    /// Takes an event in without running it: it is `received`, due at once, with its request. Durable when it returns.
    ///
    /// Of an event that is there already, one that has no end and was not accepted before becomes owed: one that failed
    /// is due at once, one that runs is due when its lease ends, both with this request. One in quarantine is released.
    /// An end changes nothing but the count of other bodies.
    ///
    /// One that is to be put into quarantine has no due time and waits for [`retry`](InboxStore::retry), or for a
    /// delivery that is not; it changes nothing about an event that runs or is owed.
    fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted>;

    /// Takes events that are due for one consumer, the longest due first, each under a token and a lease of its own. No
    /// two callers get the same.
    ///
    /// Due is what is owed and waits, and what is owed and whose lease ran out. A run that ended without a word is noted
    /// among the failures of its receipt. An event whose attempts are used up becomes a dead letter instead, and so does
    /// one whose row cannot be read.
    ///
    /// Of the receipts of one source that share an ordering key, only the one seen first among those that are owed can
    /// be claimed, so that they run one by one in that order. A dead letter does not hold up those behind it.
    ///
    /// At most `limit`, and at most [`Claim::MOST`]; fewer does not mean that there are no more.
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>>;

    /// Gives a run back that was not begun or not ended: it is not counted, and the event is due at once if it is owed.
    fn release(&self, lease: Lease) -> StoreFuture<'_, Settled>;

    /// Ends a run in success, and keeps its result. Durable when it returns.
    ///
    /// The kept request, the error and the reason go; the failures of earlier runs stay. A lease that has run out
    /// still completes as long as nobody took it over: the work was done, and running it again would help nobody.
    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled>;

    /// Ends a run in failure: the next delivery runs the event again, a processor does once it is due, or it is a dead
    /// letter.
    ///
    /// It is due after [`Failure::retry_in`]; without one, at once if it is owed, and else never. No event is due whose
    /// request is not kept.
    ///
    /// A failure without an answer or a request leaves those that an earlier run left. Of the failures of one receipt
    /// the last [`Failure::MAX_KEPT`] are kept.
    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled>;

    /// Holds the right to run for another `span`, counted from now by the store's clock. A lease that has run out is
    /// renewed too, as long as nobody took it over.
    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled>;

    /// The receipt with this key, with its result, its kept request and its failures.
    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>>;

    /// A part of the receipts, those whose state changed last first; of those that changed at once, the younger first. It
    /// begins behind `after`, or with the newest.
    ///
    /// They come without bodies ([`ResultBody::Omitted`]), kept requests and failures. One that cannot be read is left
    /// out, and named in the log. At most [`ListFilter::limit`] of them; fewer, or none, does not mean that there are no more:
    /// [`Page::next`] says so. What changes meanwhile moves to the front: a list that goes on does not meet it again.
    fn page(&self, filter: ListFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<Receipt>>;

    /// As many receipts as are asked for, if there are as many: [`page`](Self::page) by page.
    ///
    /// Where a filter passes over most of a large table this takes as long as going through it.
    fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>> {
        Box::pin(async move {
            let part = |limit, after| self.page(ListFilter { limit, ..filter.clone() }, after);
            Page::through(filter.limit, part).await
        })
    }

    /// Gives an event another chance: a dead letter becomes `failed` with all its attempts before it; one in quarantine
    /// is released. The next delivery runs it, and where its request is kept it is due at once, so that no delivery is
    /// needed. One that failed and whose request is kept is due at once, too. Other receipts stay as they are.
    ///
    /// `None` where there is no such receipt, else the state that it has now.
    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>>;

    /// Ends a dead letter as `succeeded`, without a run: an operator has seen to it that it had its effect. Repeats get 200,
    /// with no body. Other receipts stay as they are.
    ///
    /// `None` where there is no such receipt, else the state that it has now.
    fn conclude(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>>;

    /// Removes a receipt, whatever its state, so that the next delivery is a first one. `false` where there is none.
    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool>;

    /// Removes what has reached its age, at most `limit` receipts' results and `limit` receipts in one call.
    ///
    /// Only `succeeded` and `failed` receipts age, from their last change of state; the oldest go first. One that is owed,
    /// is being processed or is a dead letter stays. Reservations go on meanwhile: a store purges in small steps, each of
    /// them whole, and a purge that is dropped has done some of them.
    ///
    /// Any number of processes may purge. Where their steps could get into each other's way, as on a server, one purges at a
    /// time: a step that meets another one's removes nothing, and does not wait.
    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged>;

    /// Does nothing, durably: fails where a reservation would fail for want of the store.
    fn check(&self) -> StoreFuture<'_, ()>;

    /// For how long the event has been due that has been due longest, of one consumer: how far its processors are behind.
    /// `None` where nothing is due. What waits behind another event of its ordering key is due, too.
    ///
    /// For metrics: it is asked often, and has to cost next to nothing. `None`, the default, where a store does not know.
    fn oldest_due(&self, consumer: Name) -> StoreFuture<'_, Option<Duration>> {
        let _ = consumer;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The keys of all receipts, in the order in which their rows were made: at most `limit`, from where the stretch before
    /// ended ([`Keys::next`]), or from 0. One that cannot be read is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// [`StoreError::Rejected`], the default, where a store cannot say all of them.
    fn keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<ReceiptKey>> {
        let _ = (from, limit);
        Box::pin(std::future::ready(Err(StoreError::Rejected("this store cannot say all of its keys".to_owned()))))
    }
}

/// A store that is shared is a store.
impl<S: InboxStore + ?Sized> InboxStore for Arc<S> {
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
        (**self).reserve(request)
    }

    fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
        (**self).accept(request)
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        (**self).claim(claim)
    }

    fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
        (**self).release(lease)
    }

    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
        (**self).complete(lease, result)
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
        (**self).fail(lease, failure)
    }

    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
        (**self).renew(lease, span)
    }

    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
        (**self).find(key)
    }

    fn page(&self, filter: ListFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<Receipt>> {
        (**self).page(filter, after)
    }

    fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>> {
        (**self).list(filter)
    }

    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        (**self).retry(key)
    }

    fn conclude(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        (**self).conclude(key)
    }

    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
        (**self).forget(key)
    }

    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
        (**self).purge(retention, limit)
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        (**self).check()
    }

    fn oldest_due(&self, consumer: Name) -> StoreFuture<'_, Option<Duration>> {
        (**self).oldest_due(consumer)
    }

    fn keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<ReceiptKey>> {
        (**self).keys(from, limit)
    }
}

/// Which receipt: unique in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptKey {
    /// Who handles the event. Two consumers each handle it once.
    pub consumer: Name,
    /// Who sent it: one endpoint, tenant or account.
    pub source: Name,
    /// The event within its source.
    pub key: DedupKey,
}

/// Asks to run an event.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Which receipt.
    pub key: ReceiptKey,
    /// The sender's id, as a label, where there is one.
    pub event_id: Option<EventId>,
    /// What the sender says that it belongs to, as a label, where it does. A receipt keeps that of the first delivery.
    pub correlation_id: Option<Name>,
    /// Digest of the body.
    pub body: Digest,
    /// For how long.
    pub lease: Duration,
    /// How many runs an event gets; the first one is always allowed. An event whose runs are used up, by crashes too,
    /// becomes a dead letter here.
    pub max_attempts: u32,
    /// What to do with a body that is not the one seen first under this key.
    pub other_body: OtherBody,
    /// What to do with an event whose last run left no word.
    pub unclear: Unclear,
}

/// What becomes of an event whose last run ended without a word: its lease ran out, since its process died, was halted, or lost
/// the store. It may have had its effect, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unclear {
    /// It is run again: what must not happen twice is written so that it does not.
    #[default]
    RunAgain,
    /// It is a dead letter, for the reason [`Unclear::HELD`], until an operator has looked whether it had its effect: one who
    /// [concludes](InboxStore::conclude) it where it had, and [retries](InboxStore::retry) it where it had not.
    Hold,
}

impl Unclear {
    /// Why an event is a dead letter that is held.
    pub const HELD: &str =
        "the outcome of its last run is unclear: look whether it had its effect, then conclude or retry it";
}

/// What `reserve` does when the receipt exists and was made for another body.
///
/// The digest on the receipt stays that of the body seen first, whoever runs it later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherBody {
    /// Treat it as the same event. It is counted once the receipt lets it through or has an end to repeat; not while
    /// another holder runs, since that caller will ask again.
    #[default]
    Accept,
    /// Run nothing and say so: [`Reserved::OtherBody`].
    Refuse,
}

/// What a caller of `reserve` gets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reserved {
    /// The right to run the event.
    Acquired(Lease),
    /// Nothing: the attempts are used up, or a handler gave the event up.
    DeadLetter(Repeat),
    /// Nothing: the receipt was made for another body, and [`OtherBody::Refuse`] was asked for. This was counted.
    OtherBody,
    /// Nothing: another holder's lease has this long to go. Zero does not occur.
    Processing(Duration),
    /// Nothing: it has been done.
    Succeeded(Repeat),
}

impl Reserved {
    /// What a repeat gets of an event that ended like this.
    pub(super) fn of_end(state: ReceiptState, repeat: Repeat) -> Self {
        match state {
            ReceiptState::Succeeded => Self::Succeeded(repeat),
            _ => Self::DeadLetter(repeat),
        }
    }
}

/// Asks to take an event in, to be run later.
#[derive(Clone, Debug)]
pub struct Accept {
    /// Which receipt.
    pub key: ReceiptKey,
    /// The sender's id, as a label, where there is one.
    pub event_id: Option<EventId>,
    /// What the sender says that it belongs to, as a label, where it does. A receipt keeps that of the first delivery.
    pub correlation_id: Option<Name>,
    /// Digest of the body.
    pub body: Digest,
    /// What to do with a body that is not the one seen first under this key.
    pub other_body: OtherBody,
    /// What will be run.
    pub request: KeptRequest,
    /// Events of one source that share this run one by one, in the order in which they were first seen.
    pub ordering_key: Option<Name>,
    /// `Some`: keep it from being run until a person has looked at it, for this reason.
    pub quarantine: Option<String>,
}

/// What a caller of `accept` gets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Accepted {
    /// Nothing: the attempts are used up, or a handler gave the event up.
    DeadLetter(Repeat),
    /// It was there before, and has no end yet.
    Known,
    /// Nothing: the receipt was made for another body, and [`OtherBody::Refuse`] was asked for. This was counted.
    OtherBody,
    /// It is there now.
    Stored,
    /// Nothing: it has been done.
    Succeeded(Repeat),
}

impl Accepted {
    /// What a repeat gets of an event that ended like this.
    pub(super) fn of_end(state: ReceiptState, repeat: Repeat) -> Self {
        match state {
            ReceiptState::Succeeded => Self::Succeeded(repeat),
            _ => Self::DeadLetter(repeat),
        }
    }
}

/// Asks for events to run.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Whose events.
    pub consumer: Name,
    /// At most this many.
    pub limit: u32,
    /// For how long.
    pub lease: Duration,
    /// How many runs an event gets.
    pub max_attempts: u32,
    /// What to do with an event whose last run left no word.
    pub unclear: Unclear,
}

impl Claim {
    /// The most events that one claim gets.
    pub const MOST: u32 = 256;

    pub(super) fn most(&self) -> usize {
        usize::try_from(self.limit.min(Self::MOST)).unwrap_or(0)
    }
}

/// An event to run, and the right to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The right to run it.
    pub lease: Lease,
    /// The sender's id, where there is one.
    pub event_id: Option<EventId>,
    /// Digest of the body seen first.
    pub body: Digest,
    /// What is to be run.
    pub request: KeptRequest,
    /// When it was first delivered.
    pub first_seen: Timestamp,
}

/// The stored end of an event that is delivered again.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// How it was answered. `None` where no run lived to answer.
    pub result: Option<StoredResult>,
    /// Whether this delivery's body is the one seen first. Where it is not, this was counted.
    pub same_body: bool,
}

/// The right to run one event, as its holder names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which receipt.
    pub key: ReceiptKey,
    /// Drawn anew for each run.
    pub token: Token,
    /// Which run this is, from 1.
    pub attempt: u32,
}

/// A random number that proves who holds a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// Draws a token.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the operating system gives no random bytes.
    pub fn random() -> Result<Self, StoreError> {
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| StoreError::Unavailable {
            reason: "no random bytes for a lease".into(),
            source: Some(Box::new(error)),
        })?;
        Ok(Self(token))
    }

    /// A token that was stored before.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Hidden: who knows the token can settle the lease.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whether a `complete`, `fail`, `renew` or `release` took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Settled {
    /// It did.
    Done,
    /// The lease had run out and another holder took over, or the receipt is gone: nothing was changed.
    LeaseLost,
}

/// How an event was answered: what a repeat gets.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredResult {
    /// The status.
    pub status: StatusCode,
    /// The headers that are worth repeating, in order, byte for byte.
    pub headers: HeaderMap,
    /// The body.
    pub body: ResultBody,
}

impl StoredResult {
    /// What repeats get of an event that an operator has concluded: a few senders take nothing but 200.
    pub(super) fn concluded() -> Self {
        Self { status: StatusCode::OK, headers: HeaderMap::new(), body: ResultBody::Kept(Bytes::new()) }
    }
}

/// The body of a [`StoredResult`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultBody {
    /// All of it.
    Kept(Bytes),
    /// It was over the limit, or has been purged: a repeat gets the status and no body.
    Omitted,
}

/// How a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What happened, for operators. At most [`Failure::MAX_ERROR_BYTES`] are kept.
    pub error: String,
    /// How it was answered, where it was.
    pub result: Option<StoredResult>,
    /// `Some`: do not run it again, for this reason. It is a dead letter.
    pub dead: Option<String>,
    /// The request, kept so that it can be run without the sender.
    pub request: Option<KeptRequest>,
    /// When a processor may run it again, from now. `None`: that is left to the next delivery.
    pub retry_in: Option<Duration>,
}

impl Failure {
    /// How much of an error's or a reason's text a store keeps, in bytes; it is cut at the end of a character.
    pub const MAX_ERROR_BYTES: usize = 1_024;

    /// How many failed runs are remembered for one receipt: the last ones.
    pub const MAX_KEPT: usize = 50;
}

/// A request as it was received.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRequest {
    /// The method.
    pub method: http::Method,
    /// Path and query.
    pub target: String,
    /// The headers that were allowed to be kept.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
    /// What the check of its signature showed, as the receiver writes it down. A store keeps it and does not read it.
    pub proof: String,
}
