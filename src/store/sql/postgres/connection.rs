//! A writer's connection to PostgreSQL.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Postgres, Row as _};

use super::super::fault::Fault;
use super::super::source::Source;
use super::super::transactor::{Done, Transactor};
use super::super::writer;
use super::{fault, statements};
use crate::Timestamp;

#[derive(Debug)]
pub(super) struct Connection {
    /// `None` before the first transaction, and after a failure.
    pub(super) connection: Option<PgConnection>,
    pub(super) source: Source<Postgres>,
    /// Whether statements may be prepared and settings kept: the connection leads to a session of its own.
    pub(super) prepared: bool,
    /// Whether this session has its settings.
    pub(super) set_up: bool,
    /// Whether those who listen are told of new messages.
    #[cfg(feature = "send")]
    pub(super) announces: bool,
    /// Where claims of messages begin to look.
    #[cfg(feature = "send")]
    pub(super) floors: super::outbox::Floors,
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
            self.connection = Some(self.source.connect().await?);
        }
        let statement = if self.prepared { statements::BEGIN_SET_UP } else { statements::BEGIN };
        self.set_up().await?;
        let rows = sqlx::raw_sql(statement).fetch_all(self.open()?).await?;
        let now = rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get("now")?;
        Ok(Timestamp::from_micros(now))
    }

    async fn commit(&mut self) -> Done {
        sqlx::raw_sql(statements::COMMIT).execute(self.open()?).await.map(drop)
    }

    async fn rollback(&mut self) -> Done {
        #[cfg(feature = "send")]
        self.floors.forget();
        sqlx::raw_sql(statements::ROLLBACK).execute(self.open()?).await.map(drop)
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.set_up = false;
        #[cfg(feature = "send")]
        self.floors.forget();
    }

    async fn close(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        self.set_up = false;
        if let Err(error) = connection.close().await {
            tracing::debug!(%error, "the store's connection was not closed in good order");
        }
    }
}

impl Connection {
    /// Gives the session its settings, where it can keep them.
    async fn set_up(&mut self) -> Done {
        if self.prepared && !self.set_up {
            sqlx::raw_sql(statements::SET_UP).execute(self.open()?).await?;
            self.set_up = true;
        }
        Ok(())
    }

    /// Whether there is a session with its settings, in which a statement may stand alone.
    pub(super) const fn is_set_up(&self) -> bool {
        self.connection.is_some() && self.set_up
    }

    pub(super) fn open(&mut self) -> Done<&mut PgConnection> {
        self.connection.as_mut().ok_or(sqlx::Error::WorkerCrashed)
    }
}
