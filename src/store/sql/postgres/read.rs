//! What only reads: on connections of the pool, so that it never waits for a writer.
//!
//! Each read is a task and a transaction of its own. The transaction keeps it on one connection of a pooler between the
//! steps of a prepared statement; the task ends it in good order where the caller is gone.

use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{Acquire as _, Postgres};

use super::super::fault::unavailable;
use super::super::row;
use super::statements;
use crate::store::{ListFilter, Receipt, ReceiptKey, StoreError};

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

    pub(super) async fn list(&self, filter: ListFilter) -> Result<Vec<Receipt>, StoreError> {
        let reader = self.clone();
        let found = apart("listing receipts", async move {
            let statement = if filter.key.is_some() { statements::LIST_BY_KEY } else { statements::LIST };
            let mut query = sqlx::query(statement)
                .bind(filter.consumer.as_ref().map(|consumer| consumer.as_str()))
                .bind(filter.source.as_ref().map(|source| source.as_str()))
                .bind(i64::from(filter.limit))
                .bind(filter.state.map(|state| state.as_str()));
            if let Some(key) = &filter.key {
                query = query.bind(key.as_str());
            }
            reader.rows(query).await
        });
        Ok(row::readable(&found.await?))
    }

    async fn rows(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let connection: &mut PgConnection = connection.acquire().await?;
        sqlx::raw_sql(statements::BEGIN_READING).execute(&mut *connection).await?;
        let rows = query.persistent(self.prepared).fetch_all(&mut *connection).await;
        sqlx::raw_sql(statements::ROLLBACK).execute(connection).await?;
        rows
    }
}

async fn apart<T: Send + 'static>(
    doing: &'static str,
    reading: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
) -> Result<T, StoreError> {
    let ended = |error: tokio::task::JoinError| StoreError::Unavailable {
        reason: format!("{doing}: the runtime has ended"),
        source: Some(Box::new(error)),
    };
    tokio::spawn(reading).await.map_err(ended)?.map_err(|error| unavailable(doing, error))
}
