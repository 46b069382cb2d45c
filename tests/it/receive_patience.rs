//! What a sender with a time limit of its own gets by default, while one delivery of an event is handled and another one
//! comes in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use countersign::receive::{DedupLayer, DedupLayerBuilder};
use countersign::signature::{Keyring, Message, Signer};
use countersign::store::{InboxStore, MemoryStore};
use countersign::{Clock as _, Scheme, SystemClock};
use http::{HeaderMap, Method, StatusCode};

use crate::support::{Answer, Calls, Gate, Server, until, verify};

const BODY: &[u8] = br#"{"id":"evt_1","event_id":"evt_1"}"#;

/// Secrets of `support::verify`.
fn signed(scheme: &Scheme) -> HeaderMap {
    let secret = if scheme.name() == "standard" { crate::support::SECRET } else { crate::support::TEXT_SECRET };
    let keyring = Keyring::new(scheme.parse_secret(secret).expect("a secret"));
    let message = Message::new(SystemClock.now(), BODY).with_id("evt_1").with_target(&Method::POST, "");
    Signer::new(scheme.clone(), keyring).expect("a signer").sign(&message).expect("headers")
}

/// The answer to a delivery that comes while the first one is handled, and how long it took.
async fn answer_meanwhile(
    scheme: &str,
    set: impl FnOnce(DedupLayerBuilder) -> DedupLayerBuilder,
) -> (Answer, Duration) {
    let scheme = Scheme::named(scheme).expect("a scheme");
    let (calls, gate) = (Calls::default(), Gate::default());
    let (counted, passed) = (calls.clone(), gate.clone());
    let handler = move || {
        let passed = passed.clone();
        counted.count();
        async move { passed.pass().await }
    };
    let app = Router::new().route("/", post(handler));
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
    let dedup = set(DedupLayer::builder(Arc::clone(&store)));
    let server = Arc::new(Server::with(app, verify(scheme.clone()), dedup, store).await);

    let headers = signed(&scheme);
    let first = tokio::spawn({
        let (server, headers) = (Arc::clone(&server), headers.clone());
        async move { server.post(headers, BODY).await }
    });
    until("the handler runs", async || calls.so_far() == 1).await;
    let begun = Instant::now();
    let answer = server.post(headers, BODY).await;
    let took = begun.elapsed();
    gate.open();
    assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
    assert_eq!(calls.so_far(), 1);
    (answer, took)
}

#[tokio::test]
async fn a_repeat_is_told_the_status_on_which_its_sender_comes_back_and_when_the_lease_ends() {
    for (scheme, status, lease) in [
        ("standard", StatusCode::CONFLICT, 30),
        ("stripe", StatusCode::CONFLICT, 30),
        ("github", StatusCode::CONFLICT, 20),
        ("slack", StatusCode::CONFLICT, 10),
        ("sentry", StatusCode::CONFLICT, 10),
        ("bitbucket", StatusCode::SERVICE_UNAVAILABLE, 20),
        ("typeform", StatusCode::SERVICE_UNAVAILABLE, 30),
    ] {
        let (answer, took) = answer_meanwhile(scheme, |dedup| dedup).await;
        let limits = Scheme::named(scheme).expect("a scheme");
        assert_eq!((answer.status, answer.problem().as_str()), (status, "still-processing"), "{scheme}");
        assert!(took >= limits.in_flight_wait(), "{scheme} was sent away after {took:?}");
        let left = answer.retry_after().expect("when to come back");
        // The runs are renewed, and this machine may be busy: less than a whole lease, and more than the next smaller one.
        assert!((lease - 9..=lease).contains(&left), "{scheme}: {left} of {lease} s");
    }
}

#[tokio::test]
async fn what_is_set_goes_before_what_suits_the_scheme() {
    let set = |dedup: DedupLayerBuilder| {
        dedup.in_flight_status(StatusCode::TOO_EARLY).lease(Duration::from_secs(2)).wait(Duration::from_secs(1))
    };
    for scheme in ["standard", "sentry", "typeform"] {
        let (answer, took) = answer_meanwhile(scheme, set).await;
        assert_eq!(answer.status, StatusCode::TOO_EARLY, "{scheme}");
        assert!(took >= Duration::from_secs(1), "{scheme} waited for {took:?}");
        assert!(answer.retry_after().is_some_and(|left| left <= 2), "{scheme}");
    }
}

#[test]
fn every_row_answers_within_its_senders_time_and_frees_its_events_soon_after() {
    let usual = Duration::from_millis(250);
    for scheme in Scheme::all() {
        let (wait, lease) = (scheme.in_flight_wait(), scheme.lease());
        assert!(!wait.is_zero() && wait <= usual, "{}", scheme.name());
        assert!((10..=30).contains(&lease.as_secs()), "{}", scheme.name());
        match scheme.patience() {
            None => assert_eq!((wait, lease.as_secs()), (usual, 30), "{}", scheme.name()),
            Some(patience) => {
                assert!(wait <= patience / 10, "{} waits {wait:?} of {patience:?}", scheme.name());
                assert!(lease >= patience.min(Duration::from_secs(30)), "{}", scheme.name());
            }
        }
        assert!([StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE].contains(&scheme.in_flight_status()));
    }
}
