//! What is kept of an answer and of a request, and what is not.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use countersign::receive::{DedupLayer, DedupLayerBuilder, KeepRequest, REPLAYED};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, KeptRequest, MemoryStore, ReceiptState, ResultBody, Retention};
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::support::{Answer, Calls, Server, on_each_store, standard, verify};

#[tokio::test]
async fn an_answer_over_the_limit_passes_whole_and_is_repeated_without_its_body() {
    on_each_store(async |store| {
        const LIMIT: usize = 64 * 1024;
        let app = Router::new()
            .route("/at", post(async || vec![b'a'; LIMIT]))
            .route("/over", post(async || (StatusCode::CREATED, [("x-kept", "yes")], vec![b'b'; LIMIT + 1])))
            .route("/streamed", post(async || chunks(300, 1_024)));
        let server = over(app, |dedup| dedup, store).await;
        // Path, status, bytes at first, bytes of the repeat.
        for (path, status, whole, repeated) in [
            ("/at", StatusCode::OK, LIMIT, LIMIT),
            ("/over", StatusCode::CREATED, LIMIT + 1, 0),
            ("/streamed", StatusCode::OK, 300 * 1_024, 0),
        ] {
            let (first, repeat) = twice(&server, path).await;
            assert_eq!((first.status, first.body.len()), (status, whole), "{path}");
            assert_eq!((repeat.status, repeat.body.len()), (status, repeated), "{path}");
            assert!(first.headers.contains_key("content-type"), "{path}");
            assert_eq!(repeat.headers.contains_key("content-type"), repeated > 0, "{path}: no body, no type");
            assert_eq!(repeat.headers.get("x-kept"), first.headers.get("x-kept"), "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_limit_can_be_set_even_to_nothing() {
    let app = Router::new().route("/some", post(async || "12345")).route("/none", post(async || ()));
    let server = over(app, |dedup| dedup.result_limit(0), memory()).await;
    let (first, repeat) = twice(&server, "/some").await;
    assert_eq!((&first.body[..], &repeat.body[..]), (&b"12345"[..], &b""[..]));
    let (_, repeat) = twice(&server, "/none").await;
    assert_eq!(repeat.status, StatusCode::OK);
    let result = server.receipt("/none").await.and_then(|receipt| receipt.result).expect("a result");
    assert_eq!(result.body, ResultBody::Kept(Bytes::new()), "an empty body is within any limit");
}

#[tokio::test]
async fn a_repeat_has_the_headers_that_are_worth_it_byte_for_byte_and_no_others() {
    on_each_store(async |store| {
        let app = Router::new().route("/", post(async || answer_with_many_headers()));
        let server = over(app, |dedup| dedup.result_headers([HeaderName::from_static("retry-hint")]), store).await;
        let (first, repeat) = twice(&server, "/").await;
        assert_eq!(first.headers["set-cookie"], "id=1", "the first caller gets everything");
        assert_eq!(repeat.headers[REPLAYED], "true");

        let all =
            |name: &str| -> Vec<&[u8]> { repeat.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect() };
        assert_eq!(all("x-many"), [b"one".as_slice(), b"two"]);
        assert_eq!(all("x-bytes"), [b"caf\xe9".as_slice()], "not UTF-8, and the same bytes");
        for (name, value) in
            [("location", "/orders/1"), ("etag", "\"v1\""), ("retry-hint", "no"), ("content-type", "text/x-test")]
        {
            assert_eq!(all(name), [value.as_bytes()], "{name}");
        }
        for gone in
            ["set-cookie", "connection", "keep-alive", "x-for-the-next-hop", "server", "www-authenticate", "upgrade"]
        {
            assert!(!repeat.headers.contains_key(gone), "{gone}");
        }
        // The one of the server that answers now, not the one that the handler gave then.
        assert_ne!(repeat.headers["date"], "Thu, 01 Jan 1970 00:00:00 GMT");
    })
    .await;
}

#[tokio::test]
async fn headers_beyond_16_kib_are_not_kept() {
    let app = Router::new().route(
        "/",
        post(async || {
            let mut response = "done".into_response();
            for number in 0..40 {
                let name = HeaderName::try_from(format!("x-long-{number}")).expect("a name");
                response.headers_mut().insert(name, HeaderValue::try_from("v".repeat(1_000)).expect("a value"));
            }
            response
        }),
    );
    let server = over(app, |dedup| dedup, memory()).await;
    let (first, repeat) = twice(&server, "/").await;
    let long = |answer: &Answer| answer.headers.keys().filter(|name| name.as_str().starts_with("x-long-")).count();
    assert_eq!(long(&first), 40);
    assert!((1..=16).contains(&long(&repeat)), "{}", long(&repeat));
    assert_eq!(repeat.text(), "done");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failed_run() {
    let calls = Calls::default();
    let counted = calls.clone();
    let app = Router::new().route(
        "/",
        post(async move || match counted.count() {
            1 => Body::from_stream(stream::iter([Ok("half"), Err(std::io::Error::other("the file is gone"))])),
            _ => Body::from("whole"),
        }),
    );
    let server = over(app, |dedup| dedup, memory()).await;
    let (first, second) = twice(&server, "/").await;
    assert_eq!((first.status, first.problem().as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "handler-failed"));
    assert_eq!((second.status, second.text().as_str(), calls.so_far()), (StatusCode::OK, "whole", 2));
}

#[tokio::test]
async fn a_purged_result_is_repeated_as_its_status() {
    on_each_store(async |store| {
        let app = Router::new().route("/", post(async || (StatusCode::ACCEPTED, "later")));
        let server = over(app, |dedup| dedup, store).await;
        twice(&server, "/").await;
        let retention = Retention { results: std::time::Duration::ZERO, ..Retention::default() };
        assert_eq!(server.store.purge(retention, 10).await.expect("the store answers").results, 1);
        let repeat = server.post(standard("/", b"{}"), "{}").await;
        assert_eq!((repeat.status, repeat.text().as_str(), repeat.is_replay()), (StatusCode::ACCEPTED, "", true));
    })
    .await;
}

#[tokio::test]
async fn the_request_of_a_failed_event_is_kept_without_what_opens_doors() {
    on_each_store(async |store| {
        let nested = Router::new().route("/in", post(async || StatusCode::BAD_GATEWAY));
        let verify = verify(Scheme::standard()).build().expect("a layer");
        let dedup = DedupLayer::new(Arc::clone(&store));
        let receiver = countersign::receive::ReceiveLayer::new(verify, dedup).expect("a receiver");
        // Inside two routers, as an application has it.
        let app = Router::new().nest("/v1", Router::new().nest("/hooks", nested.layer(receiver)));
        let url = format!("http://{}/v1/hooks/in?tenant=5", super::support::serve(app).await);

        let mut headers = standard("evt_1", b"{}");
        let kept = [
            ("content-type", "application/json"),
            ("user-agent", "a sender"),
            ("x-github-event", "push"),
            ("webhook-type", "order.paid"),
            ("idempotency-key", "k"),
        ];
        let dropped = [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "x-functions-key",
            "x-auth-token",
            "x-hub-signature",
            "x-shopify-hmac-sha256",
            "x-gitlab-token",
            "paypal-transmission-sig",
            "x-client-secret",
            "x-password",
            "x-session-id",
            "sec-fetch-mode",
        ];
        headers.extend(kept.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))));
        headers.extend(dropped.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("opens a door"))));
        headers.append("x-many", HeaderValue::from_static("one"));
        headers.append("x-many", HeaderValue::from_bytes(b"tw\xf3").expect("a value"));
        let client = super::support::client(false);
        super::support::send(&client, super::support::request(&url, headers, "{}")).await;

        let request = kept_request(&*store).await.expect("it was kept");
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/hooks/in?tenant=5"));
        assert_eq!(&request.body[..], b"{}");
        for (name, value) in kept {
            assert_eq!(request.headers[name], value);
        }
        let many: Vec<_> = request.headers.get_all("x-many").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(many, [b"one".as_slice(), b"tw\xf3"]);
        for name in dropped.into_iter().chain(["webhook-signature", "host", "content-length"]) {
            assert!(!request.headers.contains_key(name), "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn no_request_is_kept_where_that_is_not_wanted_or_the_event_succeeded() {
    for (keep, status, kept) in [
        (KeepRequest::Failures, StatusCode::BAD_GATEWAY, true),
        (KeepRequest::Never, StatusCode::BAD_GATEWAY, false),
        (KeepRequest::Failures, StatusCode::OK, false),
    ] {
        let store = memory();
        let app = Router::new().route("/", post(async move || status));
        let server = over(app, |dedup| dedup.keep_request(keep), Arc::clone(&store)).await;
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, status);
        assert_eq!(kept_request(&*store).await.is_some(), kept, "{keep:?} {status}");
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!(receipt.state == ReceiptState::Succeeded, status.is_success());
    }
}

fn answer_with_many_headers() -> Response {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-type", b"text/x-test".as_slice()),
        ("x-many", b"one"),
        ("x-many", b"two"),
        ("x-bytes", b"caf\xe9"),
        ("location", b"/orders/1"),
        ("etag", b"\"v1\""),
        ("retry-hint", b"no"),
        ("set-cookie", b"id=1"),
        ("date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
        ("connection", b"keep-alive, X-For-The-Next-Hop"),
        ("keep-alive", b"timeout=5"),
        ("x-for-the-next-hop", b"1"),
        ("server", b"ours"),
        ("www-authenticate", b"Basic"),
    ] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("a value"));
    }
    (headers, "done").into_response()
}

fn chunks(count: usize, size: usize) -> impl IntoResponse {
    let chunk = move |_| Ok::<_, std::convert::Infallible>(Bytes::from(vec![b'c'; size]));
    ([("content-type", "application/octet-stream")], Body::from_stream(stream::iter((0..count).map(chunk))))
}

async fn twice(server: &Server, path: &str) -> (Answer, Answer) {
    let first = server.post_to(path, standard(path, b"{}"), "{}").await;
    assert!(!first.is_replay(), "{path}");
    (first, server.post_to(path, standard(path, b"{}"), "{}").await)
}

async fn kept_request(store: &dyn InboxStore) -> Option<KeptRequest> {
    super::support::receipt(store, "default", "test", "evt_1").await.expect("a receipt").request
}

fn memory() -> Arc<dyn InboxStore> {
    Arc::new(MemoryStore::new())
}

async fn over(
    app: Router,
    settings: impl FnOnce(DedupLayerBuilder) -> DedupLayerBuilder,
    store: Arc<dyn InboxStore>,
) -> Server {
    let dedup = settings(DedupLayer::builder(Arc::clone(&store)));
    Server::with(app, verify(Scheme::standard()), dedup, store).await
}
