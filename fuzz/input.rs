//! How the targets read their input: as lines, so that a corpus can be read and written by hand.
#![allow(dead_code, reason = "no target uses all of it")]

use countersign::{Clock, Digest, Scheme, Secret, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The URL of every request; some of the schemes sign it.
pub(crate) const URL: &str = "https://hooks.example.com/in";

/// What is left of an input. Every input can be read: what is not there is empty, and what is no number counts as one.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The bytes up to the next line break.
    pub(crate) fn line(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let (line, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        line
    }

    /// A line of UTF-8; `None` for another one.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.line()).ok()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// A line as a number: the one that stands there, else one that its bytes make.
    pub(crate) fn number(&mut self) -> i64 {
        let line = self.line();
        let written = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
        written.unwrap_or_else(|| line.iter().fold(7, |sum: i64, byte| sum.wrapping_mul(257) ^ i64::from(*byte)))
    }

    /// A line as a moment, in microseconds.
    pub(crate) fn moment(&mut self) -> Timestamp {
        Timestamp::from_micros(self.number())
    }

    /// A line as the name of a preset, or of one of [`BUILT`]; any other text stands for one of them.
    pub(crate) fn scheme(&mut self) -> Scheme {
        let name = self.line();
        let names: Vec<&'static str> =
            Scheme::all().map(|scheme| scheme.name()).chain(BUILT.iter().map(|(name, _)| *name)).collect();
        let any = name.iter().map(|byte| usize::from(*byte)).sum::<usize>() % names.len();
        let name = names.iter().find(|known| known.as_bytes() == name).unwrap_or(&names[any]);
        match BUILT.iter().find(|(built, _)| built == name) {
            Some((_, options)) => Scheme::hmac(options.iter().copied()).expect("options that go together"),
            None => Scheme::named(name).expect("a preset"),
        }
    }

    /// A line as a secret of this scheme; what cannot be one stands for another.
    pub(crate) fn secret(&mut self, scheme: &Scheme) -> Secret {
        let line = self.line();
        let secret = std::str::from_utf8(line).ok().and_then(|text| scheme.parse_secret(text).ok());
        secret.unwrap_or_else(|| other_secret(line))
    }

    /// Lines `name: value` up to an empty one. A name that is a digit stands for a header of the scheme, so that the
    /// fuzzer need not find out how these are called. Lines that no server would hand on are passed over.
    pub(crate) fn headers(&mut self, scheme: &Scheme) -> HeaderMap {
        let own: Vec<&HeaderName> = scheme.headers().collect();
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return headers;
            }
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let (name, value) = line.split_at(colon);
            let value = value.strip_prefix(b":").unwrap_or_default();
            let name = match name {
                // None where everything stands in the body.
                [digit @ b'0'..=b'9'] => own.get(usize::from(digit - b'0') % own.len().max(1)).copied().cloned(),
                name => HeaderName::from_bytes(name).ok(),
            };
            let value = HeaderValue::from_bytes(value.strip_prefix(b" ").unwrap_or(value));
            if let (Some(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
    }
}

/// A secret that depends on these bytes, and that nothing in them can have been signed with. For any scheme: 32 bytes are a
/// private key too.
pub(crate) fn other_secret(bytes: &[u8]) -> Secret {
    Secret::from_bytes(Digest::of(bytes).as_bytes().to_vec()).expect("32 bytes")
}

/// A clock that stands still.
#[derive(Debug)]
pub(crate) struct At(pub(crate) Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// Schemes of options, one for each thing that presets do not do.
const BUILT: &[(&str, &[(&str, &str)])] = &[
    ("hmac-id", &[("header", "x-sig"), ("signed", "{id}:{timestamp}:{body}"), ("timestamp", "x-time"), ("id", "x-id")]),
    (
        "hmac-ms",
        &[("header", "x-sig"), ("signed", "{body}|{timestamp}"), ("timestamp", "x-time:ms"), ("encoding", "base64")],
    ),
    (
        "hmac-url",
        &[("header", "x-sig"), ("signed", "{method} {url} {body}"), ("algorithm", "sha512"), ("prefix", "s=")],
    ),
    ("hmac-body", &[("header", "x-sig"), ("algorithm", "sha1"), ("id", "body:event.id"), ("secret", "hex")]),
];
