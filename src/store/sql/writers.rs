//! The way to a store's writers: a call goes to one of them, and its answer comes back.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::call::Ask;
use super::transactor::Transactor;
use super::writer::{Asked, Patience, Told, Writer};
use crate::store::StoreError;

/// The writers that take calls of a kind `C`. Clones lead to the same ones.
#[derive(Debug)]
pub(super) struct Writers<C> {
    queues: Vec<Sender<C>>,
    aside: Option<Sender<C>>,
    commits: Arc<AtomicU64>,
}

// Not derived: that would ask it of the calls too.
impl<C> Clone for Writers<C> {
    fn clone(&self) -> Self {
        Self { queues: self.queues.clone(), aside: self.aside.clone(), commits: Arc::clone(&self.commits) }
    }
}

/// The way to one writer.
pub(super) type Sender<C> = mpsc::Sender<Told<C>>;

impl<C> Writers<C> {
    /// Starts a writer for each connection. `calls` may wait for each of them.
    pub(super) fn start<D: Transactor>(runtime: &Handle, databases: Vec<D>, calls: usize, patience: Patience) -> Self
    where
        C: Asked<D>,
    {
        let commits: Arc<AtomicU64> = Arc::default();
        let start = |database| {
            let (queue, told) = mpsc::channel(calls);
            runtime.spawn(Writer { told, database, patience, idle: None, commits: Arc::clone(&commits) }.run());
            queue
        };
        Self { queues: databases.into_iter().map(start).collect(), aside: None, commits: Arc::clone(&commits) }
    }

    /// One more, for long work that nobody should wait behind. It connects when there is something to do, and lets go of
    /// its connection soon after.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn with_one_aside<D: Transactor>(
        mut self,
        runtime: &Handle,
        database: D,
        calls: usize,
        patience: Patience,
    ) -> Self
    where
        C: Asked<D>,
    {
        let (queue, told) = mpsc::channel(calls);
        let commits = Arc::clone(&self.commits);
        runtime.spawn(Writer { told, database, patience, idle: Some(IDLE), commits }.run());
        self.aside = Some(queue);
        self
    }

    /// None at all: every call is refused, as after a close.
    #[cfg(all(feature = "send", any(feature = "postgres", feature = "mysql")))]
    pub(super) fn none() -> Self {
        Self { queues: Vec::new(), aside: None, commits: Arc::default() }
    }

    /// How many transactions the writers have committed.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(super) fn all(&self) -> &[Sender<C>] {
        &self.queues
    }

    /// For calls about what is not known yet.
    pub(super) fn first(&self) -> Result<&Sender<C>, StoreError> {
        self.queues.first().ok_or_else(stopped)
    }

    /// For long work: the one aside where there is one, else the first.
    pub(super) fn aside(&self) -> Result<&Sender<C>, StoreError> {
        self.aside.as_ref().map_or_else(|| self.first(), Ok)
    }

    /// All calls about one thing go to the same writer, in their order, so that writers do not wait for each other.
    pub(super) fn of(&self, key: &impl Hash) -> Result<&Sender<C>, StoreError> {
        let place = match u64::try_from(self.queues.len()) {
            Ok(writers @ 2..) => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                usize::try_from(hasher.finish() % writers).unwrap_or(0)
            }
            _ => 0,
        };
        self.queues.get(place).ok_or_else(stopped)
    }

    /// Does what is waiting, and closes the connections.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let mut closing = Vec::with_capacity(self.queues.len() + 1);
        for queue in self.queues.iter().chain(&self.aside) {
            let (done, closed) = oneshot::channel();
            queue.send(Told::Close(done)).await.map_err(|_| stopped())?;
            closing.push(closed);
        }
        for closed in closing {
            closed.await.map_err(|_| stopped())?;
        }
        Ok(())
    }
}

/// How long a connection that is needed now and then stays open for the next call.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const IDLE: std::time::Duration = std::time::Duration::from_secs(5);

/// Hands a call to a writer. The caller waits for the answer and owns nothing meanwhile, so that it may be dropped.
pub(super) async fn ask<Q, A, K, C: From<K>>(
    writer: &Sender<C>,
    question: Q,
    call: fn(Ask<Q, A>) -> K,
) -> Result<A, StoreError> {
    let (ask, answer) = Ask::new(question);
    writer.try_send(Told::Do(call(ask).into())).map_err(|error| match error {
        TrySendError::Full(_) => StoreError::Overloaded(writer.max_capacity()),
        TrySendError::Closed(_) => stopped(),
    })?;
    answer.await.map_err(|_| stopped())?
}

/// The same, waiting for a place where there is none. For what ends or goes on with a run: its work is done or under way,
/// and there are no more of these calls than leases were handed out.
pub(super) async fn insist<Q, A, K, C: From<K>>(
    writer: &Sender<C>,
    question: Q,
    call: fn(Ask<Q, A>) -> K,
) -> Result<A, StoreError> {
    let (ask, answer) = Ask::new(question);
    writer.send(Told::Do(call(ask).into())).await.map_err(|_| stopped())?;
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
