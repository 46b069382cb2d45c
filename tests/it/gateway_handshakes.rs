//! Handshakes and message signatures at `countersign receive`, the real program in front of a real application.

use std::sync::Arc;

use axum::Router;
use countersign::Clock as _;
use countersign::signature::{Keyring, Message, Scheme, Signer};
use countersign::store::{InboxStore as _, ListFilter, SqliteStore};
use http::{HeaderMap, Method, StatusCode};

use crate::gateway::Gateway;
use crate::support::{Answer, Calls, SECRET, client, headers, hex, hmac_sha256, request, send, serve};

/// The program in front of an application that counts its calls.
struct Fronted {
    gateway: Gateway,
    handled: Calls,
    folder: tempfile::TempDir,
}

impl Fronted {
    async fn start(more: &[&str]) -> Self {
        let handled = Calls::default();
        let counted = Arc::new(handled.clone());
        let app = Router::new().fallback(move || {
            counted.count();
            async { "handled" }
        });
        let upstream = format!("http://{}", serve(app).await);
        let folder = tempfile::tempdir().expect("a folder");
        let gateway = Gateway::start(&upstream, &folder.path().join("inbox.db"), more).await;
        Self { gateway, handled, folder }
    }

    async fn get(&self, target: &str) -> Answer {
        let mut asked = request(&format!("{}{target}", self.gateway.address), HeaderMap::new(), "");
        *asked.method_mut() = Method::GET;
        send(&client(false), asked).await
    }

    async fn has_nothing(&self) {
        assert_eq!(self.handled.so_far(), 0);
        let store = SqliteStore::open(self.folder.path().join("inbox.db")).await.expect("a store");
        assert!(store.list(ListFilter::default()).await.expect("a list").is_empty());
    }
}

fn signed(scheme: &Scheme, secret: &str, url: &str, body: &[u8]) -> HeaderMap {
    let keyring = Keyring::new(scheme.parse_secret(secret).expect("a secret"));
    let message = Message::new(countersign::SystemClock.now(), body).with_target(&Method::POST, url);
    Signer::new(scheme.clone(), keyring).expect("a signer").sign(&message).expect("headers")
}

#[tokio::test]
async fn c037_c038_zoom_is_answered_by_the_gateway() {
    let zoom = Fronted::start(&["--scheme", "zoom"]).await;
    let ask = |token: &str| {
        let body = serde_json::json!({ "event": "endpoint.url_validation", "payload": { "plainToken": token } });
        zoom.gateway.post(HeaderMap::new(), body.to_string())
    };
    for _ in 0..2 {
        let answer = ask("qgg8vlvZRS6UYooatFL8Aw").await;
        assert_eq!(answer.status, StatusCode::OK);
        let found: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        let mac = hex(&hmac_sha256(SECRET.as_bytes(), &[b"qgg8vlvZRS6UYooatFL8Aw"]));
        assert_eq!(found, serde_json::json!({ "plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": mac }));
    }
    assert_eq!(ask("v0:1700000000:{\"event\":\"x\"}").await.status, StatusCode::FORBIDDEN);
    zoom.has_nothing().await;

    let event = br#"{"event":"meeting.started"}"#;
    let answer =
        zoom.gateway.post(signed(&"zoom".parse().expect("a scheme"), SECRET, "", event), event.as_slice()).await;
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, b"handled".as_slice()));
}

#[tokio::test]
async fn c038_meta_is_answered_by_the_gateway_with_the_token_of_a_variable_or_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{SECRET}\n")).expect("a file");
    let file = file.to_str().expect("a path");
    for token in [["--verify-token-env", "TEST_SECRET"], ["--verify-token-file", file]] {
        let meta = Fronted::start(&["--scheme", "meta", token[0], token[1]]).await;
        let asked = |token: &str| format!("/?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={token}");
        let answer = meta.get(&asked(SECRET)).await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, b"1158201444".as_slice()));
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(meta.get(&asked("another")).await.status, StatusCode::FORBIDDEN);
        assert_eq!(meta.get("/").await.status, StatusCode::UNAUTHORIZED);
        meta.has_nothing().await;
    }
}

#[tokio::test]
async fn asanas_secret_is_written_down_before_asana_is_answered() {
    const TAKEN: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("asana.secret");
    let path = file.to_str().expect("a path");
    let event = br#"{"events":[{"action":"changed"}]}"#;
    let scheme: Scheme = "asana".parse().expect("a scheme");

    let asana = Fronted::start(&["--scheme", "asana", "--hook-secret-file", path]).await;
    let headers_of_event = signed(&scheme, TAKEN, "", event);
    assert_eq!(asana.gateway.post(headers_of_event.clone(), event.as_slice()).await.status, StatusCode::UNAUTHORIZED);
    let answer = asana.gateway.post(headers(&[("x-hook-secret", TAKEN)]), "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["x-hook-secret"], TAKEN);
    assert_eq!(std::fs::read_to_string(&file).expect("the secret"), TAKEN);
    assert_eq!(
        asana.gateway.post(headers(&[("x-hook-secret", "other-secret")]), "").await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(asana.gateway.post(headers_of_event.clone(), event.as_slice()).await.body, "handled");

    // The next one begins with it, and takes no other.
    let again = Fronted::start(&["--scheme", "asana", "--hook-secret-file", path]).await;
    assert_eq!(again.gateway.post(headers_of_event, event.as_slice()).await.body, "handled");
    assert_eq!(again.gateway.post(headers(&[("x-hook-secret", TAKEN)]), "").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn message_signatures_are_checked_by_the_gateway() {
    let options = [("components", "@method @path @query content-digest"), ("id", "x-event-id")];
    let scheme = Scheme::rfc9421(options).expect("a scheme");
    let fronted = Fronted::start(&[
        "--scheme",
        "rfc9421",
        "--public-url",
        "https://hooks.example.com",
        "--option",
        "components=@method @path @query content-digest",
        "--option",
        "id=x-event-id",
    ])
    .await;
    let keyring = Keyring::new(scheme.parse_secret(SECRET).expect("a secret"));
    let signer = Signer::new(scheme, keyring).expect("a signer");
    let message = Message::new(countersign::SystemClock.now(), b"{}").with_id("evt_1");
    let headers =
        signer.sign(&message.with_target(&Method::POST, "https://hooks.example.com/in?a=1")).expect("headers");
    for (target, body, expected) in [
        ("/in?a=1", "{}", StatusCode::OK),
        ("/in?a=1", "[]", StatusCode::UNAUTHORIZED),
        ("/in?a=2", "{}", StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(fronted.gateway.post_to(target, headers.clone(), body).await.status, expected, "{target} {body}");
    }
    assert_eq!(fronted.handled.so_far(), 1);
}
