//! Keeps one lease from running out while its work is done.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, warn};

use crate::store::{Settled, StoreFuture};

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    task: JoinHandle<()>,
    lost: CancellationToken,
}

impl Renewal {
    /// Begins to renew, in a task of its own: work that blocks its thread must not cost it its lease. `renew` asks for
    /// another `span` from now, and `named` says in the log whose lease it is. Ends `until` then, whatever the work does.
    pub(crate) fn begin(
        named: Span,
        span: Duration,
        until: Instant,
        renew: impl Fn() -> StoreFuture<'static, Settled> + Send + Sync + 'static,
    ) -> Self {
        let lost = CancellationToken::new();
        let task = tokio::spawn(go_on(span, until, renew, lost.clone()).instrument(named));
        Self { task, lost }
    }

    /// Tells those who watch [`Renewal::lost`] that the result of this work will not count.
    pub(crate) fn lose(&self) {
        self.lost.cancel();
    }

    /// Cancelled once the lease has been lost.
    pub(crate) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }
}

/// The work has ended: whatever it left behind must not believe that it still holds the lease.
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
async fn go_on(
    span: Duration,
    until: Instant,
    renew: impl Fn() -> StoreFuture<'static, Settled>,
    lost: CancellationToken,
) {
    let pause = span / 4;
    let mut held_until = Instant::now() + span;
    while Instant::now() < until {
        sleep(pause).await;
        let asked = Instant::now();
        match timeout(pause, renew()).await {
            Ok(Ok(Settled::Done)) => held_until = asked + span,
            // Settled a moment ago, or taken over: whoever settles it finds out which.
            Ok(Ok(Settled::LeaseLost)) => break,
            Ok(Err(error)) => warn!(%error, "lease not renewed"),
            Err(_elapsed) => warn!("lease not renewed in time"),
        }
        if Instant::now() >= held_until {
            warn!("lease ran out: somebody else may begin the same work");
            break;
        }
    }
    lost.cancel();
}
