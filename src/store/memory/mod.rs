//! A store in memory: for tests, and to read what a store does without SQL in the way.

#[cfg(feature = "send")]
mod claim;
#[cfg(feature = "send")]
mod message;
#[cfg(feature = "send")]
mod outbox;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::admission::{self, Acceptance, Admission, Standing};
use super::{
    Accept, Accepted, Claim, Claimed, Cursor, FailedRun, Failure, InboxStore, Keys, Lease, ListFilter, Page, Purged,
    Receipt, ReceiptKey, ReceiptState, Repeat, Reserve, Reserved, ResultBody, Retention, Settled, StoreError,
    StoreFuture, StoredResult, Token,
};
use crate::{Clock, Digest, EventId, Name, SystemClock, Timestamp};

/// A store that lives and ends with its process: after a restart every event is a first one.
///
/// Clones share their receipts and messages. Nothing is removed but by `purge`, `forget` and `purge_messages`, so memory
/// grows with the number of events; use it for tests and for trying things out.
///
/// ```
/// # use countersign::store::{InboxStore, MemoryStore};
/// # tokio_test(async {
/// let store = MemoryStore::new();
/// store.check().await.unwrap();
/// # });
/// # fn tokio_test(run: impl Future<Output = ()>) {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    table: Arc<Mutex<Table>>,
    #[cfg(feature = "send")]
    outbox: Arc<Mutex<outbox::Outbox>>,
    #[cfg(feature = "send")]
    wake: Arc<tokio::sync::Notify>,
}

impl MemoryStore {
    /// An empty store that goes by the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// An empty store that goes by this clock.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            table: Arc::default(),
            #[cfg(feature = "send")]
            outbox: Arc::default(),
            #[cfg(feature = "send")]
            wake: Arc::default(),
        }
    }

    /// A panic elsewhere does not matter: no method of [`Table`] can stop half-way, so what the lock guards is whole.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl InboxStore for MemoryStore {
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
        Box::pin(async move {
            let token = Token::random()?;
            let mut table = self.table();
            Ok(table.reserve(request, token, self.clock.now()))
        })
    }

    fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
        Box::pin(async move { Ok(self.table().accept(request, self.clock.now())) })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        Box::pin(async move { self.table().claim(&claim, self.clock.now()) })
    }

    fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
        Box::pin(async move { Ok(self.table().release(&lease, self.clock.now())) })
    }

    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
        Box::pin(async move { Ok(self.table().complete(&lease, result, self.clock.now())) })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
        Box::pin(async move { Ok(self.table().fail(&lease, failure, self.clock.now())) })
    }

    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
        Box::pin(async move {
            let mut table = self.table();
            let Some(row) = table.held(&lease) else { return Ok(Settled::LeaseLost) };
            let until = self.clock.now().saturating_add(span);
            row.receipt.lease_until = Some(until);
            row.receipt.due = row.receipt.due.map(|_| until);
            Ok(Settled::Done)
        })
    }

    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
        Box::pin(async move { Ok(self.table().rows.get(&key).map(|row| row.receipt.clone())) })
    }

    fn page(&self, filter: ListFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<Receipt>> {
        Box::pin(async move { Ok(self.table().page(&filter, after)) })
    }

    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        Box::pin(async move { Ok(self.table().retry(&key, self.clock.now())) })
    }

    fn conclude(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        Box::pin(async move { Ok(self.table().conclude(&key, self.clock.now())) })
    }

    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
        Box::pin(async move { Ok(self.table().rows.remove(&key).is_some()) })
    }

    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
        Box::pin(async move { Ok(self.table().purge(retention, limit, self.clock.now())) })
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn oldest_due(&self, consumer: Name) -> StoreFuture<'_, Option<Duration>> {
        Box::pin(async move { Ok(self.table().oldest_due(&consumer, self.clock.now())) })
    }

    fn keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<ReceiptKey>> {
        Box::pin(async move { Ok(self.table().keys(from, limit)) })
    }
}

#[derive(Debug, Default)]
struct Table {
    rows: HashMap<ReceiptKey, Row>,
    /// How many rows there ever were: the age of the next one.
    next: u64,
}

#[derive(Debug)]
struct Row {
    /// In the order of first reservations; breaks ties between equal times.
    id: u64,
    token: Option<Token>,
    receipt: Receipt,
}

impl Table {
    fn reserve(&mut self, request: Reserve, token: Token, now: Timestamp) -> Reserved {
        let Some(row) = self.rows.get_mut(&request.key) else {
            return Reserved::Acquired(self.insert(request, token, now));
        };
        match row.standing().admit(&request, token, now) {
            Admission::Held => Reserved::Acquired(row.lease(token)),
            Admission::Wait(remaining) => Reserved::Processing(remaining),
            Admission::Refuse => {
                row.count(true);
                Reserved::OtherBody
            }
            Admission::Repeat { other_body } => {
                row.count(other_body);
                Reserved::of_end(row.receipt.state, row.repeat(other_body))
            }
            Admission::TakeOver { lapsed, other_body } => {
                row.note_lapse(lapsed, now);
                row.count(other_body);
                Reserved::Acquired(row.begin(token, now.saturating_add(request.lease), now))
            }
            Admission::Bury { lapsed, other_body, reason } => {
                row.note_lapse(lapsed, now);
                row.count(other_body);
                row.bury(reason, now);
                Reserved::of_end(row.receipt.state, row.repeat(other_body))
            }
        }
    }

    fn insert(&mut self, request: Reserve, token: Token, now: Timestamp) -> Lease {
        let mut row = self.row(Receipt::new(request.key, request.event_id, request.correlation_id, request.body, now));
        let lease = row.begin(token, now.saturating_add(request.lease), now);
        self.rows.insert(lease.key.clone(), row);
        lease
    }

    fn row(&mut self, receipt: Receipt) -> Row {
        let row = Row { id: self.next, token: None, receipt };
        self.next += 1;
        row
    }

    fn accept(&mut self, request: Accept, now: Timestamp) -> Accepted {
        let Some(row) = self.rows.get_mut(&request.key) else {
            let Accept { key, event_id, correlation_id, body, .. } = request.clone();
            let mut row = self.row(Receipt::new(key, event_id, correlation_id, body, now));
            let due = request.quarantine.is_none().then_some(now);
            row.owe(request, ReceiptState::Received, due);
            self.rows.insert(row.receipt.key.clone(), row);
            return Accepted::Stored;
        };
        match row.standing().accept(&request, now) {
            Acceptance::Known { other_body } => row.count(other_body),
            Acceptance::Owe { state, due, other_body } => {
                row.count(other_body);
                row.owe(request, state, due);
                if state != ReceiptState::Processing {
                    row.receipt.updated = now;
                }
            }
            Acceptance::Refuse => {
                row.count(true);
                return Accepted::OtherBody;
            }
            Acceptance::Repeat { other_body } => {
                row.count(other_body);
                return Accepted::of_end(row.receipt.state, row.repeat(other_body));
            }
        }
        Accepted::Known
    }

    fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = Vec::new();
        while claimed.len() < claim.most() {
            let Some(key) = self.longest_due(&claim.consumer, now) else { break };
            let Some(row) = self.rows.get_mut(&key) else { break };
            match row.standing().claim(claim) {
                Admission::Bury { lapsed, reason, .. } => {
                    row.note_lapse(lapsed, now);
                    row.bury(reason, now);
                }
                Admission::TakeOver { lapsed, .. } => {
                    let token = Token::random()?;
                    row.note_lapse(lapsed, now);
                    let lease = row.begin(token, now.saturating_add(claim.lease), now);
                    claimed.extend(row.claimed(lease));
                }
                _ => break,
            }
        }
        Ok(claimed)
    }

    /// The first that may be claimed. What is owed and was seen earlier holds up what has the same ordering key.
    fn longest_due(&self, consumer: &Name, now: Timestamp) -> Option<ReceiptKey> {
        let owed =
            || self.rows.values().filter(|row| row.receipt.key.consumer == *consumer && row.receipt.due.is_some());
        let held_up = |row: &Row| {
            row.receipt.ordering_key.is_some()
                && owed().any(|other| {
                    other.id < row.id
                        && other.receipt.key.source == row.receipt.key.source
                        && other.receipt.ordering_key == row.receipt.ordering_key
                })
        };
        owed()
            .filter(|row| row.receipt.due.is_some_and(|due| due <= now) && !held_up(row))
            .min_by_key(|row| (row.receipt.due, row.id))
            .map(|row| row.receipt.key.clone())
    }

    fn oldest_due(&self, consumer: &Name, now: Timestamp) -> Option<Duration> {
        let receipts = self.rows.values().map(|row| &row.receipt).filter(|receipt| receipt.key.consumer == *consumer);
        let oldest = receipts.filter_map(|receipt| receipt.due).min();
        oldest.filter(|due| *due <= now).map(|due| now.saturating_since(due))
    }

    fn keys(&self, from: u64, limit: u32) -> Keys<ReceiptKey> {
        let rows = self.rows.values().filter(|row| row.id >= from).map(|row| (row.id, Some(row.receipt.key.clone())));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Keys::of_rows(rows, limit)
    }

    fn release(&mut self, lease: &Lease, now: Timestamp) -> Settled {
        let Some(row) = self.held(lease) else { return Settled::LeaseLost };
        let due = row.receipt.due.map(|_| now);
        let fresh = due.is_some() && row.receipt.error.is_none();
        row.receipt.attempts = row.receipt.attempts.saturating_sub(1);
        row.enter(if fresh { ReceiptState::Received } else { ReceiptState::Failed }, now);
        row.receipt.due = due;
        Settled::Done
    }

    fn complete(&mut self, lease: &Lease, result: StoredResult, now: Timestamp) -> Settled {
        let Some(row) = self.held(lease) else { return Settled::LeaseLost };
        row.succeed(result, now);
        Settled::Done
    }

    fn fail(&mut self, lease: &Lease, failure: Failure, now: Timestamp) -> Settled {
        let Some(row) = self.held(lease) else { return Settled::LeaseLost };
        let status = failure.result.as_ref().map(|result| result.status);
        row.note_failure(FailedRun {
            attempt: row.receipt.attempts,
            at: now,
            status,
            error: admission::kept_text(&failure.error),
        });
        row.receipt.result = failure.result.or_else(|| row.receipt.result.take());
        row.receipt.request = failure.request.or_else(|| row.receipt.request.take());
        if let Some(reason) = &failure.dead {
            row.bury(admission::kept_text(reason), now);
            return Settled::Done;
        }
        let owed = failure.retry_in.or_else(|| row.receipt.due.map(|_| Duration::ZERO));
        row.enter(ReceiptState::Failed, now);
        row.receipt.due = owed.filter(|_| row.receipt.request.is_some()).map(|wait| now.saturating_add(wait));
        Settled::Done
    }

    fn retry(&mut self, key: &ReceiptKey, now: Timestamp) -> Option<ReceiptState> {
        let row = self.rows.get_mut(key)?;
        let due = row.receipt.request.as_ref().map(|_| now);
        match row.receipt.state {
            ReceiptState::DeadLetter => {
                row.receipt.attempts = 0;
                row.receipt.reason = None;
                row.enter(ReceiptState::Failed, now);
                row.receipt.due = due;
            }
            ReceiptState::Failed => row.receipt.due = due,
            ReceiptState::Received if row.receipt.quarantined => {
                row.receipt.quarantined = false;
                row.receipt.reason = None;
                row.receipt.updated = now;
                row.receipt.due = due;
            }
            ReceiptState::Processing | ReceiptState::Received | ReceiptState::Succeeded => {}
        }
        Some(row.receipt.state)
    }

    fn conclude(&mut self, key: &ReceiptKey, now: Timestamp) -> Option<ReceiptState> {
        let row = self.rows.get_mut(key)?;
        if row.receipt.state == ReceiptState::DeadLetter {
            row.receipt.reason = None;
            row.succeed(StoredResult::concluded(), now);
        }
        Some(row.receipt.state)
    }

    fn page(&self, filter: &ListFilter, after: Option<Cursor>) -> Page<Receipt> {
        let place = |row: &Row| Cursor::new(row.receipt.updated, i64::try_from(row.id).unwrap_or(i64::MAX));
        let mut rows: Vec<&Row> = self.rows.values().filter(|row| row.receipt.passes(filter)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
        let rows = rows.into_iter().map(|row| (place(row), row.receipt.without_contents()));
        Page::of_rows(rows, after, filter.limit)
    }

    fn purge(&mut self, retention: Retention, limit: u32, now: Timestamp) -> Purged {
        let mut purged = Purged::default();
        for key in self.aged(now.saturating_sub(retention.keys), limit, |receipt| receipt.due.is_none()) {
            purged.keys += u64::from(self.rows.remove(&key).is_some());
        }
        for key in self.aged(now.saturating_sub(retention.results), limit, Receipt::has_result_body) {
            if let Some(result) = self.rows.get_mut(&key).and_then(|row| row.receipt.result.as_mut()) {
                result.body = ResultBody::Omitted;
                purged.results += 1;
            }
        }
        purged
    }

    /// Ended receipts that have not changed since `before`, the oldest first.
    fn aged(&self, before: Timestamp, limit: u32, also: impl Fn(&Receipt) -> bool) -> Vec<ReceiptKey> {
        let ended = |state| matches!(state, ReceiptState::Succeeded | ReceiptState::Failed);
        let mut rows: Vec<&Row> = self
            .rows
            .values()
            .filter(|row| ended(row.receipt.state) && row.receipt.updated <= before && also(&row.receipt))
            .collect();
        rows.sort_by_key(|row| (row.receipt.updated, row.id));
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        rows.into_iter().map(|row| row.receipt.key.clone()).collect()
    }

    fn held(&mut self, lease: &Lease) -> Option<&mut Row> {
        self.rows.get_mut(&lease.key).filter(|row| row.token == Some(lease.token))
    }
}

impl Row {
    fn standing(&self) -> Standing {
        Standing {
            state: self.receipt.state,
            attempts: self.receipt.attempts,
            token: self.token,
            lease_until: self.receipt.lease_until,
            due: self.receipt.due,
            body: self.receipt.body,
        }
    }

    fn lease(&self, token: Token) -> Lease {
        Lease { key: self.receipt.key.clone(), token, attempt: self.receipt.attempts }
    }

    fn claimed(&self, lease: Lease) -> Option<Claimed> {
        let Receipt { event_id, body, request, first_seen, .. } = self.receipt.clone();
        Some(Claimed { lease, event_id, body, request: request?, first_seen })
    }

    fn repeat(&self, other_body: bool) -> Repeat {
        Repeat { result: self.receipt.result.clone(), same_body: !other_body }
    }

    /// Begins the next run.
    fn begin(&mut self, token: Token, until: Timestamp, now: Timestamp) -> Lease {
        let due = self.standing().due_under(until);
        self.receipt.attempts = self.receipt.attempts.saturating_add(1);
        self.enter(ReceiptState::Processing, now);
        self.token = Some(token);
        self.receipt.lease_until = Some(until);
        self.receipt.due = due;
        self.lease(token)
    }

    fn succeed(&mut self, result: StoredResult, now: Timestamp) {
        self.receipt.result = Some(result);
        self.receipt.error = None;
        self.receipt.request = None;
        self.enter(ReceiptState::Succeeded, now);
    }

    fn bury(&mut self, reason: String, now: Timestamp) {
        self.enter(ReceiptState::DeadLetter, now);
        self.receipt.reason = Some(reason);
    }

    fn owe(&mut self, request: Accept, state: ReceiptState, due: Option<Timestamp>) {
        self.receipt.state = state;
        self.receipt.due = due;
        self.receipt.quarantined = due.is_none();
        self.receipt.reason = request.quarantine.as_deref().filter(|_| due.is_none()).map(admission::kept_text);
        self.receipt.request = Some(request.request);
        self.receipt.ordering_key = request.ordering_key;
    }

    /// Leaves all behind that belonged to the state before.
    fn enter(&mut self, state: ReceiptState, now: Timestamp) {
        self.receipt.state = state;
        self.receipt.updated = now;
        self.token = None;
        self.receipt.lease_until = None;
        self.receipt.due = None;
        if self.receipt.quarantined {
            self.receipt.quarantined = false;
            self.receipt.reason = None;
        }
    }

    fn count(&mut self, other_body: bool) {
        self.receipt.other_bodies += u64::from(other_body);
    }

    fn note_lapse(&mut self, lapsed: bool, now: Timestamp) {
        if lapsed {
            let attempt = self.receipt.attempts;
            self.note_failure(FailedRun { attempt, at: now, status: None, error: admission::LAPSED.into() });
        }
    }

    fn note_failure(&mut self, run: FailedRun) {
        self.receipt.error = Some(run.error.clone());
        let failures = &mut self.receipt.failures;
        failures.push(run);
        let surplus = failures.len().saturating_sub(Failure::MAX_KEPT);
        failures.drain(..surplus);
    }
}

impl Receipt {
    /// One that nobody has run, or is to run, yet.
    fn new(
        key: ReceiptKey,
        event_id: Option<EventId>,
        correlation_id: Option<Name>,
        body: Digest,
        now: Timestamp,
    ) -> Self {
        Self {
            key,
            event_id,
            correlation_id,
            state: ReceiptState::Failed,
            attempts: 0,
            first_seen: now,
            updated: now,
            lease_until: None,
            due: None,
            quarantined: false,
            ordering_key: None,
            body,
            other_bodies: 0,
            result: None,
            error: None,
            reason: None,
            request: None,
            failures: Vec::new(),
        }
    }

    fn passes(&self, filter: &ListFilter) -> bool {
        let key = filter.key.as_ref().is_none_or(|key| {
            self.key.key == *key || self.event_id.as_ref().is_some_and(|id| id.as_str() == key.as_str())
        });
        key && filter.consumer.as_ref().is_none_or(|consumer| self.key.consumer == *consumer)
            && filter.source.as_ref().is_none_or(|source| self.key.source == *source)
            && (filter.correlation_id.is_none() || filter.correlation_id == self.correlation_id)
            && filter.state.is_none_or(|state| self.state == state)
    }

    fn has_result_body(&self) -> bool {
        self.result.as_ref().is_some_and(|result| matches!(result.body, ResultBody::Kept(_)))
    }

    fn without_contents(&self) -> Self {
        let mut receipt = self.clone();
        receipt.request = None;
        receipt.failures.clear();
        if let Some(result) = &mut receipt.result {
            result.body = ResultBody::Omitted;
        }
        receipt
    }
}
