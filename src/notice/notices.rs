//! The hook: what walks are given, and how it is set up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{error, warn};

use super::operator::Hook;
use super::store_edge::StoreEdge;
use super::telling::{Queue, Telling, Untold, count};
use super::{Notice, Operator};

/// Where notices go. Clones are handles to the same one; the default one tells nobody, and only logs.
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<Desk>>);

/// Settings of [`Notices`].
#[must_use]
pub struct NoticesBuilder {
    operators: Vec<Arc<dyn Operator>>,
    overdue_after: Option<Duration>,
}

struct Desk {
    queues: Vec<(&'static str, mpsc::Sender<Untold>)>,
    waiting: Arc<AtomicUsize>,
    overdue_after: Option<Duration>,
    store: StoreEdge,
}

impl Notices {
    /// Begins to set up who is told.
    pub const fn builder() -> NoticesBuilder {
        NoticesBuilder { operators: Vec::new(), overdue_after: Some(Duration::from_secs(10 * 60)) }
    }

    /// Tells a notice: logs it, and puts it into the queue of each operator. It never waits; where a queue is full, or nobody
    /// empties it any more, that operator is not told, which is logged and counted.
    pub fn tell(&self, notice: &Notice) {
        warn!(endpoint = notice.endpoint().map(tracing::field::display), ?notice, "{}", notice.kind());
        let Some(desk) = &self.0 else { return };
        for (operator, queue) in &desk.queues {
            if queue.try_send(Untold::new(notice.clone(), &desk.waiting)).is_err() {
                error!(operator, id = %notice.id(), "not told: {} notices wait already, or nobody tells them", LONGEST_QUEUE);
                count(operator, notice, "dropped");
            }
        }
    }

    /// How many notices are not yet told, for all operators together. What is told to an
    /// `OperatorEndpoint` is in the outbox then, not yet delivered.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.as_ref().map_or(0, |desk| desk.waiting.load(Ordering::SeqCst))
    }

    /// Whether anybody is told.
    pub(crate) const fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// How long what is due may wait.
    pub(crate) fn overdue_after(&self) -> Option<Duration> {
        self.0.as_ref()?.overdue_after
    }

    /// The store was asked, and this is how it answered: tells when it begins to fail, and when that is over.
    pub(crate) fn store_answered(&self, answer: Result<(), String>) {
        let Some(desk) = &self.0 else { return };
        if let Some(notice) = desk.store.answered(answer) {
            self.tell(&notice);
        }
    }
}

impl NoticesBuilder {
    /// Calls this with each notice. It runs between others on the runtime: it must not block.
    pub fn hook(self, hook: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.operator(Hook(hook))
    }

    /// Tells this one too.
    pub fn operator(mut self, operator: impl Operator) -> Self {
        self.operators.push(Arc::new(operator));
        self
    }

    /// For how long what is due may wait before that is told; `None` for never. 10 minutes by default.
    pub const fn overdue_after(mut self, limit: Option<Duration>) -> Self {
        self.overdue_after = limit;
        self
    }

    /// What to give to the walks, and what has to run for as long as they do.
    pub fn build(self) -> (Notices, Telling) {
        let mut telling = Telling::default();
        let mut queues = Vec::new();
        for operator in self.operators {
            let (sender, receiver) = mpsc::channel(LONGEST_QUEUE);
            queues.push((operator.name(), sender));
            telling.0.push(Queue::new(operator, receiver));
        }
        let desk =
            Desk { queues, waiting: Arc::default(), overdue_after: self.overdue_after, store: StoreEdge::default() };
        (Notices(Some(Arc::new(desk))), telling)
    }
}

/// How many notices wait for one operator.
const LONGEST_QUEUE: usize = 256;

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operators: Vec<_> = self.0.iter().flat_map(|desk| &desk.queues).map(|(name, _)| name).collect();
        f.debug_tuple("Notices").field(&operators).finish()
    }
}

impl fmt::Debug for NoticesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoticesBuilder")
            .field("operators", &self.operators)
            .field("overdue_after", &self.overdue_after)
            .finish()
    }
}
