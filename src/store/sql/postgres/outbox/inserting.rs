//! Taking messages in: on a writer's connection, or on the caller's.

use std::collections::HashSet;

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _};

use super::super::super::fault::Fault;
use super::super::super::outbox::enqueue::{Inserts, Made, New, Subscription};
use super::super::super::outbox::row;
use super::super::super::transactor::Done;
use super::super::database::turn_numbers;
use super::super::fault;
use super::super::statements::TAKE_TURNS;
use super::statements;
use crate::{Digest, Name, Timestamp};

#[derive(Debug)]
pub(in crate::store::sql) struct Inserting<'c> {
    connection: &'c mut PgConnection,
    prepared: bool,
    announces: bool,
    /// `None`: the database's clock is asked.
    now: Option<Timestamp>,
}

impl<'c> Inserting<'c> {
    pub(super) const fn of_writer(
        connection: &'c mut PgConnection,
        prepared: bool,
        announces: bool,
        now: Timestamp,
    ) -> Self {
        Self { connection, prepared, announces, now: Some(now) }
    }

    /// Whether anything is announced is the connection's own setting. Nothing is prepared by name: behind a pooler the next
    /// transaction may be on another connection, and the caller's settings, which may know of one, do not keep sqlx from
    /// giving names.
    pub(in crate::store::sql) const fn of_caller(connection: &'c mut PgConnection) -> Self {
        Self { connection, prepared: false, announces: true, now: None }
    }

    fn query<'q>(&self, statement: &'static str) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(statement).persistent(self.prepared)
    }
}

impl Inserts for Inserting<'_> {
    fn fault(error: &sqlx::Error) -> Fault {
        fault::of(error)
    }

    async fn known(&mut self, names: &[&Name]) -> Done<HashSet<String>> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let found = self.query(statements::KNOWN).bind(names).fetch_all(&mut *self.connection).await?;
        found.iter().map(|row| row.try_get("name")).collect()
    }

    async fn subscriptions(&mut self) -> Done<Vec<Subscription>> {
        let found = self.query(statements::SUBSCRIPTIONS).fetch_all(&mut *self.connection).await?;
        Ok(row::subscriptions(&found))
    }

    async fn take_turns(&mut self, turns: &[Digest]) -> Done {
        let numbers = turn_numbers(turns);
        self.query(TAKE_TURNS).bind(numbers).execute(&mut *self.connection).await.map(drop)
    }

    async fn room(&mut self) -> Done<usize> {
        Ok(usize::MAX)
    }

    async fn insert(&mut self, rows: &[New<'_>], again: bool) -> Done<Vec<Made>> {
        let of = |text: fn(&New<'_>) -> Option<String>| rows.iter().map(text).collect::<Vec<_>>();
        let endpoints: Vec<&str> = rows.iter().map(|row| row.endpoint.as_str()).collect();
        let ids: Vec<&str> = rows.iter().map(|row| row.message.id.as_str()).collect();
        let tokens: Vec<&[u8]> = rows.iter().map(|row| row.token.as_bytes().as_slice()).collect();
        let types: Vec<&str> = rows.iter().map(|row| row.message.event_type.as_str()).collect();
        let media: Vec<&str> = rows.iter().map(|row| row.message.content_type.as_str()).collect();
        let payloads: Vec<&[u8]> = rows.iter().map(|row| &*row.message.payload).collect();
        let orders = of(|row| row.message.ordering_key.as_ref().map(|name| name.as_str().to_owned()));
        let correlations = of(|row| row.message.correlation_id.as_ref().map(|name| name.as_str().to_owned()));
        let causations = of(|row| row.message.causation_id.as_ref().map(|name| name.as_str().to_owned()));
        let versions: Vec<Option<i64>> = rows.iter().map(|row| row.message.schema_version.map(i64::from)).collect();
        let traces: Vec<Option<&str>> = rows.iter().map(|row| row.message.traceparent.as_deref()).collect();
        let delays: Vec<i64> = rows.iter().map(New::delay_micros).collect();
        let query = self.query(statements::INSERT).bind(&endpoints).bind(&ids).bind(types).bind(media).bind(payloads);
        let query = query.bind(orders).bind(correlations).bind(causations).bind(versions).bind(traces).bind(delays);
        let query = query.bind(&tokens).bind(self.now.map(Timestamp::as_micros));
        let mut made = query.fetch_all(&mut *self.connection).await?;
        if again && made.len() < rows.len() {
            let query = self.query(statements::MADE).bind(endpoints).bind(ids).bind(tokens);
            made = query.fetch_all(&mut *self.connection).await?;
        }
        made.iter().map(|row: &PgRow| Ok((row.try_get("endpoint")?, row.try_get("message_id")?))).collect()
    }

    async fn announce(&mut self) -> Done {
        if self.announces {
            self.query(statements::ANNOUNCE).execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}
