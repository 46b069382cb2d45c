//! Rows as messages, attempts and endpoints. What somebody else wrote there is checked: it is refused by name, and never
//! panics.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::header_block;
use super::super::row::{Cells, bytes, due_for, moment, number, optional, status_from, text, wrong};
use super::database::{Ended, FoundAhead, FoundMessage, Head, Order};
use super::enqueue::Subscription;
use crate::store::delivery;
use crate::store::{
    Attempt, AttemptReport, Endpoint, EndpointEntry, Keys, Message, MessageKey, MessageState, OutboxEntry, StoreError,
    TypePattern,
};
use crate::{EventId, Name, Timestamp};

/// A message whose time has come.
#[derive(Debug)]
pub(in crate::store::sql) struct Due {
    pub(in crate::store::sql) key: MessageKey,
    /// Without its payload: what turns out to be held up need not be read.
    pub(in crate::store::sql) message: Message,
    /// How many bytes the payload has.
    pub(in crate::store::sql) size: u64,
    pub(in crate::store::sql) state: MessageState,
    pub(in crate::store::sql) attempts: u32,
    pub(in crate::store::sql) replays: u32,
    pub(in crate::store::sql) created: Timestamp,
    pub(in crate::store::sql) since: Timestamp,
}

/// Why a message whose time has come cannot be read, and which one it is, where that can.
#[derive(Debug)]
pub(in crate::store::sql) struct Unreadable {
    pub(in crate::store::sql) fault: String,
    pub(in crate::store::sql) which: Option<(MessageKey, Name)>,
}

pub(in crate::store::sql) fn due(row: &impl Cells) -> Result<Due, Unreadable> {
    let which = || Some((key(row).ok()?, name(row, "type").ok()?));
    readable_due(row).map_err(|error| Unreadable { fault: error.to_string(), which: which() })
}

fn readable_due(row: &impl Cells) -> Result<Due, StoreError> {
    Ok(Due {
        key: key(row)?,
        message: message(row, Bytes::new())?,
        size: number(row, "size")?,
        state: state(row)?,
        attempts: number(row, "attempts")?,
        replays: number(row, "replays")?,
        created: Timestamp::from_micros(number(row, "created")?),
        since: Timestamp::from_micros(number(row, "since")?),
    })
}

/// A message as an operator sees it, without its attempts. Lists do not read payloads.
pub(in crate::store::sql) fn entry(row: &impl Cells, has_payload: bool) -> Result<OutboxEntry, StoreError> {
    let payload = if has_payload { bytes(row, "payload")?.into() } else { Bytes::new() };
    Ok(OutboxEntry {
        message: message(row, payload)?,
        endpoint: name(row, "endpoint")?,
        state: state(row)?,
        attempts: number(row, "attempts")?,
        replays: number(row, "replays")?,
        due: moment(row, "due")?,
        created: Timestamp::from_micros(number(row, "created")?),
        updated: Timestamp::from_micros(number(row, "updated")?),
        last_status: optional(row.number("last_status"))?.map(status_from).transpose()?,
        last_error: optional(row.text("last_error"))?,
        reason: optional(row.text("reason"))?,
        attempt_log: Vec::new(),
    })
}

/// Messages for a list. One row that cannot be read must not hide all others from whoever looks for what is wrong.
pub(in crate::store::sql) fn readable(rows: &[impl Cells]) -> Vec<OutboxEntry> {
    let readable = |row| match entry(row, false) {
        Ok(entry) => Some(entry),
        Err(error) => {
            tracing::error!(error = %named(error, row), "a message is left out of a list");
            None
        }
    };
    rows.iter().filter_map(readable).collect()
}

/// For how long the longest due message of each endpoint has been due, where one is. What cannot be read is passed over.
pub(in crate::store::sql) fn oldest_due(rows: &[impl Cells], now: Timestamp) -> Vec<(Name, Duration)> {
    rows.iter().filter_map(|row| Some((name(row, "name").ok()?, due_for(number(row, "due").ok()?, now)?))).collect()
}

/// The keys in rows that were asked for, at most `limit`.
pub(in crate::store::sql) fn keys(rows: &[impl Cells], limit: u32) -> Result<Keys<MessageKey>, StoreError> {
    let readable = |row| match key(row) {
        Ok(key) => Ok((number(row, "id")?, Some(key))),
        Err(error) => {
            tracing::error!(error = %named(error, row), "a message is passed over");
            Ok((number(row, "id")?, None))
        }
    };
    Ok(Keys::of_rows(rows.iter().map(readable).collect::<Result<_, StoreError>>()?, limit))
}

pub(in crate::store::sql) fn attempt(row: &impl Cells) -> Result<Attempt, StoreError> {
    Ok(Attempt {
        replay: number(row, "replay")?,
        number: number(row, "number")?,
        at: Timestamp::from_micros(number(row, "at")?),
        report: AttemptReport {
            took: Duration::from_micros(number(row, "took")?),
            status: optional(row.number("status"))?.map(status_from).transpose()?,
            headers: header_block::decode(&bytes(row, "headers")?).ok_or_else(|| wrong("headers"))?,
            body: bytes(row, "body")?.into(),
            error: optional(row.text("error"))?,
            kind: optional(row.text("kind"))?,
        },
    })
}

pub(in crate::store::sql) fn endpoint(row: &impl Cells) -> Result<EndpointEntry, StoreError> {
    Ok(EndpointEntry {
        endpoint: Endpoint {
            name: name(row, "name")?,
            url: text(row, "url")?,
            scheme: text(row, "scheme")?,
            secrets: list(row, "secrets")?,
            types: types(row)?,
            headers: header_block::decode(&bytes(row, "headers")?).ok_or_else(|| wrong("headers"))?,
            settings: list(row, "settings")?,
        },
        disabled: optional(row.text("disabled"))?,
        disabled_since: moment(row, "disabled_since")?,
        paused_until: moment(row, "paused_until")?,
        failing_since: moment(row, "failing_since")?,
        failures: number(row, "failures")?,
        created: Timestamp::from_micros(number(row, "created")?),
        updated: Timestamp::from_micros(number(row, "updated")?),
    })
}

/// Endpoints for a list. One that cannot be read is named in the log.
pub(in crate::store::sql) fn readable_endpoints(rows: &[impl Cells]) -> Vec<EndpointEntry> {
    rows.iter().filter_map(|row| endpoint(row).map_err(|error| note_unreadable(row, &error)).ok()).collect()
}

/// Endpoints that cannot be read, by what can be read of their names, and why.
pub(in crate::store::sql) fn unreadable_endpoints(rows: &[impl Cells]) -> Vec<(String, StoreError)> {
    let unreadable = |row| Some((Cells::text(row, "name").ok().flatten().unwrap_or_default(), endpoint(row).err()?));
    rows.iter().filter_map(unreadable).collect()
}

pub(in crate::store::sql) fn note_unreadable(row: &impl Cells, error: &StoreError) {
    let name = row.text("name").ok().flatten();
    tracing::error!(%error, name, "an endpoint that cannot be read is left out, and its messages wait");
}

/// What is asked of each endpoint that can be read.
pub(in crate::store::sql) fn subscriptions(rows: &[impl Cells]) -> Vec<Subscription> {
    let subscription = |row| Ok(Subscription { name: name(row, "name")?, types: types(row)? });
    rows.iter().filter_map(|row| subscription(row).map_err(|error| note_unreadable(row, &error)).ok()).collect()
}

/// What stands before a message.
pub(in crate::store::sql) fn ahead(row: &impl Cells) -> Result<FoundAhead, sqlx::Error> {
    let (ended, ended_id) = (row.number("ended")?, row.text("ended_id")?);
    Ok(FoundAhead {
        id: row.number("id")?.ok_or(sqlx::Error::RowNotFound)?,
        open: row.number("open")?,
        ended: ended.zip(ended_id),
    })
}

/// What a message brings.
pub(in crate::store::sql) fn payload(row: &impl Cells) -> Result<(i64, Vec<u8>), sqlx::Error> {
    Ok((row.number("id")?.ok_or(sqlx::Error::RowNotFound)?, row.bytes("payload")?.unwrap_or_default()))
}

/// A message that holds others up.
pub(in crate::store::sql) fn head(row: &impl Cells) -> Result<Head, sqlx::Error> {
    let id = row.number("id")?.ok_or(sqlx::Error::RowNotFound)?;
    let is_open = |state: String| MessageState::from_name(&state).is_some_and(delivery::is_open);
    Ok(Head { id, is_open: row.text("state")?.is_some_and(is_open) })
}

/// A message whose attempt has ended. An order that cannot be read is none.
pub(in crate::store::sql) fn ended(row: &impl Cells) -> Result<Ended, sqlx::Error> {
    Ok(Ended {
        replays: row.number("replays")?.and_then(|replays| u32::try_from(replays).ok()).unwrap_or(u32::MAX),
        noted: row.number("noted")?.unwrap_or_default(),
        ordering_key: optional_name(row, "ordering_key").ok().flatten(),
    })
}

/// A message that fits a selection, and its number. One whose key cannot be read is named in the log.
pub(in crate::store::sql) fn selected(row: &impl Cells) -> Result<(i64, Option<FoundMessage>), sqlx::Error> {
    let id = row.number("id")?.ok_or(sqlx::Error::RowNotFound)?;
    let found = || Ok(FoundMessage { id, key: key(row)?, ordering_key: optional_name(row, "ordering_key")? });
    let readable = found().inspect_err(|error: &StoreError| {
        tracing::error!(%error, id, "a message is left as it is");
    });
    Ok((id, readable.ok()))
}

/// The order of a message that is gone.
pub(in crate::store::sql) fn order(row: &impl Cells) -> Option<Order> {
    let order = optional_name(row, "ordering_key").ok().flatten()?;
    Some((name(row, "endpoint").ok()?, order))
}

/// The types that an endpoint wants.
pub(in crate::store::sql) fn types(row: &impl Cells) -> Result<Vec<TypePattern>, StoreError> {
    let patterns: Vec<String> = list(row, "types")?;
    patterns.iter().map(|pattern| TypePattern::new(pattern).map_err(|_| wrong("types"))).collect()
}

pub(in crate::store::sql) fn name(row: &impl Cells, column: &'static str) -> Result<Name, StoreError> {
    Name::new(&text(row, column)?).map_err(|_| wrong(column))
}

pub(in crate::store::sql) fn key(row: &impl Cells) -> Result<MessageKey, StoreError> {
    let id = EventId::new(&text(row, "message_id")?).map_err(|_| wrong("message_id"))?;
    Ok(MessageKey { endpoint: name(row, "endpoint")?, id })
}

pub(in crate::store::sql) fn optional_name(row: &impl Cells, column: &'static str) -> Result<Option<Name>, StoreError> {
    optional(row.text(column))?.map(|text| Name::new(&text).map_err(|_| wrong(column))).transpose()
}

/// A row's error says which row it is, where that can be told.
pub(in crate::store::sql) fn named(error: StoreError, row: &impl Cells) -> StoreError {
    match (error, row.number("id")) {
        (StoreError::Corrupt(what), Ok(Some(id))) => {
            StoreError::Corrupt(format!("countersign_outbox, id {id}: {what}"))
        }
        (error, _) => error,
    }
}

/// The columns of an endpoint that are JSON.
pub(in crate::store::sql) struct Columns {
    pub(in crate::store::sql) secrets: String,
    pub(in crate::store::sql) types: String,
    pub(in crate::store::sql) settings: String,
}

impl Columns {
    pub(in crate::store::sql) fn of(endpoint: &Endpoint) -> Result<Self, sqlx::Error> {
        let types: Vec<&str> = endpoint.types.iter().map(TypePattern::as_str).collect();
        Ok(Self { secrets: json(&endpoint.secrets)?, types: json(&types)?, settings: json(&endpoint.settings)? })
    }
}

/// What a statement takes, or a column holds, as JSON.
pub(in crate::store::sql) fn json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

fn list<T: DeserializeOwned>(row: &impl Cells, column: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(&text(row, column)?).map_err(|_| wrong(column))
}

fn message(row: &impl Cells, payload: Bytes) -> Result<Message, StoreError> {
    let id = EventId::new(&text(row, "message_id")?).map_err(|_| wrong("message_id"))?;
    let schema_version = optional(row.number("schema_version"))?;
    Ok(Message {
        content_type: text(row, "content_type")?,
        ordering_key: optional_name(row, "ordering_key")?,
        correlation_id: optional_name(row, "correlation_id")?,
        causation_id: optional_name(row, "causation_id")?,
        schema_version: schema_version
            .map(|version| u32::try_from(version).map_err(|_| wrong("schema_version")))
            .transpose()?,
        traceparent: optional(row.text("traceparent"))?,
        ..Message::new(id, name(row, "type")?, payload)
    })
}

fn state(row: &impl Cells) -> Result<MessageState, StoreError> {
    MessageState::from_name(&text(row, "state")?).ok_or_else(|| wrong("state"))
}
