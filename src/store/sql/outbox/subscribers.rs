//! Endpoints: added, changed, disabled, removed.

use super::super::call::Ask;
use super::super::transactor::Done;
use super::call::{Removal, STEP, Sweep};
use super::database::{Database, FoundEndpoint};
use crate::store::delivery::{self, Health};
use crate::store::{Endpoint, EndpointEntry, OnDead, StoreError};
use crate::{Name, Timestamp};

pub(super) async fn put<D: Database>(
    database: &mut D,
    ask: &mut Ask<Box<Endpoint>, (EndpointEntry, bool)>,
    now: Timestamp,
) -> Done {
    let endpoint = &ask.question;
    let before = found(database, &endpoint.name, true).await?;
    database.put_endpoint(endpoint, now).await?;
    // What a dead letter held up may go on, or is parked, when a claim looks at it.
    let held_up = before.and_then(Result::ok).is_some_and(|entry| entry.endpoint.settings.on_dead == OnDead::Block)
        && endpoint.settings.on_dead != OnDead::Block;
    let missing = || Err(StoreError::Corrupt("an endpoint that was just written is not found".into()));
    let answer = found(database, &endpoint.name, false).await?.unwrap_or_else(missing);
    ask.answer = Some(answer.map(|entry| (entry, held_up)));
    Ok(())
}

pub(super) async fn disable<D: Database>(
    database: &mut D,
    ask: &mut Ask<(Name, Option<String>), bool>,
    now: Timestamp,
) -> Done {
    let (name, reason) = &ask.question;
    ask.answer = match found(database, name, true).await? {
        None => Some(Ok(false)),
        Some(Err(error)) => Some(Err(error)),
        Some(Ok(entry)) => {
            let health = reason.as_ref().map_or_else(Health::default, |reason| entry.health().disabled(reason, now));
            database.set_health(name, &health, Some(now)).await?;
            Some(Ok(true))
        }
    };
    Ok(())
}

/// The endpoint before its messages: whoever enqueues has it locked, and is waited for. That an attempt may be ending, and
/// comes the other way, is seen by the database: one of both is done again.
pub(super) async fn remove<D: Database>(database: &mut D, ask: &mut Ask<Name, Removal>, now: Timestamp) -> Done {
    let name = &ask.question;
    let removal = if database.has_more_than(name, STEP).await? {
        Removal::TooLarge
    } else if database.remove_endpoint(name).await? {
        Removal::Done
    } else {
        Removal::NotThere
    };
    if removal != Removal::TooLarge {
        // All that has come since it was counted: nobody would ever look at it.
        database.bury_all(name, delivery::ENDPOINT_REMOVED, u32::MAX, now).await?;
    }
    ask.answer = Some(Ok(removal));
    Ok(())
}

pub(super) async fn sweep<D: Database>(database: &mut D, ask: &mut Ask<Sweep, u64>, now: Timestamp) -> Done {
    let swept = match &ask.question {
        Sweep::Bury(name) => database.bury_all(name, delivery::ENDPOINT_REMOVED, STEP, now).await?,
        Sweep::Promote(name) => database.promote_all(name, STEP).await?,
    };
    ask.answer = Some(Ok(swept));
    Ok(())
}

async fn found<D: Database>(
    database: &mut D,
    name: &Name,
    lock: bool,
) -> Done<Option<Result<EndpointEntry, StoreError>>> {
    let found = database.endpoints(&[name], lock).await?;
    Ok(found.into_iter().next().map(|FoundEndpoint { entry, .. }| entry))
}
