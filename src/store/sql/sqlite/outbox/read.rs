//! What only reads of the outbox.

use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqlitePool};

use super::super::super::fault::unavailable;
use super::super::super::outbox::row;
use super::super::super::page::{self, Stretch};
use super::statements;
use crate::store::page::FoundBy;
use crate::store::{Cursor, EndpointEntry, Keys, MessageFilter, MessageKey, OutboxEntry, Page, StoreError};
use crate::{Clock, Name, Timestamp};

/// Where reads of the outbox go.
#[derive(Debug)]
pub(in super::super) struct Reader {
    pub(in super::super) pool: SqlitePool,
    pub(in super::super) clock: Arc<dyn Clock>,
}

impl Reader {
    /// All endpoints, or the one with this name.
    pub(in super::super) async fn endpoints(&self, name: Option<Name>) -> Result<Vec<EndpointEntry>, StoreError> {
        let query = sqlx::query(statements::ALL_ENDPOINTS).bind(name.as_ref().map(|name| name.as_str()));
        let found = query.fetch_all(&self.pool).await.map_err(|error| unavailable("reading endpoints", error))?;
        if name.is_some() { found.iter().map(row::endpoint).collect() } else { Ok(row::readable_endpoints(&found)) }
    }

    /// The endpoints that cannot be read, and why.
    pub(in super::super) async fn unreadable_endpoints(&self) -> Result<Vec<(String, StoreError)>, StoreError> {
        let query = sqlx::query(statements::ALL_ENDPOINTS).bind(None::<&str>);
        let found = query.fetch_all(&self.pool).await.map_err(|error| unavailable("reading endpoints", error))?;
        Ok(row::unreadable_endpoints(&found))
    }

    pub(in super::super) async fn find_message(&self, key: MessageKey) -> Result<Option<OutboxEntry>, StoreError> {
        let failed = |error| unavailable("looking for a message", error);
        let query = sqlx::query(statements::FIND).bind(key.id.as_str()).bind(key.endpoint.as_str());
        let Some(found) = query.fetch_optional(&self.pool).await.map_err(failed)? else { return Ok(None) };
        let id: i64 = found.try_get("id").map_err(failed)?;
        let attempts: Vec<SqliteRow> =
            sqlx::query(statements::ATTEMPTS).bind(id).fetch_all(&self.pool).await.map_err(failed)?;
        let entry = || {
            let mut entry = row::entry(&found, true)?;
            entry.attempt_log = attempts.iter().map(row::attempt).collect::<Result<_, _>>()?;
            Ok(entry)
        };
        entry().map(Some).map_err(|error| row::named(error, &found))
    }

    pub(in super::super) async fn page(
        &self,
        filter: MessageFilter,
        after: Option<Cursor>,
    ) -> Result<Page<OutboxEntry>, StoreError> {
        let failed = |error| unavailable("listing messages", error);
        let mut stretch = Stretch::behind(filter.begins_at(after));
        let state = filter.state.map(|state| state.as_str());
        if filter.is_narrow() {
            let query = sqlx::query(statements::EDGE).bind(state).bind(stretch.below.0).bind(stretch.below.1);
            let edge = query.bind(Page::<OutboxEntry>::LOOKED_AT).fetch_optional(&self.pool).await.map_err(failed)?;
            stretch = stretch.down_to(edge.as_ref())?;
        }
        let found_by = filter.found_by();
        let statement = match found_by {
            FoundBy::Id => statements::LIST_BY_ID,
            FoundBy::Correlation => statements::LIST_BY_CORRELATION,
            FoundBy::State => statements::LIST,
        };
        let mut query = sqlx::query(statement)
            .bind(filter.endpoint.as_ref().map(|name| name.as_str()))
            .bind(filter.event_type.as_ref().map(|name| name.as_str()))
            .bind(page::one_more(filter.limit))
            .bind(state)
            .bind(stretch.below.0)
            .bind(stretch.below.1)
            .bind(stretch.from.0)
            .bind(stretch.from.1);
        if found_by != FoundBy::State {
            query = query.bind(filter.id.as_ref().map(|id| id.as_str()));
            query = query.bind(filter.correlation_id.as_ref().map(|name| name.as_str()));
        }
        let found = query.fetch_all(&self.pool).await.map_err(failed)?;
        stretch.page(found, filter.limit, row::readable)
    }

    pub(in super::super) async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let failed = |error| unavailable("looking for what is due next", error);
        let mut unreadable: Vec<i64> = Vec::new();
        loop {
            let query = sqlx::query(statements::NEXT_DUE).bind(row::json(&unreadable).map_err(failed)?);
            let Some(found) = query.fetch_optional(&self.pool).await.map_err(failed)? else { return Ok(None) };
            if row::endpoint(&found).is_ok() {
                let due: i64 = found.try_get("due").map_err(failed)?;
                return Ok(Some(Timestamp::from_micros(due).saturating_since(self.clock.now())));
            }
            // Claims leave it out.
            unreadable.push(found.try_get("id").map_err(failed)?);
        }
    }

    pub(in super::super) async fn oldest_due(&self) -> Result<Vec<(Name, Duration)>, StoreError> {
        let found = sqlx::query(statements::OLDEST_DUE).fetch_all(&self.pool).await;
        let found = found.map_err(|error| unavailable("looking for what has been due longest", error))?;
        Ok(row::oldest_due(&found, self.clock.now()))
    }

    pub(in super::super) async fn keys(&self, from: i64, limit: u32) -> Result<Keys<MessageKey>, StoreError> {
        let found = sqlx::query(statements::KEYS).bind(from).bind(limit).fetch_all(&self.pool).await;
        row::keys(&found.map_err(|error| unavailable("going through messages", error))?, limit)
    }
}
