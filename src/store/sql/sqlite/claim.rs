//! Handing out what is due, and taking it back.

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::batch::{Done, keyed};
use super::call::{Ask, ClaimAsk};
use super::reserve::{bury, note_lapse};
use super::row::{self, Due};
use super::settle::settled;
use super::statements;
use crate::Timestamp;
use crate::store::admission::{self, Admission};
use crate::store::{Claim, Claimed, Lease, Settled, Token};

/// How often to look again where what was found became a dead letter: what it held up, or what stands behind it, must not
/// wait for the next claim.
const LOOKS: usize = 16;

pub(super) async fn claim(connection: &mut SqliteConnection, ask: &mut ClaimAsk, now: Timestamp) -> Done {
    let (claim, tokens) = &ask.question;
    let mut tokens = tokens.iter().copied();
    let mut claimed = Vec::new();
    for _ in 0..LOOKS {
        let wanted = tokens.len();
        if wanted == 0 {
            break;
        }
        let found = sqlx::query(statements::DUE)
            .bind(claim.consumer.as_str())
            .bind(now.as_micros())
            .bind(i64::try_from(wanted).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await?;
        let before = claimed.len();
        for found in &found {
            claimed.extend(take(connection, found, claim, &mut tokens, now).await?);
        }
        if claimed.len() - before == found.len() {
            break;
        }
    }
    ask.answer = Some(Ok(claimed));
    Ok(())
}

/// One that is due, for the one who asks, unless it has come to its end.
async fn take(
    connection: &mut SqliteConnection,
    found: &SqliteRow,
    claim: &Claim,
    tokens: &mut impl Iterator<Item = Token>,
    now: Timestamp,
) -> Result<Option<Claimed>, sqlx::Error> {
    let id: i64 = found.try_get("id")?;
    let Due { standing, key, event_id, request, first_seen } = match row::due(found) {
        Ok(due) => due,
        Err(error) => {
            // It would be found again and again, and no run of it can ever begin.
            let reason = admission::kept_text(&error.to_string());
            tracing::error!(id, reason, "a receipt that cannot be read is made a dead letter");
            bury(connection, id, &reason, now).await?;
            return Ok(None);
        }
    };
    match standing.claim(claim.max_attempts) {
        Admission::Bury { lapsed, reason, .. } => {
            note_lapse(connection, id, &standing, lapsed, now).await?;
            bury(connection, id, &reason, now).await?;
            Ok(None)
        }
        Admission::TakeOver { lapsed, .. } => {
            let Some(token) = tokens.next() else { return Ok(None) };
            note_lapse(connection, id, &standing, lapsed, now).await?;
            let until = now.saturating_add(claim.lease);
            let attempt = standing.attempts.saturating_add(1);
            sqlx::query(statements::TAKE_OVER)
                .bind(id)
                .bind(token.as_bytes().as_slice())
                .bind(until.as_micros())
                .bind(attempt)
                .bind(now.as_micros())
                .bind(until.as_micros())
                .execute(connection)
                .await?;
            let lease = Lease { key, token, attempt };
            Ok(Some(Claimed { lease, event_id, body: standing.body, request, first_seen }))
        }
        Admission::Held | Admission::Refuse | Admission::Repeat { .. } | Admission::Wait(_) => Ok(None),
    }
}

pub(super) async fn release(connection: &mut SqliteConnection, ask: &mut Ask<Lease, Settled>, now: Timestamp) -> Done {
    let lease = &ask.question;
    let released = keyed(statements::RELEASE, &lease.key)
        .bind(lease.token.as_bytes().as_slice())
        .bind(now.as_micros())
        .execute(connection)
        .await?;
    ask.answer = Some(Ok(settled(released.rows_affected() > 0)));
    Ok(())
}
