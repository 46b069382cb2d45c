//! Whose `X-Forwarded-*` the program believes, for a scheme that signs the URL.

use axum::Router;
use countersign::signature::{Keyring, Message, Scheme, Signer};
use countersign::{Clock as _, SystemClock};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::gateway::Gateway;
use crate::support::{SECRET, serve};

const BODY: &str = "CallSid=CA1&From=%2B15550001";

/// A request that Twilio made to this address, as a proxy hands it on that was asked for `host`.
fn forwarded(url: &str, host: &str) -> HeaderMap {
    let scheme = Scheme::named("twilio").expect("a scheme");
    let keyring = Keyring::new(scheme.parse_secret(SECRET).expect("a secret"));
    let form = "application/x-www-form-urlencoded";
    let message =
        Message::new(SystemClock.now(), BODY.as_bytes()).with_target(&Method::POST, url).with_content_type(form);
    let mut headers = Signer::new(scheme, keyring).expect("a signer").sign(&message).expect("headers");
    headers.insert("content-type", HeaderValue::from_static(form));
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    headers.insert("x-forwarded-host", host.parse().expect("a header"));
    headers
}

async fn status(more: &[&str], headers: HeaderMap) -> StatusCode {
    let upstream = format!("http://{}", serve(Router::new().fallback(async || "handled")).await);
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [&["--scheme", "twilio", "--public-url", "https://one.example.com"], more].concat();
    let gateway = Gateway::start(&upstream, &folder.path().join("inbox.db"), &arguments).await;
    gateway.post_to("/in?a=1", headers, BODY).await.status
}

#[tokio::test]
async fn c041_forwarded_headers_are_believed_of_the_proxies_that_are_named_and_of_nobody_else() {
    let other_host = || forwarded("https://two.example.com/in?a=1", "two.example.com");
    for trusted in [
        &["--trust-forwarded", "127.0.0.1"][..],
        &["--trust-forwarded", "10.0.0.0/8", "--trust-forwarded", "127.0.0.0/8"],
    ] {
        assert_eq!(status(trusted, other_host()).await, StatusCode::OK, "{trusted:?}");
    }
    for distrusted in [&[][..], &["--trust-forwarded", "10.0.0.0/8"], &["--trust-forwarded", "::1"]] {
        assert_eq!(status(distrusted, other_host()).await, StatusCode::UNAUTHORIZED, "{distrusted:?}");
    }
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_has_the_configured_url_checked() {
    let configured = forwarded("https://one.example.com/in?a=1", "evil.example.com");
    assert_eq!(status(&["--trust-forwarded", "10.0.0.0/8"], configured.clone()).await, StatusCode::OK);
    // Through the proxy, it was another endpoint that was asked.
    assert_eq!(status(&["--trust-forwarded", "127.0.0.1"], configured.clone()).await, StatusCode::UNAUTHORIZED);
    let mut without = configured;
    without.remove("x-forwarded-host");
    assert_eq!(status(&["--trust-forwarded", "127.0.0.1"], without).await, StatusCode::OK);
}
