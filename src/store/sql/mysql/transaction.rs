//! The end of a run in the caller's transaction.

use sqlx::MySqlConnection;

use super::super::header_block;
use super::super::settle::kept;
use super::super::transaction::{sealed::Complete, settled};
use super::super::transactor::Done;
use super::{fault, statements};
use crate::store::{Lease, Settled, StoreFuture, StoredResult};

impl Complete for MySqlConnection {
    fn complete<'a>(&'a mut self, lease: &'a Lease, result: &'a StoredResult) -> StoreFuture<'a, Settled> {
        Box::pin(async move { settled(complete(self, lease, result).await, fault::of) })
    }
}

async fn complete(connection: &mut MySqlConnection, lease: &Lease, result: &StoredResult) -> Done<u64> {
    let ended = sqlx::query(statements::COMPLETE_ONE)
        .bind(i64::from(result.status.as_u16()))
        .bind(header_block::encode(&result.headers))
        .bind(kept(&result.body))
        .bind(lease.key.consumer.as_str().as_bytes())
        .bind(lease.key.source.as_str().as_bytes())
        .bind(lease.key.key.as_str().as_bytes())
        .bind(lease.token.as_bytes().as_slice())
        .execute(connection)
        .await?;
    Ok(ended.rows_affected())
}
