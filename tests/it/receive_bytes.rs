//! What is signed is what was sent, byte for byte, and what is checked is what the handler gets.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Form, Json, Router};
use bytes::Bytes;
use countersign::receive::{DedupLayer, Delivery, Event, Reservation};
use countersign::signature::{IdOrigin, Scheme};
use countersign::store::{MemoryStore, ReceiptState};
use http::{HeaderMap, Request, StatusCode, header};
use serde_json::Value;
use tower::ServiceBuilder;
use tower_http::decompression::RequestDecompressionLayer;

use crate::support::{
    Answer, BODIES, Calls, SECRET, Server, TEXT_SECRET, github, hex, hmac_sha256, standard, stripe, unix_now, verify,
};
use crate::wire::{Log, Wire, head};

/// The GitHub signatures of `BODIES` under `TEXT_SECRET`, by Python's `hmac`.
const GITHUB: [&str; 10] = [
    "83ce842560289e8f6b0ecf2655935cce70691ea2d3ce35321d8a69b9565622b5",
    "ba95ed9b93c4bef28c9666a1cde92ce18078af70b2f5789c0e8ed3f6f39693b4",
    "7084a12c1c05346ff6f8411dee45fbcb9829ef333e7535e2d845581895d5f949",
    "5cd3be1fcfe9b5aaed3a36b7782be7115bebe8f27d1248b368351d448ff13fa6",
    "459df445575c63ff89fbf569a79eb71e436b3e8fb00055580f0b4511305b32b5",
    "bdc7ea40e62264b11c2f7c88864b33ac9dbd6a147e29fc9bb9a9e9f8bdbacb20",
    "5f745ce0b8a2eacc728cee6e96d5b6fb39333c7522f8939136f6e907b0bfdb43",
    "85fdd1da7b0314990da0470323119b79cd7b7a1ce4685242ba64f1a8858dfdcf",
    "ffb1e161afb30428f2c64d2d864da54fe98ddea32d8193b91251eea218d4d8af",
    "353e538a19a7cb91b0c1f3c8e323cd3e851934cf475be2c2da5003bd021bdcc8",
];

/// Answers with the body that it got. The delivery's must be the same.
async fn echo(delivery: Delivery, body: Bytes) -> Bytes {
    assert_eq!(delivery.body(), &body);
    body
}

fn echoing() -> Router {
    Router::new().fallback(echo)
}

async fn server(scheme: Scheme, app: Router) -> Server {
    let store = Arc::new(MemoryStore::new());
    Server::with(app, verify(scheme), DedupLayer::builder(Arc::clone(&store)), store).await
}

fn signed_by_github(index: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-hub-signature-256", format!("sha256={}", GITHUB[index]).parse().expect("a header value"));
    headers
}

fn slack(body: &[u8]) -> HeaderMap {
    let now = unix_now().to_string();
    let tag = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[b"v0:", now.as_bytes(), b":", body]));
    crate::support::headers(&[("x-slack-request-timestamp", &now), ("x-slack-signature", &format!("v0={tag}"))])
}

async fn comes_through(index: usize) {
    let body = BODIES[index];
    let by_github = server(Scheme::github(), echoing()).await.post(signed_by_github(index), body).await;
    let by_stripe = server(Scheme::stripe(), echoing()).await.post(stripe(body), body).await;
    let by_slack = server(Scheme::slack(), echoing()).await.post(slack(body), body).await;
    let by_standard = server(Scheme::standard(), echoing()).await.post(standard("msg_1", body), body).await;
    for answer in [by_github, by_stripe, by_slack, by_standard] {
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, body), "V{}", index + 1);
    }
}

#[tokio::test]
async fn c001_spaces_floats_and_long_numbers_reach_the_handler_as_they_were_sent() {
    comes_through(0).await;
    comes_through(8).await;
}

#[tokio::test]
async fn c001_line_breaks_at_the_end_and_within_reach_the_handler_as_they_were_sent() {
    comes_through(3).await;
    comes_through(4).await;
}

#[tokio::test]
async fn c002_the_same_text_escaped_in_two_ways_has_two_signatures() {
    comes_through(6).await;
    comes_through(7).await;
    let server = server(Scheme::github(), echoing()).await;
    for (signature, body) in [(6, 7), (7, 6)] {
        let answer = server.post(signed_by_github(signature), BODIES[body]).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn c004_bytes_that_are_no_utf_8_are_verified_and_kept() {
    comes_through(1).await;
    assert_eq!(BODIES[1].len(), 9);
    let server = server(Scheme::github(), echoing()).await;
    let replaced = String::from_utf8_lossy(BODIES[1]).into_owned();
    assert_eq!(server.post(signed_by_github(1), replaced).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn c005_an_empty_body_needs_its_own_signature() {
    comes_through(2).await;
    let calls = Calls::default();
    let counted = calls.clone();
    let app = Router::new().fallback(move || async move { counted.count().to_string() });
    let server = server(Scheme::github(), app).await;

    for lines in [&["content-length: 0"][..], &[]] {
        let mut wire = Wire::to(server.address).await;
        wire.write(head(&signed_by_github(0), lines)).await;
        let (answer, _) = wire.answer().await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 401"), "{lines:?}: {answer}");

        let mut wire = Wire::to(server.address).await;
        wire.write(head(&signed_by_github(2), lines)).await;
        let (answer, _) = wire.answer().await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{lines:?}: {answer}");
    }
    assert_eq!(calls.so_far(), 1, "the second one is a repeat");
}

#[tokio::test]
async fn c007_a_byte_order_mark_is_signed_and_passed_over_only_by_the_json_helper() {
    comes_through(5).await;
    let app = Router::new().fallback(|event: Event<Value>| async move {
        assert!(event.delivery.body().starts_with(b"\xef\xbb\xbf"));
        event.payload.map(|payload| payload["a"].to_string())
    });
    let server = server(Scheme::github(), app).await;
    let answer = server.post(signed_by_github(5), BODIES[5]).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "1".to_owned()));
    let bare = &BODIES[5][3..];
    assert_eq!(server.post(signed_by_github(5), bare).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn c008_a_form_is_checked_in_its_raw_form_and_read_behind_the_check() {
    comes_through(9).await;
    async fn fields(Form(fields): Form<Vec<(String, String)>>) -> String {
        format!("{fields:?}")
    }
    let expected = r#"[("payload", "{\"a\":1}"), ("x", "a+b c")]"#.replace('+', " ");
    for (scheme, mut headers) in [(Scheme::github(), signed_by_github(9)), (Scheme::slack(), slack(BODIES[9]))] {
        headers.insert(header::CONTENT_TYPE, "application/x-www-form-urlencoded".parse().expect("a header value"));
        let answer = server(scheme, Router::new().fallback(fields)).await.post(headers, BODIES[9]).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, expected.clone()));
    }
}

/// Reads and drops the body, as a logger or a parser in front of the check would.
async fn take(request: Request<Body>) -> Request<Body> {
    let (parts, body) = request.into_parts();
    axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    Request::from_parts(parts, Body::empty())
}

#[tokio::test]
async fn c010_a_layer_that_took_the_body_is_named_in_the_log() {
    let log = Log::listen();
    let layer = Server::standard(echoing()).await.layer;
    let app = echoing().layer(layer).layer(axum::middleware::map_request(take));
    let address = crate::support::serve(app).await;

    let body = b"{\"a\":1}";
    let mut wire = Wire::to(address).await;
    wire.write([&head(&standard("msg_1", body), &["content-length: 7"])[..], body].concat()).await;
    let (answer, problem) = wire.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(String::from_utf8_lossy(&problem).contains("urn:countersign:problem:body-taken"));
    assert!(log.text().contains("the body of 7 bytes was read by another layer"), "{}", log.text());

    // Without an announced length, an empty body is all that can be seen.
    let mut wire = Wire::to(address).await;
    wire.write(head(&standard("msg_2", body), &["transfer-encoding: chunked"])).await;
    wire.write(b"7\r\n{\"a\":1}\r\n0\r\n\r\n").await;
    let (answer, _) = wire.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(log.text().contains("a layer in front of the check has read it"), "{}", log.text());
}

#[tokio::test]
async fn c010_every_body_extractor_works_behind_the_check() {
    let app = Router::new()
        .route("/json", post(|Json(body): Json<Value>| async move { body["a"].to_string() }))
        .route("/bytes", post(|body: Bytes| async move { body }))
        .route("/string", post(|body: String| async move { body }))
        .route("/form", post(|Form(body): Form<Vec<(String, String)>>| async move { body[0].1.clone() }))
        .route("/request", post(|request: Request<Body>| async move { request.into_body() }));
    let server = Server::standard(app).await;
    for (path, kind, body, expected) in [
        ("/json", "application/json", "{\"a\":1}", "1"),
        ("/bytes", "application/json", "{\"a\":1}", "{\"a\":1}"),
        ("/string", "text/plain", "{\"a\":1}", "{\"a\":1}"),
        ("/form", "application/x-www-form-urlencoded", "a=1", "1"),
        ("/request", "application/json", "{\"a\":1}", "{\"a\":1}"),
    ] {
        let mut headers = standard(&format!("msg_{}", &path[1..]), body.as_bytes());
        headers.insert(header::CONTENT_TYPE, kind.parse().expect("a header value"));
        let answer = server.post_to(path, headers, body).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, expected.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn c011_state_extension_path_headers_event_delivery_reservation_and_body_go_together() {
    #[derive(Clone)]
    struct Region(&'static str);

    async fn handler(
        (State(state), Extension(region)): (State<u32>, Extension<Region>),
        Path(account): Path<String>,
        headers: HeaderMap,
        event: Event<Value>,
        delivery: Delivery,
        reservation: Reservation,
        Json(body): Json<Value>,
    ) -> String {
        assert_eq!(event.payload.as_ref(), Ok(&body));
        assert_eq!(event.delivery.body(), delivery.body());
        assert!(reservation.is_held());
        let id = delivery.event_id().expect("an id").as_str().to_owned();
        let attempt = reservation.attempt();
        format!("{state} {} {account} {id} {attempt} {}", region.0, headers["x-extra"].to_str().expect("text"))
    }

    let app = Router::new().route("/{account}", post(handler)).with_state(7_u32);
    let layer = Server::standard(echoing()).await.layer;
    // The extension is put there outside the check, and must come through it.
    let address = crate::support::serve(app.layer(layer).layer(Extension(Region("eu")))).await;

    let mut headers = standard("msg_1", b"{\"a\":1}");
    headers.insert(header::CONTENT_TYPE, "application/json".parse().expect("a header value"));
    headers.insert("x-extra", "kept".parse().expect("a header value"));
    let request = crate::support::request(&format!("http://{address}/acct_9"), headers, &b"{\"a\":1}"[..]);
    let answer = crate::support::send(&crate::support::client(false), request).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "7 eu acct_9 msg_1 1 kept".to_owned()));
}

/// `{"a":1}`, compressed.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x4a\x54\xb2\x32\xac\x05\x00\xaf\xac\x1b\x56\x07\x00\x00\x00";

/// Which of the headers that describe the body there are, and how long it is.
async fn describe(headers: HeaderMap, body: Bytes) -> String {
    let text = |name| headers.get(name).map_or("-", |value| value.to_str().expect("text")).to_owned();
    let encodings = (text(header::CONTENT_ENCODING), text(header::TRANSFER_ENCODING));
    format!("{} {} {} {}", text(header::CONTENT_LENGTH), encodings.0, encodings.1, body.len())
}

#[tokio::test]
async fn c013_headers_and_body_agree_behind_the_check() {
    let layer = Server::standard(echoing()).await.layer;
    let decompressing = ServiceBuilder::new()
        .layer(RequestDecompressionLayer::new())
        .map_request(|request: Request<_>| request.map(Body::new));
    let unpacked =
        crate::support::serve(Router::new().fallback(describe).layer(layer.clone()).layer(decompressing)).await;
    let raw = crate::support::serve(Router::new().fallback(describe).layer(layer)).await;

    for (address, id, signed, expected) in
        [(unpacked, "msg_1", &b"{\"a\":1}"[..], "7 - - 7"), (raw, "msg_2", GZIP, "27 gzip - 27")]
    {
        let length = format!("content-length: {}", GZIP.len());
        let chunked = [&crate::wire::chunk(GZIP)[..], b"0\r\n\r\n"].concat();
        for (how, body, id) in
            [(&*length, GZIP, id.to_owned()), ("transfer-encoding: chunked", &chunked, format!("{id}c"))]
        {
            let mut wire = Wire::to(address).await;
            wire.write(head(&standard(&id, signed), &["content-encoding: gzip", how])).await;
            wire.write(body).await;
            let (answer, body) = wire.answer().await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{how}: {answer}");
            assert_eq!(String::from_utf8_lossy(&body), expected, "{how}");
        }
    }
}

#[tokio::test]
async fn c014_the_log_of_a_mismatch_helps_and_leaks_nothing() {
    let log = Log::listen();
    let server = Server::standard(echoing()).await;
    let body = b"{\"card\":\"4242424242424242\"}";
    let mut headers = standard("msg_1", b"{\"card\":\"4000000000000002\"}");
    let expected = standard("msg_1", body)["webhook-signature"].clone();
    headers.insert(header::CONTENT_TYPE, "application/json".parse().expect("a header value"));
    headers.insert(header::CONTENT_ENCODING, "identity".parse().expect("a header value"));
    let presented = headers["webhook-signature"].clone();
    let answer = server.post_to("/in/acct_9?token=abcdef", headers, &body[..]).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);

    let text = log.text();
    let digest = &countersign::Digest::of(body).to_string()[..16];
    for helpful in [
        "source=test",
        "reason=\"mismatch\"",
        "1 secret(s) tried",
        "path=\"/in/acct_9\"",
        "body_bytes=27",
        "announced_bytes=27",
        digest,
        "application/json",
        "identity",
    ] {
        assert!(text.contains(helpful), "{helpful} is not in: {text}");
    }
    let tags = [&presented, &expected].map(|value| value.to_str().expect("text").trim_start_matches("v1,").to_owned());
    let key = SECRET.trim_start_matches("whsec_");
    for secret in ["4242", "4000", "token", "abcdef", &tags[0], &tags[1], key] {
        assert!(!text.contains(secret), "{secret} is in: {text}");
    }
    let long = "x".repeat(3000);
    let headers = crate::support::headers(&[("content-type", &long)]);
    assert_eq!(server.post_to(&format!("/{long}"), headers, "").await.status, StatusCode::UNAUTHORIZED);
    assert!(log.text().len() < text.len() + 2000, "a request cannot make the log as long as it likes");
}

#[tokio::test]
async fn c016_headers_that_are_not_signed_are_not_vouched_for() {
    let seen: Arc<Mutex<Vec<Delivery>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let app = Router::new().fallback(move |delivery: Delivery| async move {
        kept.lock().expect("no test panics in here").push(delivery);
    });
    let server = server(Scheme::github(), app).await;
    for (event, delivery) in [("push", "d-1"), ("release", "d-2")] {
        let mut headers = github(Some(delivery), b"{}");
        headers.insert("x-github-event", event.parse().expect("a header value"));
        let answer = server.post(headers, &b"{}"[..]).await;
        assert_eq!((answer.status, answer.is_replay()), (StatusCode::OK, event == "release"));
    }
    let seen = seen.lock().expect("no test panics in here");
    assert_eq!(seen.len(), 1, "another event name or delivery id does not make it another event");
    assert_eq!(seen[0].id_origin(), IdOrigin::Unsigned);
    assert!(!format!("{:?}", seen[0]).contains("push"));
}

#[derive(Debug, serde::Deserialize)]
#[serde(tag = "type")]
enum Known {
    #[serde(rename = "order.paid")]
    OrderPaid { amount: u64 },
}

#[tokio::test]
async fn c017_an_unknown_type_can_be_acknowledged() {
    async fn lenient(event: Event<Known>) -> StatusCode {
        match event.payload {
            Ok(Known::OrderPaid { amount }) if amount > 0 => StatusCode::CREATED,
            Ok(_) | Err(_) => StatusCode::NO_CONTENT,
        }
    }
    let server = Server::standard(Router::new().fallback(lenient)).await;
    for (id, body, status) in [
        ("msg_1", r#"{"type":"order.paid","amount":12,"new":null}"#, StatusCode::CREATED),
        ("msg_2", r#"{"type":"order.lost","amount":12}"#, StatusCode::NO_CONTENT),
        ("msg_3", "no JSON at all", StatusCode::NO_CONTENT),
    ] {
        assert_eq!(server.post(standard(id, body.as_bytes()), body).await.status, status, "{body}");
    }
}

#[tokio::test]
async fn c017_a_payload_that_a_handler_cannot_read_is_set_aside_and_not_quoted() {
    async fn strict(event: Event<Known>) -> Response {
        event.payload.map(|known| format!("{known:?}")).into_response()
    }
    let log = Log::listen();
    let server = Server::standard(Router::new().fallback(strict)).await;
    let body = r#"{"type":"order.paid","amount":"4242424242424242"}"#;
    let answer: Answer = server.post(standard("msg_1", body.as_bytes()), body).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let receipt = server.receipt("msg_1").await.expect("a receipt");
    assert_eq!(receipt.state, ReceiptState::DeadLetter);
    assert!(!log.text().contains("4242"), "{}", log.text());
    assert!(log.text().contains("another shape"), "{}", log.text());
}
