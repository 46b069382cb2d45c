//! A rolling change of `schema_version`: an old and a new version of a service side by side, on one inbox.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::envelope::{Contract, Envelope};
use countersign::receive::{DedupLayer, ReceiveLayer};
use countersign::send::{Backoff, Dispatcher, Guard, HttpTransport, Policy, RetryPolicy};
use countersign::signature::Scheme;
use countersign::store::{Endpoint, Enqueue, MessageFilter, MessageState, OutboxEntry, OutboxStore};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Place, in_each_database, name};
use crate::support::{Dice, SECRET, serve, until, verify};

/// As the old version knows it.
#[derive(Serialize, Deserialize)]
struct Euros {
    order: u32,
    euros: u64,
}

impl Contract for Euros {
    const TYPE: &'static str = "order.paid";
}

/// As the new version knows it.
#[derive(Serialize, Deserialize)]
struct Cents {
    order: u32,
    cents: u64,
}

impl Contract for Cents {
    const TYPE: &'static str = "order.paid";
    const VERSION: u32 = 2;

    fn upcast(version: u32, data: Value) -> Option<Value> {
        let euros = data["euros"].as_u64().filter(|_| version == 1)?;
        Some(json!({ "order": data["order"], "cents": euros.checked_mul(100)? }))
    }
}

/// Which version of the service booked which order, and how many cents.
type Booked = Arc<Mutex<Vec<(Version, u32, u64)>>>;

/// What a change goes through: which versions serve, and which one senders write meanwhile.
const PHASES: [([Version; 2], &[Version]); 5] = [
    ([Version::Old, Version::Old], &[Version::Old]),
    // A sender is ahead of all that receive: what it sends waits.
    ([Version::Old, Version::Old], &[Version::Old, Version::New]),
    ([Version::Old, Version::New], &[Version::Old, Version::New]),
    // Rolled back, and forward again.
    ([Version::Old, Version::Old], &[Version::New]),
    ([Version::New, Version::New], &[Version::Old, Version::New]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Old,
    New,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_change_loses_nothing_and_books_each_order_once() {
    in_each_database(roll).await;
}

async fn roll(place: Arc<Place>) {
    const ORDERS: u32 = 12;
    let booked = Booked::default();
    let receiver = |app: Router| {
        let dedup = DedupLayer::builder(Arc::clone(&place.inbox)).max_attempts(1_000).build().expect("a layer");
        app.layer(ReceiveLayer::new(verify(Scheme::standard()).build().expect("a layer"), dedup).expect("a receiver"))
    };
    let (old_books, new_books) = (booked.clone(), booked.clone());
    let old = receiver(Router::new().route(
        "/",
        post(async move |paid: Envelope<Euros>| {
            old_books.lock().expect("no panic").push((Version::Old, paid.data.order, paid.data.euros * 100));
            StatusCode::NO_CONTENT
        }),
    ));
    let new = receiver(Router::new().route(
        "/",
        post(async move |paid: Envelope<Cents>| {
            new_books.lock().expect("no panic").push((Version::New, paid.data.order, paid.data.cents));
            StatusCode::NO_CONTENT
        }),
    ));
    let (old, new) = (serve(old).await, serve(new).await);
    let replicas = Replicas::default();
    let balanced = serve(balancer(replicas.clone())).await;

    let folder = tempfile::tempdir().expect("a folder");
    let mut shop = Endpoint::new(name("shop"), format!("http://{balanced}/"));
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).expect("a file");
    shop.secrets = vec![format!("file:{}", secret.display())];
    place.outbox.put_endpoint(shop).await.expect("an endpoint");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let policy = Policy::new().allow_http().with_exception("127.0.0.1".parse().expect("an address"));
    let transport = HttpTransport::builder(Guard::new(policy)).build().expect("a transport");
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
    let dispatcher = Dispatcher::builder(Arc::clone(&place.outbox), transport)
        .poll(Duration::from_millis(20))
        .breaker(1_000, backoff)
        .retry(RetryPolicy::new().with_backoff(backoff).with_max_attempts(1_000))
        .build()
        .expect("a dispatcher");
    let dispatching = tokio::spawn(dispatcher.run(std::future::pending()));

    let (mut order, mut written) = (0, BTreeMap::new());
    for (serving, writing) in PHASES {
        *replicas.0.lock().expect("no panic") = serving.map(|version| if version == Version::Old { old } else { new });
        for _ in 0..ORDERS {
            let version = writing[usize::try_from(order).expect("few") % writing.len()];
            let message = match version {
                Version::Old => Envelope::new(Euros { order, euros: 3 }).and_then(|paid| paid.message()),
                Version::New => Envelope::new(Cents { order, cents: 300 }).and_then(|paid| paid.message()),
            };
            let message = Enqueue::new(name("shop"), message.expect("a message"));
            place.outbox.enqueue(vec![message]).await.expect("it is taken");
            written.insert(order, version);
            order += 1;
        }
        // What somebody who serves can read is booked before the next phase; the rest has been tried, in vain.
        let readable = |version: Version| version == Version::Old || serving.contains(&Version::New);
        until("all that can be read is booked, and all else was tried", async || {
            let booked: BTreeSet<u32> = booked.lock().expect("no panic").iter().map(|(_, order, _)| *order).collect();
            let all =
                written.iter().filter(|(_, version)| readable(**version)).all(|(order, _)| booked.contains(order));
            let pending = in_state(&*place.outbox, MessageState::Pending).await;
            all && pending.iter().all(|entry| entry.attempts > 0)
        })
        .await;
    }
    until("all are delivered", async || in_state(&*place.outbox, MessageState::Succeeded).await.len() == written.len())
        .await;
    dispatching.abort();

    let booked = booked.lock().expect("no panic").clone();
    assert!(booked.iter().all(|(_, _, cents)| *cents == 300), "{booked:?}");
    let orders: BTreeSet<u32> = booked.iter().map(|(_, order, _)| *order).collect();
    assert_eq!((booked.len(), orders.len()), (written.len(), written.len()), "each once");
    let versions = |by: Version| {
        booked.iter().filter(|(who, ..)| *who == by).map(|(_, order, _)| written[order]).collect::<BTreeSet<_>>()
    };
    assert_eq!(versions(Version::Old), [Version::Old].into(), "the old version reads what it knows");
    assert_eq!(versions(Version::New), [Version::Old, Version::New].into(), "the new version reads both");
}

async fn in_state(outbox: &dyn OutboxStore, state: MessageState) -> Vec<OutboxEntry> {
    let mut filter = MessageFilter::default();
    filter.state = Some(state);
    filter.endpoint = Some(name("shop"));
    outbox.list_messages(filter).await.expect("the store answers")
}

/// Who serves now.
#[derive(Clone)]
struct Replicas(Arc<Mutex<[SocketAddr; 2]>>);

impl Default for Replicas {
    fn default() -> Self {
        Self(Arc::new(Mutex::new([SocketAddr::from(([127, 0, 0, 1], 0)); 2])))
    }
}

/// Sends each request to one of them by chance.
fn balancer(replicas: Replicas) -> Router {
    let dice = Arc::new(Mutex::new(Dice(7)));
    let client = crate::support::client(false);
    Router::new().fallback(async move |headers: http::HeaderMap, body: axum::body::Bytes| {
        let [one, other] = *replicas.0.lock().expect("no panic");
        let replica = if dice.lock().expect("no panic").roll(2) == 0 { one } else { other };
        let request = crate::support::request(&format!("http://{replica}/"), headers, body);
        crate::support::try_send(&client, request).await.unwrap_or(StatusCode::BAD_GATEWAY)
    })
}
