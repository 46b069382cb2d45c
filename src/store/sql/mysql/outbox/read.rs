//! What only reads of the outbox.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::mysql::{MySqlPool, MySqlRow};

use super::super::super::fault::unavailable;
use super::super::super::outbox::row;
use super::super::super::page::{self, Stretch};
use super::super::read::{bind_stretch, edge};
use super::statements;
use crate::store::page::FoundBy;
use crate::store::{
    Cursor, EndpointEntry, Keys, MessageFilter, MessageKey, MessageState, OutboxEntry, Page, StoreError,
};
use crate::{Name, Timestamp};

/// All endpoints, or the one with this name.
pub(in super::super) async fn endpoints(
    pool: &MySqlPool,
    name: Option<Name>,
) -> Result<Vec<EndpointEntry>, StoreError> {
    let asked = name.as_ref().map(|name| name.as_str().as_bytes());
    let query = sqlx::query(statements::ALL_ENDPOINTS).bind(asked).bind(asked);
    let found = query.fetch_all(pool).await.map_err(|error| unavailable("reading endpoints", error))?;
    if name.is_some() { found.iter().map(row::endpoint).collect() } else { Ok(row::readable_endpoints(&found)) }
}

/// The endpoints that cannot be read, and why.
pub(in super::super) async fn unreadable_endpoints(pool: &MySqlPool) -> Result<Vec<(String, StoreError)>, StoreError> {
    let query = sqlx::query(statements::ALL_ENDPOINTS).bind(None::<&[u8]>).bind(None::<&[u8]>);
    let found = query.fetch_all(pool).await.map_err(|error| unavailable("reading endpoints", error))?;
    Ok(row::unreadable_endpoints(&found))
}

pub(in super::super) async fn find_message(
    pool: &MySqlPool,
    key: MessageKey,
) -> Result<Option<OutboxEntry>, StoreError> {
    let failed = |error| unavailable("looking for a message", error);
    let query = sqlx::query(statements::FIND).bind(key.id.as_str().as_bytes()).bind(key.endpoint.as_str().as_bytes());
    let Some(found) = query.fetch_optional(pool).await.map_err(failed)? else { return Ok(None) };
    let id: i64 = found.try_get("id").map_err(failed)?;
    let attempts: Vec<MySqlRow> = sqlx::query(statements::ATTEMPTS).bind(id).fetch_all(pool).await.map_err(failed)?;
    let entry = || {
        let mut entry = row::entry(&found, true)?;
        entry.attempt_log = attempts.iter().map(row::attempt).collect::<Result<_, _>>()?;
        Ok(entry)
    };
    entry().map(Some).map_err(|error| row::named(error, &found))
}

/// A state at a time: each is read backwards along the index and no further than the limit.
pub(in super::super) async fn page_messages(
    pool: &MySqlPool,
    filter: MessageFilter,
    after: Option<Cursor>,
) -> Result<Page<OutboxEntry>, StoreError> {
    let failed = |error| unavailable("listing messages", error);
    let endpoint = filter.endpoint.as_ref().map(|name| name.as_str().as_bytes());
    let event_type = filter.event_type.as_ref().map(|name| name.as_str().as_bytes());
    let limit = page::one_more(filter.limit);
    let asked_for = |state: MessageState| filter.state.is_none_or(|asked| asked == state);
    let mut stretch = Stretch::behind(filter.begins_at(after));
    if filter.is_narrow() {
        // A state that is not asked for is one that no message has.
        let states = MessageState::ALL.map(|state| if asked_for(state) { state.as_str() } else { "" });
        stretch = edge(pool, statements::EDGE, &states, stretch).await.map_err(failed)??;
    }
    let mut rows = Vec::new();
    let correlation = filter.correlation_id.as_ref().map(|name| name.as_str().as_bytes());
    let few = match filter.found_by() {
        FoundBy::Id => Some((statements::LIST_BY_ID, filter.id.as_ref().map(|id| id.as_str().as_bytes()))),
        FoundBy::Correlation => Some((statements::LIST_BY_CORRELATION, correlation)),
        FoundBy::State => None,
    };
    if let Some((statement, sought)) = few {
        let state = filter.state.map(|state| state.as_str().as_bytes());
        let query = bind_stretch(sqlx::query(statement).bind(sought), stretch).bind(endpoint).bind(endpoint);
        let query = query.bind(event_type).bind(event_type).bind(state).bind(state);
        rows = query.bind(correlation).bind(correlation).bind(limit).fetch_all(pool).await.map_err(failed)?;
    } else {
        for state in MessageState::ALL.into_iter().filter(|state| asked_for(*state)) {
            let query = bind_stretch(sqlx::query(statements::LIST).bind(state.as_str().as_bytes()), stretch);
            let query = query.bind(endpoint).bind(endpoint).bind(event_type).bind(event_type).bind(limit);
            rows.extend(query.fetch_all(pool).await.map_err(failed)?);
        }
        let place = |row: &MySqlRow| (row.try_get::<i64, _>("updated").ok(), row.try_get::<i64, _>("id").ok());
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
    }
    stretch.page(rows, filter.limit, row::readable)
}

pub(in super::super) async fn next_due(pool: &MySqlPool) -> Result<Option<Duration>, StoreError> {
    let failed = |error| unavailable("looking for what is due next", error);
    let mut unreadable: Vec<i64> = Vec::new();
    loop {
        let query = sqlx::query(statements::NEXT_DUE).bind(row::json(&unreadable).map_err(failed)?);
        let Some(found) = query.fetch_optional(pool).await.map_err(failed)? else { return Ok(None) };
        if row::endpoint(&found).is_ok() {
            let (now, due) = (found.try_get("now").map_err(failed)?, found.try_get("due").map_err(failed)?);
            return Ok(Some(Timestamp::from_micros(due).saturating_since(Timestamp::from_micros(now))));
        }
        // Claims leave it out.
        unreadable.push(found.try_get("id").map_err(failed)?);
    }
}

pub(in super::super) async fn oldest_due(pool: &MySqlPool) -> Result<Vec<(Name, Duration)>, StoreError> {
    let failed = |error| unavailable("looking for what has been due longest", error);
    let found = sqlx::query(statements::OLDEST_DUE).fetch_all(pool).await.map_err(failed)?;
    let now = found.first().map(|row| row.try_get::<i64, _>("now")).transpose().map_err(failed)?;
    Ok(row::oldest_due(&found, Timestamp::from_micros(now.unwrap_or_default())))
}

pub(in super::super) async fn keys(pool: &MySqlPool, from: i64, limit: u32) -> Result<Keys<MessageKey>, StoreError> {
    let found = sqlx::query(statements::KEYS).bind(from).bind(i64::from(limit)).fetch_all(pool).await;
    row::keys(&found.map_err(|error| unavailable("going through messages", error))?, limit)
}
