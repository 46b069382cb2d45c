//! A request's head: what is let through has every header that counts exactly once, and no key that fits it.

use countersign::signature::{Head, IdOrigin};
use countersign::{Keyring, Scheme, Timestamp, Verifier, VerifyError};
use http::{HeaderMap, HeaderName, Method};

use super::input::{Input, URL, other_secret};

/// Reads a scheme and headers.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let scheme = input.scheme();
    let headers = input.headers(&scheme);
    // The key hangs on the whole input, so that no signature in it can be right.
    let verifier = Verifier::new(scheme.clone(), Keyring::new(other_secret(data))).expect("a verifier");

    let begun = verifier.begin(Head::new(&Method::POST, URL, &headers)).map(drop);
    if begun.is_ok() {
        every_header_is_there_once(&scheme, &headers);
    }
    nothing_verifies(&verifier, &headers, &begun);
    other_headers_do_not_count(&verifier, &headers, &begun);
}

fn every_header_is_there_once(scheme: &Scheme, headers: &HeaderMap) {
    let family = family(scheme, headers);
    assert!(scheme.is_in_body() || family.iter().any(|name| scheme.is_signature_header(name)));
    for name in &family {
        let count = headers.get_all(name).iter().count();
        assert!(count <= 1, "{count} times {name}");
        let id = scheme.id_header() == Some(name) && scheme.id_origin() == IdOrigin::SignedHeader;
        if id || scheme.timestamp_header() == Some(name) {
            assert_eq!(count, 1, "{name}");
        }
        // A content type is signed as it is.
        let empty = headers.get(name).is_some_and(|value| value.is_empty());
        assert!(!empty || ["webhook-type", "content-type"].contains(&name.as_str()), "{name} is empty");
    }
}

/// The headers that count, as far as they are there: where there are two families of names, those of the one whose
/// signature is there.
fn family(scheme: &Scheme, headers: &HeaderMap) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = scheme.headers().cloned().collect();
    if headers.contains_key("svix-signature") || !scheme.headers().any(|name| name == "svix-signature") {
        names.retain(|name| scheme.id_header() != Some(&SVIX_ID) || name.as_str().starts_with("svix-"));
    } else {
        names.retain(|name| name.as_str().starts_with("webhook-"));
    }
    names.retain(|name| headers.contains_key(name) || !scheme.is_signature_header(name));
    names
}

const SVIX_ID: HeaderName = HeaderName::from_static("svix-id");

fn nothing_verifies(verifier: &Verifier, headers: &HeaderMap, begun: &Result<(), VerifyError>) {
    let refused = verifier.verify_at(Head::new(&Method::POST, URL, headers), b"{}", Timestamp::default()).err();
    match (begun, refused) {
        (Err(early), Some(refused)) => assert_eq!(&refused, early),
        (Ok(()), Some(VerifyError::Mismatch { tried: 1 })) => {}
        (Ok(()), Some(VerifyError::MalformedBody(_))) => assert!(verifier.scheme().is_in_body()),
        (begun, refused) => panic!("{begun:?}, then {refused:?}"),
    }
}

fn other_headers_do_not_count(verifier: &Verifier, headers: &HeaderMap, begun: &Result<(), VerifyError>) {
    if verifier.scheme().name() == "rfc9421" {
        // There a request says which other headers are signed.
        return;
    }
    let mut own = HeaderMap::new();
    for (name, value) in headers {
        if verifier.scheme().headers().any(|known| known == name) {
            own.append(name, value.clone());
        }
    }
    assert_eq!(&verifier.begin(Head::new(&Method::POST, URL, &own)).map(drop), begun);
}
