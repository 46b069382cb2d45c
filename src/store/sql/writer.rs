//! The task that writes: it makes one transaction of whatever is waiting.
//!
//! A durable commit costs a sync of the disk, hundreds of times what a row costs. So callers hand their calls to this
//! task, and it takes all that have gathered, carries them out in one transaction, and answers each after the commit.
//! A caller alone is committed at once. The more there are, the more share a commit; nobody waits for a timer.
//!
//! It also means that no caller ever holds a transaction, so that a caller that is dropped cannot leave one open.
//!
//! # A commit whose answer is lost
//!
//! A connection to a server can break after `COMMIT` was sent. The batch is then done again on a new connection, and
//! finds out what stands: a reservation finds its own token and is its holder still; a renewal is the same twice; an end
//! finds that its token was the last one that ended a run there; an event that was taken in is known. What remains open is
//! small: another body may be counted twice, a `forget` may say that there was nothing, and a purge may count too little.
//! What a claim took is not found again: its leases run out, each of these runs counts, and then the events are due. Where no new connection can be had
//! either, callers get an error, and their leases decide.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::batch;
use super::call::Call;
use super::database::Database;
use super::fault::{self, Fault};
use crate::store::StoreError;

/// At most so many calls in one transaction: beyond this, rows cost more than the commit that they share.
pub(super) const MAX_CALLS: usize = 512;

/// And about so many bytes, so that a burst of large bodies does not gather in memory twice.
const MAX_BYTES: usize = 8 * 1_024 * 1_024;

/// How long to leave a busy database to others before the next attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// The same before a connection is made anew; twice as long before the next one, and so on.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// How long the writer goes on with a batch that fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// With a database that is busy.
    pub(super) busy: Duration,
    /// How often to connect anew.
    pub(super) reconnects: u32,
    /// With one attempt that does not end. `None` where the database itself sees to that.
    pub(super) attempt: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Writer<D> {
    pub(super) calls: mpsc::Receiver<Call>,
    pub(super) database: D,
    pub(super) patience: Patience,
    pub(super) commits: Arc<AtomicU64>,
}

impl<D: Database> Writer<D> {
    /// Ends when it is told to, or when the last handle of the store is gone; what is waiting then is still done.
    pub(super) async fn run(mut self) {
        let mut closing = Vec::new();
        while let Some(first) = self.calls.recv().await {
            let mut batch = self.gather(first);
            for call in batch.extract_if(.., |call| matches!(call, Call::Close(_))) {
                self.calls.close();
                closing.push(call);
            }
            self.commit(batch).await;
            // Lets those who were just answered ask again before the next batch is taken; a batch of the fastest one
            // alone would have all others wait for its sync.
            tokio::task::yield_now().await;
        }
        self.database.close().await;
        for call in closing {
            call.send();
        }
    }

    fn gather(&mut self, first: Call) -> Vec<Call> {
        let mut weight = first.weight();
        let mut batch = vec![first];
        while batch.len() < MAX_CALLS && weight < MAX_BYTES {
            let Ok(call) = self.calls.try_recv() else { break };
            weight += call.weight();
            batch.push(call);
        }
        batch
    }

    /// Does a batch. Where it fails because of one row, each call is done alone, so that none fails for another's sake.
    async fn commit(&mut self, mut batch: Vec<Call>) {
        batch.retain(|call| !call.is_abandoned());
        if batch.is_empty() {
            return;
        }
        match self.transact(&mut batch).await {
            Ok(()) => batch.into_iter().for_each(Call::send),
            Err(error) if batch.len() > 1 && D::fault(&error) == Fault::Row => {
                tracing::warn!(%error, calls = batch.len(), "a batch failed for one of its rows: doing each alone");
                for call in batch {
                    let mut alone = [call];
                    let done = self.transact(&mut alone).await;
                    let [call] = alone;
                    match done {
                        Ok(()) => call.send(),
                        Err(error) => call.refuse(refusal::<D>(&Arc::new(error))),
                    }
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                batch.into_iter().for_each(|call| call.refuse(refusal::<D>(&error)));
            }
        }
    }

    /// Tries until it is done, fails, or has been kept from the database for too long.
    async fn transact(&mut self, calls: &mut [Call]) -> Result<(), sqlx::Error> {
        let deadline = Instant::now() + self.patience.busy;
        let (mut reconnects, mut again) = (0, false);
        loop {
            let Err(Failed { error, in_doubt }) = self.attempt(calls, again).await else {
                self.commits.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            again |= in_doubt;
            match D::fault(&error) {
                Fault::Busy if Instant::now() < deadline => sleep(PAUSE).await,
                Fault::Busy | Fault::Row => return Err(error),
                Fault::Connection => {
                    tracing::warn!(%error, "the store's connection failed: it will be made anew");
                    self.database.disconnect();
                    if reconnects >= self.patience.reconnects {
                        return Err(error);
                    }
                    sleep(RECONNECT_PAUSE * 2_u32.saturating_pow(reconnects)).await;
                    reconnects += 1;
                }
            }
        }
    }

    async fn attempt(&mut self, calls: &mut [Call], again: bool) -> Result<(), Failed> {
        let Some(limit) = self.patience.attempt else { return attempt(&mut self.database, calls, again).await };
        let done = timeout(limit, attempt(&mut self.database, calls, again)).await;
        done.unwrap_or_else(|_| {
            // Given up as it is: what was under way may still be committed.
            self.database.disconnect();
            let error = io::Error::new(io::ErrorKind::TimedOut, "the database did not answer in time");
            Err(Failed { error: sqlx::Error::Io(error), in_doubt: true })
        })
    }
}

/// What the callers of a batch that was not committed hear. A row that the database does not take it will never take.
fn refusal<D: Database>(error: &Arc<sqlx::Error>) -> StoreError {
    match D::fault(error) {
        Fault::Busy | Fault::Connection => fault::shared("writing", error),
        Fault::Row => StoreError::Rejected(error.to_string()),
    }
}

/// Why an attempt failed, and whether it may have been committed all the same.
struct Failed {
    error: sqlx::Error,
    in_doubt: bool,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self { error, in_doubt: false }
    }
}

async fn attempt<D: Database>(database: &mut D, calls: &mut [Call], again: bool) -> Result<(), Failed> {
    let now = database.begin().await?;
    match batch::carry_out(database, calls, now, again).await {
        Ok(()) => database.commit().await.map_err(|error| {
            let in_doubt = D::fault(&error) == Fault::Connection;
            Failed { error, in_doubt }
        }),
        Err(error) => {
            // The first error says more than that of a rollback on the same broken connection.
            if let Err(error) = database.rollback().await {
                tracing::debug!(%error, "a transaction was not rolled back in good order");
                database.disconnect();
            }
            Err(error.into())
        }
    }
}
