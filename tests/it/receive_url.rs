//! Schemes that sign the URL: what counts is the configured one, and the path before any router touched it.

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use countersign::ConfigError;
use countersign::receive::{DedupLayer, ReceiveLayer, VerifyLayer, VerifyLayerBuilder};
use countersign::signature::Scheme;
use countersign::store::MemoryStore;
use http::{HeaderMap, StatusCode};

use crate::support::{Server, TEXT_SECRET, client, headers, hex, hmac_sha256, request, send, serve, verifier};
use crate::wire::Log;

const BODY: &[u8] = b"{\"a\":1}";

fn scheme() -> Scheme {
    Scheme::hmac([("header", "x-signature"), ("signed", "{method}{url}{body}")]).expect("a scheme")
}

fn layer() -> VerifyLayerBuilder {
    VerifyLayer::builder("test", verifier(scheme(), TEXT_SECRET))
}

fn signed(url: &str) -> HeaderMap {
    let tag = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[b"POST", url.as_bytes(), BODY]));
    headers(&[("x-signature", &tag)])
}

async fn server(layer: VerifyLayerBuilder) -> Server {
    let store = Arc::new(MemoryStore::new());
    Server::with(Router::new().fallback(|| async {}), layer, DedupLayer::builder(Arc::clone(&store)), store).await
}

#[tokio::test]
async fn c040_the_port_is_signed_as_it_is_configured() {
    let bases = [
        "https://hooks.example.com",
        "https://hooks.example.com:443",
        "https://hooks.example.com:8443",
        "https://[2001:db8::1]:8443",
    ];
    for configured in bases {
        let server = server(layer().public_url(configured)).await;
        for used in bases {
            let answer = server.post_to("/in?a=1&b=%20", signed(&format!("{used}/in?a=1&b=%20")), BODY).await;
            let expected = if used == configured { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(answer.status, expected, "configured: {configured}, used: {used}");
        }
    }
}

#[tokio::test]
async fn c041_neither_host_nor_forwarded_headers_are_believed() {
    let server = server(layer().public_url("https://hooks.example.com")).await;
    let claims = [
        ("host", "other.example.com"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "other.example.com"),
        ("x-forwarded-port", "80"),
        ("forwarded", "proto=http;host=other.example.com"),
    ];
    for (url, expected) in [
        ("https://hooks.example.com/in", StatusCode::OK),
        ("http://hooks.example.com/in", StatusCode::UNAUTHORIZED),
        ("http://other.example.com/in", StatusCode::UNAUTHORIZED),
        ("https://other.example.com/in", StatusCode::UNAUTHORIZED),
    ] {
        let mut signed = signed(url);
        signed.extend(headers(&claims));
        assert_eq!(server.post_to("/in", signed, BODY).await.status, expected, "{url}");
    }
    let over_http2 = request(&format!("http://{}/in", server.address), signed("https://hooks.example.com/in"), BODY);
    assert_eq!(send(&server.http2, over_http2).await.status, StatusCode::OK);
}

#[tokio::test]
async fn c041_forwarded_headers_are_believed_of_a_trusted_peer_only() {
    // As if the server had put the peer's address there.
    let trusted =
        |parts: &http::request::Parts| parts.headers.get("x-test-peer").is_some_and(|peer| peer == "10.0.0.1");
    let forwarded = [("x-forwarded-proto", "https"), ("x-forwarded-host", "two.example.com:8443")];
    let fallback = "https://one.example.com/in?a=1";
    let by_proxy = "https://two.example.com:8443/in?a=1";
    let server = server(layer().public_url("https://one.example.com").trust_forwarded(trusted)).await;
    let status = async |url: &str, more: &[(&str, &str)]| {
        let mut signed = signed(url);
        for (name, value) in more {
            let name: http::HeaderName = name.parse().expect("a name");
            signed.append(name, value.parse().expect("a value"));
        }
        server.post_to("/in?a=1", signed, BODY).await.status
    };
    for (peer, expected) in [("10.0.0.1", by_proxy), ("203.0.113.7", fallback)] {
        let more = [&forwarded[..], &[("x-test-peer", peer)]].concat();
        for url in [fallback, by_proxy] {
            let right = if url == expected { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(status(url, &more).await, right, "{peer} {url}");
        }
    }
    for odd in [
        vec![("x-forwarded-proto", "https")],
        vec![("x-forwarded-host", "two.example.com:8443")],
        vec![("x-forwarded-proto", "ftp"), ("x-forwarded-host", "two.example.com")],
        vec![("x-forwarded-proto", "https"), ("x-forwarded-host", "two.example.com/in?")],
        vec![
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "a.example.com"),
            ("x-forwarded-host", "b.example.com"),
        ],
    ] {
        let more = [&odd[..], &[("x-test-peer", "10.0.0.1")]].concat();
        assert_eq!(status(fallback, &more).await, StatusCode::OK, "{odd:?}: the configured URL counts");
    }
}

#[test]
fn c041_a_trusted_peer_is_enough_to_know_the_url() {
    assert!(layer().trust_forwarded(|_| false).build().is_ok());
    assert_eq!(layer().build().err(), Some(ConfigError::PublicUrlMissing));
}

#[tokio::test]
async fn c043_in_nested_routers_the_full_path_is_signed_and_logged() {
    let log = Log::listen();
    let verify = layer().public_url("https://hooks.example.com/").build().expect("a layer");
    let receive = ReceiveLayer::new(verify, DedupLayer::new(MemoryStore::new())).expect("a receiver");
    let inner = Router::new().route("/{account}", post(|| async {})).layer(receive);
    let app = Router::new().nest("/hooks", Router::new().nest("/acme", inner));
    let address = serve(app).await;
    let post = |url: &str| {
        let request = request(&format!("http://{address}/hooks/acme/7?q=hidden"), signed(url), BODY);
        async move { send(&client(false), request).await.status }
    };

    assert_eq!(post("https://hooks.example.com/hooks/acme/7?q=hidden").await, StatusCode::OK);
    assert_eq!(post("https://hooks.example.com/7?q=hidden").await, StatusCode::UNAUTHORIZED);
    let text = log.text();
    assert!(text.contains("path=\"/hooks/acme/7\""), "{text}");
    assert!(text.contains("signed_url=\"https://hooks.example.com/hooks/acme/7\""), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

#[tokio::test]
async fn c044_a_trailing_slash_counts_and_the_log_says_which_url_was_used() {
    let log = Log::listen();
    let registered = "https://h.example.com/in/?key=hidden";
    let exact = server(layer().exact_url(registered)).await;
    assert_eq!(exact.post_to("/in", signed(registered), BODY).await.status, StatusCode::OK);
    assert_eq!(log.text().matches("refused").count(), 0);

    let based = server(layer().public_url("https://h.example.com")).await;
    assert_eq!(based.post_to("/in?key=hidden", signed(registered), BODY).await.status, StatusCode::UNAUTHORIZED);
    let text = log.text();
    assert!(text.contains("signed_url=\"https://h.example.com/in\""), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn a_url_that_cannot_be_the_senders_is_refused_when_the_layer_is_built() {
    assert!(matches!(layer().build(), Err(ConfigError::PublicUrlMissing)));
    for url in ["", "hooks.example.com", "/in", "https://h.example.com?a=1", "https://h.example.com/#in", "https://"] {
        assert!(matches!(layer().public_url(url).build(), Err(ConfigError::PublicUrl(_))), "{url}");
    }
    for url in ["", "hooks.example.com", "/in"] {
        assert!(matches!(layer().exact_url(url).build(), Err(ConfigError::PublicUrl(_))), "{url}");
    }
    assert!(layer().public_url("https://h.example.com").build().is_ok());
    assert!(layer().exact_url("https://h.example.com/in?a=1").build().is_ok());
}
