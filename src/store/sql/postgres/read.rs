//! What only reads: on connections of the pool, so that it never waits for a writer.
//!
//! Each read is a task and a transaction of its own. The transaction keeps it on one connection of a pooler between the
//! steps of a prepared statement; the task ends it in good order where the caller is gone.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{Acquire as _, Postgres, Row as _};

use super::super::fault::unavailable;
use super::super::page::{self, Stretch};
use super::super::row;
use super::statements;
use crate::store::page::FoundBy;
use crate::store::{Cursor, Keys, ListFilter, Page, Receipt, ReceiptKey, StoreError};
use crate::{Name, Timestamp};

/// Where reads go.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) pool: PgPool,
    pub(super) prepared: bool,
}

impl Reader {
    pub(super) async fn find(&self, key: ReceiptKey) -> Result<Option<Receipt>, StoreError> {
        let reader = self.clone();
        let found = apart("looking for a receipt", async move {
            let query = sqlx::query(statements::FIND)
                .bind(key.consumer.as_str())
                .bind(key.source.as_str())
                .bind(key.key.as_str());
            reader.rows(query).await
        });
        let found = found.await?;
        let receipt = |found| row::receipt(found).map_err(|error| row::named(error, found));
        found.first().map(receipt).transpose()
    }

    pub(super) async fn page(&self, filter: ListFilter, after: Option<Cursor>) -> Result<Page<Receipt>, StoreError> {
        let (reader, limit) = (self.clone(), filter.limit);
        let mut stretch = Stretch::behind(after);
        if filter.is_narrow() {
            let edge =
                self.edge("listing receipts", statements::EDGE, filter.state.map(|state| state.as_str()), stretch);
            stretch = edge.await?;
        }
        let found = apart("listing receipts", async move {
            let found_by = filter.found_by();
            let statement = match found_by {
                FoundBy::Id => statements::LIST_BY_KEY,
                FoundBy::Correlation => statements::LIST_BY_CORRELATION,
                FoundBy::State => statements::LIST,
            };
            let mut query = sqlx::query(statement)
                .bind(filter.consumer.as_ref().map(|consumer| consumer.as_str()))
                .bind(filter.source.as_ref().map(|source| source.as_str()))
                .bind(page::one_more(filter.limit))
                .bind(filter.state.map(|state| state.as_str()))
                .bind(stretch.below.0)
                .bind(stretch.below.1)
                .bind(stretch.from.0)
                .bind(stretch.from.1);
            if found_by != FoundBy::State {
                query = query.bind(filter.key.as_ref().map(|key| key.as_str()));
                query = query.bind(filter.correlation_id.as_ref().map(|name| name.as_str()));
            }
            reader.rows(query).await
        });
        stretch.page(found.await?, limit, row::readable)
    }

    /// The stretch that one page looks at.
    pub(super) async fn edge(
        &self,
        doing: &'static str,
        statement: &'static str,
        state: Option<&'static str>,
        stretch: Stretch,
    ) -> Result<Stretch, StoreError> {
        let reader = self.clone();
        let found = apart(doing, async move {
            let query = sqlx::query(statement).bind(state).bind(stretch.below.0).bind(stretch.below.1);
            reader.rows(query.bind(i64::from(Page::<()>::LOOKED_AT))).await
        });
        stretch.down_to(found.await?.first())
    }

    /// For how long the longest due event of a consumer has been due.
    pub(super) async fn oldest_due(&self, consumer: Name) -> Result<Option<Duration>, StoreError> {
        let reader = self.clone();
        let found = apart("looking for what has been due longest", async move {
            let found = reader.rows(sqlx::query(statements::OLDEST_DUE).bind(consumer.as_str())).await?;
            let found = found.first().ok_or(sqlx::Error::RowNotFound)?;
            Ok((found.try_get::<i64, _>("now")?, found.try_get::<Option<i64>, _>("due")?))
        });
        let (now, due) = found.await?;
        Ok(due.and_then(|due| row::due_for(due, Timestamp::from_micros(now))))
    }

    pub(super) async fn keys(&self, from: i64, limit: u32) -> Result<Keys<ReceiptKey>, StoreError> {
        let reader = self.clone();
        let found = apart("going through receipts", async move {
            reader.rows(sqlx::query(statements::KEYS).bind(from).bind(i64::from(limit))).await
        });
        row::keys(&found.await?, limit)
    }

    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let reader = self.clone();
        let now = apart("asking for the time", async move {
            let found = reader.rows(sqlx::query(statements::CLOCK)).await?;
            found.first().ok_or(sqlx::Error::RowNotFound)?.try_get::<i64, _>("now")
        });
        now.await.map(Timestamp::from_micros)
    }

    pub(super) async fn rows(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let connection: &mut PgConnection = connection.acquire().await?;
        sqlx::raw_sql(statements::BEGIN_READING).execute(&mut *connection).await?;
        let rows = query.persistent(self.prepared).fetch_all(&mut *connection).await;
        sqlx::raw_sql(statements::ROLLBACK).execute(connection).await?;
        rows
    }
}

pub(super) async fn apart<T: Send + 'static>(
    doing: &'static str,
    reading: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
) -> Result<T, StoreError> {
    let ended = |error: tokio::task::JoinError| StoreError::Unavailable {
        reason: format!("{doing}: the runtime has ended"),
        source: Some(Box::new(error)),
    };
    tokio::spawn(reading).await.map_err(ended)?.map_err(|error| unavailable(doing, error))
}
