//! A row of the outbox in memory, and an endpoint's.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::delivery::{self, Ahead, Course, Health, Turn};
use crate::store::{
    Attempt, AttemptReport, Buried, ClaimedMessage, Endpoint, EndpointEntry, MessageFilter, MessageKey, MessageLease,
    MessageState, OutboxEntry, Token,
};
use crate::{Name, Timestamp};

#[derive(Debug)]
pub(super) struct Row {
    pub(super) token: Option<Token>,
    /// When it was enqueued, or last replayed.
    pub(super) since: Timestamp,
    pub(super) entry: OutboxEntry,
}

impl Row {
    pub(super) const fn new(entry: OutboxEntry, now: Timestamp) -> Self {
        Self { token: None, since: now, entry }
    }

    pub(super) fn key(&self) -> MessageKey {
        MessageKey { endpoint: self.entry.endpoint.clone(), id: self.entry.message.id.clone() }
    }

    pub(super) fn order(&self) -> Option<(&Name, &Name)> {
        self.entry.message.ordering_key.as_ref().map(|order| (&self.entry.endpoint, order))
    }

    pub(super) fn is_leased(&self, now: Timestamp) -> bool {
        self.entry.state == MessageState::Delivering && self.entry.due.is_some_and(|until| until > now)
    }

    pub(super) fn turn(&self, allowed: u32, ahead: &Ahead, endpoint: &Endpoint) -> Turn {
        delivery::turn(self.entry.state, self.entry.attempts, allowed, ahead, endpoint.settings.on_dead)
    }

    pub(super) fn claimed(&self, lease: MessageLease, endpoint: Arc<Endpoint>, now: Timestamp) -> ClaimedMessage {
        ClaimedMessage {
            lease,
            message: self.entry.message.clone(),
            endpoint,
            created: self.entry.created,
            age: now.saturating_since(self.since),
            replays: self.entry.replays,
        }
    }

    /// Begins the next attempt.
    pub(super) fn begin(&mut self, row: i64, token: Token, until: Timestamp, now: Timestamp) -> MessageLease {
        let attempt = self.entry.attempts.saturating_add(1);
        let state = MessageState::Delivering;
        self.enter(Course { state, attempts: attempt, due: Some(until), reason: None }, now);
        self.token = Some(token);
        MessageLease { key: self.key(), row, token, attempt }
    }

    pub(super) fn bury(&mut self, reason: String, now: Timestamp) {
        self.end(MessageState::DeadLetter, reason, now);
    }

    pub(super) fn end(&mut self, state: MessageState, reason: String, now: Timestamp) {
        self.enter(Course { state, attempts: self.entry.attempts, due: None, reason: Some(reason) }, now);
    }

    /// Makes it a dead letter, but leaves whoever delivers it the right to say how that ended.
    pub(super) fn lose_endpoint(&mut self, now: Timestamp) {
        let token = self.token;
        self.bury(delivery::ENDPOINT_REMOVED.into(), now);
        self.token = token;
    }

    /// The end of an attempt.
    pub(super) fn end_attempt(&mut self, course: Course, now: Timestamp) {
        let is_lost = self.entry.state == MessageState::DeadLetter;
        let course = if is_lost { course.without_endpoint(self.entry.reason.clone()) } else { course };
        self.enter(course, now);
    }

    /// Leaves all behind that belonged to the state before.
    pub(super) fn enter(&mut self, course: Course, now: Timestamp) {
        self.token = None;
        self.entry.updated = now;
        Course {
            state: self.entry.state,
            attempts: self.entry.attempts,
            due: self.entry.due,
            reason: self.entry.reason,
        } = course;
    }

    pub(super) fn note_lapse(&mut self, lapsed: bool, now: Timestamp) {
        if lapsed {
            let report = delivery::lapsed_report();
            self.entry.last_error = report.error.clone();
            self.note(report, now);
        }
    }

    pub(super) fn note(&mut self, report: AttemptReport, now: Timestamp) {
        let OutboxEntry { replays, attempts, attempt_log, .. } = &mut self.entry;
        attempt_log.push(Attempt { replay: *replays, number: *attempts, at: now, report });
        let surplus = attempt_log.len().saturating_sub(Attempt::MAX_KEPT);
        attempt_log.drain(..surplus);
    }

    pub(super) fn buried(&self, reason: String) -> Buried {
        let OutboxEntry { message, attempts, replays, .. } = &self.entry;
        Buried { attempts: *attempts, replays: *replays, ..Buried::new(self.key(), message.event_type.clone(), reason) }
    }

    /// Whether the filter asks for it, whatever its state.
    pub(super) fn fits(&self, filter: &MessageFilter) -> bool {
        let OutboxEntry { endpoint, message, updated, .. } = &self.entry;
        filter.endpoint.as_ref().is_none_or(|asked| asked == endpoint)
            && filter.id.as_ref().is_none_or(|asked| *asked == message.id)
            && filter.event_type.as_ref().is_none_or(|asked| *asked == message.event_type)
            && (filter.correlation_id.is_none() || filter.correlation_id == message.correlation_id)
            && filter.updated_before.is_none_or(|before| *updated < before)
    }
}

impl OutboxEntry {
    pub(super) fn without_contents(&self) -> Self {
        let mut entry = self.clone();
        entry.message.payload = Bytes::new();
        entry.attempt_log.clear();
        entry
    }
}

impl EndpointEntry {
    /// Whether attempts may be begun.
    pub(super) fn is_served(&self, now: Timestamp) -> bool {
        self.disabled.is_none() && self.paused_until.is_none_or(|until| until <= now)
    }

    pub(super) fn set_health(&mut self, health: Health) {
        Health {
            disabled: self.disabled,
            disabled_since: self.disabled_since,
            paused_until: self.paused_until,
            failing_since: self.failing_since,
            failures: self.failures,
        } = health;
    }
}
