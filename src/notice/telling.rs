//! Carries notices to those who are to know.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::{Notice, Operator};
use crate::telemetry::{self, Value};

/// Empties the queues of [`Notices`](super::Notices).
#[derive(Debug, Default)]
#[must_use = "nobody is told anything until it runs"]
pub struct Telling(pub(super) Vec<Queue>);

/// What waits for one operator.
#[derive(Debug)]
pub(super) struct Queue {
    operator: Arc<dyn Operator>,
    waiting: mpsc::Receiver<Untold>,
}

/// A notice for one operator. It counts as waiting until this is dropped.
#[derive(Debug)]
pub(super) struct Untold {
    notice: Notice,
    waiting: Arc<AtomicUsize>,
}

impl Untold {
    pub(super) fn new(notice: Notice, waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self { notice, waiting: Arc::clone(waiting) }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Telling {
    /// Tells until `shutdown` resolves, and then for 5 seconds more what waits. What is left is counted and logged. End the
    /// walks first.
    ///
    /// An operator that fails, panics or hangs does not end it, nor does it delay another one.
    ///
    /// # Cancel safety
    ///
    /// Where this is dropped, what waits is not told.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let all = join_all(self.0.into_iter().map(|queue| queue.run(&stop)));
        let stopped = async {
            shutdown.await;
            stop.cancel();
        };
        // Queues end when they are told to, or when no walk is left that could fill them.
        let mut all = std::pin::pin!(all);
        tokio::select! {
            _ = &mut all => return,
            () = stopped => {}
        }
        all.await;
    }
}

impl Queue {
    pub(super) fn new(operator: Arc<dyn Operator>, waiting: mpsc::Receiver<Untold>) -> Self {
        Self { operator, waiting }
    }

    async fn run(self, stop: &CancellationToken) {
        let Self { operator, mut waiting } = self;
        // The one that is being told.
        let mut current = None;
        let too_late = async {
            stop.cancelled().await;
            sleep(LAST_WORDS).await;
        };
        let work = async {
            loop {
                let next = tokio::select! {
                    biased;
                    next = waiting.recv() => next,
                    () = stop.cancelled() => {
                        waiting.close();
                        waiting.recv().await
                    }
                };
                let Some(untold) = next else { return };
                let notice = untold.notice.clone();
                current = Some(untold);
                tell(&*operator, notice).await;
                current = None;
            }
        };
        tokio::select! {
            () = work => return,
            () = too_late => {}
        }
        waiting.close();
        let mut left = 0;
        for untold in current.into_iter().chain(std::iter::from_fn(|| waiting.try_recv().ok())) {
            left += 1;
            count(operator.name(), &untold.notice, "dropped");
        }
        error!(operator = operator.name(), left, "notices were not told within {LAST_WORDS:?} after the end");
    }
}

async fn tell(operator: &dyn Operator, notice: Notice) {
    let told = AssertUnwindSafe(async { operator.tell(notice.clone()).await }).catch_unwind().await;
    let (operator, id) = (operator.name(), notice.id());
    match told {
        Ok(Ok(())) => {
            debug!(operator, %id, kind = notice.kind(), "told");
            count(operator, &notice, "told");
        }
        Ok(Err(error)) => {
            error!(operator, %id, kind = notice.kind(), %error, "a notice could not be told");
            count(operator, &notice, "failed");
        }
        Err(_panic) => {
            error!(operator, %id, kind = notice.kind(), "what was to tell a notice panicked");
            count(operator, &notice, "failed");
        }
    }
}

pub(super) fn count(operator: &'static str, notice: &Notice, outcome: &'static str) {
    let values = [Value::Word(operator), Value::Word(notice.kind()), Value::Word(outcome)];
    telemetry::count(telemetry::NOTICES, &values, 1);
}

/// How long telling goes on after the end of all else.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{NotTold, Notices, TellFuture};
    use super::*;
    use crate::Timestamp;

    /// Hangs at the first notice, fails at the second, panics at the third, and takes the rest.
    #[derive(Clone, Debug, Default)]
    struct Difficult {
        seen: Arc<Mutex<Vec<i64>>>,
        lets_go: CancellationToken,
    }

    impl Operator for Difficult {
        fn name(&self) -> &'static str {
            "difficult"
        }

        fn tell(&self, notice: Notice) -> TellFuture<'_> {
            Box::pin(async move {
                let Notice::StoreRecovered { since, .. } = notice else { return Ok(()) };
                self.seen.lock().expect("no panic").push(since.as_micros());
                match since.as_micros() {
                    0 => self.lets_go.cancelled().await,
                    1 => return Err(NotTold::new("not now")),
                    2 => std::panic::resume_unwind(Box::new("out of luck")),
                    _ => {}
                }
                Ok(())
            })
        }
    }

    fn notice(number: i64) -> Notice {
        Notice::StoreRecovered { since: Timestamp::from_micros(number), lasted_seconds: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_delays_nobody_else_and_what_waits_is_told_in_order_in_the_end() {
        let difficult = Difficult::default();
        let hooked: Arc<Mutex<Vec<i64>>> = Arc::default();
        let hook = {
            let hooked = Arc::clone(&hooked);
            move |notice: &Notice| {
                let Notice::StoreRecovered { since, .. } = notice else { return };
                hooked.lock().expect("no panic").push(since.as_micros());
            }
        };
        let (notices, telling) = Notices::builder().operator(difficult.clone()).hook(hook).build();
        let stop = CancellationToken::new();
        let telling = tokio::spawn(telling.run(stop.clone().cancelled_owned()));
        for number in 0..5 {
            notices.tell(&notice(number));
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(*hooked.lock().expect("no panic"), [0, 1, 2, 3, 4]);
        assert_eq!(*difficult.seen.lock().expect("no panic"), [0]);
        difficult.lets_go.cancel();
        stop.cancel();
        telling.await.expect("it ends");
        assert_eq!(*difficult.seen.lock().expect("no panic"), [0, 1, 2, 3, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_queue_that_is_full_or_for_an_end_that_does_not_come() {
        let difficult = Difficult::default();
        let (notices, telling) = Notices::builder().operator(difficult.clone()).build();
        let stop = CancellationToken::new();
        let telling = tokio::spawn(telling.run(stop.clone().cancelled_owned()));
        for number in 0..1_000 {
            notices.tell(&notice(number));
        }
        stop.cancel();
        telling.await.expect("it ends");
        assert_eq!(*difficult.seen.lock().expect("no panic"), [0]);
        // Nobody listens any more: it costs nothing but a line in the log.
        notices.tell(&notice(0));
    }
}
