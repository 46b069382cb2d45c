//! Taking events in, to be run later.

use std::collections::{BTreeSet, HashSet};

use super::call::Ask;
use super::database::{Database, Owed, StoredRequest};
use super::reserve::{LOOKS, Standings, count, look};
use super::row::Known;
use super::settle::rounds;
use super::transactor::Done;
use crate::store::admission::{self, Acceptance};
use crate::store::{Accept, Accepted, ReceiptKey, StoreError};
use crate::{Digest, Timestamp};

type AcceptAsk = Ask<Box<Accept>, Accepted>;

pub(super) async fn accept<D: Database>(database: &mut D, asks: Vec<&mut AcceptAsk>, now: Timestamp) -> Done {
    let turns = turns(&asks);
    if !turns.is_empty() {
        database.take_turns(&turns).await?;
    }
    for mut round in rounds(asks, |ask| &ask.question.key) {
        for _ in 0..LOOKS {
            if round.is_empty() {
                break;
            }
            round = accept_round(database, round, now).await?;
        }
        for ask in round {
            let what = "a row is there and is not found: check the database's indexes";
            ask.answer = Some(Err(StoreError::Corrupt(what.into())));
        }
    }
    Ok(())
}

/// What has an order is taken in by one writer at a time, of all processes: else the row that was made first could be
/// committed last, and a claim between the two commits would run the second event before it sees the first. Each ordering
/// key is a turn. They are taken before this batch makes any row, and in one order, so that nobody waits in a circle.
fn turns(asks: &[&mut AcceptAsk]) -> Vec<Digest> {
    let turn = |request: &Accept| {
        let ordering_key = request.ordering_key.as_ref()?;
        let mut text = Vec::new();
        for part in [&request.key.consumer, &request.key.source, ordering_key] {
            // Names hold no NUL: no two triples share one text.
            text.extend_from_slice(part.as_str().as_bytes());
            text.push(0);
        }
        Some(Digest::of(&text))
    };
    let turns: BTreeSet<Digest> = asks.iter().filter_map(|ask| turn(&ask.question)).collect();
    turns.into_iter().collect()
}

/// First a look at what is known, which most are not: then one statement makes all that are new. Returns those that
/// somebody else made in between.
///
/// What is owed already needs no change, and so no lock. What another transaction has in hand, and would have to become
/// owed, is not waited for: the whole batch would. Its sender comes back.
async fn accept_round<'a, D: Database>(
    database: &mut D,
    round: Vec<&'a mut AcceptAsk>,
    now: Timestamp,
) -> Done<Vec<&'a mut AcceptAsk>> {
    let mut known = Standings::default();
    look(database, &mut known, round.iter().map(|ask| &ask.question.key).collect(), false).await?;
    let mut in_hand = HashSet::new();
    if !D::ALONE {
        let owed: Vec<&ReceiptKey> = round
            .iter()
            .map(|ask| &*ask.question)
            .filter(|request| match known.get(&request.key) {
                Some(Ok(known)) => matches!(known.standing.accept(request, now), Acceptance::Owe { .. }),
                _ => false,
            })
            .map(|request| &request.key)
            .collect();
        if !owed.is_empty() {
            owed.iter().for_each(|key| drop(known.remove(*key)));
            look(database, &mut known, owed.clone(), true).await?;
            in_hand.extend(owed.into_iter().filter(|key| !known.contains_key(*key)).cloned());
        }
    }
    let mut fresh = Vec::with_capacity(round.len());
    for ask in round {
        match known.remove(&ask.question.key) {
            None if in_hand.contains(&ask.question.key) => {
                let reason = "another transaction has the receipt in hand at this moment".into();
                ask.answer = Some(Err(StoreError::Unavailable { reason, source: None }));
            }
            None => fresh.push(ask),
            Some(Ok(known)) => ask.answer = Some(Ok(accept_again(database, &known, &ask.question, now).await?)),
            Some(Err(what)) => ask.answer = Some(Err(StoreError::Corrupt(what))),
        }
    }
    if fresh.is_empty() {
        return Ok(fresh);
    }
    let rows: Vec<&Accept> = fresh.iter().map(|ask| &*ask.question).collect();
    let made = database.accept(&rows, now).await?;
    drop(rows);
    let mut others = Vec::new();
    for (ask, made) in fresh.into_iter().zip(made) {
        if made {
            ask.answer = Some(Ok(Accepted::Stored));
        } else {
            others.push(ask);
        }
    }
    Ok(others)
}

/// Does what [`Standing::accept`](admission::Standing::accept) says.
async fn accept_again<D: Database>(
    database: &mut D,
    known: &Known,
    request: &Accept,
    now: Timestamp,
) -> Done<Accepted> {
    match known.standing.accept(request, now) {
        Acceptance::Known { other_body } => count(database, known, other_body).await?,
        Acceptance::Owe { state, due, other_body } => {
            count(database, known, other_body).await?;
            let owed = Owed {
                id: known.id,
                state,
                due,
                reason: request.quarantine.as_deref().filter(|_| due.is_none()).map(admission::kept_text),
                ordering_key: request.ordering_key.as_ref(),
                request: StoredRequest::of(&request.request),
            };
            database.owe(&owed, now).await?;
        }
        Acceptance::Refuse => {
            count(database, known, true).await?;
            return Ok(Accepted::OtherBody);
        }
        Acceptance::Repeat { other_body } => {
            count(database, known, other_body).await?;
            return Ok(Accepted::of_end(known.standing.state, known.repeat(other_body)));
        }
    }
    Ok(Accepted::Known)
}
