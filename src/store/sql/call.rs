//! A call to the writer: what is asked, and where the answer goes.

use std::time::Duration;

use tokio::sync::oneshot;

use super::database::Database;
use super::transactor::Done;
use super::writer::Asked;
use super::{at_once, batch};
use crate::Timestamp;
use crate::store::{
    Accept, Accepted, Claim, Claimed, Failure, Lease, Purged, ReceiptKey, ReceiptState, Reserve, Reserved, ResultBody,
    Retention, Settled, StoreError, StoredResult, Token,
};

/// What is asked, with the answer once the writer has one. The answer leaves after the commit, never before.
#[derive(Debug)]
pub(super) struct Ask<Q, A> {
    pub(super) question: Q,
    pub(super) answer: Option<Result<A, StoreError>>,
    reply: oneshot::Sender<Result<A, StoreError>>,
}

impl<Q, A> Ask<Q, A> {
    pub(super) fn new(question: Q) -> (Self, oneshot::Receiver<Result<A, StoreError>>) {
        let (reply, receiver) = oneshot::channel();
        (Self { question, answer: None, reply }, receiver)
    }

    /// Nobody waits: where the answer cannot be delivered its caller is gone.
    pub(super) fn send(self) {
        let _ = self.offer();
    }

    /// Delivers the answer. It comes back where its caller is gone.
    pub(super) fn offer(self) -> Option<A> {
        self.reply.send(self.answer?).err()?.ok()
    }

    pub(super) fn refuse(self, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }

    /// Whether its caller is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A claim comes with as many tokens as there may be events.
pub(super) type ClaimAsk = Ask<(Claim, Vec<Token>), Vec<Claimed>>;

/// Everything that the writer does.
#[derive(Debug)]
pub(super) enum Call {
    Accept(Ask<Box<Accept>, Accepted>),
    Check(Ask<(), ()>),
    Claim(ClaimAsk),
    Complete(Ask<(Lease, StoredResult), Settled>),
    Conclude(Ask<ReceiptKey, Option<ReceiptState>>),
    Fail(Ask<(Lease, Box<Failure>), Settled>),
    Forget(Ask<ReceiptKey, bool>),
    Purge(Ask<PurgeStep, Purged>),
    Release(Ask<Lease, Settled>),
    Renew(Ask<(Lease, Duration), Settled>),
    Reserve(Ask<(Reserve, Token), Reserved>),
    Retry(Ask<ReceiptKey, Option<ReceiptState>>),
}

/// One small step of a purge.
#[derive(Clone, Copy, Debug)]
pub(super) struct PurgeStep {
    pub(super) retention: Retention,
    pub(super) keys: u32,
    pub(super) results: u32,
}

impl<D: Database> Asked<D> for Call {
    fn send(self) -> Vec<Self> {
        match self {
            Self::Claim(ask) => {
                let untaken = ask.offer().unwrap_or_default();
                return untaken.into_iter().map(|claimed| Self::Release(Ask::new(claimed.lease).0)).collect();
            }
            Self::Accept(ask) => ask.send(),
            Self::Check(ask) => ask.send(),
            Self::Complete(ask) => ask.send(),
            Self::Conclude(ask) => ask.send(),
            Self::Fail(ask) => ask.send(),
            Self::Forget(ask) => ask.send(),
            Self::Purge(ask) => ask.send(),
            Self::Release(ask) => ask.send(),
            Self::Renew(ask) => ask.send(),
            Self::Reserve(ask) => ask.send(),
            Self::Retry(ask) => ask.send(),
        }
        Vec::new()
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Accept(ask) => ask.refuse(error),
            Self::Check(ask) => ask.refuse(error),
            Self::Claim(ask) => ask.refuse(error),
            Self::Complete(ask) => ask.refuse(error),
            Self::Conclude(ask) => ask.refuse(error),
            Self::Fail(ask) => ask.refuse(error),
            Self::Forget(ask) => ask.refuse(error),
            Self::Purge(ask) => ask.refuse(error),
            Self::Release(ask) => ask.refuse(error),
            Self::Renew(ask) => ask.refuse(error),
            Self::Reserve(ask) => ask.refuse(error),
            Self::Retry(ask) => ask.refuse(error),
        }
    }

    /// A reservation or claim whose caller is gone would only keep others from the event. An end is recorded whoever waits
    /// for it, since the work was done.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Claim(ask) => ask.is_abandoned(),
            Self::Reserve(ask) => ask.is_abandoned(),
            _ => false,
        }
    }

    fn weight(&self) -> usize {
        const ROW: usize = 256;
        let body = |result: &StoredResult| match &result.body {
            ResultBody::Kept(body) => body.len(),
            ResultBody::Omitted => 0,
        };
        match self {
            Self::Accept(ask) => ROW + ask.question.request.body.len(),
            Self::Complete(ask) => ROW + body(&ask.question.1),
            Self::Fail(ask) => {
                let failure = &ask.question.1;
                let request = failure.request.as_ref().map_or(0, |request| request.body.len());
                ROW + failure.result.as_ref().map_or(0, body) + request
            }
            _ => ROW,
        }
    }

    fn is_answered(&self) -> bool {
        match self {
            Self::Complete(ask) => ask.answer.is_some(),
            Self::Reserve(ask) => ask.answer.is_some(),
            _ => false,
        }
    }

    fn at_once(database: &mut D, calls: &mut [Self]) -> impl Future<Output = Done> + Send {
        at_once::answer(database, calls)
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
