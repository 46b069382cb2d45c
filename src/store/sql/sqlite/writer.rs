//! The one task that writes: it makes one transaction of whatever is waiting.
//!
//! A durable commit costs a sync of the disk, hundreds of times what a row costs. So callers hand their calls to this
//! task, and it takes all that have gathered, carries them out in one transaction, and answers each after the commit.
//! A caller alone is committed at once. The more there are, the more share a commit; nobody waits for a timer.
//!
//! It also means that no caller ever holds a transaction, so that a caller that is dropped cannot leave one open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::batch;
use super::call::Call;
use super::fault::{self, Fault};
use crate::Clock;

/// At most so many calls in one transaction: beyond this, rows cost more than the commit that they share.
pub(super) const MAX_CALLS: usize = 512;

/// And about so many bytes, so that a burst of large bodies does not gather in memory twice.
const MAX_BYTES: usize = 8 * 1_024 * 1_024;

/// How long to leave the file to another process after it was busy for longer than SQLite itself waits.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) calls: mpsc::Receiver<Call>,
    /// `None` after a failure: the next batch connects anew.
    pub(super) connection: Option<SqliteConnection>,
    pub(super) options: SqliteConnectOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) busy_timeout: Duration,
    pub(super) commits: Arc<AtomicU64>,
}

impl Writer {
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
        self.close().await;
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
            Err(error) if batch.len() > 1 && Fault::of(&error) == Fault::Row => {
                tracing::warn!(%error, calls = batch.len(), "a batch failed for one of its rows: doing each alone");
                for call in batch {
                    let mut alone = [call];
                    let done = self.transact(&mut alone).await;
                    let [call] = alone;
                    match done {
                        Ok(()) => call.send(),
                        Err(error) => call.refuse(fault::unavailable("writing", error)),
                    }
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                batch.into_iter().for_each(|call| call.refuse(fault::shared("writing", &error)));
            }
        }
    }

    /// Tries until it is done, fails, or has been kept from the file for too long.
    async fn transact(&mut self, calls: &mut [Call]) -> Result<(), sqlx::Error> {
        let deadline = Instant::now() + self.busy_timeout;
        loop {
            let Err(error) = self.attempt(calls).await else {
                self.commits.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            match Fault::of(&error) {
                Fault::Busy if Instant::now() < deadline => sleep(PAUSE).await,
                Fault::Busy | Fault::Row => return Err(error),
                Fault::Connection => {
                    tracing::warn!(%error, "the store's connection failed: it will be made anew");
                    self.connection = None;
                    return Err(error);
                }
            }
        }
    }

    async fn attempt(&mut self, calls: &mut [Call]) -> Result<(), sqlx::Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await?),
        };
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        // The time is read once the right to write is held: a lease is not shortened by the wait for it.
        match batch::carry_out(&mut transaction, calls, self.clock.now()).await {
            Ok(()) => transaction.commit().await,
            Err(error) => {
                // Some failures have ended the transaction already. Then nobody knows what this connection is in.
                if transaction.rollback().await.is_err() {
                    self.connection = None;
                }
                Err(error)
            }
        }
    }

    /// Moves what is in the log into the file, so that the file alone is the whole store.
    async fn close(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let checkpoint = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await;
        if let Err(error) = checkpoint.and(connection.close().await) {
            tracing::debug!(%error, "the last checkpoint is left to the next process that opens the file");
        }
    }
}
