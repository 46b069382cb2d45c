//! What an operator asks: messages sent again, and taken back; and what has reached its age.

use super::super::call::Ask;
use super::super::transactor::Done;
use super::call::{PurgeStep, Replay, Selected, Selection};
use super::database::{Aged, Database, FoundMessage};
use super::order;
use crate::Timestamp;
use crate::store::delivery;
use crate::store::{MessageFilter, MessageState, StoreError};

pub(super) async fn replay<D: Database>(
    database: &mut D,
    ask: &mut Ask<Replay, Selected>,
    now: Timestamp,
    again: bool,
) -> Done {
    let Replay { selection, wait, gap } = &ask.question;
    let (found, selected) = select(database, selection, delivery::is_replayed, true).await?;
    let mut due = now.saturating_add(*wait);
    let mut ids = Vec::with_capacity(found.len());
    for found in &found {
        ids.push((found.id, due));
        due = due.saturating_add(*gap);
    }
    if !ids.is_empty() {
        database.replay(&ids, now).await?;
    }
    ask.answer = Some(told(selected, again));
    Ok(())
}

pub(super) async fn cancel<D: Database>(
    database: &mut D,
    ask: &mut Ask<Selection, Selected>,
    now: Timestamp,
    again: bool,
) -> Done {
    let (found, selected) = select(database, &ask.question, delivery::is_cancelled, false).await?;
    let ids: Vec<i64> = found.iter().map(|found| found.id).collect();
    if !ids.is_empty() {
        database.cancel(&ids, delivery::CANCELLED, now).await?;
        let order = |found: &FoundMessage| Some((found.key.endpoint.clone(), found.ordering_key.clone()?));
        let orders: Vec<_> = found.iter().filter_map(order).collect();
        order::promote(database, orders.iter()).await?;
    }
    ask.answer = Some(told(selected, again));
    Ok(())
}

pub(super) async fn purge<D: Database>(database: &mut D, ask: &mut Ask<PurgeStep, u64>, now: Timestamp) -> Done {
    let PurgeStep { retention, most } = ask.question;
    let aged =
        Aged { done: now.saturating_sub(retention.done), dead: retention.dead.map(|dead| now.saturating_sub(dead)) };
    let purged = database.purge(&aged, most).await?;
    ask.answer = Some(Ok(u64::try_from(purged.len()).unwrap_or(u64::MAX)));
    let orders: Vec<_> = purged.into_iter().flatten().collect();
    order::promote(database, orders.iter()).await
}

/// Where an earlier attempt may have done it all, that there is nothing left to do does not say that nothing was done.
fn told(selected: Selected, again: bool) -> Result<Selected, StoreError> {
    if again && selected.keys.is_empty() {
        let reason = "whether messages were changed is not known: look at them, or ask again".to_owned();
        return Err(StoreError::Unavailable { reason, source: None });
    }
    Ok(selected)
}

async fn select<D: Database>(
    database: &mut D,
    selection: &Selection,
    fits: fn(MessageState, &MessageFilter) -> bool,
    must_have_endpoint: bool,
) -> Done<(Vec<FoundMessage>, Selected)> {
    let states: Vec<MessageState> =
        MessageState::ALL.into_iter().filter(|state| fits(*state, &selection.filter)).collect();
    if states.is_empty() || selection.most == 0 {
        return Ok((Vec::new(), Selected::default()));
    }
    let rows = database.select(selection, &states, must_have_endpoint).await?;
    let (looked_at, last) = (rows.len(), rows.last().map(|(id, _)| *id));
    let found: Vec<FoundMessage> = rows.into_iter().filter_map(|(_, found)| found).collect();
    let keys = found.iter().map(|found| found.key.clone()).collect();
    Ok((found, Selected { looked_at, last, keys }))
}
