//! The handlers that run now, whether or not their senders are still there.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// The handlers of a [`DedupLayer`](super::DedupLayer) that have not ended.
///
/// A handler runs in a task of its own: when the sender hangs up, it goes on, and its result is stored for the next
/// delivery. A server that stops should therefore wait for these tasks after it has closed its connections.
#[derive(Clone, Debug, Default)]
pub struct HandlerTasks(TaskTracker);

impl HandlerTasks {
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.spawn(task)
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
