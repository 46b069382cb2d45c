//! Signatures that others computed: from providers' documents and libraries, and from Python's `hmac`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign::signature::{Head, Keyring, Message, ReplayWindow, Scheme, Signer, Verified, Verifier, VerifyError};
use countersign::{Digest, Secret, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value;

#[test]
fn standard_webhooks_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::standard(), include_str!("../vectors/standard-webhooks.json"), 33);
}

#[test]
fn svix_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::svix(), include_str!("../vectors/svix.json"), 3);
}

#[test]
fn github_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::github(), include_str!("../vectors/github.json"), 10);
}

#[test]
fn github_sha1_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::github_sha1(), include_str!("../vectors/github-sha1-legacy.json"), 2);
}

#[test]
fn stripe_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::stripe(), include_str!("../vectors/stripe.json"), 13);
}

#[test]
fn slack_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::slack(), include_str!("../vectors/slack.json"), 7);
}

#[test]
fn shopify_gets_the_verdicts_of_its_vectors() {
    check(&Scheme::shopify(), include_str!("../vectors/shopify.json"), 4);
}

#[test]
fn a_scheme_of_options_gets_the_verdicts_of_its_vectors() {
    let scheme = Scheme::hmac([("header", "x-affilentra-signature"), ("id", "x-affilentra-eventid")]);
    check(&scheme.expect("a scheme"), include_str!("../vectors/vendor-eventid-style.json"), 1);
}

#[test]
fn c001_c002_c004_c005_c007_c008_every_scheme_verifies_the_bytes_that_another_implementation_signed() {
    for vector in generated() {
        let headers = vector.headers();
        let head = Head::new(&vector.method, &vector.url, &headers);
        let verified = vector.verifier().verify_at(head, &vector.body, vector.now());
        let verified = verified.unwrap_or_else(|error| panic!("{}: {error}", vector.id));
        assert_eq!(verified.event_id().map(|id| id.as_str()), vector.event_id.as_deref(), "{}", vector.id);
        assert_eq!(verified.id_origin().as_str(), vector.id_origin, "{}", vector.id);
        let seconds = verified.timestamp().map(Timestamp::as_unix_seconds);
        assert_eq!(seconds, vector.timestamp, "{}", vector.id);
        assert_eq!(verified.secret(), 0, "{}", vector.id);
    }
}

#[test]
fn c105_every_scheme_signs_as_another_implementation_does() {
    for vector in generated() {
        let signer = Signer::new(vector.scheme(), vector.keyring()).expect("a signer");
        let headers = signer.sign(&vector.message()).unwrap_or_else(|error| panic!("{}: {error}", vector.id));
        let written: Vec<_> = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let expected: Vec<_> = vector.headers().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        assert_eq!(written, expected, "{}", vector.id);
    }
}

#[test]
fn c002_no_signature_fits_the_body_of_another_vector() {
    let vectors = generated();
    for one in &vectors {
        let (verifier, headers) = (one.verifier(), one.headers());
        for other in vectors.iter().filter(|other| other.body != one.body) {
            let head = Head::new(&one.method, &one.url, &headers);
            let refused = verifier.verify_at(head, &other.body, one.now());
            assert!(matches!(refused, Err(VerifyError::Mismatch { .. })), "{} with {}", one.id, other.id);
        }
    }
}

#[test]
fn the_body_may_arrive_in_any_pieces() {
    for vector in generated() {
        for size in [1, 7, 64] {
            let headers = vector.headers();
            let verifier = vector.verifier();
            let mut check = verifier.begin(Head::new(&vector.method, &vector.url, &headers)).expect("good headers");
            for chunk in vector.body.chunks(size) {
                check.update(chunk);
            }
            assert!(check.finish_at(&vector.body, vector.now()).is_ok(), "{} by {size}", vector.id);
        }
    }
}

#[test]
fn c004_a_replacement_character_is_not_the_byte_it_replaces() {
    let vector = generated().into_iter().find(|vector| vector.id == "github-not-utf8").expect("the vector");
    let replaced = String::from_utf8_lossy(&vector.body).into_owned();
    assert_eq!(replaced.len(), vector.body.len() + 2);
    let headers = vector.headers();
    let head = Head::new(&vector.method, &vector.url, &headers);
    let refused = vector.verifier().verify_at(head, replaced.as_bytes(), vector.now()).err();
    assert_eq!(refused, Some(VerifyError::Mismatch { tried: 1 }));
}

/// One request with its verdict.
#[derive(Deserialize)]
struct Vector {
    id: String,
    method: String,
    url: String,
    headers: BTreeMap<String, Value>,
    body_base64: String,
    secret: String,
    secrets: Option<Vec<String>>,
    now_unix: i64,
    tolerance_s: Option<u64>,
    expect: String,
    event_id: Option<String>,
    event_id_signed: Option<bool>,
}

fn check(scheme: &Scheme, text: &str, count: usize) {
    let vectors: Vec<Vector> = serde_json::from_str(text).expect("vectors");
    assert_eq!(vectors.len(), count, "vectors of {}", scheme.name());
    for vector in vectors {
        let id = &vector.id;
        match (vector.expect.as_str(), run(scheme, &vector)) {
            ("valid", Ok(verified)) => {
                assert_eq!(verified.event_id().map(|id| id.as_str()), vector.event_id.as_deref(), "{id}");
                assert_eq!(verified.id_origin().is_signed(), vector.event_id_signed.unwrap_or(false), "{id}");
                if vector.event_id_signed != Some(true) {
                    let key = verified.dedup_key(&Digest::of(b"body"));
                    assert!(key.as_str().starts_with("sha256:"), "{id}: an unsigned id is no key");
                }
            }
            ("stale", Err(Refused::Request(error))) => assert!(error.is_stale(), "{id}: {error}"),
            ("invalid", Err(Refused::Request(error))) => assert_eq!(error.reason(), "mismatch", "{id}: {error}"),
            // Nothing verifies with a secret that could not be built.
            ("invalid", Err(Refused::Secret)) => {}
            ("malformed", Err(Refused::Request(error))) => {
                assert!(["malformed", "missing_header", "duplicate_header"].contains(&error.reason()), "{id}: {error}");
            }
            (expected, found) => panic!("{id}: {expected} expected, found {found:?}"),
        }
    }
}

#[derive(Debug)]
enum Refused {
    Secret,
    Request(VerifyError),
}

fn run(scheme: &Scheme, vector: &Vector) -> Result<Verified, Refused> {
    let texts = vector.secrets.clone().unwrap_or_else(|| vec![vector.secret.clone()]);
    let secrets: Result<Vec<Secret>, _> = texts.iter().map(|text| scheme.parse_secret(text)).collect();
    let keyring = Keyring::from_secrets(secrets.map_err(|_| Refused::Secret)?).expect("a keyring");
    let mut verifier = Verifier::new(scheme.clone(), keyring).expect("a verifier");
    assert_eq!(verifier.window().is_some(), vector.tolerance_s.is_some(), "{}", vector.id);
    if let Some(seconds) = vector.tolerance_s {
        verifier = verifier.with_window(ReplayWindow::symmetric(Duration::from_secs(seconds)));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &vector.headers {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            headers.append(header_name(name), header_value(value.as_str().expect("a header's value")));
        }
    }
    let method = vector.method.parse::<Method>().expect("a method");
    let body = STANDARD.decode(&vector.body_base64).expect("a body");
    let now = Timestamp::from_unix_seconds(vector.now_unix).expect("a moment");
    verifier.verify_at(Head::new(&method, &vector.url, &headers), &body, now).map_err(Refused::Request)
}

/// One signed message of `generate.py`.
struct Generated {
    id: String,
    scheme: String,
    options: Vec<(String, String)>,
    secrets: Vec<String>,
    method: Method,
    url: String,
    body: Vec<u8>,
    headers: Vec<(String, String)>,
    event_type: Option<String>,
    content_type: Option<String>,
    event_id: Option<String>,
    id_origin: String,
    timestamp: Option<i64>,
    now_ms: i64,
}

impl Generated {
    fn scheme(&self) -> Scheme {
        match self.scheme.as_str() {
            "hmac" => Scheme::hmac(self.options.iter().map(|(option, value)| (option, value))).expect("a scheme"),
            name => Scheme::named(name).expect("a preset"),
        }
    }

    fn keyring(&self) -> Keyring {
        let scheme = self.scheme();
        let secrets = self.secrets.iter().map(|text| scheme.parse_secret(text).expect("a secret"));
        Keyring::from_secrets(secrets).expect("a keyring")
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(self.scheme(), self.keyring()).expect("a verifier")
    }

    fn headers(&self) -> HeaderMap {
        self.headers.iter().map(|(name, value)| (header_name(name), header_value(value))).collect()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.now_ms).expect("a moment")
    }

    fn message(&self) -> Message<'_> {
        Message {
            id: self.event_id.as_deref(),
            event_type: self.event_type.as_deref(),
            content_type: self.content_type.as_deref(),
            ..Message::new(self.now(), &self.body).with_target(&self.method, &self.url)
        }
    }
}

fn generated() -> Vec<Generated> {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("../vectors/generated.json")).expect("vectors");
    assert!(vectors.len() > 200);
    let text = |vector: &Value, name: &str| vector[name].as_str().map(str::to_owned);
    let read = |vector: &Value| Generated {
        id: text(vector, "id").expect("an id"),
        scheme: text(vector, "scheme").expect("a scheme"),
        options: vector["options"].as_object().map(pairs).unwrap_or_default(),
        secrets: serde_json::from_value(vector["secrets"].clone()).expect("secrets"),
        method: text(vector, "method").unwrap_or_else(|| "POST".into()).parse().expect("a method"),
        url: text(vector, "url").unwrap_or_default(),
        body: from_hex(vector["body"].as_str().expect("a body")),
        headers: serde_json::from_value(vector["headers"].clone()).expect("headers"),
        event_type: text(vector, "event_type"),
        content_type: text(vector, "content_type"),
        event_id: text(vector, "event_id"),
        id_origin: text(vector, "id_origin").expect("an origin"),
        timestamp: vector["timestamp"].as_i64(),
        now_ms: vector["now_ms"].as_i64().expect("a moment"),
    };
    vectors.iter().map(read).collect()
}

fn pairs(options: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("an option's value").to_owned();
    options.iter().map(|(option, value)| (option.clone(), text(value))).collect()
}

fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

fn header_name(name: &str) -> HeaderName {
    name.parse().expect("a header's name")
}

fn header_value(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).expect("a header's value")
}
