//! The side of a store that callers see: calls go to the writers, and answers come back.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::call::{Ask, Call, PurgeStep};
use super::database::Database;
use super::writer::{Patience, Writer};
use crate::store::{
    Accept, Accepted, Claim, Claimed, Failure, Lease, Purged, ReceiptKey, ReceiptState, Reserve, Reserved, Retention,
    Settled, StoreError, StoredResult, Token,
};

/// The queues of a store's writers.
///
/// All calls about one receipt go to the same writer, in their order, so that writers do not wait for each other.
#[derive(Debug)]
pub(super) struct Queue {
    writers: Vec<mpsc::Sender<Call>>,
    commits: Arc<AtomicU64>,
}

impl Queue {
    /// Starts a writer for each connection. `calls` may wait for each of them.
    pub(super) fn start<D: Database>(runtime: &Handle, databases: Vec<D>, calls: usize, patience: Patience) -> Self {
        let commits: Arc<AtomicU64> = Arc::default();
        let start = |database| {
            let (queue, calls) = mpsc::channel(calls);
            runtime.spawn(Writer { calls, database, patience, commits: Arc::clone(&commits) }.run());
            queue
        };
        Self { writers: databases.into_iter().map(start).collect(), commits: Arc::clone(&commits) }
    }

    /// How many transactions the writers have committed.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(super) async fn reserve(&self, request: Reserve) -> Result<Reserved, StoreError> {
        let writer = self.writer_of(&request.key)?;
        ask(writer, (request, Token::random()?), Call::Reserve).await
    }

    pub(super) async fn accept(&self, request: Accept) -> Result<Accepted, StoreError> {
        ask(self.writer_of(&request.key)?, Box::new(request), Call::Accept).await
    }

    /// By the first writer: which receipts it will be about is not known, and it waits for no lock of another one.
    pub(super) async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let writer = self.writers.first().ok_or_else(stopped)?;
        let tokens = (0..claim.most()).map(|_| Token::random()).collect::<Result<Vec<_>, _>>()?;
        ask(writer, (claim, tokens), Call::Claim).await
    }

    pub(super) async fn release(&self, lease: Lease) -> Result<Settled, StoreError> {
        insist(self.writer_of(&lease.key)?, lease, Call::Release).await
    }

    pub(super) async fn complete(&self, lease: Lease, result: StoredResult) -> Result<Settled, StoreError> {
        insist(self.writer_of(&lease.key)?, (lease, result), Call::Complete).await
    }

    pub(super) async fn fail(&self, lease: Lease, failure: Failure) -> Result<Settled, StoreError> {
        insist(self.writer_of(&lease.key)?, (lease, Box::new(failure)), Call::Fail).await
    }

    pub(super) async fn renew(&self, lease: Lease, span: Duration) -> Result<Settled, StoreError> {
        insist(self.writer_of(&lease.key)?, (lease, span), Call::Renew).await
    }

    pub(super) async fn retry(&self, key: ReceiptKey) -> Result<Option<ReceiptState>, StoreError> {
        ask(self.writer_of(&key)?, key, Call::Retry).await
    }

    pub(super) async fn forget(&self, key: ReceiptKey) -> Result<bool, StoreError> {
        ask(self.writer_of(&key)?, key, Call::Forget).await
    }

    /// Small steps between the batches of other callers, so that none of them waits for long.
    pub(super) async fn purge(&self, retention: Retention, limit: u32) -> Result<Purged, StoreError> {
        /// A few milliseconds' work.
        const STEP: u32 = 200;
        let writer = self.writers.first().ok_or_else(stopped)?;
        let mut left = Purged { results: limit.into(), keys: limit.into() };
        let mut purged = Purged::default();
        let most = |left: u64| u32::try_from(left).unwrap_or(STEP).min(STEP);
        while left.keys > 0 || left.results > 0 {
            // Bodies after keys: what is about to go as a whole need not lose its body first.
            let keys = most(left.keys);
            let step = PurgeStep { retention, keys, results: if keys > 0 { 0 } else { most(left.results) } };
            let done = ask(writer, step, Call::Purge).await?;
            purged.keys += done.keys;
            purged.results += done.results;
            // Less than was asked for: there is no more.
            left.keys = if done.keys < step.keys.into() { 0 } else { left.keys - done.keys };
            if keys == 0 {
                left.results = if done.results < step.results.into() { 0 } else { left.results - done.results };
            }
        }
        Ok(purged)
    }

    /// Every writer: each has a connection of its own that may have failed.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        for writer in &self.writers {
            ask(writer, (), Call::Check).await?;
        }
        Ok(())
    }

    /// Does what is waiting, and closes the connections.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let mut closing = Vec::with_capacity(self.writers.len());
        for writer in &self.writers {
            let (done, closed) = oneshot::channel();
            writer.send(Call::Close(done)).await.map_err(|_| stopped())?;
            closing.push(closed);
        }
        for closed in closing {
            closed.await.map_err(|_| stopped())?;
        }
        Ok(())
    }

    fn writer_of(&self, key: &ReceiptKey) -> Result<&mpsc::Sender<Call>, StoreError> {
        let place = match u64::try_from(self.writers.len()) {
            Ok(writers @ 2..) => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                usize::try_from(hasher.finish() % writers).unwrap_or(0)
            }
            _ => 0,
        };
        self.writers.get(place).ok_or_else(stopped)
    }
}

/// Hands a call to a writer. The caller waits for the answer and owns nothing meanwhile, so that it may be dropped.
async fn ask<Q, A>(writer: &mpsc::Sender<Call>, question: Q, call: fn(Ask<Q, A>) -> Call) -> Result<A, StoreError> {
    let (ask, answer) = Ask::new(question);
    writer.try_send(call(ask)).map_err(|error| match error {
        TrySendError::Full(_) => StoreError::Overloaded(writer.max_capacity()),
        TrySendError::Closed(_) => stopped(),
    })?;
    answer.await.map_err(|_| stopped())?
}

/// The same, waiting for a place where there is none. For what ends or goes on with a run: its work is done or under way,
/// and there are no more of these calls than leases were handed out.
async fn insist<Q, A>(writer: &mpsc::Sender<Call>, question: Q, call: fn(Ask<Q, A>) -> Call) -> Result<A, StoreError> {
    let (ask, answer) = Ask::new(question);
    writer.send(call(ask)).await.map_err(|_| stopped())?;
    answer.await.map_err(|_| stopped())?
}

/// How many calls may be let wait.
pub(super) fn check_length(calls: usize) -> Result<(), StoreError> {
    if (1..=1 << 20).contains(&calls) {
        return Ok(());
    }
    Err(StoreError::Config(format!("a queue of {calls} calls: 1 to 1,048,576 can be had")))
}

fn stopped() -> StoreError {
    StoreError::Unavailable { reason: "the store has been closed, or its runtime has ended".into(), source: None }
}

/// The contract, for a store whose inner part has a `queue`: all that writes goes there. How it reads is its own.
macro_rules! inbox_store {
    ($store:ty, |$inner:ident| find($key:ident): $find:expr, list($filter:ident): $list:expr) => {
        use $crate::store::{
            Accept, Accepted, Claim, Claimed, Failure, InboxStore, Lease, ListFilter, Purged, Receipt, ReceiptKey,
            ReceiptState, Reserve, Reserved, Retention, Settled, StoreFuture, StoredResult,
        };

        impl InboxStore for $store {
            fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
                Box::pin(self.0.queue.reserve(request))
            }

            fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
                Box::pin(self.0.queue.accept(request))
            }

            fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
                Box::pin(self.0.queue.claim(claim))
            }

            fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.release(lease))
            }

            fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.complete(lease, result))
            }

            fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.fail(lease, failure))
            }

            fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.renew(lease, span))
            }

            fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
                let $inner = &*self.0;
                let $key = key;
                Box::pin($find)
            }

            fn list(&self, filter: ListFilter) -> StoreFuture<'_, Vec<Receipt>> {
                let $inner = &*self.0;
                let $filter = filter;
                Box::pin($list)
            }

            fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
                Box::pin(self.0.queue.retry(key))
            }

            fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
                Box::pin(self.0.queue.forget(key))
            }

            fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
                Box::pin(self.0.queue.purge(retention, limit))
            }

            fn check(&self) -> StoreFuture<'_, ()> {
                Box::pin(self.0.queue.check())
            }
        }
    };
}

pub(super) use inbox_store;
