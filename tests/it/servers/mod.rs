//! The stores on servers. `tests/run.sh` starts PostgreSQL and MariaDB, and says where by environment variables; each test
//! makes a database of its own there. Without a server its tests are left out, except where `CI` is `true`.

mod mysql;
mod postgres;
mod program;
mod promises;
mod proxy;

use std::env;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use countersign::store::{
    InboxStore, Lease, OtherBody, ReceiptKey, Reserve, Reserved, ResultBody, Settled, StoredResult,
};
use countersign::{DedupKey, Digest, EventId, Name};
use http::{HeaderMap, StatusCode};
use tokio::task::JoinSet;

/// The value of a variable that names a server.
pub(crate) fn server(variable: &str) -> Option<String> {
    let found = env::var(variable).ok().filter(|url| !url.is_empty());
    if found.is_none() {
        assert!(env::var("CI").as_deref() != Ok("true"), "{variable} is not set: start the servers with tests/run.sh");
        eprintln!("LEFT OUT: {variable} is not set, so there is no server to try this on; tests/run.sh starts one");
    }
    found
}

/// A name that no other test, process or run has.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros();
    format!("t_{now}_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn request(id: impl fmt::Display) -> Reserve {
    let id = EventId::new(&format!("evt_{id}")).expect("an id");
    Reserve {
        key: ReceiptKey {
            consumer: Name::new("orders").expect("a name"),
            source: Name::new("shop").expect("a name"),
            key: DedupKey::from_id(&id),
        },
        event_id: Some(id),
        body: Digest::of(b"{}"),
        lease: Duration::from_secs(60),
        max_attempts: 20,
        other_body: OtherBody::Accept,
    }
}

pub(crate) fn done() -> StoredResult {
    StoredResult {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: ResultBody::Kept(b"done".as_slice().into()),
    }
}

pub(crate) async fn acquire(store: &dyn InboxStore, request: Reserve) -> Lease {
    match store.reserve(request).await.expect("an answer") {
        Reserved::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Every event is asked for by each store, several at a time, on neighbouring ids, and purged meanwhile: no caller sees an
/// error, and each event runs once.
pub(crate) async fn many_writers<S: InboxStore + Clone>(stores: &[S], writers: u32, events: u32) {
    let stopping = tokio_util::sync::CancellationToken::new();
    let purging = stores.first().expect("a store").clone();
    let stop = stopping.clone();
    let purger = tokio::spawn(async move {
        while !stop.is_cancelled() {
            let soon = countersign::store::Retention { results: Duration::ZERO, keys: Duration::from_secs(3_600) };
            purging.purge(soon, 1_000).await.expect("no error");
        }
    });
    let mut running = JoinSet::new();
    for writer in 0..writers {
        let store = stores[usize::try_from(writer).expect("small") % stores.len()].clone();
        running.spawn(async move {
            let mut acquired = 0;
            for number in 0..events {
                match store.reserve(request((number + writer) % events)).await.expect("no error") {
                    Reserved::Acquired(lease) => {
                        acquired += 1;
                        assert_eq!(store.complete(lease, done()).await.expect("no error"), Settled::Done);
                    }
                    Reserved::Processing(_) | Reserved::Succeeded(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            acquired
        });
    }
    assert_eq!(running.join_all().await.into_iter().sum::<u32>(), events, "each event ran once");
    stopping.cancel();
    purger.await.expect("no error");
}
