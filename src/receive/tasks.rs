//! The handlers that run now, whether or not their senders are still there.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The handlers of a [`DedupLayer`](super::DedupLayer) that have not ended.
///
/// When the sender hangs up, its handler goes on in a task of its own, and the result is stored for the next delivery. A
/// server that stops should therefore wait for these tasks after it has closed its connections.
#[derive(Clone, Debug, Default)]
pub struct HandlerTasks(TaskTracker);

impl HandlerTasks {
    /// Runs a walk within whatever polls the future that comes back, and to its end also if that is dropped.
    ///
    /// # Panics
    ///
    /// Outside a runtime of Tokio.
    pub(super) fn run<F>(&self, walk: F) -> Walk<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let steps = AssertUnwindSafe(walk).catch_unwind();
        Walk { steps: Some(Box::pin(steps)), runtime: Handle::current(), running: self.0.token() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all have ended, for at most `grace`. Returns how many have not: their leases run out by
    /// themselves, and the next delivery of their events runs them again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.0.close();
        // Either way the answer is the number that is left.
        let _ = tokio::time::timeout(grace, self.0.wait()).await;
        self.0.len()
    }
}

/// A walk that is not lost with whoever waits for it.
///
/// Nearly all of them are waited for. It goes into a task of its own only when it is dropped half-way: to make one for each
/// request, with its way through the scheduler and back, would cost more than the rest of a quick request does.
pub(super) struct Walk<T: Send + 'static> {
    /// `None`: it has ended.
    steps: Option<Steps<T>>,
    runtime: Handle,
    /// Counts it among the handlers that run.
    running: TaskTrackerToken,
}

type Steps<T> = Pin<Box<dyn Future<Output = Result<T, Panic>> + Send>>;

/// What a walk panicked with. The handler's own panics do not come this far.
pub(super) type Panic = Box<dyn Any + Send>;

impl<T: Send + 'static> Future for Walk<T> {
    type Output = Result<T, Panic>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let steps = self.steps.as_mut().expect("a future is not polled after its end");
        let ended = ready!(steps.as_mut().poll(cx));
        self.steps = None;
        Poll::Ready(ended)
    }
}

impl<T: Send + 'static> Drop for Walk<T> {
    fn drop(&mut self) {
        if let Some(steps) = self.steps.take() {
            let running = self.running.clone();
            self.runtime.spawn(async move {
                let _running = running;
                // What it has to say was for its sender.
                let _ = steps.await;
            });
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Walk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("has_ended", &self.steps.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_walk_that_is_dropped_half_way_goes_on_and_is_counted_until_its_end() {
        let tasks = HandlerTasks::default();
        let ((let_go, held), (told, end)) = (oneshot::channel::<()>(), oneshot::channel());
        let mut walk = tasks.run(async move {
            held.await.expect("it is let go");
            told.send("done").expect("somebody listens");
        });
        assert!((&mut walk).now_or_never().is_none());
        drop(walk);
        assert_eq!(tasks.drain(Duration::from_millis(10)).await, 1);
        let_go.send(()).expect("it waits");
        assert_eq!(end.await, Ok("done"));
        assert_eq!(tasks.drain(Duration::from_secs(60)).await, 0);
    }

    #[tokio::test]
    async fn a_panic_comes_back_as_a_value_and_the_walk_counts_no_longer() {
        let tasks = HandlerTasks::default();
        let walk = tasks.run(async { panic!("a bug") });
        assert_eq!(tasks.len(), 1);
        let panic = walk.await.map(|()| "no panic").expect_err("it panics");
        assert_eq!(panic.downcast_ref(), Some(&"a bug"));
        assert!(tasks.is_empty());
    }

    #[test]
    fn a_walk_that_is_dropped_after_its_runtime_harms_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let tasks = HandlerTasks::default();
        let within = runtime.enter();
        let walk = tasks.run(std::future::pending::<()>());
        drop(within);
        drop(runtime);
        drop(walk);
        assert!(tasks.is_empty());
    }
}
