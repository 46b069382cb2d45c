//! A row as a receipt. What somebody else wrote there is checked: it is refused by name, and never panics.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::{fault, header_block};
use crate::store::admission::Standing;
use crate::store::{
    FailedRun, KeptRequest, Keys, Receipt, ReceiptKey, ReceiptState, ResultBody, StoreError, StoredResult, Token,
};
use crate::{DedupKey, Digest, EventId, Name, Timestamp};

/// Reads a row by the names of its columns. Every number that the stores keep fits into 64 bits with a sign.
pub(super) trait Cells {
    fn number(&self, column: &'static str) -> Result<Option<i64>, sqlx::Error>;
    fn text(&self, column: &'static str) -> Result<Option<String>, sqlx::Error>;
    fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, sqlx::Error>;
}

/// What is known of a receipt that somebody wants to run.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) standing: Standing,
    pub(super) result: Option<StoredResult>,
}

pub(super) fn known(row: &impl Cells) -> Result<Known, StoreError> {
    let token = optional(row.bytes("token"))?;
    Ok(Known {
        id: number(row, "id")?,
        standing: Standing {
            state: state(row)?,
            attempts: number(row, "attempts")?,
            token: token.map(|bytes| token_from(&bytes)).transpose()?,
            lease_until: moment(row, "lease_until")?,
            due: moment(row, "due")?,
            body: digest(row)?,
        },
        result: result(row)?,
    })
}

/// What somebody may run.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) standing: Standing,
    pub(super) key: ReceiptKey,
    pub(super) event_id: Option<EventId>,
    pub(super) request: KeptRequest,
    pub(super) first_seen: Timestamp,
}

pub(super) fn due(row: &impl Cells) -> Result<Due, StoreError> {
    Ok(Due {
        standing: Standing {
            state: state(row)?,
            attempts: number(row, "attempts")?,
            token: None,
            lease_until: moment(row, "lease_until")?,
            due: moment(row, "due")?,
            body: digest(row)?,
        },
        key: key(row)?,
        event_id: event_id(row)?,
        request: request(row)?.ok_or_else(|| wrong("request_method"))?,
        first_seen: Timestamp::from_micros(number(row, "first_seen")?),
    })
}

pub(super) fn receipt(row: &impl Cells) -> Result<Receipt, StoreError> {
    Ok(Receipt {
        key: key(row)?,
        event_id: event_id(row)?,
        correlation_id: name(row, "correlation_id")?,
        state: state(row)?,
        attempts: number(row, "attempts")?,
        first_seen: Timestamp::from_micros(number(row, "first_seen")?),
        updated: Timestamp::from_micros(number(row, "updated")?),
        lease_until: moment(row, "lease_until")?,
        due: moment(row, "due")?,
        quarantined: number::<u8>(row, "quarantined")? != 0,
        ordering_key: name(row, "ordering_key")?,
        body: digest(row)?,
        other_bodies: number(row, "other_bodies")?,
        result: result(row)?,
        error: optional(row.text("error"))?,
        reason: optional(row.text("reason"))?,
        request: request(row)?,
        failures: failures(row)?,
    })
}

/// Receipts for a list. One row that cannot be read must not hide all others from whoever looks for what is wrong.
pub(super) fn readable(rows: &[impl Cells]) -> Vec<Receipt> {
    let readable = |row| match receipt(row) {
        Ok(receipt) => Some(receipt),
        Err(error) => {
            tracing::error!(error = %named(error, row), "a receipt is left out of a list");
            None
        }
    };
    rows.iter().filter_map(readable).collect()
}

/// The keys in rows that were asked for, at most `limit`.
pub(super) fn keys(rows: &[impl Cells], limit: u32) -> Result<Keys<ReceiptKey>, StoreError> {
    let readable = |row| match key(row) {
        Ok(key) => Ok((number(row, "id")?, Some(key))),
        Err(error) => {
            tracing::error!(error = %named(error, row), "a receipt is passed over");
            Ok((number(row, "id")?, None))
        }
    };
    Ok(Keys::of_rows(rows.iter().map(readable).collect::<Result<_, StoreError>>()?, limit))
}

fn key(row: &impl Cells) -> Result<ReceiptKey, StoreError> {
    let name = |column| Name::new(&text(row, column)?).map_err(|_| wrong(column));
    let key = DedupKey::parse(&text(row, "key")?).map_err(|_| wrong("key"))?;
    Ok(ReceiptKey { consumer: name("consumer")?, source: name("source")?, key })
}

fn name(row: &impl Cells, column: &'static str) -> Result<Option<Name>, StoreError> {
    optional(row.text(column))?.map(|name| Name::new(&name).map_err(|_| wrong(column))).transpose()
}

fn event_id(row: &impl Cells) -> Result<Option<EventId>, StoreError> {
    optional(row.text("event_id"))?.map(|id| EventId::new(&id).map_err(|_| wrong("event_id"))).transpose()
}

pub(super) fn moment(row: &impl Cells, column: &'static str) -> Result<Option<Timestamp>, StoreError> {
    Ok(optional(row.number(column))?.map(Timestamp::from_micros))
}

pub(super) fn state(row: &impl Cells) -> Result<ReceiptState, StoreError> {
    ReceiptState::from_name(&text(row, "state")?).ok_or_else(|| wrong("state"))
}

/// A row's error says which row it is, where that can be told.
pub(super) fn named(error: StoreError, row: &impl Cells) -> StoreError {
    match (error, row.number("id")) {
        (StoreError::Corrupt(what), Ok(Some(id))) => StoreError::Corrupt(format!("countersign_inbox, id {id}: {what}")),
        (error, _) => error,
    }
}

fn result(row: &impl Cells) -> Result<Option<StoredResult>, StoreError> {
    let Some(status) = optional(row.number("result_status"))? else { return Ok(None) };
    Ok(Some(StoredResult {
        status: status_from(status)?,
        headers: header_block::decode(&bytes(row, "result_headers")?).ok_or_else(|| wrong("result_headers"))?,
        body: match optional(row.bytes("result_body"))? {
            Some(body) => ResultBody::Kept(body.into()),
            None => ResultBody::Omitted,
        },
    }))
}

fn request(row: &impl Cells) -> Result<Option<KeptRequest>, StoreError> {
    let Some(method) = optional(row.text("request_method"))? else { return Ok(None) };
    Ok(Some(KeptRequest {
        method: Method::from_bytes(method.as_bytes()).map_err(|_| wrong("request_method"))?,
        target: text(row, "request_target")?,
        headers: header_block::decode(&bytes(row, "request_headers")?).ok_or_else(|| wrong("request_headers"))?,
        body: Bytes::from(bytes(row, "request_body")?),
        proof: text(row, "request_proof")?,
    }))
}

/// A JSON array of number, attempt, time, status and error. Not every database can sort it.
fn failures(row: &impl Cells) -> Result<Vec<FailedRun>, StoreError> {
    let mut runs: Vec<(i64, u32, i64, Option<i64>, String)> =
        serde_json::from_str(&text(row, "failures")?).map_err(|_| wrong("failures"))?;
    runs.sort_unstable_by_key(|(seq, ..)| *seq);
    runs.into_iter()
        .map(|(_, attempt, at, status, error)| {
            let status = status.map(status_from).transpose()?;
            Ok(FailedRun { attempt, at: Timestamp::from_micros(at), status, error })
        })
        .collect()
}

fn digest(row: &impl Cells) -> Result<Digest, StoreError> {
    bytes(row, "body_digest")?.as_slice().try_into().map(Digest::from_bytes).map_err(|_| wrong("body_digest"))
}

fn token_from(bytes: &[u8]) -> Result<Token, StoreError> {
    bytes.try_into().map(Token::from_bytes).map_err(|_| wrong("token"))
}

pub(super) fn status_from(status: i64) -> Result<StatusCode, StoreError> {
    u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok()).ok_or_else(|| wrong("status"))
}

pub(super) fn number<N: TryFrom<i64>>(row: &impl Cells, column: &'static str) -> Result<N, StoreError> {
    optional(row.number(column))?.and_then(|number| N::try_from(number).ok()).ok_or_else(|| wrong(column))
}

pub(super) fn text(row: &impl Cells, column: &'static str) -> Result<String, StoreError> {
    optional(row.text(column))?.ok_or_else(|| wrong(column))
}

pub(super) fn bytes(row: &impl Cells, column: &'static str) -> Result<Vec<u8>, StoreError> {
    optional(row.bytes(column))?.ok_or_else(|| wrong(column))
}

/// For how long something has been due, if its time has come.
pub(super) fn due_for(due: i64, now: Timestamp) -> Option<Duration> {
    let due = Timestamp::from_micros(due);
    (due <= now).then(|| now.saturating_since(due))
}

pub(super) fn optional<T>(cell: Result<Option<T>, sqlx::Error>) -> Result<Option<T>, StoreError> {
    cell.map_err(|error| fault::corrupt(&error))
}

pub(super) fn wrong(column: &str) -> StoreError {
    StoreError::Corrupt(format!("the value in {column} is none that this store writes"))
}
