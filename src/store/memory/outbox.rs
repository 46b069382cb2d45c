//! The outbox in memory: the readable reference that the SQL stores are compared with.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::MemoryStore;
use super::message::Row;
use crate::store::delivery::{self, Course, Health};
use crate::store::fairness::Chance;
use crate::store::measure;
use crate::store::{
    ClaimMessages, Claims, Cursor, Endpoint, EndpointEntry, Enqueue, Enqueued, Keys, Message, MessageFilter,
    MessageKey, MessageLease, MessageState, OnDead, OutboxEntry, OutboxRetention, OutboxStore, Page, Settled,
    Settlement, StoreError, StoreFuture,
};
use crate::{Name, Timestamp};

impl OutboxStore for MemoryStore {
    fn put_endpoint(&self, endpoint: Endpoint) -> StoreFuture<'_, EndpointEntry> {
        Box::pin(async move {
            endpoint.check()?;
            Ok(self.outbox().put_endpoint(endpoint, self.now()))
        })
    }

    fn endpoints(&self) -> StoreFuture<'_, Vec<EndpointEntry>> {
        Box::pin(async move { Ok(self.outbox().endpoints.values().cloned().collect()) })
    }

    fn endpoint(&self, name: Name) -> StoreFuture<'_, Option<EndpointEntry>> {
        Box::pin(async move { Ok(self.outbox().endpoints.get(&name).cloned()) })
    }

    fn disable_endpoint(&self, name: Name, reason: Option<String>) -> StoreFuture<'_, bool> {
        self.told(move |outbox, now| Ok(outbox.disable_endpoint(&name, reason, now)))
    }

    fn remove_endpoint(&self, name: Name) -> StoreFuture<'_, bool> {
        Box::pin(async move { Ok(self.outbox().remove_endpoint(&name, self.now())) })
    }

    fn enqueue(&self, messages: Vec<Enqueue>) -> StoreFuture<'_, Vec<Enqueued>> {
        self.told(move |outbox, now| measure::enqueued(outbox.enqueue(messages, now)))
    }

    fn publish(&self, message: Message) -> StoreFuture<'_, Vec<Enqueued>> {
        self.told(move |outbox, now| measure::enqueued(outbox.publish(&message, now)))
    }

    fn claim_messages(&self, claim: ClaimMessages) -> StoreFuture<'_, Claims> {
        Box::pin(async move { self.outbox().claim(&claim, Chance::draw()?, self.now()) })
    }

    fn settle(&self, lease: MessageLease, settlement: Settlement) -> StoreFuture<'_, Settled> {
        self.told(move |outbox, now| Ok(outbox.settle(&lease, settlement, now)))
    }

    fn renew_message(&self, lease: MessageLease, span: Duration) -> StoreFuture<'_, Settled> {
        Box::pin(async move {
            let mut outbox = self.outbox();
            let Some(row) = outbox.held(&lease) else { return Ok(Settled::LeaseLost) };
            row.entry.due = row.entry.due.map(|_| self.now().saturating_add(span));
            Ok(Settled::Done)
        })
    }

    fn release_message(&self, lease: MessageLease) -> StoreFuture<'_, Settled> {
        self.told(move |outbox, now| Ok(outbox.release(&lease, now)))
    }

    fn find_message(&self, key: MessageKey) -> StoreFuture<'_, Option<OutboxEntry>> {
        Box::pin(async move { Ok(self.outbox().row(&key).map(|row| row.entry.clone())) })
    }

    fn page_messages(&self, filter: MessageFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<OutboxEntry>> {
        Box::pin(async move { Ok(self.outbox().page(&filter, after)) })
    }

    fn replay(&self, filter: MessageFilter, gap: Duration) -> StoreFuture<'_, Vec<MessageKey>> {
        self.told(move |outbox, now| Ok(outbox.replay(&filter, gap, now)))
    }

    fn cancel(&self, filter: MessageFilter) -> StoreFuture<'_, Vec<MessageKey>> {
        self.told(move |outbox, now| Ok(outbox.cancel(&filter, now)))
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Duration>> {
        Box::pin(async move { Ok(self.outbox().next_due(self.now())) })
    }

    fn purge_messages(&self, retention: OutboxRetention, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(async move { Ok(self.outbox().purge(retention, limit, self.now())) })
    }

    fn check_outbox(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn oldest_due_messages(&self) -> StoreFuture<'_, Vec<(Name, Duration)>> {
        Box::pin(async move { Ok(self.outbox().oldest_due(self.now())) })
    }

    fn message_keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<MessageKey>> {
        Box::pin(async move { Ok(self.outbox().keys(from, limit)) })
    }

    fn wake(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.wake))
    }
}

impl MemoryStore {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Makes a change after which something may be due that was not, and says so.
    fn told<T: 'static>(
        &self,
        change: impl FnOnce(&mut Outbox, Timestamp) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let changed = change(&mut self.outbox(), self.now())?;
            self.wake.notify_one();
            Ok(changed)
        })
    }
}

/// Both tables, changed together.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) endpoints: BTreeMap<Name, EndpointEntry>,
    /// By their number, which is the order in which they were enqueued.
    pub(super) rows: BTreeMap<i64, Row>,
    numbers: HashMap<MessageKey, i64>,
    /// How many rows there ever were: the number of the next one.
    next: i64,
}

impl Outbox {
    fn keys(&self, from: u64, limit: u32) -> Keys<MessageKey> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let key = |row: &Row| MessageKey { endpoint: row.entry.endpoint.clone(), id: row.entry.message.id.clone() };
        let rows = self.rows.range(from..).take(usize::try_from(limit).unwrap_or(usize::MAX));
        let rows = rows.map(|(number, row)| (number.unsigned_abs(), Some(key(row))));
        Keys::of_rows(rows.collect(), limit)
    }

    fn put_endpoint(&mut self, endpoint: Endpoint, now: Timestamp) -> EndpointEntry {
        let name = endpoint.name.clone();
        let entry = self.endpoints.entry(name).or_insert_with(|| EndpointEntry::new(endpoint.clone(), now));
        entry.endpoint = endpoint;
        entry.updated = now;
        entry.clone()
    }

    fn disable_endpoint(&mut self, name: &Name, reason: Option<String>, now: Timestamp) -> bool {
        let Some(entry) = self.endpoints.get_mut(name) else { return false };
        match reason {
            Some(reason) => entry.set_health(entry.health().disabled(&reason, now)),
            None => entry.set_health(Health::default()),
        }
        entry.updated = now;
        true
    }

    fn remove_endpoint(&mut self, name: &Name, now: Timestamp) -> bool {
        for row in self.rows.values_mut() {
            if row.entry.endpoint == *name && delivery::is_open(row.entry.state) {
                row.lose_endpoint(now);
            }
        }
        self.endpoints.remove(name).is_some()
    }

    fn enqueue(&mut self, messages: Vec<Enqueue>, now: Timestamp) -> Result<Vec<Enqueued>, StoreError> {
        for Enqueue { endpoint, message, .. } in &messages {
            Enqueue::check(message)?;
            if !self.endpoints.contains_key(endpoint) {
                return Err(StoreError::Rejected(format!("there is no endpoint {endpoint}")));
            }
        }
        Ok(messages.into_iter().map(|message| self.insert(message, now)).collect())
    }

    fn publish(&mut self, message: &Message, now: Timestamp) -> Result<Vec<Enqueued>, StoreError> {
        Enqueue::check(message)?;
        let wanted = self.endpoints.values().filter(|entry| entry.endpoint.wants(&message.event_type));
        let names: Vec<Name> = wanted.map(|entry| entry.endpoint.name.clone()).collect();
        Ok(names.into_iter().map(|name| self.insert(Enqueue::new(name, message.clone()), now)).collect())
    }

    fn insert(&mut self, Enqueue { endpoint, message, delay }: Enqueue, now: Timestamp) -> Enqueued {
        let key = MessageKey { endpoint: endpoint.clone(), id: message.id.clone() };
        let created = !self.numbers.contains_key(&key);
        let enqueued = Enqueued::new(message.id.clone(), endpoint.clone(), created);
        if created {
            let entry = OutboxEntry::new(endpoint, message, now, now.saturating_add(delay));
            self.numbers.insert(key, self.next);
            self.rows.insert(self.next, Row::new(entry, now));
            self.next += 1;
        }
        enqueued
    }

    fn release(&mut self, lease: &MessageLease, now: Timestamp) -> Settled {
        let Some(row) = self.held(lease) else { return Settled::LeaseLost };
        row.end_attempt(Course::released(row.entry.attempts, now), now);
        Settled::Done
    }

    fn settle(&mut self, lease: &MessageLease, mut settlement: Settlement, now: Timestamp) -> Settled {
        let Some(row) = self.held(lease) else { return Settled::LeaseLost };
        settlement.report = delivery::kept_report(settlement.report);
        let Settlement { fate, report, .. } = &settlement;
        row.entry.last_status = report.status.or(row.entry.last_status);
        row.entry.last_error = delivery::last_error(fate, report, row.entry.last_error.take());
        row.note(report.clone(), now);
        let course = Course::of(fate, row.entry.attempts, now);
        let holds_up = delivery::holds_up(course.state);
        row.end_attempt(course, now);
        let entry = self.endpoints.get_mut(&lease.key.endpoint);
        if let Some(entry) = entry.filter(|entry| settlement.endpoint.is_about(&entry.endpoint)) {
            let before = entry.health();
            let health = before.after(&settlement, now);
            if before.disabled != health.disabled {
                entry.updated = now;
            }
            entry.set_health(health);
        }
        if holds_up {
            self.park_behind(&lease.key, now);
        }
        Settled::Done
    }

    pub(super) fn bury(&mut self, number: i64, lapsed: bool, reason: String, now: Timestamp) {
        let Some(row) = self.rows.get_mut(&number) else { return };
        row.note_lapse(lapsed, now);
        row.bury(reason, now);
        let key = row.key();
        self.park_behind(&key, now);
    }

    /// Where this message will not be delivered, and its endpoint wants that, it takes those behind it along.
    fn park_behind(&mut self, key: &MessageKey, now: Timestamp) {
        let parks = |entry: &EndpointEntry| entry.endpoint.settings.on_dead == OnDead::Park;
        let Some(number) = self.numbers.get(key).copied() else { return };
        let Some(head) = self.rows.get(&number).filter(|row| delivery::holds_up(row.entry.state)) else { return };
        let Some(order) = head.entry.message.ordering_key.clone() else { return };
        if !self.endpoints.get(&key.endpoint).is_some_and(parks) {
            return;
        }
        for (_, row) in self.rows.range_mut(number..) {
            if row.order() == Some((&key.endpoint, &order)) && row.entry.state == MessageState::Pending {
                row.bury(delivery::parked(&key.id), now);
            }
        }
    }

    fn page(&self, filter: &MessageFilter, after: Option<Cursor>) -> Page<OutboxEntry> {
        let mut rows: Vec<(i64, &Row)> = self
            .rows
            .iter()
            .filter(|(_, row)| row.fits(filter) && filter.state.is_none_or(|state| row.entry.state == state))
            .map(|(number, row)| (*number, row))
            .collect();
        rows.sort_by_key(|(number, row)| std::cmp::Reverse((row.entry.updated, *number)));
        let rows = rows.into_iter();
        let rows = rows.map(|(number, row)| (Cursor::new(row.entry.updated, number), row.entry.without_contents()));
        Page::of_rows(rows, after, filter.limit)
    }

    fn replay(&mut self, filter: &MessageFilter, gap: Duration, now: Timestamp) -> Vec<MessageKey> {
        let endpoints = &self.endpoints;
        let mut due = now;
        self.rows
            .values_mut()
            .filter(|row| row.fits(filter) && delivery::is_replayed(row.entry.state, filter))
            .filter(|row| endpoints.contains_key(&row.entry.endpoint))
            .take(most(filter.limit))
            .map(|row| {
                row.enter(Course { state: MessageState::Pending, attempts: 0, due: Some(due), reason: None }, now);
                row.entry.replays = row.entry.replays.saturating_add(1);
                row.since = now;
                due = due.saturating_add(gap);
                row.key()
            })
            .collect()
    }

    fn cancel(&mut self, filter: &MessageFilter, now: Timestamp) -> Vec<MessageKey> {
        self.rows
            .values_mut()
            .filter(|row| row.fits(filter) && delivery::is_cancelled(row.entry.state, filter))
            .take(most(filter.limit))
            .map(|row| {
                row.end(MessageState::Cancelled, delivery::CANCELLED.into(), now);
                row.key()
            })
            .collect()
    }

    fn purge(&mut self, retention: OutboxRetention, limit: u32, now: Timestamp) -> u64 {
        let is_old = |row: &Row| {
            let age = match row.entry.state {
                MessageState::Succeeded | MessageState::Cancelled => Some(retention.done),
                MessageState::DeadLetter | MessageState::Failed => retention.dead,
                MessageState::Delivering | MessageState::Pending => None,
            };
            age.is_some_and(|age| row.entry.updated <= now.saturating_sub(age))
        };
        let mut old: Vec<(Timestamp, i64)> =
            self.rows.iter().filter(|(_, row)| is_old(row)).map(|(number, row)| (row.entry.updated, *number)).collect();
        old.sort_unstable();
        old.truncate(most(limit));
        let mut purged = 0;
        for row in old.iter().filter_map(|(_, number)| self.rows.remove(number)) {
            self.numbers.remove(&row.key());
            purged += 1;
        }
        purged
    }

    fn row(&self, key: &MessageKey) -> Option<&Row> {
        self.rows.get(self.numbers.get(key)?)
    }

    fn held(&mut self, lease: &MessageLease) -> Option<&mut Row> {
        let number = self.numbers.get(&lease.key)?;
        self.rows.get_mut(number).filter(|row| row.token == Some(lease.token))
    }
}

pub(super) fn most(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
