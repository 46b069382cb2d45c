//! The end of a run in the caller's transaction.

use sqlx::PgConnection;

use super::super::header_block;
use super::super::settle::kept;
use super::super::transaction::{sealed::Complete, settled};
use super::super::transactor::Done;
use super::{fault, statements};
use crate::store::{Lease, Settled, StoreFuture, StoredResult};

impl Complete for PgConnection {
    fn complete<'a>(&'a mut self, lease: &'a Lease, result: &'a StoredResult) -> StoreFuture<'a, Settled> {
        Box::pin(async move { settled(complete(self, lease, result).await, fault::of) })
    }
}

async fn complete(connection: &mut PgConnection, lease: &Lease, result: &StoredResult) -> Done<u64> {
    // Not prepared by name: behind a pooler the next transaction may be on another connection, and the caller's settings,
    // which may know of one, do not keep sqlx from giving names.
    let ended = sqlx::query(statements::COMPLETE_ONE)
        .persistent(false)
        .bind(lease.key.consumer.as_str())
        .bind(lease.key.source.as_str())
        .bind(lease.key.key.as_str())
        .bind(lease.token.as_bytes().as_slice())
        .bind(i64::from(result.status.as_u16()))
        .bind(header_block::encode(&result.headers))
        .bind(kept(&result.body))
        .execute(connection)
        .await?;
    Ok(ended.rows_affected())
}
