//! A row as a receipt. What somebody else wrote there is checked: it is refused by name, and never panics.

use bytes::Bytes;
use http::{Method, StatusCode};
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row as _, Sqlite, Type};

use super::super::header_block;
use super::fault;
use crate::store::admission::Standing;
use crate::store::{
    FailedRun, KeptRequest, Receipt, ReceiptKey, ReceiptState, ResultBody, StoreError, StoredResult, Token,
};
use crate::{DedupKey, Digest, EventId, Name, Timestamp};

/// What is known of a receipt that somebody wants to run.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) standing: Standing,
    pub(super) result: Option<StoredResult>,
}

pub(super) fn known(row: &SqliteRow) -> Result<Known, StoreError> {
    let token: Option<Vec<u8>> = read(row, "token")?;
    Ok(Known {
        id: read(row, "id")?,
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

/// What is due.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) standing: Standing,
    pub(super) key: ReceiptKey,
    pub(super) event_id: Option<EventId>,
    pub(super) request: KeptRequest,
    pub(super) first_seen: Timestamp,
}

pub(super) fn due(row: &SqliteRow) -> Result<Due, StoreError> {
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
        first_seen: Timestamp::from_micros(read(row, "first_seen")?),
    })
}

pub(super) fn receipt(row: &SqliteRow) -> Result<Receipt, StoreError> {
    Ok(Receipt {
        key: key(row)?,
        event_id: event_id(row)?,
        state: state(row)?,
        attempts: number(row, "attempts")?,
        first_seen: Timestamp::from_micros(read(row, "first_seen")?),
        updated: Timestamp::from_micros(read(row, "updated")?),
        lease_until: moment(row, "lease_until")?,
        due: moment(row, "due")?,
        quarantined: read(row, "quarantined")?,
        ordering_key: match read::<Option<&str>>(row, "ordering_key")? {
            Some(name) => Some(Name::new(name).map_err(|_| wrong("ordering_key"))?),
            None => None,
        },
        body: digest(row)?,
        other_bodies: number(row, "other_bodies")?,
        result: result(row)?,
        error: read(row, "error")?,
        reason: read(row, "reason")?,
        request: request(row)?,
        failures: failures(row)?,
    })
}

fn key(row: &SqliteRow) -> Result<ReceiptKey, StoreError> {
    let name = |column| Name::new(read(row, column)?).map_err(|_| wrong(column));
    let key = DedupKey::parse(read(row, "key")?).map_err(|_| wrong("key"))?;
    Ok(ReceiptKey { consumer: name("consumer")?, source: name("source")?, key })
}

fn event_id(row: &SqliteRow) -> Result<Option<EventId>, StoreError> {
    let id: Option<&str> = read(row, "event_id")?;
    id.map(|id| EventId::new(id).map_err(|_| wrong("event_id"))).transpose()
}

fn moment(row: &SqliteRow, column: &'static str) -> Result<Option<Timestamp>, StoreError> {
    Ok(read::<Option<i64>>(row, column)?.map(Timestamp::from_micros))
}

pub(super) fn state(row: &SqliteRow) -> Result<ReceiptState, StoreError> {
    ReceiptState::from_name(read(row, "state")?).ok_or_else(|| wrong("state"))
}

/// A row's error says which row it is, where that can be told.
pub(super) fn named(error: StoreError, row: &SqliteRow) -> StoreError {
    match (error, row.try_get::<i64, _>("id")) {
        (StoreError::Corrupt(what), Ok(id)) => StoreError::Corrupt(format!("countersign_inbox, id {id}: {what}")),
        (error, _) => error,
    }
}

fn result(row: &SqliteRow) -> Result<Option<StoredResult>, StoreError> {
    let Some(status) = read::<Option<i64>>(row, "result_status")? else { return Ok(None) };
    Ok(Some(StoredResult {
        status: status_from(status)?,
        headers: header_block::decode(read(row, "result_headers")?).ok_or_else(|| wrong("result_headers"))?,
        body: match read::<Option<Vec<u8>>>(row, "result_body")? {
            Some(body) => ResultBody::Kept(body.into()),
            None => ResultBody::Omitted,
        },
    }))
}

fn request(row: &SqliteRow) -> Result<Option<KeptRequest>, StoreError> {
    let Some(method) = read::<Option<&str>>(row, "request_method")? else { return Ok(None) };
    Ok(Some(KeptRequest {
        method: Method::from_bytes(method.as_bytes()).map_err(|_| wrong("request_method"))?,
        target: read(row, "request_target")?,
        headers: header_block::decode(read(row, "request_headers")?).ok_or_else(|| wrong("request_headers"))?,
        body: Bytes::from(read::<Vec<u8>>(row, "request_body")?),
        proof: read(row, "request_proof")?,
    }))
}

fn failures(row: &SqliteRow) -> Result<Vec<FailedRun>, StoreError> {
    let runs: Vec<(u32, i64, Option<i64>, String)> =
        serde_json::from_str(read(row, "failures")?).map_err(|_| wrong("failures"))?;
    runs.into_iter()
        .map(|(attempt, at, status, error)| {
            let status = status.map(status_from).transpose()?;
            Ok(FailedRun { attempt, at: Timestamp::from_micros(at), status, error })
        })
        .collect()
}

fn digest(row: &SqliteRow) -> Result<Digest, StoreError> {
    let bytes: &[u8] = read(row, "body_digest")?;
    bytes.try_into().map(Digest::from_bytes).map_err(|_| wrong("body_digest"))
}

fn token_from(bytes: &[u8]) -> Result<Token, StoreError> {
    bytes.try_into().map(Token::from_bytes).map_err(|_| wrong("token"))
}

fn status_from(status: i64) -> Result<StatusCode, StoreError> {
    u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok()).ok_or_else(|| wrong("status"))
}

fn number<N: TryFrom<i64>>(row: &SqliteRow, column: &'static str) -> Result<N, StoreError> {
    N::try_from(read::<i64>(row, column)?).map_err(|_| wrong(column))
}

fn read<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, column: &'static str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| fault::corrupt(&error))
}

fn wrong(column: &str) -> StoreError {
    StoreError::Corrupt(format!("the value in {column} is none that this store writes"))
}
