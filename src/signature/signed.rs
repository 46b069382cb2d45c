//! The signed text: which parts of a request a signature covers, in which order, and how they are joined.
//!
//! Verifier and signer feed their MACs through this one description.

use std::borrow::Cow;
use std::fmt;

use http::HeaderName;
use smallvec::SmallVec;

use super::header::Head;

/// The signed text of a scheme: parts, the body, and parts again. A scheme that leaves the body out cannot be written
/// down.
#[derive(Clone, Debug)]
pub(super) struct SignedText {
    pub(super) before: Vec<Part>,
    pub(super) after: Vec<Part>,
    pub(super) framing: Framing,
}

/// How the parts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// One after the other. What keeps them apart are the literals between them.
    Joined,
    /// Each one, except for literals, behind its length in bytes: a big-endian `u64`. An absent one is `u64::MAX` and
    /// nothing, a length that no part has. So no two different lists of parts have the same text.
    LengthPrefixed,
}

/// A part of the signed text other than the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Cow<'static, str>),
    /// The id's header, as received.
    Id,
    /// The timestamp's text, as received. It is never printed anew: `007` and `7` are two texts.
    Timestamp,
    Method,
    Url,
    /// The URL, with HubSpot's twelve escapes decoded.
    UrlDecoded,
    Header(HeaderName),
}

/// What the parts stand for in one request.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) head: Head<'a>,
    pub(super) id: Option<&'a [u8]>,
    pub(super) timestamp: Option<&'a [u8]>,
}

impl SignedText {
    /// The body alone, the way of a third of all providers.
    #[cfg(test)]
    pub(super) fn body() -> Self {
        Self::new([])
    }

    /// `before`, then the body.
    #[cfg(test)]
    pub(super) fn new(before: impl Into<Vec<Part>>) -> Self {
        Self { before: before.into(), after: Vec::new(), framing: Framing::Joined }
    }

    /// As a template, for people.
    pub(super) fn describe(&self) -> String {
        let text = |parts: &[Part]| parts.iter().map(Part::describe).collect::<String>();
        format!("{}{{body}}{}", text(&self.before), text(&self.after))
    }

    /// All parts that are not the body.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.before.iter().chain(&self.after)
    }

    pub(super) fn covers(&self, part: &Part) -> bool {
        self.parts().any(|other| other == part)
    }

    /// The characters that an id must not hold, or one signature would fit two requests: the first one of the literal
    /// behind it, and the last one of the literal before it unless the text begins with that.
    pub(super) fn id_bounds(&self) -> [Option<u8>; 2] {
        let place = |parts: &[Part]| parts.iter().position(|part| *part == Part::Id);
        let (parts, at, leading) = match (place(&self.before), place(&self.after)) {
            _ if self.framing == Framing::LengthPrefixed => return [None; 2],
            (Some(at), _) => (&self.before, at, at <= 1),
            (None, Some(at)) => (&self.after, at, false),
            (None, None) => return [None; 2],
        };
        let literal = |at: Option<usize>| match at.and_then(|at| parts.get(at)) {
            Some(Part::Literal(text)) => text.as_bytes(),
            _ => &[],
        };
        let before = literal(at.checked_sub(1).filter(|_| !leading));
        let behind = literal(at.checked_add(1));
        [before.last().copied(), behind.first().copied()]
    }

    /// Whether the body can be fed as it arrives. Not where its length is signed in front of it.
    pub(super) fn streams(&self) -> bool {
        self.framing == Framing::Joined
    }

    /// The text around the body of one request.
    pub(super) fn around(&self, values: &Values<'_>) -> Around {
        let mut bytes: SmallVec<[u8; 64]> = SmallVec::new();
        feed(&self.before, self.framing, values, |part| bytes.extend_from_slice(part));
        let before = bytes.len();
        feed(&self.after, self.framing, values, |part| bytes.extend_from_slice(part));
        Around { bytes, before }
    }

    /// Feeds the body, or what is left of it.
    pub(super) fn feed_body(&self, body: &[u8], mut sink: impl FnMut(&[u8])) {
        let length = self.length_before(body);
        if !length.is_empty() {
            sink(&length);
        }
        sink(body);
    }

    /// The body's length, where that is signed in front of it.
    pub(super) fn length_before(&self, body: &[u8]) -> SmallVec<[u8; 8]> {
        match self.framing {
            Framing::LengthPrefixed => SmallVec::from(length(body)),
            Framing::Joined => SmallVec::new(),
        }
    }
}

/// The signed text of one request but for its body: what stands before that, and what behind.
#[derive(Clone, Default)]
pub(super) struct Around {
    /// In place is room for an id, a timestamp and what separates them.
    bytes: SmallVec<[u8; 64]>,
    before: usize,
}

impl Around {
    /// A text that stands for itself, with the body in it or without.
    pub(super) fn whole(text: Vec<u8>) -> Self {
        Self { before: text.len(), bytes: SmallVec::from_vec(text) }
    }

    pub(super) fn before(&self) -> &[u8] {
        self.halves().0
    }

    pub(super) fn after(&self) -> &[u8] {
        self.halves().1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn halves(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at_checked(self.before).unwrap_or((&self.bytes, &[]))
    }
}

/// Shows nothing: a signed URL may carry a token.
impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Part {
    pub(super) fn literal(text: &'static str) -> Self {
        Self::Literal(Cow::Borrowed(text))
    }

    /// How it is written in a template.
    fn describe(&self) -> Cow<'_, str> {
        match self {
            Self::Literal(text) => Cow::Owned(text.replace('\n', "\\n").replace('\0', "\\0")),
            Self::Id => Cow::Borrowed("{id}"),
            Self::Timestamp => Cow::Borrowed("{timestamp}"),
            Self::Method => Cow::Borrowed("{method}"),
            Self::Url => Cow::Borrowed("{url}"),
            Self::UrlDecoded => Cow::Borrowed("{decoded url}"),
            Self::Header(name) => Cow::Owned(format!("{{{name}}}")),
        }
    }

    fn value<'v>(&'v self, values: &Values<'v>) -> Option<&'v [u8]> {
        match self {
            Self::Literal(text) => Some(text.as_bytes()),
            Self::Id => values.id,
            Self::Timestamp => values.timestamp,
            Self::Method => Some(values.head.method().as_str().as_bytes()),
            // The decoded one is written by `feed`: it is a text of its own.
            Self::Url | Self::UrlDecoded => Some(values.head.url().as_bytes()),
            Self::Header(name) => values.head.headers().get(name).map(http::HeaderValue::as_bytes),
        }
    }
}

fn feed(parts: &[Part], framing: Framing, values: &Values<'_>, mut sink: impl FnMut(&[u8])) {
    for part in parts {
        let value = part.value(values);
        match (framing, part) {
            (_, Part::UrlDecoded) => sink(&hubspot_uri(values.head.url())),
            (Framing::LengthPrefixed, Part::Literal(_)) | (Framing::Joined, _) => sink(value.unwrap_or_default()),
            (Framing::LengthPrefixed, _) => feed_framed(value, &mut sink),
        }
    }
}

/// A URL with the twelve escapes decoded that HubSpot decodes before it signs, and no others.
fn hubspot_uri(url: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(url.len());
    let mut rest = url.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escape = if *first == b'%' { behind.split_at_checked(2) } else { None };
        let character = escape.and_then(|(digits, _)| {
            HUBSPOT_ESCAPES.iter().find(|(escape, _)| escape.as_bytes().eq_ignore_ascii_case(digits))
        });
        match (character, escape) {
            (Some((_, character)), Some((_, behind))) => {
                decoded.push(*character);
                rest = behind;
            }
            _ => {
                decoded.push(*first);
                rest = behind;
            }
        }
    }
    decoded
}

const HUBSPOT_ESCAPES: [(&str, u8); 12] = [
    ("3A", b':'),
    ("2F", b'/'),
    ("3F", b'?'),
    ("40", b'@'),
    ("21", b'!'),
    ("24", b'$'),
    ("27", b'\''),
    ("28", b'('),
    ("29", b')'),
    ("2A", b'*'),
    ("2C", b','),
    ("3B", b';'),
];

fn feed_framed(value: Option<&[u8]>, sink: &mut impl FnMut(&[u8])) {
    match value {
        Some(value) => {
            sink(&length(value));
            sink(value);
        }
        None => sink(&u64::MAX.to_be_bytes()),
    }
}

const fn length(value: &[u8]) -> [u8; 8] {
    (value.len() as u64).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn the_text_around_a_body_is_parted_where_the_body_stands() {
        let headers = HeaderMap::new();
        let head = Head::new(&Method::POST, "", &headers);
        let values = Values { head, id: Some(b"msg_1"), timestamp: Some(b"1700000000") };
        let dot = || Part::literal(".");
        let text = SignedText { after: vec![dot(), Part::Id], ..SignedText::new([Part::Timestamp, dot()]) };
        let around = text.around(&values);
        assert_eq!((around.before(), around.after()), (b"1700000000.".as_slice(), b".msg_1".as_slice()));
        assert!(!around.is_empty() && SignedText::body().around(&values).is_empty());
        assert_eq!(format!("{around:?}"), "..");
    }
}
