//! Handshakes over real HTTP: answered by the layer, each as its provider wants it, never run or stored, and no way to have
//! anything signed.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use countersign::receive::{DedupLayer, HookRegistration, Stale, VerifyLayer, VerifyLayerBuilder};
use countersign::signature::{Handshake, Keyring, Message, Scheme, Signer};
use countersign::store::{InboxStore, ListFilter, MemoryStore};
use countersign::{Clock as _, Secret, SystemClock};
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;

use crate::support::{
    Answer, Calls, Server, TEXT_SECRET, headers, hex, hmac_sha256, request, send, unix_now, verifier,
};

/// The published example of X.
const X_SECRET: &str = "z3ZX4v7mAAUGykl3EcmkqbartmuW8VFOOzCloLx9Q45P0hLrFu";
const X_TOKEN: &str = "9b4507b3-9040-4669-9ca3-6b94edb50553";

const DISCORD_PRIVATE: &str = "0707070707070707070707070707070707070707070707070707070707070707\
                               ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c";

/// A receiver whose handler counts its calls.
struct Receiver {
    server: Server,
    handled: Calls,
}

impl Receiver {
    async fn of(scheme: &str) -> Self {
        Self::with(layer(scheme, TEXT_SECRET)).await
    }

    async fn with(layer: VerifyLayerBuilder) -> Self {
        let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
        let handled = Calls::default();
        let counted = handled.clone();
        let app = Router::new().fallback(move || {
            counted.count();
            async { "handled" }
        });
        let server = Server::with(app, layer, DedupLayer::builder(Arc::clone(&store)), store).await;
        Self { server, handled }
    }

    async fn ask(&self, method: Method, target: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Answer {
        let mut request = request(&format!("http://{}{target}", self.server.address), headers, body);
        *request.method_mut() = method;
        send(&self.server.http1, request).await
    }

    async fn get(&self, target: &str) -> Answer {
        self.ask(Method::GET, target, HeaderMap::new(), "").await
    }

    /// Whatever was answered: nothing ran, and nothing is stored.
    async fn has_nothing(&self) {
        assert_eq!(self.handled.so_far(), 0, "the handler was called");
        let page = self.server.store.list(ListFilter::default()).await.expect("a list");
        assert!(page.is_empty(), "something was stored");
    }
}

fn layer(scheme: &str, secret: &str) -> VerifyLayerBuilder {
    VerifyLayer::builder("test", verifier(Scheme::named(scheme).expect("a scheme"), secret))
}

/// What the provider would send along with this body, now.
fn signed(scheme: &str, secret: &str, body: &str) -> HeaderMap {
    let scheme = Scheme::named(scheme).expect("a scheme");
    let keyring = Keyring::new(scheme.parse_secret(secret).expect("a secret"));
    let message = Message::new(SystemClock.now(), body.as_bytes()).with_id("msg_1");
    Signer::new(scheme, keyring).expect("a signer").sign(&message).expect("headers")
}

#[track_caller]
fn is_plain_text(answer: &Answer, text: &str) {
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, text.as_bytes()));
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
}

#[track_caller]
fn is_json(answer: &Answer, expected: &serde_json::Value) {
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/json");
    let found: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(found, *expected);
}

#[track_caller]
fn is_refused(answer: &Answer, status: StatusCode) {
    assert_eq!(answer.status, status);
    if status == StatusCode::UNAUTHORIZED && !answer.headers.contains_key("www-authenticate") {
        return assert_eq!((answer.body.len(), answer.headers.get("content-type")), (0, None));
    }
    assert_eq!(answer.headers["content-type"], "application/problem+json");
}

#[tokio::test]
async fn c038_the_same_handshake_is_answered_as_often_as_it_comes() {
    let dropbox = Receiver::of("dropbox").await;
    for _ in 0..3 {
        is_plain_text(&dropbox.get("/?challenge=abc-123_XYZ").await, "abc-123_XYZ");
    }
    dropbox.has_nothing().await;

    let slack = Receiver::of("slack").await;
    let body =
        r#"{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let headers = signed("slack", TEXT_SECRET, body);
    for _ in 0..3 {
        let answer = slack.server.post(headers.clone(), body).await;
        is_plain_text(&answer, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
        assert!(!answer.headers.contains_key("idempotent-replayed"));
    }
    slack.has_nothing().await;
}

#[tokio::test]
async fn c038_a_get_or_head_without_a_challenge_is_refused_like_any_request_without_a_signature() {
    for scheme in ["dropbox", "meta", "x", "slack", "zoom", "github", "asana", "twitch", "xero", "okta"] {
        let receiver = Receiver::of(scheme).await;
        for method in [Method::GET, Method::HEAD] {
            for target in ["/", "/?", "/?a=b", "/?challenges=a", "/?hub.mode=unsubscribe&hub.challenge=1"] {
                let answer = receiver.ask(method.clone(), target, HeaderMap::new(), "").await;
                is_refused(&answer, StatusCode::UNAUTHORIZED);
            }
        }
        receiver.has_nothing().await;
    }
}

#[tokio::test]
async fn c038_head_is_answered_where_the_provider_tries_an_endpoint_with_it() {
    let trello = Receiver::with(layer("trello", TEXT_SECRET).public_url("https://hooks.example.com")).await;
    for receiver in [trello, Receiver::of("intercom").await] {
        let answer = receiver.ask(Method::HEAD, "/", HeaderMap::new(), "").await;
        assert_eq!(answer.status, StatusCode::OK);
        is_refused(&receiver.get("/").await, StatusCode::UNAUTHORIZED);
        receiver.has_nothing().await;
    }
    let dropbox = Receiver::of("dropbox").await;
    assert_eq!(dropbox.ask(Method::HEAD, "/?challenge=abc", HeaderMap::new(), "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn c037_a_challenge_that_is_no_token_is_not_sent_back() {
    let dropbox = Receiver::of("dropbox").await;
    let long = "x".repeat(257);
    for hostile in [
        "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "a%0d%0aSet-Cookie:%20a=b",
        "a%00",
        "%C3%A9",
        "%ff",
        "%",
        "a%2",
        "a+b",
        "",
        &long,
        "a&challenge=b",
    ] {
        is_refused(&dropbox.get(&format!("/?challenge={hostile}")).await, StatusCode::FORBIDDEN);
    }
    is_plain_text(&dropbox.get(&format!("/?challenge={}", "x".repeat(256))).await, &"x".repeat(256));
    // The same in a body that is rightly signed: whoever holds the key may still be somebody's tool.
    let slack = Receiver::of("slack").await;
    let body = r#"{"type":"url_verification","challenge":"<script>alert(1)</script>"}"#;
    is_refused(&slack.server.post(signed("slack", TEXT_SECRET, body), body).await, StatusCode::FORBIDDEN);
    slack.has_nothing().await;
}

#[tokio::test]
async fn meta_gets_its_challenge_only_with_the_agreed_token() {
    let token = Secret::from_bytes(b"meatyhamhock".to_vec()).expect("a token");
    let meta = Receiver::with(layer("meta", TEXT_SECRET).verify_token(token)).await;
    let asked = "/?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    is_plain_text(&meta.get(&format!("{asked}meatyhamhock")).await, "1158201444");
    is_plain_text(&meta.get("/?hub%2Emode=subscribe&hub.challenge=1&hub.verify_token=%6Deatyhamhock").await, "1");
    for wrong in ["", "meatyhamhoc", "meatyhamhock2", "Meatyhamhock", "meatyhamhock&hub.verify_token=meatyhamhock"] {
        is_refused(&meta.get(&format!("{asked}{wrong}")).await, StatusCode::FORBIDDEN);
    }
    is_refused(&meta.get("/?hub.mode=subscribe&hub.challenge=1").await, StatusCode::FORBIDDEN);
    is_refused(&meta.get("/?hub.mode=subscribe&hub.verify_token=meatyhamhock").await, StatusCode::FORBIDDEN);
    meta.has_nothing().await;

    let without = Receiver::of("meta").await;
    is_refused(&without.get(&format!("{asked}meatyhamhock")).await, StatusCode::FORBIDDEN);
    is_refused(&without.get(asked).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn c037_x_gets_the_published_answer_and_it_is_good_for_no_event() {
    let x = Receiver::with(layer("x", X_SECRET)).await;
    let answer = x.get(&format!("/?crc_token={X_TOKEN}")).await;
    let response_token = "sha256=Cytd4Sq+NvEcV3MMrXxWJGJx5A+y/lXzzU2Maartkx8=";
    is_json(&answer, &serde_json::json!({ "response_token": response_token }));

    // The answer is a right signature of the token as a body.
    let stolen = headers(&[("x-twitter-webhooks-signature", response_token)]);
    is_refused(&x.server.post(stolen, X_TOKEN).await, StatusCode::FORBIDDEN);
    x.has_nothing().await;
}

#[tokio::test]
async fn c037_no_body_of_an_event_can_be_signed_by_asking_for_it_as_a_challenge() {
    let x = Receiver::of("x").await;
    let long = "x".repeat(129);
    for body in [r#"{"a":1}"#, "[]", "\"a\"", "a=b c", "v0:1700000000:{\"event\":\"x\"}", "a.b", "a:b", &long] {
        let escaped: String = body.bytes().map(|byte| format!("%{byte:02x}")).collect();
        is_refused(&x.get(&format!("/?crc_token={escaped}")).await, StatusCode::FORBIDDEN);
    }
    let event = r#"{"for_user_id":"1"}"#;
    assert_eq!(x.server.post(signed("x", TEXT_SECRET, event), event).await.status, StatusCode::OK);
    assert_eq!(x.handled.so_far(), 1);
}

#[tokio::test]
async fn zoom_gets_its_token_signed_whether_it_signs_the_request_or_not() {
    let zoom = Receiver::of("zoom").await;
    let body = r#"{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event_ts":1654503849680,"event":"endpoint.url_validation"}"#;
    let mac = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[b"qgg8vlvZRS6UYooatFL8Aw"]));
    let expected = serde_json::json!({ "plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": mac });
    is_json(&zoom.server.post(HeaderMap::new(), body).await, &expected);
    is_json(&zoom.server.post(signed("zoom", TEXT_SECRET, body), body).await, &expected);
    // One that carries a signature has to carry a right one.
    is_refused(&zoom.server.post(signed("zoom", "another secret text", body), body).await, StatusCode::UNAUTHORIZED);
    let late = headers(&[("x-zm-signature", "v0=00"), ("x-zm-request-timestamp", "1")]);
    is_refused(&zoom.server.post(late, body).await, StatusCode::UNAUTHORIZED);
    zoom.has_nothing().await;
}

#[tokio::test]
async fn c037_zoom_cannot_be_asked_to_sign_an_event() {
    let zoom = Receiver::of("zoom").await;
    let now = unix_now();
    let long = "x".repeat(129);
    for token in ["v0:1700000000:{\"event\":\"x\"}", &format!("v0:{now}:{{}}"), "a.b", "a b", "", &long] {
        let body = serde_json::json!({ "event": "endpoint.url_validation", "payload": { "plainToken": token } });
        let answer = zoom.server.post(HeaderMap::new(), body.to_string()).await;
        is_refused(&answer, StatusCode::FORBIDDEN);
    }
    // What is no validation needs a signature, however it looks.
    for body in [
        r#"{"event":"meeting.started","payload":{"plainToken":"a"}}"#.to_owned(),
        r#"{"payload":{"plainToken":"a"}}"#.to_owned(),
        "not JSON".to_owned(),
        String::new(),
        format!(r#"{{"event":"endpoint.url_validation","payload":{{"plainToken":"a"}},"x":"{}"}}"#, "x".repeat(5_000)),
    ] {
        is_refused(&zoom.server.post(HeaderMap::new(), body).await, StatusCode::UNAUTHORIZED);
    }
    zoom.has_nothing().await;
}

#[tokio::test]
async fn discord_gets_its_ping_answered_and_its_events_handled() {
    let public = &DISCORD_PRIVATE[64..];
    let discord = Receiver::with(layer("discord", public)).await;
    let post = |body: &'static str| discord.server.post(signed("discord", DISCORD_PRIVATE, body), body);

    let ping = r#"{"application_id":"1","id":"2","token":"t","type":1,"version":1}"#;
    is_json(&post(ping).await, &serde_json::json!({ "type": 1 }));
    let probe = post(r#"{"version":1,"application_id":"1","type":0}"#).await;
    assert_eq!((probe.status, probe.body.len()), (StatusCode::NO_CONTENT, 0));
    // Wrong signatures are sent on purpose.
    let mut wrong = signed("discord", DISCORD_PRIVATE, ping);
    wrong.insert("x-signature-timestamp", (unix_now() + 1).into());
    is_refused(&discord.server.post(wrong, ping).await, StatusCode::UNAUTHORIZED);
    discord.has_nothing().await;

    // An event of a webhook has type 1 too, and an interaction another one.
    for event in [
        r#"{"version":1,"application_id":"1","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026"}}"#,
        r#"{"application_id":"1","id":"3","token":"t","type":2,"version":1}"#,
    ] {
        assert_eq!(post(event).await.body, "handled", "{event}");
    }
    assert_eq!(discord.handled.so_far(), 2);
}

#[tokio::test]
async fn twitch_gets_its_challenge_while_the_subscription_is_pending() {
    let twitch = Receiver::of("twitch").await;
    let post = |body: &'static str, kind: &'static str| {
        let mut headers = signed("twitch", TEXT_SECRET, body);
        headers.insert("twitch-eventsub-message-type", kind.parse().expect("a value"));
        twitch.server.post(headers, body)
    };
    let pending = r#"{"challenge":"pogchamp-kappa-360noscope-vohiyo","subscription":{"id":"f1c2","status":"webhook_callback_verification_pending"}}"#;
    // The type in the header is not signed: what the body says counts.
    for kind in ["webhook_callback_verification", "notification"] {
        is_plain_text(&post(pending, kind).await, "pogchamp-kappa-360noscope-vohiyo");
    }
    is_refused(&twitch.server.post(HeaderMap::new(), pending).await, StatusCode::UNAUTHORIZED);
    twitch.has_nothing().await;
    let event = r#"{"subscription":{"id":"f1c2","status":"enabled"},"event":{"challenge":"a"},"challenge":"b"}"#;
    assert_eq!(post(event, "webhook_callback_verification").await.body, "handled");
}

#[tokio::test]
async fn a_signed_body_without_events_is_answered_and_one_with_events_is_handled() {
    for scheme in ["xero", "line", "asana"] {
        let receiver = Receiver::of(scheme).await;
        let empty = r#"{"events":[],"firstEventSequence":0}"#;
        for _ in 0..2 {
            let answer = receiver.server.post(signed(scheme, TEXT_SECRET, empty), empty).await;
            assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0), "{scheme}");
        }
        let forged = signed(scheme, "another secret text", empty);
        let refused = receiver.server.post(forged, empty).await;
        assert_eq!((refused.status, refused.body.len()), (StatusCode::UNAUTHORIZED, 0), "{scheme}");
        assert!(!["www-authenticate", "content-type"].iter().any(|name| refused.headers.contains_key(*name)));
        receiver.has_nothing().await;
        let event = r#"{"events":[{"id":1}]}"#;
        assert_eq!(receiver.server.post(signed(scheme, TEXT_SECRET, event), event).await.body, "handled", "{scheme}");
    }
}

#[tokio::test]
async fn okta_gets_its_challenge_with_the_agreed_authorization() {
    let okta = Receiver::of("okta").await;
    let ask = |pairs: &'static [(&'static str, &'static str)]| okta.ask(Method::GET, "/", headers(pairs), "");
    let answer = ask(&[("authorization", TEXT_SECRET), ("x-okta-verification-challenge", "abc_DEF-1")]).await;
    is_json(&answer, &serde_json::json!({ "verification": "abc_DEF-1" }));
    for refused in [
        ask(&[("x-okta-verification-challenge", "abc")]).await,
        ask(&[("authorization", "another secret text"), ("x-okta-verification-challenge", "abc")]).await,
    ] {
        is_refused(&refused, StatusCode::UNAUTHORIZED);
    }
    let hostile = ask(&[("authorization", TEXT_SECRET), ("x-okta-verification-challenge", "\"},{\"")]).await;
    is_refused(&hostile, StatusCode::FORBIDDEN);
    okta.has_nothing().await;
}

#[tokio::test]
async fn a_shop_may_try_an_endpoint_with_one_number_and_nothing_else() {
    let shop = Receiver::of("woocommerce").await;
    assert_eq!(shop.server.post(HeaderMap::new(), "webhook_id=17").await.status, StatusCode::OK);
    for body in ["webhook_id=17&a=b", "webhook_id=", "id=17", "{\"id\":17}", ""] {
        is_refused(&shop.server.post(HeaderMap::new(), body).await, StatusCode::UNAUTHORIZED);
    }
    let wrong = headers(&[("x-wc-webhook-signature", &STANDARD.encode([0; 32]))]);
    is_refused(&shop.server.post(wrong, "webhook_id=17").await, StatusCode::UNAUTHORIZED);
    shop.has_nothing().await;
}

#[tokio::test]
async fn asanas_secret_is_taken_while_somebody_waits_for_it_and_counts_from_then_on() {
    const TAKEN: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let (keep, kept) = std::sync::mpsc::channel();
    let registration = HookRegistration::new(move |secret| Ok(keep.send(secret.to_owned())?));
    let asana = Receiver::with(layer("asana", TEXT_SECRET).hook_registration(&registration)).await;
    let offer = |secret: &str| asana.server.post(headers(&[("x-hook-secret", secret)]), "");

    is_refused(&offer(TAKEN).await, StatusCode::FORBIDDEN);
    registration.open(Duration::from_secs(60));
    for odd in ["a b", "a:b", &"x".repeat(15), &"x".repeat(129)] {
        is_refused(&offer(odd).await, StatusCode::FORBIDDEN);
    }
    for _ in 0..2 {
        let answer = offer(TAKEN).await;
        assert_eq!(
            (answer.status, &answer.headers["x-hook-secret"]),
            (StatusCode::OK, &TAKEN.parse().expect("a value"))
        );
    }
    is_refused(&offer("somebody-elses-secret").await, StatusCode::FORBIDDEN);
    assert_eq!(kept.try_iter().collect::<Vec<_>>(), [TAKEN]);

    let event = r#"{"events":[{"action":"changed"}]}"#;
    assert_eq!(asana.server.post(signed("asana", TAKEN, event), event).await.body, "handled");
    let other = r#"{"events":[{"action":"deleted"}]}"#;
    assert_eq!(asana.server.post(signed("asana", TEXT_SECRET, other), other).await.body, "handled");

    let nobody_waits = Receiver::of("asana").await;
    is_refused(&nobody_waits.server.post(headers(&[("x-hook-secret", TAKEN)]), "").await, StatusCode::FORBIDDEN);
    nobody_waits.has_nothing().await;
}

#[tokio::test]
async fn a_stale_handshake_is_refused_and_not_put_in_quarantine() {
    let slack = Receiver::with(layer("slack", TEXT_SECRET).stale(Stale::Quarantine)).await;
    let body = r#"{"type":"url_verification","challenge":"abc"}"#;
    let mac = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[b"v0:1700000000:", body.as_bytes()]));
    let old = headers(&[("x-slack-signature", &format!("v0={mac}")), ("x-slack-request-timestamp", "1700000000")]);
    is_refused(&slack.server.post(old, body).await, StatusCode::UNAUTHORIZED);
    slack.has_nothing().await;
}

#[tokio::test]
async fn a_handshake_of_another_scheme_is_none() {
    let github = Receiver::of("github").await;
    for target in ["/?challenge=a", "/?crc_token=a", "/?hub.mode=subscribe&hub.challenge=1&hub.verify_token=x"] {
        is_refused(&github.get(target).await, StatusCode::UNAUTHORIZED);
    }
    let validation = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"a"}}"#;
    is_refused(&github.server.post(HeaderMap::new(), validation).await, StatusCode::UNAUTHORIZED);
    github.has_nothing().await;
    // Its ping is an event like any other.
    let ping = r#"{"zen":"Keep it logically awesome.","hook_id":1}"#;
    assert_eq!(github.server.post(signed("github", TEXT_SECRET, ping), ping).await.body, "handled");
    assert!(Scheme::github().handshakes().iter().all(|handshake| !handshake.is_answered()));
    assert_eq!(Scheme::named("zoom").expect("a scheme").handshakes(), [Handshake::UrlValidation]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is asked for: what comes back signed is a word, and never the text of an event.
    #[test]
    fn c037_whatever_token_is_sent_nothing_but_a_word_is_signed(token in ".{0,140}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let zoom = Receiver::of("zoom").await;
            let body = serde_json::json!({ "event": "endpoint.url_validation", "payload": { "plainToken": token } });
            let answer = zoom.server.post(HeaderMap::new(), body.to_string()).await;
            let is_word = (1..=128).contains(&token.len())
                && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte));
            let expected = if is_word { StatusCode::OK } else { StatusCode::FORBIDDEN };
            assert_eq!(answer.status, expected, "{token:?}");
        });
    }
}
