//! Handing out what is due, and taking it back.

use super::call::{Ask, ClaimAsk};
use super::database::{Database, FoundDue, Takeover};
use super::reserve::note_lapse;
use super::row::Due;
use super::settle::settled;
use super::transactor::Done;
use crate::Timestamp;
use crate::store::admission::{self, Admission};
use crate::store::{Claim, Claimed, Lease, Settled, Token};

/// How often to look again where what was found became a dead letter: what it held up, or what stands behind it, must not
/// wait for the next claim.
const LOOKS: usize = 16;

pub(super) async fn claim<D: Database>(database: &mut D, ask: &mut ClaimAsk, now: Timestamp) -> Done {
    let (claim, tokens) = &ask.question;
    let mut tokens = tokens.iter().copied();
    let mut claimed = Vec::new();
    for _ in 0..LOOKS {
        let wanted = tokens.len();
        if wanted == 0 {
            break;
        }
        let found = database.due(&claim.consumer, wanted, now).await?;
        let (before, found_here) = (claimed.len(), found.len());
        for found in found {
            claimed.extend(take(database, found, claim, &mut tokens, now).await?);
        }
        if claimed.len() - before == found_here {
            break;
        }
    }
    ask.answer = Some(Ok(claimed));
    Ok(())
}

/// One that is due, for the one who asks, unless it has come to its end.
async fn take<D: Database>(
    database: &mut D,
    FoundDue { id, due }: FoundDue,
    claim: &Claim,
    tokens: &mut (impl Iterator<Item = Token> + Send),
    now: Timestamp,
) -> Done<Option<Claimed>> {
    let Due { standing, key, event_id, request, first_seen } = match due {
        Ok(due) => due,
        Err(fault) => {
            // It would be found again and again, and no run of it can ever begin.
            let reason = admission::kept_text(&fault);
            tracing::error!(id, reason, "a receipt that cannot be read is made a dead letter");
            database.bury(id, &reason, now).await?;
            return Ok(None);
        }
    };
    match standing.claim(claim) {
        Admission::Bury { lapsed, reason, .. } => {
            note_lapse(database, id, &standing, lapsed, now).await?;
            database.bury(id, &reason, now).await?;
            Ok(None)
        }
        Admission::TakeOver { lapsed, .. } => {
            let Some(token) = tokens.next() else { return Ok(None) };
            note_lapse(database, id, &standing, lapsed, now).await?;
            let (lease_until, attempts) = (now.saturating_add(claim.lease), standing.attempts.saturating_add(1));
            let run = Takeover { id, token, lease_until, attempts, due: Some(lease_until) };
            database.take_over(&run, now).await?;
            let lease = Lease { key, token, attempt: attempts };
            Ok(Some(Claimed { lease, event_id, body: standing.body, request, first_seen }))
        }
        Admission::Held | Admission::Refuse | Admission::Repeat { .. } | Admission::Wait(_) => Ok(None),
    }
}

/// In the order of their keys, as everything that locks rows.
pub(super) async fn release<D: Database>(
    database: &mut D,
    mut asks: Vec<&mut Ask<Lease, Settled>>,
    now: Timestamp,
    again: bool,
) -> Done {
    asks.sort_by(|one, two| one.question.key.cmp(&two.question.key));
    for ask in asks {
        let held = database.release(&ask.question, now).await?;
        let held = held || (again && database.ended(&ask.question).await?);
        ask.answer = Some(Ok(settled(held)));
    }
    Ok(())
}
