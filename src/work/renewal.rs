//! Keeps one lease from running out while its work is done.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, warn};

use crate::store::{Settled, StoreFuture};

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    task: JoinHandle<()>,
    lost: CancellationToken,
}

impl Renewal {
    /// Begins to renew, in a task of its own: work that blocks its thread must not cost it its lease. `renew` asks for
    /// another `span` from now, and `named` says in the log whose lease it is.
    pub(crate) fn begin(
        named: Span,
        span: Duration,
        renew: impl Fn() -> StoreFuture<'static, Settled> + Send + Sync + 'static,
    ) -> Self {
        let lost = CancellationToken::new();
        let task = tokio::spawn(go_on(span, renew, lost.clone()).instrument(named));
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

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn go_on(span: Duration, renew: impl Fn() -> StoreFuture<'static, Settled>, lost: CancellationToken) {
    // Twice within a lease: one renewal may fail without harm.
    let pause = span / 3;
    loop {
        sleep(pause).await;
        let Ok(renewed) = timeout(pause, renew()).await else {
            warn!("lease not renewed: the store does not answer");
            continue;
        };
        match renewed {
            Ok(Settled::Done) => debug!("lease renewed"),
            Ok(Settled::LeaseLost) => {
                // Settled a moment ago, or taken over: whoever settles it finds out which.
                lost.cancel();
                return;
            }
            Err(error) => warn!(%error, "lease not renewed"),
        }
    }
}
