//! Twilio: the URL, and behind it the fields of the form, sorted by name. For any other body, the URL carries its digest.
//!
//! Names and values have nothing between them, and equal fields count once: one signature fits several forms. So events
//! are known by the signed text, which is the same for all of these.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::{memchr, memchr2};

use super::{Claim, Form, Hand, Opened};
use crate::event::Digest;
use crate::signature::header::{Head, Signatures, malformed, required, single};
use crate::signature::{Algorithm, Encoding, Message, SignError, VerifyError};

pub(in crate::signature) fn form() -> Arc<dyn Form> {
    Arc::new(Twilio)
}

#[derive(Debug)]
struct Twilio;

const SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
static SETTINGS: HeaderName = HeaderName::from_static("x-twilio-webhooks-signature-settings");

impl Form for Twilio {
    fn open(&self, head: &Head<'_>) -> Result<Opened, VerifyError> {
        let signature = required(head.headers(), &SIGNATURE)?;
        let algorithm = algorithm(head.headers())?;
        let signature = Encoding::Base64.decode(signature.as_bytes(), algorithm);
        let signature = signature.ok_or_else(|| malformed(&SIGNATURE, "it holds no well-formed signature"))?;
        let url = head.url().to_owned();
        Ok(Box::new(move |body| {
            let (fields, binds_body) = match body_digest(&url) {
                Some(digest) => (Vec::new(), digest.eq_ignore_ascii_case(&Digest::of(body).to_string())),
                None => (sorted_fields(body), true),
            };
            // Twilio signs some URLs with the port and some without, and its own libraries try both.
            let or_text = other_port(&url).map(|url| [url.as_bytes(), &fields].concat());
            let text = [url.as_bytes(), &fields].concat();
            Ok(Claim { or_text, binds_body, ..Claim::new(text, Signatures::from_iter([signature]), algorithm) })
        }))
    }

    fn sign(&self, message: &Message<'_>, hand: &Hand<'_>) -> Result<HeaderMap, SignError> {
        if message.url.is_empty() {
            return Err(SignError::MissingUrl);
        }
        let fields = match body_digest(message.url) {
            Some(digest) if digest.eq_ignore_ascii_case(&Digest::of(message.body).to_string()) => Vec::new(),
            Some(_) => return Err(SignError::Body("`bodySHA256` in the URL is the digest of another body")),
            None => sorted_fields(message.body),
        };
        let tag = hand.sign(Algorithm::HmacSha1, &[message.url.as_bytes(), &fields].concat())?;
        let text = Encoding::Base64.encode(tag, Algorithm::HmacSha1);
        let value = HeaderValue::try_from(text).map_err(|_| SignError::InvalidHeader(SIGNATURE))?;
        Ok(HeaderMap::from_iter([(SIGNATURE, value)]))
    }

    fn other_headers(&self) -> &[HeaderName] {
        std::slice::from_ref(&SETTINGS)
    }

    fn signs_url(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "{url}{fields of the form, sorted}, or {url with bodySHA256}".to_owned()
    }
}

/// That of the settings, from a closed list; without them, the one there always was.
fn algorithm(headers: &HeaderMap) -> Result<Algorithm, VerifyError> {
    let Some(settings) = single(headers, &SETTINGS)? else { return Ok(Algorithm::HmacSha1) };
    let mut named = settings
        .as_bytes()
        .split(|byte| *byte == b',')
        .filter_map(|item| item.trim_ascii().strip_prefix(b"algorithm=").map(<[u8]>::trim_ascii));
    match (named.next(), named.next()) {
        (Some(b"HMAC_SHA256"), None) => Ok(Algorithm::HmacSha256),
        (Some(b"HMAC_SHA1"), None) => Ok(Algorithm::HmacSha1),
        _ => Err(malformed(&SETTINGS, "it names no algorithm that Twilio uses")),
    }
}

/// The digest of the body that the URL's query carries.
fn body_digest(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    query.split('&').find_map(|field| field.strip_prefix("bodySHA256="))
}

/// Names and values of a form, decoded, one after the other; sorted by name, then by value, each pair once.
fn sorted_fields(body: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (field, behind) = parted(rest, b'&');
        rest = behind;
        if !field.is_empty() {
            let (name, value) = parted(field, b'=');
            fields.push((decoded(name), decoded(value)));
        }
    }
    fields.sort_unstable();
    fields.dedup();
    let mut text = Vec::with_capacity(body.len());
    for (name, value) in fields {
        text.extend_from_slice(&name);
        text.extend_from_slice(&value);
    }
    text
}

/// What stands before the first of these bytes, and behind it; nothing is behind it where there is none.
fn parted(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    let (before, behind) = text.split_at(memchr(at, text).unwrap_or(text.len()));
    (before, behind.get(1..).unwrap_or_default())
}

/// What a form's text stands for: `+` is a space, and `%` with two hex digits a byte. Most texts stand for themselves.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr2(b'%', b'+', text) else { return Cow::Borrowed(text) };
    let (plain, mut rest) = text.split_at(first);
    let mut decoded = Vec::with_capacity(text.len());
    decoded.extend_from_slice(plain);
    while let Some((first, behind)) = rest.split_first() {
        let escaped = if *first == b'%' { escape(behind) } else { None };
        let (byte, behind) = match escaped {
            Some((byte, behind)) => (byte, behind),
            None => (if *first == b'+' { b' ' } else { *first }, behind),
        };
        let (plain, behind) = behind.split_at(memchr2(b'%', b'+', behind).unwrap_or(behind.len()));
        decoded.push(byte);
        decoded.extend_from_slice(plain);
        rest = behind;
    }
    Cow::Owned(decoded)
}

fn escape(digits: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, behind @ ..] = digits else { return None };
    Some((crate::secret::hex_digit(*high)? << 4 | crate::secret::hex_digit(*low)?, behind))
}

/// The same URL without its port, or with the default one if it has none.
fn other_port(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // The colons within brackets belong to an address.
    let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    match (port, scheme) {
        (Some((_, port)), _) => {
            let authority = authority.strip_suffix(port)?.strip_suffix(':')?;
            Some(format!("{scheme}://{authority}{path}"))
        }
        (None, "https") => Some(format!("{scheme}://{authority}:443{path}")),
        (None, "http") => Some(format!("{scheme}://{authority}:80{path}")),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_decoded_sorted_and_counted_once() {
        assert_eq!(sorted_fields(b"b=2&a=%2B1+x&b=1&b=2&c&=d&&e=%zz%4"), b"da+1 xb1b2ce%zz%4");
        assert_eq!(sorted_fields(b"a=b=c&a%3Db=c&ab=&=&a"), b"aab=ca=bcab");
        for nothing in ["", "&", "&&", "=", "&=&"] {
            assert!(sorted_fields(nothing.as_bytes()).is_empty(), "{nothing}");
        }
    }

    /// The same, one byte after the other and with maps.
    fn fields_of_maps(body: &[u8]) -> Vec<u8> {
        let mut fields: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for field in body.split(|byte| *byte == b'&').filter(|field| !field.is_empty()) {
            let mut halves = field.splitn(2, |byte| *byte == b'=').map(|half| {
                let mut rest = half;
                std::iter::from_fn(move || {
                    let (first, behind) = rest.split_first()?;
                    let (byte, behind) = match (first, escape(behind)) {
                        (b'%', Some(escaped)) => escaped,
                        (b'+', _) => (b' ', behind),
                        (other, _) => (*other, behind),
                    };
                    rest = behind;
                    Some(byte)
                })
                .collect()
            });
            let name = halves.next().unwrap_or_default();
            fields.entry(name).or_default().insert(halves.next().unwrap_or_default());
        }
        fields.iter().flat_map(|(name, values)| values.iter().flat_map(|value| [&name[..], value].concat())).collect()
    }

    proptest! {
        #[test]
        fn fields_are_those_of_maps(body in "[ab&=%+2Bé]{0,24}") {
            prop_assert_eq!(sorted_fields(body.as_bytes()), fields_of_maps(body.as_bytes()));
        }
    }

    #[test]
    fn c040_a_url_is_tried_with_its_port_and_without() {
        for (url, other) in [
            ("https://hooks.example.com/in?a=1", "https://hooks.example.com:443/in?a=1"),
            ("http://hooks.example.com", "http://hooks.example.com:80"),
            ("https://hooks.example.com:8443/in", "https://hooks.example.com/in"),
            ("https://user:pass@hooks.example.com/in", "https://user:pass@hooks.example.com:443/in"),
            ("https://[2001:db8::1]/in", "https://[2001:db8::1]:443/in"),
            ("https://[2001:db8::1]:8443/in", "https://[2001:db8::1]/in"),
        ] {
            assert_eq!(other_port(url).as_deref(), Some(other));
        }
        assert_eq!(other_port("ftp://x/"), None);
        assert_eq!(other_port("/in"), None);
    }

    #[test]
    fn the_digest_of_a_body_is_that_of_the_query() {
        assert_eq!(body_digest("https://x/?a=1&bodySHA256=00ff#bodySHA256=1"), Some("00ff"));
        assert_eq!(body_digest("https://x/bodySHA256=1?a=1"), None);
    }
}
