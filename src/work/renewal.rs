//! Keeps one lease from running out while its work is done.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, warn};

use super::moment::after;
use crate::store::{Settled, StoreFuture};

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    task: JoinHandle<()>,
    lost: CancellationToken,
}

impl Renewal {
    /// Begins to renew, in a task of its own: work that blocks its thread must not cost it its lease. `renew` asks for
    /// another `span` from now, and `named` says in the log whose lease it is. The lease was `asked` for then, which may be
    /// long before the answer was heard. Ends `until` then, whatever the work does.
    pub(crate) fn begin(
        named: Span,
        asked: Instant,
        span: Duration,
        until: Instant,
        renew: impl Fn() -> StoreFuture<'static, Settled> + Send + Sync + 'static,
    ) -> Self {
        let lost = CancellationToken::new();
        let task = tokio::spawn(go_on(asked, span, until, renew, lost.clone()).instrument(named));
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
    asked: Instant,
    span: Duration,
    until: Instant,
    renew: impl Fn() -> StoreFuture<'static, Settled>,
    lost: CancellationToken,
) {
    let pause = span / 4;
    let mut held_until = after(asked, span);
    let mut next = after(asked, pause);
    while Instant::now() < until {
        sleep_until(next.min(held_until)).await;
        let asked = Instant::now();
        // Not beyond the end of the lease: until it is known to be renewed it is not believed to hold.
        match timeout_at(after(asked, pause).min(held_until), renew()).await {
            Ok(Ok(Settled::Done)) => held_until = after(asked, span),
            // Settled a moment ago, or taken over: whoever settles it finds out which.
            Ok(Ok(Settled::LeaseLost)) => break,
            Ok(Err(error)) => warn!(%error, "lease not renewed"),
            Err(_elapsed) => warn!("lease not renewed in time"),
        }
        if Instant::now() >= held_until {
            warn!("lease ran out: somebody else may begin the same work");
            break;
        }
        next = after(Instant::now(), pause);
    }
    lost.cancel();
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    const SPAN: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_believed_for_as_long_as_it_was_asked_for_however_late_the_answer_was_heard() {
        let asked = Instant::now();
        sleep(SPAN / 2).await;
        let renew = || Box::pin(pending()) as StoreFuture<'static, Settled>;
        let renewal = Renewal::begin(Span::none(), asked, SPAN, after(asked, 10 * SPAN), renew);
        renewal.lost().cancelled().await;
        assert!(asked.elapsed() <= SPAN + Duration::from_secs(1), "{:?}", asked.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_heard_of_late_is_renewed_at_once_and_held() {
        let asked = Instant::now();
        sleep(SPAN - Duration::from_secs(1)).await;
        let renew = || Box::pin(async { Ok(Settled::Done) }) as StoreFuture<'static, Settled>;
        let renewal = Renewal::begin(Span::none(), asked, SPAN, after(asked, 10 * SPAN), renew);
        sleep(5 * SPAN).await;
        assert!(!renewal.lost().is_cancelled());
    }
}
