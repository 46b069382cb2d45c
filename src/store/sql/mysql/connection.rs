//! A writer's connection to MySQL or MariaDB.

use std::mem;
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{Connection as _, MySql, Row as _};

use super::super::fault::Fault;
use super::super::source::Source;
use super::super::transactor::{Done, Transactor};
use super::super::writer;
use super::{fault, migrate, statements};
use crate::Timestamp;

#[derive(Debug)]
pub(super) struct Connection {
    /// `None` before the first transaction, and after a failure.
    pub(super) connection: Option<MySqlConnection>,
    pub(super) source: Source<MySql>,
    /// Whether this transaction took locks that do not end with it.
    pub(super) named_locks: bool,
}

pub(super) const fn patience(busy: Duration) -> writer::Patience {
    writer::Patience { busy, reconnects: 3, attempt: Some(Duration::from_secs(30)) }
}

impl Transactor for Connection {
    const ALONE: bool = false;

    fn fault(error: &sqlx::Error) -> Fault {
        fault::of(error)
    }

    async fn begin(&mut self) -> Done<Timestamp> {
        if self.connection.is_none() {
            let mut connection = self.source.connect().await?;
            migrate::prepare(&mut connection).await?;
            self.connection = Some(connection);
        }
        let rows = sqlx::raw_sql(statements::BEGIN).fetch_all(self.open()?).await?;
        let now = rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get("now")?;
        Ok(Timestamp::from_micros(now))
    }

    async fn commit(&mut self) -> Done {
        let named_locks = mem::take(&mut self.named_locks);
        let statement = if named_locks { statements::COMMIT_AND_UNLOCK } else { statements::COMMIT };
        sqlx::raw_sql(statement).execute(self.open()?).await.map(drop)
    }

    async fn rollback(&mut self) -> Done {
        let named_locks = mem::take(&mut self.named_locks);
        let statement = if named_locks { statements::ROLLBACK_AND_UNLOCK } else { statements::ROLLBACK };
        sqlx::raw_sql(statement).execute(self.open()?).await.map(drop)
    }

    fn disconnect(&mut self) {
        self.connection = None;
        // The server frees them.
        self.named_locks = false;
    }

    async fn close(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if let Err(error) = connection.close().await {
            tracing::debug!(%error, "the store's connection was not closed in good order");
        }
    }
}

impl Connection {
    pub(super) fn open(&mut self) -> Done<&mut MySqlConnection> {
        self.connection.as_mut().ok_or(sqlx::Error::WorkerCrashed)
    }
}
