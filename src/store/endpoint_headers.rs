//! Headers that an endpoint may add to what it is sent: what speaks against one, whatever its scheme.

use http::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;

/// What is wrong with an endpoint's header. The text never repeats a value: it is often a token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It is no header name.
    #[error("{0:?} is no header name")]
    Name(String),
    /// It is there twice.
    #[error("the header `{0}` is there twice")]
    Repeated(HeaderName),
    /// It is written by the sender, and would change what a message says or how it is read.
    #[error("the header `{0}` is written by the sender itself and cannot be set")]
    Reserved(HeaderName),
    /// There are too many of them.
    #[error("{0} headers are given; {MAX_HEADERS} are allowed")]
    TooMany(usize),
    /// Its value cannot be sent.
    #[error("the value of the header `{name}` {problem}")]
    Value {
        /// The header.
        name: HeaderName,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// How many headers an endpoint may add.
pub(crate) const MAX_HEADERS: usize = 32;

/// How long each of their values may be, in bytes.
pub(crate) const MAX_VALUE_BYTES: usize = 4 * 1024;

/// Holds headers that are such already to the same rules.
pub(super) fn check(headers: &HeaderMap) -> Result<(), HeaderError> {
    if headers.len() > MAX_HEADERS {
        return Err(HeaderError::TooMany(headers.len()));
    }
    for name in headers.keys() {
        if is_reserved(name) {
            return Err(HeaderError::Reserved(name.clone()));
        }
        let mut values = headers.get_all(name).iter();
        let value = values.next().map_or(&[][..], HeaderValue::as_bytes);
        if values.next().is_some() {
            return Err(HeaderError::Repeated(name.clone()));
        }
        // What is no UTF-8 is not ASCII either.
        checked_value(name, std::str::from_utf8(value).unwrap_or("\u{fffd}"))?;
    }
    Ok(())
}

/// The name, where no scheme and no endpoint speaks against it.
pub(crate) fn checked_name(text: &str) -> Result<HeaderName, HeaderError> {
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_invalid| HeaderError::Name(capped(text)))?;
    if is_reserved(&name) { Err(HeaderError::Reserved(name)) } else { Ok(name) }
}

/// A name as applications may read it that cannot tell underscores from hyphens.
pub(crate) fn hyphened(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

fn is_reserved(name: &HeaderName) -> bool {
    let name = hyphened(name);
    RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

pub(crate) fn checked_value(name: &HeaderName, text: &str) -> Result<HeaderValue, HeaderError> {
    let refused = |problem| HeaderError::Value { name: name.clone(), problem };
    if text.is_empty() {
        return Err(refused("is empty"));
    }
    if text.len() > MAX_VALUE_BYTES {
        return Err(refused("is too long; 4096 bytes are allowed"));
    }
    if text.trim() != text {
        return Err(refused("begins or ends with white space"));
    }
    if !text.bytes().all(|byte| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic()) {
        return Err(refused("holds a control character or one outside ASCII"));
    }
    HeaderValue::from_str(text).map_err(|_invalid| refused("cannot be sent"))
}

/// The beginning of a name that is none: it may be a whole file.
fn capped(text: &str) -> String {
    text.chars().take(64).collect()
}

/// What the connection writes, what says how the payload is to be read, and what stands beside each signature.
const RESERVED: &[&str] = &[
    "accept-encoding",
    "causation-id",
    "connection",
    "correlation-id",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const RESERVED_PREFIXES: &[&str] = &["content-", "countersign-", "webhook-"];

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, value: &[u8]) -> Result<(), HeaderError> {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value).expect("a value"));
        check(&headers)
    }

    #[test]
    fn c110_headers_that_are_such_already_are_held_to_the_same_rules() {
        assert_eq!(checked("authorization", b"Bearer t0ken"), Ok(()));
        for name in ["webhook-id", "webhook_id", "content-type", "host", "transfer_encoding", "countersign-attempt"] {
            assert!(matches!(checked(name, b"x"), Err(HeaderError::Reserved(_))), "{name}");
        }
        for value in [&b""[..], b"\xe9", b"S3CRET\xc3\xa9"] {
            let error = checked("x-token", value).expect_err("a value that would not arrive");
            assert!(matches!(error, HeaderError::Value { .. }) && !error.to_string().contains("S3CRET"), "{error}");
        }
        let mut twice = HeaderMap::new();
        twice.append("x-a", HeaderValue::from_static("1"));
        twice.append("x-a", HeaderValue::from_static("2"));
        assert_eq!(check(&twice), Err(HeaderError::Repeated(HeaderName::from_static("x-a"))));
        let name = |number| HeaderName::from_bytes(format!("x-{number}").as_bytes()).expect("a name");
        let many: HeaderMap = (0..33).map(|number| (name(number), HeaderValue::from_static("x"))).collect();
        assert_eq!(check(&many), Err(HeaderError::TooMany(33)));
    }
}
