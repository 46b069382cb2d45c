//! What the outboxes without a server keep to when things break. They have no connection that could be lost on the way.

use std::sync::Arc;
use std::time::Duration;

use countersign::Timestamp;
use countersign::clock::{Clock as _, ManualClock};
use countersign::store::faults::Faults;
use countersign::store::outbox_conformance::{Moved, Subject};
use countersign::store::{MemoryStore, OutboxStore, SqliteStore};

mod memory {
    use super::{Arc, MemoryStore, Tried, start};

    async fn empty() -> Tried {
        let clock = start();
        let store = MemoryStore::with_clock(Arc::clone(&clock));
        Tried { clock, store: Arc::new(store), _directory: None }
    }

    countersign::outbox_fault_tests!(empty);
}

mod sqlite {
    use super::{Arc, SqliteStore, Tried, start};

    async fn empty() -> Tried {
        let clock = start();
        let directory = tempfile::tempdir().expect("a directory");
        let options = SqliteStore::options(directory.path().join("outbox.db"));
        let store = options.with_clock(Arc::clone(&clock)).open().await.expect("the store opens");
        Tried { clock, store: Arc::new(store), _directory: Some(directory) }
    }

    countersign::outbox_fault_tests!(empty);
}

struct Tried {
    clock: Arc<ManualClock>,
    store: Arc<dyn OutboxStore>,
    _directory: Option<tempfile::TempDir>,
}

impl Subject for Tried {
    fn store(&self) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.store)
    }

    fn advance(&self, span: Duration) -> Moved<'_> {
        self.clock.advance(span);
        Box::pin(std::future::ready(()))
    }
}

impl Faults for Tried {
    fn turn_back(&self, span: Duration) -> Moved<'_> {
        self.clock.set(self.clock.now().saturating_sub(span));
        Box::pin(std::future::ready(()))
    }
}

fn start() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_unix_seconds(1_700_000_000).expect("in range")))
}
