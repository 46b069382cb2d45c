//! The one task that writes: it makes one transaction of whatever is waiting.
//!
//! A durable commit costs a sync of the disk, hundreds of times what a row costs. So callers hand their calls to this
//! task, and it takes all that have gathered, carries them out in one transaction, and answers each after the commit.
//! A caller alone is committed at once. The more there are, the more share a commit; nobody waits for a timer.
//!
//! It also means that no caller ever holds a transaction, so that a caller that is dropped cannot leave one open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, SqlitePool};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::batch;
use super::call::Call;
use super::fault::{self, Fault};
use super::files::Files;
use crate::Clock;

/// At most so many calls in one transaction: beyond this, rows cost more than the commit that they share.
const MAX_CALLS: usize = 512;

/// And about so many bytes, so that a burst of large bodies does not gather in memory twice.
const MAX_BYTES: usize = 8 * 1_024 * 1_024;

/// How long to leave the file to another process after it was busy for longer than SQLite itself waits.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) calls: mpsc::Receiver<Call>,
    /// `None` after a failure: the next batch connects anew.
    pub(super) connection: Option<SqliteConnection>,
    pub(super) files: Files,
    pub(super) readers: SqlitePool,
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

    /// Does the calls in one transaction. What was committed to files that are not there any more is not done.
    async fn attempt(&mut self, calls: &mut [Call]) -> Result<(), sqlx::Error> {
        if self.connection.is_some() && !self.files.are_in_place() {
            self.let_go().await;
        }
        if self.connection.is_none() {
            self.files.forget_log();
            self.close_readers().await;
            if !self.files.database_is_in_place() {
                return Err(
                    io::Error::other("the database's file was removed or replaced: put it back, or restart").into()
                );
            }
        }
        self.carry_out(calls).await?;
        if self.files.are_in_place() {
            return Ok(());
        }
        self.let_go().await;
        Err(io::Error::other("the database's files were removed or replaced while they were written").into())
    }

    /// Closes every connection, this one last: then SQLite moves what stands in a removed log into the file, unless
    /// another process has it open.
    async fn let_go(&mut self) {
        tracing::error!("the database's file, or its log, was removed or replaced: opening what is there now");
        self.close_readers().await;
        if let Some(connection) = self.connection.take() {
            close(connection).await;
        }
    }

    /// Within one process all connections to a file share the index of its log. One that stays open would have a new
    /// one read the new log by the index of the old.
    async fn close_readers(&self) {
        /// How long to wait for those who read.
        const PATIENCE: Duration = Duration::from_secs(1);
        let deadline = Instant::now() + PATIENCE;
        while self.readers.size() > 0 && Instant::now() < deadline {
            match self.readers.try_acquire() {
                Some(reader) => close(reader.detach()).await,
                None => sleep(Duration::from_millis(2)).await,
            }
        }
    }

    async fn carry_out(&mut self, calls: &mut [Call]) -> Result<(), sqlx::Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await?),
        };
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        // The time is read once the right to write is held: a lease is not shortened by the wait for it.
        match batch::carry_out(&mut transaction, calls, self.clock.now()).await {
            Ok(()) => transaction.commit().await,
            Err(error) => {
                transaction.rollback().await?;
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

async fn close(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "a connection to files that are gone was not closed cleanly");
    }
}
