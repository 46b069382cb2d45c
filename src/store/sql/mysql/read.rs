//! What only reads: on connections of the pool, so that it never waits for a writer. Each read is one statement, and in no
//! transaction.

use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlPool};
use sqlx::query::Query;
use sqlx::{MySql, Row as _};

use super::super::fault::unavailable;
use super::super::page::{self, Stretch};
use super::super::row;
use super::statements;
use crate::store::page::FoundBy;
use crate::store::{Cursor, Keys, ListFilter, Page, Receipt, ReceiptKey, ReceiptState, StoreError};
use crate::{Name, Timestamp};

pub(super) async fn find(pool: &MySqlPool, key: &ReceiptKey) -> Result<Option<Receipt>, StoreError> {
    let found = sqlx::query(statements::FIND)
        .bind(key.consumer.as_str().as_bytes())
        .bind(key.source.as_str().as_bytes())
        .bind(key.key.as_str().as_bytes())
        .fetch_optional(pool)
        .await
        .map_err(|error| unavailable("looking for a receipt", error))?;
    found.map(|found| row::receipt(&found).map_err(|error| row::named(error, &found))).transpose()
}

pub(super) async fn page(
    pool: &MySqlPool,
    filter: &ListFilter,
    after: Option<Cursor>,
) -> Result<Page<Receipt>, StoreError> {
    let failed = |error| unavailable("listing receipts", error);
    // A state that is not asked for is one that no receipt has.
    let asked_for = |state: ReceiptState| filter.state.is_none_or(|asked| asked == state);
    let states = ReceiptState::ALL.map(|state| if asked_for(state) { state.as_str() } else { "" });
    let mut stretch = Stretch::behind(after);
    if filter.is_narrow() {
        stretch = edge(pool, statements::EDGE, &states, stretch).await.map_err(failed)??;
    }
    let consumer = filter.consumer.as_ref().map(|consumer| consumer.as_str().as_bytes());
    let source = filter.source.as_ref().map(|source| source.as_str().as_bytes());
    let limit = page::one_more(filter.limit);
    let correlation = filter.correlation_id.as_ref().map(|name| name.as_str().as_bytes());
    let few = match filter.found_by() {
        FoundBy::Id => Some((statements::LIST_BY_KEY, filter.key.as_ref().map(|key| key.as_str().as_bytes()))),
        FoundBy::Correlation => Some((statements::LIST_BY_CORRELATION, correlation)),
        FoundBy::State => None,
    };
    let query = if let Some((statement, sought)) = few {
        let state = filter.state.map(|state| state.as_str().as_bytes());
        let query = bind_stretch(sqlx::query(statement).bind(sought).bind(sought), stretch).bind(state).bind(state);
        let query = query.bind(consumer).bind(consumer).bind(source).bind(source);
        query.bind(correlation).bind(correlation).bind(limit)
    } else {
        let mut query = sqlx::query(statements::LIST);
        for state in states {
            query = bind_stretch(query.bind(state.as_bytes()), stretch);
            query = query.bind(consumer).bind(consumer).bind(source).bind(source).bind(limit);
        }
        query.bind(limit)
    };
    let rows = query.fetch_all(pool).await.map_err(failed)?;
    stretch.page(rows, filter.limit, row::readable)
}

/// The stretch that one page looks at.
pub(super) async fn edge(
    pool: &MySqlPool,
    statement: &'static str,
    states: &[&'static str],
    stretch: Stretch,
) -> Result<Result<Stretch, StoreError>, sqlx::Error> {
    let looked_at = i64::from(Page::<()>::LOOKED_AT);
    let (updated, id) = stretch.below;
    let mut query = sqlx::query(statement);
    for state in states {
        query = query.bind(state.as_bytes()).bind(updated).bind(updated).bind(id).bind(looked_at);
    }
    let found = query.bind(looked_at - 1).fetch_optional(pool).await?;
    Ok(stretch.down_to(found.as_ref()))
}

pub(super) fn bind_stretch(
    query: Query<'_, MySql, MySqlArguments>,
    stretch: Stretch,
) -> Query<'_, MySql, MySqlArguments> {
    let ((below, below_id), (from, from_id)) = (stretch.below, stretch.from);
    query.bind(from).bind(below).bind(below).bind(below_id).bind(from).bind(from_id)
}

pub(super) async fn oldest_due(pool: &MySqlPool, consumer: &Name) -> Result<Option<Duration>, StoreError> {
    let failed = |error| unavailable("looking for what has been due longest", error);
    let query = sqlx::query(statements::OLDEST_DUE).bind(consumer.as_str().as_bytes());
    let found = query.fetch_one(pool).await.map_err(failed)?;
    let now: i64 = found.try_get("now").map_err(failed)?;
    let due: Option<i64> = found.try_get("due").map_err(failed)?;
    Ok(due.and_then(|due| row::due_for(due, Timestamp::from_micros(now))))
}

pub(super) async fn now(pool: &MySqlPool) -> Result<Timestamp, StoreError> {
    let failed = |error| unavailable("asking for the time", error);
    let found = sqlx::query(statements::CLOCK).fetch_one(pool).await.map_err(failed)?;
    found.try_get("now").map(Timestamp::from_micros).map_err(failed)
}

pub(super) async fn keys(pool: &MySqlPool, from: i64, limit: u32) -> Result<Keys<ReceiptKey>, StoreError> {
    let found = sqlx::query(statements::KEYS).bind(from).bind(i64::from(limit)).fetch_all(pool).await;
    row::keys(&found.map_err(|error| unavailable("going through receipts", error))?, limit)
}
