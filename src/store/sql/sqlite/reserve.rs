//! Who may run an event.

use std::collections::{HashMap, HashSet};

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::batch::{Done, json, places};
use super::call::Ask;
use super::row::{self, Known};
use super::settle::note_failure;
use super::statements;
use crate::Timestamp;
use crate::store::admission::{self, Admission, Standing};
use crate::store::{Lease, ReceiptKey, ReceiptState, Repeat, Reserve, Reserved, StoreError, Token};

/// First the many that nobody asked for before, in one statement; then those that are known, one by one.
///
/// A repeat of a succeeded event is a row that the statement passes over: no page is changed, and a transaction that
/// changed nothing costs no write and no sync when it is committed.
pub(super) async fn reserve(
    connection: &mut SqliteConnection,
    asks: Vec<&mut Ask<(Reserve, Token), Reserved>>,
    now: Timestamp,
) -> Done {
    if asks.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(asks.len());
    let mut bytes = Vec::with_capacity(48 * asks.len());
    for ask in &asks {
        let (request, token) = &ask.question;
        let ReceiptKey { consumer, source, key } = &request.key;
        rows.push((consumer, source, key, &request.event_id, now.saturating_add(request.lease).as_micros()));
        bytes.extend_from_slice(token.as_bytes());
        bytes.extend_from_slice(request.body.as_bytes());
    }
    let query = sqlx::query(statements::INSERT).bind(json(&rows)?).bind(bytes).bind(now.as_micros());
    let inserted = query.execute(&mut *connection).await?.rows_affected();
    let made = if u64::try_from(asks.len()) == Ok(inserted) {
        vec![true; asks.len()]
    } else {
        let leases = asks.iter().map(|ask| (&ask.question.0.key, ask.question.1));
        places(connection, statements::MADE, leases).await?
    };
    let mut others = Vec::new();
    for (ask, made) in asks.into_iter().zip(made) {
        let (request, token) = &ask.question;
        if made {
            ask.answer = Some(Ok(Reserved::Acquired(Lease { key: request.key.clone(), token: *token, attempt: 1 })));
        } else {
            others.push(ask);
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    let mut known = standings(connection, others.iter().map(|ask| &ask.question.0.key)).await?;
    for ask in others {
        let (request, token) = &ask.question;
        ask.answer = Some(match known.get_mut(&request.key) {
            Some(Ok(known)) => Ok(admit(connection, known, request, *token, now).await?),
            Some(Err(what)) => Err(StoreError::Corrupt(what.clone())),
            None => Err(StoreError::Corrupt("a row is there and is not found: check the file's indexes".into())),
        });
    }
    Ok(())
}

/// What is known of each receipt, or why its row cannot be read.
pub(super) type Standings = HashMap<ReceiptKey, Result<Known, String>>;

pub(super) async fn standings<'a>(
    connection: &mut SqliteConnection,
    keys: impl Iterator<Item = &'a ReceiptKey>,
) -> Result<Standings, sqlx::Error> {
    let keys: Vec<&ReceiptKey> = keys.collect::<HashSet<_>>().into_iter().collect();
    let rows: Vec<_> = keys.iter().map(|key| (&key.consumer, &key.source, &key.key)).collect();
    let found = sqlx::query(statements::STANDINGS).bind(json(&rows)?).fetch_all(connection).await?;
    let mut standings = HashMap::with_capacity(found.len());
    for found in &found {
        let place = usize::try_from(found.try_get::<i64, _>("place")?).ok();
        if let Some(&key) = place.and_then(|place| keys.get(place)) {
            let known = row::known(found).map_err(|error| row::named(error, found));
            standings.insert(key.clone(), known.map_err(|error| error.to_string()));
        }
    }
    Ok(standings)
}

/// Does what [`Standing::admit`] says, and keeps `known` true for the next who asks.
async fn admit(
    connection: &mut SqliteConnection,
    known: &mut Known,
    request: &Reserve,
    token: Token,
    now: Timestamp,
) -> Result<Reserved, sqlx::Error> {
    match known.standing.admit(request, token, now) {
        Admission::Held => Ok(Reserved::Acquired(known.lease(request, token))),
        Admission::Wait(remaining) => Ok(Reserved::Processing(remaining)),
        Admission::Refuse => {
            count(connection, known, true).await?;
            Ok(Reserved::OtherBody)
        }
        Admission::Repeat { other_body } => {
            count(connection, known, other_body).await?;
            Ok(known.reserved(other_body))
        }
        Admission::TakeOver { lapsed, other_body } => {
            note_lapse(connection, known.id, &known.standing, lapsed, now).await?;
            count(connection, known, other_body).await?;
            let until = now.saturating_add(request.lease);
            known.standing.due = known.standing.due_under(until);
            known.standing.state = ReceiptState::Processing;
            known.standing.attempts = known.standing.attempts.saturating_add(1);
            known.standing.token = Some(token);
            known.standing.lease_until = Some(until);
            sqlx::query(statements::TAKE_OVER)
                .bind(known.id)
                .bind(token.as_bytes().as_slice())
                .bind(until.as_micros())
                .bind(known.standing.attempts)
                .bind(now.as_micros())
                .bind(known.standing.due.map(Timestamp::as_micros))
                .execute(connection)
                .await?;
            Ok(Reserved::Acquired(known.lease(request, token)))
        }
        Admission::Bury { lapsed, other_body, reason } => {
            note_lapse(connection, known.id, &known.standing, lapsed, now).await?;
            count(connection, known, other_body).await?;
            known.standing.state = ReceiptState::DeadLetter;
            known.standing.token = None;
            known.standing.lease_until = None;
            known.standing.due = None;
            bury(connection, known.id, &reason, now).await?;
            Ok(known.reserved(other_body))
        }
    }
}

impl Known {
    fn lease(&self, request: &Reserve, token: Token) -> Lease {
        Lease { key: request.key.clone(), token, attempt: self.standing.attempts }
    }

    fn reserved(&self, other_body: bool) -> Reserved {
        Reserved::of_end(self.standing.state, self.repeat(other_body))
    }

    pub(super) fn repeat(&self, other_body: bool) -> Repeat {
        Repeat { result: self.result.clone(), same_body: !other_body }
    }
}

pub(super) async fn bury(connection: &mut SqliteConnection, id: i64, reason: &str, now: Timestamp) -> Done {
    sqlx::query(statements::BURY).bind(id).bind(reason).bind(now.as_micros()).execute(connection).await?;
    Ok(())
}

pub(super) async fn count(connection: &mut SqliteConnection, known: &Known, other_body: bool) -> Done {
    if other_body {
        sqlx::query(statements::COUNT_OTHER_BODY).bind(known.id).execute(connection).await?;
    }
    Ok(())
}

pub(super) async fn note_lapse(
    connection: &mut SqliteConnection,
    id: i64,
    standing: &Standing,
    lapsed: bool,
    now: Timestamp,
) -> Done {
    if lapsed {
        note_failure(connection, id, standing.attempts, now, None, admission::LAPSED).await?;
    }
    Ok(())
}
