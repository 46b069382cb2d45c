//! The right to run one event, held while its handler runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::DedupKey;
use crate::store::{InboxStore, Lease, Settled};

/// What a handler can know of the run that it is: found in the request's extensions.
#[derive(Clone)]
pub struct Reservation {
    lease: Lease,
    lost: CancellationToken,
}

impl Reservation {
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

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(super) struct Renewal {
    task: JoinHandle<()>,
    lost: CancellationToken,
}

impl Renewal {
    /// Begins to renew, in a task of its own: a handler that blocks its thread must not cost it its lease.
    pub(super) fn begin(store: Arc<dyn InboxStore>, lease: Lease, span: Duration) -> (Self, Reservation) {
        let lost = CancellationToken::new();
        let reservation = Reservation { lease: lease.clone(), lost: lost.clone() };
        let task = tokio::spawn(renew(store, lease, span, lost.clone()));
        (Self { task, lost }, reservation)
    }

    /// Tells the handler, should it still run, that its result will not count.
    pub(super) fn lose(&self) {
        self.lost.cancel();
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn renew(store: Arc<dyn InboxStore>, lease: Lease, span: Duration, lost: CancellationToken) {
    // Twice within a lease: one renewal may fail without harm.
    let pause = span / 3;
    loop {
        sleep(pause).await;
        let Ok(renewed) = timeout(pause, store.renew(lease.clone(), span)).await else {
            warn!(key = %lease.key.key, attempt = lease.attempt, "lease not renewed: the store does not answer");
            continue;
        };
        match renewed {
            Ok(Settled::Done) => debug!(key = %lease.key.key, attempt = lease.attempt, "lease renewed"),
            Ok(Settled::LeaseLost) => {
                // Settled a moment ago, or taken over: whoever settles it finds out which.
                lost.cancel();
                return;
            }
            Err(error) => warn!(key = %lease.key.key, attempt = lease.attempt, %error, "lease not renewed"),
        }
    }
}
