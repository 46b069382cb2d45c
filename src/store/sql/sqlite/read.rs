//! What only reads: on connections of its own, so that it never waits for a writer.

use sqlx::SqlitePool;

use super::super::{fault, row};
use super::statements;
use crate::store::{ListFilter, Receipt, ReceiptKey, StoreError};

pub(super) async fn find(pool: &SqlitePool, key: &ReceiptKey) -> Result<Option<Receipt>, StoreError> {
    let found = sqlx::query(statements::FIND)
        .bind(key.consumer.as_str())
        .bind(key.source.as_str())
        .bind(key.key.as_str())
        .fetch_optional(pool)
        .await
        .map_err(|error| fault::unavailable("looking for a receipt", error))?;
    found.map(|found| row::receipt(&found).map_err(|error| row::named(error, &found))).transpose()
}

pub(super) async fn list(pool: &SqlitePool, filter: &ListFilter) -> Result<Vec<Receipt>, StoreError> {
    let statement = if filter.key.is_some() { statements::LIST_BY_KEY } else { statements::LIST };
    let mut query = sqlx::query(statement)
        .bind(filter.consumer.as_ref().map(|consumer| consumer.as_str()))
        .bind(filter.source.as_ref().map(|source| source.as_str()))
        .bind(filter.limit)
        .bind(filter.state.map(|state| state.as_str()));
    if let Some(key) = &filter.key {
        query = query.bind(key.as_str());
    }
    let rows = query.fetch_all(pool).await.map_err(|error| fault::unavailable("listing receipts", error))?;
    Ok(row::readable(&rows))
}
