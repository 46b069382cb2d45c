//! The stores on servers. `tests/run.sh` starts PostgreSQL and MariaDB, and says where by environment variables; each test
//! makes a database of its own there. Without a server its tests are left out, except where `CI` is `true`.

mod copying;
mod counters;
mod dispatching;
mod faults;
mod floors;
mod growth;
mod lists;
mod mysql;
mod order;
mod outbox;
mod outbox_faults;
mod outbox_rows;
pub(crate) mod postgres;
mod program;
mod promises;
pub(crate) mod proxy;
mod purge;
mod schema;
mod settings;
mod tls;

use std::env;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use countersign::store::{
    Accept, Accepted, Claim, Claimed, InboxStore, KeptRequest, Lease, OtherBody, ReceiptKey, Reserve, Reserved,
    ResultBody, Retention, Settled, StoredResult, Unclear,
};
use countersign::{DedupKey, Digest, EventId, Name};
use http::{HeaderMap, StatusCode};
use tokio::task::JoinSet;

pub(crate) use self::mysql::Database as MySqlDatabase;
pub(crate) use self::postgres::Database as PostgresDatabase;
pub(crate) use self::proxy::Faults;

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
        correlation_id: None,
        body: Digest::of(b"{}"),
        lease: Duration::from_secs(60),
        max_attempts: 20,
        other_body: OtherBody::Accept,
        unclear: Unclear::RunAgain,
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

/// How old what [`finished`] leaves is to be made before it is purged.
pub(crate) const OLD: Duration = Duration::from_secs(7_200);

/// Takes the bodies of all results, and the keys of what is old.
pub(crate) const SOON: Retention = Retention { results: Duration::ZERO, keys: Duration::from_secs(3_600) };

/// Leaves so many events that are done, between the ids of those that [`many_writers`] runs.
pub(crate) async fn finished<S: InboxStore + Clone>(store: &S, events: u32) {
    let mut running = JoinSet::new();
    for number in 0..events {
        let store = store.clone();
        running.spawn(async move {
            let lease = acquire(&store, request(format!("{number}_old"))).await;
            assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
        });
    }
    running.join_all().await;
}

/// Every event is asked for by each store, several at a time, on neighbouring ids. All stores purge meanwhile, also what lies
/// between these ids. No caller sees an error, and each event runs once.
pub(crate) async fn many_writers<S: InboxStore + Clone>(stores: &[S], writers: u32, events: u32) {
    let stopping = tokio_util::sync::CancellationToken::new();
    let mut purging = JoinSet::new();
    for store in stores {
        let (store, stop) = (store.clone(), stopping.clone());
        purging.spawn(async move {
            while !stop.is_cancelled() {
                store.purge(SOON, 50).await.expect("no error");
                tokio::task::yield_now().await;
            }
        });
    }
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
    purging.join_all().await;
}

/// Each event is claimed once, and those of one ordering key run one by one, whichever store asks.
pub(crate) async fn many_processors<S: InboxStore + Clone>(stores: &[S], events: u32) {
    for number in 0..events {
        let ordering_key = number.is_multiple_of(3).then(|| Name::new("one by one").expect("a name"));
        let accepted = stores[0].accept(Accept { ordering_key, ..taken_in(number) }).await.expect("no error");
        assert_eq!(accepted, Accepted::Stored);
    }
    let mut running = JoinSet::new();
    let ordered = std::sync::Arc::new(AtomicU32::new(0));
    let left = std::sync::Arc::new(AtomicU32::new(events));
    for store in stores.iter().cloned().cycle().take(8) {
        let (ordered, left) = (std::sync::Arc::clone(&ordered), std::sync::Arc::clone(&left));
        running.spawn(async move {
            let claim = Claim {
                consumer: request(0).key.consumer,
                limit: 5,
                lease: Duration::from_secs(60),
                max_attempts: 20,
                unclear: Unclear::RunAgain,
            };
            while left.load(Ordering::SeqCst) > 0 {
                for Claimed { lease, request, .. } in store.claim(claim.clone()).await.expect("no error") {
                    assert_eq!(lease.attempt, 1, "{lease:?}");
                    let number: u32 = request.proof.parse().expect("a number");
                    if number.is_multiple_of(3) {
                        let place = ordered.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(number, 3 * place, "in order");
                    }
                    assert_eq!(store.complete(lease, done()).await.expect("no error"), Settled::Done);
                    left.fetch_sub(1, Ordering::SeqCst);
                }
            }
        });
    }
    running.join_all().await;
    assert_eq!(ordered.load(Ordering::SeqCst), events.div_ceil(3));
}

/// An event to be run later; its number is its proof.
pub(crate) fn taken_in(number: u32) -> Accept {
    let Reserve { key, event_id, correlation_id, body, other_body, .. } = request(number);
    let request = KeptRequest {
        method: http::Method::POST,
        target: "/".into(),
        headers: HeaderMap::new(),
        body: b"{}".as_slice().into(),
        proof: number.to_string(),
    };
    Accept { key, event_id, correlation_id, body, other_body, request, ordering_key: None, quarantine: None }
}
