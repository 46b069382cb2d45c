//! Every store keeps every promise.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use countersign::clock::ManualClock;
use countersign::store::conformance::{Moved, Subject};
use countersign::store::{
    Accept, Accepted, CachedInbox, Claim, Failure, InboxStore, KeptRequest, MemoryStore, OtherBody, ReceiptKey,
    Settled, SqliteStore, Unclear,
};
use countersign::{DedupKey, Digest, Name, Timestamp};
use http::{HeaderMap, Method};

mod memory {
    use super::{Arc, MemoryStore, Tried, start};

    async fn empty() -> Tried {
        let clock = start();
        let store = MemoryStore::with_clock(Arc::clone(&clock));
        Tried { clock, store: Arc::new(store), _directory: None }
    }

    countersign::inbox_conformance_tests!(empty);

    #[tokio::test]
    async fn a_retry_is_due_to_the_microsecond() {
        super::due_to_the_microsecond(empty().await).await;
    }
}

mod cached {
    use super::{Arc, CachedInbox, MemoryStore, Tried, start};

    async fn empty() -> Tried {
        let clock = start();
        let store = CachedInbox::new(MemoryStore::with_clock(Arc::clone(&clock)), 1 << 20);
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

    #[tokio::test]
    async fn a_retry_is_due_to_the_microsecond() {
        super::due_to_the_microsecond(empty().await).await;
    }
}

/// The suite allows for servers whose clocks go on; these two stores stand still between two steps.
async fn due_to_the_microsecond(tried: Tried) {
    let name = Name::new("due").expect("a name");
    let key =
        ReceiptKey { consumer: name.clone(), source: name.clone(), key: DedupKey::from_digest(&Digest::of(b"body")) };
    let request = KeptRequest {
        method: Method::POST,
        target: "/".into(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"body"),
        proof: String::new(),
    };
    let accepted = Accept {
        key,
        event_id: None,
        correlation_id: None,
        body: Digest::of(b"body"),
        other_body: OtherBody::Accept,
        request,
        ordering_key: None,
        quarantine: None,
    };
    let claim = async || {
        let claim = Claim {
            consumer: name.clone(),
            limit: 9,
            lease: Duration::from_secs(30),
            max_attempts: 9,
            unclear: Unclear::RunAgain,
        };
        tried.store.claim(claim).await.expect("the store answers")
    };
    assert_eq!(tried.store.accept(accepted).await.expect("the store answers"), Accepted::Stored);
    let first = claim().await.remove(0);
    let failure = Failure {
        error: "not yet".into(),
        result: None,
        dead: None,
        request: None,
        retry_in: Some(Duration::from_secs(60)),
    };
    assert_eq!(tried.store.fail(first.lease, failure).await.expect("the store answers"), Settled::Done);
    tried.clock.advance(Duration::from_micros(59_999_999));
    assert!(claim().await.is_empty());
    tried.clock.advance(Duration::from_micros(1));
    assert_eq!(claim().await.len(), 1);
    tried.clock.advance(Duration::from_micros(29_999_999));
    assert!(claim().await.is_empty(), "its lease has a microsecond to go");
    tried.clock.advance(Duration::from_micros(1));
    assert_eq!(claim().await.len(), 1);
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
