//! A store in memory: for tests, and to read what a store does without SQL in the way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::admission::{self, Admission, Standing};
use super::{
    FailedRun, Failure, InboxStore, Lease, ListFilter, Purged, Receipt, ReceiptKey, ReceiptState, Repeat, Reserve,
    Reserved, ResultBody, Retention, Settled, StoreFuture, StoredResult, Token,
};
use crate::{Clock, SystemClock, Timestamp};

/// A store that lives and ends with its process: after a restart every event is a first one.
///
/// Clones share their receipts. Nothing is removed but by `purge` and `forget`, so memory grows with the number of
/// events; use it for tests and for trying things out.
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
        Self { clock: Arc::new(clock), table: Arc::default() }
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
            row.receipt.lease_until = Some(self.clock.now().saturating_add(span));
            Ok(Settled::Done)
        })
    }

    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
        Box::pin(async move { Ok(self.table().rows.get(&key).map(|row| row.receipt.clone())) })
    }

    fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>> {
        Box::pin(async move { Ok(self.table().list(&filter)) })
    }

    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        Box::pin(async move { Ok(self.table().retry(&key, self.clock.now())) })
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
                row.repeat(other_body)
            }
            Admission::TakeOver { lapsed, other_body } => {
                row.note_lapse(lapsed, now);
                row.count(other_body);
                row.receipt.attempts = row.receipt.attempts.saturating_add(1);
                row.receipt.lease_until = Some(now.saturating_add(request.lease));
                row.token = Some(token);
                row.enter(ReceiptState::Processing, now);
                Reserved::Acquired(row.lease(token))
            }
            Admission::Bury { lapsed, other_body, reason } => {
                row.note_lapse(lapsed, now);
                row.count(other_body);
                row.receipt.reason = Some(reason);
                row.enter(ReceiptState::DeadLetter, now);
                row.repeat(other_body)
            }
        }
    }

    fn insert(&mut self, request: Reserve, token: Token, now: Timestamp) -> Lease {
        let receipt = Receipt {
            key: request.key.clone(),
            event_id: request.event_id,
            state: ReceiptState::Processing,
            attempts: 1,
            first_seen: now,
            updated: now,
            lease_until: Some(now.saturating_add(request.lease)),
            body: request.body,
            other_bodies: 0,
            result: None,
            error: None,
            reason: None,
            request: None,
            failures: Vec::new(),
        };
        let row = Row { id: self.next, token: Some(token), receipt };
        let lease = row.lease(token);
        self.next += 1;
        self.rows.insert(request.key, row);
        lease
    }

    fn complete(&mut self, lease: &Lease, result: StoredResult, now: Timestamp) -> Settled {
        let Some(row) = self.held(lease) else { return Settled::LeaseLost };
        row.receipt.result = Some(result);
        row.receipt.error = None;
        row.receipt.request = None;
        row.enter(ReceiptState::Succeeded, now);
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
        row.receipt.reason = failure.dead.as_deref().map(admission::kept_text);
        let dead = row.receipt.reason.is_some();
        row.enter(if dead { ReceiptState::DeadLetter } else { ReceiptState::Failed }, now);
        Settled::Done
    }

    fn retry(&mut self, key: &ReceiptKey, now: Timestamp) -> Option<ReceiptState> {
        let row = self.rows.get_mut(key)?;
        if row.receipt.state == ReceiptState::DeadLetter {
            row.receipt.attempts = 0;
            row.receipt.reason = None;
            row.enter(ReceiptState::Failed, now);
        }
        Some(row.receipt.state)
    }

    fn list(&self, filter: &ListFilter) -> Vec<Receipt> {
        let mut rows: Vec<&Row> = self.rows.values().filter(|row| row.receipt.passes(filter)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.receipt.updated, row.id)));
        rows.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        rows.into_iter().map(|row| row.receipt.without_contents()).collect()
    }

    fn purge(&mut self, retention: Retention, limit: u32, now: Timestamp) -> Purged {
        let mut purged = Purged::default();
        for key in self.aged(now.saturating_sub(retention.keys), limit, |_| true) {
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
            body: self.receipt.body,
        }
    }

    fn lease(&self, token: Token) -> Lease {
        Lease { key: self.receipt.key.clone(), token, attempt: self.receipt.attempts }
    }

    fn repeat(&self, other_body: bool) -> Reserved {
        let repeat = Repeat { result: self.receipt.result.clone(), same_body: !other_body };
        match self.receipt.state {
            ReceiptState::Succeeded => Reserved::Succeeded(repeat),
            _ => Reserved::DeadLetter(repeat),
        }
    }

    fn enter(&mut self, state: ReceiptState, now: Timestamp) {
        self.receipt.state = state;
        self.receipt.updated = now;
        if state != ReceiptState::Processing {
            self.token = None;
            self.receipt.lease_until = None;
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
    fn passes(&self, filter: &ListFilter) -> bool {
        let key = filter.key.as_ref().is_none_or(|key| {
            self.key.key == *key || self.event_id.as_ref().is_some_and(|id| id.as_str() == key.as_str())
        });
        key && filter.consumer.as_ref().is_none_or(|consumer| self.key.consumer == *consumer)
            && filter.source.as_ref().is_none_or(|source| self.key.source == *source)
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
