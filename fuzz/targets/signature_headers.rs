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
    for name in &family {
        let count = headers.get_all(name).iter().count();
        if may_be_absent(scheme, name, &family) {
            assert!(count <= 1, "{count} times {name}");
        } else {
            assert_eq!(count, 1, "{name}");
            assert!(!headers[name].is_empty(), "{name} is empty");
        }
    }
}

/// The headers that count: from the first signature that is there, up to that of the next family.
fn family(scheme: &Scheme, headers: &HeaderMap) -> Vec<HeaderName> {
    let starts = |name: &HeaderName| scheme.is_signature_header(name) && headers.contains_key(name);
    let mut names = scheme.headers().cloned().skip_while(|name| !starts(name));
    let signature = names.next().expect("a signature, without which a request is refused");
    std::iter::once(signature).chain(names.take_while(|name| !scheme.is_signature_header(name))).collect()
}

fn may_be_absent(scheme: &Scheme, name: &HeaderName, family: &[HeaderName]) -> bool {
    let label = scheme.id_origin() == IdOrigin::Unsigned && family.last() == Some(name);
    label || ["webhook-type", "content-type"].contains(&name.as_str())
}

fn nothing_verifies(verifier: &Verifier, headers: &HeaderMap, begun: &Result<(), VerifyError>) {
    let refused = verifier.verify_at(Head::new(&Method::POST, URL, headers), b"{}", Timestamp::default()).err();
    let expected = begun.clone().err().unwrap_or(VerifyError::Mismatch { tried: 1 });
    assert_eq!(refused, Some(expected));
}

fn other_headers_do_not_count(verifier: &Verifier, headers: &HeaderMap, begun: &Result<(), VerifyError>) {
    let mut own = HeaderMap::new();
    for (name, value) in headers {
        if verifier.scheme().headers().any(|known| known == name) {
            own.append(name, value.clone());
        }
    }
    assert_eq!(&verifier.begin(Head::new(&Method::POST, URL, &own)).map(drop), begun);
}
