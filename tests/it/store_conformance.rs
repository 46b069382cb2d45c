//! Every store keeps every promise.

use std::sync::Arc;
use std::time::Duration;

use countersign::Timestamp;
use countersign::clock::ManualClock;
use countersign::store::conformance::{Moved, Subject};
use countersign::store::{InboxStore, MemoryStore, SqliteStore};

mod memory {
    use super::{Arc, MemoryStore, Tried, start};

    async fn empty() -> Tried {
        let clock = start();
        let store = MemoryStore::with_clock(Arc::clone(&clock));
        Tried { clock, store: Arc::new(store), _directory: None }
    }

    countersign::inbox_conformance_tests!(empty);
}

mod sqlite {
    use super::{Arc, SqliteStore, Tried, start};

    async fn empty() -> Tried {
        let clock = start();
        let directory = tempfile::tempdir().expect("a directory");
        let options = SqliteStore::options(directory.path().join("inbox.db"));
        let store = options.with_clock(Arc::clone(&clock)).open().await.expect("the store opens");
        Tried { clock, store: Arc::new(store), _directory: Some(directory) }
    }

    countersign::inbox_conformance_tests!(empty);
}

struct Tried {
    clock: Arc<ManualClock>,
    store: Arc<dyn InboxStore>,
    _directory: Option<tempfile::TempDir>,
}

impl Subject for Tried {
    fn store(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.store)
    }

    fn advance(&self, span: Duration) -> Moved<'_> {
        self.clock.advance(span);
        Box::pin(std::future::ready(()))
    }
}

fn start() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_unix_seconds(1_700_000_000).expect("in range")))
}
