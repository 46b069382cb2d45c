//! Holding on to a lease, and ending a run: each names its token, and changes nothing where another one holds.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::super::header_block;
use super::batch::{Done, json, keyed, places};
use super::call::Ask;
use super::statements;
use crate::Timestamp;
use crate::store::{Failure, Lease, ReceiptKey, ResultBody, Settled, StoredResult, admission};

pub(super) async fn renew(
    connection: &mut SqliteConnection,
    asks: Vec<&mut Ask<(Lease, Duration), Settled>>,
    now: Timestamp,
) -> Done {
    for round in rounds(asks, |ask| &ask.question.0.key) {
        renew_round(connection, round, now).await?;
    }
    Ok(())
}

pub(super) async fn complete(
    connection: &mut SqliteConnection,
    asks: Vec<&mut Ask<(Lease, StoredResult), Settled>>,
    now: Timestamp,
) -> Done {
    for round in rounds(asks, |ask| &ask.question.0.key) {
        complete_round(connection, round, now).await?;
    }
    Ok(())
}

async fn renew_round(
    connection: &mut SqliteConnection,
    round: Vec<&mut Ask<(Lease, Duration), Settled>>,
    now: Timestamp,
) -> Done {
    let mut rows = Vec::with_capacity(round.len());
    let mut bytes = Vec::with_capacity(16 * round.len());
    for ask in &round {
        let (lease, span) = &ask.question;
        let ReceiptKey { consumer, source, key } = &lease.key;
        rows.push((consumer, source, key, now.saturating_add(*span).as_micros()));
        bytes.extend_from_slice(lease.token.as_bytes());
    }
    let leases = round.iter().map(|ask| (&ask.question.0.key, ask.question.0.token));
    let held = places(connection, statements::HELD, leases).await?;
    sqlx::query(statements::RENEW).bind(json(&rows)?).bind(bytes).execute(connection).await?;
    for (ask, held) in round.into_iter().zip(held) {
        ask.answer = Some(Ok(settled(held)));
    }
    Ok(())
}

async fn complete_round(
    connection: &mut SqliteConnection,
    round: Vec<&mut Ask<(Lease, StoredResult), Settled>>,
    now: Timestamp,
) -> Done {
    let mut rows = Vec::with_capacity(round.len());
    let mut bytes = Vec::new();
    for ask in &round {
        let (lease, result) = &ask.question;
        let ReceiptKey { consumer, source, key } = &lease.key;
        let headers = header_block::encode(&result.headers);
        let body = match &result.body {
            ResultBody::Kept(body) => Some(body),
            ResultBody::Omitted => None,
        };
        // `substr` counts from 1.
        let begin = bytes.len() + 1;
        let lengths = (headers.len(), body.map(|body| body.len()));
        rows.push((consumer, source, key, result.status.as_u16(), begin, lengths.0, lengths.1));
        bytes.extend_from_slice(lease.token.as_bytes());
        bytes.extend_from_slice(&headers);
        bytes.extend_from_slice(body.map_or(&[], |body| body.as_ref()));
    }
    let leases = round.iter().map(|ask| (&ask.question.0.key, ask.question.0.token));
    let held = places(connection, statements::HELD, leases).await?;
    let query = sqlx::query(statements::COMPLETE).bind(json(&rows)?).bind(bytes).bind(now.as_micros());
    query.execute(connection).await?;
    for (ask, held) in round.into_iter().zip(held) {
        ask.answer = Some(Ok(settled(held)));
    }
    Ok(())
}

/// One by one: failures are rare beside the rest, and each brings a line of history.
pub(super) async fn fail(
    connection: &mut SqliteConnection,
    ask: &mut Ask<(Lease, Box<Failure>), Settled>,
    now: Timestamp,
) -> Done {
    let (lease, failure) = &ask.question;
    let result = failure.result.as_ref();
    let request = failure.request.as_ref();
    let status = result.map(|result| result.status.as_u16());
    let body = result.and_then(|result| match &result.body {
        ResultBody::Kept(body) => Some(body.to_vec()),
        ResultBody::Omitted => None,
    });
    let held = keyed(statements::FAIL, &lease.key)
        .bind(lease.token.as_bytes().as_slice())
        .bind(now.as_micros())
        .bind(failure.dead.as_deref().map(admission::kept_text))
        .bind(status)
        .bind(result.map(|result| header_block::encode(&result.headers)))
        .bind(body)
        .bind(request.map(|request| request.method.as_str()))
        .bind(request.map(|request| request.target.as_str()))
        .bind(request.map(|request| header_block::encode(&request.headers)))
        .bind(request.map(|request| request.body.to_vec()))
        .bind(request.map(|request| request.proof.as_str()))
        .bind(failure.retry_in.map(|wait| now.saturating_add(wait).as_micros()))
        .fetch_optional(&mut *connection)
        .await?;
    if let Some(held) = &held {
        let (id, attempts) = (held.try_get("id")?, held.try_get("attempts")?);
        note_failure(connection, id, attempts, now, status, &admission::kept_text(&failure.error)).await?;
    }
    ask.answer = Some(Ok(settled(held.is_some())));
    Ok(())
}

pub(super) async fn note_failure(
    connection: &mut SqliteConnection,
    id: i64,
    attempt: u32,
    now: Timestamp,
    status: Option<u16>,
    error: &str,
) -> Done {
    let noted = sqlx::query(statements::NOTE_FAILURE)
        .bind(id)
        .bind(attempt)
        .bind(now.as_micros())
        .bind(status)
        .bind(error)
        .fetch_one(&mut *connection)
        .await?;
    let kept = i64::try_from(Failure::MAX_KEPT).unwrap_or(i64::MAX);
    let last_surplus = noted.try_get::<i64, _>("seq")?.saturating_sub(kept);
    if last_surplus > 0 {
        sqlx::query(statements::FORGET_FAILURES).bind(id).bind(last_surplus).execute(&mut *connection).await?;
    }
    sqlx::query(statements::SHOW_ERROR).bind(id).bind(error).execute(connection).await?;
    Ok(())
}

/// Splits asks so that no receipt occurs twice in a round: the second of two must find what the first one left.
pub(super) fn rounds<T>(asks: Vec<T>, key: impl Fn(&T) -> &ReceiptKey) -> Vec<Vec<T>> {
    let mut rounds: Vec<Vec<T>> = Vec::new();
    let mut seen: HashMap<ReceiptKey, usize> = HashMap::with_capacity(asks.len());
    for ask in asks {
        let turn = seen.entry(key(&ask).clone()).and_modify(|turn| *turn += 1).or_insert(0);
        match rounds.get_mut(*turn) {
            Some(round) => round.push(ask),
            None => rounds.push(vec![ask]),
        }
    }
    rounds
}

pub(super) const fn settled(held: bool) -> Settled {
    if held { Settled::Done } else { Settled::LeaseLost }
}
