//! The inbox: what every store promises to the receiver.
//!
//! ```text
//! absent ──reserve──▶ processing(token, lease, attempt) ──complete──▶ succeeded(result) ──purge──▶ absent
//!    ▲                  │  ▲  └─fail──▶ failed(error) ──reserve──▶ processing
//!    │                  │  └── reserve after the lease: new token, attempt + 1
//!  forget               └─fail with a reason, or attempts used up──▶ dead_letter ──retry──▶ failed
//! ```
//!
//! One receipt for each [`ReceiptKey`]. `reserve` is the only way into `processing`, and hands out a random token;
//! `complete`, `fail` and `renew` name that token and change nothing once another holder has taken the receipt over.
//! The promises are spelled out, one test each, in `conformance` (feature `test-util`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::StoreError;
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

    /// Ends a run in success, and keeps its result. Durable when it returns.
    ///
    /// The kept request, the error and the reason go; the failures of earlier runs stay. A lease that has run out
    /// still completes as long as nobody took it over: the work was done, and running it again would help nobody.
    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled>;

    /// Ends a run in failure: the next delivery runs the event again, or it is a dead letter.
    ///
    /// A failure without an answer or a request leaves those that an earlier run left. Of the failures of one receipt
    /// the last [`Failure::MAX_KEPT`] are kept.
    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled>;

    /// Holds the right to run for another `span`, counted from now by the store's clock. A lease that has run out is
    /// renewed too, as long as nobody took it over.
    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled>;

    /// The receipt with this key, with its result, its kept request and its failures.
    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>>;

    /// Receipts, those whose state changed last first; of those that changed at once, the younger first.
    ///
    /// They come without bodies ([`ResultBody::Omitted`]), kept requests and failures. One that cannot be read is left
    /// out, and named in the log.
    fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>>;

    /// Gives a dead letter another chance: it becomes `failed` with all its attempts before it, and the next delivery
    /// runs it. `None` where there is no such receipt, else the state that it has now.
    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>>;

    /// Removes a receipt, whatever its state, so that the next delivery is a first one. `false` where there is none.
    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool>;

    /// Removes what has reached its age, at most `limit` receipts' results and `limit` receipts in one call.
    ///
    /// Only `succeeded` and `failed` receipts age, from their last change of state; the oldest go first. One that waits,
    /// is being processed or is a dead letter stays. Reservations go on meanwhile: a store purges in small steps, each of
    /// them whole, and a purge that is dropped has done some of them.
    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged>;

    /// Does nothing, durably: fails where a reservation would fail for want of the store.
    fn check(&self) -> StoreFuture<'_, ()>;
}

/// A store that is shared is a store.
impl<S: InboxStore + ?Sized> InboxStore for Arc<S> {
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
        (**self).reserve(request)
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

    fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>> {
        (**self).list(filter)
    }

    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        (**self).retry(key)
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
    /// Digest of the body.
    pub body: Digest,
    /// For how long.
    pub lease: Duration,
    /// How many runs an event gets; the first one is always allowed. An event whose runs are used up, by crashes too,
    /// becomes a dead letter here.
    pub max_attempts: u32,
    /// What to do with a body that is not the one seen first under this key.
    pub other_body: OtherBody,
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
    /// Drawn anew for each reservation.
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

/// Whether a `complete`, `fail` or `renew` took effect.
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
}

/// The states of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReceiptState {
    /// Given up, for a reason; waits for an operator.
    DeadLetter,
    /// The last run failed; the next delivery runs it again.
    Failed,
    /// Somebody runs it, or died doing so.
    Processing,
    /// Stored, not yet run.
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
    /// Where it stands.
    pub state: ReceiptState,
    /// Runs begun since it was first seen, or since an operator last retried it.
    pub attempts: u32,
    /// When the first delivery was reserved.
    pub first_seen: Timestamp,
    /// When its state last changed. Renewing a lease and counting other bodies are no such change.
    pub updated: Timestamp,
    /// Until when its holder may run it, while it is processing.
    pub lease_until: Option<Timestamp>,
    /// Digest of the body seen first.
    pub body: Digest,
    /// Deliveries under this key that had another body.
    pub other_bodies: u64,
    /// The last answer that a run gave.
    pub result: Option<StoredResult>,
    /// What last went wrong, until it succeeds.
    pub error: Option<String>,
    /// Why it is a dead letter.
    pub reason: Option<String>,
    /// The request, where it was kept.
    pub request: Option<KeptRequest>,
    /// The runs that failed, oldest first.
    pub failures: Vec<FailedRun>,
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
    /// Only those in this state.
    pub state: Option<ReceiptState>,
    /// At most this many. 100 by default.
    pub limit: u32,
}

impl Default for ListFilter {
    fn default() -> Self {
        Self { consumer: None, source: None, key: None, state: None, limit: 100 }
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
