//! Profiles, in the library: what is run again by itself, and what waits for an operator. By the program: `strict_gateway`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::post;
use countersign::receive::{DedupLayer, Outcome, Processor, Profile};
use countersign::signature::Scheme;
use countersign::store::{ReceiptState, Unclear};
use http::StatusCode;

use crate::support::{Calls, Server, on_each_store, standard, until, verify};

#[tokio::test]
async fn with_strict_what_ends_without_a_word_waits_for_an_operator() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let counted = calls.clone();
        let app = Router::new()
            .route("/panics", post(async || -> StatusCode { panic!("in the middle") }))
            .route("/hangs", post(std::future::pending::<StatusCode>))
            .route("/fails", post(async || StatusCode::INTERNAL_SERVER_ERROR))
            .route("/asks", post(async || Outcome::unclear("the bank did not answer")))
            .layer(axum::middleware::map_request(move |request: axum::extract::Request| {
                counted.count();
                std::future::ready(request)
            }));
        let dedup = DedupLayer::builder(Arc::clone(&store)).profile(Profile::Strict);
        let dedup = dedup.handler_timeout(Duration::from_millis(50));
        let server = Server::with(app, verify(Scheme::standard()), dedup, Arc::clone(&store)).await;
        for (runs, path) in [(1, "/panics"), (2, "/hangs"), (3, "/fails"), (4, "/asks")] {
            let id = path.trim_start_matches('/');
            for is_repeat in [false, true, true] {
                let answer = server.post_to(path, standard(id, b"{}"), "{}").await;
                let told = (answer.status, answer.problem(), answer.is_replay());
                assert_eq!(told, (StatusCode::SERVICE_UNAVAILABLE, "outcome-unclear".to_owned(), is_repeat), "{path}");
                assert!(!answer.headers.contains_key("retry-after"), "its sender would hold back all its other events");
            }
            let receipt = server.receipt(id).await.expect("a receipt");
            assert_eq!((receipt.state, receipt.reason.as_deref()), (ReceiptState::DeadLetter, Some(Unclear::HELD)));
            assert_eq!(calls.so_far(), runs, "{path}");
        }
        let retried = server.receipt("asks").await.expect("a receipt");
        assert_eq!(retried.error.as_deref(), Some("the bank did not answer"), "the operator sees what there is to see");
        assert_eq!(store.retry(retried.key).await.expect("the store answers"), Some(ReceiptState::Failed));
        server.post_to("/asks", standard("asks", b"{}"), "{}").await;
        assert_eq!(calls.so_far(), 5, "once it is released, it runs");

        let concluded = server.receipt("fails").await.expect("a receipt").key;
        assert_eq!(store.conclude(concluded).await.expect("the store answers"), Some(ReceiptState::Succeeded));
        let answer = server.post_to("/fails", standard("fails", b"{}"), "{}").await;
        assert_eq!((answer.status, answer.body.len(), answer.is_replay()), (StatusCode::OK, 0, true));
        assert_eq!(calls.so_far(), 5, "what had its effect is not run again");
    })
    .await;
}

#[tokio::test]
async fn with_strict_what_fails_clearly_is_run_again() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let counted = calls.clone();
        let app = Router::new().fallback(async move || match counted.count() {
            1 => StatusCode::NOT_FOUND.into_response(),
            2 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            3 => (StatusCode::INTERNAL_SERVER_ERROR, Outcome::transient("it was rolled back")).into_response(),
            _ => StatusCode::OK.into_response(),
        });
        let dedup = DedupLayer::builder(Arc::clone(&store)).profile(Profile::Strict);
        let server = Server::with(app, verify(Scheme::standard()), dedup, store).await;
        for status in [404, 503, 500, 200] {
            assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, status);
        }
        assert_eq!(calls.so_far(), 4);
    })
    .await;
}

#[tokio::test]
async fn with_strict_what_is_cut_off_at_the_end_of_the_grace_is_held_and_not_given_back() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let counted = calls.clone();
        let app = Router::new().fallback(async move || {
            counted.count();
            std::future::pending::<()>().await;
        });
        let dedup = DedupLayer::builder(Arc::clone(&store)).deferred();
        let server = Server::with(app.clone(), verify(Scheme::standard()), dedup, Arc::clone(&store)).await;
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::ACCEPTED);
        let processor = Processor::builder(Arc::clone(&store), app).profile(Profile::Strict);
        let processor = processor.poll(Duration::from_millis(20)).grace(Duration::ZERO).build().expect("a processor");
        let stop = tokio_util::sync::CancellationToken::new();
        let running = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
        until("it runs", async || calls.so_far() == 1).await;
        stop.cancel();
        running.await.expect("it ends");
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((receipt.state, receipt.reason.as_deref()), (ReceiptState::DeadLetter, Some(Unclear::HELD)));
    })
    .await;
}

#[tokio::test]
async fn with_relaxed_equal_bodies_are_one_event_whatever_their_ids() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let counted = calls.clone();
        let app = Router::new().fallback(async move || {
            counted.count();
            "done"
        });
        let dedup = DedupLayer::builder(Arc::clone(&store)).profile(Profile::Relaxed);
        let server = Server::with(app, verify(Scheme::standard()), dedup, store).await;
        assert!(!server.post(standard("evt_1", b"{}"), "{}").await.is_replay());
        assert!(server.post(standard("evt_2", b"{}"), "{}").await.is_replay());
        assert!(!server.post(standard("evt_3", b"{\"a\":1}"), "{\"a\":1}").await.is_replay());
        assert_eq!(calls.so_far(), 2);
    })
    .await;
}
