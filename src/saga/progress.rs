//! What becomes of an instance when an event is answered: a pure function of values.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::definition::{Act, Command};
use super::{Decision, Move, Saga, SagaError};
use crate::cause::passable;
use crate::envelope::Envelope;
use crate::send::MessageError;
use crate::store::{SagaEntry, SagaStep, SentMessage, StepAnswer, StoreError};
use crate::{EventId, Name, Timestamp};

/// How many events an instance keeps that came too early. The next one is sent away, to come again later.
pub(super) const MOST_DEFERRED: usize = 64;

/// An instance in memory.
pub(super) struct Progress<S> {
    pub(super) entry: SagaEntry,
    pub(super) body: Body<S>,
    pub(super) steps: Vec<SagaStep>,
    pub(super) outbox: Vec<Sending>,
}

/// What is kept of it, beside what the database looks for.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Body<S> {
    /// `None` until it begins.
    pub(super) state: Option<S>,
    /// What undoes what was done, in the order in which that was.
    #[serde(default)]
    pub(super) undo: Vec<Command>,
    /// What came too early, in the order in which it came.
    #[serde(default)]
    pub(super) deferred: Vec<Envelope>,
}

/// A message to be put into the outbox.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) to: Option<Name>,
    pub(super) envelope: Envelope,
    pub(super) delay: Duration,
}

/// Where the surroundings come in: ids, and the present moment.
pub(super) struct Now<'a> {
    pub(super) at: Timestamp,
    pub(super) new_id: &'a mut (dyn FnMut() -> Result<EventId, MessageError> + Send),
}

impl<S: Saga> Progress<S> {
    /// Takes up what the database holds.
    pub(super) fn of(entry: SagaEntry) -> Result<Self, StoreError> {
        let body = match entry.version {
            0 => Body { state: None, undo: Vec::new(), deferred: Vec::new() },
            // What it quotes may be the application's.
            _ => serde_json::from_str(&entry.body).map_err(|error| {
                let (line, column) = (error.line(), error.column());
                StoreError::Corrupt(format!("the saga's state is none of this form: line {line} column {column}"))
            })?,
        };
        if entry.step.is_some() && body.state.is_none() {
            // A unit struct, or an `Option` that is `None`, is written as `null`: nobody could tell it from no state.
            return Err(StoreError::Corrupt(
                "the saga has begun, and has no state: its type is written as null".into(),
            ));
        }
        Ok(Self { entry, body, steps: Vec::new(), outbox: Vec::new() })
    }

    /// Answers an event, and where it moves the instance, what had been deferred.
    pub(super) fn answer(&mut self, envelope: &Envelope, event: &S::Event, now: &mut Now<'_>) -> Result<(), SagaError> {
        match S::decide(self.body.state.as_ref(), event) {
            Decision::Refuse(reason) => Err(SagaError::Refused(reason)),
            // Nobody has heard of it: a late event makes no instance.
            Decision::Ignore(_) if self.entry.version == 0 => Ok(()),
            Decision::Ignore(reason) => {
                self.note(envelope, StepAnswer::Ignored, Some(reason), now.at);
                Ok(())
            }
            Decision::Defer(_) if self.body.deferred.len() >= MOST_DEFERRED => Err(SagaError::DeferredTooMany),
            Decision::Defer(reason) => {
                self.body.deferred.push(envelope.clone());
                self.note(envelope, StepAnswer::Deferred, Some(reason), now.at);
                Ok(())
            }
            Decision::Move(step) => {
                self.take(envelope, step, now)?;
                self.take_up_deferred(now)
            }
        }
    }

    /// After each move all that is left is asked about again, the first one first. It comes to an end: each event that is answered
    /// leaves the list, and one that is deferred once more is passed by.
    fn take_up_deferred(&mut self, now: &mut Now<'_>) -> Result<(), SagaError> {
        let mut at = 0;
        while let Some(envelope) = self.body.deferred.get(at).cloned() {
            let decision = match S::read(&envelope) {
                Ok(event) => S::decide(self.body.state.as_ref(), &event),
                Err(error) if error.is_transient() => Decision::Defer(error.to_string()),
                Err(error) => Decision::Refuse(error.to_string()),
            };
            if matches!(decision, Decision::Defer(_)) {
                at += 1;
                continue;
            }
            self.body.deferred.remove(at);
            match decision {
                Decision::Defer(_) => {}
                Decision::Ignore(reason) => self.note(&envelope, StepAnswer::Ignored, Some(reason), now.at),
                // Its receipt is done: the history, and the log, are where it is found.
                Decision::Refuse(reason) => {
                    tracing::error!(
                        saga = %self.entry.key.saga, instance = %self.entry.key.instance, event_id = %envelope.id, reason,
                        "a saga refused an event that it had deferred"
                    );
                    self.note(&envelope, StepAnswer::Refused, Some(reason), now.at);
                }
                Decision::Move(step) => {
                    self.take(&envelope, step, now)?;
                    at = 0;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, envelope: &Envelope, step: Move<S>, now: &mut Now<'_>) -> Result<(), SagaError> {
        let Move { state, acts, ends, fault } = step;
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        let mut sent = Vec::new();
        for act in acts {
            match act {
                Act::Send(command) => sent.push(self.send(envelope, command, false, now)?),
                Act::Keep(command) => self.body.undo.push(command),
                Act::Undo => {
                    while let Some(command) = self.body.undo.pop() {
                        sent.push(self.send(envelope, command, true, now)?);
                    }
                }
                Act::Settle => self.body.undo.clear(),
            }
        }
        let to = state.step();
        let to = Name::new(to).map_err(|reason| MessageError::Name { what: "step", reason })?;
        self.body.state = Some(state);
        self.entry.moved = now.at;
        self.entry.ended = if ends { self.entry.ended.or(Some(now.at)) } else { None };
        let from = self.entry.step.replace(to);
        self.note(envelope, StepAnswer::Moved, None, now.at);
        if let Some(noted) = self.steps.last_mut() {
            noted.from = from;
            noted.sent = sent;
        }
        Ok(())
    }

    /// What an instance sends belongs to what its cause belongs to, or else to the instance.
    fn send(
        &mut self,
        cause: &Envelope,
        command: Command,
        undoes: bool,
        now: &mut Now<'_>,
    ) -> Result<SentMessage, MessageError> {
        let Command { to, event_type, schema_version, data, delay } = command;
        let instance = &self.entry.key.instance;
        let id = (now.new_id)()?;
        let sent = SentMessage { id: id.clone(), event_type: event_type.clone(), endpoint: to.clone(), undoes };
        let envelope = Envelope {
            id,
            event_type,
            schema_version,
            occurred_at: now.at,
            // What no header can hold is left out: with it, nothing could be sent at all.
            correlation_id: passable(cause.correlation_id.as_ref().unwrap_or(instance).as_str()),
            causation_id: passable(cause.id.as_str()),
            // One that waits would hold up what comes behind it.
            ordering_key: delay.is_zero().then(|| instance.clone()),
            data,
        };
        self.outbox.push(Sending { to, envelope, delay });
        Ok(sent)
    }

    fn note(&mut self, envelope: &Envelope, answer: StepAnswer, reason: Option<String>, at: Timestamp) {
        self.entry.version += 1;
        self.steps.push(SagaStep {
            number: self.entry.version,
            at,
            event_id: envelope.id.clone(),
            event_type: envelope.event_type.clone(),
            answer,
            from: self.entry.step.clone(),
            to: self.entry.step.clone(),
            reason,
            sent: Vec::new(),
        });
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
