//! Taking messages in: on a writer's connection, or on the caller's.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::super::super::fault::Fault;
use super::super::super::outbox::enqueue::{Inserts, Made, New, Subscription};
use super::super::super::outbox::row::{self, json};
use super::super::super::row::Cells as _;
use super::super::super::transactor::Done;
use super::super::database::take_turns;
use super::super::fault;
use super::statements;
use crate::{Digest, Name, Timestamp};

#[derive(Debug)]
pub(in crate::store::sql) struct Inserting<'c> {
    connection: &'c mut MySqlConnection,
    /// `None`: the database's clock is asked.
    now: Option<Timestamp>,
    /// Where a writer notes that it took named locks. `None`: nobody would free them at the end of the transaction.
    named_locks: Option<&'c mut bool>,
}

impl<'c> Inserting<'c> {
    pub(super) const fn of_writer(
        connection: &'c mut MySqlConnection,
        named_locks: &'c mut bool,
        now: Timestamp,
    ) -> Self {
        Self { connection, now: Some(now), named_locks: Some(named_locks) }
    }

    pub(in crate::store::sql) const fn of_caller(connection: &'c mut MySqlConnection) -> Self {
        Self { connection, now: None, named_locks: None }
    }

    async fn insert_one(&mut self, row: &New<'_>) -> Done {
        let message = row.message;
        let bytes = |name: &Option<Name>| name.as_ref().map(|name| name.as_str().as_bytes().to_vec());
        sqlx::query(statements::INSERT_ONE)
            .bind(row.endpoint.as_str().as_bytes())
            .bind(message.id.as_str().as_bytes())
            .bind(message.event_type.as_str().as_bytes())
            .bind(message.content_type.as_bytes())
            .bind(&*message.payload)
            .bind(bytes(&message.ordering_key))
            .bind(bytes(&message.correlation_id))
            .bind(bytes(&message.causation_id))
            .bind(message.schema_version.map(i64::from))
            .bind(message.traceparent.as_deref().map(str::as_bytes))
            .bind(row.delay_micros())
            .bind(row.delay_micros())
            .bind(row.token.as_bytes().as_slice())
            .bind(self.now.map(Timestamp::as_micros))
            .execute(&mut *self.connection)
            .await
            .map(drop)
    }

    async fn insert_all(&mut self, rows: &[New<'_>]) -> Done {
        let name = |name: &Option<Name>| name.as_ref().map(|name| STANDARD.encode(name.as_str()));
        let cells: Vec<_> = rows
            .iter()
            .map(|row| {
                let message = row.message;
                let [endpoint, id, event_type, content_type] = [
                    row.endpoint.as_str(),
                    message.id.as_str(),
                    message.event_type.as_str(),
                    message.content_type.as_str(),
                ]
                .map(|text| STANDARD.encode(text));
                let [order, correlation, causation] =
                    [&message.ordering_key, &message.correlation_id, &message.causation_id].map(name);
                let payload = STANDARD.encode(&message.payload);
                let trace = message.traceparent.as_deref().map(|text| STANDARD.encode(text));
                let token = STANDARD.encode(row.token.as_bytes());
                let (version, delay) = (message.schema_version, row.delay_micros());
                (
                    endpoint,
                    id,
                    event_type,
                    content_type,
                    payload,
                    order,
                    correlation,
                    causation,
                    version,
                    trace,
                    delay,
                    token,
                )
            })
            .collect();
        let query = sqlx::query(statements::INSERT).bind(self.now.map(Timestamp::as_micros)).bind(json(&cells)?);
        query.execute(&mut *self.connection).await.map(drop)
    }
}

impl Inserts for Inserting<'_> {
    fn fault(error: &sqlx::Error) -> Fault {
        fault::of(error)
    }

    async fn known(&mut self, names: &[&Name]) -> Done<HashSet<String>> {
        let names: Vec<String> = names.iter().map(|name| STANDARD.encode(name.as_str())).collect();
        let found = sqlx::query(statements::KNOWN).bind(json(&names)?).fetch_all(&mut *self.connection).await?;
        let name = |row: &MySqlRow| row.text("name").map(Option::unwrap_or_default);
        found.iter().map(name).collect()
    }

    async fn subscriptions(&mut self) -> Done<Vec<Subscription>> {
        Ok(row::subscriptions(&sqlx::query(statements::SUBSCRIPTIONS).fetch_all(&mut *self.connection).await?))
    }

    /// Named locks belong to a session and not to its transaction: the caller's are left alone.
    async fn take_turns(&mut self, turns: &[Digest]) -> Done {
        let Some(named_locks) = &mut self.named_locks else { return Ok(()) };
        **named_locks = true;
        take_turns(self.connection, turns).await
    }

    async fn room(&mut self) -> Done<usize> {
        let row = sqlx::query(statements::ROOM).fetch_one(&mut *self.connection).await?;
        Ok(row.number("room")?.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX))
    }

    /// Which were made cannot be told from a count: a row that was there counts as found. Their token says it.
    async fn insert(&mut self, rows: &[New<'_>], _again: bool) -> Done<Vec<Made>> {
        match rows {
            // As it is: in base64 a large payload might be more than the server takes in one packet.
            [row] => self.insert_one(row).await?,
            _ => self.insert_all(rows).await?,
        }
        let cells: Vec<_> = rows
            .iter()
            .map(|row| {
                let (endpoint, id) = (STANDARD.encode(row.endpoint.as_str()), STANDARD.encode(row.message.id.as_str()));
                (endpoint, id, STANDARD.encode(row.token.as_bytes()))
            })
            .collect();
        let found = sqlx::query(statements::MADE).bind(json(&cells)?).fetch_all(&mut *self.connection).await?;
        let made = |row: &MySqlRow| {
            Ok((row.text("endpoint")?.unwrap_or_default(), row.text("message_id")?.unwrap_or_default()))
        };
        found.iter().map(made).collect()
    }

    /// There is nobody to tell: other processes poll.
    async fn announce(&mut self) -> Done {
        Ok(())
    }
}
