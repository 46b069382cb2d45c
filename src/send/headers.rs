//! Headers that an endpoint may add to what it is sent, read from text.

use http::{HeaderMap, HeaderName};

use crate::signature::Scheme;
use crate::store::endpoint_headers::{self as rules, HeaderError, MAX_HEADERS};

/// Reads the headers that an endpoint adds to each of its messages.
///
/// Refused are names that we or the connection write (those of the scheme, `webhook-*`, `countersign-*`, `content-*`,
/// `host`, `transfer-encoding`, `connection` and others of its kind), in any case and with underscores for hyphens too,
/// since many applications cannot tell them apart; a name that is there twice; and values with control characters,
/// characters outside ASCII or outer spaces, which would not arrive as they were written.
///
/// ```
/// use countersign::Scheme;
/// use countersign::send::endpoint_headers;
///
/// let headers = endpoint_headers([("authorization", "Bearer t0ken"), ("x-tenant", "7")], &Scheme::standard())?;
/// assert_eq!(headers.len(), 2);
/// assert!(endpoint_headers([("Webhook-Signature", "v1,forged")], &Scheme::standard()).is_err());
/// # Ok::<(), countersign::send::HeaderError>(())
/// ```
///
/// # Errors
///
/// [`HeaderError`] names the first header that cannot be used.
pub fn endpoint_headers<N: AsRef<str>, V: AsRef<str>>(
    pairs: impl IntoIterator<Item = (N, V)>,
    scheme: &Scheme,
) -> Result<HeaderMap, HeaderError> {
    let mut headers = HeaderMap::new();
    let mut count = 0;
    for (name, value) in pairs {
        count += 1;
        let name = checked_name(name.as_ref(), scheme)?;
        let value = rules::checked_value(&name, value.as_ref())?;
        // A map takes no more than it can hold, and panics: what is over the limit is only counted.
        if count <= MAX_HEADERS && headers.insert(name.clone(), value).is_some() {
            return Err(HeaderError::Repeated(name));
        }
    }
    if count > MAX_HEADERS { Err(HeaderError::TooMany(count)) } else { Ok(headers) }
}

fn checked_name(text: &str, scheme: &Scheme) -> Result<HeaderName, HeaderError> {
    let name = rules::checked_name(text)?;
    let hyphened = rules::hyphened(&name);
    let is_of_scheme = scheme.headers().any(|of_scheme| of_scheme.as_str() == hyphened);
    if is_of_scheme { Err(HeaderError::Reserved(name)) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<HeaderMap, HeaderError> {
        endpoint_headers([(name, value)], &Scheme::github())
    }

    #[test]
    fn c110_names_that_we_write_are_refused() {
        for name in [
            "Webhook-Signature",
            "webhook-id",
            "webhook_id",
            "WEBHOOK-anything",
            "Content-Length",
            "content_length",
            "Content-Type",
            "content-encoding",
            "Host",
            "Transfer-Encoding",
            "CONNECTION",
            "keep-alive",
            "expect",
            "countersign-attempt",
            "x-hub-signature-256",
            "X_Hub_Signature_256",
            "traceparent",
        ] {
            assert!(matches!(read(name, "x"), Err(HeaderError::Reserved(_))), "{name}");
        }
        for name in ["", "Content-Type ", " x", "x y", "x:y", "x\r\ny", "n\u{e4}me", ":authority"] {
            assert!(matches!(read(name, "x"), Err(HeaderError::Name(_))), "{name:?}");
        }
        for name in ["authorization", "X-Api-Key", "user-agent", "accept"] {
            assert!(read(name, "x").is_ok(), "{name}");
        }
    }

    #[test]
    fn c110_values_that_would_not_arrive_as_they_are_written_are_refused() {
        let long = "x".repeat(rules::MAX_VALUE_BYTES + 1);
        for value in ["", " S3CRET", "S3CRET ", "S3CRET\r\nhost: x", "S3CRET\0", "S3CRET\u{e9}", "\u{a0}S3CRET", &long]
        {
            let error = read("x-token", value).expect_err(value);
            assert!(matches!(error, HeaderError::Value { .. }), "{error}");
            assert!(!error.to_string().contains("S3CRET"), "{error}");
        }
        assert_eq!(read("x-token", "a b\tc").expect("a value")["x-token"], "a b\tc");
    }

    #[test]
    fn c110_a_header_cannot_be_there_twice_nor_be_one_of_very_many() {
        let twice = endpoint_headers([("x-a", "1"), ("X-A", "2")], &Scheme::standard());
        assert_eq!(twice, Err(HeaderError::Repeated(HeaderName::from_static("x-a"))));
        let many = endpoint_headers((0..33).map(|n| (format!("x-{n}"), "x")), &Scheme::standard());
        assert_eq!(many, Err(HeaderError::TooMany(33)));
        let very_many = endpoint_headers((0..40_000).map(|n| (format!("x-{n}"), "x")), &Scheme::standard());
        assert_eq!(very_many, Err(HeaderError::TooMany(40_000)));
    }
}
