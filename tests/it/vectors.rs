//! Signatures that others computed: from providers' documents and libraries, and from Python's `hmac`.

use std::fs;

use countersign::signature::{Head, Keyring, Message, Scheme, Signer, Verifier, VerifyError};
use countersign::{Digest, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;

use crate::vector::{Refused, Vector, folder, vectors};

#[test]
fn every_scheme_gets_the_verdicts_of_its_vectors() {
    let mut faults = Vec::new();
    let mut count = 0;
    for scheme in Scheme::all() {
        for vector in vectors(scheme.name()) {
            count += 1;
            faults.extend(fault(&scheme, &vector));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    assert!(count >= 240, "{count} vectors");
}

#[test]
fn every_scheme_has_a_file_of_vectors_and_every_file_a_scheme() {
    let files = fs::read_dir(folder()).expect("the vectors").map(|entry| entry.expect("a file").path());
    let json = files.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let mut files: Vec<String> = json.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    // Schemes that are built from options, and the messages of `generate.py`.
    files.retain(|name| !["hmac", "generated"].contains(&name.as_str()) && !name.starts_with("rfc9421-"));
    files.sort();
    let mut names: Vec<String> = Scheme::all().map(|scheme| scheme.name().to_owned()).collect();
    names.sort();
    assert_eq!(files, names);
    for name in names {
        let vectors = vectors(&name);
        assert!(vectors.iter().any(|vector| vector.expect == "valid"), "{name} has no valid request");
    }
}

#[test]
fn a_scheme_of_options_gets_the_verdicts_of_its_vectors() {
    let scheme = Scheme::hmac([("header", "x-affilentra-signature"), ("id", "x-affilentra-eventid")]);
    let scheme = scheme.expect("a scheme");
    let faults: Vec<String> = vectors("hmac").iter().filter_map(|vector| fault(&scheme, vector)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
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

/// What is wrong with the verdict on a request.
fn fault(scheme: &Scheme, vector: &Vector) -> Option<String> {
    let found = vector.run(scheme);
    let right = match (vector.expect.as_str(), &found) {
        ("valid", Ok(verified)) => {
            let unsigned = vector.event_id_signed != Some(true);
            let by_digest = verified.dedup_key(&Digest::of(b"body")).as_str().starts_with("sha256:");
            verified.event_id().map(|id| id.as_str()) == vector.event_id.as_deref()
                && verified.id_origin().is_signed() != unsigned
                // An unsigned id is no key.
                && (by_digest || !unsigned)
        }
        ("stale", Err(Refused::Request(error))) => error.is_stale(),
        ("invalid", Err(Refused::Request(error))) => error.reason() == "mismatch",
        // Nothing verifies with a secret that could not be built.
        ("invalid", Err(Refused::Secret)) => true,
        ("malformed", Err(Refused::Request(error))) => {
            ["malformed", "missing_header", "duplicate_header"].contains(&error.reason())
        }
        _ => false,
    };
    (!right).then(|| format!("{} of {}: {} expected, found {found:?}", vector.id, scheme.name(), vector.expect))
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
