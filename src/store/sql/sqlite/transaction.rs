//! The end of a run in the caller's transaction.

use sqlx::SqliteConnection;

use super::super::header_block;
use super::super::settle::kept;
use super::super::transaction::{sealed::Complete, settled};
use super::super::transactor::Done;
use super::{fault, statements};
use crate::store::{Lease, Settled, StoreFuture, StoredResult};
use crate::{Clock as _, SystemClock};

impl Complete for SqliteConnection {
    fn complete<'a>(&'a mut self, lease: &'a Lease, result: &'a StoredResult) -> StoreFuture<'a, Settled> {
        Box::pin(async move { settled(complete(self, lease, result).await, fault::of) })
    }
}

async fn complete(connection: &mut SqliteConnection, lease: &Lease, result: &StoredResult) -> Done<u64> {
    // The store's own clock is not at hand. This one only says how old the result is.
    let now = SystemClock.now();
    let ended = sqlx::query(statements::COMPLETE_ONE)
        .bind(lease.key.consumer.as_str())
        .bind(lease.key.source.as_str())
        .bind(lease.key.key.as_str())
        .bind(lease.token.as_bytes().as_slice())
        .bind(now.as_micros())
        .bind(result.status.as_u16())
        .bind(header_block::encode(&result.headers))
        .bind(kept(&result.body))
        .execute(connection)
        .await?;
    Ok(ended.rows_affected())
}
