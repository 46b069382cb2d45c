//! Which deliveries are one event: scopes, ids that look alike, other bodies under a known id.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{DedupLayer, KeyFrom, OtherBodyAnswer, ReceiveLayer, VerifyLayer};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, MemoryStore, ReceiptState};
use http::HeaderMap;

use super::support::{
    BODIES, Calls, Counts, OTHER_SECRET, SECRET, Server, client, github, on_each_store, receipt, request, send, serve,
    standard, standard_at, stripe, unix_now, verifier, verify,
};

#[tokio::test]
async fn c062_an_id_counts_within_its_source_and_its_consumer() {
    on_each_store(async |store| {
        let runs = Counts::default();
        let endpoint = |source: &str, secret: &str, consumer: &str, path: &'static str| {
            let verify = VerifyLayer::new(source, verifier(Scheme::standard(), secret)).expect("a layer");
            let dedup = DedupLayer::builder(Arc::clone(&store)).consumer(consumer).build().expect("a layer");
            let runs = runs.clone();
            let handler = post(async move || runs.count(path).to_string());
            Router::new().route(path, handler).layer(ReceiveLayer::new(verify, dedup).expect("a receiver"))
        };
        let app = endpoint("a", SECRET, "default", "/hooks/a")
            .merge(endpoint("b", OTHER_SECRET, "default", "/hooks/b"))
            .merge(endpoint("a", SECRET, "audit", "/audit/a"));
        let (address, client) = (serve(app).await, client(false));
        for (path, secret) in [("/hooks/a", SECRET), ("/hooks/b", OTHER_SECRET), ("/audit/a", SECRET)] {
            for _ in 0..2 {
                let headers = standard_at(secret, "evt_1", &unix_now().to_string(), b"{}");
                let answer = send(&client, request(&format!("http://{address}{path}"), headers, "{}")).await;
                assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "1"), "{path}");
            }
            assert_eq!(runs.of(path), 1, "{path}");
        }
        assert!(receipt(&*store, "default", "b", "evt_1").await.is_some());
        assert!(receipt(&*store, "audit", "b", "evt_1").await.is_none());
    })
    .await;
}

#[tokio::test]
async fn c064_equal_bodies_without_a_signed_id_are_one_event_unless_that_is_refused() {
    let (calls, server) = keyed(Scheme::github(), KeyFrom::default()).await;
    for delivery in [None, None, Some("one"), Some("another")] {
        assert_eq!(server.post(github(delivery, b"ping"), "ping").await.status, StatusCode::OK);
    }
    assert_eq!(calls.so_far(), 1, "a new id that nobody signed makes no new event");
    server.post(github(None, b"pong"), "pong").await;
    assert_eq!(calls.so_far(), 2);

    let (calls, server) = keyed(Scheme::github(), KeyFrom::SignedId).await;
    let answer = server.post(github(Some("one"), b"ping"), "ping").await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::BAD_REQUEST, "invalid-event-id"));
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn c065_a_field_of_the_body_can_be_the_key() {
    let (calls, server) = keyed(Scheme::github(), KeyFrom::BodyField("event.id".into())).await;
    for (delivery, body, run) in [
        ("d1", r#"{"event":{"id":"evt_1"},"try":1}"#, 1),
        ("d2", r#"{"event":{"id":"evt_1"},"try":2}"#, 1),
        ("d3", r#"{"event":{"id":"evt_2"},"try":1}"#, 2),
    ] {
        assert_eq!(server.post(github(Some(delivery), body.as_bytes()), body).await.status, StatusCode::OK);
        assert_eq!(calls.so_far(), run, "{delivery}");
    }
    for body in
        ["{}", "not JSON", r#"{"event":{"id":""}}"#, r#"{"event":{"id":"a\u0000b"}}"#, r#"{"event":{"id":[1]}}"#]
    {
        let answer = server.post(github(None, body.as_bytes()), body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::BAD_REQUEST, "invalid-event-id"), "{body}");
    }
    assert_eq!(calls.so_far(), 2);
}

#[tokio::test]
async fn the_signed_bytes_can_be_the_key_even_where_there_is_a_signed_id() {
    let (calls, server) = keyed(Scheme::standard(), KeyFrom::SignedBytes).await;
    let signed = standard("evt_1", b"{}");
    server.post(signed.clone(), "{}").await;
    assert!(server.post(signed, "{}").await.is_replay());
    assert_eq!(calls.so_far(), 1);
    server.post(standard("evt_2", b"{}"), "{}").await;
    assert_eq!(calls.so_far(), 2);
}

#[tokio::test]
async fn an_attempt_that_was_signed_anew_is_known_by_its_body_and_not_by_its_signed_bytes() {
    let earlier = (unix_now() - 5).to_string();
    for (key, runs) in [(KeyFrom::Scheme, 1), (KeyFrom::Body, 1), (KeyFrom::SignedBytes, 2)] {
        let (calls, server) = keyed(Scheme::standard(), key.clone()).await;
        server.post(standard_at(SECRET, "evt_1", &earlier, b"{}"), "{}").await;
        server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!(calls.so_far(), runs, "{key:?}");
    }
}

#[tokio::test]
async fn c066_c067_ids_that_look_alike_are_different_events() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let server = over(&calls, Scheme::github(), KeyFrom::BodyField("id".into()), None, store).await;
        let ids = ["msg_aB", "msg_Ab", "é", "e", "e\u{301}", "ß", "ss", "evt_1", "evt_1 ", " evt_1", "EVT_1"];
        for (number, id) in ids.iter().enumerate() {
            let body = format!(r#"{{"id":"{id}"}}"#);
            for _ in 0..2 {
                assert_eq!(server.post(github(None, body.as_bytes()), body.clone()).await.status, StatusCode::OK);
            }
            assert_eq!(calls.so_far(), number + 1, "{id:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn c067_long_ids_are_told_apart_or_refused_never_cut() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let server = over(&calls, Scheme::standard(), KeyFrom::default(), None, store).await;
        let prefix = "x".repeat(254);
        for last in ["a", "b"] {
            let id = format!("{prefix}{last}");
            assert_eq!(server.post(standard(&id, b"{}"), "{}").await.status, StatusCode::OK);
            assert!(server.post(standard(&id, b"{}"), "{}").await.is_replay());
        }
        for length in [256, 4_000] {
            let answer = server.post(standard(&"x".repeat(length), b"{}"), "{}").await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{length}");
        }
        assert_eq!(calls.so_far(), 2);
    })
    .await;
}

#[tokio::test]
async fn c068_a_failed_request_is_kept_byte_for_byte() {
    on_each_store(async |store| {
        let app = Router::new().route("/", post(async || StatusCode::BAD_GATEWAY));
        let dedup = DedupLayer::builder(Arc::clone(&store));
        let server = Server::with(app, verify(Scheme::standard()), dedup, store).await;
        for (number, body) in BODIES.iter().enumerate() {
            let id = format!("V{}", number + 1);
            assert_eq!(server.post(standard(&id, body), *body).await.status, StatusCode::BAD_GATEWAY);
            let receipt = server.receipt(&id).await.expect("a receipt");
            assert_eq!(receipt.state, ReceiptState::Failed);
            assert_eq!(receipt.request.expect("a request").body, *body, "{id}");
        }
    })
    .await;
}

#[tokio::test]
async fn another_body_under_a_known_id_is_answered_as_its_scheme_says() {
    on_each_store(async |store| {
        let calls = Calls::default();
        // Scheme, choice, the answer to the other body and its problem.
        let cases = [
            (Scheme::standard(), None, StatusCode::CONFLICT, Some("other-body")),
            (
                Scheme::standard(),
                Some(OtherBodyAnswer::Unprocessable),
                StatusCode::UNPROCESSABLE_ENTITY,
                Some("other-body"),
            ),
            (Scheme::standard(), Some(OtherBodyAnswer::Replay), StatusCode::OK, None),
            (Scheme::stripe(), None, StatusCode::OK, None),
            (Scheme::stripe(), Some(OtherBodyAnswer::Conflict), StatusCode::CONFLICT, Some("other-body")),
        ];
        for (number, (scheme, choice, status, problem)) in cases.into_iter().enumerate() {
            let id = format!("evt_{number}");
            let sign = match scheme.name() {
                "stripe" => |_: &str, body: &str| stripe(body.as_bytes()),
                _ => |id: &str, body: &str| standard(id, body.as_bytes()),
            };
            let server = over(&calls, scheme, KeyFrom::default(), choice, Arc::clone(&store)).await;
            let (first, other) = (format!(r#"{{"id":"{id}"}}"#), format!(r#"{{"id":"{id}","n":2}}"#));
            assert_eq!(server.post(sign(&id, &first), first.clone()).await.status, StatusCode::OK);
            let answer = server.post(sign(&id, &other), other.clone()).await;
            assert_eq!(answer.status, status, "{number}");
            match problem {
                Some(problem) => assert_eq!(answer.problem(), problem, "{number}"),
                None => assert!(answer.is_replay(), "{number}"),
            }
            assert!(server.post(sign(&id, &first), first).await.is_replay());
            assert_eq!(server.receipt(&id).await.expect("a receipt").other_bodies, 1, "{number}");
            assert_eq!(calls.so_far(), number + 1);
        }
    })
    .await;
}

#[tokio::test]
async fn the_key_of_an_event_never_depends_on_an_unsigned_header() {
    let calls = Calls::default();
    let counted = calls.clone();
    let server = Server::standard(Router::new().route("/", post(async move || counted.count().to_string()))).await;
    for extra in ["idempotency-key", "x-request-id", "x-webhook-id"] {
        let mut headers: HeaderMap = standard("evt_1", b"{}");
        headers.insert(extra, "something else".parse().expect("a value"));
        assert_eq!(server.post(headers, "{}").await.status, StatusCode::OK);
    }
    assert_eq!(calls.so_far(), 1);
}

async fn keyed(scheme: Scheme, key: KeyFrom) -> (Calls, Server) {
    let calls = Calls::default();
    let server = over(&calls, scheme, key, None, Arc::new(MemoryStore::new())).await;
    (calls, server)
}

async fn over(
    calls: &Calls,
    scheme: Scheme,
    key: KeyFrom,
    other_body: Option<OtherBodyAnswer>,
    store: Arc<dyn InboxStore>,
) -> Server {
    let calls = calls.clone();
    let app = Router::new().route("/", post(async move || calls.count().to_string()));
    let mut dedup = DedupLayer::builder(Arc::clone(&store)).key(key);
    if let Some(answer) = other_body {
        dedup = dedup.other_body(answer);
    }
    Server::with(app, verify(scheme), dedup, store).await
}
