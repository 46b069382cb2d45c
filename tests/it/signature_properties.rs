//! What holds for every message: what is signed verifies, and nothing else does.

use countersign::Timestamp;
use countersign::signature::{Head, IdOrigin, Keyring, Message, Scheme, Signer, Verified, Verifier, VerifyError};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::keys;

proptest! {
    #[test]
    fn what_a_signer_signs_its_verifier_accepts(case in case(), pieces in 1_usize..200) {
        let headers = case.sign();
        let verified = case.verify(&headers, &case.body).expect("a right signature");
        prop_assert_eq!(verified.scheme_name(), case.scheme.name());
        if verified.id_origin() == IdOrigin::SignedHeader {
            prop_assert_eq!(verified.event_id().map(|id| id.as_str()), Some(case.id.as_str()));
        }

        let mut check = case.verifier().begin(case.head(&headers)).expect("good headers");
        case.body.chunks(pieces).for_each(|piece| check.update(piece));
        prop_assert!(check.finish_at(&case.body, case.now).is_ok());
    }

    #[test]
    fn no_flipped_bit_of_the_body_goes_through(case in case(), place in any::<Index>(), bit in 0_u32..8) {
        prop_assume!(!case.body.is_empty());
        let mut body = case.body.clone();
        body[place.index(case.body.len())] ^= 1 << bit;
        let refused = case.verify(&case.sign(), &body).err();
        prop_assert_eq!(refused, Some(VerifyError::Mismatch { tried: 1 }));
    }

    #[test]
    fn no_flipped_bit_of_a_signed_header_goes_through(case in case(), which in any::<Index>(), place in any::<Index>(), bit in 0_u32..8) {
        let mut headers = case.sign();
        let label = case.scheme.id_header().filter(|_| case.scheme.id_origin() != IdOrigin::SignedHeader);
        let names: Vec<HeaderName> = headers.keys().filter(|name| Some(*name) != label).cloned().collect();
        let name = &names[which.index(names.len())];
        let mut value = headers[name].as_bytes().to_vec();
        prop_assume!(!value.is_empty());
        let at = place.index(value.len());
        let before = value[at];
        value[at] ^= 1 << bit;
        // Hex digits may change their case: that is the same signature.
        prop_assume!(!(before.is_ascii_hexdigit() && before.eq_ignore_ascii_case(&value[at])) || name.as_str().starts_with("webhook"));
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        headers.insert(name, value);
        prop_assert!(case.verify(&headers, &case.body).is_err(), "{name} at {at}");
    }

    #[test]
    fn no_other_secret_verifies(case in case(), secret in "[!-~]{16,40}") {
        let other = if case.scheme.algorithm().is_asymmetric() {
            keys::other_secret(&case.scheme)
        } else {
            countersign::Secret::from_bytes(secret.into_bytes()).expect("a secret")
        };
        let verifier = Verifier::new(case.scheme.clone(), Keyring::new(other)).expect("a verifier");
        let headers = case.sign();
        let refused = verifier.verify_at(case.head(&headers), &case.body, case.now).err();
        prop_assert_eq!(refused, Some(VerifyError::Mismatch { tried: 1 }));
    }

    #[test]
    fn no_headers_make_a_verifier_panic(scheme in scheme(), values in prop::collection::vec(hostile(), 0..6), body: Vec<u8>) {
        let names: Vec<HeaderName> = scheme.headers().cloned().collect();
        let mut headers = HeaderMap::new();
        for (at, value) in values.into_iter().enumerate() {
            if let (Some(name), Ok(value)) = (names.get(at % names.len()), HeaderValue::from_bytes(&value)) {
                headers.append(name, value);
            }
        }
        let case = Case { scheme, id: String::new(), body, now: Timestamp::default(), event_type: None };
        prop_assert!(case.verify(&headers, &case.body).is_err());
    }

    #[test]
    fn no_text_makes_the_reader_of_secrets_or_options_panic(text in "\\PC{0,80}", option in select(vec!["signed", "timestamp", "id", "prefix"])) {
        for scheme in Scheme::all() {
            if let Err(error) = scheme.parse_secret(&text) {
                prop_assert!(text.len() < 8 || !error.to_string().contains(&text));
            }
        }
        if let Ok(scheme) = Scheme::hmac([("header", "x-sig"), (option, &text)]) {
            prop_assert_eq!(scheme.name(), "hmac");
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    scheme: Scheme,
    id: String,
    body: Vec<u8>,
    now: Timestamp,
    event_type: Option<String>,
}

const URL: &str = "https://hooks.example.com/in";

impl Case {
    fn keyring(&self) -> Keyring {
        Keyring::new(keys::secret(&self.scheme))
    }

    fn sign(&self) -> HeaderMap {
        let message = Message {
            id: Some(&self.id),
            event_type: self.event_type.as_deref(),
            ..Message::new(self.now, &self.body).with_target(&Method::POST, URL)
        };
        let signer = Signer::new(self.scheme.clone(), self.keyring()).expect("a signer");
        signer.sign(&message).expect("a message that can be signed")
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(self.scheme.clone(), self.keyring()).expect("a verifier")
    }

    fn head<'a>(&self, headers: &'a HeaderMap) -> Head<'a> {
        Head::new(&Method::POST, URL, headers)
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Verified, VerifyError> {
        self.verifier().verify_at(self.head(headers), body, self.now)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let body = prop_oneof![
        any::<Vec<u8>>(),
        "\\{\"id\":\"[a-z]{1,8}\",\"event_id\":[0-9]{1,25}\\}".prop_map(String::into_bytes)
    ];
    let event_type = prop::option::of("[a-z]{0,8}");
    (scheme(), "[a-zA-Z0-9_-]{1,40}", body, 0_i64..5_000_000_000_000_000, event_type).prop_map(
        |(scheme, id, body, micros, event_type)| Case {
            scheme,
            id,
            body,
            now: Timestamp::from_micros(micros),
            event_type,
        },
    )
}

fn scheme() -> impl Strategy<Value = Scheme> {
    let built = [
        vec![("header", "x-sig"), ("signed", "{id}:{timestamp}:{body}"), ("timestamp", "x-time"), ("id", "x-id")],
        vec![("header", "x-sig"), ("signed", "{body}|{timestamp}"), ("timestamp", "x-time:ms"), ("encoding", "base64")],
        vec![("header", "x-sig"), ("signed", "{method} {url} {body}"), ("algorithm", "sha512"), ("prefix", "s=")],
        vec![("header", "x-sig"), ("algorithm", "sha1"), ("id", "body:id")],
    ];
    let built = built.into_iter().map(|options| Scheme::hmac(options).expect("a scheme"));
    select(Scheme::all().filter(signs_any_body).chain(built).collect::<Vec<_>>())
}

/// Not those that sign fields of it, or nothing: `providers.rs` has these too.
fn signs_any_body(scheme: &Scheme) -> bool {
    let signer = Signer::new(scheme.clone(), Keyring::new(keys::secret(scheme))).expect("a signer");
    let message = Message::new(Timestamp::default(), b"").with_id("id").with_target(&Method::POST, URL);
    scheme.signed_text().contains("{body}") && signer.sign(&message).is_ok()
}

/// Values that resemble real ones.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        "(v1,|v1=|t=|v0=|sha256=|v1e,)?[A-Za-z0-9+/=, .:-]{0,90}".prop_map(String::into_bytes),
        "[0-9]{0,25}".prop_map(String::into_bytes),
    ]
}
