//! Tells a processor in the same process that there is something to do.

use std::sync::Arc;

use tokio::sync::Notify;

/// Says when a [`DedupLayer`](super::DedupLayer) in deferred mode has accepted an event, to the
/// [`Processor`](super::Processor) that it is given to.
///
/// It is a hint: it is never the only way in which an event is found. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<Notify>);

impl Arrivals {
    pub(super) fn announce(&self) {
        self.0.notify_one();
    }

    pub(super) fn hint(&self) -> &Notify {
        &self.0
    }
}
