//! What only reads of the outbox.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::super::super::outbox::row;
use super::super::super::page::{self, Stretch};
use super::super::read::{Reader, apart};
use super::statements;
use crate::store::page::FoundBy;
use crate::store::{Cursor, EndpointEntry, Keys, MessageFilter, MessageKey, OutboxEntry, Page, StoreError};
use crate::{Name, Timestamp};

impl Reader {
    /// All endpoints, or the one with this name.
    pub(in super::super) async fn endpoints(&self, name: Option<Name>) -> Result<Vec<EndpointEntry>, StoreError> {
        let (reader, asked) = (self.clone(), name.clone());
        let found = apart("reading endpoints", async move {
            let query = sqlx::query(statements::ALL_ENDPOINTS).bind(asked.as_ref().map(|name| name.as_str()));
            reader.rows(query).await
        });
        let found = found.await?;
        if name.is_some() { found.iter().map(row::endpoint).collect() } else { Ok(row::readable_endpoints(&found)) }
    }

    /// The endpoints that cannot be read, and why.
    pub(in super::super) async fn unreadable_endpoints(&self) -> Result<Vec<(String, StoreError)>, StoreError> {
        let reader = self.clone();
        let found = apart("reading endpoints", async move {
            reader.rows(sqlx::query(statements::ALL_ENDPOINTS).bind(None::<&str>)).await
        });
        Ok(row::unreadable_endpoints(&found.await?))
    }

    pub(in super::super) async fn find_message(&self, key: MessageKey) -> Result<Option<OutboxEntry>, StoreError> {
        let reader = self.clone();
        let (found, attempts) = apart("looking for a message", async move {
            let query = sqlx::query(statements::FIND).bind(key.id.as_str()).bind(key.endpoint.as_str());
            let found = reader.rows(query).await?;
            let Some(id) = found.first().map(|row| row.try_get::<i64, _>("id")).transpose()? else {
                return Ok((found, Vec::new()));
            };
            let attempts = reader.rows(sqlx::query(statements::ATTEMPTS).bind(id)).await?;
            Ok((found, attempts))
        })
        .await?;
        let Some(found) = found.first() else { return Ok(None) };
        let entry = || {
            let mut entry = row::entry(found, true)?;
            entry.attempt_log = attempts.iter().map(row::attempt).collect::<Result<_, _>>()?;
            Ok(entry)
        };
        entry().map(Some).map_err(|error| row::named(error, found))
    }

    pub(in super::super) async fn page_messages(
        &self,
        filter: MessageFilter,
        after: Option<Cursor>,
    ) -> Result<Page<OutboxEntry>, StoreError> {
        let (reader, limit) = (self.clone(), filter.limit);
        let mut stretch = Stretch::behind(filter.begins_at(after));
        if filter.is_narrow() {
            let edge =
                self.edge("listing messages", statements::EDGE, filter.state.map(|state| state.as_str()), stretch);
            stretch = edge.await?;
        }
        let found = apart("listing messages", async move {
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
                .bind(filter.state.map(|state| state.as_str()))
                .bind(stretch.below.0)
                .bind(stretch.below.1)
                .bind(stretch.from.0)
                .bind(stretch.from.1);
            if found_by != FoundBy::State {
                query = query.bind(filter.id.as_ref().map(|id| id.as_str()));
                query = query.bind(filter.correlation_id.as_ref().map(|name| name.as_str()));
            }
            reader.rows(query).await
        });
        stretch.page(found.await?, limit, row::readable)
    }

    pub(in super::super) async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let reader = self.clone();
        let found = apart("looking for what is due next", async move {
            let mut unreadable: Vec<i64> = Vec::new();
            loop {
                let found = reader.rows(sqlx::query(statements::NEXT_DUE).bind(unreadable.clone())).await?;
                let Some(found): Option<&PgRow> = found.first() else { return Ok(None) };
                if row::endpoint(found).is_ok() {
                    return Ok(Some((found.try_get::<i64, _>("now")?, found.try_get::<i64, _>("due")?)));
                }
                // Claims leave it out.
                unreadable.push(found.try_get("id")?);
            }
        });
        let until = |(now, due)| Timestamp::from_micros(due).saturating_since(Timestamp::from_micros(now));
        Ok(found.await?.map(until))
    }

    pub(in super::super) async fn oldest_due_messages(&self) -> Result<Vec<(Name, Duration)>, StoreError> {
        let reader = self.clone();
        let found = apart("looking for what has been due longest", async move {
            let found = reader.rows(sqlx::query(statements::OLDEST_DUE)).await?;
            let now = found.first().map(|row| row.try_get::<i64, _>("now")).transpose()?;
            Ok((found, now))
        });
        let (found, now) = found.await?;
        Ok(row::oldest_due(&found, Timestamp::from_micros(now.unwrap_or_default())))
    }

    pub(in super::super) async fn message_keys(&self, from: i64, limit: u32) -> Result<Keys<MessageKey>, StoreError> {
        let reader = self.clone();
        let found = apart("going through messages", async move {
            reader.rows(sqlx::query(statements::KEYS).bind(from).bind(i64::from(limit))).await
        });
        row::keys(&found.await?, limit)
    }
}
