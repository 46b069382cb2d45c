//! Carries out a batch of calls within one transaction.
//!
//! The order is fixed: renewals, ends, releases, what operators ask, what comes in, reservations, claims,
//! purge. Any order would be right, for a caller
//! asks for the next thing after it was answered, and an answer leaves after the commit: two calls in one batch are
//! calls at the same moment. Ends before reservations frees what it can for those who wait; a renewal before an end
//! because of one holder's own two calls, the first of which it gave up waiting for.

use std::time::Duration;

use super::call::{Ask, Call, ClaimAsk, PurgeStep};
use super::database::{Aged, Database};
use super::transactor::Done;
use super::{accept, claim, reserve, settle};
use crate::Timestamp;
use crate::store::{
    Accept, Accepted, Failure, Lease, Purged, ReceiptKey, ReceiptState, Reserve, Reserved, Settled, StoredResult, Token,
};

/// Gives every call its answer, to be delivered after the commit. Where this fails nothing may be committed.
///
/// `again`: an earlier attempt at these calls may have been committed, and its answer was lost.
pub(super) async fn carry_out<'c, D: Database>(
    database: &mut D,
    calls: impl Iterator<Item = &'c mut Call>,
    now: Timestamp,
    again: bool,
) -> Done {
    let mut batch = Batch::default();
    for call in calls {
        match call {
            Call::Accept(ask) => batch.accepts.push(ask),
            Call::Check(ask) => batch.checks.push(ask),
            Call::Claim(ask) => batch.claims.push(ask),
            Call::Complete(ask) => batch.completes.push(ask),
            Call::Conclude(ask) => batch.conclusions.push(ask),
            Call::Fail(ask) => batch.failures.push(ask),
            Call::Forget(ask) => batch.forgets.push(ask),
            Call::Purge(ask) => batch.purges.push(ask),
            Call::Release(ask) => batch.releases.push(ask),
            Call::Renew(ask) => batch.renewals.push(ask),
            Call::Reserve(ask) => batch.reserves.push(ask),
            Call::Retry(ask) => batch.retries.push(ask),
        }
    }
    settle::renew(database, batch.renewals, now).await?;
    settle::complete(database, batch.completes, now, again).await?;
    settle::fail(database, batch.failures, now, again).await?;
    claim::release(database, batch.releases, now, again).await?;
    batch.retries.sort_by(|one, two| one.question.cmp(&two.question));
    for ask in batch.retries {
        ask.answer = Some(database.retry(&ask.question, now).await?.transpose());
    }
    batch.conclusions.sort_by(|one, two| one.question.cmp(&two.question));
    for ask in batch.conclusions {
        ask.answer = Some(database.conclude(&ask.question, now).await?.transpose());
    }
    batch.forgets.sort_by(|one, two| one.question.cmp(&two.question));
    for ask in batch.forgets {
        ask.answer = Some(Ok(database.forget(&ask.question).await?));
    }
    accept::accept(database, batch.accepts, now).await?;
    reserve::reserve(database, batch.reserves, now).await?;
    for ask in batch.claims {
        claim::claim(database, ask, now).await?;
    }
    for ask in batch.purges {
        let PurgeStep { retention, keys, results } = ask.question;
        let aged = Aged {
            keys_before: now.saturating_sub(retention.keys),
            keys,
            results_before: now.saturating_sub(retention.results),
            results,
        };
        ask.answer = Some(Ok(database.purge(&aged).await?));
    }
    if !batch.checks.is_empty() {
        database.check(now).await?;
    }
    for ask in batch.checks {
        ask.answer = Some(Ok(()));
    }
    Ok(())
}

/// The calls by kind.
#[derive(Default)]
struct Batch<'a> {
    accepts: Vec<&'a mut Ask<Box<Accept>, Accepted>>,
    checks: Vec<&'a mut Ask<(), ()>>,
    claims: Vec<&'a mut ClaimAsk>,
    completes: Vec<&'a mut Ask<(Lease, StoredResult), Settled>>,
    conclusions: Vec<&'a mut Ask<ReceiptKey, Option<ReceiptState>>>,
    failures: Vec<&'a mut Ask<(Lease, Box<Failure>), Settled>>,
    forgets: Vec<&'a mut Ask<ReceiptKey, bool>>,
    purges: Vec<&'a mut Ask<PurgeStep, Purged>>,
    releases: Vec<&'a mut Ask<Lease, Settled>>,
    renewals: Vec<&'a mut Ask<(Lease, Duration), Settled>>,
    reserves: Vec<&'a mut Ask<(Reserve, Token), Reserved>>,
    retries: Vec<&'a mut Ask<ReceiptKey, Option<ReceiptState>>>,
}
