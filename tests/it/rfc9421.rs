//! HTTP Message Signatures, from outside: the RFC's own requests, through the layer, and by the program.

use std::sync::Arc;

use axum::Router;
use countersign::receive::{DedupLayer, VerifyLayer};
use countersign::signature::{Head, Keyring, Message, Scheme, Signer, Verifier};
use countersign::store::{InboxStore, MemoryStore};
use countersign::{Clock as _, ConfigError, SystemClock, Timestamp};
use http::{HeaderMap, Method, StatusCode};

use proptest::prelude::*;

use crate::cli::countersign as program;
use crate::support::{Calls, Server};
use crate::vector::vectors;

/// The shared secret of RFC 9421, appendix B.1.5, and the private key of B.1.4 with its public half.
const HMAC: &str = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";
const ED25519_PRIVATE: &str = "whsk_n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=";
const ED25519_PUBLIC: &str = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=";

const URL: &str = "https://hooks.example.com/in?a=1";
const BODY: &[u8] = br#"{"a":"\u00e9","b":1}"#;

fn scheme(options: &[(&str, &str)]) -> Scheme {
    Scheme::rfc9421(options.iter().copied()).expect("a scheme")
}

fn keyring(scheme: &Scheme, secret: &str) -> Keyring {
    Keyring::new(scheme.parse_secret(secret).expect("a secret"))
}

fn sign(scheme: &Scheme, secret: &str, message: &Message<'_>) -> HeaderMap {
    Signer::new(scheme.clone(), keyring(scheme, secret)).expect("a signer").sign(message).expect("headers")
}

#[test]
fn the_requests_of_the_rfc_are_accepted_and_signed_to_the_letter() {
    let hmac = scheme(&[("components", "date @authority content-type")]);
    for vector in vectors("rfc9421-hmac") {
        assert!(vector.run(&hmac).is_ok(), "{}", vector.id);
    }
    let ed25519 = scheme(&[
        ("components", "date @method @path @authority content-type content-length"),
        ("algorithm", "ed25519"),
    ]);
    for vector in vectors("rfc9421-ed25519") {
        assert_eq!(vector.run(&ed25519).is_ok(), vector.expect == "valid", "{}", vector.id);
    }
    // The key of B.1.4 is that of the signature in B.2.6: its private half gives the public one.
    let own = scheme(&[("algorithm", "ed25519")]);
    let now = SystemClock.now();
    let headers = sign(&own, ED25519_PRIVATE, &Message::new(now, BODY).with_target(&Method::POST, URL));
    let verifier = Verifier::new(own.clone(), keyring(&own, ED25519_PUBLIC)).expect("a verifier");
    assert!(verifier.verify_at(Head::new(&Method::POST, URL, &headers), BODY, now).is_ok());
}

#[test]
fn where_the_body_is_not_covered_another_body_is_no_other_event() {
    let open = scheme(&[("components", "@method date")]);
    assert!(scheme(&[]).signs_url() && !open.signs_url());
    let vector = &vectors("rfc9421-hmac")[0];
    let uncovered = scheme(&[("components", "date")]);
    let secrets = vector.secrets(&uncovered).expect("secrets");
    let verifier = vector.verifier_with(&uncovered, secrets);
    let (method, headers) = (vector.method(), vector.headers());
    let key = |body: &[u8]| {
        let verified = verifier.verify_at(Head::new(&method, &vector.url, &headers), body, vector.now());
        verified.expect("a right signature").dedup_key(&countersign::Digest::of(body))
    };
    assert_eq!(key(b"one"), key(b"two"));
}

#[test]
fn a_signature_is_one_of_the_key_and_algorithm_that_were_agreed_on() {
    let hmac = scheme(&[]);
    let ed25519 = scheme(&[("algorithm", "ed25519")]);
    let now = SystemClock.now();
    let message = Message::new(now, BODY).with_target(&Method::POST, URL);
    // With the public key as the secret of an HMAC, which anybody could compute.
    let forged = sign(&hmac, ED25519_PUBLIC, &message);
    let verifier = Verifier::new(ed25519.clone(), keyring(&ed25519, ED25519_PUBLIC)).expect("a verifier");
    assert!(verifier.verify_at(Head::new(&Method::POST, URL, &forged), BODY, now).is_err());
    let public_only = Signer::new(ed25519.clone(), keyring(&ed25519, ED25519_PUBLIC)).expect("a signer");
    assert!(public_only.sign(&message).is_err());
    assert!(matches!(Scheme::rfc9421([("algorithm", "none")]), Err(ConfigError::SchemeOption { .. })));
}

#[test]
fn each_algorithm_signs_what_it_accepts() {
    const P256: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyChRANCAARRXD1uueOWuQTT/sp/VP3NDMHpl783XcpRWtCmw7QDX0U2vjpQ8xj7+aVHWQKiIVAr7w1X4IxTsswKVvF9n5NU";
    for (algorithm, secret) in [("hmac-sha256", HMAC), ("ed25519", ED25519_PRIVATE), ("ecdsa-p256-sha256", P256)] {
        for digest in ["sha-256", "sha-512"] {
            let scheme = scheme(&[("algorithm", algorithm), ("digest", digest), ("id", "nonce"), ("keyid", "k1")]);
            let now = SystemClock.now();
            let message = Message::new(now, BODY).with_id("evt_1").with_target(&Method::PUT, URL);
            let headers = sign(&scheme, secret, &message);
            let verifier = Verifier::new(scheme.clone(), keyring(&scheme, secret)).expect("a verifier");
            let verified = verifier.verify_at(Head::new(&Method::PUT, URL, &headers), BODY, now);
            let verified = verified.unwrap_or_else(|error| panic!("{algorithm} {digest}: {error}"));
            assert_eq!(verified.event_id().map(|id| id.as_str()), Some("evt_1"));
            assert!(verified.id_origin().is_signed());
            assert!(verifier.verify_at(Head::new(&Method::POST, URL, &headers), BODY, now).is_err());
            assert!(verifier.verify_at(Head::new(&Method::PUT, URL, &headers), b"{}", now).is_err());
        }
    }
}

#[tokio::test]
async fn the_layer_lets_each_event_through_once_and_none_that_was_changed() {
    let scheme = scheme(&[("id", "x-event-id")]);
    let verifier = Verifier::new(scheme.clone(), keyring(&scheme, HMAC)).expect("a verifier");
    let layer = VerifyLayer::builder("test", verifier).public_url("https://hooks.example.com");
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
    let handled = Calls::default();
    let counted = handled.clone();
    let app = Router::new().fallback(move || {
        counted.count();
        async {}
    });
    let server = Server::with(app, layer, DedupLayer::builder(Arc::clone(&store)), store).await;

    let signed =
        |at: Timestamp| sign(&scheme, HMAC, &Message::new(at, BODY).with_id("evt_1").with_target(&Method::POST, URL));
    let now = SystemClock.now();
    assert_eq!(server.post_to("/in?a=1", signed(now), BODY).await.status, StatusCode::OK);
    // Another attempt has another signature, and is the same event.
    let again = server.post_to("/in?a=1", signed(now.saturating_add(std::time::Duration::from_secs(1))), BODY).await;
    assert_eq!((again.status, again.headers.contains_key("idempotent-replayed")), (StatusCode::OK, true));
    assert!(server.receipt("evt_1").await.is_some());

    let mut other_id = signed(now);
    other_id.insert("x-event-id", "evt_2".parse().expect("a value"));
    for (target, headers, body) in [
        ("/in?a=2", signed(now), BODY),
        ("/in?a=1", other_id, BODY),
        ("/in?a=1", signed(now), b"{}".as_slice()),
        ("/in?a=1", HeaderMap::new(), BODY),
    ] {
        assert_eq!(server.post_to(target, headers, body).await.status, StatusCode::UNAUTHORIZED, "{target}");
    }
    assert_eq!(handled.so_far(), 1);
}

#[test]
fn the_program_signs_and_verifies_with_the_options_of_the_scheme() {
    let options = [
        "--scheme",
        "rfc9421",
        "--secret-env",
        "RFC_SECRET",
        "--body",
        "-",
        "--json",
        "--url",
        URL,
        "--option",
        "components=@method @target-uri content-digest content-type",
        "--option",
        "id=nonce",
        "--option",
        "keyid=k1",
    ];
    let call = |command: &str| program([command]).args(options).env("RFC_SECRET", HMAC).stdin(BODY);
    let signed = call("sign").args(["--id", "evt_1"]).run().exits(0).json();
    let headers: Vec<String> = signed["headers"]
        .as_object()
        .expect("headers")
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.as_str().expect("a value")))
        .collect();
    assert_eq!(headers.len(), 4, "{headers:?}");
    let valid = call("verify").headers(&headers).run().exits(0).json();
    assert_eq!((&valid["event_id"], &valid["id_origin"]), (&"evt_1".into(), &"signed_header".into()));
    let changed = call("verify").headers(&headers).stdin(b"{}").run().exits(1).json();
    assert_eq!(changed["reason"], "mismatch");
    let without_url = program(["verify", "--scheme", "rfc9421", "--secret-env", "RFC_SECRET", "--body", "-"]);
    without_url.env("RFC_SECRET", HMAC).run().exits(2).says("--url");
    let odd =
        program(["verify", "--scheme", "rfc9421", "--secret-env", "RFC_SECRET", "--body", "-", "--option", "a=b"]);
    odd.env("RFC_SECRET", HMAC).run().exits(2).says("there is no such option");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever stands in the two headers: it is refused in words, and nothing that was not signed goes through.
    #[test]
    fn no_text_in_the_headers_makes_a_verifier_panic_or_accept(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("sig1="), Just("("), Just(")"), Just("\"@method\""), Just("\"@target-uri\""),
                Just("\"content-digest\""), Just("\"@query-param\""), Just(";name=\"a\""), Just(" "), Just(","),
                Just(";created=1700000000"), Just(";created=-1"), Just(";expires=99999999999999999"), Just(";nonce=\"n\""),
                Just(";alg=\"hmac-sha256\""), Just(";alg=\"none\""), Just("?1"), Just(":AAAA:"), Just("\u{7f}"), Just("\""),
            ],
            0..12,
        ),
        signature in "sig1=:[A-Za-z0-9+/]{43}=:|[ -~]{0,40}",
        digest in "sha-(256|512)=:[A-Za-z0-9+/=]{0,88}:|[ -~]{0,40}",
    ) {
        let scheme = scheme(&[]);
        let verifier = Verifier::new(scheme.clone(), keyring(&scheme, HMAC)).expect("a verifier");
        let mut headers = HeaderMap::new();
        for (name, text) in [("signature-input", pieces.concat()), ("signature", signature), ("content-digest", digest)] {
            if let Ok(value) = http::HeaderValue::from_bytes(text.as_bytes()) {
                headers.insert(name, value);
            }
        }
        let now = Timestamp::from_unix_seconds(1_700_000_000).expect("a moment");
        prop_assert!(verifier.verify_at(Head::new(&Method::POST, URL, &headers), BODY, now).is_err());
    }
}
