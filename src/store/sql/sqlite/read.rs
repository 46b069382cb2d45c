//! What only reads: on connections of its own, so that it never waits for a writer.

use std::time::Duration;

use sqlx::{Row as _, SqlitePool};

use super::super::page::{self, Stretch};
use super::super::{fault, row};
use super::statements;
use crate::store::page::FoundBy;
use crate::store::{Cursor, Keys, ListFilter, Page, Receipt, ReceiptKey, StoreError};
use crate::{Name, Timestamp};

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

pub(super) async fn page(
    pool: &SqlitePool,
    filter: &ListFilter,
    after: Option<Cursor>,
) -> Result<Page<Receipt>, StoreError> {
    let failed = |error| fault::unavailable("listing receipts", error);
    let mut stretch = Stretch::behind(after);
    let state = filter.state.map(|state| state.as_str());
    if filter.is_narrow() {
        let query = sqlx::query(statements::EDGE).bind(state).bind(stretch.below.0).bind(stretch.below.1);
        let edge = query.bind(Page::<Receipt>::LOOKED_AT).fetch_optional(pool).await.map_err(failed)?;
        stretch = stretch.down_to(edge.as_ref())?;
    }
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
        .bind(state)
        .bind(stretch.below.0)
        .bind(stretch.below.1)
        .bind(stretch.from.0)
        .bind(stretch.from.1);
    if found_by != FoundBy::State {
        query = query.bind(filter.key.as_ref().map(|key| key.as_str()));
        query = query.bind(filter.correlation_id.as_ref().map(|name| name.as_str()));
    }
    let rows = query.fetch_all(pool).await.map_err(failed)?;
    stretch.page(rows, filter.limit, row::readable)
}

pub(super) async fn oldest_due(
    pool: &SqlitePool,
    consumer: &Name,
    now: Timestamp,
) -> Result<Option<Duration>, StoreError> {
    let failed = |error| fault::unavailable("looking for what has been due longest", error);
    let found = sqlx::query(statements::OLDEST_DUE).bind(consumer.as_str()).fetch_one(pool).await.map_err(failed)?;
    let due: Option<i64> = found.try_get("due").map_err(failed)?;
    Ok(due.and_then(|due| row::due_for(due, now)))
}

pub(super) async fn keys(pool: &SqlitePool, from: i64, limit: u32) -> Result<Keys<ReceiptKey>, StoreError> {
    let found = sqlx::query(statements::KEYS).bind(from).bind(limit).fetch_all(pool).await;
    row::keys(&found.map_err(|error| fault::unavailable("going through receipts", error))?, limit)
}
