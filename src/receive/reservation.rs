//! The right to run one event, held while its handler runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::answer::Keep;
use crate::store::{Lease, ReceiptKey};
use crate::{DedupKey, Digest};

/// What a handler can know of the run that it is: found in the request's extensions.
#[derive(Clone)]
pub struct Reservation {
    lease: Lease,
    lost: CancellationToken,
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
        expect(dead_code, reason = "only a database has transactions")
    )]
    keep: Arc<Keep>,
    completing: Completing,
}

/// Whether the handler has begun to complete its run in a transaction of its own: then only the store knows how it went.
#[derive(Clone, Default)]
pub(super) struct Completing(Arc<AtomicBool>);

impl Completing {
    pub(super) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Reservation {
    pub(super) fn new(lease: Lease, lost: CancellationToken, keep: Arc<Keep>) -> Self {
        Self { lease, lost, keep, completing: Completing::default() }
    }

    pub(super) fn completing(&self) -> Completing {
        self.completing.clone()
    }

    /// The key under which the event is remembered, within its source and consumer.
    #[must_use]
    pub fn key(&self) -> &DedupKey {
        &self.lease.key.key
    }

    /// An idempotency key for what the handler calls: 64 hex digits, the same for every run of the event, and another
    /// one for every other event, source and consumer. Where it stands in a column that is `UNIQUE`, a second run finds
    /// what the first one did.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let ReceiptKey { consumer, source, key } = &self.lease.key;
        let mut text = Vec::new();
        for part in [consumer.as_str(), source.as_str(), key.as_str()] {
            // Lengths before texts: no two triples share one text.
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        Digest::of(&text).to_string()
    }

    /// Which run of the event this is: from 1, and from 1 again after an operator has retried a dead letter. From 2 on,
    /// an earlier run failed or died, perhaps half done. 1 is no proof that nothing was done.
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

/// What completing a run takes.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
impl Reservation {
    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(super) fn keep(&self) -> &Keep {
        &self.keep
    }

    pub(super) fn begin_completion(&self) {
        self.completing.0.store(true, Ordering::Release);
    }

    pub(super) fn lose(&self) {
        self.lost.cancel();
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
