//! Carries out a batch of calls within one transaction.
//!
//! The order is fixed: checks, renewals, ends, what operators ask, what is new, claims, purge. As in the inbox any order would be
//! right; ends before claims frees what can be claimed, and a claim finds what is new.

use std::time::Duration;

use super::super::call::Ask;
use super::super::transactor::Done;
use super::call::{
    Call, ClaimAsk, EnqueueAsk, PublishAsk, PurgeStep, Removal, Replay, Selected, Selection, SettleAsk, Sweep,
};
use super::database::Database;
use super::{claim, enqueue, operate, settle, subscribers};
use crate::store::{Endpoint, EndpointEntry, MessageLease, Settled};
use crate::{Name, Timestamp};

/// Gives every call its answer, to be delivered after the commit. Where this fails nothing may be committed.
///
/// `again`: an earlier attempt at these calls may have been committed, and its answer was lost.
pub(in crate::store::sql) async fn carry_out<'c, D: Database>(
    database: &mut D,
    calls: impl Iterator<Item = &'c mut Call>,
    now: Timestamp,
    again: bool,
) -> Done {
    let mut batch = Batch::default();
    for call in calls {
        match call {
            Call::Cancel(ask) => batch.cancels.push(ask),
            Call::Check(ask) => batch.checks.push(ask),
            Call::Claim(ask) => batch.claims.push(ask),
            Call::DisableEndpoint(ask) => batch.disables.push(ask),
            Call::Enqueue(ask) => batch.enqueues.push(ask),
            Call::Publish(ask) => batch.publishes.push(ask),
            Call::Purge(ask) => batch.purges.push(ask),
            Call::PutEndpoint(ask) => batch.puts.push(ask),
            Call::Release(ask) => batch.releases.push(ask),
            Call::RemoveEndpoint(ask) => batch.removals.push(ask),
            Call::Renew(ask) => batch.renewals.push(ask),
            Call::Replay(ask) => batch.replays.push(ask),
            Call::Settle(ask) => batch.settles.push(ask),
            Call::Sweep(ask) => batch.sweeps.push(ask),
        }
    }
    if !batch.checks.is_empty() {
        database.check(now).await?;
        for ask in batch.checks {
            ask.answer = Some(Ok(()));
        }
    }
    settle::renew(database, batch.renewals, now).await?;
    settle::settle(database, batch.settles, batch.releases, now, again).await?;
    for ask in batch.puts {
        subscribers::put(database, ask, now).await?;
    }
    for ask in batch.disables {
        subscribers::disable(database, ask, now).await?;
    }
    for ask in batch.removals {
        subscribers::remove(database, ask, now).await?;
    }
    for ask in batch.sweeps {
        subscribers::sweep(database, ask, now).await?;
    }
    for ask in batch.cancels {
        operate::cancel(database, ask, now, again).await?;
    }
    for ask in batch.replays {
        operate::replay(database, ask, now, again).await?;
    }
    if !batch.enqueues.is_empty() || !batch.publishes.is_empty() {
        enqueue::enqueue(&mut database.inserts(now)?, batch.enqueues, batch.publishes, again).await?;
    }
    for ask in batch.claims {
        claim::claim(database, ask, now).await?;
    }
    for ask in batch.purges {
        operate::purge(database, ask, now).await?;
    }
    Ok(())
}

/// The calls by kind.
#[derive(Default)]
struct Batch<'a> {
    cancels: Vec<&'a mut Ask<Selection, Selected>>,
    checks: Vec<&'a mut Ask<(), ()>>,
    claims: Vec<&'a mut ClaimAsk>,
    disables: Vec<&'a mut Ask<(Name, Option<String>), bool>>,
    enqueues: Vec<&'a mut EnqueueAsk>,
    publishes: Vec<&'a mut PublishAsk>,
    purges: Vec<&'a mut Ask<PurgeStep, u64>>,
    puts: Vec<&'a mut Ask<Box<Endpoint>, (EndpointEntry, bool)>>,
    releases: Vec<&'a mut Ask<MessageLease, Settled>>,
    removals: Vec<&'a mut Ask<Name, Removal>>,
    renewals: Vec<&'a mut Ask<(MessageLease, Duration), Settled>>,
    replays: Vec<&'a mut Ask<Replay, Selected>>,
    settles: Vec<&'a mut SettleAsk>,
    sweeps: Vec<&'a mut Ask<Sweep, u64>>,
}
