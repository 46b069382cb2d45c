//! Keeps one lease from running out while its work is done.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, warn};

use super::moment::after;
use crate::store::{Settled, StoreFuture};

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    standby: Arc<Standby>,
    lost: CancellationToken,
    /// Wakes the standby.
    _timer: Pin<Box<Sleep>>,
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
        let renewing = Box::pin(go_on(asked, span, until, renew, lost.clone()).instrument(named));
        let standby = Arc::new(Standby { phase: Mutex::new(Phase::Idle(renewing)), runtime: Handle::current() });
        let mut timer = Box::pin(sleep_until(after(asked, span / PARTS)));
        let waker = Waker::from(Arc::clone(&standby));
        if timer.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            waker.wake();
        }
        Self { standby, lost, _timer: timer }
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
        self.standby.end();
        self.lost.cancel();
    }
}

/// A renewal that has not begun: most work is done long before its lease has to be renewed, and a task for each would cost
/// more than the work often does. The timer's waker is what begins it, so that nobody has to be polled for that.
#[derive(Debug)]
struct Standby {
    phase: Mutex<Phase>,
    runtime: Handle,
}

enum Phase {
    Idle(Pin<Box<dyn Future<Output = ()> + Send>>),
    Begun(AbortHandle),
    Over,
}

impl Standby {
    fn end(&self) {
        let ended = mem::replace(&mut *self.phase(), Phase::Over);
        if let Phase::Begun(task) = ended {
            task.abort();
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Standby {
    fn wake(self: Arc<Self>) {
        let mut phase = self.phase();
        *phase = match mem::replace(&mut *phase, Phase::Over) {
            Phase::Idle(renewing) => Phase::Begun(self.runtime.spawn(renewing).abort_handle()),
            phase => phase,
        };
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle(_) => "Idle",
            Self::Begun(_) => "Begun",
            Self::Over => "Over",
        })
    }
}

/// A lease is renewed at each of these parts of it: three times before it would run out, so that two of them may fail
/// without harm.
const PARTS: u32 = 4;

/// The end of the lease is known by this side's steady clock, counted from before the store was asked: it is never
/// believed to hold for longer than the store says.
async fn go_on(
    asked: Instant,
    span: Duration,
    until: Instant,
    renew: impl Fn() -> StoreFuture<'static, Settled>,
    lost: CancellationToken,
) {
    let pause = span / PARTS;
    let mut held_until = after(asked, span);
    let mut next = after(asked, pause);
    loop {
        sleep_until(next.min(held_until).min(until)).await;
        let asked = Instant::now();
        if asked >= until {
            break;
        }
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_is_renewed_while_its_work_blocks_a_thread() {
        let (told, renewed) = std::sync::mpsc::channel();
        let renew = move || {
            told.send(()).expect("the work waits");
            Box::pin(async { Ok(Settled::Done) }) as StoreFuture<'static, Settled>
        };
        let now = Instant::now();
        let renewal = Renewal::begin(Span::none(), now, Duration::from_millis(400), after(now, SPAN), renew);
        for _ in 0..3 {
            renewed.recv_timeout(Duration::from_secs(60)).expect("it is renewed");
        }
        drop(renewal);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_in_time_has_its_lease_renewed_never() {
        let renew = || panic!("nothing is to be renewed");
        let now = Instant::now();
        let renewal = Renewal::begin(Span::none(), now, SPAN, after(now, 10 * SPAN), renew);
        let lost = renewal.lost();
        drop(renewal);
        assert!(lost.is_cancelled());
        sleep(5 * SPAN).await;
    }
}
