//! Taking events in, to be run later.

use sqlx::sqlite::SqliteConnection;

use super::super::header_block;
use super::batch::{Done, json};
use super::call::Ask;
use super::reserve::{Standings, count, standings};
use super::row::Known;
use super::settle::rounds;
use super::statements;
use crate::Timestamp;
use crate::store::admission::{self, Acceptance};
use crate::store::{Accept, Accepted, KeptRequest, ReceiptKey, ReceiptState, StoreError};

type AcceptAsk = Ask<Box<Accept>, Accepted>;

pub(super) async fn accept(connection: &mut SqliteConnection, asks: Vec<&mut AcceptAsk>, now: Timestamp) -> Done {
    for round in rounds(asks, |ask| &ask.question.key) {
        accept_round(connection, round, now).await?;
    }
    Ok(())
}

/// First a look at what is known, which most are not: then one statement makes all that are new.
async fn accept_round(connection: &mut SqliteConnection, round: Vec<&mut AcceptAsk>, now: Timestamp) -> Done {
    let mut known: Standings = standings(connection, round.iter().map(|ask| &ask.question.key)).await?;
    let mut fresh = Vec::with_capacity(round.len());
    for ask in round {
        match known.remove(&ask.question.key) {
            None => fresh.push(ask),
            Some(Ok(known)) => ask.answer = Some(Ok(accept_again(connection, known, &ask.question, now).await?)),
            Some(Err(what)) => ask.answer = Some(Err(StoreError::Corrupt(what))),
        }
    }
    if fresh.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(fresh.len());
    let mut bytes = Vec::new();
    for ask in &fresh {
        let Accept { key, event_id, ordering_key, quarantine, body, request, .. } = &*ask.question;
        let ReceiptKey { consumer, source, key } = key;
        let KeptRequest { method, target, proof, headers, body: content } = request;
        let headers = header_block::encode(headers);
        let quarantine = quarantine.as_deref().map(admission::kept_text);
        // `substr` counts from 1.
        let (begin, lengths) = (bytes.len() + 1, (headers.len(), content.len()));
        rows.push((
            (consumer, source, key, event_id, ordering_key, quarantine),
            (method.as_str(), target, proof),
            (begin, lengths.0, lengths.1),
        ));
        bytes.extend_from_slice(body.as_bytes());
        bytes.extend_from_slice(&headers);
        bytes.extend_from_slice(content);
    }
    sqlx::query(statements::ACCEPT).bind(json(&rows)?).bind(bytes).bind(now.as_micros()).execute(connection).await?;
    for ask in fresh {
        ask.answer = Some(Ok(Accepted::Stored));
    }
    Ok(())
}

/// Does what [`Standing::accept`](admission::Standing::accept) says.
async fn accept_again(
    connection: &mut SqliteConnection,
    known: Known,
    request: &Accept,
    now: Timestamp,
) -> Result<Accepted, sqlx::Error> {
    match known.standing.accept(request, now) {
        Acceptance::Known { other_body } => count(connection, &known, other_body).await?,
        Acceptance::Owe { state, due, other_body } => {
            count(connection, &known, other_body).await?;
            owe(connection, known.id, request, (state, due), now).await?;
        }
        Acceptance::Refuse => {
            count(connection, &known, true).await?;
            return Ok(Accepted::OtherBody);
        }
        Acceptance::Repeat { other_body } => {
            count(connection, &known, other_body).await?;
            return Ok(Accepted::of_end(known.standing.state, known.repeat(other_body)));
        }
    }
    Ok(Accepted::Known)
}

async fn owe(
    connection: &mut SqliteConnection,
    id: i64,
    accept: &Accept,
    (state, due): (ReceiptState, Option<Timestamp>),
    now: Timestamp,
) -> Done {
    let KeptRequest { method, target, headers, body, proof } = &accept.request;
    let reason = accept.quarantine.as_deref().filter(|_| due.is_none());
    sqlx::query(statements::OWE)
        .bind(id)
        .bind(state.as_str())
        .bind(due.map(Timestamp::as_micros))
        .bind(reason.map(admission::kept_text))
        .bind(now.as_micros())
        .bind(accept.ordering_key.as_ref().map(|name| name.as_str()))
        .bind(method.as_str())
        .bind(target)
        .bind(proof)
        .bind(header_block::encode(headers))
        .bind(body.to_vec())
        .execute(connection)
        .await?;
    Ok(())
}
