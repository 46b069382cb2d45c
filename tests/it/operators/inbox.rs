//! What is told of an inbox, by the library.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use countersign::notice::{Notice, Notices};
use countersign::receive::{DedupLayer, Processor, Profile, watch_forever};
use countersign::signature::Scheme;
use countersign::store::{Claim, InboxStore, ReceiptState, Unclear};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::eventually;
use crate::dispatch::named;
use crate::support::{Calls, Server, on_each_store, standard, verify};

/// Notices, and what was told of them.
fn noted() -> (Notices, Arc<Mutex<Vec<Notice>>>, AbortOnDropHandle<()>) {
    let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let hook = {
        let told = Arc::clone(&told);
        move |notice: &Notice| told.lock().expect("no test panics in here").push(notice.clone())
    };
    let (notices, telling) = Notices::builder().hook(hook).build();
    (notices, told, AbortOnDropHandle::new(tokio::spawn(telling.run(std::future::pending()))))
}

async fn accepting(store: Arc<dyn InboxStore>) -> Server {
    let app = Router::new().route("/", post(async |_: Bytes| StatusCode::NO_CONTENT));
    let dedup = DedupLayer::builder(Arc::clone(&store)).deferred();
    Server::with(app, verify(Scheme::standard()), dedup, store).await
}

/// Whoever ran it is dead, and so it is the claim of another one that gives it up.
#[tokio::test]
async fn an_event_whose_handlers_died_is_told_when_a_claim_gives_it_up() {
    on_each_store(async |store| {
        let server = accepting(Arc::clone(&store)).await;
        server.post(standard("evt_1", b"{}"), "{}").await;
        let lease = Duration::from_millis(1);
        let claim = Claim { consumer: named("default"), limit: 1, lease, max_attempts: 1, unclear: Unclear::RunAgain };
        assert_eq!(store.claim(claim).await.expect("an answer").len(), 1);

        let (notices, told, _telling) = noted();
        let handler = Router::new().route("/", post(async || StatusCode::NO_CONTENT));
        let processor = Processor::builder(Arc::clone(&store), handler).max_attempts(1).notices(&notices);
        let stop = CancellationToken::new();
        let running = tokio::spawn(processor.build().expect("a processor").run(stop.clone().cancelled_owned()));
        eventually("it is told", async || !told.lock().expect("no test panics in here").is_empty()).await;
        stop.cancel();
        running.await.expect("it ends");
        let told = told.lock().expect("no test panics in here").clone();
        assert!(
            matches!(&told[..], [Notice::EventDead { key, attempts: 1, reason, .. }]
                if key == "evt_1" && reason.contains("used up")),
            "{told:?}"
        );
    })
    .await;
}

/// That it is retried and dies again is another occasion; that it is looked at again is none.
#[tokio::test]
async fn each_time_that_an_event_dies_is_told_once_under_an_id_of_its_own() {
    on_each_store(async |store| {
        let server = accepting(Arc::clone(&store)).await;
        server.post(standard("evt_1", b"{}"), "{}").await;
        let key = server.receipt("evt_1").await.expect("a receipt").key;
        let (notices, told, _telling) = noted();
        let watching = watch_forever(Arc::clone(&store), named("default"), notices.clone());
        let _watching = AbortOnDropHandle::new(tokio::spawn(watching));
        let handler = Router::new().route("/", post(async || StatusCode::INTERNAL_SERVER_ERROR));
        let processor = Processor::builder(Arc::clone(&store), handler).max_attempts(1).poll(Duration::from_millis(20));
        let processor = processor.build().expect("a processor");
        let _running = AbortOnDropHandle::new(tokio::spawn(processor.run(std::future::pending())));
        for times in 1..=2 {
            eventually("it is told", async || told.lock().expect("no test panics in here").len() == times).await;
            if times == 1 {
                assert_eq!(store.retry(key.clone()).await.expect("an answer"), Some(ReceiptState::Failed));
            }
        }
        let told = told.lock().expect("no test panics in here").clone();
        assert!(told.iter().all(|notice| notice.kind() == "event.dead"), "{told:?}");
        assert_ne!(told[0].id(), told[1].id());
    })
    .await;
}

/// The next process may begin much later, and looks back for a minute only.
#[tokio::test]
async fn what_is_held_at_the_very_end_of_a_processor_is_told_before_it_ends() {
    on_each_store(async |store| {
        let server = accepting(Arc::clone(&store)).await;
        server.post(standard("evt_1", b"{}"), "{}").await;
        let (notices, told, _telling) = noted();
        let calls = Calls::default();
        let counted = calls.clone();
        let handler = Router::new().fallback(async move || {
            counted.count();
            std::future::pending::<()>().await;
        });
        let processor = Processor::builder(Arc::clone(&store), handler).profile(Profile::Strict);
        let processor = processor.grace(Duration::ZERO).notices(&notices).build().expect("a processor");
        let stop = CancellationToken::new();
        let running = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
        eventually("it runs", async || calls.so_far() == 1).await;
        stop.cancel();
        running.await.expect("it ends");
        eventually("it is told", async || !told.lock().expect("no test panics in here").is_empty()).await;
        let told = told.lock().expect("no test panics in here").clone();
        let held =
            matches!(&told[..], [Notice::EventDead { key, reason, .. }] if key == "evt_1" && reason == Unclear::HELD);
        assert!(held, "{told:?}");
    })
    .await;
}
