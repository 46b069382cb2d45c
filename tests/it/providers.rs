//! What every row of the table of providers has to stand, generated from the table: a new row is tried as soon as it is
//! there.
//!
//! Requests are signed by the crate's own signer; that it signs as the providers do is what `vectors.rs` shows. Where the
//! signature stands in the body, the requests are those of the vectors.

use std::fs;
use std::path::Path;

use countersign::signature::{
    Algorithm, Encoding, Head, IdOrigin, Keyring, Message, SignError, Signer, Verified, Verifier, VerifyError,
};
use countersign::{DedupKey, Digest, Scheme, Secret, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::keys::{other_secret, secret, texts};
use crate::vector::vectors;

const NOW: i64 = 1_700_000_000;
const URL: &str = "https://hooks.example.com/in?a=1%2F2";
const ID: &str = "msg_1";

/// Has every field that some scheme looks for.
const BODY: &[u8] = br#"{"id":"evt_1","event_id":"Ev1","eventId":"e","event":{"id":"n"},"action":{"id":"a"},"webhookTimestamp":1700000000000,"events":[1]}"#;

#[test]
fn every_row_accepts_what_it_signs_whole_or_in_pieces() {
    for request in requests() {
        let verified = request.verify().unwrap_or_else(|error| panic!("{}: {error}", request.name()));
        assert_eq!(verified.secret(), 0, "{}", request.name());
        assert_eq!(verified.scheme_name(), request.scheme.name());
        assert_eq!(verified.timestamp().is_some(), request.scheme.signs_timestamp(), "{}", request.name());
        for size in [1, 7, 64] {
            let mut check = request.verifier.begin(request.head()).expect("good headers");
            request.body.chunks(size).for_each(|piece| check.update(piece));
            let pieces = check.finish_at(&request.body, request.now).expect("a right signature");
            assert_eq!(pieces.event_id(), verified.event_id(), "{} by {size}", request.name());
        }
    }
}

#[test]
fn every_row_says_truly_where_its_ids_come_from() {
    for request in requests() {
        let verified = request.verify().expect("a right signature");
        let list = request.scheme.name() == "sendgrid";
        let expected = if list { IdOrigin::None } else { request.scheme.id_origin() };
        assert_eq!(verified.id_origin(), expected, "{}", request.name());
        assert_eq!(verified.event_id().is_some(), expected != IdOrigin::None, "{}", request.name());
        let by_id = verified.event_id().filter(|_| expected.is_signed()).map(DedupKey::from_id);
        let key = request.key(&verified);
        assert!(Some(&key) == by_id.as_ref() || key.as_str().starts_with("sha256:"), "{}", request.name());
        assert_eq!(verified.is_known_by_id(), Some(&key) == by_id.as_ref(), "{}", request.name());
    }
}

#[test]
fn c001_no_row_accepts_a_body_with_a_flipped_bit() {
    for request in requests() {
        let key = request.key(&request.verify().expect("a right signature"));
        for at in 0..request.body.len() {
            let changed = Request { body: flipped(&request.body, at), ..request.clone() };
            let verdict = changed.verify();
            if request.scheme.signed_text().contains("{body}") || request.scheme.algorithm() == Algorithm::EcdsaP256 {
                assert_reason(&verdict, &["mismatch"], &request, "body", at);
            } else if request.scheme.algorithm() == Algorithm::Token {
                // The body is not covered; the page of the scheme says so.
                assert!(
                    verdict.is_ok_and(|verified| changed.key(&verified) != DedupKey::from_digest(&Digest::of(b"")))
                );
            } else if let Ok(verified) = verdict {
                // What is not covered does not make another event of it.
                assert_eq!(changed.key(&verified), key, "{} at {at}", request.name());
            }
        }
    }
}

#[test]
fn c002_no_row_accepts_a_header_with_a_flipped_bit() {
    for request in requests() {
        let key = request.key(&request.verify().expect("a right signature"));
        for (name, value) in &request.headers {
            for at in 0..value.len() {
                let changed = flipped(value.as_bytes(), at);
                let Ok(text) = HeaderValue::from_bytes(&changed) else { continue };
                let verdict = request.clone().with(name, text).verify();
                let hex = request.scheme.encoding() == Encoding::Hex || name == "x-hubspot-signature";
                if request.is_label(name) {
                    let verified = verdict.expect("a label refuses nothing");
                    assert_eq!(request.key(&verified), key, "{} {name}", request.name());
                } else if hex
                    && request.scheme.is_signature_header(name)
                    && changed.eq_ignore_ascii_case(value.as_bytes())
                {
                    // Hex is read in either case, names are not.
                    assert!(verdict.is_ok() || !changed[at].is_ascii_hexdigit() || changed[at] != value.as_bytes()[at]);
                } else {
                    assert!(verdict.is_err(), "{} {name} at {at}", request.name());
                }
            }
        }
    }
}

#[test]
fn c024_c032_a_header_that_is_missing_empty_doubled_or_cut_is_refused_by_every_row() {
    for request in requests() {
        for (name, value) in &request.headers {
            let twice = {
                let mut twice = request.clone();
                twice.headers.append(name, value.clone());
                twice.verify()
            };
            // Lines of a structured field are one list, in which a label may not stand twice.
            let is_list = request.name() == "rfc9421" && ["signature", "signature-input"].contains(&name.as_str());
            let expected = if is_list { "malformed" } else { "duplicate_header" };
            assert_reason(&twice, &[expected], &request, name.as_str(), 2);
            if request.is_label(name) {
                continue;
            }
            let mut missing = request.clone();
            missing.headers.remove(name);
            assert_reason(&missing.verify(), &["missing_header"], &request, name.as_str(), 0);
            let empty = request.clone().with(name, HeaderValue::from_static("")).verify();
            assert_reason(&empty, &["malformed"], &request, name.as_str(), 0);
            for length in 1..value.len() {
                let cut = HeaderValue::from_bytes(&value.as_bytes()[..length]).expect("a header's value");
                let cut = request.clone().with(name, cut).verify();
                assert_reason(&cut, &["malformed", "mismatch"], &request, name.as_str(), length);
            }
        }
    }
}

#[test]
fn c046_c047_every_row_holds_its_window_on_both_sides_and_in_its_own_unit() {
    for request in requests() {
        let now = request.now.as_unix_seconds();
        let Some(window) = request.verifier.window() else {
            assert!(request.at(4_000_000_000).is_ok(), "{}", request.name());
            continue;
        };
        let limit = i64::try_from(window.past().as_secs()).expect("seconds");
        let sent = request.verify().expect("a right signature").timestamp().expect("a timestamp").as_unix_seconds();
        for (moment, expected) in [
            (sent + limit, "valid"),
            (sent + limit + 1, "too_old"),
            (sent - limit, "valid"),
            (sent - limit - 1, "too_new"),
            (sent * 1_000, "too_old"),
            (sent / 1_000, "too_new"),
            (now + 315_360_000, "too_old"),
            (now - 315_360_000, "too_new"),
        ] {
            let verdict = request.at(moment);
            assert_eq!(reason(&verdict), expected, "{} at {moment}", request.name());
        }
    }
}

#[test]
fn c014_every_row_refuses_another_secret_and_knows_the_second_of_two() {
    for request in requests() {
        let (right, wrong) = (request.secret.clone(), other_secret(&request.scheme));
        let wrong_only = request.verifier_with([wrong.clone()]);
        let verdict = wrong_only.verify_at(request.head(), &request.body, request.now);
        assert_eq!(reason(&verdict), "mismatch", "{}", request.name());
        let both = request.verifier_with([wrong, right]);
        let verified = both.verify_at(request.head(), &request.body, request.now);
        assert_eq!(verified.map(|verified| verified.secret()), Ok(1), "{}", request.name());
    }
}

#[test]
fn c004_c005_every_row_takes_bodies_that_are_empty_or_no_text() {
    for scheme in Scheme::all().filter(|scheme| !scheme.is_in_body()) {
        for body in [&b""[..], b"\0", b"{\"a\":\"\xff\",\"webhookTimestamp\":1700000000000}", b"\xff\xfe\r\n"] {
            match signed(&scheme, body) {
                Ok(request) => {
                    assert!(request.verify().is_ok(), "{} {body:?}", scheme.name());
                    let longer = Request { body: [body, b"x"].concat(), ..request.clone() };
                    let covered = scheme.algorithm() != Algorithm::Token;
                    assert_eq!(longer.verify().is_err(), covered, "{} {body:?}", scheme.name());
                }
                // The timestamp is in the body, and there is none.
                Err(error) => assert!(matches!(error, SignError::Body(_)), "{}: {error}", scheme.name()),
            }
        }
    }
    for request in requests().into_iter().filter(|request| request.scheme.is_in_body()) {
        for body in [&b""[..], b"\xff", b"[]", b"{}"] {
            let verdict = Request { body: body.to_vec(), ..request.clone() }.verify();
            assert_reason(&verdict, &["malformed"], &request, "body", body.len());
        }
    }
}

#[test]
fn no_row_signs_for_the_provider_where_only_that_can() {
    for scheme in Scheme::all().filter(Scheme::is_in_body) {
        assert!(matches!(signed(&scheme, BODY), Err(SignError::InBody)), "{}", scheme.name());
    }
    let scheme = Scheme::named("standard-ed25519").expect("a scheme");
    let public = scheme.parse_secret("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=").expect("a key");
    let signer = Signer::new(scheme, Keyring::new(public)).expect("a signer");
    assert_eq!(signer.sign(&message(BODY)).err(), Some(SignError::PublicKeyOnly));
}

#[test]
fn a_public_key_is_no_secret_of_a_scheme_with_shared_ones() {
    let ed25519 = Scheme::named("discord").expect("a scheme");
    let public = "89cd7489bf665a36667ba46dfd521ca6713fd2f9ad842835340b244e98355f2a";
    let key = ed25519.parse_secret(public).expect("a key");
    let refused = Verifier::new(Scheme::github(), Keyring::new(key)).expect_err("a public key");
    assert!(refused.to_string().contains("no key for hmac-sha256"), "{refused}");
}

#[test]
fn equal_requests_are_events_of_their_own_where_providers_send_them_on_purpose() {
    let later = |request: &Request| {
        let [first, second] = [NOW, NOW + 1].map(|moment| {
            let moment = Timestamp::from_unix_seconds(moment).expect("a moment");
            let verified = request.verifier.verify_at(request.head(), &request.body, moment).expect("a signature");
            (request.key(&verified), request.key(&verified))
        });
        assert_eq!((&first.0, &second.0), (&first.1, &second.1), "a key does not change");
        first.0 != second.0
    };
    let request = |name: &str, body: &[u8]| signed(&Scheme::named(name).expect("a scheme"), body).expect("headers");
    assert!(later(&request("dropbox", br#"{"list_folder":{"accounts":["dbid:A"]}}"#)));
    assert!(later(&request("asana", br#"{"events":[]}"#)));
    assert!(!later(&request("asana", br#"{"events":[{"action":"changed"}]}"#)));
    assert!(!later(&request("github", br#"{"events":[]}"#)));
}

#[test]
fn c016_a_signed_id_goes_before_a_label() {
    let scheme = Scheme::named("box").expect("a scheme");
    let verified = signed(&scheme, br#"{"id":"evt_1"}"#).expect("headers").verify().expect("a signature");
    assert_eq!(
        (verified.event_id().map(|id| id.as_str()), verified.id_origin()),
        (Some("evt_1"), IdOrigin::SignedBody)
    );
    let verified = signed(&scheme, b"{}").expect("headers").verify().expect("a signature");
    assert_eq!((verified.event_id().map(|id| id.as_str()), verified.id_origin()), (Some(ID), IdOrigin::Unsigned));
}

#[test]
fn an_adyen_event_is_known_by_all_that_is_signed_of_it() {
    let request = requests().into_iter().find(|request| request.scheme.name() == "adyen-notification");
    let request = request.expect("the vector");
    let key = request.key(&request.verify().expect("a signature"));
    let text = String::from_utf8(request.body.clone()).expect("text");
    let with = |from: &str, to: &str| Request { body: text.replace(from, to).into_bytes(), ..request.clone() };
    let unsigned = with("\"visa\"", "\"mc\"");
    assert_eq!(unsigned.key(&unsigned.verify().expect("not covered")), key);
    for (from, to) in [("AUTHORISATION", "CAPTURE"), ("\"true\"", "\"false\""), ("1130", "1131"), ("EUR", "USD")] {
        assert_eq!(reason(&with(from, to).verify()), "mismatch", "{from}");
    }
    // A second item, whose signature nobody would check.
    let item = &text[text.find("[{").expect("items") + 1..text.rfind("]}").expect("items")];
    assert_eq!(reason(&with(item, &format!("{item},{item}")).verify()), "malformed");
    assert_eq!(reason(&with("TestMerchant", "Test:Merchant").verify()), "malformed");
}

#[test]
fn a_weaker_hubspot_signature_is_refused_beside_a_stronger_one() {
    for name in ["hubspot-v1", "hubspot-v2"] {
        let request = signed(&Scheme::named(name).expect("a scheme"), BODY).expect("headers");
        let stronger = HeaderName::from_static("x-hubspot-signature-v3");
        assert_eq!(reason(&request.with(&stronger, HeaderValue::from_static("x")).verify()), "unsupported");
    }
}

#[test]
fn a_token_for_plaid_never_chooses_its_algorithm() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let request = signed(&Scheme::named("plaid").expect("a scheme"), BODY).expect("headers");
    let name = HeaderName::from_static("plaid-verification");
    let token = request.headers[&name].to_str().expect("text").to_owned();
    let (_, rest) = token.split_once('.').expect("three parts");
    for header in [
        r#"{"alg":"none","kid":"k7"}"#,
        r#"{"alg":"HS256","kid":"k7"}"#,
        r#"{"alg":"ES256"}"#,
        r#"{"alg":"ES256","kid":"k7","crit":["b64"]}"#,
        r#"["ES256"]"#,
    ] {
        let token = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header));
        let verdict = request.clone().with(&name, HeaderValue::try_from(token).expect("a header's value")).verify();
        assert_eq!(reason(&verdict), "malformed", "{header}");
    }
    let unsigned = format!("{}.", token.rsplit_once('.').expect("three parts").0);
    assert_eq!(reason(&request.with(&name, HeaderValue::try_from(unsigned).expect("a value")).verify()), "malformed");
}

#[test]
fn every_row_that_signs_in_a_header_is_detected_by_its_requests() {
    for request in requests().into_iter().filter(|request| !request.scheme.is_in_body()) {
        let found: Vec<_> = Scheme::detect(&request.headers).iter().map(Scheme::name).collect();
        assert!(found.contains(&request.name()), "{} among {found:?}", request.name());
    }
    let first = |name: &str| {
        let request = signed(&Scheme::named(name).expect("a scheme"), BODY).expect("headers");
        Scheme::detect(&request.headers).first().map(Scheme::name)
    };
    for name in ["standard", "github", "github-sha1", "bitbucket", "stripe", "slack", "svix", "twitch", "box", "plaid"]
    {
        assert_eq!(first(name), Some(name));
    }
    assert!(Scheme::detect(&HeaderMap::new()).is_empty());
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer x"));
    headers.insert("x-hub-signature-256", HeaderValue::from_static("garbled"));
    assert_eq!(Scheme::detect(&headers)[0].name(), "github", "a signature that cannot be read still has its name");
}

#[test]
fn the_guide_is_written_from_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/providers.md");
    let expected = guide();
    if std::env::var_os("COUNTERSIGN_WRITE_GUIDE").is_some() {
        fs::write(&path, &expected).expect("to write the guide");
    }
    let found = fs::read_to_string(&path).expect("the guide");
    assert!(found == expected, "run this test once with COUNTERSIGN_WRITE_GUIDE=1");
}

fn guide() -> String {
    let mut guide = include_str!("../../src/guide/providers.head.md").to_owned();
    guide.push_str("\n| scheme | provider | algorithm | timestamp | event id |\n|---|---|---|---|---|\n");
    for scheme in Scheme::all() {
        let (name, provider) = (scheme.name(), scheme.provider());
        let anchor = format!("{provider}-{name}").to_lowercase();
        let anchor: String = anchor
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c => (c.is_alphanumeric() || c == '-').then_some(c),
            })
            .collect();
        let timestamp = if scheme.signs_timestamp() { "signed" } else { "-" };
        let (algorithm, id) = (scheme.algorithm(), scheme.id_origin().as_str().replace('_', " "));
        guide.push_str(&format!("| [`{name}`](#{anchor}) | {provider} | {algorithm} | {timestamp} | {id} |\n"));
    }
    for scheme in Scheme::all() {
        guide.push_str("\n#");
        guide.push_str(&scheme.page());
    }
    guide
}

/// A good request.
#[derive(Clone)]
struct Request {
    scheme: Scheme,
    secret: Secret,
    verifier: Verifier,
    url: String,
    headers: HeaderMap,
    body: Vec<u8>,
    now: Timestamp,
}

impl Request {
    fn name(&self) -> &'static str {
        self.scheme.name()
    }

    fn head(&self) -> Head<'_> {
        Head::new(&Method::POST, &self.url, &self.headers)
    }

    fn verify(&self) -> Result<Verified, VerifyError> {
        self.verifier.verify_at(self.head(), &self.body, self.now)
    }

    fn at(&self, seconds: i64) -> Result<Verified, VerifyError> {
        let now = Timestamp::from_unix_seconds(seconds).expect("a moment");
        self.verifier.verify_at(self.head(), &self.body, now)
    }

    fn key(&self, verified: &Verified) -> DedupKey {
        verified.dedup_key(&Digest::of(&self.body))
    }

    fn with(mut self, name: &HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name.clone(), value);
        self
    }

    /// Whether this header holds an id that is not signed.
    fn is_label(&self, name: &HeaderName) -> bool {
        self.scheme.id_header() == Some(name) && self.scheme.id_origin() != IdOrigin::SignedHeader
    }

    fn verifier_with<const N: usize>(&self, secrets: [Secret; N]) -> Verifier {
        let verifier = Verifier::new(self.scheme.clone(), Keyring::from_secrets(secrets).expect("a keyring"));
        let verifier = verifier.expect("a verifier");
        match self.verifier.window() {
            Some(window) => verifier.with_window(window),
            None => verifier,
        }
    }
}

/// A good request for every row.
fn requests() -> Vec<Request> {
    let requests: Vec<Request> = Scheme::all()
        .flat_map(|scheme| {
            if scheme.is_in_body() {
                return published(&scheme);
            }
            vec![signed(&scheme, BODY).unwrap_or_else(|error| panic!("{}: {error}", scheme.name()))]
        })
        .collect();
    assert!(requests.len() >= 60);
    requests
}

fn message(body: &[u8]) -> Message<'_> {
    let now = Timestamp::from_unix_seconds(NOW).expect("a moment");
    Message::new(now, body).with_id(ID).with_target(&Method::POST, URL)
}

fn signed(scheme: &Scheme, body: &[u8]) -> Result<Request, SignError> {
    let secret = secret(scheme);
    let signer = Signer::new(scheme.clone(), Keyring::new(secret.clone())).expect("a signer");
    let headers = signer.sign(&message(body))?;
    let verifier = Verifier::new(scheme.clone(), Keyring::new(secret.clone())).expect("a verifier");
    let now = Timestamp::from_unix_seconds(NOW).expect("a moment");
    Ok(Request { scheme: scheme.clone(), secret, verifier, url: URL.to_owned(), headers, body: body.to_vec(), now })
}

/// The right requests among the vectors.
fn published(scheme: &Scheme) -> Vec<Request> {
    let valid = vectors(scheme.name()).into_iter().filter(|vector| vector.expect == "valid");
    let requests: Vec<Request> = valid
        .map(|vector| {
            let secret = vector.secrets(scheme).expect("secrets").remove(0);
            Request {
                scheme: scheme.clone(),
                verifier: vector.verifier_with(scheme, vec![secret.clone()]),
                secret,
                url: vector.url.clone(),
                // The others are not looked at.
                headers: HeaderMap::new(),
                body: vector.body(),
                now: vector.now(),
            }
        })
        .collect();
    assert!(!requests.is_empty() && texts(scheme)[0] != texts(scheme)[1], "{}", scheme.name());
    requests
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << (at % 7);
    bytes
}

fn reason(verdict: &Result<Verified, VerifyError>) -> &'static str {
    verdict.as_ref().map_or_else(VerifyError::reason, |_| "valid")
}

#[track_caller]
fn assert_reason(verdict: &Result<Verified, VerifyError>, expected: &[&str], request: &Request, what: &str, at: usize) {
    let found = reason(verdict);
    assert!(expected.contains(&found), "{} with another {what} ({at}): {found}", request.name());
}
