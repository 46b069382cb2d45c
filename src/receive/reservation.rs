//! The right to run one event, held while its handler runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::store::{InboxStore, Lease, ReceiptKey, Settled};
use crate::{DedupKey, Digest};

/// What a handler can know of the run that it is: found in the request's extensions.
#[derive(Clone)]
pub struct Reservation {
    lease: Lease,
    lost: CancellationToken,
}

impl Reservation {
    /// The key under which the event is remembered, within its source and consumer.
    #[must_use]
    pub fn key(&self) -> &DedupKey {
        &self.lease.key.key
    }

    /// An idempotency key for what the handler calls: 64 hex digits, the same for every run of the event, and another
    /// one for every other event, source and consumer.
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
    /// Begins to renew, in a task of its own: a handler that blocks its thread must not cost it its lease. Ends `until`
    /// then, whatever the handler does.
    pub(super) fn begin(
        store: Arc<dyn InboxStore>,
        lease: Lease,
        span: Duration,
        until: Instant,
    ) -> (Self, Reservation) {
        let lost = CancellationToken::new();
        let reservation = Reservation { lease: lease.clone(), lost: lost.clone() };
        let task = tokio::spawn(renew(store, lease, span, until, lost.clone()));
        (Self { task, lost }, reservation)
    }

    /// Tells the handler, should it still run, that its result will not count.
    pub(super) fn lose(&self) {
        self.lost.cancel();
    }
}

/// The run has ended: whatever it left behind must not believe that it still holds the event.
impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
        self.lost.cancel();
    }
}

/// Renews three times within a lease, so that two of them may fail without harm.
///
/// The end of the lease is known by this side's steady clock, counted from before the store was asked: it is never
/// believed to hold for longer than the store says.
async fn renew(store: Arc<dyn InboxStore>, lease: Lease, span: Duration, until: Instant, lost: CancellationToken) {
    let pause = span / 4;
    let mut held_until = Instant::now() + span;
    while Instant::now() < until {
        sleep(pause).await;
        let asked = Instant::now();
        match timeout(pause, store.renew(lease.clone(), span)).await {
            Ok(Ok(Settled::Done)) => held_until = asked + span,
            // Settled a moment ago, or taken over: whoever settles it finds out which.
            Ok(Ok(Settled::LeaseLost)) => break,
            Ok(Err(error)) => warn!(key = %lease.key.key, attempt = lease.attempt, %error, "lease not renewed"),
            Err(_elapsed) => warn!(key = %lease.key.key, attempt = lease.attempt, "lease not renewed in time"),
        }
        if Instant::now() >= held_until {
            warn!(key = %lease.key.key, attempt = lease.attempt, "lease ran out: another delivery may run the event");
            break;
        }
    }
    lost.cancel();
}
