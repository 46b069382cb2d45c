//! Writers that are started when they are first used.

use std::fmt;
use std::sync::OnceLock;

use super::super::writers::Writers;
use super::queue::Queue;
use crate::store::StoreError;

/// The outbox of a store on a server: it has writers and connections of its own, so that neither it nor the inbox waits
/// for the other's batches; and who uses only the inbox pays for none.
pub(in crate::store::sql) struct Later {
    start: Box<dyn Fn() -> Writers<super::call::Call> + Send + Sync>,
    queue: OnceLock<Queue>,
}

impl Later {
    pub(in crate::store::sql) fn new(start: impl Fn() -> Writers<super::call::Call> + Send + Sync + 'static) -> Self {
        Self { start: Box::new(start), queue: OnceLock::new() }
    }

    pub(in crate::store::sql) fn queue(&self) -> &Queue {
        self.queue.get_or_init(|| Queue::new((self.start)()))
    }

    /// How many transactions have been committed.
    pub(in crate::store::sql) fn commits(&self) -> u64 {
        self.queue.get().map_or(0, |queue| queue.writers.commits())
    }

    /// Does what is waiting, and closes the connections. One that was never used cannot be after this.
    pub(in crate::store::sql) async fn close(&self) -> Result<(), StoreError> {
        self.queue.get_or_init(|| Queue::new(Writers::none())).writers.close().await
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("queue", &self.queue).finish_non_exhaustive()
    }
}
