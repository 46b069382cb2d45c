//! Carries out a batch of calls within one transaction.
//!
//! The order is fixed: renewals, ends, releases, what operators ask, what comes in, reservations, claims, purge. Any order would be right, for a caller
//! asks for the next thing after it was answered, and an answer leaves after the commit: two calls in one batch are
//! calls at the same moment. Ends before reservations frees what it can for those who wait; a renewal before an end
//! because of one holder's own two calls, the first of which it gave up waiting for.

use std::time::Duration;

use serde::Serialize;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Row as _, Sqlite, query::Query};

use super::call::{Ask, Call, ClaimAsk, PurgeStep};
use super::{accept, claim, reserve, row, settle, statements};
use crate::Timestamp;
use crate::store::{
    Accept, Accepted, Failure, Lease, Purged, ReceiptKey, ReceiptState, Reserve, Reserved, Settled, StoredResult, Token,
};

pub(super) type Done = Result<(), sqlx::Error>;

/// Gives every call its answer, to be delivered after the commit. Where this fails nothing may be committed.
pub(super) async fn carry_out(connection: &mut SqliteConnection, calls: &mut [Call], now: Timestamp) -> Done {
    let mut batch = Batch::default();
    for call in calls {
        match call {
            Call::Accept(ask) => batch.accepts.push(ask),
            Call::Check(ask) => batch.checks.push(ask),
            Call::Claim(ask) => batch.claims.push(ask),
            // The writer sees to it after the last batch.
            Call::Close(_) => {}
            Call::Complete(ask) => batch.completes.push(ask),
            Call::Fail(ask) => batch.failures.push(ask),
            Call::Forget(ask) => batch.forgets.push(ask),
            Call::Purge(ask) => batch.purges.push(ask),
            Call::Release(ask) => batch.releases.push(ask),
            Call::Renew(ask) => batch.renewals.push(ask),
            Call::Reserve(ask) => batch.reserves.push(ask),
            Call::Retry(ask) => batch.retries.push(ask),
        }
    }
    settle::renew(connection, batch.renewals, now).await?;
    settle::complete(connection, batch.completes, now).await?;
    for ask in batch.failures {
        settle::fail(connection, ask, now).await?;
    }
    for ask in batch.releases {
        claim::release(connection, ask, now).await?;
    }
    for ask in batch.retries {
        retry(connection, ask, now).await?;
    }
    for ask in batch.forgets {
        let done = keyed(statements::FORGET, &ask.question).execute(&mut *connection).await?;
        ask.answer = Some(Ok(done.rows_affected() > 0));
    }
    accept::accept(connection, batch.accepts, now).await?;
    reserve::reserve(connection, batch.reserves, now).await?;
    for ask in batch.claims {
        claim::claim(connection, ask, now).await?;
    }
    for ask in batch.purges {
        let purged = purge(connection, ask.question).await?;
        ask.answer = Some(Ok(purged));
    }
    if !batch.checks.is_empty() {
        sqlx::query(statements::CHECK).bind(now.as_micros()).execute(&mut *connection).await?;
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
    failures: Vec<&'a mut Ask<(Lease, Box<Failure>), Settled>>,
    forgets: Vec<&'a mut Ask<ReceiptKey, bool>>,
    purges: Vec<&'a mut Ask<PurgeStep, Purged>>,
    releases: Vec<&'a mut Ask<Lease, Settled>>,
    renewals: Vec<&'a mut Ask<(Lease, Duration), Settled>>,
    reserves: Vec<&'a mut Ask<(Reserve, Token), Reserved>>,
    retries: Vec<&'a mut Ask<ReceiptKey, Option<ReceiptState>>>,
}

async fn retry(
    connection: &mut SqliteConnection,
    ask: &mut Ask<ReceiptKey, Option<ReceiptState>>,
    now: Timestamp,
) -> Done {
    keyed(statements::RETRY, &ask.question).bind(now.as_micros()).execute(&mut *connection).await?;
    let found = keyed(statements::STATE, &ask.question).fetch_optional(connection).await?;
    ask.answer = Some(found.map(|found| row::state(&found)).transpose());
    Ok(())
}

async fn purge(connection: &mut SqliteConnection, step: PurgeStep) -> Result<Purged, sqlx::Error> {
    let keys = sqlx::query(statements::PURGE_KEYS).bind(step.keys_before.as_micros()).bind(step.keys);
    let keys = keys.execute(&mut *connection).await?.rows_affected();
    let results = sqlx::query(statements::PURGE_RESULTS).bind(step.results_before.as_micros()).bind(step.results);
    let results = results.execute(connection).await?.rows_affected();
    Ok(Purged { results, keys })
}

/// A statement about one receipt: its key is `?1` to `?3`.
pub(super) fn keyed<'q>(statement: &'static str, key: &'q ReceiptKey) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(statement).bind(key.consumer.as_str()).bind(key.source.as_str()).bind(key.key.as_str())
}

/// The places within the batch that a statement answers with, one flag for each row of it.
pub(super) async fn places<'a>(
    connection: &mut SqliteConnection,
    statement: &'static str,
    leases: impl ExactSizeIterator<Item = (&'a ReceiptKey, Token)>,
) -> Result<Vec<bool>, sqlx::Error> {
    let mut chosen = vec![false; leases.len()];
    let mut rows = Vec::with_capacity(leases.len());
    let mut tokens = Vec::with_capacity(16 * leases.len());
    for (key, token) in leases {
        rows.push((&key.consumer, &key.source, &key.key));
        tokens.extend_from_slice(token.as_bytes());
    }
    let found = sqlx::query(statement).bind(json(&rows)?).bind(tokens).fetch_one(connection).await?;
    let places: Vec<usize> =
        serde_json::from_str(found.try_get(0)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    for place in places {
        if let Some(chosen) = chosen.get_mut(place) {
            *chosen = true;
        }
    }
    Ok(chosen)
}

/// The rows of a statement for a batch.
pub(super) fn json(rows: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}
