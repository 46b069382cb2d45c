//! What a database brings to the inbox: one statement for each thing that the writer does.
//!
//! The writer, and what a batch of calls means, stand above this and exist once. Below it are SQL and the shapes in which
//! a driver takes rows.

use std::future::Future;

use super::row::{Due, Known};
use super::transactor::{Done, Transactor};
use crate::store::{
    Accept, FailedRun, Lease, Purged, ReceiptKey, ReceiptState, Reserve, StoreError, StoredResult, Token,
};
use crate::{Digest, Name, Timestamp};

/// What the inbox asks of a connection. Rows come in the order of their keys, which is the order in which they are locked.
pub(super) trait Database: Transactor {
    /// Makes the receipts that do not exist yet. Says of each whether it was made; `false` where that is not certain.
    fn insert(&mut self, rows: &[Fresh<'_>], now: Timestamp) -> impl Future<Output = Done<Vec<bool>>> + Send;

    /// Ends runs in success and makes receipts outside of any transaction, durably. `None`: nothing was done, since this
    /// database cannot, or not now.
    fn at_once(
        &mut self,
        _ends: &[(&Lease, &StoredResult)],
        _fresh: &[(&Reserve, Token)],
    ) -> impl Future<Output = Done<Option<AtOnce>>> + Send {
        std::future::ready(Ok(None))
    }

    /// What is known of these receipts. With `lock`, those that another transaction has in hand are passed over, and the
    /// others are locked.
    fn standings(&mut self, keys: &[&ReceiptKey], lock: bool) -> impl Future<Output = Done<Vec<Found>>> + Send;

    /// Waits until nobody else takes in events whose ordering keys are among these, and keeps all others waiting until the
    /// commit. They are sorted.
    fn take_turns(&mut self, turns: &[Digest]) -> impl Future<Output = Done> + Send;

    /// Takes in events that are not known yet. Says of each whether its receipt was made; `false` where that is not
    /// certain.
    fn accept(&mut self, rows: &[&Accept], now: Timestamp) -> impl Future<Output = Done<Vec<bool>>> + Send;

    /// Makes a known receipt one that is owed, or puts it into quarantine.
    fn owe(&mut self, owed: &Owed<'_>, now: Timestamp) -> impl Future<Output = Done> + Send;

    /// What this consumer may claim, the longest due first. It is locked; what others have locked is passed over.
    fn due(&mut self, consumer: &Name, most: usize, now: Timestamp)
    -> impl Future<Output = Done<Vec<FoundDue>>> + Send;

    /// Gives a run back, uncounted. Whether its lease was held.
    fn release(&mut self, lease: &Lease, now: Timestamp) -> impl Future<Output = Done<bool>> + Send;

    /// Gives a known receipt to a new holder.
    fn take_over(&mut self, run: &Takeover, now: Timestamp) -> impl Future<Output = Done> + Send;

    /// Makes a known receipt a dead letter.
    fn bury(&mut self, id: i64, reason: &str, now: Timestamp) -> impl Future<Output = Done> + Send;

    /// May be left undone where another transaction has the receipt in hand.
    fn count_other_body(&mut self, id: i64) -> impl Future<Output = Done> + Send;

    /// Adds a run to the history of a receipt, shows its error as the last one, and drops what is beyond the bound.
    fn note_failure(&mut self, id: i64, run: &FailedRun) -> impl Future<Output = Done> + Send;

    /// Moves the ends of leases, except where another transaction has the receipt in hand. Says of each whether it was
    /// held.
    fn renew(&mut self, leases: &[(&Lease, Timestamp)]) -> impl Future<Output = Done<Vec<bool>>> + Send;

    /// Ends runs in success. Says of each whether its lease was held.
    fn complete(
        &mut self,
        ends: &[(&Lease, &StoredResult)],
        now: Timestamp,
    ) -> impl Future<Output = Done<Vec<bool>>> + Send;

    /// Ends a run in failure. `None` where its lease was not held; else the receipt's id and attempts.
    fn fail(&mut self, end: &FailedEnd<'_>, now: Timestamp) -> impl Future<Output = Done<Option<(i64, u32)>>> + Send;

    /// Whether this lease's run was the last one that came to an end. Asked only after a commit whose answer was lost; a
    /// database that always answers says `false`.
    fn ended(&mut self, lease: &Lease) -> impl Future<Output = Done<bool>> + Send;

    /// Gives a dead letter another chance. The state that the receipt has now, where there is one.
    fn retry(
        &mut self,
        key: &ReceiptKey,
        now: Timestamp,
    ) -> impl Future<Output = Done<Option<Result<ReceiptState, StoreError>>>> + Send;

    /// Ends a dead letter as succeeded. The state that the receipt has now, where there is one.
    fn conclude(
        &mut self,
        key: &ReceiptKey,
        now: Timestamp,
    ) -> impl Future<Output = Done<Option<Result<ReceiptState, StoreError>>>> + Send;

    /// Removes a receipt with its history. Whether there was one.
    fn forget(&mut self, key: &ReceiptKey) -> impl Future<Output = Done<bool>> + Send;

    /// Removes what has not changed since then, the oldest first. Nothing, where another process is doing the same.
    fn purge(&mut self, aged: &Aged) -> impl Future<Output = Done<Purged>> + Send;

    /// Writes something that means nothing.
    fn check(&mut self, now: Timestamp) -> impl Future<Output = Done> + Send;
}

/// Which runs were ended, and which receipts made.
#[derive(Debug)]
pub(super) struct AtOnce {
    pub(super) ended: Vec<bool>,
    pub(super) made: Vec<bool>,
}

/// A receipt to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh<'a> {
    pub(super) request: &'a Reserve,
    pub(super) token: Token,
    pub(super) lease_until: Timestamp,
}

/// A receipt that exists: its place among those asked for, and what is known of it or why its row cannot be read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: usize,
    pub(super) known: Result<Known, String>,
}

/// The next run of a known receipt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Takeover {
    pub(super) id: i64,
    pub(super) token: Token,
    pub(super) lease_until: Timestamp,
    pub(super) attempts: u32,
    /// `Some`: it is owed.
    pub(super) due: Option<Timestamp>,
}

/// A known receipt that somebody accepted.
#[derive(Debug)]
pub(super) struct Owed<'a> {
    pub(super) id: i64,
    pub(super) state: ReceiptState,
    /// `None`: in quarantine.
    pub(super) due: Option<Timestamp>,
    /// Why it is in quarantine.
    pub(super) reason: Option<String>,
    pub(super) ordering_key: Option<&'a Name>,
    pub(super) request: StoredRequest<'a>,
}

/// A receipt that is due, or why its row cannot be read.
#[derive(Debug)]
pub(super) struct FoundDue {
    pub(super) id: i64,
    pub(super) due: Result<Due, String>,
}

/// A run that failed, as it is stored. What is `None` here stays as an earlier run left it.
#[derive(Debug)]
pub(super) struct FailedEnd<'a> {
    pub(super) lease: &'a Lease,
    pub(super) reason: Option<String>,
    pub(super) answer: Option<StoredAnswer<'a>>,
    pub(super) request: Option<StoredRequest<'a>>,
    /// When it is due. `None`: at once where it is owed, else never.
    pub(super) due: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct StoredAnswer<'a> {
    pub(super) status: u16,
    pub(super) headers: Vec<u8>,
    pub(super) body: Option<&'a [u8]>,
}

#[derive(Debug)]
pub(super) struct StoredRequest<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    pub(super) headers: Vec<u8>,
    pub(super) body: &'a [u8],
    pub(super) proof: &'a str,
}

/// What one small step of a purge removes at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aged {
    pub(super) keys_before: Timestamp,
    pub(super) keys: u32,
    pub(super) results_before: Timestamp,
    pub(super) results: u32,
}
