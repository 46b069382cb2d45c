//! The right to run one event, held while its handler runs.

use std::fmt;

use tokio_util::sync::CancellationToken;

use crate::DedupKey;
use crate::store::Lease;

/// What a handler can know of the run that it is: found in the request's extensions.
#[derive(Clone)]
pub struct Reservation {
    lease: Lease,
    lost: CancellationToken,
}

impl Reservation {
    pub(super) fn new(lease: Lease, lost: CancellationToken) -> Self {
        Self { lease, lost }
    }

    /// The key under which the event is remembered. Good as an idempotency key for calls that the handler makes.
    #[must_use]
    pub fn key(&self) -> &DedupKey {
        &self.lease.key.key
    }

    /// Which run of the event this is, from 1. From 2 on, an earlier run failed or died, perhaps half done.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.lease.attempt
    }

    /// Whether the right to run is still held. Once it is lost, another run may have begun, and the result of this one
    /// is dropped.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.lost.is_cancelled()
    }

    /// Returns when the right to run has been lost: a handler can stop early.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .field("is_held", &self.is_held())
            .finish()
    }
}
