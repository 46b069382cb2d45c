//! Taking messages in: on the writer's connection, or on the caller's.

use std::collections::HashSet;

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::super::super::fault::Fault;
use super::super::super::outbox::enqueue::{Inserts, Made, New, Subscription};
use super::super::super::outbox::row::{self, json};
use super::super::super::transactor::Done;
use super::super::fault;
use super::statements;
use crate::{Clock as _, Digest, Name, SystemClock, Timestamp};

#[derive(Debug)]
pub(in crate::store::sql) struct Inserting<'c> {
    connection: &'c mut SqliteConnection,
    now: Timestamp,
}

impl<'c> Inserting<'c> {
    pub(super) const fn of_writer(connection: &'c mut SqliteConnection, now: Timestamp) -> Self {
        Self { connection, now }
    }

    /// The clock of this database is the system's.
    pub(in crate::store::sql) fn of_caller(connection: &'c mut SqliteConnection) -> Self {
        Self { connection, now: SystemClock.now() }
    }
}

impl Inserts for Inserting<'_> {
    fn fault(error: &sqlx::Error) -> Fault {
        fault::of(error)
    }

    async fn known(&mut self, names: &[&Name]) -> Done<HashSet<String>> {
        let query = sqlx::query(statements::KNOWN).bind(json(&names)?);
        query.fetch_all(&mut *self.connection).await?.iter().map(|row| row.try_get("name")).collect()
    }

    async fn subscriptions(&mut self) -> Done<Vec<Subscription>> {
        Ok(row::subscriptions(&sqlx::query(statements::SUBSCRIPTIONS).fetch_all(&mut *self.connection).await?))
    }

    /// Nobody else writes before this transaction ends.
    async fn take_turns(&mut self, _turns: &[Digest]) -> Done {
        Ok(())
    }

    async fn room(&mut self) -> Done<usize> {
        Ok(usize::MAX)
    }

    async fn insert(&mut self, rows: &[New<'_>], _again: bool) -> Done<Vec<Made>> {
        let mut cells = Vec::with_capacity(rows.len());
        // Never empty: SQLite takes no bytes for NULL, and so does `substr`.
        let mut payloads = vec![0];
        for row in rows {
            let message = row.message;
            // `substr` counts from 1.
            let begin = payloads.len() + 1;
            cells.push((
                (row.endpoint, &message.id, &message.event_type, &message.content_type),
                (&message.ordering_key, &message.correlation_id, &message.causation_id),
                (message.schema_version, &message.traceparent),
                (row.delay_micros(), begin, message.payload.len()),
            ));
            payloads.extend_from_slice(&message.payload);
        }
        let query = sqlx::query(statements::INSERT).bind(json(&cells)?).bind(payloads).bind(self.now.as_micros());
        let made = |row: &SqliteRow| Ok((row.try_get("endpoint")?, row.try_get("message_id")?));
        query.fetch_all(&mut *self.connection).await?.iter().map(made).collect()
    }

    /// There is nobody to tell: other processes poll.
    async fn announce(&mut self) -> Done {
        Ok(())
    }
}
