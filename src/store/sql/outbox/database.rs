//! What a database brings to the outbox: one statement for each thing that the writer does.

use std::future::Future;
use std::time::Duration;

use super::super::transactor::{Done, Transactor};
use super::call::Selection;
use super::enqueue::Inserts;
use super::row::{Due, Unreadable};
use crate::store::delivery::Health;
use crate::store::{
    Attempt, AttemptReport, Endpoint, EndpointEntry, MessageKey, MessageLease, MessageState, StoreError, Token,
};
use crate::{EventId, Name, Timestamp};

/// What the outbox asks of a connection. Rows come in the order of their numbers, which is the order in which they are
/// locked; endpoints after messages, in the order of their names. Only where messages are made, and where their endpoint is
/// removed, it comes first: there each has to wait for the other.
pub(in crate::store::sql) trait Database: Transactor {
    /// How it takes new messages in: the same way as a connection of the caller's.
    type Inserts<'a>: Inserts
    where
        Self: 'a;

    fn inserts(&mut self, now: Timestamp) -> Done<Self::Inserts<'_>>;

    /// The endpoints with these names, by name. With `lock` nobody else changes them before the commit.
    fn endpoints(&mut self, names: &[&Name], lock: bool) -> impl Future<Output = Done<Vec<FoundEndpoint>>> + Send;

    /// Makes the endpoint, or gives the one that is there these settings.
    fn put_endpoint(&mut self, endpoint: &Endpoint, now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Notes how an endpoint is doing. `updated` is when it was changed, where this is a change.
    fn set_health(
        &mut self,
        name: &Name,
        health: &Health,
        updated: Option<Timestamp>,
    ) -> impl Future<Output = Done> + Send;

    /// Removes an endpoint: from here on nobody enqueues for it. Whether there was one.
    fn remove_endpoint(&mut self, name: &Name) -> impl Future<Output = Done<bool>> + Send;

    /// Whether more messages than so many have no end, of an endpoint.
    fn has_more_than(&mut self, endpoint: &Name, most: u32) -> impl Future<Output = Done<bool>> + Send;

    /// Makes messages of an endpoint that have no end dead letters for this reason, at most so many. How many there were.
    fn bury_all(
        &mut self,
        endpoint: &Name,
        reason: &str,
        most: u32,
        now: Timestamp,
    ) -> impl Future<Output = Done<u64>> + Send;

    /// Endpoints that have something to look at, at most so many, drawn by lot, without these.
    fn ready(&mut self, without: &[&Name], most: u32, now: Timestamp) -> impl Future<Output = Done<Vec<Ready>>> + Send;

    /// What there is to look at of each share, the longest due first. It is locked; what others have locked is passed
    /// over.
    fn take(&mut self, shares: &[Share<'_>], now: Timestamp) -> impl Future<Output = Done<Vec<FoundDue>>> + Send;

    /// What stands before each of these messages in its ordering key.
    fn ahead(&mut self, ids: &[i64], now: Timestamp) -> impl Future<Output = Done<Vec<FoundAhead>>> + Send;

    /// Locks messages that hold others up, and still do, and says how: whether they have no end yet. Those that others have
    /// in hand are passed over.
    fn lock_heads(&mut self, ids: &[i64]) -> impl Future<Output = Done<Vec<Head>>> + Send;

    /// Has claims look later at these messages, and at some of those that wait behind them: as long again as they have
    /// waited, within [`POSTPONE`].
    fn postpone(&mut self, held_up: &[HeldUp<'_>], now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Has claims look at the first message of each of these orders at once.
    fn promote(&mut self, orders: &[(&Name, &Name)]) -> impl Future<Output = Done> + Send;

    /// Has claims look at postponed messages of an endpoint when they are due, at most so many. How many there were.
    fn promote_all(&mut self, endpoint: &Name, most: u32) -> impl Future<Output = Done<u64>> + Send;

    /// Makes what is pending behind a message in its order dead letters, for this reason: at most [`PARK_AT_ONCE`]. A claim
    /// that meets the others does the same with them.
    fn park(
        &mut self,
        id: i64,
        order: (&Name, &Name),
        reason: &str,
        now: Timestamp,
    ) -> impl Future<Output = Done> + Send;

    /// Gives messages to new holders until then. Returns what they bring, by number.
    fn take_over(
        &mut self,
        runs: &[Takeover],
        until: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Done<Vec<(i64, Vec<u8>)>>> + Send;

    /// Makes messages dead letters.
    fn bury(&mut self, burials: &[Burial], now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Adds attempts to the histories of their messages, and drops what is beyond the bound.
    fn note(&mut self, notes: &[Note], now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Moves the ends of leases. Says of each whether it was held.
    fn renew(&mut self, leases: &[(&MessageLease, Timestamp)]) -> impl Future<Output = Done<Vec<bool>>> + Send;

    /// Ends attempts. `None` for those whose lease was not held.
    fn end(&mut self, ends: &[Ending<'_>], now: Timestamp) -> impl Future<Output = Done<Vec<Option<Ended>>>> + Send;

    /// Whether this lease's attempt was the last one of its message that came to an end. Asked only after a commit whose
    /// answer was lost; a database that always answers says `false`.
    fn ended(&mut self, lease: &MessageLease) -> impl Future<Output = Done<bool>> + Send;

    /// The oldest messages of a selection, in one of these states, and whose endpoint is there if it must be. Nobody else
    /// changes them before the commit. `None` for one that cannot be read.
    fn select(
        &mut self,
        selection: &Selection,
        states: &[MessageState],
        must_have_endpoint: bool,
    ) -> impl Future<Output = Done<Vec<(i64, Option<FoundMessage>)>>> + Send;

    /// Makes messages pending again, with all their attempts before them, each due at its time.
    fn replay(&mut self, ids: &[(i64, Timestamp)], now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Takes messages back, for this reason.
    fn cancel(&mut self, ids: &[i64], reason: &str, now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Writes something that means nothing, so that a full or failing disk shows.
    fn check(&mut self, now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Removes messages in these states that have not changed since then, the oldest first, at most so many, and their
    /// attempts. Returns each one's order.
    fn purge(&mut self, aged: &Aged, most: u32) -> impl Future<Output = Done<Vec<Option<Order>>>> + Send;
}

/// The shortest and the longest time for which a message is postponed that is held up.
pub(in crate::store::sql) const POSTPONE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// How many messages behind one that is held up are postponed with it.
pub(in crate::store::sql) const POSTPONE_BEHIND: u32 = 1_000;

/// How many messages one that is dead takes along within its own transaction.
pub(in crate::store::sql) const PARK_AT_ONCE: u32 = 1_000;

/// An endpoint, or why its row cannot be read.
#[derive(Debug)]
pub(in crate::store::sql) struct FoundEndpoint {
    pub(in crate::store::sql) name: String,
    pub(in crate::store::sql) entry: Result<EndpointEntry, StoreError>,
}

/// An endpoint, and in which lanes it has something to look at.
#[derive(Debug)]
pub(in crate::store::sql) struct Ready {
    pub(in crate::store::sql) endpoint: FoundEndpoint,
    pub(in crate::store::sql) lanes: [bool; 3],
}

/// The lanes in which the messages of an endpoint wait, as the table numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::sql) enum Lane {
    /// Never tried.
    Fresh,
    Tried,
    /// Held up by their ordering key when they were last looked at.
    HeldUp,
}

/// How many messages to take of an endpoint's lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct Share<'a> {
    pub(in crate::store::sql) endpoint: &'a Name,
    pub(in crate::store::sql) lane: Lane,
    pub(in crate::store::sql) most: u32,
}

/// A message whose time has come, or why its row cannot be read, and of which share it is.
#[derive(Debug)]
pub(in crate::store::sql) struct FoundDue {
    pub(in crate::store::sql) share: usize,
    pub(in crate::store::sql) id: i64,
    /// How many attempts have been noted.
    pub(in crate::store::sql) noted: i64,
    pub(in crate::store::sql) due: Result<Due, Unreadable>,
}

/// What stands before a message in its order.
#[derive(Debug)]
pub(in crate::store::sql) struct FoundAhead {
    pub(in crate::store::sql) id: i64,
    /// One that has no end.
    pub(in crate::store::sql) open: Option<i64>,
    /// The first one that is a dead letter or failed, by number and by id.
    pub(in crate::store::sql) ended: Option<(i64, String)>,
}

/// A message that holds others up.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct Head {
    pub(in crate::store::sql) id: i64,
    /// It has no end yet.
    pub(in crate::store::sql) is_open: bool,
}

/// A message that is held up, and the order that it has.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct HeldUp<'a> {
    pub(in crate::store::sql) id: i64,
    pub(in crate::store::sql) endpoint: &'a Name,
    pub(in crate::store::sql) ordering_key: &'a Name,
}

/// The next attempt of a message.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct Takeover {
    pub(in crate::store::sql) id: i64,
    pub(in crate::store::sql) token: Token,
    /// The last attempt left no word.
    pub(in crate::store::sql) lapsed: bool,
}

/// A message that will not be delivered.
#[derive(Debug)]
pub(in crate::store::sql) struct Burial {
    pub(in crate::store::sql) id: i64,
    pub(in crate::store::sql) reason: String,
    /// The last attempt left no word.
    pub(in crate::store::sql) lapsed: bool,
}

/// An attempt to be noted.
#[derive(Debug)]
pub(in crate::store::sql) struct Note {
    pub(in crate::store::sql) message: i64,
    pub(in crate::store::sql) seq: i64,
    pub(in crate::store::sql) replay: u32,
    pub(in crate::store::sql) number: u32,
    pub(in crate::store::sql) report: AttemptReport,
}

/// The end of an attempt.
#[derive(Debug)]
pub(in crate::store::sql) struct Ending<'a> {
    pub(in crate::store::sql) lease: &'a MessageLease,
    pub(in crate::store::sql) state: MessageState,
    pub(in crate::store::sql) due: Option<Timestamp>,
    pub(in crate::store::sql) reason: Option<String>,
    /// Whether the attempt is taken out of the count.
    pub(in crate::store::sql) uncounted: bool,
    /// Whether it is noted in the message's history.
    pub(in crate::store::sql) noted: bool,
    pub(in crate::store::sql) status: Option<u16>,
    pub(in crate::store::sql) error: Option<&'a str>,
}

/// A message whose attempt has ended.
#[derive(Debug)]
pub(in crate::store::sql) struct Ended {
    pub(in crate::store::sql) replays: u32,
    /// How many attempts have been noted, with this one.
    pub(in crate::store::sql) noted: i64,
    pub(in crate::store::sql) ordering_key: Option<Name>,
}

/// A message that fits a selection.
#[derive(Debug)]
pub(in crate::store::sql) struct FoundMessage {
    pub(in crate::store::sql) id: i64,
    pub(in crate::store::sql) key: MessageKey,
    pub(in crate::store::sql) ordering_key: Option<Name>,
}

/// What has reached its age.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct Aged {
    /// Those that succeeded or were cancelled.
    pub(in crate::store::sql) done: Timestamp,
    /// Dead letters and failed ones. `None`: never.
    pub(in crate::store::sql) dead: Option<Timestamp>,
}

/// The order of a message: its endpoint, and its ordering key.
pub(in crate::store::sql) type Order = (Name, Name);

/// The id of a message that stands ahead.
pub(super) fn id_of(ahead: &FoundAhead) -> Option<(i64, EventId)> {
    let (number, id) = ahead.ended.as_ref()?;
    // One that cannot be read has been buried; it holds up all the same, by whatever name it can be given.
    let id = EventId::new(id).or_else(|_| EventId::new(&format!("row {number}"))).ok()?;
    Some((*number, id))
}

impl Note {
    /// The number of the last attempt of its message that is beyond the bound.
    pub(in crate::store::sql) fn surplus(&self) -> Option<(i64, i64)> {
        let most = i64::try_from(Attempt::MAX_KEPT).unwrap_or(i64::MAX);
        let last = self.seq.saturating_sub(most);
        (last > 0).then_some((self.message, last))
    }
}

impl Lane {
    pub(in crate::store::sql) const fn number(self) -> i64 {
        match self {
            Self::Fresh => 0,
            Self::Tried => 1,
            Self::HeldUp => 2,
        }
    }
}

/// A span as the tables hold it.
pub(in crate::store::sql) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
