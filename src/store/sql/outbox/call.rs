//! A call to the outbox's writer: what is asked, and where the answer goes.

use std::future::Future;
use std::time::Duration;

use super::super::call::Ask;
use super::super::transactor::Done;
use super::super::writer::Asked;
use super::batch;
use super::database::Database;
use crate::store::fairness::Chance;
use crate::store::measure;
use crate::store::{
    ClaimMessages, Claims, Endpoint, EndpointEntry, Enqueue, Enqueued, Message, MessageFilter, MessageKey,
    MessageLease, OutboxRetention, Settled, Settlement, StoreError, Token,
};
use crate::{Name, Timestamp};

/// A claim comes with as many tokens as there may be messages, and with what is left to chance.
pub(super) type ClaimAsk = Ask<(ClaimMessages, Vec<Token>, Chance), Claims>;
/// New messages come with a token by which they are recognised.
pub(super) type EnqueueAsk = Ask<(Vec<Enqueue>, Token), Vec<Enqueued>>;
pub(super) type PublishAsk = Ask<(Message, Token), Vec<Enqueued>>;
pub(super) type SettleAsk = Ask<(MessageLease, Box<Settlement>), Settled>;

/// Everything that the outbox's writer does.
#[derive(Debug)]
pub(in crate::store::sql) enum Call {
    Cancel(Ask<Selection, Selected>),
    Check(Ask<(), ()>),
    Claim(ClaimAsk),
    DisableEndpoint(Ask<(Name, Option<String>), bool>),
    Enqueue(EnqueueAsk),
    Publish(PublishAsk),
    Purge(Ask<PurgeStep, u64>),
    /// Answered also with whether messages that are held up are to be looked at.
    PutEndpoint(Ask<Box<Endpoint>, (EndpointEntry, bool)>),
    Release(Ask<MessageLease, Settled>),
    RemoveEndpoint(Ask<Name, Removal>),
    Renew(Ask<(MessageLease, Duration), Settled>),
    Replay(Ask<Replay, Selected>),
    Settle(SettleAsk),
    Sweep(Ask<Sweep, u64>),
}

/// One small step through the messages that fit a filter: the oldest ones behind the last one of the step before.
#[derive(Clone, Debug)]
pub(in crate::store::sql) struct Selection {
    pub(in crate::store::sql) filter: MessageFilter,
    pub(in crate::store::sql) after: i64,
    pub(in crate::store::sql) most: u32,
}

/// One small step of a replay.
#[derive(Clone, Debug)]
pub(in crate::store::sql) struct Replay {
    pub(in crate::store::sql) selection: Selection,
    /// When the first one of this step is due, from now.
    pub(in crate::store::sql) wait: Duration,
    pub(in crate::store::sql) gap: Duration,
}

/// What a step looked at, and what it changed.
#[derive(Clone, Debug, Default)]
pub(in crate::store::sql) struct Selected {
    /// How many rows: also those that cannot be read and were left as they are.
    pub(in crate::store::sql) looked_at: usize,
    /// The last one of them.
    pub(in crate::store::sql) last: Option<i64>,
    /// What was changed, in order.
    pub(in crate::store::sql) keys: Vec<MessageKey>,
}

/// What became of an endpoint that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::sql) enum Removal {
    Done,
    NotThere,
    /// It is there still: more of its messages have no end than one transaction should change.
    TooLarge,
}

/// One small step through the messages of an endpoint.
#[derive(Clone, Debug)]
pub(in crate::store::sql) enum Sweep {
    /// They become dead letters, since the endpoint is being removed.
    Bury(Name),
    /// They are looked at when they are due.
    Promote(Name),
}

/// How many messages one step changes or removes: a few milliseconds' work.
pub(in crate::store::sql) const STEP: u32 = 200;

/// One small step of a purge.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct PurgeStep {
    pub(in crate::store::sql) retention: OutboxRetention,
    pub(in crate::store::sql) most: u32,
}

impl<D: Database> Asked<D> for Call {
    fn send(self) -> Vec<Self> {
        match self {
            Self::Claim(ask) => {
                let untaken = ask.offer().unwrap_or_default();
                measure::untold(&untaken.buried);
                return untaken.messages.into_iter().map(|claimed| Self::Release(Ask::new(claimed.lease).0)).collect();
            }
            Self::Cancel(ask) => ask.send(),
            Self::Check(ask) => ask.send(),
            Self::DisableEndpoint(ask) => ask.send(),
            Self::RemoveEndpoint(ask) => ask.send(),
            Self::Enqueue(ask) => ask.send(),
            Self::Publish(ask) => ask.send(),
            Self::Purge(ask) => ask.send(),
            Self::PutEndpoint(ask) => ask.send(),
            Self::Release(ask) => ask.send(),
            Self::Renew(ask) => ask.send(),
            Self::Replay(ask) => ask.send(),
            Self::Settle(ask) => ask.send(),
            Self::Sweep(ask) => ask.send(),
        }
        Vec::new()
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Cancel(ask) => ask.refuse(error),
            Self::Check(ask) => ask.refuse(error),
            Self::Claim(ask) => ask.refuse(error),
            Self::DisableEndpoint(ask) => ask.refuse(error),
            Self::RemoveEndpoint(ask) => ask.refuse(error),
            Self::Enqueue(ask) => ask.refuse(error),
            Self::Publish(ask) => ask.refuse(error),
            Self::Purge(ask) => ask.refuse(error),
            Self::PutEndpoint(ask) => ask.refuse(error),
            Self::Release(ask) => ask.refuse(error),
            Self::Renew(ask) => ask.refuse(error),
            Self::Replay(ask) => ask.refuse(error),
            Self::Settle(ask) => ask.refuse(error),
            Self::Sweep(ask) => ask.refuse(error),
        }
    }

    /// A claim whose caller is gone would only keep its messages from others. An end is recorded whoever waits for it,
    /// since the attempt was made.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Claim(ask) => ask.is_abandoned(),
            _ => false,
        }
    }

    fn weight(&self) -> usize {
        const ROW: usize = 256;
        match self {
            Self::Enqueue(ask) => ask.question.0.iter().map(|new| ROW + new.message.payload.len()).sum(),
            // For how many endpoints is not known yet.
            Self::Publish(ask) => 8 * (ROW + ask.question.0.payload.len()),
            Self::Settle(ask) => ROW + ask.question.1.report.body.len(),
            _ => ROW,
        }
    }

    fn carry_out(
        database: &mut D,
        calls: &mut [Self],
        now: Timestamp,
        again: bool,
    ) -> impl Future<Output = Done> + Send {
        batch::carry_out(database, calls.iter_mut(), now, again)
    }
}
