//! The writer's connection to the file.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, SqlitePool};
use tokio::time::{Instant, sleep};

use super::super::fault::Fault;
use super::super::transactor::{Done, Transactor};
use super::super::writer;
use super::fault;
use super::files::Files;
use crate::{Clock, Timestamp};

#[derive(Debug)]
pub(super) struct Connection {
    /// `None` after a failure: the next transaction connects anew.
    pub(super) connection: Option<SqliteConnection>,
    pub(super) options: SqliteConnectOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) files: Files,
    pub(super) readers: SqlitePool,
}

/// SQLite itself waits, and says when it has waited for long enough. A file that cannot be opened now will not be a
/// moment later.
pub(super) const fn patience(busy: Duration) -> writer::Patience {
    writer::Patience { busy, reconnects: 0, attempt: None }
}

impl Transactor for Connection {
    const ALONE: bool = true;

    fn fault(error: &sqlx::Error) -> Fault {
        fault::of(error)
    }

    async fn begin(&mut self) -> Done<Timestamp> {
        if self.connection.is_some() && !self.files.are_in_place() {
            self.let_go().await;
        }
        if self.connection.is_none() {
            self.files.forget_log();
            self.close_readers().await;
            if !self.files.database_is_in_place() {
                return Err(gone("the database's file was removed or replaced: put it back, or restart"));
            }
            self.connection = Some(self.options.connect().await?);
        }
        sqlx::query("BEGIN IMMEDIATE").execute(self.open()?).await?;
        // The time is read once the right to write is held: a lease is not shortened by the wait for it.
        Ok(self.clock.now())
    }

    async fn commit(&mut self) -> Done {
        let done = sqlx::query("COMMIT").execute(self.open()?).await;
        // A commit that failed for a busy or a full disk leaves the transaction open.
        if done.is_err() && self.rollback().await.is_err() {
            self.disconnect();
        }
        done?;
        if self.files.are_in_place() {
            return Ok(());
        }
        // What was committed to files that are not there any more is not done.
        self.let_go().await;
        Err(gone("the database's files were removed or replaced while they were written"))
    }

    async fn rollback(&mut self) -> Done {
        // Some errors have rolled it back already: then this one fails, and a new connection is the way out.
        sqlx::query("ROLLBACK").execute(self.open()?).await.map(drop)
    }

    fn disconnect(&mut self) {
        self.connection = None;
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

impl Connection {
    /// Closes every connection, this one last: then SQLite moves what stands in a removed log into the file, unless
    /// another process has it open.
    async fn let_go(&mut self) {
        tracing::error!("the database's file, or its log, was removed or replaced: opening what is there now");
        self.close_readers().await;
        if let Some(connection) = self.connection.take() {
            shut(connection).await;
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
                Some(reader) => shut(reader.detach()).await,
                None => sleep(Duration::from_millis(2)).await,
            }
        }
    }

    pub(super) fn open(&mut self) -> Done<&mut SqliteConnection> {
        self.connection.as_mut().ok_or(sqlx::Error::WorkerCrashed)
    }
}

async fn shut(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "a connection to files that are gone was not closed cleanly");
    }
}

fn gone(what: &'static str) -> sqlx::Error {
    io::Error::other(what).into()
}
