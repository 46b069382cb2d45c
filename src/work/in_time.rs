//! How long both halves wait for their store.

use std::time::Duration;

use tokio::time::timeout;

use crate::store::{StoreError, StoreFuture};

/// How long one call of a store may take: senders wait for 5 to 30 seconds. A store may go on for longer: what it then
/// claims for nobody it gives back, and a reservation runs out.
pub(crate) const STORE_TIME: Duration = Duration::from_secs(10);

/// A store that hangs is a store that cannot be reached. A call that is dropped takes effect wholly or not at all: a
/// reservation that did runs out, and a result that did is found by the next delivery.
pub(crate) async fn in_time<T>(call: StoreFuture<'_, T>) -> Result<T, StoreError> {
    timeout(STORE_TIME, call).await.unwrap_or_else(|_elapsed| {
        Err(StoreError::Unavailable { reason: format!("no answer within {STORE_TIME:?}"), source: None })
    })
}
