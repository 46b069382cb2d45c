//! A rolling change of `schema_version`: an old and a new version of a service side by side, on one inbox.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::envelope::{Contract, Envelope};
use countersign::receive::{DedupLayer, ReceiveLayer};
use countersign::send::{Backoff, Dispatcher, Guard, HttpTransport, Policy, RetryPolicy};
use countersign::signature::Scheme;
use countersign::store::{Endpoint, Enqueue, MessageFilter, MessageState, OutboxStore as _, SqliteStore};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::name;
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
type Booked = Arc<Mutex<Vec<(&'static str, u32, u64)>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_and_new_versions_side_by_side_lose_nothing_and_book_each_order_once() {
    const ORDERS: u32 = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("shop.db")).await.expect("a store");
    let booked = Booked::default();
    let receiver = |app: Router| {
        let dedup = DedupLayer::builder(store.clone()).max_attempts(1_000).build().expect("a layer");
        app.layer(ReceiveLayer::new(verify(Scheme::standard()).build().expect("a layer"), dedup).expect("a receiver"))
    };
    let (old_books, new_books) = (booked.clone(), booked.clone());
    let old = receiver(Router::new().route(
        "/",
        post(async move |paid: Envelope<Euros>| {
            old_books.lock().expect("no panic").push(("old", paid.data.order, paid.data.euros * 100));
            StatusCode::NO_CONTENT
        }),
    ));
    let new = receiver(Router::new().route(
        "/",
        post(async move |paid: Envelope<Cents>| {
            new_books.lock().expect("no panic").push(("new", paid.data.order, paid.data.cents));
            StatusCode::NO_CONTENT
        }),
    ));
    let replicas = [serve(old).await, serve(new).await];
    let balanced = serve(balancer(replicas)).await;

    let mut shop = Endpoint::new(name("shop"), format!("http://{balanced}/"));
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).expect("a file");
    shop.secrets = vec![format!("file:{}", secret.display())];
    store.put_endpoint(shop).await.expect("an endpoint");
    for order in 0..ORDERS {
        // Senders are changed one by one too.
        let message = match order % 2 {
            0 => Envelope::new(Euros { order, euros: 3 }).and_then(|paid| paid.message()),
            _ => Envelope::new(Cents { order, cents: 300 }).and_then(|paid| paid.message()),
        };
        store.enqueue(vec![Enqueue::new(name("shop"), message.expect("a message"))]).await.expect("it is taken");
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let policy = Policy::new().allow_http().with_exception("127.0.0.1".parse().expect("an address"));
    let transport = HttpTransport::builder(Guard::new(policy)).build().expect("a transport");
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
    let dispatcher = Dispatcher::builder(store.clone(), transport)
        .poll(Duration::from_millis(20))
        .breaker(1_000, backoff)
        .retry(RetryPolicy::new().with_backoff(backoff).with_max_attempts(1_000))
        .build()
        .expect("a dispatcher");
    let dispatching = tokio::spawn(dispatcher.run(std::future::pending()));
    let mut succeeded = MessageFilter::default();
    succeeded.state = Some(MessageState::Succeeded);
    until("all are delivered", async || {
        let done = store.list_messages(succeeded.clone()).await.expect("the store answers");
        done.len() == usize::try_from(ORDERS).expect("few")
    })
    .await;
    dispatching.abort();

    let booked = booked.lock().expect("no panic").clone();
    assert!(booked.iter().all(|(_, _, cents)| *cents == 300), "{booked:?}");
    let orders: BTreeSet<u32> = booked.iter().map(|(_, order, _)| *order).collect();
    assert_eq!((booked.len(), orders.len()), (40, 40), "each once");
    let versions =
        |by: &str| booked.iter().filter(|(who, ..)| *who == by).map(|(_, order, _)| order % 2).collect::<BTreeSet<_>>();
    assert_eq!(versions("old"), [0].into(), "the old version reads what it knows");
    assert_eq!(versions("new"), [0, 1].into(), "the new version reads both");
}

/// Sends each request to one of them by chance.
fn balancer(replicas: [std::net::SocketAddr; 2]) -> Router {
    let dice = Arc::new(Mutex::new(Dice(7)));
    let client = crate::support::client(false);
    Router::new().fallback(async move |headers: http::HeaderMap, body: axum::body::Bytes| {
        let [old, new] = replicas;
        let replica = if dice.lock().expect("no panic").roll(2) == 0 { old } else { new };
        let request = crate::support::request(&format!("http://{replica}/"), headers, body);
        crate::support::try_send(&client, request).await.unwrap_or(StatusCode::BAD_GATEWAY)
    })
}
